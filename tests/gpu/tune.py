#!/usr/bin/env python3
# tune.py - the tuner on a GPU: broken candidates are passed over; its choice beside a full search.
# SPDX-License-Identifier: BSD-3-Clause
"""tune.py broken                  five candidates, of which one writes behind its output, one is
                                wrong, one writes to a bad address and one hangs (tests/broken.py
                                makes their generator beforehand, where there is a C compiler)
tune.py search [--seconds S] [--only N]
                                tunes problems in S seconds each, then times every candidate of each
                                to the end; the choice must be within 2 % of the best
BUILD names the build folder; WARPLOOM_CACHE_DIR, for search, a cache that `tune --compile-only
--workload` may have filled. Last line: `N passed, N failed`."""
import argparse
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import broken  # noqa: E402

BUILD = broken.BUILD
COMMAND = os.path.join(BUILD, "warploom")
BROKEN = "variant=broken head_dim=64 dtype=bf16 mask=none layout=bshd heads=16 seq_q=2048"
SEARCHED = [f"head_dim={d} dtype=bf16 mask={mask} layout=bshd batch={16384 // s} heads={2048 // d} "
            f"seq_q={s}" for d, mask, s in ((128, "causal", 4096), (128, "none", 1024),
                                            (64, "causal", 2048), (64, "none", 8192),
                                            (256, "causal", 8192), (256, "none", 2048))]
WITHIN = 1.02
results = {True: 0, False: 0}


def expect(holds, text):
    results[bool(holds)] += 1
    print("ok  " if holds else "FAIL", text, flush=True)


def command(*args, **env):
    start = time.monotonic()
    done = subprocess.run([COMMAND, *args], env={**os.environ, **env}, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True)
    return done, time.monotonic() - start


def record(cache):
    """The one tuned record of a cache: {first word: [rest of the line]}."""
    path, = glob.glob(cache + "/v2/*/*/*.tuned")
    with open(path, "rb") as file:
        text = file.read()[88:].decode()  # behind the entry's head
    found = {}
    for line in text.splitlines():
        word, rest = line.split(" ", 1)
        found.setdefault(word, []).append(rest)
    return found


def run_broken():
    with tempfile.TemporaryDirectory() as cache:
        spec = os.path.join(cache, "broken.yaml")
        with open(spec, "w", encoding="utf-8") as file:
            file.write(broken.SPEC)
        env = {"WARPLOOM_GEN": broken.LIBRARY, "WARPLOOM_SPECS": spec, "WARPLOOM_CACHE_DIR": cache}
        done, seconds = command("tune", *BROKEN.split(), "--seconds", "60", "--json", **env)
        print(done.stdout, done.stderr, f"{seconds:.1f} s")
        expect(done.returncode == 0 and seconds < 60, "tune ends well, in time")
        rows = json.loads(done.stdout or "[]")
        expect(rows and "_s4_" in rows[0]["kernel"], "the right candidate is chosen")
        why = {re.search(r"_s(\d)_", line)[1]: line.split(" ", 1)[1]
               for line in record(cache).get("reject", [])}
        for stages, pattern in (("3", "writes outside of its outputs"),
                                ("6", "norm ratio|results are not those"),
                                ("2", "check: .*(ILLEGAL_ADDRESS|killed|ended)"),
                                ("5", "check: no answer in .* it hangs")):
            expect(re.search(pattern, why.get(stages, "")), f"stages {stages}: {why.get(stages)}")
        with open(cache + "/blocklist", encoding="utf-8") as file:
            blocked = file.read()
        expect(sorted(re.findall(r"_s(\d)_", blocked)) == ["2", "5"], "blocklist:\n" + blocked)
        done, _ = command("run", *BROKEN.split(), "--random", "1", "--check", **env)
        expect(done.returncode == 0, "the GPU works, and the choice is right: " + done.stdout +
               done.stderr)


def search(problem, seconds, compiled):
    with tempfile.TemporaryDirectory() as folder:
        cache = os.path.join(folder, "cache")
        if compiled and os.path.isdir(compiled):
            shutil.copytree(compiled, cache)
            for path in glob.glob(cache + "/v2/*/*/*.tuned") + glob.glob(cache + "/v2/*.journal"):
                os.remove(path)
        env = {"WARPLOOM_CACHE_DIR": cache}
        done, spent = command("tune", *problem.split(), "--seconds", str(seconds), "--json", **env)
        row = json.loads(done.stdout)[0] if done.returncode == 0 else None
        expect(row and spent < seconds + 5, f"{problem}: {spent:.1f} s {done.stderr}")
        if not row:
            return
        found = (row["kernel"], row["section_mb"])
        os.remove(glob.glob(cache + "/v2/*/*/*.tuned")[0])
        _, spent = command("tune", *problem.split(), "--all", "--seconds", "600", **env)
        times = {}
        for line in record(cache)["time"]:
            name, mb, us = re.match(r"(\S+) section_mb (\d+) warm_us (\S+)", line).groups()
            times[name, int(mb)] = float(us)
        best = min(times, key=times.get)
        ratio = times[found] / times[best] if found in times else float("inf")
        expect(ratio <= WITHIN, f"{found} {times.get(found)} us is {ratio:.4f} of the best of "
               f"{len(times)}: {best} {times[best]} us; prefer {row['prefer_ratio']}, all in "
               f"{spent:.0f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["broken", "search"])
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    if options.part == "broken":
        run_broken()
    else:
        compiled = os.environ.get("WARPLOOM_CACHE_DIR")
        for problem in SEARCHED if options.only is None else [SEARCHED[options.only]]:
            search(problem, options.seconds, compiled)
    print(f"{results[True]} passed, {results[False]} failed")
    return results[False] > 0


if __name__ == "__main__":
    sys.exit(main())
