# extras.py - GPU checks that are not one call on one problem: streams, graphs, refusals.
# SPDX-License-Identifier: BSD-3-Clause
"""CHECKS is the table: (name, function returning complaints)."""
import torch
import warploom
from cases import Case
from tensors import Tensors, reference


def call(t, case, **more):
    return warploom.forward(t.q, t.k, t.v, causal=case.mask == "causal", out=t.o, lse=t.lse, **more)


def streams():
    """Launches on eight streams at once share the scheduler's scratch and give the same bits."""
    cases = [Case(128, 128, dtype, mask, "bshd", 2, 8, 8, sq, sq) for dtype in ("bf16", "fp16")
             for mask in ("causal", "none") for sq in (1500, 900)]
    tensors = [Tensors(case, i) for i, case in enumerate(cases)]
    want = []
    for case, t in zip(cases, tensors):
        call(t, case)
        torch.cuda.synchronize()
        want.append((t.o.clone(), t.lse.clone()))
        t.poison()
    torch.cuda.synchronize()
    side = [torch.cuda.Stream() for _ in cases]
    for _ in range(50):
        for case, t, stream in zip(cases, tensors, side):
            with torch.cuda.stream(stream):
                call(t, case)
    torch.cuda.synchronize()
    return [f"{case}: other bits beside other streams" for case, t, (o, lse)
            in zip(cases, tensors, want) if not (torch.equal(t.o, o) and torch.equal(t.lse, lse))]


UNPREPARED = "fwd_d128_bf16_none_m128n64_s7_w2_exact_static_p32c232"


def graph():
    """A prepared call can be captured, and the graph replayed, beside so many other launches that
    each place of the scheduler's scratch is used again; what is not prepared is refused."""
    case = Case(128, 128, "bf16", "causal", "bshd", 2, 4, 4, 700, 700)
    t = Tensors(case)
    call(t, case)
    torch.cuda.synchronize()
    want, g = t.o.clone(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        call(t, case)
    lines, other = [], Tensors(Case(64, 64, "bf16", "none", "bshd", 1, 1, 1, 64, 64))
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):  # whose stream the plan keeps
        again = warploom.forward_plan(other.q, other.k, other.v, out=other.o, lse=other.lse)
    for _ in range(3):
        t.poison()
        torch.cuda.synchronize()
        for _ in range(2000):
            again()
        g.replay()
        torch.cuda.synchronize()
        if not torch.equal(t.o, want):
            lines = ["a replay gives other bits"]
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            warploom.forward(t.q, t.k, t.v, scale=0.5, kernel=UNPREPARED)
        lines.append("a capture compiles")
    except warploom.Error as e:
        if "wl_prepare" not in str(e):
            lines.append(f"an unprepared capture says: {e}")
    return lines


def returns():
    """forward makes its own outputs, and returns LSE when asked."""
    q, k, v = (torch.randn(2, 200, 4, 64, device="cuda", dtype=torch.float16) for _ in range(3))
    o, lse = warploom.forward(q, k, v, causal=True, return_lse=True)
    alone = warploom.forward(q, k, v, causal=True)
    ref, ref_lse, _ = reference(q, k, v, "causal", 64 ** -0.5)
    lines = [] if torch.equal(o, alone) else ["O differs with and without LSE"]
    if (lse.double() - ref_lse).abs().max() > 2e-5 or (o.double() - ref).abs().max() > 4e-3:
        lines.append("O or LSE is wrong")
    return lines


def without_lse():
    """At head_dim 64 a call without LSE gets another kernel, near to the one with; that kernel
    refuses a call with LSE."""
    shape, lines = (8, 2048, 32, 64), []
    q, k, v = (torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    for causal in (False, True):
        o, _ = warploom.forward(q, k, v, causal=causal, return_lse=True)
        alone = warploom.forward(q, k, v, causal=causal)
        far = (o.float() - alone.float()).norm() / o.float().norm()
        if not 0 < far < 3e-3:
            lines.append(f"causal {causal}: with and without LSE O is {far:.3g} apart")
    try:
        warploom.forward(q, k, v, kernel=ROUNDED, return_lse=True)
        lines.append("LSE of rounded sums: accepted")
    except warploom.Error as e:
        if "leave lse out" not in str(e):
            lines.append(f"LSE of rounded sums: {e}")
    return lines


ROUNDED = "fwd_d64_bf16_none_m256n64_s7_w4_opt_static_p32c112_ones"


def without_keys():
    """With no keys O is 0 and LSE is -inf, whatever was there before."""
    lines = []
    for causal in (False, True):
        for d, dtype in ((64, torch.bfloat16), (128, torch.float16), (256, torch.bfloat16)):
            q = torch.randn(2, 300, 4, d, device="cuda", dtype=dtype)
            none = torch.empty(2, 0, 2, d, device="cuda", dtype=dtype)
            o, lse = torch.full_like(q, 7), torch.full((2, 4, 300), 7.0, device="cuda")
            warploom.forward(q, none, none, causal=causal, out=o, lse=lse)
            if o.any() or not torch.isneginf(lse).all():
                lines.append(f"d {d}, causal {causal}: O is not 0, or LSE not -inf")
    return lines


def few_sms():
    """A call that may occupy one SM, or a few, gives the bits that it gives on all of them."""
    lines = []
    for case in (Case(128, 128, "bf16", "causal", "bshd", 2, 8, 2, 700, 900),
                 Case(64, 64, "fp16", "none", "bhsd", 1, 4, 4, 333, 555)):
        t = Tensors(case)
        call(t, case)
        torch.cuda.synchronize()
        want, want_lse = t.o.clone(), t.lse.clone()
        for sms in (1, 7, 100):
            t.poison()
            call(t, case, sms=sms)
            torch.cuda.synchronize()
            if not (torch.equal(t.o, want) and torch.equal(t.lse, want_lse)):
                lines.append(f"{case}: other bits with {sms} SMs")
    return lines


def refusals():
    """What is not a legal call raises, and the message names the argument or the rule."""
    def make(*shape, dtype=torch.bfloat16, device="cuda"):
        return torch.zeros(*shape, dtype=dtype, device=device)

    x = make(2, 64, 4, 64)
    odd = torch.zeros(2, 64, 4, 68, dtype=torch.bfloat16, device="cuda")[..., :64]
    shifted = make(2 * 64 * 4 * 64 + 8)[1:1 + x.numel()].view(x.shape)
    wrong = [
        ("stride of 136 bytes", (odd, x, x), {}, "stride"),
        ("last dimension strided", (make(2, 64, 4, 128)[..., ::2], x, x), {}, "contiguous"),
        ("2-byte alignment", (shifted, x, x), {}, "aligned"),
        ("float32", (x.float(), x.float(), x.float()), {}, "dtype"),
        ("two dtypes", (x, x.half(), x), {}, "dtype"),
        ("host memory", (x.cpu(), x, x), {}, "device"),
        ("heads no multiple", (make(2, 64, 4, 64), make(2, 64, 3, 64), make(2, 64, 3, 64)), {},
         "kv_heads"),
        ("head_dim of k", (x, make(2, 64, 4, 72), x), {}, "head_dim"),
        ("seq of v", (x, x, make(2, 65, 4, 64)), {}, "seq_k"),
        ("head_dim 60", (make(2, 64, 4, 60),) * 3, {}, "60"),
        ("out overlaps q", (x, x.clone(), x.clone()), {"out": x}, "overlaps"),
        ("unknown kernel", (x, x, x), {"kernel": "fwd_d64_bf16_none_nonsense"}, "nonsense"),
    ]
    lines = []
    for what, args, more, word in wrong:
        try:
            warploom.forward(*args, **more)
            lines.append(f"{what}: accepted")
        except warploom.Error as e:
            if word not in str(e):
                lines.append(f"{what}: the message lacks '{word}': {e}")
    return lines


CHECKS = (("streams", streams), ("graph", graph), ("returns", returns), ("refusals", refusals),
          ("without keys", without_keys), ("without LSE", without_lse), ("few SMs", few_sms))
