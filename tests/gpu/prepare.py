# prepare.py - fills the kernel cache with several processes of the command, before a run needs it.
# SPDX-License-Identifier: BSD-3-Clause
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor


def build_folder():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return os.path.abspath(os.environ.get("BUILD") or os.path.join(root, "build"))


def cache_folder():
    """The cache of tests and benches, unless the environment names one; for child processes too."""
    return os.environ.setdefault("WARPLOOM_CACHE_DIR",
                                 os.path.join(build_folder(), "gpu", "cache"))


def command(*words, seconds=120):
    return subprocess.run([os.path.join(build_folder(), "warploom"), *words], text=True,
                          capture_output=True, timeout=seconds)


def compile_all(waves, jobs, seconds):
    """Each wave is {key: subject}, a subject being a candidate's name or a problem's words. Returns
    {key: why it has no kernel}. What two subjects of one wave share is compiled twice: put it in
    an earlier wave. After `seconds` the rest is given up."""
    cache_folder()
    failed, start = {}, time.time()

    def one(item):
        key, subject = item
        if time.time() - start > seconds:
            failed[key] = "not compiled: out of time"
            return
        try:
            done = command("compile", *subject.split())
        except subprocess.TimeoutExpired:
            failed[key] = "compile: more than two minutes"
            return
        if done.returncode:
            failed[key] = f"compile: {done.stderr.strip()[-400:]}"

    with ThreadPoolExecutor(jobs) as pool:
        for wave in waves:
            list(pool.map(one, wave.items()))
            print(f"{len(wave)} subjects compiled, {time.time() - start:.1f} s", flush=True)
    return failed
