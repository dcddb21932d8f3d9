# tensors.py - a case's tensors on the GPU, and the attention they are compared with.
# SPDX-License-Identifier: BSD-3-Clause
"""Every tensor lies in an arena full of POISON (a NaN in bf16 and fp16), with guards around it:
reading outside an input spoils the result, writing outside an output is seen by `untouched`."""
import torch

# The yardstick sums in float32 like everybody's kernels.
torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
POISON, POISON_LSE = 0x7FF1, 0x7FC12345
GUARD = 2048  # elements before and after
DTYPE = {"bf16": torch.bfloat16, "fp16": torch.float16}
ORDER = {"bhsd": "bhs", "sbhd": "sbh", "hbsd": "hbs"}           # else "bsh"
PAD = {"pad_seq": {"s": 24}, "pad_head": {"h": 8}, "pad_batch": {"b": 40},
       "pad_all": {"h": 8, "s": 24, "b": 40}, "inner": {"h": 16}}


class Arena:
    """Poisoned memory for `size` elements; views are cut from it by strides."""

    def __init__(self, size, dtype, poison=POISON):
        raw = torch.int32 if dtype == torch.float32 else torch.int16
        self.poison, self.dtype = poison, dtype
        self.raw = torch.full((size + 2 * GUARD,), poison, dtype=raw, device="cuda")

    def view(self, shape, strides, offset=0, of=None):
        raw = self.raw if of is None else of
        return raw.view(self.dtype).as_strided(shape, strides, GUARD + offset)

    def untouched(self, shape, strides, offset=0):
        """Whether every element outside the view is still poison."""
        copy = self.raw.clone()
        copy.as_strided(shape, strides, GUARD + offset).fill_(self.poison)
        return bool((copy == self.poison).all())


def strides(view, b, s, h, d):
    """((batch, seq, head, 1) strides, elements spanned) of a tensor that lies alone."""
    size, pad = {"b": b, "s": s, "h": h}, PAD.get(view, {})
    span, step = d, {}
    for axis in reversed(ORDER.get(view, "bsh")):
        step[axis] = span + pad.get(axis, 0)
        span = step[axis] * size[axis]
    return (step["b"], step["s"], step["h"], 1), span


class Tensors:
    """q, k, v, o and lse of a case, with the arenas they lie in."""

    def __init__(self, case, seed=0):
        c, dtype = case, DTYPE[case.dtype]
        shape = {"q": (c.batch, c.sq, c.heads, c.d), "k": (c.batch, c.sk, c.kv_heads, c.d),
                 "v": (c.batch, c.sk, c.kv_heads, c.dv), "o": (c.batch, c.sq, c.heads, c.dv)}
        self.dtype, self.shape = dtype, shape
        together = {"packed": "qkv", "kv": "kv"}.get(c.view, "")
        if together:
            self.side_by_side(together)
        for name in "qkvo":
            if name not in together:
                self.alone(name, c.view if c.view not in ("packed", "kv") else "bshd")
        self.lse_at = ((c.batch, c.heads, c.sq), (c.heads * c.sq, c.sq, 1))
        self.lse_arena = Arena(c.batch * c.heads * c.sq, torch.float32, POISON_LSE)
        self.lse = self.lse_arena.view(*self.lse_at)
        generator = torch.Generator(device="cuda").manual_seed(seed)
        for name, values in zip("qkv", fill(c, shape, generator)):
            to = getattr(self, name)
            if c.view == "shared" and name != "q":
                to, values = to[:1], values[:1]
            to.copy_(values)

    def alone(self, name, view):
        b, s, h, d = self.shape[name]
        step, span = strides(view, b, s, h, d)
        offset = 8 if view == "inner" else 0
        if view == "shared" and name in "kv":
            step = (0,) + step[1:]
        arena = Arena(span + offset, self.dtype)
        setattr(self, name, arena.view(self.shape[name], step, offset))
        if name == "o":
            self.o_arena, self.o_at = arena, (self.shape[name], step, offset)

    def side_by_side(self, names):
        b, s = self.shape[names[0]][:2]
        row = sum(self.shape[n][2] * self.shape[n][3] for n in names)
        arena, offset = Arena(b * s * row, self.dtype), 0
        for n in names:
            _, _, h, d = self.shape[n]
            setattr(self, n, arena.view(self.shape[n], (s * row, row, d, 1), offset))
            offset += h * d

    def poison(self):
        """Makes the outputs unwritten again."""
        self.o_arena.raw.fill_(POISON)
        self.lse_arena.raw.fill_(POISON_LSE)

    def guards(self):
        """The outputs whose surroundings were written."""
        return [name for name, arena, at in (("O", self.o_arena, self.o_at),
                                             ("LSE", self.lse_arena, self.lse_at))
                if not arena.untouched(*at)]


def fill(case, shape, generator):
    """The values of q, k and v (float32, or less for large ones); see KINDS in cases.py."""
    def normal(name):
        size = shape[name]
        few = size[0] * size[1] * size[2] * size[3] < 1 << 30
        dtype = torch.float32 if few else torch.bfloat16
        return torch.randn(size, generator=generator, device="cuda", dtype=dtype)

    q, k, v = normal("q"), normal("k"), normal("v")
    kind, sk = case.kind, case.sk
    along = torch.linspace(0, 1, sk, device="cuda")[None, :, None]  # 0 .. 1 over the keys
    unit = case.d ** 0.5 / 4                    # of k[..., 0], moves a score by one when q is 4
    if kind in ("rise", "fall", "step", "late"):
        q[..., 0] = 4
    if kind == "sharp":
        q *= 6
    elif kind == "grow":
        k *= 0.05 + 40 * along[..., None]
    elif kind == "shrink":
        k *= 0.05 + 40 * (1 - along[..., None])
    elif kind == "rise":
        k[..., 0] = 200 * unit * (along - 0.5)
    elif kind == "fall":
        k[..., 0] = 200 * unit * (0.5 - along)
    elif kind == "step":
        k[..., 0] = 3.5 * unit * (torch.arange(sk, device="cuda") // 64 - 10)[None, :, None]
    elif kind == "late":
        k[:, :200, :, 0] = -2000 * unit
    elif kind == "outlier":
        q *= 3
        k[:, min(3, sk - 1)] *= 300
        k[:, sk // 2] *= 100
    elif kind == "negative":
        q, k = q.abs() + 1, k.abs() * -100
    elif kind == "equal":
        k = k[:, :1].expand(shape["k"])
    elif kind == "zero":
        k *= 0
    elif kind == "big_v":
        v *= 1000
    return q, k, v


def scores(q, k, mask, scale):
    """scale * q k^T of [batch][heads][seq][dim] tensors in their own type, masked by -inf."""
    s = (q * scale) @ k.transpose(2, 3)
    if mask == "causal":
        sq, sk = s.shape[2:]
        keep = torch.ones(sq, sk, dtype=torch.bool, device=s.device).tril(sk - sq)
        s = s.masked_fill(~keep, float("-inf"))
    return s


def heads_first(x, heads, dtype=None):
    """[batch][seq][kv_heads][dim] to [batch][heads][seq][dim]."""
    x = x.transpose(1, 2).to(dtype or x.dtype)
    return x.repeat_interleave(heads // x.shape[1], 1)


def reference(q, k, v, mask, scale, dtype=torch.float64):
    """(O, LSE, the largest |score| of each row): attention as it is defined, in float64."""
    heads = q.shape[2]
    s = scores(heads_first(q, heads, dtype), heads_first(k, heads, dtype), mask, scale)
    lse = torch.logsumexp(s, -1)
    p = torch.exp(s - lse[..., None]).nan_to_num_(nan=0.0)  # a row without keys is NaN before
    top = s.abs().masked_fill_(s.isinf(), 0.0).amax(-1)
    return (p @ heads_first(v, heads, dtype)).transpose(1, 2), lse, top


def plain(q, k, v, mask, scale):
    """PyTorch's attention in the inputs' own type, step by step: the yardstick of accuracy."""
    heads = q.shape[2]
    s = scores(heads_first(q, heads), heads_first(k, heads), mask, scale)
    p = torch.softmax(s, -1).nan_to_num(nan=0.0)
    return (p @ heads_first(v, heads)).transpose(1, 2)


def pieces(case):
    """Slices (batch, heads, kv_heads) that together are the case: all of it, or one KV head at a
    time when the scores would be large."""
    if case.batch * case.heads * case.sq * case.sk <= 1 << 27:
        return [(slice(None), slice(None), slice(None))]
    group = case.heads // case.kv_heads
    return [(slice(b, b + 1), slice(h * group, (h + 1) * group), slice(h, h + 1))
            for b in range(case.batch) for h in range(case.kv_heads)]
