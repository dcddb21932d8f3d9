"""offline.py - a program, libwarploom and a bundle in a root that holds nothing else: does it run?
SPDX-License-Identifier: BSD-3-Clause

offline.py gpu BUNDLE    on a machine with a GPU, with its driver; BUILD names the build folder
The root has libc, libsodium, libzstd, libcuda and what that needs: no NVRTC, no generator, no spec.
It is entered by chroot, as a user who can write nothing. Where that is not allowed, the program is
given these libraries alone by LD_LIBRARY_PATH; either way it lists what it has loaded.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.path.join(ROOT, os.environ.get("BUILD", "build")))
LIBC = "ld-linux-[a-z0-9-]+|lib(c|m|dl|rt|pthread)"
ALLOWED = re.compile(rf"({LIBC}|libsodium|libzstd|libcuda|libwarploom|linux-vdso)\.so[.0-9]*")
DRIVERS = re.compile(r"libnvidia-[a-z0-9-]+\.so[.0-9]*")
PROBLEM = "head_dim=64 dtype=fp16 mask=none layout=bshd seq_q=64 lse=no"


def needs(path):
    """The libraries that the loader finds for a file."""
    out = subprocess.run(["ldd", path], stdout=subprocess.PIPE, text=True, check=True,
                         env={**os.environ, "LD_LIBRARY_PATH": BUILD}).stdout
    return [m[1] for m in re.finditer(r"(/\S+) \(0x", out)]


def driver():
    """The machine's libcuda."""
    out = subprocess.run(["ldconfig", "-p"], stdout=subprocess.PIPE, text=True).stdout
    found = re.search(r"libcuda\.so\.1 .*64.*=> (\S+)", out)
    return found[1] if found else os.environ["WARPLOOM_LIBCUDA"]


def make_root(folder, bundle, libcuda, program):
    """Fills it; returns the names of the libraries."""
    lib = os.path.join(folder, "lib")
    os.makedirs(lib)
    files = {program: "program", bundle: "attn.wlb"} if bundle else {program: "program"}
    for path, name in files.items():
        shutil.copy(path, os.path.join(folder, name))
    wanted = [os.path.join(BUILD, "libwarploom.so"), libcuda]
    for path in [program, *wanted[:]]:
        wanted += needs(path)
    for path in wanted:
        name = os.path.basename(path)
        shutil.copy(os.path.realpath(path), os.path.join(lib, name))
        if name.startswith("ld-linux"):  # programs name it by its whole path
            os.makedirs(folder + os.path.dirname(path), exist_ok=True)
            shutil.copy(os.path.realpath(path), folder + path)
    for place, _, _ in os.walk(folder, topdown=False):
        os.chmod(place, 0o555)
    return sorted({os.path.basename(path) for path in wanted})


def enter(folder, gpu):
    """How to run /program there, best first: (argv, keywords of subprocess.run)."""
    def drop():
        os.chroot(folder)
        os.chdir("/")
        os.setgid(65534)
        os.setuid(65534)

    env = {"WARPLOOM_JIT": "off", "WARPLOOM_BUNDLES": "/attn.wlb", "LD_LIBRARY_PATH": "/lib"}
    if gpu:  # the driver wants its devices, and /proc
        mounts = " && ".join(f"mkdir -p {folder}/{d} && mount --rbind /{d} {folder}/{d}"
                             for d in ("dev", "proc", "sys"))
        script = f"{mounts} && exec chroot {folder} /program"
        yield "chroot", ["unshare", "-m", "sh", "-c", script], {
            "env": {**env, "PATH": os.environ["PATH"]}}
    elif os.geteuid() == 0:
        yield "chroot", ["/program"], {"env": env, "preexec_fn": drop}
    else:
        yield "chroot", ["unshare", "-r", "chroot", folder, "/program"], {
            "env": {**env, "PATH": os.environ["PATH"]}}
    outside = {**env, "WARPLOOM_BUNDLES": folder + "/attn.wlb", "LD_LIBRARY_PATH": folder + "/lib",
               "HOME": "/nonexistent"}
    yield "libraries", [folder + "/program"], {"env": outside}


def run(bundle, libcuda, gpu=False, program=None):
    """Faults, a text each, and what was printed."""
    program = program or os.path.join(BUILD, "offline")
    folder = tempfile.mkdtemp()
    try:
        names = make_root(folder, bundle, libcuda, program)
        faults = [f"{n} is needed" for n in names if not ALLOWED.fullmatch(n)]
        for way, argv, options in enter(folder, gpu):
            try:
                done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      text=True, timeout=120, **options)
            except (PermissionError, subprocess.SubprocessError, FileNotFoundError) as error:
                text = f"{way}: {error}\n"
                continue
            text = f"{way}: exit {done.returncode}\n{done.stdout}"
            if done.returncode == 0 or "loaded " in done.stdout or "wl_" in done.stdout:
                break
        loaded = [os.path.basename(x) for x in re.findall(r"^loaded (\S+)", text, re.M)]
        faults += [f"{n} was loaded" for n in loaded if not ALLOWED.fullmatch(n) and
                   not (gpu and DRIVERS.fullmatch(n))]
        if "\nright: " not in text:
            faults.append("no right result")
        if not gpu and way == "chroot" and "can be written" in text:
            faults.append("the root can be written")
        return faults, text
    finally:
        subprocess.run(["chmod", "-R", "u+w", folder])
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    FAULTS, TEXT = run(sys.argv[2], driver(), gpu=True)
    print(TEXT, *FAULTS, sep="\n")
    sys.exit(bool(FAULTS))
