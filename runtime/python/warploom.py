# warploom.py - attention on PyTorch's CUDA tensors, over libwarploom.so.
# SPDX-License-Identifier: BSD-3-Clause
"""    o = warploom.forward(q, k, v, causal=True)
    o, lse = warploom.forward(q, k, v, causal=True, return_lse=True)

q is (batch, seq_q, heads, head_dim), k and v are (batch, seq_k, kv_heads, …); bf16 or fp16; any
strides of multiples of 16 bytes with a contiguous last dimension. The call is queued on the current
stream. Errors are raised as warploom.Error. No backward yet: gradients are off or not asked for.
    o = warploom.forward(q8, k8, warploom.turned(v8), scales=(sq, sk, sv), precision="balanced")
takes 8-bit tensors: values times float32 scales of one element, or of (batch, heads) and twice
(batch, kv_heads)."""
import ctypes
import functools
import os
import struct
import threading

import torch

_VARIANTS, _CONTEXTS, _LOCK = [], [], threading.RLock()
_HERE = os.path.dirname(os.path.abspath(__file__))
_DTYPES = {torch.bfloat16: 0, torch.float16: 1, torch.float8_e4m3fn: 3, torch.float8_e5m2: 4}
_PRECISIONS = {"balanced": 0, "accurate": 1, "fast": 2}
# struct wl_forward_args: size, four tensors, lse, mask, scale, variant, kernel, stream, sms, …
_ARGS = struct.Struct("@N" + "Pi8q" * 4 + "PifPPPiPNP5iP4fi0P" + "3P3iP")


_ELEMENTS = {torch.int32: 16, torch.bool: 17, torch.float32: 2, torch.bfloat16: 0}


class _Named(ctypes.Structure):
    """wl_named_tensor."""
    _fields_ = [("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("dtype", ctypes.c_int),
                ("n_dims", ctypes.c_int), ("shape", ctypes.c_int64 * 3),
                ("stride", ctypes.c_int64 * 3)]


class _Args(bytes):
    """wl_forward_args, with what it points to."""


class Error(RuntimeError):
    """status is a wl_status of warploom.h: 2 bad argument, 3 spec, 4 compile, 5 device."""

    def __init__(self, text, status=2):
        super().__init__(text)
        self.status = status


@functools.cache
def library():
    """libwarploom.so: WARPLOOM_LIB, beside this file, the checkout's build/, else the loader's."""
    places = [os.path.join(_HERE, "libwarploom.so"),
              os.path.join(_HERE, "..", "..", os.environ.get("BUILD", "build"), "libwarploom.so")]
    found = os.environ.get("WARPLOOM_LIB") or next(filter(os.path.exists, places), "libwarploom.so")
    try:
        lib = ctypes.CDLL(found)
    except OSError as e:
        raise Error(f"no libwarploom.so: {e}; run make, or name it in WARPLOOM_LIB", 5) from None
    lib.wl_error.restype = lib.wl_version.restype = ctypes.c_char_p
    lib.wl_open.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p]
    for function in (lib.wl_forward, lib.wl_prepare, lib.wl_quantize):
        function.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    lib.wl_explain.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    lib.wl_variant_add.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    return lib


def _check(status):
    if status:
        raise Error(library().wl_error().decode(), status)


@functools.cache
def _context(index):
    """The context of a device, open until the process ends, with all variants that were added."""
    context = ctypes.c_void_p()
    with torch.cuda.device(index), _LOCK:
        torch.cuda.synchronize()  # makes the device's CUDA context current in this thread
        _check(library().wl_open(ctypes.byref(context), None))
        for text in _VARIANTS:
            _check(library().wl_variant_add(context, text))
        _CONTEXTS.append(context)
    return context


def variant_add(text):
    """Adds a variant (warploom-spec(5): "extends: fwd" …) by its text, for calls on any device.
    Raises with every mistake, a line each, as yaml:LINE:COLUMN: …; then nothing is added."""
    data = text.encode()
    if b"\0" in data:
        raise Error("text: has a NUL character: expected a variant's YAML")
    _context(torch.cuda.current_device())
    with _LOCK:
        for context in _CONTEXTS:
            _check(library().wl_variant_add(context, data))
        _VARIANTS.append(data)


@functools.cache
def _text(word):
    """A C string that lives as long as the process."""
    return ctypes.create_string_buffer(word.encode())


def _address(word):
    return ctypes.addressof(_text(word)) if word else 0


def _stream(index):
    try:
        return torch._C._cuda_getCurrentRawStream(index)  # ten times faster than the public way
    except AttributeError:
        return torch.cuda.current_stream(index).cuda_stream


def _is_8bit(t):
    return _DTYPES.get(t.dtype, 0) >= 3


def turned(v):
    """8-bit v, (batch, seq_k, kv_heads, dim_v), as forward takes it: (batch, dim_v, kv_heads,
    keys), keys rounded up to 16 and permuted within each 16."""
    v8 = v.view(torch.uint8).permute(0, 3, 2, 1)
    v8 = torch.nn.functional.pad(v8, (0, -v8.shape[3] % 16))
    v8 = v8.unflatten(3, (-1, 2, 4, 2)).transpose(4, 5).flatten(3)
    return v8.contiguous().view(v.dtype)


_QUANTIZE = struct.Struct("@N" + "Pi8q" * 2 + "P2iPi0P")


def quantize(x, dtype=torch.float8_e4m3fn, by_head=False, turned=False):
    """(x8, scale): bf16 or fp16 x in 8 bits, and amax / (dtype's largest), one, or one for each
    (batch, head); turned: x8 as forward takes v."""
    batch, seq, heads, dim = x.shape
    shape = (batch, dim, heads, (seq + 15) // 16 * 16) if turned else x.shape
    out = torch.empty(*shape, dtype=dtype, device=x.device)
    scales = (batch, heads) if by_head else (1,)
    scale = torch.empty(*scales, dtype=torch.float32, device=x.device)
    fields = [_QUANTIZE.size]
    for t in (x, out):
        fields += (t.data_ptr(), _DTYPES.get(t.dtype, 2), *t.shape, *t.stride())
    args = _QUANTIZE.pack(*fields, scale.data_ptr(), by_head, turned, _stream(x.get_device()), 0)
    _check(library().wl_quantize(_context(x.get_device()), args))
    return out, scale


def _scales(q, k, scales):
    """Their addresses, and 1 where there is one for each batch and head."""
    by_head = any(s is not None and s.numel() > 1 for s in scales)
    for s, t in zip(scales, (q, k, k)):
        count = t.shape[0] * t.shape[2] if by_head else 1
        if s is not None and (s.dtype != torch.float32 or s.numel() != count or not s.is_cuda
                              or not s.is_contiguous()):
            raise Error(f"scales: expected contiguous float32 CUDA tensors, here of {count} "
                        "elements, or None")
    return [s.data_ptr() if s is not None else 0 for s in scales] + [int(by_head)]


def _named(tensors):
    array = (_Named * len(tensors))()
    for row, (name, t) in zip(array, tensors.items()):
        if t.dtype not in _ELEMENTS or t.dim() > 3 or not t.is_cuda:
            raise Error(f"tensor {name} is a {tuple(t.shape)} {t.dtype} tensor on {t.device}: "
                        "expected at most 3 dimensions of int32, bool, float32 or bfloat16 on a "
                        "CUDA device")
        row.name, row.data, row.dtype = name.encode(), t.data_ptr(), _ELEMENTS[t.dtype]
        row.n_dims = t.dim()
        row.shape[:t.dim()], row.stride[:t.dim()] = t.shape, t.stride()
    return array


def _pack(q, k, v, o, lse, causal, scale, variant, kernel, sms=0, mask=None, mask_args=(),
          score=None, score_args=(), scales=(None, None, None), precision="balanced",
          tensors=None):
    if scale is not None and not 2e-38 <= scale <= 2e38:
        raise Error(f"scale = {scale}: expected None, or a number from 2e-38 to 2e+38")
    fields = [_ARGS.size]
    for name, t in (("q", q), ("k", k), ("v", v), ("out", o)):
        dtype = _DTYPES.get(t.dtype)
        empty = 0 in (t.shape[:1] + t.shape[2:] if name in "kv" else t.shape)
        if dtype is None or not t.is_cuda or t.dim() != 4 or empty:
            raise Error(f"{name} is {'an empty' if empty else 'a'} {tuple(t.shape)} {t.dtype} "
                        f"tensor on {t.device}: expected (batch, seq, heads, dim), none of them 0 "
                        "but seq of k and v, dtype bfloat16, float16 or 8-bit float, on a CUDA "
                        "device")
        if t.requires_grad and torch.is_grad_enabled():
            raise Error(f"{name} requires a gradient: no backward yet, call under torch.no_grad()")
        fields += (t.data_ptr(), dtype, *t.shape, *t.stride())
    named = _named(tensors) if tensors else None
    args = _Args(_ARGS.pack(*fields, lse.data_ptr() if lse is not None else 0, int(causal),
                      scale or 0.0, _address(variant), _address(kernel), _stream(q.get_device()),
                      sms, 0, 0, _address(mask), *(*mask_args, 0, 0, 0, 0)[:4], len(mask_args),
                      _address(score), *(*score_args, 0, 0, 0, 0)[:4], len(score_args),
                      *_scales(q, k, scales), _PRECISIONS[precision], len(tensors or ()),
                      ctypes.addressof(named) if named else 0))
    args.named = named, tensors
    return args


def _outputs(q, v, out, lse, return_lse):
    if q.dim() != 4 or v.dim() != 4:
        raise Error(f"q has {q.dim()} dimensions, v {v.dim()}: expected (batch, seq, heads, dim)")
    batch, rows, heads, _ = q.shape
    if out is None and _is_8bit(q):
        out = torch.empty(batch, rows, heads, v.shape[1], dtype=torch.bfloat16, device=q.device)
    elif out is None:
        out = torch.empty(batch, rows, heads, v.shape[3], dtype=q.dtype, device=q.device)
    if lse is None and return_lse:
        lse = torch.empty(batch, heads, rows, dtype=torch.float32, device=q.device)
    if lse is not None and (lse.dtype != torch.float32 or lse.shape != (batch, heads, rows)
                            or not lse.is_contiguous() or not lse.is_cuda):
        raise Error("lse: expected a contiguous float32 CUDA tensor (batch, heads, seq_q) = "
                    f"({batch}, {heads}, {rows})")
    return out, lse


def forward(q, k, v, causal=False, scale=None, out=None, return_lse=False, *, lse=None,
            variant=None, kernel=None, sms=0, mask=None, mask_args=(), score=None, score_args=(),
            **more):
    """softmax(scale * q k^T + mask) v into out (made if None), causal aligned bottom-right, scale
    None as 1/sqrt(head_dim). lse is log sum exp per row, float32 (batch, heads, seq_q); without it
    out may differ by a rounding. variant, mask, score (with params): of a spec, and what these read
    by name: tensors={"doc": doc}; sms: most to take; of 8-bit tensors scales=(q's, k's, v's),
    precision="balanced", "accurate" or "fast"."""
    out, lse = _outputs(q, v, out, lse, return_lse)
    args = _pack(q, k, v, out, lse, causal, scale, variant, kernel, sms, mask, mask_args, score,
                 score_args, **more)
    _check(library().wl_forward(_context(q.get_device()), args))
    return (out, lse) if return_lse else out


def prepared(q, k, v, causal=False, scale=None, out=None, return_lse=False, *, lse=None,
             variant=None, kernel=None, sms=0, mask=None, mask_args=(), score=None, score_args=(),
             **more):
    """(library, context, args), loaded: library.wl_forward(context, args) launches, given out."""
    out, lse = _outputs(q, v, out, lse, return_lse)
    args = _pack(q, k, v, out, lse, causal, scale, variant, kernel, sms, mask, mask_args, score,
                 score_args, **more)
    _check(library().wl_prepare(_context(q.get_device()), args))
    return library(), _context(q.get_device()), args


def forward_plan(q, k, v, causal=False, scale=None, out=None, return_lse=False, **more):
    """A function of no arguments that launches this call again, and holds its tensors."""
    out, lse = _outputs(q, v, out, more.pop("lse", None), return_lse)
    lib, context, args = prepared(q, k, v, causal, scale, out, lse=lse, **more)

    def launch(wl_forward=lib.wl_forward, keep=(q, k, v)):
        _check(wl_forward(context, args))
        return (out, lse) if return_lse else out
    return launch


def explain(q, k, v, causal=False, scale=None, return_lse=False, *, variant=None, kernel=None):
    """Which kernel a call would use, who chose it and why: text of several lines."""
    out, lse = _outputs(q, v, None, None, return_lse)
    text = ctypes.create_string_buffer(4096)
    args = _pack(q, k, v, out, lse, causal, scale, variant, kernel)
    _check(library().wl_explain(_context(q.get_device()), args, text, len(text)))
    return text.value.decode()
