"""test_masks.py - masks: the C of keep and of its analysis; scores: their derivatives.
Random formulas are also valid Python, whose whole numbers, // and % are the language's.
SPDX-License-Identifier: BSD-3-Clause
"""
import math
import os
import random
import re
import subprocess
import tempfile

# Ready masks and ones of that kind.
READY = [
    ("bottom", "col <= row", {}),
    ("topleft", "col <= row - seq_k + seq_q", {}),
    ("window", "col >= row - left and col <= row + right", {"left": (0, 30), "right": (0, 12)}),
    ("chunk", "row // size == col // size and col <= row", {"size": (1, 20)}),
    ("prefix", "col < prefix or col <= row", {"prefix": (0, 40)}),
    ("sink", "col <= row and (col < sink or row - col <= left)", {"sink": (0, 9), "left": (0, 20)}),
    ("dilated", "row - col >= 0 and row - col <= reach and (row - col) % step == 0",
     {"reach": (0, 30), "step": (1, 7)}),
    ("globals", "abs(row - col) <= reach or col < count or row < count",
     {"reach": (0, 12), "count": (0, 6)}),
    ("blocks", "(row // 8 - col // 8) % 2 == 0", {}),
]


def select(c, a, b):
    return a if c else b


def floats(text):
    """A score's text as Python that counts in float64."""
    return eval("lambda s, row, col, head, heads, a, b: " + text, {  # noqa: S307
        "select": select, "tanh": math.tanh, "exp2": lambda x: 2.0 ** x, "log2": math.log2,
        "sigmoid": lambda x: 1 / (1 + math.exp(-x)), "min": min, "max": max, "abs": abs})


def keeps(text, names):
    return eval(f"lambda row, col, {', '.join(names)}: " + text,  # noqa: S307
                {"min": min, "max": max, "abs": abs, "select": select})


# ---- random formulas ----

def scalar(r):
    return r.choice(["a", "b", "seq_k", "head", str(r.randrange(0, 12)), "a - b", "2 * a"])


def linear(r):
    return r.choice(["row", "col", "row - col", "col - row", "row - col", "row + col", "2 * col",
                     "row - 2 * col", "col + b", "row - a"])


def whole(r, depth):
    kind = r.randrange(10)
    if depth == 0 or kind < 5:
        return linear(r)
    if kind < 7:
        return f"({linear(r)}) {r.choice(['//', '%'])} {r.choice(['2', '3', '8', 'c', '5'])}"
    if kind == 7:
        return f"abs({linear(r)})"
    if kind == 8:
        return f"{r.choice(['min', 'max'])}({whole(r, depth - 1)}, {scalar(r)})"
    return f"select({condition(r, 0)}, {whole(r, depth - 1)}, {linear(r)})"


def condition(r, depth):
    kind = r.randrange(10)
    if depth == 0 or kind < 4:
        op = r.choice(["<", "<=", ">", ">=", "<=", ">=", "==", "!="])
        return f"{whole(r, 1)} {op} {r.choice([scalar(r), scalar(r), linear(r)])}"
    if kind < 7:
        return f"({condition(r, depth - 1)} and {condition(r, depth - 1)})"
    if kind < 9:
        return f"({condition(r, depth - 1)} or {condition(r, depth - 1)})"
    return f"not ({condition(r, depth - 1)})"


def random_masks(r, count):
    masks = []
    while len(masks) < count:
        text = condition(r, r.randrange(1, 4))
        if len(text) <= 300:
            masks.append((f"m{len(masks)}", text, {"a": (0, 40), "b": (0, 40), "c": (1, 9)}))
    return masks


# ---- tiles ----

def spec_text(masks):
    lines = ["extends: fwd", "name: mine", "masks:"]
    for name, keep, params in masks:
        given = ", ".join(f"{k}: {{default: {low}, from: {low}}}"
                          for k, (low, _) in params.items())
        more = f", params: {{{given}}}" if given else ""
        lines.append(f"  x{name}: {{keep: '{keep}'{more}}}")
    return "\n".join(lines) + "\n"


def brute(keep, n, tile_m, tile_n):
    """A line of ".", "#" and "/" for each row tile; rows stand at the right end of the columns."""
    seq_q, seq_k = n["seq_q"], n["seq_k"]
    more = {k: v for k, v in n.items() if k not in ("seq_q",)}
    lines = []
    for i in range(0, seq_q, tile_m):
        line = ""
        rows = range(i + seq_k - seq_q, min(i + tile_m, seq_q) + seq_k - seq_q)
        for j in range(0, seq_k, tile_n):
            kept = [keep(row, col, seq_q=seq_q, **more)
                    for row in rows for col in range(j, min(j + tile_n, seq_k))]
            line += "#" if all(kept) else "/" if any(kept) else "."
        lines.append(line)
    return lines


def sizes(r, params):
    n = {"seq_q": r.randrange(1, 40), "seq_k": r.randrange(1, 48), "head": r.randrange(0, 4)}
    if r.randrange(3) == 0:
        n["seq_q"] = n["seq_k"]
    n.update({k: r.randrange(low, high + 1) for k, (low, high) in params.items()})
    return n, r.choice([1, 2, 3, 4, 8, 16]), r.choice([1, 2, 4, 5, 8, 16])


# ---- the code ----

C_HEAD = """#include <stdbool.h>
#include <stdio.h>
#define __device__
#define __forceinline__ static inline __attribute__((unused))
#include "formula.cuh"
"""

C_TABLE = """
static const struct {
    bool (*keep)(const struct names *p, int row, int col);
    bool (*may_keep)(const struct names *p, i64 from0, i64 from1, i64 to0, i64 to1);
    bool (*may_drop)(const struct names *p, i64 from0, i64 from1, i64 to0, i64 to1);
    struct names names;
    int tile_m, tile_n;
} table[] = {
%s};

int main(void)
{
    for (unsigned t = 0; t < sizeof table / sizeof *table; t++) {
        const struct names *p = &table[t].names;
        int m = table[t].tile_m, n = table[t].tile_n, past = p->seq_k - p->seq_q;
        for (int i = 0; i < p->seq_q; i += m) {
            int end = i + m < p->seq_q ? i + m : p->seq_q;
            for (int j = 0; j < p->seq_k; j += n) {
                int last = (j + n < p->seq_k ? j + n : p->seq_k) - 1, kept = 0, of = 0;
                for (int row = i + past; row < end + past; row++)
                    for (int col = j; col <= last; col++, of++)
                        kept += table[t].keep(p, row, col);
                bool some = table[t].may_keep(p, i + past, end - 1 + past, j, last);
                bool full = !table[t].may_drop(p, i + past, end - 1 + past, j, last);
                putchar(!some ? '.' : full ? '#' : '/');
                putchar(kept == 0 ? '.' : kept == of ? '#' : '/');
            }
            putchar('\\n');
        }
        putchar('\\n');
    }
    return 0;
}
"""


def c_functions(i, told):
    """A formula's answer of the generator as three functions of C."""
    keep = re.search(r"^c (.*)$", told, re.M)[1]
    may = re.split(r"^may (?:keep|drop)\n", told, flags=re.M)[1:]
    head = "static bool {}{}(const struct names *p, {})\n{{\n    (void)p;\n"
    text = head.format("keep", i, "int row, int col")
    text += f"    (void)row, (void)col;\n    return {keep};\n}}\n"
    for name, body in zip(("may_keep", "may_drop"), may, strict=True):
        text += head.format(name, i, "i64 from0, i64 from1, i64 to0, i64 to1") + body
        text += "    return low <= high;\n}\n"
    return text


def check_code(result, generator, root, count, seed=7):
    """The C of keep and of both analyses says tile by tile what brute force and Lua say."""
    r = random.Random(seed)
    masks = READY + random_masks(r, count)
    g = generator(spec_text(masks))
    names = sorted({"seq_q", "seq_k", "head"}.union(*(params for _, _, params in masks)))
    text = C_HEAD + "struct names { int " + ", ".join(names) + "; };\n"
    rows, want = [], []
    for i, (name, formula, params) in enumerate(masks):
        text += c_functions(i, g.ask("formula", f"mine masks x{name}"))
        n, tile_m, tile_n = sizes(r, params)
        words = " ".join(f"{k}={v}" for k, v in n.items())
        told = g.ask("tiles", f"mine x{name} {tile_m} {tile_n} {words}").split()
        right = brute(keeps(formula, ["seq_q", "seq_k", "head", *params]), n, tile_m, tile_n)
        want.append(["".join(a + b for a, b in zip(x, y, strict=True))
                     for x, y in zip(told, right, strict=True)])
        values = ", ".join(f".{k} = {v}" for k, v in n.items())
        rows.append(f"    {{keep{i}, may_keep{i}, may_drop{i}, {{{values}}}, "
                    f"{tile_m}, {tile_n}}},\n")
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "masks.c"), os.path.join(folder, "masks")
        with open(source, "w", encoding="utf-8") as file:
            file.write(text + C_TABLE % "".join(rows))
        done = subprocess.run(["gcc", "-std=c17", "-O0", "-fsanitize=undefined",
                               "-fno-sanitize-recover=all", "-Werror=unused-variable",
                               "-Werror=unused-but-set-variable", "-I" + root +
                               "/templates/device", "-o", program, source],
                              capture_output=True, text=True, check=False)
        result.expect(done.returncode == 0, "gcc: " + done.stderr[:2000])
        out = subprocess.run([program], capture_output=True, text=True, check=False)
    got = [block.split() for block in out.stdout.split("\n\n")][:len(want)]
    result.expect(out.returncode == 0, out.stderr[:2000])
    for (name, formula, _), a, b in zip(masks, got, want, strict=True):
        result.expect(a == b, "\n".join([f"{name}: {formula}: C says", *a, "want", *b]))


# ---- scores ----

SCORES = [
    "30.0 * tanh(s / 30.0)", "s - exp2(-8 * (head + 1) / heads) * abs(row - col)", "s", "2 * s",
    "s * sigmoid(s)", "log2(1 + s * s)", "exp2(s / 4)", "max(s, 0.5 * s)", "min(s, 3.0)",
    "abs(s - 1.5)", "select(row > col, s, 0.5 * s * s)", "s / (1 + abs(s))", "-s", "a * s + b",
    "tanh(s) * tanh(s) - s / a", "(s + 1) / (s * s + 2)", "3.0", "select(s < 0, s, s * s)",
    "sigmoid(exp2(s)) - log2(3.0 + tanh(s))",
]


def score(r, depth):
    if depth == 0:
        return r.choice(["s", "s", "1.5", "a", "col", "0.25"])
    x, y = score(r, depth - 1), score(r, depth - 1)
    return r.choice([f"({x} + {y})", f"({x} - {y})", f"({x} * {y})", f"({x} / (2.0 + abs({y})))",
                     f"tanh({x})", f"sigmoid({x})", f"exp2(min({x}, 4.0))", f"log2(1.0 + abs({x}))",
                     f"max({x}, {y})", f"select({x} < {y}, {x}, {y})", f"-({x})"])


def check_scores(result, generator, count, seed=11):
    """Derivatives, and the folded score itself, against the text as Python."""
    r = random.Random(seed)
    texts = SCORES + [score(r, r.randrange(1, 4)) for _ in range(count)]
    texts = [t for t in texts if len(t) <= 300]
    rows = [f"  f{i}: {{value: '{t}', params: {{a: {{default: 2, from: 1}}, b: -1.5}}}}\n"
            for i, t in enumerate(texts)]
    g = generator("extends: fwd\nname: mine\nscores:\n" + "".join(rows))
    for i, text in enumerate(texts):
        told = g.ask("formula", f"mine scores f{i}")
        value, slope = (floats(re.search(rf"^{k} (.*)$", told, re.M)[1])
                        for k in ("value", "derivative"))
        f, h, bad = floats(text), 1e-5, []
        for _ in range(12):
            s, rest = r.uniform(-6, 6), (r.randrange(9), r.randrange(9), 2, 8, 2.0, -1.5)
            if not math.isclose(value(s, *rest), f(s, *rest), rel_tol=1e-12, abs_tol=1e-12):
                bad.append(f"s = {s}: {value(s, *rest)}, the text gives {f(s, *rest)}")
            left, right = ((f(s, *rest) - f(s - h, *rest)) / h, (f(s + h, *rest) - f(s, *rest)) / h)
            got, close = slope(s, *rest), 1e-3 * (1 + abs(left))
            # At a kink either side's slope is right.
            if abs(got - left) > close and abs(got - right) > close:
                bad.append(f"s = {s}: slope {got}, differences {left} and {right}")
        result.expect(not bad, f"{text}: {'; '.join(bad[:2])}\n{told}")
