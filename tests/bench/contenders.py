# contenders.py - the kernels a bench compares, each as a function of no arguments.
# SPDX-License-Identifier: BSD-3-Clause
"""Every maker takes the tensors q, k, v ([batch][seq][heads][dim]) and a point, and returns a call;
it raises when its library has no kernel for the point."""
import importlib

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import warploom

FA3_MODULES = ("flash_attn_interface", "fa3_fwd_interface", "flash_attn_3.flash_attn_interface")
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "fa2": SDPBackend.FLASH_ATTENTION}


def ours(q, k, v, point, with_lse=False, **force):
    """O, as by warploom.forward's default, or O and LSE, by a prepared call. FA2 and FA3 give LSE
    whether it is wanted or not, cuDNN does not."""
    o = torch.empty(*q.shape[:3], v.shape[3], dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[0], q.shape[2], q.shape[1], device=q.device) if with_lse else None
    return warploom.forward_plan(q, k, v, point.mask == "causal", out=o, lse=lse, **force)


def sdpa(backend, q, k, v, point):
    """PyTorch's call with one backend. Where it does not take grouped heads itself, it gets
    repeated ones, made beforehand."""
    causal, grouped = point.mask == "causal", point.heads != point.kv_heads

    def maker(q, k, v, gqa):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))

        def call():
            with sdpa_kernel(BACKENDS[backend]):
                o = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=gqa)
            return o.transpose(1, 2)
        return call

    call = maker(q, k, v, grouped)
    try:
        call()
        return call
    except RuntimeError:
        if not grouped:
            raise
    n = point.heads // point.kv_heads
    call = maker(q, k.repeat_interleave(n, 2), v.repeat_interleave(n, 2), False)
    call()
    return call


def find_fa3():
    """(FA3's flash_attn_func, the module's name), or (None, what was tried)."""
    reasons = []
    for name in FA3_MODULES:
        try:
            return importlib.import_module(name).flash_attn_func, name
        except Exception as e:
            reasons.append(f"{name}: {type(e).__name__}: {e}")
    return None, "; ".join(reasons)


def fa3(function, q, k, v, point):
    causal = point.mask == "causal"

    def call():
        out = function(q, k, v, causal=causal)
        return out[0] if isinstance(out, tuple) else out
    call()
    return call


def peers(wanted, q, k, v, point, fa3_function):
    """{name: call} of the wanted peers that take this point, {name: why not} of the others."""
    calls, missing = {}, {}
    for name in wanted:
        try:
            if name == "fa3" and not fa3_function:
                continue
            calls[name] = (fa3(fa3_function, q, k, v, point) if name == "fa3"
                           else sdpa(name, q, k, v, point))
        except Exception as e:
            missing[name] = (str(e).strip().splitlines() or ["?"])[0][:120]
    return calls, missing
