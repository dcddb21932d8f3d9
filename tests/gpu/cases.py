# cases.py - the table of numeric cases: which problem, which views, which inputs. Needs no GPU.
# SPDX-License-Identifier: BSD-3-Clause
"""The table is data: `table()` returns every case, `quick()` a subset that touches each axis once.

A case is one call. Its views say how q, k, v and o lie in memory (see VIEWS), its kind says what
numbers are in them (see KINDS). Cases are numbered by their text, so a failing one can be run
alone: check.py --only TEXT.
"""
import re
from dataclasses import dataclass, replace

HEAD_DIMS = range(16, 257, 8)
DTYPES = ("bf16", "fp16")
MASKS = ("none", "causal")

# Memory orders of a view [batch][seq][heads][dim]; check.py's `place` gives each its meaning.
VIEWS = (
    "bshd",       # contiguous
    "bhsd",       # heads outside the sequence
    "sbhd",       # sequence outside the batch
    "hbsd",       # heads outermost
    "pad_seq",    # every row of the sequence followed by 24 elements
    "pad_head",   # every head followed by 8 elements: an odd multiple of 16 bytes
    "pad_batch",  # every sequence followed by 40 elements
    "pad_all",    # all three
    "inner",      # a slice of a wider last dimension, starting 16 bytes in
    "packed",     # q, k, v side by side in one tensor [batch][seq][heads, kv, kv][dim]
    "kv",         # k and v in one tensor [batch][seq][2][kv_heads][dim]
    "shared",     # k and v of one sequence shared by all batches: a stride of zero
)

# What is in the inputs; check.py's `fill` gives each its meaning.
KINDS = (
    "normal",
    "sharp",      # q times 6: a few keys hold all the weight
    "grow",       # keys grow along the sequence, scores of either sign
    "shrink",
    "rise",       # each row's scores rise steadily: the maximum moves at every tile
    "fall",       # and fall: everything after the first tile underflows
    "step",       # scores jump by about 2^5 in base 2 at every 64 keys
    "outlier",    # one key times 300, another times 100
    "negative",   # every score far below zero
    "late",       # far below zero for the first 200 keys, then normal
    "equal",      # all keys alike
    "zero",       # all scores zero
    "big_v",      # values around 1000
)

# (Sq, Sk): 1, tile - 1, tile, tile + 1 for tiles of 64, 128 and 192, primes, Sq > Sk, Sq < Sk.
PAIRS = (
    (1, 1), (1, 2), (2, 1), (1, 63), (1, 64), (1, 65), (1, 1021), (3, 5), (15, 17), (16, 16),
    (31, 33), (63, 63), (64, 64), (65, 65), (63, 129), (64, 1), (65, 64), (79, 81), (80, 80),
    (127, 127), (128, 128), (129, 129), (127, 513), (128, 64), (129, 63), (191, 191),
    (192, 192), (193, 193), (191, 64), (193, 320), (192, 1024), (255, 257), (256, 256),
    (257, 255), (319, 321), (384, 384), (383, 769), (385, 384), (509, 503), (503, 509),
    (77, 1500), (1111, 600), (640, 128), (1000, 1000), (1024, 1024), (1021, 1021),
    (2047, 130), (130, 2047), (2049, 2049),
)

# head_dim_v that differs from head_dim.
OTHER_V = (
    (192, 128), (128, 64), (64, 128), (64, 256), (256, 64), (256, 128), (128, 256), (96, 64),
    (80, 64), (64, 80), (16, 256), (256, 16), (72, 40), (40, 72), (104, 96), (200, 128),
    (24, 64), (136, 128), (128, 136), (248, 8 * 23), (176, 256), (48, 16),
)

# (batch, heads, kv_heads)
HEADS = ((1, 1, 1), (3, 1, 1), (1, 8, 8), (2, 8, 2), (2, 8, 1), (1, 12, 4), (5, 7, 7), (3, 7, 1),
         (2, 24, 3), (1, 40, 5), (17, 2, 1), (2, 71, 71))


def rounded(n):
    """A size up to the next number of three significant bits, as the library does it."""
    step = 1
    while n > 8 * step:
        step *= 2
    return -(-n // step) * step


@dataclass(frozen=True)
class Case:
    d: int
    dv: int
    dtype: str
    mask: str
    view: str = "bshd"
    batch: int = 2
    heads: int = 2
    kv_heads: int = 2
    sq: int = 300
    sk: int = 300
    kind: str = "normal"
    scale: float = 0.0
    kernel: str = ""    # forces this candidate
    variant: str = ""
    lse: bool = True    # is it asked for

    @property
    def layout(self):
        return "bhsd" if self.view in ("bhsd", "hbsd") else "bshd"

    @property
    def problem(self):
        """The words of the command line."""
        words = [f"variant={self.variant}"] if self.variant else []
        words += [f"head_dim={self.d}", f"head_dim_v={self.dv}", f"dtype={self.dtype}",
                  f"mask={self.mask}", f"layout={self.layout}", f"batch={self.batch}",
                  f"heads={self.heads}", f"kv_heads={self.kv_heads}", f"seq_q={self.sq}",
                  f"seq_k={self.sk}"] + ([] if self.lse else ["lse=no"])
        return " ".join(words)

    @property
    def bucket(self):
        """The problem with its sizes rounded up: all that a choice depends on."""
        sizes = {s: rounded(getattr(self, s)) for s in ("batch", "kv_heads", "sq", "sk")}
        heads = sizes["kv_heads"] * rounded(self.heads // self.kv_heads)
        return replace(self, heads=heads, **sizes).problem

    def __str__(self):
        text = (f"d{self.d}" + (f"_v{self.dv}" if self.dv != self.d else "")
                + f"_{self.dtype}_{self.mask}_{self.view}_b{self.batch}h{self.heads}"
                + f"k{self.kv_heads}_{self.sq}x{self.sk}_{self.kind}")
        text += f"_scale{self.scale:g}" if self.scale else ""
        text += "" if self.lse else "_no_lse"
        return text + (f" {self.kernel}" if self.kernel else "")


def axes():
    """Each head_dim with each dtype and mask; the shape and the view change along the way."""
    shapes = ((200, 333), (333, 200), (257, 257), (130, 500), (65, 191))
    cases, i = [], 0
    for d in HEAD_DIMS:
        for dtype in DTYPES:
            for mask in MASKS:
                sq, sk = shapes[i % len(shapes)]
                view = ("bshd", "bhsd", "pad_all")[i % 3]
                heads, kv = ((4, 4), (4, 2), (3, 1))[i // 3 % 3]
                cases.append(Case(d, d, dtype, mask, view, 2, heads, kv, sq, sk))
                i += 1
    return cases


def lengths():
    """Every pair of lengths at three head dims under both masks, the dtypes in turn."""
    cases = []
    for i, (sq, sk) in enumerate(PAIRS):
        for j, d in enumerate((64, 128, 256)):
            for mask in MASKS:
                dtype = DTYPES[(i + j) % 2]
                cases.append(Case(d, d, dtype, mask, "bshd", 2, 2, 1 + i % 2, sq, sk))
    return cases


def values():
    cases = []
    for i, (d, dv) in enumerate(OTHER_V):
        for j, mask in enumerate(MASKS):
            view = "bhsd" if i % 2 else "bshd"
            cases.append(Case(d, dv, DTYPES[(i // 2 + j) % 2], mask, view, 2, 4, 2, 257, 300))
    return cases + [Case(192, 128, t, m, "bshd", 1, 4, 4, 500, 500) for t in DTYPES for m in MASKS]


def views():
    cases = []
    for i, view in enumerate(VIEWS):
        for d, dv in ((64, 64), (128, 128), (80, 80), (192, 128)):
            for j, mask in enumerate(MASKS):
                kv = 2 if view in ("kv", "shared") else 4
                cases.append(Case(d, dv, DTYPES[(i + j) % 2], mask, view, 3, 4, kv, 193, 193))
    return cases


def heads():
    cases = []
    for i, (batch, h, kv) in enumerate(HEADS):
        for j, mask in enumerate(MASKS):
            d = (64, 128)[i % 2]
            cases.append(Case(d, d, DTYPES[(i + j) % 2], mask, "bshd", batch, h, kv, 150, 271))
    return cases


def inputs():
    """Every kind of input at three head dims, both masks and dtypes; 300 x 1400 as in one tile
    row that is cut, and long enough for every stage of a ring."""
    cases = []
    for kind in KINDS:
        for d in (64, 128, 256):
            for mask in MASKS:
                for dtype in DTYPES:
                    cases.append(Case(d, d, dtype, mask, "bshd", 1, 2, 2, 300, 1400, kind))
    # Rows that see no key at all, beside rows that do.
    for d in (64, 128, 256, 80):
        for dtype in DTYPES:
            for sq, sk in ((700, 1), (500, 64), (450, 257)):
                cases.append(Case(d, d, dtype, "causal", "bshd", 2, 2, 1, sq, sk))
    for scale in (0.02, 0.5, 1.0, 3.0):
        for d in (64, 128):
            cases.append(Case(d, d, "bf16", "causal", "bshd", 1, 2, 2, 333, 333, scale=scale))
    return cases


def without_lse():
    """Other kernels at head_dim 64, the same ones elsewhere."""
    cases = [Case(64, 64, "bf16", mask, "bshd", 2, 2, 1 + i % 2, sq, sk, lse=False)
             for i, (sq, sk) in enumerate(PAIRS) for mask in MASKS]
    cases += [Case(64, 64, "bf16", mask, "bshd", 1, 2, 2, 300, 1400, kind, lse=False)
              for kind in KINDS for mask in MASKS]
    cases += [Case(64, 64, "bf16", mask, view, 8, 16, 4, 520, 520, lse=False)
              for view in ("bshd", "bhsd", "pad_all") for mask in MASKS]
    cases += [Case(64, 64, "bf16", mask, "bshd", 4, 16, 16, 2048, 2048, lse=False)
              for mask in MASKS]
    return cases + [Case(d, dv, dtype, mask, "bshd", 2, 4, 2, 257, 300, lse=False)
                    for d, dv, dtype in ((64, 64, "fp16"), (128, 64, "bf16"), (128, 128, "bf16"),
                                         (256, 256, "bf16"), (80, 80, "fp16")) for mask in MASKS]


def large():
    """Enough work items for every multiprocessor several times; and offsets beyond 2^31."""
    cases = [Case(d, d, "bf16", mask, "bshd", 4, 8, 8, 2048, 2048)
             for d in (64, 128, 256) for mask in MASKS]
    cases += [Case(128, 128, "fp16", mask, "bhsd", 3, 16, 4, 1500, 3000) for mask in MASKS]
    cases.append(Case(128, 128, "bf16", "causal", "bshd", 1, 128, 128, 100, 131200))
    # Several items a block for every number of output panels and staging buffers.
    cases += [Case(64, dv, "bf16", "causal", "bshd", 12, 16, 16, 300, 300)
              for dv in (64, 72, 128, 136, 168, 192, 200, 256)]
    return cases


def table():
    seen, cases = set(), []
    for case in (axes() + lengths() + values() + views() + heads() + inputs() + without_lse()
                 + large()):
        if str(case) not in seen:
            seen.add(str(case))
            cases.append(case)
    return cases


def quick():
    """Under a minute: the three main head dims, each view, kind and a few lengths once."""
    cases = []
    for d in (64, 128, 256):
        for mask in MASKS:
            for sq, sk in ((1, 1), (64, 64), (129, 127), (300, 777), (777, 300), (1024, 1024)):
                cases.append(Case(d, d, "bf16", mask, "bshd", 2, 4, 2, sq, sk))
        cases.append(Case(d, d, "fp16", "causal", "bhsd", 2, 4, 2, 333, 333))
    cases += [Case(128, 128, "bf16", "none", v, 3, 4, 2 if v != "packed" else 4, 193, 193)
              for v in VIEWS]
    cases += [Case(128, 128, "bf16", m, "bshd", 1, 2, 2, 300, 1400, k)
              for k in KINDS for m in MASKS]
    cases += [Case(192, 128, "bf16", "causal", "bshd", 2, 4, 2, 257, 300),
              Case(80, 80, "bf16", "none", "bshd", 2, 4, 2, 257, 300),
              Case(16, 16, "bf16", "causal", "bshd", 2, 4, 2, 257, 300)]
    cases += [Case(64, 64, "bf16", mask, "bshd", 8, 16, 4, sq, sk, kind, lse=False)
              for mask in MASKS
              for sq, sk, kind in ((520, 520, "normal"), (777, 300, "normal"), (300, 1400, "rise"))]
    return list(dict.fromkeys(cases))


NAME = re.compile(r"(?P<family>[a-z][a-z0-9_]*?)_d(?P<d>\d+)(?:_v(?P<v>\d+))?"
                  r"_(?P<dtype>bf16|fp16|e4m3|e5m2)"
                  r"_(?P<mask>[a-z]\w*?)(?P<knobs>_m\d+n\d+(?:_[a-z0-9]+)*)")


def parse(name):
    """A candidate's name: (family or variant, d, dv, dtype, mask, the knobs' words)."""
    m = NAME.fullmatch(name)
    if not m:
        raise ValueError(f"{name}: not a candidate's name")
    d = int(m["d"])
    return (m["family"], d, int(m["v"] or d), m["dtype"], m["mask"], m["knobs"][1:].split("_"))


def cover(names):
    """A few of one problem's candidates that hold every knob's every value at least once: the
    first name, then always the one that adds most (the earliest of equals)."""
    names = list(names)
    left = {word for name in names for word in parse(name)[5]}
    chosen = []
    while left:
        best = names[0] if not chosen else max(names, key=lambda n: len(left & set(parse(n)[5])))
        chosen.append(best)
        left -= set(parse(best)[5])
    return chosen


def forced(name):
    """The cases that a forced candidate must pass: cut tiles, grouped heads, dead rows, and the
    inputs that move the running maximum."""
    family, d, dv, dtype, mask, knobs = parse(name)
    base = Case(d, dv, dtype, mask, kernel=name, variant="" if family == "fwd" else family,
                lse="ones" not in knobs)
    return [replace(base, heads=4, sq=333, sk=777),
            replace(base, sq=1000, sk=1000, view="pad_all"),
            replace(base, batch=1, sq=700, sk=130, view="bhsd"),
            replace(base, batch=1, sq=1, sk=64),
            replace(base, batch=8, heads=16, kv_heads=4, sq=520, sk=520)] + [
            replace(base, batch=1, sq=300, sk=1400, kind=kind)
            for kind in ("rise", "grow", "step", "outlier", "negative", "late")]


if __name__ == "__main__":
    for case in table():
        print(case)
