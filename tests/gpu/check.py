#!/usr/bin/env python3
# check.py - make check-gpu: every case of the table on the GPU, through the Python binding alone.
# SPDX-License-Identifier: BSD-3-Clause
"""Kernels are compiled by several processes first; then each case is launched three times on
poisoned outputs. It passes when
  - O and LSE are written everywhere and nothing around them is;
  - rows without a key are 0 and -inf;
  - the largest error of O is at most twice that of PyTorch's own attention in the same type
    (both against float64), plus half a unit in the last place of the largest value;
  - the error of O in norm, and of LSE, are within LIMITS;
  - every launch gives the same bits.
Last line: `N passed, N failed`."""
import argparse
import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "runtime", "python")]
import cases as table  # noqa: E402
from prepare import (cache_folder, chosen, command, compile_all, covering_set,  # noqa: E402
                     gpu_or_exit)

# Norm of the error of O over the norm of O, for normal inputs; and why two cases are allowed more:
# - few elements of O: the ratio is a statistic over them, and over so few a right kernel's ratio
#   scatters above its mean by as much as the second number allows;
# - extreme scores: a row's weight lies on a few keys, so the rounding of those few large P to bf16
#   or fp16 no longer averages out over many keys, and shows whole in O.
# The rule of twice PyTorch's largest error holds for all three alike.
LIMITS = {"bf16": (2.4e-3, 3.2e-3, 5e-3), "fp16": (4e-4, 6e-4, 3e-3)}
ROUNDING = {"bf16": 2.0 ** -8, "fp16": 2.0 ** -11}
LSE_LIMIT = 2e-5         # absolute; times the largest |score| of the row on other inputs
# Elements of O from which on a norm is near enough to its mean, 2.36e-3 in bf16: of n rounding
# errors it scatters by 1 / sqrt(2 n), and among some hundred cases one is 3 sigma off.
ENOUGH = 16384
# What all rows of a head have in common, the mean of V, has batch x heads x head_dim_v degrees of
# freedom; where it is small by chance the ratio is large: by 0.8 % a sigma of 256 of them. So many
# sigma / sqrt(degrees of freedom) are allowed above the limit.
SCATTER = 0.25
CASE_SECONDS = 45        # longer: the kernel hangs

# Problems at which each knob's each value is forced, beside the generator's covering set.
KNOB_PROBLEMS = [f"head_dim={d} dtype=bf16 mask={m} layout=bshd heads=16 seq_q=4096 lse=no"
                 for d in (64, 128, 256) for m in table.MASKS] + [
    "head_dim=128 dtype=fp16 mask=causal layout=bshd heads=16 seq_q=4096",
    "head_dim=80 dtype=bf16 mask=none layout=bshd heads=16 seq_q=4096",
    "head_dim=192 head_dim_v=128 dtype=bf16 mask=causal layout=bshd heads=16 seq_q=4096"]


def knob_names():
    """Of 16-bit tensors, none and causal: masks by formula and 8-bit tensors have tables of their
    own (variants.py, eight.py)."""
    names = [n for n, p in ((n, table.parse(n)) for n in covering_set())
             if p[3] in table.DTYPES and p[4] in table.MASKS]
    for problem in KNOB_PROBLEMS:
        done = command("list", *problem.split(), "--json")
        if done.returncode:
            sys.exit(f"warploom list {problem}: {done.stderr.strip()}")
        names += table.cover(row["name"] for row in json.loads(done.stdout))
    return names


def prepare(cases, args):
    """Compiles all kernels that the cases need; returns {case: why it has none}."""
    problems = {c.bucket: c for c in cases if not c.kernel}
    with ThreadPoolExecutor(args.jobs) as pool:
        names = dict(zip(problems, pool.map(chosen, problems)))
    name_of = {c: c.kernel or names[c.bucket] for c in cases}
    failed = compile_all((n for n in name_of.values() if n), args.jobs, args.compile_seconds)
    return {c: failed[n] for c, n in name_of.items() if n in failed}


def launch(case, t):
    import warploom
    warploom.forward(t.q, t.k, t.v, causal=case.mask == "causal", scale=case.scale or None,
                     out=t.o, lse=t.lse if case.lse else None, kernel=case.kernel or None,
                     variant=case.variant or None)


def repeated(case, t, times):
    """Launches again on poisoned outputs; whether O and LSE are the first launch's, bit by bit."""
    import torch
    o, lse = t.o_arena.raw.clone(), t.lse_arena.raw.clone()
    same = True
    for _ in range(times):
        t.poison()
        launch(case, t)
        same &= torch.equal(o, t.o_arena.raw) and torch.equal(lse, t.lse_arena.raw)
    return same


class Errors:
    """Largest and squared errors, gathered piece by piece."""

    def __init__(self):
        self.ours = self.torch = self.top = self.lse = self.square = self.norm = 0.0
        self.dead = True
        self.live = 0

    def add(self, case, o, lse, want, torch_o):
        import torch
        ref, ref_lse, top = want
        alive = ref_lse.isfinite()
        rows = alive.transpose(1, 2)
        self.dead &= bool((o[~rows] == 0).all())
        self.dead &= not case.lse or bool((lse[~alive] == float("-inf")).all())
        o, torch_o, ref = o[rows].double(), torch_o[rows].double(), ref[rows]
        if not ref.numel():
            return
        self.live += ref.numel()
        self.ours = max(self.ours, (o - ref).abs().max().item())
        self.torch = max(self.torch, (torch_o - ref).abs().max().nan_to_num(1e30).item())
        self.top = max(self.top, ref.abs().max().item())
        self.square += (o - ref).square().sum().item()
        self.norm += ref.square().sum().item()
        if not case.lse:
            return
        per_row = torch.ones_like(top) if plain_inputs(case) else top.clamp(min=1.0)
        error = (lse[alive].double() - ref_lse[alive]).abs() / per_row[alive]
        self.lse = max(self.lse, error.max().item())

    def complaints(self, case):
        normal, few, other = LIMITS[case.dtype]
        near = normal * (1 + SCATTER / (case.batch * case.heads * case.dv) ** 0.5)
        limit = other if not plain_inputs(case) else near if self.live >= ENOUGH else few
        ratio = (self.square / self.norm) ** 0.5 if self.norm else 0.0
        most = 2 * self.torch + ROUNDING[case.dtype] * self.top
        lines = [] if self.dead else ["rows without keys: not 0 and -inf"]
        if self.ours > most:
            lines.append(f"O: error {self.ours:.3g} > {most:.3g} (PyTorch {self.torch:.3g})")
        if ratio > limit:
            lines.append(f"O: norm ratio {ratio:.3g} > {limit:.3g}")
        if self.lse > LSE_LIMIT:
            lines.append(f"LSE: error {self.lse:.3g} > {LSE_LIMIT:.3g}")
        return lines, ratio


def plain_inputs(case):
    return case.kind == "normal" and not case.scale


def run_case(case, worst):
    """The complaints about one case, a list of lines."""
    import torch
    from tensors import Tensors, pieces, plain, reference
    t = Tensors(case, seed=hash_of(case))
    launch(case, t)
    torch.cuda.synchronize()
    lines = [f"{name}: written outside" for name in t.guards()]
    if bool(t.o.isnan().any()) or case.lse and bool(t.lse.isnan().any()):
        return lines + [f"NaN or not written: {int(t.o.isnan().sum())} of {t.o.numel()} of O, "
                        f"{int(t.lse.isnan().sum())} of {t.lse.numel()} of LSE"]
    scale, errors = case.scale or case.d ** -0.5, Errors()
    for b, h, kv in pieces(case):
        q, k, v = t.q[b, :, h], t.k[b, :, kv], t.v[b, :, kv]
        errors.add(case, t.o[b, :, h], t.lse[b, h], reference(q, k, v, case.mask, scale),
                   plain(q, k, v, case.mask, scale))
    more, ratio = errors.complaints(case)
    if plain_inputs(case) and errors.live >= ENOUGH:
        worst[case.dtype] = max(worst.get(case.dtype, 0.0), ratio)
        worst["LSE"] = max(worst.get("LSE", 0.0), errors.lse)
    if not repeated(case, t, 20 if case.sq >= 1500 else 2):
        more.append("launches differ bit by bit")
    return lines + more


def hash_of(case):
    """A seed that is the same in every process."""
    return sum((i + 1) * ord(c) for i, c in enumerate(str(case)))


def device_lost():
    import torch
    try:
        torch.cuda.synchronize()
        return False
    except Exception:
        return True


class Totals:
    def __init__(self):
        self.passed = self.failed = 0

    def add(self, name, lines):
        for line in lines:
            print(f"FAIL {name}: {line}", flush=True)
        self.failed += bool(lines)
        self.passed += not lines

    def end(self):
        print(f"{self.passed} passed, {self.failed} failed", flush=True)
        return self.failed != 0


def guarded(name, totals, function):
    """Runs function() -> complaints; an exception is a complaint, a hang ends the process."""
    def hang():
        totals.add(name, [f"no end after {CASE_SECONDS} s; what follows was not run"])
        totals.end()
        os._exit(1)

    timer = threading.Timer(CASE_SECONDS, hang)
    timer.daemon = True
    timer.start()
    try:
        lines = function()
    except Exception as e:
        text = str(e).strip().splitlines() or ["no message"]
        lines = [f"{type(e).__name__}: {text[0]}"]
    timer.cancel()
    totals.add(name, lines)
    if lines and device_lost():
        print("the device is lost; what follows was not run", flush=True)
        sys.exit(totals.end())


def options():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--quick", action="store_true", help="about 80 cases of the table alone")
    p.add_argument("--table", action="store_true", help="the table, no forced candidates")
    p.add_argument("--knobs", action="store_true", help="forced candidates alone")
    p.add_argument("--names", help="a file of candidates to force, one a line, alone")
    p.add_argument("--only", default="", help="cases whose text holds this")
    p.add_argument("--no-prepare", action="store_true", help="compile in this process")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--compile-seconds", type=float, default=300)
    return p.parse_args()


def chosen_cases(args):
    """The table and the forced candidates, or the part that is asked for."""
    every = not (args.quick or args.table or args.knobs or args.names)
    cases = table.quick() if args.quick else table.table() if args.table or every else []
    names = knob_names() if args.knobs or every else []
    if args.names:
        with open(args.names) as f:
            names += [line.split()[0] for line in f if line.strip() and line[0] != "#"]
    for name in dict.fromkeys(names):
        cases += table.forced(name)
    return [c for c in cases if args.only in str(c)]


def main():
    args = options()
    gpu_or_exit("check.py")
    cache_folder()
    cases, totals, worst = chosen_cases(args), Totals(), {}
    failed = {} if args.no_prepare else prepare(cases, args)
    import extras
    start = time.time()
    for i, case in enumerate(cases):
        if case in failed:
            totals.add(str(case), [failed[case]])
        else:
            guarded(str(case), totals, lambda: run_case(case, worst))
        if i % 100 == 99:
            print(f"{i + 1} of {len(cases)} cases, {time.time() - start:.1f} s", flush=True)
    for name, function in extras.CHECKS:
        if args.only in name and not (args.knobs or args.names):
            guarded(name, totals, function)
    print("worst on normal inputs:", ", ".join(f"{k} {v:.3g}" for k, v in sorted(worst.items())))
    return totals.end()


if __name__ == "__main__":
    sys.exit(main())
