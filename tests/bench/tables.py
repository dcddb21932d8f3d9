#!/usr/bin/env python3
# tables.py - make tables: the measured tables of README.md and NEWS.md, from results files.
# SPDX-License-Identifier: BSD-3-Clause
"""A table stands between two comments, and is made anew from the file that the first one names:

    <!-- table speed tests/bench/results/h200.json -->
    <!-- end of table -->

KINDS are the tables there are. With --check nothing is written, and exit 1 says that a table is
not current."""
import argparse
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
import points as table  # noqa: E402

FILES = ("README.md", "NEWS.md")
BLOCK = re.compile(r"(<!-- table (\S+) (\S+) -->\n)(.*?)(<!-- end of table -->)", re.S)


def ratio(value, measured=True):
    return "-" if not value else ("" if measured else "~") + f"{value:.2f}"


def lines(head, rows):
    return ["| " + " | ".join(map(str, row)) + " |" for row in [head, ["---"] * len(head), *rows]]


def origin(data):
    """Under each table: where its numbers come from."""
    return (f"{data['gpu']}, driver {data['driver']}, CUDA {data['cuda']}, {data['date']}, commit "
            f"{data['commit']}: `{data['command']}`")


def known_rows(data):
    """The rows that are points of the peers' table, in its order: (point, row)."""
    rows = {table.parse(row["problem"]): row for row in data["rows"]}
    return [(p, rows[p]) for p in table.table() if p in rows]


def lse(data):
    """What was timed, and what LSE costs beside it."""
    costs = [100 * (row["ours_lse_us"] / row["ours_us"] - 1) for row in data["rows"]
             if "ours_lse_us" in row]
    return (f"Timed without LSE, as by default; with it a call takes {min(costs):.1f} to "
            f"{max(costs):.1f} % longer." if costs else "Timed with LSE.")


def speed(data):
    """A row a head_dim and mask, a column a length: TFLOP/s and the ratio to FA3."""
    rows = {(p.d, p.mask, p.sq): row for p, row in known_rows(data)}
    lengths = sorted({sq for _, _, sq in rows})
    out = []
    for d, mask in dict.fromkeys((d, mask) for d, mask, _ in rows):
        cells = []
        for sq in lengths:
            row = rows.get((d, mask, sq))
            _, fa3, measured = table.ratios(row) if row else (None, None, True)
            cells.append(f"{row['tflops']:.0f} ({ratio(fa3, measured)})" if row else "-")
        out.append([d, mask, *cells])
    return lines(["head_dim", "mask", *lengths], out) + [
        "", "TFLOP/s forward, bf16, 16,384 tokens, heads × head_dim = 2,048; in brackets the "
        "ratio to FlashAttention-3, ~ where it is taken from cuDNN's time and the peers' table. "
        + lse(data)]


def compared(row):
    peer = row["peers"]
    cudnn, fa3, measured = table.ratios(row)
    us = [f"{peer[k]:.1f}" if peer.get(k) else "-" for k in ("cudnn_us", "fa2_us", "fa3_us")]
    return [f"{row['ours_us']:.1f}", *us, f"{row['tflops']:.0f}", ratio(cudnn),
            ratio(fa3, measured), f"{100 * row['noise']:.1f} %"]


COMPARED = ["ours, µs", "cuDNN", "FA2", "FA3", "TFLOP/s", "/ cuDNN", "/ FA3", "noise"]


def points(data):
    return lines(["head_dim", "S", "mask", *COMPARED],
                 [[p.d, p.sq, p.mask, *compared(row)] for p, row in known_rows(data)])


def drawn(data):
    known = table.table()
    rows = [row for row in data["rows"] if table.parse(row["problem"]) not in known]
    return lines(["shape", *COMPARED],
                 [[re.sub(" layout=bshd| lse=no", "", row["problem"]), *compared(row)]
                  for row in rows]) + ["", f"Shapes drawn from seed {data['seed']}. {lse(data)}"]


def costs(data):
    calls = data["calls"]
    return lines(["what", "measured"], [
        ["first call, cold (generate, compile, load, run)", f"{data['cold_ms']:.0f} ms"],
        ["first call, warm (open to launch returned)", f"{data['warm_ms']:.1f} ms"],
        ["CPU time of a launch, C", f"{data['launch_cpu_ns'] / 1e3:.2f} µs"],
        *([["the same, its queries elsewhere", f"{calls['elsewhere_ns'] / 1e3:.2f} µs"]]
          if "elsewhere_ns" in calls else []),
        ["the same through Python", f"{calls['python_ns'] / 1e3:.1f} µs"],
        ["PyTorch with FA2", f"{calls['fa2_ns'] / 1e3:.1f} µs"],
        ["PyTorch with cuDNN", f"{calls['cudnn_ns'] / 1e3:.1f} µs"]])


def full(data):
    return points(data) + [""] + drawn(data) + [""] + costs(data)


KINDS = {f.__name__: f for f in (speed, points, drawn, costs, full)}


def remake(text, read):
    """The text with every table made anew; read(path) gives a results file's data, None when there
    is none: then an empty table stays empty. ValueError names a marker that cannot be served."""
    def block(match):
        begin, kind, path, old, end = match.groups()
        if kind not in KINDS:
            raise ValueError(f"table {kind}: no such kind; there are {', '.join(KINDS)}")
        data = read(path)
        if data is None and old:
            raise ValueError(f"table {kind}: there is no {path}")
        if data is None:
            return match.group()
        return begin + "\n".join(KINDS[kind](data) + ["", origin(data)]) + "\n" + end

    return BLOCK.sub(block, text)


def read_result(path):
    path = os.path.join(ROOT, path)
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--check", action="store_true", help="exit 1 if one is not current")
    check, stale = p.parse_args().check, 0
    for name in FILES:
        path = os.path.join(ROOT, name)
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as f:
            text = f.read()
        try:
            made = remake(text, read_result)
        except (OSError, ValueError, KeyError) as e:
            print(f"{name}: {e}", file=sys.stderr)
            return 2
        if made != text and check:
            print(f"{name}: a table is not what its results file gives; run `make tables`",
                  file=sys.stderr)
            stale = 1
        elif made != text:
            with open(path, "w", encoding="utf-8") as f:
                f.write(made)
            print(f"wrote {name}")
    return stale


if __name__ == "__main__":
    sys.exit(main())
