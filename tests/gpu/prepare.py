# prepare.py - fills the kernel cache with several processes of the command, before a run needs it.
# SPDX-License-Identifier: BSD-3-Clause
import ctypes
import os
import subprocess
import sys
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


def gpu_or_exit(program):
    """Ends the process with the command's code 5 where PyTorch has no GPU."""
    try:
        import torch
        why = "" if torch.cuda.is_available() else "PyTorch sees no GPU"
    except ImportError as e:
        why = str(e)
    if why:
        print(f"{program} needs PyTorch and a Hopper GPU: {why}", file=sys.stderr)
        sys.exit(5)


def chosen(problem):
    """The name of the candidate that a problem gets; "" when it gets none."""
    done = command("explain", *problem.split())
    return done.stdout.split("\n")[0].split()[0] if done.returncode == 0 and done.stdout else ""


class Buffer(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("room", ctypes.c_size_t)]


def covering_set():
    """The generator's own few candidates that hold every axis value and each pair of values."""
    lib = ctypes.CDLL(os.path.join(build_folder(), "libwarploom-gen.so"))
    lib.wl_gen_error.restype = ctypes.c_char_p
    handle, out = ctypes.c_void_p(), Buffer()
    if (lib.wl_gen_open(ctypes.byref(handle))
            or lib.wl_gen_call(handle, b"cover", b"", ctypes.byref(out))):
        raise RuntimeError(lib.wl_gen_error().decode())
    return ctypes.string_at(out.data, out.size).decode().split()


def compile_all(names, jobs, seconds):
    """Compiles candidates into the cache. Returns {name: why there is no kernel}; after `seconds`
    the rest is given up."""
    cache_folder()
    failed, start = {}, time.time()

    def one(name):
        if time.time() - start > seconds:
            failed[name] = "not compiled: out of time"
            return
        try:
            done = command("compile", name)
        except subprocess.TimeoutExpired:
            failed[name] = "compile: more than two minutes"
            return
        if done.returncode:
            failed[name] = f"compile: {done.stderr.strip()[-400:]}"

    names = list(dict.fromkeys(names))
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, names))
    print(f"{len(names)} kernels compiled, {time.time() - start:.1f} s", flush=True)
    return failed
