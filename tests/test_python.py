# test_python.py - runtime/python/warploom.py over the fake driver, with tensors not of torch.
# SPDX-License-Identifier: BSD-3-Clause
import contextlib
import ctypes
import math
import os
import sys
import tempfile
import types
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get("BUILD", os.path.join(ROOT, "build")))
CACHE = tempfile.TemporaryDirectory()
os.environ.update(WARPLOOM_LIB=BUILD + "/libwarploom.so", WARPLOOM_CACHE_DIR=CACHE.name,
                  **{"WARPLOOM_" + fake.upper(): f"{BUILD}/libfake_{file}.so" for fake, file in
                     (("libcuda", "cuda"), ("nvrtc", "nvrtc"), ("gen", "gen"))})
DRIVER = ctypes.CDLL(os.environ["WARPLOOM_LIBCUDA"])
DRIVER.fake_cuda_state.restype = ctypes.POINTER(ctypes.c_int)


class Tensor:
    """Contiguous, in the fake driver's memory."""

    def __init__(self, *shape, dtype="bfloat16", device="cuda"):
        self.shape, self.dtype, self.device, self.is_cuda = shape, dtype, device, device == "cuda"
        self.address, self.requires_grad = ctypes.c_uint64(), False
        count = 1
        self.strides = []
        for extent in reversed(shape):
            self.strides.insert(0, count)
            count *= extent
        DRIVER.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(count * 4))

    def dim(self):
        return len(self.shape)

    def numel(self):
        return math.prod(self.shape)

    def stride(self):
        return tuple(self.strides)

    def data_ptr(self):
        return self.address.value

    def get_device(self):
        return 0

    def is_contiguous(self):
        return True


torch = types.ModuleType("torch")
torch.bfloat16, torch.float16, torch.float32 = "bfloat16", "float16", "float32"
torch.float8_e4m3fn, torch.float8_e5m2 = "float8_e4m3fn", "float8_e5m2"
torch.int32, torch.bool = "int32", "bool"
torch.empty = Tensor
torch.is_grad_enabled = lambda: False
torch.cuda = types.SimpleNamespace(
    current_device=lambda: 0,
    device=lambda index: contextlib.nullcontext(), synchronize=lambda: None,
    current_stream=lambda index: types.SimpleNamespace(cuda_stream=0))
torch._C = types.SimpleNamespace()
sys.modules["torch"] = torch
sys.path.insert(0, os.path.join(ROOT, "runtime/python"))
import warploom  # noqa: E402


def launches():
    return DRIVER.fake_cuda_state()[0]


RECORD = """choice fwd_fake
by fake
keep doc[batch, row] == doc[batch, col]
value s - fade
score_param fade 0 0 1
tensor doc int32 b p
scratch 8
set tile_m 128
kernel fwd_fake
params fwd
threads 384
shared 200000
map q 64 64
map k 64 128
map v 64 128
map o 64 16
"""


class Python(unittest.TestCase):
    def setUp(self):
        self.q, self.k, self.v = Tensor(2, 30, 6, 64), Tensor(2, 50, 2, 64), Tensor(2, 50, 2, 64)

    def raises(self, text, *args, **more):
        with self.assertRaises(warploom.Error) as caught:
            warploom.forward(*args, **more)
        self.assertIn(text, str(caught.exception))
        return caught.exception

    def test_outputs_are_made(self):
        before = launches()
        o, lse = warploom.forward(self.q, self.k, self.v, causal=True, return_lse=True)
        self.assertEqual((o.shape, o.dtype), ((2, 30, 6, 64), "bfloat16"))
        self.assertEqual((lse.shape, lse.dtype), ((2, 6, 30), "float32"))
        self.assertEqual(launches(), before + 1)

    def test_outputs_are_given(self):
        out, lse = Tensor(2, 30, 6, 64), Tensor(2, 6, 30, dtype="float32")
        self.assertIs(warploom.forward(self.q, self.k, self.v, out=out, lse=lse), out)
        self.assertEqual(warploom.forward(self.q, self.k, self.v, False, 0.5, out, True, lse=lse),
                         (out, lse))

    def test_there_may_be_no_keys(self):
        before = launches()
        warploom.forward(self.q, Tensor(2, 0, 2, 64), Tensor(2, 0, 2, 64))
        self.assertEqual(launches(), before + 1)

    def test_few_sms(self):
        self.raises("sms = -1: expected 0, which means all", self.q, self.k, self.v, sms=-1)
        warploom.forward_plan(self.q, self.k, self.v, sms=3)()

    def test_plans_launch_again(self):
        before = launches()
        plan = warploom.forward_plan(self.q, self.k, self.v, causal=True, kernel="fwd_named")
        self.assertEqual(launches(), before)
        self.assertEqual(plan().shape, (2, 30, 6, 64))
        plan()
        self.assertEqual(launches(), before + 2)

    def test_tensors_by_name(self):
        """The example's call is one that C takes; what is no tensor to be read is told."""
        sys.path.insert(0, os.path.join(ROOT, "examples", "variants"))
        from nearby import nearby
        before, doc = launches(), Tensor(2, 50, dtype="int32")
        os.environ["FAKE_GEN_RECORD"] = RECORD
        self.assertEqual(nearby(self.q, self.k, self.v, doc).shape, (2, 30, 6, 64))
        del os.environ["FAKE_GEN_RECORD"]
        self.assertEqual(launches(), before + 1)
        for wrong in (Tensor(2, 50, dtype="int64"), Tensor(1, 1, 1, 1, dtype="int32"),
                      Tensor(2, dtype="int32", device="cpu")):
            self.raises("expected at most 3 dimensions of int32, bool, float32 or bfloat16",
                        self.q, self.k, self.v, tensors={"doc": wrong})

    def test_prepared_is_what_c_takes(self):
        lib, context, args = warploom.prepared(self.q, self.k, self.v, out=Tensor(2, 30, 6, 64))
        self.assertEqual(lib.wl_forward(context, args), 0)

    def test_explained(self):
        text = warploom.explain(self.q, self.k, self.v, variant="mine", kernel="fwd_named")
        self.assertIn("kernel  fwd_named\n", text)
        self.assertIn("variant=mine head_dim=64 ", text)
        self.assertIn(" lse=no ", text)
        self.assertIn(" lse=yes ", warploom.explain(self.q, self.k, self.v, return_lse=True))

    def test_errors_are_raised(self):
        q, k, v = self.q, self.k, self.v
        self.assertEqual(self.raises("both are seq_k", q, k, Tensor(2, 51, 2, 64)).status, 2)
        self.raises("q is a (2, 3, 4, 64) float32 tensor on cuda: expected (batch, seq, heads, "
                    "dim), none of them 0 but seq of k and v, dtype",
                    Tensor(2, 3, 4, 64, dtype="float32"), k, v)
        self.raises("q is an empty (2, 0, 6, 64) bfloat16 tensor", Tensor(2, 0, 6, 64), k, v)
        self.raises("k is an empty (2, 50, 0, 64) bfloat16 tensor", q, Tensor(2, 50, 0, 64), v)
        self.raises("v is a (2, 50, 2, 64) bfloat16 tensor on cpu", q, k,
                    Tensor(2, 50, 2, 64, device="cpu"))
        self.raises("q has 3 dimensions, v 4", Tensor(30, 6, 64), k, v)
        self.raises("float32 CUDA tensor (batch, heads, seq_q) = (2, 6, 30)", q, k, v,
                    lse=Tensor(2, 30, 6, dtype="float32"))
        for scale in (0.0, -1.0, 1e-40, 1e300, float("nan")):
            self.raises(f"scale = {scale}: expected None, or a number from 2e-38 to 2e+38", q, k, v,
                        scale=scale)
        plan = warploom.forward_plan(q, k, v)
        os.environ["FAKE_CUDA_FAIL"] = "cuLaunchKernelEx:700"
        try:
            self.assertEqual(self.raises("CUDA_ERROR_ILLEGAL_ADDRESS", q, k, v).status, 1)
            with self.assertRaises(warploom.Error) as caught:
                plan()
            self.assertEqual(caught.exception.status, 1)
        finally:
            del os.environ["FAKE_CUDA_FAIL"]

    def test_tensors_of_8_bits(self):
        q, k = (Tensor(2, rows, heads, 64, dtype="float8_e4m3fn") for rows, heads in
                ((30, 6), (50, 2)))
        v = Tensor(2, 64, 2, 64, dtype="float8_e4m3fn")  # 50 keys, rounded up to 16
        one, each, few = (Tensor(*shape, dtype="float32") for shape in ((1,), (2, 6), (2, 2)))
        out = warploom.forward(q, k, v, scales=(one, one, one), precision="fast")
        self.assertEqual((out.shape, out.dtype), ((2, 30, 6, 64), "bfloat16"))
        warploom.forward_plan(q, k, v, scales=(each, few, None))()
        with self.assertRaisesRegex(warploom.Error, "scales: .*, here of 12 elements, or None"):
            warploom.forward(q, k, v, scales=(few, few, few))
        self.raises("v.shape[3] = 80, but k.shape[1] = 50: both are seq_k, rounded up to 16", q, k,
                    Tensor(2, 64, 2, 80, dtype="float8_e4m3fn"))

    def test_quantize(self):
        for turned in (False, True):
            with self.assertRaisesRegex(warploom.Error, "params 'fwd' are for another call"):
                warploom.quantize(self.k, by_head=True, turned=turned)

    def test_variants_are_added(self):
        warploom.variant_add("name: mine\n")
        warploom.forward(self.q, self.k, self.v, variant="mine")
        with self.assertRaisesRegex(warploom.Error, "text: has a NUL character"):
            warploom.variant_add("name: a\0")
        os.environ["FAKE_GEN_FAIL"] = "variant"
        try:
            with self.assertRaisesRegex(warploom.Error, "variant fails") as caught:
                warploom.variant_add("name: other\n")
        finally:
            del os.environ["FAKE_GEN_FAIL"]
        self.assertEqual(caught.exception.status, 3)
        self.assertEqual(warploom._VARIANTS, [b"name: mine\n"])
        warploom._context.__wrapped__(0)  # another device's: it has them, too

    def test_there_is_no_backward(self):
        self.k.requires_grad = True
        warploom.forward(self.q, self.k, self.v)
        torch.is_grad_enabled = lambda: True
        try:
            self.raises("k requires a gradient: no backward yet, call under torch.no_grad()",
                        self.q, self.k, self.v)
        finally:
            torch.is_grad_enabled = lambda: False

    def test_a_missing_library_is_told(self):
        found = os.environ["WARPLOOM_LIB"]
        try:
            os.environ["WARPLOOM_LIB"] = "/nowhere.so"
            with self.assertRaisesRegex(warploom.Error, "no libwarploom.so: /nowhere.so"):
                warploom.library.__wrapped__()
        finally:
            os.environ["WARPLOOM_LIB"] = found


if __name__ == "__main__":
    unittest.main()
