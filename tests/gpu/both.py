#!/usr/bin/env python3
# both.py - the same calls on the GPU and in the simulator: how far their results are apart.
# SPDX-License-Identifier: BSD-3-Clause
"""Each case is run twice by the command, on the same random inputs. It passes when O differs by at
most 2 units in the last place of its type (or of a hundredth of the row's largest value, below
which cancellation decides), at least 99 % of O's elements have the same bits, and LSE is within
1e-6 absolute plus 1e-6 relative. Last line: `N passed, N failed`. Needs a GPU, numpy and
build/sim/libcuda.so.1."""
import argparse
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.abspath(os.environ.get("BUILD") or os.path.join(ROOT, "build"))
SHAPES = [  # batch, heads, kv_heads, seq_q, seq_k
    (1, 2, 1, 200, 333), (2, 1, 1, 64, 64), (1, 3, 3, 1, 500), (1, 2, 2, 257, 257),
    (3, 2, 1, 130, 65), (1, 1, 1, 400, 150), (1, 4, 2, 96, 1000), (2, 2, 2, 193, 320),
    (1, 1, 1, 700, 700), (1, 8, 1, 33, 47)]
HEADS = [(64, 64), (128, 128), (256, 256), (80, 80), (192, 128), (40, 40)]
os.environ["WARPLOOM_SIM_SUMS"] = "hardware"
MANTISSA = {"bf16": 7, "fp16": 10}


def cases():
    """Every head size, type and mask with every other shape."""
    out = []
    for i, (d, dv) in enumerate(HEADS):
        for dtype in MANTISSA:
            for mask in ("none", "causal"):
                for b, h, hk, sq, sk in SHAPES[i % 2:] if i % 2 else SHAPES:
                    out.append(f"head_dim={d} head_dim_v={dv} dtype={dtype} mask={mask} "
                               f"layout=bshd batch={b} heads={h} kv_heads={hk} seq_q={sq} "
                               f"seq_k={sk}")
    return out


def run(problem, device, seed, folder):
    o, lse = (os.path.join(folder, f"{seed}-{device}-{name}.npy") for name in ("o", "lse"))
    done = subprocess.run([os.path.join(BUILD, "warploom"), "run", "--device", device,
                           *problem.split(), "--random", str(seed), "-o", o, "--lse", lse],
                          text=True, capture_output=True, timeout=120)
    if done.returncode:
        raise RuntimeError(f"{device}: {done.stderr.strip()[-300:]}")
    arrays = np.load(o).astype(np.float64), np.load(lse).astype(np.float64)
    os.remove(o), os.remove(lse)
    return arrays


def compare(problem, seed, folder):
    """(complaint or None, largest distance in ulp, share of equal elements)"""
    (o1, lse1), (o2, lse2) = (run(problem, device, seed, folder) for device in ("gpu", "sim"))
    bits = MANTISSA[dict(w.split("=") for w in problem.split())["dtype"]]
    size = np.maximum(np.abs(o1), np.abs(o1).max(axis=-1, keepdims=True) / 100)
    ulp = 2.0 ** (np.floor(np.log2(np.maximum(size, 1e-30))) - bits)
    far, equal = (np.abs(o1 - o2) / ulp).max(), (o1 == o2).mean()
    finite = np.isfinite(lse1)
    if (finite != np.isfinite(lse2)).any():
        return "LSE is finite on one only", far, equal
    lse1, lse2 = lse1[finite], lse2[finite]
    lse_far = np.abs(lse1 - lse2) - 1e-6 - 1e-6 * np.abs(lse1)
    if lse_far.size and lse_far.max() > 0:
        return f"LSE is {lse_far.max() + 1e-6:.2e} apart", far, equal
    if far > 2 or equal < 0.99:
        return f"O is {far:.2f} ulp apart, {100 * equal:.2f} % equal", far, equal
    return None, far, equal


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--jobs", type=int, default=min(12, os.cpu_count() or 1))
    args = p.parse_args()
    failed, worst, least = 0, 0.0, 1.0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.jobs) as pool:
        jobs = [(problem, pool.submit(compare, problem, seed, folder))
                for seed, problem in enumerate(cases())]
        for problem, job in jobs:
            try:
                why, far, equal = job.result()
                worst, least = max(worst, far), min(least, equal)
            except (RuntimeError, subprocess.TimeoutExpired) as e:
                why = str(e)
            if why:
                failed += 1
                print(f"FAIL {problem}: {why}")
    print(f"largest distance {worst:.2f} ulp, least share of equal elements {100 * least:.2f} %")
    print(f"{len(jobs) - failed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
