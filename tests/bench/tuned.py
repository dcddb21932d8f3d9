"""tuned.py - `make tuned`: tunes a workload on this GPU and puts the choices in specs/tuned/.
SPDX-License-Identifier: BSD-3-Clause

tuned.py [--seconds S] [--budget S] [--table FILE]
                                          S for each problem, S for all; what is tuned already takes
                                          no time, what was not measured to the end is not written
tuned.py --from RESULTS.json --doctor DOCTOR.json [--table FILE]
                                          from what `tune --json` and `doctor --json` printed
tuned.py --workload [GROUPS]              prints the problems of so many groups (all), a line each,
                                          for `tune --workload`
An entry of a problem that was measured anew is replaced, the others stay; they are sorted, and the
file depends on nothing but what went in. BUILD names the build folder."""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

from points import Point, parse, table

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.path.join(ROOT, os.environ.get("BUILD", "build")))
FACTS = ("arch", "gpu", "sms", "driver", "nvrtc", "date", "commit")
HEAD = """# {name}.yaml - the shipped choices: what was fastest when measured. Made by `make tuned`.
# SPDX-License-Identifier: BSD-3-Clause
"""


def group(points):
    """Their problems, those of few candidates first: what they do not need, the others may use. At
    head_dim 64 those with LSE, too, which have other kernels."""
    problems = [p.problem for p in sorted(dict.fromkeys(points), key=lambda p: -p.d)]
    return problems + [p.replace("lse=no", "lse=yes") for p in problems
                       if p.startswith("head_dim=64 ")]


def workload():
    """Problems, in groups: the 36 points; grouped heads and one sequence alone, of the same
    kernels; other head sizes."""
    masks, few, others = ("none", "causal"), [], []
    for d in (64, 128):
        few += [Point(d, d, "bf16", mask, 16384 // s, 32, 4, s, s)
                for mask in masks for s in (1024, 4096, 16384)]
        few += [Point(d, d, "bf16", mask, 1, 16, 16, s, s)
                for mask in masks for s in (512, 1024, 2048, 4096, 8192)]
    for d, dv, heads in ((80, 80, 24), (96, 96, 20), (160, 160, 12), (192, 128, 16)):
        others += [Point(d, dv, "bf16", mask, 16384 // s, heads, heads, s, s)
                   for mask in masks for s in (1024, 4096, 16384)]
    return [group(table()), group(few), group(others)]


def words(problem):
    """A problem without its layout, which changes no choice."""
    return re.sub(r" ?\blayout=\w+", "", problem).strip()


def order(problem):
    p = parse(problem)
    return (p.d, p.dv, p.mask != "none", p.heads // p.kv_heads, p.sq, p.sk, p.batch, p.heads,
            p.dtype, problem)


def facts(doctor):
    """Of the machine, from the rows of `doctor --json`."""
    rows = {}
    for row in doctor:
        if row["state"] == "ok":
            rows.setdefault(row["what"], row["detail"])
    gpu = re.search(r"(?:\d+: )?(.+?), (sm_\w+), .*?(\d+) SMs", rows["gpu"])
    return {"arch": gpu[2], "gpu": gpu[1], "sms": gpu[3],
            "driver": rows["driver"].replace("CUDA ", ""),
            "nvrtc": re.search(r"NVRTC ([\d.]+)", rows["nvrtc"])[1]}


def entry(row):
    """A line of the table of a row of `tune --json`."""
    us, second = row["time_us"], row["runner_up"]
    line = (f"  - {{problem: {words(row['problem'])}, use: {row['kernel']}, "
            f"section_mb: {row['section_mb']}, us: {us:.2f}")
    if second != "-":
        line += f", runner_up: {{name: {second}, us: {us * (1 + row['lost_pct'] / 100):.2f}}}"
    return line + "}"


def read(path):
    """{problem: line} of a table that is there."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return {}
    found = {}
    for line in lines:
        problem = re.match(r"  - \{problem: ([^,]+),", line)
        if problem:
            found[problem[1]] = line
    return found


def write(path, about, entries):
    name = os.path.basename(path)[:-5]
    lines = [f"tuned: {name}"] + [f"{key}: {about[key]}" for key in FACTS]
    lines += ["entries:"] + [entries[p] for p in sorted(entries, key=order)]
    if not entries:
        lines[-1] += " []"
    text = HEAD.format(name=name) + "\n".join(lines) + "\n"
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def ask(*args):
    """What the command prints as JSON; its progress and complaints go to the terminal."""
    done = subprocess.run([os.path.join(BUILD, "warploom"), *args, "--json"], text=True,
                          stdout=subprocess.PIPE)
    return json.loads(done.stdout or "[]")


def measured(options):
    """Rows, a group at a time, for as long as the budget gives each problem of the next two
    seconds; then what has not come to its end goes on."""
    end, late, least = time.monotonic() + options.budget, [], 0
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        for problems in [*workload(), late]:
            seconds = min(end - time.monotonic(), options.seconds * len(problems))
            if not problems or seconds < least * len(problems):
                print(f"{len(problems)} problems are left out")
                continue
            least = 2
            file.seek(0)
            file.truncate()
            file.write("".join(p + "\n" for p in problems))
            file.flush()
            rows = ask("tune", "--workload", file.name, "--seconds", str(int(seconds)))
            late += [row["problem"] for row in rows if row["finished"] != "yes"]
            yield rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="results")
    parser.add_argument("--doctor")
    parser.add_argument("--table", default=os.path.join(ROOT, "specs/tuned/h200.yaml"))
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--budget", type=float, default=float("inf"))
    parser.add_argument("--rows", help="a file that gets the rows of `tune --json`")
    parser.add_argument("--date", default=time.strftime("%Y-%m-%d", time.gmtime()))
    parser.add_argument("--commit")
    parser.add_argument("--workload", type=int, nargs="?", const=9)
    options = parser.parse_args()
    if options.workload:
        return print("\n".join(p for g in workload()[:options.workload] for p in g))
    about = facts(json.load(open(options.doctor)) if options.doctor else ask("doctor"))
    commit = options.commit or subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], text=True, stdout=subprocess.PIPE
    ).stdout.strip() or "unknown"
    about.update(date=options.date, commit=commit)
    entries, found = read(options.table), {}
    for rows in [json.load(open(options.results))] if options.results else measured(options):
        found.update((row["problem"], row) for row in rows)
        whole = [row for row in found.values() if row["finished"] == "yes"]
        entries.update((words(row["problem"]), entry(row)) for row in whole)
        write(options.table, about, entries)
        if options.rows:
            with open(options.rows, "w", encoding="utf-8") as file:
                file.write("[" + ",\n".join(map(json.dumps, found.values())) + "]\n")
        print(f"{options.table}: {len(whole)} of {len(found)} measured to the end; "
              f"{len(entries)} entries", flush=True)
    return subprocess.run([os.path.join(BUILD, "warploom"), "check", options.table]).returncode


if __name__ == "__main__":
    sys.exit(main())
