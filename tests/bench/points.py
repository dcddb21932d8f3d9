# points.py - the problems of the bench: 36 points of the peers' table, 24 shapes from a seed.
# SPDX-License-Identifier: BSD-3-Clause
import json
import os
import random
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
SEED = 20261130
DRAWN = 24

# What shapes are drawn from: head dims (the common ones oftener), (heads, kv_heads).
DIMS = ((64, 64),) * 4 + ((128, 128),) * 6 + ((256, 256),) * 2 + (
    (80, 80), (96, 96), (72, 72), (112, 112), (160, 160), (192, 128), (192, 128))
HEADS = ((8, 8), (12, 12), (16, 16), (32, 32), (40, 40), (32, 8), (64, 8), (40, 8), (28, 4),
         (24, 3), (16, 1), (71, 1))
FLOPS = (5e10, 4e12)  # of one call: long enough to time, short enough to repeat
BYTES = 4e9


@dataclass(frozen=True)
class Point:
    d: int
    dv: int
    dtype: str
    mask: str
    batch: int
    heads: int
    kv_heads: int
    sq: int
    sk: int

    @property
    def problem(self):
        words = [f"head_dim={self.d}"]
        words += [f"head_dim_v={self.dv}"] if self.dv != self.d else []
        words += [f"dtype={self.dtype}", f"mask={self.mask}", "layout=bshd",
                  f"batch={self.batch}", f"heads={self.heads}"]
        words += [f"kv_heads={self.kv_heads}"] if self.kv_heads != self.heads else []
        words += [f"seq_q={self.sq}"]
        words += [f"seq_k={self.sk}"] if self.sk != self.sq else []
        return " ".join([*words, "lse=no"])

    @property
    def flops(self):
        """As the papers count: two products over all pairs, half of them under a causal mask."""
        pairs = self.sq * self.sk / (2 if self.mask == "causal" else 1)
        return 2 * pairs * (self.d + self.dv) * self.heads * self.batch

    @property
    def bytes(self):
        rows_q, rows_k = self.sq * self.heads, self.sk * self.kv_heads
        return 2 * self.batch * (rows_q + rows_k) * (self.d + self.dv)


def parse(problem):
    """A problem's words, as in `Point.problem`, back to the point, whatever they say of LSE."""
    w = dict(word.split("=") for word in problem.split())
    d, heads, sq = int(w["head_dim"]), int(w.get("heads", 1)), int(w["seq_q"])
    return Point(d, int(w.get("head_dim_v", d)), w["dtype"], w["mask"],
                 int(w.get("batch", 1)), heads, int(w.get("kv_heads", heads)), sq,
                 int(w.get("seq_k", sq)))


def peers():
    with open(os.path.join(HERE, "peers_h200.json")) as f:
        return json.load(f)


def table():
    """{point: its row of the peers' table}, in the table's order."""
    return {Point(r["head_dim"], r["head_dim"], "bf16", r["mask"], r["batch"], r["heads"],
                  r["heads"], r["seq"], r["seq"]): r for r in peers()["rows"]}


def drawn(seed=SEED, count=DRAWN):
    """Mixed batches, heads, lengths, head dims and masks. Causal shapes are square, because
    PyTorch aligns the mask of others differently."""
    r, points = random.Random(seed), []
    while len(points) < count:
        d, dv = DIMS[r.randrange(len(DIMS))]
        heads, kv_heads = HEADS[r.randrange(len(HEADS))]
        mask = ("none", "causal")[r.randrange(2)]
        dtype = ("bf16", "bf16", "bf16", "fp16")[r.randrange(4)]
        sq = int(2 ** r.uniform(7.5, 14))
        sk = int(2 ** r.uniform(7.5, 14)) if mask == "none" and r.randrange(2) else sq
        p = Point(d, dv, dtype, mask, 1 << r.randrange(6), heads, kv_heads, sq, sk)
        if FLOPS[0] <= p.flops <= FLOPS[1] and p.bytes <= BYTES and p not in points:
            points.append(p)
    return points


def fa3_us(point, cudnn_us):
    """FA3's time by the table's ratio to cuDNN, from a cuDNN time of one's own; None elsewhere."""
    row = table().get(point)
    return cudnn_us / row["fa3_over_cudnn"] if row and cudnn_us else None


def ratios(row):
    """(cuDNN's time over ours, FA3's, whether FA3's was measured); None where there is none."""
    ours, peer = row["ours_us"], row["peers"]
    cudnn, fa3 = peer.get("cudnn_us"), peer.get("fa3_us")
    measured = fa3 is not None
    fa3 = fa3 if measured else fa3_us(parse(row["problem"]), cudnn)
    return (cudnn / ours if cudnn else None), (fa3 / ours if fa3 else None), measured
