#!/usr/bin/env python3
# variants.py - masks and scores of specs on the GPU: a table of right results, then speed.
# SPDX-License-Identifier: BSD-3-Clause
"""`right` runs each row by the command with --check, which compares with float64 attention by an
evaluator of the text of its own. `speed` times rows beside the plain kernel of the same launch, and
with --flex beside FlexAttention, interleaved, by the pairs that the mask keeps. Last line of
`right`: `N passed, N failed`."""
import argparse
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "runtime", "python"), os.path.join(ROOT, "tests", "bench")]
from prepare import command, gpu_or_exit  # noqa: E402

SPEC = """extends: fwd
name: mine
masks:
  tri: {keep: col <= row}
  perhead: {keep: "col <= row and (head % 2 == 0 or row - col < near)", params: {near: 100}}
  islands: {keep: "(row // 96 + col // 80) % 3 == 0"}
  left: {keep: col < 130}
"""
SHAPES = [  # batch, heads, kv_heads, seq_q, seq_k
    (1, 2, 1, 200, 333), (2, 1, 1, 64, 64), (1, 3, 3, 1, 500), (1, 2, 2, 257, 257),
    (3, 2, 1, 130, 65), (1, 1, 1, 400, 150), (1, 4, 2, 96, 1000), (2, 2, 2, 193, 320),
    (1, 1, 1, 1700, 1700), (1, 8, 1, 33, 47), (1, 2, 2, 2048, 2048), (2, 4, 4, 1024, 700)]
HEADS = [(128, 128, "bf16"), (64, 64, "bf16"), (256, 256, "bf16"), (128, 128, "fp16"),
         (192, 128, "bf16"), (80, 80, "bf16")]
SCORES = ["none", "softcap score_args=3", "alibi", "distance", "temperature", "softcap", "slopes",
          "bias"]
MASKS = {  # the params that are tried
    "topleft": [""], "window": ["", "100,0", "64,64", "0,0"], "sink": ["", "128,3"],
    "chunk": ["", "100", "256"], "prefix": ["", "190"], "dilated": ["", "300,3"], "tri": [""],
    "perhead": ["", "7"], "islands": [""], "left": [""], "none": [""], "causal": [""],
    "document": [""], "doccausal": [""], "docwindow": ["", "50"], "spans": [""], "blocks": [""]}


def problems():
    """Each mask with every shape; head sizes, types and params in turn."""
    out = []
    for m, (mask, params) in enumerate(MASKS.items()):
        for i, (b, h, hk, sq, sk) in enumerate(SHAPES):
            d, dv, dtype = HEADS[(i + m) % len(HEADS)]
            own = params[i % len(params)]
            more = f" mask_args={own}" if own else ""
            out.append(f"variant=mine head_dim={d} head_dim_v={dv} dtype={dtype} mask={mask} "
                       f"layout={'bhsd' if i % 3 == 0 else 'bshd'} batch={b} heads={h} "
                       f"kv_heads={hk} seq_q={sq} seq_k={sk}{more}")
        for i, (b, h, hk, sq, sk) in enumerate(SHAPES[m % 3::3]):
            d, dv, dtype = HEADS[(i + m) % len(HEADS)]
            out.append(f"variant=mine head_dim={d} head_dim_v={dv} dtype={dtype} mask={mask} "
                       f"score={SCORES[(i + m) % len(SCORES)]} layout=bshd batch={b} heads={h} "
                       f"kv_heads={hk} seq_q={sq} seq_k={sk}")
    return out


def right(args, spec):
    def one(numbered):
        i, problem = numbered
        done = command("run", "--device", args.device, *problem.split(), "--spec", spec, "--random",
                       str(i), "--check")
        return problem, done.returncode, done.stderr.strip()[-400:]

    failed = 0
    rows = problems()[::args.every]
    with ThreadPoolExecutor(args.jobs) as pool:
        for problem, code, said in pool.map(one, enumerate(rows)):
            if code:
                failed += 1
                print(f"{problem}: exit {code}: {said}", flush=True)
    print(f"{len(rows) - failed} passed, {failed} failed")
    return failed


# ---- speed ----

def speed_rows(n):
    """(name, what our call gets, FlexAttention's mask or None, the pairs kept of n x n)"""
    import torch
    doc = (torch.arange(n, device="cuda", dtype=torch.int32) * 16 // n)[None]
    slope = torch.exp2(-torch.arange(1, 17, device="cuda") / 2)
    def flex(f):
        return lambda b, h, q, k: f(q, k)
    causal = n * (n + 1) // 2
    window = causal - (n - 1024) * (n - 1023) // 2 + (n - 1024)
    return [
        ("plain causal", {"causal": True}, flex(lambda q, k: k <= q), causal),
        ("causal as text", {"mask": "tri"}, None, causal),
        ("plain full", {}, None, n * n),
        ("window 1024", {"mask": "window", "mask_args": (1024, 0)},
         flex(lambda q, k: (k <= q) & (q - k <= 1024)), window),
        ("prefix 4096", {"mask": "prefix", "mask_args": (4096,)},
         flex(lambda q, k: (k < 4096) | (k <= q)), causal + 4096 * 4095 // 2),
        ("causal softcap", {"causal": True, "score": "softcap"}, None, causal),
        ("causal alibi", {"causal": True, "score": "alibi"}, None, causal),
        ("causal slopes", {"causal": True, "score": "slopes", "tensors": {"slope": slope}}, None,
         causal),
        ("documents", {"mask": "document", "tensors": {"doc": doc}},
         flex(lambda q, k: doc[0, q] == doc[0, k]), n * n // 16),
        ("documents causal", {"mask": "doccausal", "tensors": {"doc": doc}},
         flex(lambda q, k: (k <= q) & (doc[0, q] == doc[0, k])), n * (n // 16 + 1) // 2),
        ("chunk 8192", {"mask": "chunk"}, None, n // 8192 * (8192 * 8193 // 2)),
        ("sink 4 + 1024", {"mask": "sink"}, None, window + 4 * (n - 1025) - 6),
        ("dilated 4", {"mask": "dilated"}, None, None),
        ("per head", {"mask": "perhead"}, None, None),
    ]


def flex_call(mask, q, k, v, n):
    """FlexAttention, compiled, and the seconds of its first result."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    start = time.perf_counter()
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    block = create_block_mask(mask, None, None, n, n, device="cuda", _compile=True)
    f = torch.compile(flex_attention, dynamic=False)
    f(q, k, v, block_mask=block)
    torch.cuda.synchronize()
    return (lambda: f(q, k, v, block_mask=block)), time.perf_counter() - start


def speed(args):
    import timing
    import torch
    import warploom
    n, heads, d = args.seq, 16, 128
    q, k, v = (torch.randn(1, n, heads, d, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    wanted = args.rows.split(",") if args.rows else None
    rows = [r for r in speed_rows(n) if not wanted or any(w in r[0] for w in wanted)]
    calls = {}
    for name, more, mask, _ in rows:
        start = time.perf_counter()
        o = torch.empty_like(q)
        calls[name] = warploom.forward_plan(q, k, v, variant="mine", out=o, **more)
        calls[name]()
        torch.cuda.synchronize()
        print(f"{name}: first result after {time.perf_counter() - start:.2f} s", flush=True)
    for name, _, mask, _ in rows if args.flex else []:
        if mask:
            try:
                calls[name + ", Flex"], seconds = flex_call(mask, q, k, v, n)
                print(f"{name}, Flex: first result after {seconds:.1f} s", flush=True)
            except Exception as e:
                print(f"{name}, Flex: {(str(e).splitlines() or ['?'])[0][:200]}", flush=True)
    timing.heat(0.5)
    times = timing.compare(calls, args.rounds, 2.0, timing.Clock())
    for name, _, _, pairs in rows:
        us, noise, mhz = times[name]
        rate = 4 * d * heads * pairs / us * 1e-6 if pairs else 0
        other = times.get(name + ", Flex")
        beside = f", {other[0] / us:.2f} x Flex ({other[0]:.0f} us)" if other else ""
        print(f"{name:20} {us:9.1f} us {rate:6.0f} TFLOP/s, noise {noise:.1%}, {mhz} MHz{beside}",
              flush=True)
    if args.out:
        with open(args.out, "w") as f:
            json.dump({"gpu": torch.cuda.get_device_name(0), "seq": n, "times": times}, f, indent=1)
    return 0


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("what", choices=["right", "speed"])
    p.add_argument("--jobs", type=int, default=min(14, os.cpu_count()))
    p.add_argument("--device", default="gpu", help="of `right`: gpu or sim")
    p.add_argument("--every", type=int, default=1, help="of `right`: each such row alone")
    p.add_argument("--seq", type=int, default=16384)
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--rows", help="of `speed`: words of the names, ',' between")
    p.add_argument("--flex", action="store_true")
    p.add_argument("--out", help="a file for all times")
    args = p.parse_args()
    if args.device == "gpu":
        gpu_or_exit("variants.py")
    with tempfile.TemporaryDirectory() as folder:
        spec = os.path.join(folder, "mine.yaml")
        with open(spec, "w", encoding="utf-8") as f:
            f.write(SPEC)
        os.environ["WARPLOOM_SPECS"] = spec
        if args.what == "right":
            del os.environ["WARPLOOM_SPECS"]
            return right(args, spec) != 0
        return speed(args)


if __name__ == "__main__":
    sys.exit(main())
