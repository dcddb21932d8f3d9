#!/usr/bin/env python3
# bench.py - make bench: our speed beside cuDNN, FA2 and FA3; cold and warm start; cost of a call.
# SPDX-License-Identifier: BSD-3-Clause
"""Times the 36 points of the peers' table and 24 shapes drawn from a seed, every contender of a row
interleaved, and writes tests/bench/results/NAME.json. Each row is first checked against float32
attention. FA3 is timed where a wheel of it imports; elsewhere its time is cuDNN's by the ratio in
peers_h200.json, and marked so."""
import argparse
import datetime
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "tests", "gpu"), os.path.join(ROOT, "runtime", "python")]
import points as table  # noqa: E402
from cases import parse as parse_name  # noqa: E402
from prepare import build_folder, cache_folder, chosen, compile_all, gpu_or_exit  # noqa: E402

NORM_LIMIT = {"bf16": 2.4e-3, "fp16": 4e-4}   # as in check.py
PEER_LIMIT = 1e-2                             # a peer that computes something else is left out


def tensors(point):
    import torch
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[point.dtype]

    def make(*shape):
        return torch.randn(*shape, device="cuda", dtype=dtype)
    return (make(point.batch, point.sq, point.heads, point.d),
            make(point.batch, point.sk, point.kv_heads, point.d),
            make(point.batch, point.sk, point.kv_heads, point.dv))


def norm_error(o, q, k, v, point):
    """||O - reference|| / ||reference|| over two heads, the first and the last."""
    import torch
    from tensors import reference
    group, error, norm = point.heads // point.kv_heads, 0.0, 0.0
    for b, h in ((0, 0), (point.batch - 1, point.heads - 1)):
        kv = h // group
        one = (slice(b, b + 1), slice(None))
        want = reference(q[one][:, :, h:h + 1], k[one][:, :, kv:kv + 1], v[one][:, :, kv:kv + 1],
                         point.mask, point.d ** -0.5, torch.float32)[0]
        error += (o[one][:, :, h:h + 1].float() - want).square().sum().item()
        norm += want.square().sum().item()
    return (error / norm) ** 0.5


def entries(path):
    """Lines of --candidates: a candidate's name, or variant=NAME of a spec in WARPLOOM_SPECS."""
    with open(path) as f:
        return list(dict.fromkeys(line.split()[0] for line in f
                                  if line.strip() and not line.startswith("#")))


def fits(entry, point):
    if entry.startswith("variant="):
        return True
    return parse_name(entry)[1:5] == (point.d, point.dv, point.dtype, point.mask)


def force(entry):
    key, _, value = entry.partition("=")
    return {"variant": value} if value else {"kernel": key}


def prepare(points, args):
    """Compiles beforehand what will be timed; returns {name: why there is no kernel}."""
    if args.candidates:
        names = [e for e in args.entries if not e.startswith("variant=")
                 and any(fits(e, p) for p in points)]
        names += [chosen(f"{e} {p.problem}") for e in args.entries if e.startswith("variant=")
                  for p in points]
    else:
        names = [chosen(problem) for p in points
                 for problem in (p.problem, p.problem.replace("lse=no", "lse=yes"))]
    return compile_all(filter(None, names), args.jobs, args.compile_seconds)


def our_calls(point, args, q, k, v, failed):
    """({label: call} of ours, or of each given candidate that fits and is right; {label: what is
    wrong with another})."""
    import contenders
    calls, bad = {}, {}
    given = [e for e in args.entries if fits(e, point)]
    for label in given if args.candidates else ["ours", "ours_lse"]:
        try:
            if label in failed:
                raise RuntimeError(failed[label])
            call = contenders.ours(q, k, v, point, label == "ours_lse",
                                   **(force(label) if given else {}))
            error = norm_error(call(), q, k, v, point)
            if not error <= NORM_LIMIT[point.dtype]:
                raise RuntimeError(f"norm ratio {error:.3g}")
            calls[label] = call
        except RuntimeError as e:
            bad[label] = (str(e).splitlines() or ["?"])[0]
    return calls, bad


def measure(point, args, fa3_function, failed, clock):
    """({label: (us, noise, MHz)} of ours and the peers, {label: what is wrong with ours})."""
    import contenders
    import timing
    import torch
    torch.manual_seed(sum(map(ord, point.problem)))
    q, k, v = tensors(point)
    mine, bad = our_calls(point, args, q, k, v, failed)
    peers, missing = contenders.peers(args.peers.split(","), q, k, v, point, fa3_function)
    for name, call in list(peers.items()):
        error = norm_error(call(), q, k, v, point)
        if not error <= PEER_LIMIT:
            missing[name] = f"computes something else: norm ratio {error:.3g}"
            del peers[name]
    for name, why in missing.items():
        print(f"{point.problem}: no {name}: {why}", flush=True)
    calls = {**mine, **{f"{name}_us": call for name, call in peers.items()}}
    return timing.compare(calls, args.rounds, args.ms, clock), bad


def row_of(point, times):
    us, noise, mhz = times["ours"]
    with_lse = {"ours_lse_us": round(times["ours_lse"][0], 2)} if "ours_lse" in times else {}
    return {"problem": point.problem, "name": chosen(point.problem), "ours_us": round(us, 2),
            **with_lse,
            "peers": {n: round(t[0], 2) for n, t in times.items() if not n.startswith("ours")},
            "tflops": round(point.flops / us / 1e6, 1), "noise": round(noise, 4),
            "clock_mhz": mhz}


def show(row):
    cudnn, fa3, measured = table.ratios(row)
    text = lambda x: f"{x:.3f}" if x else "-"  # noqa: E731
    print(f"{row['problem']}: {row['ours_us']:.1f} us, {row['tflops']:.0f} TFLOP/s, "
          f"/ cuDNN {text(cudnn)}, / FA3 {text(fa3)}{'' if measured else ' (by the table)'}, "
          f"noise {row['noise']:.1%}, {row['clock_mhz']} MHz", flush=True)


def summary(rows):
    """The worst ratios beside what this project asks of itself."""
    known = table.table()
    ratios = [(table.parse(row["problem"]), *table.ratios(row)) for row in rows]

    def worst(what, values, goal):
        values = [x for x in values if x]
        if values:
            verdict = "ok" if min(values) >= goal else "SHORT"
            print(f"{what}: worst {min(values):.3f}, goal {goal}: {verdict}")

    for d, goal in ((128, 1.05), (64, 1.05), (256, 0.97)):
        worst(f"d {d}, S 8k and 16k, / FA3",
              [fa3 for p, _, fa3, _ in ratios if p in known and p.d == d and p.sq >= 8192], goal)
    worst("36 points, / the better peer",
          [min(x for x in (cudnn, fa3) if x) for p, cudnn, fa3, _ in ratios
           if p in known and (cudnn or fa3)], 0.85)
    worst("drawn shapes, / cuDNN", [c for p, c, _, _ in ratios if p not in known], 0.70)


def first_call(cache):
    """In a fresh process: (ms to the first launch returned, ms to its end), wl_open included."""
    code = subprocess.run([sys.executable, os.path.abspath(__file__), "--first-call"], text=True,
                          capture_output=True, timeout=240,
                          env={**os.environ, "WARPLOOM_CACHE_DIR": cache})
    if code.returncode:
        sys.exit(f"first call: {code.stderr.strip()[-600:]}")
    return json.loads(code.stdout.splitlines()[-1])


def first_call_child():
    import torch
    import warploom
    q, k, v = (torch.randn(1, 512, 8, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    o = torch.empty_like(q)
    torch.cuda.synchronize()
    start = time.perf_counter()
    warploom.forward(q, k, v, causal=True, out=o)
    returned = time.perf_counter()
    torch.cuda.synchronize()
    print(json.dumps([1e3 * (returned - start), 1e3 * (time.perf_counter() - start)]))


def starts(times=3):
    """(cold ms to the end of the first call, warm ms to the first launch returned), medians."""
    cold, warm = [], []
    for _ in range(times):
        with tempfile.TemporaryDirectory() as cache:
            cold.append(first_call(cache)[1])
            warm.append(first_call(cache)[0])
    return round(statistics.median(cold), 1), round(statistics.median(warm), 2)


def call_costs():
    """CPU time of a call at a tiny shape, in ns: the C call, the Python one, PyTorch's."""
    import contenders
    import timing
    import torch
    import warploom
    tiny = table.Point(64, 64, "bf16", "none", 1, 1, 1, 64, 64)
    q, k, v = tensors(tiny)
    o = torch.empty_like(q)
    lib, context, args = warploom.prepared(q, k, v, out=o)
    launch = subprocess.run([os.path.join(build_folder(), "launch_cost")], text=True,
                            capture_output=True)
    if launch.returncode:
        raise SystemExit(f"{launch.args[0]}: {launch.stderr.strip()}")
    again, elsewhere = map(int, launch.stdout.split())
    costs = {"launch_cpu_ns": again, "elsewhere_ns": elsewhere,
             "prepared_ns": timing.call_ns(lambda: lib.wl_forward(context, args)),
             "python_ns": timing.call_ns(contenders.ours(q, k, v, tiny))}
    for name in ("fa2", "cudnn"):
        with contenders.sdpa_kernel(contenders.BACKENDS[name]):
            qt, kt, vt = (x.transpose(1, 2) for x in (q, k, v))
            f = contenders.F.scaled_dot_product_attention
            costs[f"{name}_ns"] = timing.call_ns(lambda: f(qt, kt, vt))
    return costs


def commit():
    """The commit, and a + when the tree is not quite that."""
    def git(*words):
        return subprocess.run(["git", "-C", ROOT, *words], text=True, capture_output=True).stdout
    return (git("rev-parse", "--short=12", "HEAD").strip() or "unknown") + (
        "+" if git("status", "--porcelain", "-uno", "gen", "templates", "runtime", "specs") else "")


def own_command(argv):
    """The command to repeat the bench: without where its result went."""
    kept, skip = [], False
    for word in argv:
        if not skip and word not in ("--out", "--commit"):
            kept.append(word)
        skip = word in ("--out", "--commit")
    return shlex.join(["python3", "tests/bench/bench.py", *kept])


def result(args, rows, clock, extra):
    import torch
    return {"gpu": torch.cuda.get_device_name(0), "driver": clock.driver,
            "cuda": torch.version.cuda,
            "torch": f"{torch.__version__}, cuDNN {torch.backends.cudnn.version()}",
            "date": datetime.date.today().isoformat(), "commit": args.commit or commit(),
            "command": own_command(sys.argv[1:]),
            "seed": args.seed, **extra, "rows": rows}


def save(path, data):
    """One row a line, so that a change of a result reads well."""
    rows = ",\n  ".join(json.dumps(row) for row in data["rows"])
    head = ",\n ".join(f'"{k}": {json.dumps(v)}' for k, v in data.items() if k != "rows")
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path + ".tmp", "w") as f:
        f.write("{" + head + ',\n "rows": [\n  ' + rows + "\n]}\n")
    os.replace(path + ".tmp", path)


def compare_candidates(point, times):
    """A row of --candidates: every time, the best name first."""
    mine = {n: round(t[0], 2) for n, t in times.items() if not n.endswith("_us")}
    peers = {n: round(t[0], 2) for n, t in times.items() if n.endswith("_us")}
    order = dict(sorted(mine.items(), key=lambda item: item[1]))
    fa3 = peers.get("fa3_us") or table.fa3_us(point, peers.get("cudnn_us"))
    for name, us in list(order.items())[:5]:
        beside = "".join(f", / {what} {t / us:.3f}" for what, t in
                         (("cuDNN", peers.get("cudnn_us")), ("FA3", fa3)) if t)
        print(f"  {us:9.1f} us {point.flops / us / 1e6:5.0f} TFLOP/s{beside}  {name}", flush=True)
    return {"problem": point.problem, "best": next(iter(order), None), "times_us": order,
            "peers": peers}


def best_overall(rows):
    """For each set of axes the candidates that ran at all its points: the mean and the worst of
    (time of the best at that point / its own)."""
    groups = {}
    for row in rows:
        p = table.parse(row["problem"])
        groups.setdefault((p.d, p.dv, p.dtype, p.mask), []).append(row["times_us"])
    for axes, points in groups.items():
        common = set.intersection(*map(set, points))
        share = {n: [min(times.values()) / times[n] for times in points] for n in common}
        print(f"{axes}, {len(points)} points: mean and worst share of the best")
        for n in sorted(common, key=lambda n: -statistics.mean(share[n]))[:8]:
            print(f"  {statistics.mean(share[n]):.3f} {min(share[n]):.3f}  {n}")


def options():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--points", default="36,24", help="36, 24, both, or words that the problem "
                   "holds: 'head_dim=128 mask=none'")
    p.add_argument("--seed", type=int, default=table.SEED, help="of the drawn shapes")
    p.add_argument("--seconds", type=float, default=480, help="no new row after these")
    p.add_argument("--compile-seconds", type=float, default=240)
    p.add_argument("--rounds", type=int, default=13)
    p.add_argument("--ms", type=float, default=1.0, help="of a batch at least")
    p.add_argument("--peers", default="cudnn,fa2,fa3")
    p.add_argument("--candidates", metavar="FILE", help="names (or variant=NAME): time each legal "
                   "one at each point, print the best")
    p.add_argument("--rows-only", action="store_true", help="no cold, warm and call costs")
    p.add_argument("--name", default="h200", help="of tests/bench/results/NAME.json")
    p.add_argument("--out", help="another file")
    p.add_argument("--commit", default=os.environ.get("COMMIT"))
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--first-call", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args()
    args.entries = entries(args.candidates) if args.candidates else []
    args.out = args.out or os.path.join(HERE, "results", args.name + ".json")
    return args


def chosen_points(args):
    known, drawn = list(table.table()), table.drawn(args.seed)
    named = {"36": known, "24": drawn, "36,24": known + drawn, "both": known + drawn}
    words = set(args.points.split())
    points = named.get(args.points) or [p for p in known + drawn
                                        if words <= set(p.problem.split())]
    return [p for p in points if not args.candidates or any(fits(e, p) for e in args.entries)]


def main():
    args = options()
    if args.first_call:
        return first_call_child()
    gpu_or_exit("bench.py")
    cache_folder()
    print(f"seed of the drawn shapes: {args.seed}", flush=True)
    points, rows, wrong, start = chosen_points(args), [], 0, time.time()
    failed = prepare(points, args)
    for key, reason in failed.items():
        print(f"no kernel: {key}: {reason}", flush=True)
    import contenders
    import timing
    fa3_function, module = contenders.find_fa3()
    print(f"FA3: {module}", flush=True)
    clock = timing.Clock()
    extra = {}
    if not args.rows_only and not args.candidates:
        extra["cold_ms"], extra["warm_ms"] = starts()
        costs = call_costs()
        extra.update(launch_cpu_ns=costs.pop("launch_cpu_ns"), calls=costs)
        print(json.dumps(extra), flush=True)
    timing.heat(0.5)
    for point in points:
        if time.time() - start > args.seconds:
            print(f"out of time: {len(points) - len(rows)} rows left out", flush=True)
            break
        try:
            times, bad = measure(point, args, fa3_function, failed, clock)
        except Exception as e:  # a peer's, or the device is lost
            times, bad = {}, {type(e).__name__: (str(e).splitlines() or ["?"])[0]}
        for label, why in bad.items():
            print(f"{point.problem}: {label}: {why}", flush=True)
        wrong += len(bad)
        if args.candidates:
            print(point.problem, flush=True)
            rows.append(compare_candidates(point, times))
        elif "ours" in times:
            rows.append(row_of(point, times))
            show(rows[-1])
        save(args.out, result(args, rows, clock, extra))
    print(f"wrote {args.out}", flush=True)
    best_overall(rows) if args.candidates else summary(rows)
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
