#!/usr/bin/env python3
# eight.py - attention of 8-bit tensors on the GPU at hand: its two errors, and its speed.
# SPDX-License-Identifier: BSD-3-Clause
"""tests/bench/eight.py [--seeds N] [--parts kernel,format,speed]

kernel: |O - R| / |R|, R being attention in float64 on the same 8-bit values and scales.
format: the same with R on the values before they were rounded; mean and spread of N seeds.
speed: 16,384 tokens, heads x head_dim = 2,048, beside cuDNN's bf16, in turns; medians."""
import argparse
import math
import os
import statistics
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "runtime/python"))
import warploom  # noqa: E402

PRECISIONS = ("balanced", "accurate", "fast")


def normal(*shape, mean=0.0, scale=1.0):
    return (torch.randn(*shape, device="cuda") * scale + mean).bfloat16()


def outliers(*shape):
    """N(0, 1), and N(0, 100) added to one of a thousand."""
    rare = torch.rand(*shape, device="cuda") < 0.001
    return (torch.randn(*shape, device="cuda") + 10 * torch.randn(*shape, device="cuda") * rare
            ).bfloat16()


def eight(q, k, v, by_head=False):
    """What forward takes of it, and the values that this stands for."""
    (q8, sq), (k8, sk) = (warploom.quantize(x, by_head=by_head) for x in (q, k))
    (v8, sv), (turned, _) = (warploom.quantize(v, by_head=by_head, turned=t) for t in (0, 1))

    def values(x8, scale):
        return x8.double() * (scale.view(x8.shape[0], 1, -1, 1) if by_head else scale).double()
    return (q8, k8, turned), (sq, sk, sv), (values(q8, sq), values(k8, sk), values(v8, sv))


def attention(q, k, v, causal=False, rows=512):
    """float64, some rows spread over all."""
    n = q.shape[1]
    at = torch.linspace(0, n - 1, min(n, rows), device="cuda").long()
    q, k, v = (x.double().transpose(1, 2) for x in (q[:, at], k, v))
    s = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])
    if causal:
        s = s.masked_fill(torch.arange(n, device="cuda") > at[:, None], -math.inf)
    return at, (torch.softmax(s, 3) @ v).transpose(1, 2)


def error(o, want):
    at, right = want
    return ((o[:, at].double() - right).norm() / right.norm()).item()


def kernel_errors():
    cases = [("1,024 keys", 1024, 1, 0, False), ("causal", 1024, 1, 0, True),
             ("4,096 keys", 4096, 1, 0, False), ("q x 2", 1024, 2, 0, False),
             ("V + 0.25, 16,384", 16384, 1, 0.25, False), ("V + 1, 16,384", 16384, 1, 1, False),
             ("V + 0.25, 131,072", 131072, 1, 0.25, False), ("V + 1, 131,072", 131072, 1, 1, False)]
    print("\n| head_dim | precision | " + " | ".join(c[0] for c in cases) + " |")
    print("| --- " * (2 + len(cases)) + "|")
    for dim in (64, 128, 256):
        rows = {p: [] for p in PRECISIONS}
        for _, n, factor, mean, causal in cases:
            heads = 4 if n <= 4096 else 1
            few = 2048 if n > 16384 else n
            q = normal(1, few, heads, dim, scale=factor)
            k, v = normal(1, n, heads, dim), normal(1, n, heads, dim, mean=mean)
            given, scales, values = eight(q, k, v)
            want = attention(*values, causal)
            for p in PRECISIONS:
                o = warploom.forward(*given, causal=causal, scales=scales, precision=p)
                rows[p].append(error(o, want))
        for p in PRECISIONS:
            print(f"| {dim} | {p} | " + " | ".join(f"{e:.4f}" for e in rows[p]) + " |", flush=True)


def hadamard(dim):
    h = torch.ones(1, 1, device="cuda")
    while h.shape[0] < dim:
        h = torch.cat((torch.cat((h, h), 1), torch.cat((h, -h), 1)))
    signs = torch.randint(0, 2, (dim,), device="cuda") * 2 - 1
    return h * signs[:, None] / math.sqrt(dim)


def format_errors(seeds):
    ways = ("tensor", "head", "Hadamard of q, k; tensor")
    print("\n| head_dim | keys | inputs | " + " | ".join(ways) + " |")
    print("| --- " * (3 + len(ways)) + "|")
    for dim in (64, 128, 256):
        for n in (1024, 4096):
            for name, draw in (("normal", normal), ("outliers", outliers)):
                got = {w: [] for w in ways}
                for seed in range(seeds):
                    torch.manual_seed(seed)
                    q, k, v = (draw(1, n, 4, dim) for _ in range(3))
                    want, turn = attention(q, k, v), hadamard(dim)
                    turned = tuple((x.float() @ turn).bfloat16() for x in (q, k))
                    for way, inputs in ((ways[0], (q, k, v)), (ways[1], (q, k, v)),
                                        (ways[2], (*turned, v))):
                        given, scales, _ = eight(*inputs, by_head=way == "head")
                        o = warploom.forward(*given, scales=scales, precision="accurate")
                        got[way].append(error(o, want))
                cells = (f"{statistics.mean(x):.4f} ± {statistics.stdev(x):.4f}"
                         for x in got.values())
                print(f"| {dim} | {n} | {name} | " + " | ".join(cells) + " |", flush=True)


def median_us(calls, rounds=7, target_ms=2.0):
    """Microseconds of each call, in turns."""
    got, count = {name: [] for name in calls}, {}
    for turn in range(-1, rounds):
        for name, call in calls.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            if turn < 0:
                call()
            begin.record()
            for _ in range(count.get(name, 1)):
                call()
            end.record()
            torch.cuda.synchronize()
            ms = begin.elapsed_time(end) / count.get(name, 1)
            count.setdefault(name, max(1, int(target_ms / ms)))
            if turn >= 0:
                got[name].append(1e3 * ms)
    return {name: statistics.median(x) for name, x in got.items()}


def speed():
    print("\n| head_dim | mask | keys | cuDNN bf16 | our bf16 | " + " | ".join(PRECISIONS)
          + " | quantize q, k, v us |\n" + "| --- " * 9 + "|")
    for dim in (64, 128, 256):
        for n in (512, 2048, 16384):
            for causal in (False, True):
                batch, heads = 16384 // n, 2048 // dim
                q, k, v = (normal(batch, n, heads, dim) for _ in range(3))
                given, scales, o = *eight(q, k, v)[:2], torch.empty_like(q)
                t = [x.transpose(1, 2) for x in (q, k, v)]

                def cudnn():
                    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                        scaled_dot_product_attention(*t, is_causal=causal)

                def quantize():
                    warploom.quantize(q), warploom.quantize(k), warploom.quantize(v, turned=True)
                calls = {"cudnn": cudnn,
                         "bf16": warploom.forward_plan(q, k, v, causal=causal, out=o)}
                for p in PRECISIONS:
                    calls[p] = warploom.forward_plan(*given, causal=causal, out=o, scales=scales,
                                                     precision=p)
                us = median_us({**calls, "quantize": quantize})
                flops = 4 * batch * heads * n * n * dim * (0.5 if causal else 1)
                cells = " | ".join(f"{flops / us[c] / 1e6:.0f}" for c in calls)
                print(f"| {dim} | {'causal' if causal else 'none'} | {n} | {cells} | "
                      f"{us['quantize']:.0f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=32)
    parser.add_argument("--parts", default="kernel,format,speed")
    args = parser.parse_args()
    torch.manual_seed(1)
    parts = {"kernel": kernel_errors, "format": lambda: format_errors(args.seeds), "speed": speed}
    print(torch.cuda.get_device_name())
    for part in args.parts.split(","):
        parts[part]()


if __name__ == "__main__":
    main()
