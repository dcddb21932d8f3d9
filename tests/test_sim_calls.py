"""test_sim_calls.py - calls of the C API in the simulator: no keys, few SMs, a workspace, and more
than 2^31 elements.
SPDX-License-Identifier: BSD-3-Clause"""
import ctypes
import os
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.path.join(ROOT, os.environ.get("BUILD", "build")))
D, MINUS_INFINITY = 64, struct.pack("<f", float("-inf"))
NONE, CAUSAL = 0, 1
temporary = tempfile.TemporaryDirectory()
for name in [n for n in os.environ if n.startswith("WARPLOOM_")]:
    del os.environ[name]
os.environ.update(WARPLOOM_DEVICE="sim", WARPLOOM_CACHE_DIR=temporary.name)
cuda = ctypes.CDLL(os.path.join(BUILD, "sim/libcuda.so.1"))
library = ctypes.CDLL(os.path.join(BUILD, "libwarploom.so"))
library.wl_error.restype = ctypes.c_char_p
library.wl_variant_add.argtypes = [ctypes.c_void_p, ctypes.c_char_p]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int), ("shape", ctypes.c_int64 * 4),
                ("stride", ctypes.c_int64 * 4)]


class Args(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t)] + [(n, Tensor) for n in "qkvo"] + [
        ("lse", ctypes.c_void_p), ("mask", ctypes.c_int), ("scale", ctypes.c_float),
        ("variant", ctypes.c_char_p), ("kernel", ctypes.c_char_p), ("stream", ctypes.c_void_p),
        ("sms", ctypes.c_int), ("workspace", ctypes.c_void_p), ("workspace_bytes", ctypes.c_size_t),
        ("mask_name", ctypes.c_char_p), ("mask_args", ctypes.c_int32 * 4),
        ("n_mask_args", ctypes.c_int), ("score_name", ctypes.c_char_p),
        ("score_args", ctypes.c_float * 4), ("n_score_args", ctypes.c_int),
        ("scale_q", ctypes.c_void_p), ("scale_k", ctypes.c_void_p), ("scale_v", ctypes.c_void_p),
        ("scales", ctypes.c_int), ("precision", ctypes.c_int), ("n_tensors", ctypes.c_int),
        ("tensors", ctypes.c_void_p)]


class Named(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("dtype", ctypes.c_int),
                ("n_dims", ctypes.c_int), ("shape", ctypes.c_int64 * 3),
                ("stride", ctypes.c_int64 * 3)]


def allocate(data):
    """Device memory with these bytes; what a test takes lives as long as the process."""
    at = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(max(len(data), 1 << 20))) == 0
    assert cuda.cuMemcpyHtoD_v2(at, data, ctypes.c_size_t(len(data))) == 0
    return at.value


def fetch(at, size):
    data = ctypes.create_string_buffer(size)
    assert cuda.cuMemcpyDtoH_v2(data, ctypes.c_uint64(at), ctypes.c_size_t(size)) == 0
    return data.raw


def random_bytes(elements, seed):
    """bf16 numbers between 1/4 and 2, of either sign."""
    words = []
    for _ in range(elements):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        words.append(0x3e80 + (seed >> 40) % 0x180 | (seed >> 63) << 15)
    return struct.pack(f"<{elements}H", *words)


def view(at, batch, rows, heads):
    return Tensor(at, 0, (batch, rows, heads, D), (rows * heads * D, heads * D, D, 1))


class Calls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        current, cls.context = ctypes.c_void_p(), ctypes.c_void_p()
        assert cuda.cuInit(0) == 0
        assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(current), 0) == 0
        assert cuda.cuCtxSetCurrent(current) == 0
        assert library.wl_open(ctypes.byref(cls.context), None) == 0, library.wl_error()
        cls.batch, cls.rows, cls.keys, cls.heads = 2, 150, 90, 2
        n = cls.batch * cls.heads * D
        cls.bytes = {"q": random_bytes(n * cls.rows, 1), "k": random_bytes(n * cls.keys, 2),
                     "v": random_bytes(n * cls.keys, 3)}

    @classmethod
    def tearDownClass(cls):
        library.wl_close(cls.context)
        temporary.cleanup()

    def usual(self, mask):
        args = Args(size=ctypes.sizeof(Args), mask=mask)
        for name, rows in (("q", self.rows), ("k", self.keys), ("v", self.keys), ("o", self.rows)):
            at = allocate(self.bytes.get(name) or b"\xff" * len(self.bytes["q"]))
            setattr(args, name, view(at, self.batch, rows, self.heads))
        args.lse = allocate(b"\xff" * 4 * self.batch * self.heads * self.rows)
        return args

    def forward(self, args, expected=0):
        status = library.wl_forward(self.context, ctypes.byref(args))
        self.assertEqual(status, expected, library.wl_error())
        self.assertEqual(cuda.cuCtxSynchronize(), 0)

    def results(self, args):
        return (fetch(args.o.data, len(self.bytes["q"])),
                fetch(args.lse, 4 * self.batch * self.heads * self.rows))

    def test_without_keys(self):
        for mask in (NONE, CAUSAL):
            args = self.usual(mask)
            args.k, args.v = (Tensor(None, 0, (self.batch, 0, self.heads, D), (0, 0, 0, 1)),) * 2
            for _ in range(2):
                self.forward(args)
                o, lse = self.results(args)
                self.assertEqual(o, bytes(len(o)))
                self.assertEqual(lse, MINUS_INFINITY * (len(lse) // 4))

    def test_few_sms_and_a_workspace(self):
        args = self.usual(CAUSAL)
        self.forward(args)
        want, needed = self.results(args), ctypes.c_size_t()
        self.assertNotIn(b"\xff" * 8, want[0] + want[1])
        status = library.wl_scratch(self.context, ctypes.byref(args), ctypes.byref(needed))
        self.assertEqual((status, needed.value), (0, 8))
        for sms in (1, 3):
            args = self.usual(CAUSAL)
            args.sms, args.workspace_bytes = sms, needed
            args.workspace = allocate(bytes(needed.value))
            for _ in range(2):
                self.forward(args)
                self.assertEqual(self.results(args), want)
                self.assertEqual(fetch(args.workspace, 8), bytes(8))

    def entries(self):
        return sum(len(files) for _, _, files in os.walk(temporary.name))

    def test_a_variant_by_its_text(self):
        """A mask of a text gives what the same mask of the family gives; what is made of it is in
        the cache for the next program, and for one that has the text in a file."""
        def text(left):
            return (f"extends: fwd\nname: mine\nmasks:\n  near: {{keep: 'row - col <= left and "
                    f"col <= row', params: {{left: {left}}}}}\n").encode()
        self.assertEqual(library.wl_variant_add(self.context, text(1) + b"x: 1\n"), 3)
        self.assertEqual(library.wl_error().decode(),
                         "yaml:5:1: spec: unknown key 'x'")
        self.assertEqual(library.wl_variant_add(self.context, text(40)), 0, library.wl_error())
        self.assertEqual(library.wl_variant_add(self.context, text(40)), 0, "the same again")
        self.assertEqual(library.wl_variant_add(self.context, text(41)), 3)
        self.assertEqual(library.wl_error().decode(), "yaml:2:7: name: 'mine' is taken by yaml")
        args = self.usual(NONE)
        args.mask_name, args.mask_args[0], args.n_mask_args = b"window", 40, 1
        self.forward(args)
        want = self.results(args)
        args = self.usual(NONE)
        args.variant, args.mask_name = b"mine", b"near"
        self.forward(args)
        self.assertEqual(self.results(args), want)
        made, path = self.entries(), os.path.join(temporary.name, "f.yaml")
        with open(path, "wb") as file:
            file.write(text(40))
        for place in (None, path):
            os.environ["WARPLOOM_SPECS"] = place or ""
            other, lost = ctypes.c_void_p(), self.context
            self.assertEqual(library.wl_open(ctypes.byref(other), None), 0)
            if not place:
                self.assertEqual(library.wl_variant_add(other, text(40)), 0)
            self.context = other
            self.forward(args)
            self.assertEqual(self.results(args), want)
            self.assertEqual(self.entries(), made + 1)  # the file; nothing else is new
            library.wl_close(other)
            self.context = lost
        del os.environ["WARPLOOM_SPECS"]

    def test_a_bundle_serves_a_variant_by_its_text(self):
        """Made from a file of the same text; then there is neither generator nor cache."""
        text = (b"extends: fwd\nname: mine\nmasks:\n  near: {keep: 'row - col <= left and "
                b"col <= row', params: {left: 40}}\n")
        spec, bundle = (os.path.join(temporary.name, x) for x in ("a.yaml", "a.wlb"))
        with open(spec, "wb") as file:
            file.write(text)
        made = subprocess.run([
            BUILD + "/warploom", "bundle", "build", "-o", bundle, "--arch", "compute_90a", "--spec",
            spec, f"variant=mine mask=near head_dim={D} dtype=bf16 layout=bshd batch={self.batch} "
            f"heads={self.heads} seq_q={self.rows} seq_k={self.keys}"], capture_output=True)
        self.assertEqual(made.returncode, 0, made.stderr)
        args = self.usual(NONE)
        args.mask_name, args.mask_args[0], args.n_mask_args = b"window", 40, 1
        self.forward(args)
        want = self.results(args)
        args = self.usual(NONE)
        args.variant, args.mask_name = b"mine", b"near"
        there = {"WARPLOOM_BUNDLES": bundle, "WARPLOOM_JIT": "off", "WARPLOOM_CACHE": "off",
                 "WARPLOOM_GEN": "/none.so"}
        os.environ.update(there)
        lost, self.context = self.context, ctypes.c_void_p()
        try:
            self.assertEqual(library.wl_open(ctypes.byref(self.context), None), 0)
            self.assertEqual(library.wl_variant_add(self.context, text), 0, library.wl_error())
            self.forward(args)
            self.assertEqual(self.results(args), want)
            library.wl_close(self.context)
            self.assertEqual(library.wl_open(ctypes.byref(self.context), None), 0)
            self.assertEqual(library.wl_variant_add(self.context, text + b"# other\n"), 0)
            self.forward(args, 4)
            self.assertIn(b"made with other specs", library.wl_error())
            library.wl_close(self.context)
        finally:
            self.context = lost
            for name in there:
                del os.environ[name]
    def test_the_example_of_a_variant(self):
        """examples/variants/nearby.c gives what the same call gives, which the reference's check of
        the command finds right."""
        folder = os.path.join(ROOT, "examples", "variants")
        path = os.path.join(temporary.name, "nearby.so")
        subprocess.run(["gcc", "-std=c17", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
                        "-I" + os.path.join(ROOT, "runtime"), "-o", path,
                        os.path.join(folder, "nearby.c"), "-L" + BUILD, "-lwarploom"], check=True)
        nearby = ctypes.CDLL(path).nearby
        with open(os.path.join(folder, "nearby.yaml"), "rb") as file:
            self.assertEqual(library.wl_variant_add(self.context, file.read()), 0)
        doc = allocate(struct.pack(f"<{2 * self.keys}i", *(i // 31 for i in range(2 * self.keys))))
        args = self.usual(NONE)
        args.lse = None
        args.variant, args.mask_name, args.score_name = b"nearby", b"mine", b"fading"
        args.score_args[0], args.n_score_args = 0.125, 1
        named = Named(b"doc", doc, 16, 2, (2, self.keys), (self.keys, 1))
        args.tensors, args.n_tensors = ctypes.addressof(named), 1
        self.forward(args)
        want = fetch(args.o.data, len(self.bytes["q"]))
        tensors = (Tensor * 4)(args.q, args.k, args.v,
                               view(allocate(b"\xff" * len(want)), 2, self.rows, self.heads))
        status = nearby(self.context, tensors, ctypes.c_void_p(doc), ctypes.c_float(0.125))
        self.assertEqual(status, 0, library.wl_error())
        self.assertEqual(cuda.cuCtxSynchronize(), 0)
        self.assertEqual(fetch(tensors[3].data, len(want)), want)
        words = (f"variant=nearby mask=mine score=fading head_dim={D} dtype=bf16 layout=bshd "
                 "heads=2 seq_q=150 seq_k=90 --random 1 --check --device sim --spec").split()
        done = subprocess.run([os.path.join(BUILD, "warploom"), "run", *words,
                               os.path.join(folder, "nearby.yaml")], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_batches_far_apart(self):
        """Two sequences 2^33 elements and more from each other, in memory that is not all there."""
        args = self.usual(NONE)
        self.forward(args)
        want = self.results(args)
        half, gap = {n: len(b) // 2 for n, b in self.bytes.items()}, 1 << 35
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        libc.mallopt(-3, 1 << 17)  # M_MMAP_THRESHOLD: memory of the device is mapped, not heap

        def reserve(size):  # addresses without memory
            return libc.mmap(None, ctypes.c_size_t(size), 0, 0x4022, -1, ctypes.c_long(0))

        def far(name, data):
            size = len(data) // 2
            second, hole = allocate(data[size:]), reserve(gap)
            while reserve(1 << 20) > hole:  # the gaps above, where the first half could lie
                pass
            t = getattr(args, name)
            t.data = allocate(data[:size])
            t.stride[0] = (second - t.data) // 2
            self.assertGreater(t.stride[0], 1 << 33)

        for name in "qkv":
            far(name, self.bytes[name])
        far("o", b"\xff" * len(want[0]))
        args.lse = allocate(b"\xff" * len(want[1]))
        self.forward(args)
        o = args.o
        got = (fetch(o.data, half["q"]) + fetch(o.data + 2 * o.stride[0], half["q"]),
               fetch(args.lse, len(want[1])))
        self.assertEqual(got, want)


if __name__ == "__main__":
    sys.exit(unittest.main())
