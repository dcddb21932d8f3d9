"""broken.py - a generator whose candidates of some numbers of stages are broken, for the tuner.
SPDX-License-Identifier: BSD-3-Clause

broken.py makes BUILD/libwarploom-gen-broken.so, which WARPLOOM_GEN may name."""
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.path.join(ROOT, os.environ.get("BUILD", "build")))
LIBRARY = os.path.join(BUILD, "libwarploom-gen-broken.so")
# Five candidates: the first is right.
SPEC = """extends: fwd
name: broken
axes: {head_dim: [64], dtype: [bf16], mask: [none]}
tune: {tile: [[128, 64]], consumer_warpgroups: [2], stages: [4, 3, 6, 2, 5],
       softmax: [exact], schedule: [dynamic], registers: [[40, 232]]}
"""
PLACE = "        rescale(out, o_regs, inverse);\n    }\n$ else"
FAULTS = """    $ if stages == 3 then
        if (p.lse && pair == 0 && row == 0 && threadIdx.x % 4 == 0)
            p.lse[(u64)p.pairs * p.seq_q + 5] = 0.0f; // behind its end
    $ elseif stages == 6 then
        inverse[0] *= row >= 64 ? 1.01f : 1.0f; // wrong, in some rows
    $ elseif stages == 2 then
        if (p.lse && pair == 0 && row == 0 && threadIdx.x % 4 == 0)
            p.lse[(u64)1 << 44] = 0.0f; // far away
    $ elseif stages == 5 then
        while (p.lse) // for ever
            __nanosleep(1000);
    $ end
"""


def run(argv, folder):
    done = subprocess.run(argv, cwd=folder, text=True, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"{argv[0]}: {done.stderr}")


def make():
    with tempfile.TemporaryDirectory() as folder:
        for part in ("gen", "specs", "templates"):
            shutil.copytree(os.path.join(ROOT, part), os.path.join(folder, part))
        path = os.path.join(folder, "templates/fwd.cu.in")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if text.count(PLACE) != 1:
            raise RuntimeError("templates/fwd.cu.in has no place for the faults")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace(PLACE, textwrap.indent(FAULTS, "    ") + PLACE))
        with open(os.path.join(BUILD, "embed.list"), encoding="utf-8") as file:
            names = file.read().split()
        objects = [os.path.join(BUILD, "obj/gen", f[:-2] + ".o")
                   for f in sorted(os.listdir(ROOT + "/gen"))
                   if f.endswith(".c") and f != "embed.c"]
        run([BUILD + "/embed", "embed.c", "digest.c", *names], folder)
        flags = os.environ.get("LINK_FLAGS", "").split()  # of the objects
        run(["gcc", "-shared", "-fPIC", *flags, "-Igen", "-I" + ROOT + "/runtime", "-o", LIBRARY,
             "embed.c", *objects, "-L" + BUILD, "-Wl,-rpath,$ORIGIN", "-llua5.4", "-lyaml",
             "-lsodium"], folder)
    return LIBRARY


if __name__ == "__main__":
    print(make())
    sys.exit(0)
