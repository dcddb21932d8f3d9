"""golden_cases.py - the golden micro-kernels' launches: inputs, and how results are compared.

Both sides, GPU and simulator, make the same inputs with a counter-based generator.
SPDX-License-Identifier: BSD-3-Clause"""
import math
import struct

# ---- inputs ----

MASK = (1 << 64) - 1


def words(seed, n):
    """n numbers of 64 bits: splitmix64 of a counter."""
    out = []
    for i in range(n):
        z = (seed * 0x9E3779B97F4A7C15 + (i + 1) * 0x9E3779B97F4A7C15) & MASK
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        out.append(z ^ z >> 31)
    return out


# Codes of 0, 1, -1 and 2: sums of their products are exact in any order.
SMALL = {"bf16": (0, 0x3F80, 0xBF80, 0x4000), "f16": (0, 0x3C00, 0xBC00, 0x4000),
         "e4m3": (0, 0x38, 0xB8, 0x40), "e5m2": (0, 0x3C, 0xBC, 0x40)}
# Bits of any number that may be set, and what is added: exponents of 16 or more values, subnormals.
WIDE = {"bf16": (0x8FFF, 111 << 7), "f16": (0xBFFF, 0), "e4m3": (0xBF, 0), "e5m2": (0xBF, 0)}
# bits of the mantissa, and the exponent field of 2^-3
ANY = {"bf16": (7, 124, 15), "f16": (10, 12, 15), "e4m3": (3, 4, 7), "e5m2": (2, 12, 7)}


def numbers(kind, size, seed, exact=True):
    """`size` bytes of elements of a type: small integers (exact), any of 1/8 to 2 (not exact), or
    of many exponents (exact is None); of both signs."""
    width = 2 if kind in ("bf16", "f16") else 1
    out = []
    for w in words(seed, size // width // 4):
        for i in range(4):
            r = w >> 16 * i & 0xFFFF
            if exact:
                out.append(SMALL[kind][r & 3])
            elif exact is None:
                out.append((r & WIDE[kind][0]) + WIDE[kind][1])
            else:
                mantissa, field, sign = ANY[kind]
                code = (r >> 15) << sign | (field + (r >> 12 & 3)) << mantissa
                out.append(code | r & (1 << mantissa) - 1)
    return struct.pack("<%d%s" % (len(out), "H" if width == 2 else "B"), *out)


def pattern(size, width):
    """Elements that tell their place: 1, 2, 3 … in width bytes (bytes: modulo 251)."""
    place = (lambda i: i % 251) if width == 1 else lambda i: i
    return b"".join(place(i).to_bytes(width, "little") for i in range(1, size // width + 1))


# ---- cases: a kernel compiled with options, and launches of it ----

CASES = []


class Case:
    def __init__(self, name, source, options=(), compare=None, pack=None, faults=None):
        self.name, self.source, self.options = name, source, list(options)
        self.compare, self.pack, self.faults = compare, pack, faults
        self.launches, self.encodings = [], []
        CASES.append(self)

    def launch(self, args, block=128, grid=1, shared=0, cluster=1):
        """args: ("in", bytes), ("out", size), ("inout", bytes), ("i", int32), ("u4", uint32),
        ("u", uint64), or ("map", type, …, fill, bytes or None: the tensor is the inout)."""
        self.launches.append((args, block, grid, shared, cluster))


def wgmma(name, n, types, k=16, registers=False, trans=(0, 0), half=False, scale=1,
          exact=True):
    """A form of wgmma; the result adds launches of it."""
    r = n // (4 if half else 2)
    out = ", ".join('"+%s"(d[%d])' % ("r" if half else "f", i) for i in range(r))
    ins = '"l"(da), "l"(db), "r"(add), "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w)'
    a = "{%%%d, %%%d, %%%d, %%%d}" % tuple(range(r + 3, r + 7)) if registers else "%%%d" % r
    tail = ", %d, 1" % scale
    if k == 16:
        tail += ", %d" % trans[1] if registers else ", %d, %d" % trans
    form = "m64n%dk%d.%s.%s.%s" % (n, k, "f16" if half else "f32", *types)
    d = ", ".join("%%%d" % i for i in range(r))
    mma = ("{ .reg .pred p; setp.ne.b32 p, %%%d, 0;" % (r + 2)
           + " wgmma.mma_async.sync.aligned.%s {%s}, %s, %%%d, p%s; }" % (form, d, a, r + 1, tail))
    first = "(i) % 3 ? 0x3c00bc00 : 0x4000c000" if half else "(float)((i) % 7) - 3"
    if exact is None:
        first = "(i) * 2654435769u & 0x%x" % (0xBFFFBFFF if half else 0x87FFFFFF)
        first = first if half else "__uint_as_float((%s) + 0x38000000) + 0.0f" % first
    options = ["-DD=%s" % ("unsigned" if half else "float"), "-DR=%d" % r, "-DMMA=\"%s\"" % mma,
               "-DOUTS=%s" % out, "-DINS=%s" % ins, "-DSTART(i)=(%s)" % first,
               "-DCONSTRAINT=\"%s\"" % ("r" if half else "f")]
    case = Case("wgmma_" + name, "wgmma.cu", options)
    image = numbers(types[0], 32768, n, exact) + numbers(types[1], 32768, n + 1000, exact)
    regs = numbers(types[0], 2048, n + 2000, exact)

    def add(swizzle=128, leading=16, stride=1024, a=0, b=0, base=0, scale_d=1):
        """One launch; a, b: where the operands begin, from 0 and from 32768."""
        mode = {0: 0, 128: 1, 64: 2, 32: 3}[swizzle]
        fields = leading >> 4 << 16 | stride >> 4 << 32 | base << 49 | mode << 62
        case.launch([("in", image), ("in", regs), ("out", r * 512), ("u", fields | a >> 4),
                     ("u", fields | 32768 + b >> 4), ("i", scale_d)], shared=65536)

    return add


def wgmma_cases():
    add = wgmma("bf16_ss", 64, ("bf16", "bf16"))
    for width in (32, 64, 128):
        add(width, stride=8 * width)
        add(width, stride=16 * width, scale_d=0)
    add(0, 128, 256)
    add(0, 2064, 400)
    for step in (32, 64, 96):  # along k inside the span
        add(a=step, b=step)
    add(64, stride=512, a=32, b=32)
    add = wgmma("bf16_ss_moved", 64, ("bf16", "bf16"))  # by whole rows of the pattern
    add(a=384, b=640)
    add(a=384, b=384, base=3)
    add(64, stride=512, a=128, b=384, base=1)
    add = wgmma("bf16_ss_mn", 64, ("bf16", "bf16"), trans=(1, 1))
    for width in (32, 64, 128):
        add(width, 16 * width, 8 * width)
        add(width, 24 * width, 48 * width)
    add(0, 4096, 128)
    add(0, 144, 1040)
    add(a=2048, b=2048)
    wgmma("bf16_ss_b_mn", 128, ("bf16", "bf16"), trans=(0, 1))(leading=8192)
    wgmma("f16_ss_a_mn", 64, ("f16", "f16"), trans=(1, 0))(leading=8192)
    wgmma("f16_ss_f16", 64, ("f16", "f16"), half=True)()
    wgmma("bf16_ss_minus", 8, ("bf16", "bf16"), scale=-1)()
    for n in (8, 24, 80, 128, 192, 256):
        wgmma("bf16_ss_n%d" % n, n, ("bf16", "bf16"))()
    wgmma("bf16_rs", 64, ("bf16", "bf16"), registers=True)(64, stride=512)
    wgmma("bf16_rs_mn", 256, ("bf16", "bf16"), registers=True, trans=(0, 1))(leading=4096)
    wgmma("f16_rs_mn", 96, ("f16", "f16"), registers=True, trans=(0, 1))(leading=4096)
    wgmma("f16_rs", 8, ("f16", "f16"), registers=True)()
    add = wgmma("e4m3_ss", 64, ("e4m3", "e4m3"), k=32)
    for width in (32, 64, 128):
        add(width, stride=8 * width)
    add(0, 128, 256)
    add(a=96, b=32)
    wgmma("e5m2_ss", 32, ("e5m2", "e4m3"), k=32)(scale_d=0)
    wgmma("e4m3_rs", 128, ("e4m3", "e5m2"), k=32, registers=True)()
    wgmma("f16_rs_f16", 40, ("f16", "f16"), registers=True, half=True)()
    wgmma("e5m2_e4m3_f16", 24, ("e5m2", "e4m3"), k=32, half=True)()
    wgmma("e5m2_rs", 16, ("e5m2", "e5m2"), k=32, registers=True)(64, stride=512)
    wgmma("f16_ss_b_mn", 128, ("f16", "f16"), trans=(0, 1))(leading=8192)
    for n, kind, k in ((16, "f16", 16), (160, "f16", 16), (256, "f16", 16), (8, "e4m3", 32),
                       (136, "e4m3", 32), (256, "e4m3", 32), (8, "e5m2", 32), (248, "e5m2", 32)):
        wgmma("%s_ss_n%d" % (kind, n), n, (kind, kind), k=k)()
    for kind, k in (("bf16", 16), ("f16", 16), ("e4m3", 32), ("e5m2", 32)):
        add = wgmma(kind + "_any", 16, (kind, kind), k=k, exact=False)
        add()
        add(scale_d=0)
        wgmma(kind + "_wide", 16, (kind, kind), k=k, exact=None)()
    for kind, k in (("f16", 16), ("e4m3", 32)):
        wgmma(kind + "_f16_wide", 16, (kind, kind), k=k, half=True, exact=None)()


UINT8, UINT16, UINT32, INT32, UINT64, INT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16 = range(10)
FLOAT32_FTZ, TFLOAT32, TFLOAT32_FTZ = 10, 11, 12
WIDTH = (1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4)


def strides_of(dims, width):
    """Of a dense tensor, rows padded to 16 bytes."""
    out, stride = [], -(-dims[0] * width // 16) * 16
    for d in dims[1:]:
        out.append(stride)
        stride *= d
    return out, stride


def tma_load(dims, box, at, kind=UINT16, swizzle=0, steps=None, fill=0, name="", tensor=None,
             options=(), faults=None):
    rank, width = len(dims), WIDTH[kind]
    strides, size = strides_of(dims, width)
    steps = steps or [1] * rank
    bytes_ = width
    for i in range(rank):
        bytes_ *= box[i] if i == 0 else -(-box[i] // steps[i])
    room = max(bytes_, bytes_ // (box[0] * width) * (16 << swizzle)) + 127 & ~127
    key = "tma_load_%dd%s" % (rank, name)
    case = next((c for c in CASES if c.name == key), None)
    if not case:
        coordinates = "{%s}" % ", ".join("%%%d" % (3 + i) for i in range(rank))
        case = Case(key, "tma_load.cu", ["-DRANK=\"%d\"" % rank, "-DCOORDS=\"%s\"" % coordinates]
                    + list(options), faults=faults)
    tensor = tensor(size) if tensor else pattern(size, width)
    case.launch([("map", kind, dims, strides, box, steps, swizzle, fill, tensor)]
                + [("i", c) for c in (list(at) + [0] * 5)[:5]]
                + [("u4", bytes_), ("u4", room), ("out", room + 4)], shared=1024 + room)


def any_floats(size):
    """Of every magnitude, subnormal ones and NaNs too."""
    n = size // 4
    return struct.pack("<%dI" % n, *(SPECIAL + floats(6, n, -127, 128))[:n])


def tma_load_cases():
    tma_load([100], [64], [0])
    tma_load([100], [64], [72])
    tma_load([100], [64], [-8])
    tma_load([20], [64], [-8])  # outside on both sides
    tma_load([100], [32], [-40])
    tma_load([203], [32], [192], UINT8)
    tma_load([31], [2], [30], FLOAT64)
    for swizzle in range(4):
        inner = 8 << swizzle if swizzle else 24
        tma_load([100, 40], [inner, 16], [8, 3], swizzle=swizzle)
        tma_load([70, 40], [inner, 16], [48, 30], swizzle=swizzle)  # outside: right, below
        tma_load([70, 40], [inner, 16], [-8, -5], swizzle=swizzle)  # left, above
        tma_load([5, 6], [inner, 16], [-8 if inner > 8 else 0, -5], swizzle=swizzle)  # all around
    for swizzle in (1, 2, 3):
        tma_load([100, 40], [8, 16], [8, 3], swizzle=swizzle, name="_narrow")  # than the span
    tma_load([100, 40], [48, 12], [8, 3], swizzle=3, name="_narrow")
    tma_load([70, 40], [24, 12], [-16, 33], swizzle=2, name="_narrow")
    tma_load([70, 40, 3], [24, 5, 2], [56, -2, -1], swizzle=3, steps=[1, 2, 1], name="_narrow")
    tma_load([100, 40], [16, 8], [0, 60], swizzle=1)  # all outside
    tma_load([100, 40], [16, 13], [0, -1], steps=[1, 2])
    tma_load([100, 40], [16, 16], [8, 20], steps=[1, 8], swizzle=1)
    tma_load([100, 40], [16, 16], [-8, -20], steps=[3, 7])
    for kind in (FLOAT16, BFLOAT16, FLOAT32):
        tma_load([12, 6], [8, 4], [8, 4], kind, fill=1)
    tma_load([11, 6], [8, 4], [10, -2], FLOAT64, fill=1, name="_f64")
    tma_load([11, 6], [8, 4], [-6, 3], FLOAT64, name="_f64")
    tma_load([12, 6], [8, 4], [-4, 4], INT32)
    tma_load([6, 6], [8, 4], [-4, 4], UINT64)
    for kind, name in ((FLOAT32, "_f32"), (FLOAT32_FTZ, "_ftz"), (TFLOAT32, "_tf32"),
                       (TFLOAT32_FTZ, "_tf32_ftz")):
        tma_load([32, 32], [32, 32], [0, 0], kind, name=name, tensor=any_floats)
        tma_load([11, 6], [8, 4], [8, 4], kind, fill=1, name=name, tensor=any_floats)
    tma_load([40, 9, 5], [32, 4, 3], [16, 7, -1], swizzle=2)
    tma_load([40, 9, 5], [16, 4, 5], [0, 6, 3], steps=[1, 3, 2])
    tma_load([64, 20, 3, 2], [64, 8, 1, 1], [0, 16, 2, 1], swizzle=3)
    tma_load([64, 20, 3, 2], [32, 4, 2, 2], [48, -2, 2, 1], swizzle=2)
    tma_load([24, 5, 4, 3, 2], [16, 2, 2, 2, 2], [-8, 4, -1, 2, 1], swizzle=1)
    tma_load([24, 5, 4, 3, 3], [8, 4, 1, 2, 3], [16, 0, 3, 0, 1], steps=[7, 2, 1, 2, 2])
    tma_load([21, 3, 3, 3, 3], [8, 2, 2, 2, 2], [16, -1, -1, 2, 2])


def bits(size, seed):
    return struct.pack("<%dQ" % (size // 8), *words(seed, size // 8))


def singles(size, seed):
    return struct.pack("<%dI" % (size // 4), *floats(seed, size // 4, -3, 6))


def tiny(size, seed):
    return struct.pack("<%dI" % (size // 4), *floats(seed, size // 4, -127, -122))


def doubles(size, seed):
    return struct.pack("<%dd" % (size // 8), *((w >> 20) / 2.0**40 - 8
                                               for w in words(seed, size // 8)))


def halves(size, seed):
    return numbers("f16", size, seed, False)


def bfloats(size, seed):
    return numbers("bf16", size, seed, False)


def tma_store(name, copy, kind, make=None, dims=(22, 12), boxes=None):
    """The tensor's rows end inside 16 bytes; boxes lie inside and on its ends. boxes: swizzle,
    steps, coordinates, and 16-byte units in a row."""
    unit, rank = 16 // WIDTH[kind], len(dims)
    strides, size = strides_of(dims, WIDTH[kind])
    data = make(2048, 7) if make else pattern(2048, WIDTH[kind])
    tensor = make(size, 8) if make else b"\x11\0" * (size // 2)
    coordinates = "{%s}" % ", ".join("%%%d" % (3 + i) for i in range(rank))
    case = Case("tma_" + name, "tma_store.cu",
                ["-DCOPY=\"%s\"" % (copy % rank), "-DCOORDS=\"%s\"" % coordinates])
    for swizzle, step, at, units in boxes or (
            (0, 1, (0, 0), 1), (1, 1, (1, 3), 2), (2, 1, (1, 7), 4), (3, 1, (1, 9), 8),
            (1, 2, (2, 4), 2), (0, 1, (22 // unit, 2), 3), (2, 1, (1, 1), 1), (3, 3, (0, 2), 5)):
        box = [unit * units, 8, 1, 1, 1][:rank]
        case.launch([("map", kind, dims, strides, box, [1, step, 1, 1, 1][:rank], swizzle, 0, None),
                     ("i", at[0] * unit)] + [("i", c) for c in (at[1:] + (0, 0, 0))[:4]]
                    + [("u4", 2048), ("in", data), ("inout", tensor)], shared=2048)
    return case


STORE = "cp.async.bulk.tensor.%dd.global.shared::cta.tile.bulk_group"
ADD = "cp.reduce.async.bulk.tensor.%dd.global.shared::cta.add.tile.bulk_group"


def tma_store_cases():
    tma_store("store", STORE, UINT16)
    tma_store("store_u8", STORE, UINT8)
    tma_store("store_4d", STORE, BFLOAT16, None, (20, 12, 3, 2),
              ((3, 1, (0, 8, 2, 1), 8), (2, 1, (1, 10, 0, 1), 2), (3, 1, (0, 0, 3, 0), 8)))
    for op, name, kind, make in (
            ("add", "u32", UINT32, bits), ("add", "u64", UINT64, bits),
            ("add", "f32", FLOAT32, singles), ("add", "tiny", FLOAT32, tiny),
            ("add", "ftz", FLOAT32_FTZ, tiny), ("add", "tf32", TFLOAT32, singles),
            ("add", "f16", FLOAT16, halves), ("add", "bf16", BFLOAT16, bfloats),
            ("add", "f64", FLOAT64, doubles), ("min", "u32", UINT32, bits),
            ("min", "s32", INT32, bits), ("max", "s64", INT64, bits),
            ("max", "bf16", BFLOAT16, bfloats), ("min", "f16", FLOAT16, halves),
            ("inc", "u32", UINT32, bits), ("dec", "u32", UINT32, bits), ("and", "s32", INT32, bits),
            ("or", "u64", UINT64, bits), ("xor", "u32", UINT32, bits)):
        tma_store(op + "_" + name, ADD.replace(".add.", ".%s." % op), kind, make)


def bulk(name, back, data, old, offset=32, size=512, faults=None):
    case = Case("bulk_" + name, "bulk.cu",
                ["-DBACK=\"cp%s.bulk_group%s\"" % back], faults=faults)
    case.launch([("in", data), ("inout", old), ("u4", offset), ("u4", size)], shared=1024)


def bulk_cases():
    copy, reduce = ".async.bulk.global.shared::cta", ".reduce.async.bulk.global.shared::cta"
    bulk("copy", (copy, ""), pattern(1024, 2), bytes(1024))
    for op, make in (("add.u32", bits), ("add.u64", bits), ("add.f32", singles), ("add.f32", tiny),
                     ("add.noftz.f16", halves), ("add.noftz.bf16", bfloats), ("min.s32", bits),
                     ("max.u64", bits), ("inc.u32", bits), ("xor.b64", bits)):
        name = op.replace(".noftz", "").replace(".", "_") + ("_tiny" if make is tiny else "")
        bulk(name, (reduce, "." + op), make(1024, 9), make(1024, 10))
    for name, offset, size, text in (("at_8", 8, 512, "both must be multiples of 16"),
                                     ("beyond", 64, 1024, "0x4c0: the block has 0x400 to 0x800")):
        bulk(name, (copy, ""), bytes(2048), bytes(2048), offset, size, text)


def multicast(name, n, masks, swizzle, width):
    """masks: of each block's copy; a box of width elements is copied by each of n blocks."""
    if not any(c.name == name for c in CASES):
        Case(name, "multicast.cu", ["-DCLUSTER=%d" % n])
    case = next(c for c in CASES if c.name == name)
    dims = [width, 8 * n]
    strides, size = strides_of(dims, 2)
    rows = (16 << swizzle) if swizzle else 2 * width
    packed = sum(m << 8 * i for i, m in enumerate(masks))
    case.launch([("map", UINT16, dims, strides, [width, 8], [1, 1], swizzle, 0, pattern(size, 2)),
                 ("u4", width * 16), ("u4", 8 * rows), ("u", packed), ("out", n * n * 8 * rows)],
                grid=n, shared=1024 + n * 8 * rows, cluster=n)


def multicast_cases():
    multicast("multicast", 2, (3, 3), 0, 32)
    multicast("multicast", 2, (3, 3), 3, 64)
    multicast("multicast", 2, (2, 1), 2, 32)  # to the other one alone
    multicast("multicast", 2, (3, 2), 3, 32)  # narrower than the span
    multicast("multicast_4", 4, (15, 15, 15, 15), 3, 64)
    multicast("multicast_4", 4, (3, 6, 12, 9), 0, 32)
    multicast("multicast_4", 4, (8, 15, 1, 5), 1, 16)


# ---- floats ----

def f32(x):
    """The nearest float's bits."""
    try:
        return struct.unpack("<I", struct.pack("<f", x))[0]
    except OverflowError:
        return 0x7F800000 if x > 0 else 0xFF800000


def floats(seed, n, low, high):
    """Signs and mantissas at random, exponents of 2^low to 2^high."""
    return [(w >> 63) << 31 | (127 + low + (w >> 32) % (high - low)) << 23 | w & 0x7FFFFF
            for w in words(seed, n)]


SPECIAL = [0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7FFFFFFF, 0x7F800001, 1,
           0x80000001, 0x007FFFFF, 0x00800000, 0x807FFFFF, 0x3F800000, 0xBF800000, 0x7F7FFFFF,
           0xFF7FFFFF]


def ordered(bits):
    """Codes of floats in the floats' order, to count ulps with."""
    return bits if bits < 1 << 31 else (1 << 31) - bits


def unpack(data, kind="I"):
    return list(struct.unpack("<%d%s" % (len(data) // 4, kind), data))


FUNCTIONS = ("ex2.ftz", "ex2", "lg2.ftz", "lg2", "rcp.ftz", "rcp", "rsqrt.ftz", "tanh")
# How many ulps the simulator may be from the GPU: both keep the ISA's bound.
ALLOWED = {"ex2": 0, "lg2": 0, "rcp": 0, "rsqrt": 3, "tanh": 8192}


def exactly(function, bits):
    """The rounded result of double arithmetic, so that files hold small differences."""
    x = struct.unpack("<f", struct.pack("<I", bits))[0]
    if ".ftz" in function and abs(x) < 2.0**-126:
        x = math.copysign(0.0, x)
    name = function.split(".")[0]
    try:
        y = {"ex2": lambda: 2.0**x, "lg2": lambda: math.log2(x), "rcp": lambda: 1 / x,
             "rsqrt": lambda: 1 / math.sqrt(x), "tanh": lambda: math.tanh(x)}[name]()
    except OverflowError:
        y = math.inf
    except (ValueError, ZeroDivisionError):
        y = math.nan if x else -math.inf if name == "lg2" else math.copysign(math.inf, x)
    if y != y:
        return 0x7FFFFFFF
    if ".ftz" in function and abs(y) < 2.0**-126:
        y = math.copysign(0.0, y)
    return f32(y)


def approx(name, functions, inputs):
    n = len(inputs)
    reference = [exactly(f, b) for f in functions for b in inputs]

    def pack(data, back=False):
        sign = 1 if back else -1
        out = [(d + sign * r) & 0xFFFFFFFF for d, r in zip(unpack(data), reference)]
        return struct.pack("<%dI" % len(out), *out)

    def compare(got, want):
        got, want = unpack(got), unpack(want)
        for j, (g, w) in enumerate(zip(got, want)):
            if g == w:
                continue
            function, x = functions[j // n], inputs[j % n]
            kind = function.split(".")[0]
            if abs(ordered(g) - ordered(w)) > ALLOWED[kind] or w & 0x7FFFFFFF >= 0x7F800000:
                return "%s of %08x is %08x, on the GPU %08x" % (function, x, g, w)
        return None

    calls = " ".join("CALL(\"%s\")" % f.replace(".ftz", ".approx.ftz.f32") if ".ftz" in f
                     else "CALL(\"%s.approx.f32\")" % f for f in functions)
    case = Case(name, "approx.cu", ["-DCALLS=" + calls], compare=compare, pack=pack)
    case.launch([("in", struct.pack("<%dI" % n, *inputs)), ("out", n * 4 * len(functions)),
                 ("i", n)], 128, n // 128)


def approx_cases():
    inputs = SPECIAL + floats(1, 1024, -30, 0) + floats(2, 2048, 0, 8) + floats(3, 512, -126, 127)
    inputs += [0x3F800000 + i for i in range(-32, 32)] + [f32(float(i)) for i in range(-160, 135)]
    inputs += [f32(-126 - i / 16.0) for i in range(100)]
    inputs += [0x3F000000] * (4096 - len(inputs))
    approx("approx", FUNCTIONS, inputs)
    # every fraction of 15 bits after each of these integers; the smallest ones; all mantissas of 13
    inputs = [f32(n + i / 32768.0) for n in (0, -1, 1, -3, -12, -125) for i in range(32768)]
    inputs += [b | sign for b in range(0x32800000, 0x3F800000, 0x10001) for sign in (0, 1 << 31)]
    approx("ex2_dense", FUNCTIONS[:1], inputs[:len(inputs) & ~127])
    inputs = [e + i * 1024 + i % 1024 for e in (0x3F000000, 0x3F800000, 0x41000000)
              for i in range(8192)]
    approx("lg2_dense", ("lg2.ftz",), inputs)
    approx("rcp_dense", ("rcp.ftz",), inputs)


def cvt_case():
    inputs = list(SPECIAL)
    for code in (0x43E00000, 0x43E80000, 0x43E7FFFF, 0x47600000, 0x477FE000, 0x477FEFFF, 0x477FF000,
                 0x47680000, 0x33000000, 0x33000001, 0x33800000, 0x3A800000, 0x3A800001, 0x3B000000,
                 0x37000000, 0x37000001, 0x3F808000, 0x3F818000, 0x3F801000, 0x3F803000, 0x3F880000,
                 0x3F980000, 0x3FA00000, 0x3FE00000):
        inputs += [code, code ^ 1 << 31]
    inputs += floats(4, 600, -28, 17)
    inputs += floats(5, 1024 - len(inputs), -126, 127)
    data = struct.pack("<1024I", *inputs)
    Case("cvt", "cvt.cu").launch([("in", data), ("out", 512 * 40)], 128, 4)
    Case("cvt_more", "cvt_more.cu").launch([("in", data), ("out", 512 * 160)], 128, 4)


def warp_cases():
    size = (6 * 4 + 6 * 8) * 128
    Case("matrix", "matrix.cu").launch([("in", pattern(2048, 2)), ("out", size)], 32)
    Case("mbarrier", "mbarrier.cu").launch([("out", 256)], 32)
    data = b"".join(numbers(kind, 1024, i) for i, kind in enumerate(("bf16", "f16", "e4m3")))
    Case("mma", "mma.cu").launch([("in", data), ("out", 26 * 128)], 32)


# ---- what a GPU refuses, and what its driver does ----

def fault_cases():
    """Launches that end in an error on a GPU; faults: what the simulator says of each."""
    at = "not a multiple of 16 bytes"
    for c in (1, 2, 4, 7):
        tma_load([100, 40], [16, 8], [c, 0], name="_at_%d" % c, faults=at)
    tma_load([100], [64], [-3], name="_at_3", faults=at)
    tma_load([100, 40], [64, 8], [4, 0], swizzle=3, name="_swizzled_at_4", faults=at)
    tma_load([100, 40], [4, 8], [2, 0], FLOAT32, name="_f32_at_2", faults=at)
    tma_load([100, 40], [4, 8], [1, 0], FLOAT64, name="_f64_at_1", faults=at)
    for box in (960, 1008):
        tma_load([100, 40], [16, 8], [8, 0], name="_at_%d" % (1024 - box),
                 options=["-DBOX=%d" % box], faults="is not a multiple of 128")
    tma_load([100, 40], [64, 8], [8, 0], swizzle=3, name="_swizzled_at_64", options=["-DBOX=960"],
             faults="is not a multiple of 128")
    tma_load([100, 40], [16, 8], [8, 0], name="_beyond", options=["-DBOX=1152"],
             faults="256 bytes at shared address 0x880: the block has 0x400 to 0x900")
    tma_load([100, 40, 3], [16, 8, 1], [8, 0, 0], name="_2d",
             options=["-URANK", "-UCOORDS", "-DRANK=\"2\"", "-DCOORDS=\"{%3, %4}\""],
             faults="has 3 dimensions, the instruction 2")
    tma_load([100, 40], [16, 8], [8, 0], name="_map_moved", options=["-DMOVED=16"],
             faults="is not a multiple of 64")
    negative, none = "begins inside the tensor", "have no such reduction"
    for name, copy, kind, c, text in (
            ("store_at_3", STORE, UINT16, (3, 0), at), ("add_at_1", ADD, FLOAT32, (1, 0), at),
            ("store_left", STORE, UINT16, (-8, 0), negative),
            ("store_above", STORE, UINT16, (0, -1), negative),
            ("add_left", ADD, FLOAT32, (-4, 0), negative), ("add_s64", ADD, INT64, (0, 0), none),
            ("add_u16", ADD, UINT16, (0, 0), none), ("min_f32", ADD, FLOAT32, (0, 0), none),
            ("inc_s32", ADD, INT32, (0, 0), none), ("and_f32", ADD, FLOAT32, (0, 0), none)):
        copy = copy.replace(".add.", ".%s." % name[:3]) % 2
        case = Case("tma_" + name, "tma_store.cu",
                    ["-DCOPY=\"%s\"" % copy, "-DCOORDS=\"{%3, %4}\""], faults=text)
        case.launch([("map", kind, [32, 12], [32 * WIDTH[kind]], [16 // WIDTH[kind], 8], [1, 1], 0,
                      0, None), ("i", c[0]), ("i", c[1]), ("i", 0), ("i", 0), ("i", 0),
                     ("u4", 1024), ("in", bytes(1024)), ("inout", bytes(384 * WIDTH[kind]))],
                    shared=1024)
    for name, swizzle, masks, text in (("beyond", 3, 0x303, "0xa00: the block has 0x400 to 0xc00"),
                                       ("mask", 0, 0x707, "the cluster has 2 blocks")):
        case = Case("multicast_" + name, "multicast.cu", ["-DCLUSTER=2"], faults=text)
        case.launch([("map", UINT16, [32, 16], [64], [32, 8], [1, 1], swizzle, 0, bytes(1024)),
                     ("u4", 512), ("u4", 512), ("u", masks), ("out", 2048)], grid=2, shared=2048,
                    cluster=2)


def encode_case():
    """Arguments of cuTensorMapEncodeTiled, and whether the driver takes them."""
    choices = [(("type",), tuple(range(13)) + (-1, 99)), (("rank",), range(7)),
               (("address",), (0, 8, 16, 32, 64)),
               (("dims", 0, 1, 2, 3, 4), (0, 1, 7, 1 << 31, 1 << 32, (1 << 32) + 1)),
               (("strides", 0, 1, 2, 3), (0, 8, 16, 24, 32, 1 << 20, (1 << 40) - 16, 1 << 40)),
               (("box", 0, 1, 2, 3, 4), (0, 1, 2, 4, 8, 15, 16, 32, 64, 128, 255, 256, 257)),
               (("steps", 0, 1, 2, 3, 4), (0, 1, 2, 7, 8, 9)),
               (("swizzle",), (0, 1, 2, 3)), (("promotion",), (0, 1, 2, 3, 4)),
               (("fill",), (0, 1, 2))]
    dice = iter(words(77, 20000))
    case = Case("encode", None)
    for _ in range(1500):
        a = {"type": next(dice) % 10, "rank": 1 + next(dice) % 5, "address": 0,
             "dims": [64, 32, 8, 4, 2], "strides": [1 << 10, 1 << 15, 1 << 18, 1 << 20],
             "box": [16 // WIDTH[0], 8, 2, 1, 1], "steps": [1] * 5, "swizzle": next(dice) % 4,
             "promotion": 0, "fill": 0}
        for _ in range(1 + next(dice) % 2):
            name, values = choices[next(dice) % len(choices)]
            value = values[next(dice) % len(values)]
            if len(name) > 1:
                a[name[0]][name[1 + next(dice) % (len(name) - 1)]] = value
            else:
                a[name[0]] = value
        case.encodings.append(a)
    for _ in range(400):  # how large a box may be
        kind, swizzle = (0, 1, 2, 8)[next(dice) % 4], next(dice) % 4
        units = 1 + next(dice) % (1 << swizzle if swizzle else 16)
        left = 240000 // (units * 16)
        box = [16 // WIDTH[kind] * units, 1, 1, 1, 1]
        for i in range(1, 4):
            box[i] = 1 + next(dice) % min(left, 256)
            left = max(1, left // box[i])
        box[4] = min(256, left + next(dice) % 3)
        case.encodings.append({
            "type": kind, "rank": 5, "address": 0, "dims": [4096] * 5,
            "strides": [1 << 16, 1 << 20, 1 << 24, 1 << 28], "box": box,
            "steps": [1, 1, 1 + next(dice) % 8 // 7, 1, 1], "swizzle": swizzle, "promotion": 0,
            "fill": 0})


wgmma_cases()
tma_load_cases()
tma_store_cases()
bulk_cases()
multicast_cases()
warp_cases()
cvt_case()
approx_cases()
fault_cases()
encode_case()
