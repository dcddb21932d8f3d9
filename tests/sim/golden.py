#!/usr/bin/env python3
"""golden.py - single instructions on a GPU, once, and in the simulator, on every commit.

    golden.py record [--driver LIB] [NAME...]  runs the kernels of golden/ on the GPU and
                                               writes golden/*.bin
    golden.py check [--driver LIB] [NAME...]   runs them on the simulator, build/sim/libcuda.so.1,
                                               and compares with golden/*.bin

A golden file is one zlib stream of a case's results, or of the error where a GPU faults. Results
are compared bit by bit, except where the case (golden_cases.py) says how far they may be apart.
SPDX-License-Identifier: BSD-3-Clause"""
import ctypes
import glob
import multiprocessing
import os
import sys
import time
import zlib

from golden_cases import CASES, unpack

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "golden")
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
SIMULATOR = os.path.join(BUILD, "sim", "libcuda.so.1")

os.environ["WARPLOOM_SIM_SUMS"] = "hardware"

# ---- NVRTC and the driver ----


def library(names):
    for name in names:
        try:
            return ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            pass
    sys.exit("golden.py: none of these can be opened: " + ", ".join(names))


class Nvrtc:
    """Where warploom, too, looks for it; its built-in library is opened first, from beside it."""

    def __init__(self):
        folders = [BUILD + "/deps/nvidia/*/lib", "/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64"]
        folders += [p + "/nvidia/*/lib" for p in sys.path if p]
        names = [os.environ["WARPLOOM_NVRTC"]] if os.environ.get("WARPLOOM_NVRTC") else []
        for folder in folders:
            names += sorted(glob.glob(folder + "/libnvrtc.so.1[23]"))
        for name in names[:1]:
            for beside in glob.glob(os.path.dirname(name) + "/libnvrtc-builtins.so.1*"):
                library([beside])
        self.lib = library(names + ["libnvrtc.so.13"])

    def fetch(self, program, what):
        size = ctypes.c_size_t()
        getattr(self.lib, "nvrtcGet%sSize" % what)(program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        getattr(self.lib, "nvrtcGet%s" % what)(program, data)
        return data.raw

    def compile(self, source, options, ptx):
        with open(os.path.join(FOLDER, source)) as f:
            text = f.read().encode()
        program = ctypes.c_void_p()
        self.lib.nvrtcCreateProgram(ctypes.byref(program), text, source.encode(), 0, None, None)
        options = options + ["-std=c++17", "-default-device", "-lineinfo",
                             "-arch=compute_90a" if ptx else "-arch=sm_90a"]
        array = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
        status = self.lib.nvrtcCompileProgram(program, len(options), array)
        if status:
            sys.exit("golden.py: %s: %s" % (source, self.fetch(program, "ProgramLog").decode()))
        image = self.fetch(program, "PTX" if ptx else "CUBIN")
        self.lib.nvrtcDestroyProgram(ctypes.byref(program))
        return image


class Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint * 16)]


class Config(ctypes.Structure):
    _fields_ = [("sizes", ctypes.c_uint * 7), ("stream", ctypes.c_void_p),
                ("attributes", ctypes.POINTER(Attribute)), ("n", ctypes.c_uint)]


class Finding(ctypes.Structure):
    _fields_ = [("rule", ctypes.c_char_p), ("text", ctypes.c_char_p), ("ptx_line", ctypes.c_int),
                ("source_line", ctypes.c_int), ("count", ctypes.c_int)]


class Failure(Exception):
    pass


class Driver:
    def __init__(self, path):
        self.lib = library([path])
        self.simulator = hasattr(self.lib, "sim_device_findings")
        self.call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *args):
        status = getattr(self.lib, name)(*args)
        if status:
            text = ctypes.c_char_p()
            self.lib.cuGetErrorString(status, ctypes.byref(text))
            raise Failure("%s: %s" % (name, (text.value or b"?").decode()))

    def findings(self):
        """What the simulator has to say; the real driver has no such entry."""
        out = []
        if self.simulator:
            def note(user, kernel, f):
                out.append("[%s] line %d: %s" % (f[0].rule.decode(), f[0].source_line,
                                                 f[0].text.decode()))
            self.lib.sim_device_findings(ctypes.CFUNCTYPE(
                None, ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(Finding))(note), None)
        return out

    def upload(self, data):
        pointer = ctypes.c_ulonglong()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(len(data)))
        self.call("cuMemcpyHtoD_v2", pointer, data, ctypes.c_size_t(len(data)))
        return pointer

    def encode(self, memory, kind, dims, strides, box, steps, swizzle, fill):
        raw = ctypes.create_string_buffer(192)
        address = ctypes.addressof(raw) + 63 & ~63
        n = len(dims)
        self.call("cuTensorMapEncodeTiled", ctypes.c_void_p(address), kind, n, memory,
                  (ctypes.c_ulonglong * n)(*dims), (ctypes.c_ulonglong * n)(*strides),
                  (ctypes.c_uint * n)(*box), (ctypes.c_uint * n)(*steps), 0, swizzle, 0, fill)
        return (ctypes.c_char * 128).from_buffer_copy(ctypes.string_at(address, 128))

    def takes(self, a):
        """1 when the driver encodes a map of these arguments."""
        raw = ctypes.create_string_buffer(192)
        return not self.lib.cuTensorMapEncodeTiled(
            ctypes.c_void_p(ctypes.addressof(raw) + 63 & ~63), a["type"], a["rank"],
            ctypes.c_ulonglong(0x7000000000 + a["address"]), (ctypes.c_ulonglong * 5)(*a["dims"]),
            (ctypes.c_ulonglong * 5)(*a["strides"]), (ctypes.c_uint * 5)(*a["box"]),
            (ctypes.c_uint * 5)(*a["steps"]), 0, a["swizzle"], a["promotion"], a["fill"])

    def run(self, function, launch):
        """The bytes of all results, in order."""
        args, block, grid, shared, cluster = launch
        scalars = {"i": ctypes.c_int, "u4": ctypes.c_uint, "u": ctypes.c_ulonglong}
        values, results, memories = [], [], []
        for kind, value in [a[:2] for a in args]:
            if kind in ("in", "out", "inout"):
                data = b"\0" * value if kind == "out" else value
                values.append(self.upload(data))
                memories.append(values[-1])
                if kind != "in":
                    results.append((values[-1], len(data)))
            else:
                values.append(scalars[kind](value) if kind in scalars else None)
        for i, a in enumerate(args):
            if a[0] == "map":
                memory = self.upload(a[8]) if a[8] else results[0][0]
                if a[8]:
                    memories.append(memory)
                values[i] = self.encode(memory, *a[1:8])
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
        self.call("cuFuncSetAttribute", function, 8, shared)
        attribute = Attribute(4, 0, (ctypes.c_uint * 16)(cluster, 1, 1))
        config = Config((ctypes.c_uint * 7)(grid, 1, 1, block, 1, 1, shared), None,
                        ctypes.pointer(attribute), 1 if cluster > 1 else 0)
        self.call("cuLaunchKernelEx", ctypes.byref(config), function, pointers, None)
        self.call("cuCtxSynchronize")
        out = b""
        for memory, size in results:
            data = ctypes.create_string_buffer(size)
            self.call("cuMemcpyDtoH_v2", data, memory, ctypes.c_size_t(size))
            out += data.raw
        for memory in memories:
            self.call("cuMemFree_v2", memory)
        return out


def results(case, nvrtc, driver):
    if case.encodings:
        return [bytes(driver.takes(a) for a in case.encodings)]
    image = nvrtc.compile(case.source, case.options, driver.simulator)
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    driver.call("cuModuleLoadData", ctypes.byref(module), image)
    driver.call("cuModuleGetFunction", ctypes.byref(function), module, b"kernel")
    out = [driver.run(function, launch) for launch in case.launches]
    driver.call("cuModuleUnload", module)
    return out


def record_case(case, path):
    nvrtc, driver = Nvrtc(), Driver(path)
    try:
        got, fault = b"".join(results(case, nvrtc, driver)), None
    except Failure as e:
        got, fault = str(e).encode(), str(e)
    if bool(fault) != bool(case.faults):
        print("FAIL %s: %s" % (case.name, fault or "no fault"), flush=True)
        os._exit(1)
    data = zlib.compress(case.pack(got) if case.pack else got, 9)
    with open(os.path.join(FOLDER, case.name + ".bin"), "wb") as f:
        f.write(data)
    print("%-20s %3d launches %7d bytes, %6d stored%s" % (
        case.name, len(case.launches), len(got), len(data), ", " + fault if fault else ""),
        flush=True)
    os._exit(0)  # a context that has seen a fault is not to be tidied


def record(cases, path, at_once=12):
    """A process for each case, with a limit: a fault or a hang spoils no other."""
    bad, children, cases = 0, [], list(cases)
    while cases or children:
        while cases and len(children) < at_once:
            case = cases.pop(0)
            child = multiprocessing.Process(target=record_case, args=(case, path))
            child.start()
            children.append((case, child, time.monotonic() + 60))
        for one in list(children):
            case, child, limit = one
            if child.is_alive() and time.monotonic() < limit:
                continue
            if child.is_alive():
                print("FAIL %s: hangs" % case.name, flush=True)
                child.kill()
                child.join()
            children.remove(one)
            bad += child.exitcode != 0
        time.sleep(0.01)
    return 1 if bad else 0


def judge(case, got, findings):
    """What is wrong with the results of one case, or None."""
    if case.faults:
        text = findings[0] if findings else "no finding"
        return None if case.faults in text else "a GPU faults; here: " + text
    if findings:
        return findings[0]
    try:
        with open(os.path.join(FOLDER, case.name + ".bin"), "rb") as f:
            want = zlib.decompress(f.read())
    except OSError as e:
        return str(e)
    want = case.pack(want, back=True) if case.pack else want
    if len(want) != sum(map(len, got)):
        return "%d bytes, on the GPU %d: record it again" % (sum(map(len, got)), len(want))
    for i, g in enumerate(got):
        w, want = want[:len(g)], want[len(g):]
        if case.compare:
            text = case.compare(g, w)
            if text:
                return "launch %d: %s" % (i, text)
        elif g != w:
            g, w = unpack(g), unpack(w)
            at = [j for j in range(len(g)) if g[j] != w[j]]
            return "launch %d: %d of %d words differ; word %d is %08x, on the GPU %08x" % (
                i, len(at), len(g), at[0], g[at[0]], w[at[0]])
    return None


def check_case(case, nvrtc, driver):
    try:
        got, failure = results(case, nvrtc, driver), None
    except Failure as e:
        got, failure = [], str(e)
    findings = driver.findings()
    if failure and not case.faults:
        return " ".join([failure] + findings)
    return judge(case, got, findings)


def check(cases, path):
    nvrtc, driver, bad = Nvrtc(), Driver(path), 0
    for case in cases:
        text = check_case(case, nvrtc, driver)
        if text:
            bad += 1
            print("FAIL %s: %s" % (case.name, text))
    print("%d passed, %d failed" % (len(cases) - bad, bad))
    return 1 if bad else 0


def main(arguments):
    path = None
    if "--driver" in arguments:
        i = arguments.index("--driver")
        path = arguments[i + 1]
        del arguments[i:i + 2]
    if not arguments or arguments[0] not in ("record", "check"):
        sys.exit(__doc__)
    names = arguments[1:]
    cases = [c for c in CASES if not names or any(c.name.startswith(a) for a in names)]
    if arguments[0] == "record":
        return record(cases, path or "libcuda.so.1")
    return check(cases, path or SIMULATOR)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
