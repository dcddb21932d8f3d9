"""test_draw.py - warploom draw: what its pictures show, and those of the documentation.
SPDX-License-Identifier: BSD-3-Clause

test_draw.py --write makes runtime/share/masks anew."""
import os
import re
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom

import test_masks

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.path.join(ROOT, os.environ.get("BUILD", "build")))
FOLDER = os.path.join(ROOT, "runtime/share/masks")

# What each mask is for, and the words of its picture.
MASKS = {
    "topleft": ("Causal, rows and keys counted from the start of both.", "seq_q=48 seq_k=32"),
    "window": ("A window of keys to the left and to the right; right 0 is causal.",
               "mask_args=14,5"),
    "sink": ("Causal: the first keys, and a window (StreamingLLM).", "mask_args=14,4"),
    "chunk": ("Causal within chunks (Llama 4's local layers).", "mask_args=16"),
    "prefix": ("All see the prefix; behind it, causal (prefix-LM).", "mask_args=18"),
    "dilated": ("Causal: of the keys up to so far back each so many.", "mask_args=30,4"),
    "longformer": ("A window to both sides; the first tokens see all and are seen by all.",
                   "mask_args=8,3"),
    "localprefix": ("All see the prefix; behind it, a causal window.", "mask_args=10,14"),
    "headwindow": ("Causal, of each head a longer window.", "mask_args=8"),
    "duo": ("Causal: of every so many heads of keys one sees all, the others a sink and a window "
            "(DuoAttention).", "mask_args=4,10,4"),
}
HEAD = """# Ready masks

Those that `specs/fwd.yaml` declares, as `warploom draw` shows them, small. One of your own is drawn
by `warploom draw NAME variant=VARIANT --spec FILE -o F.svg`, a problem's tiles by
`warploom draw PROBLEM -o F.svg`. This page is made by `make pictures`.
"""


def call(*words, **env):
    return subprocess.run([BUILD + "/warploom", "draw", *words], text=True, cwd=ROOT,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60,
                          env={**{k: v for k, v in os.environ.items()
                                  if not k.startswith("WARPLOOM_")}, "WARPLOOM_CACHE": "off",
                               "WARPLOOM_LIBCUDA": "/none.so", **env})


def declared():
    """{name: its lines} of the masks of fwd.yaml."""
    with open(ROOT + "/specs/fwd.yaml", encoding="utf-8") as file:
        section = file.read().split("\nmasks:\n")[1].split("\n\n")[0].split("\nscores:")[0]
    return {block.split(":")[0].strip(): block for block in
            re.split(r"\n(?=  \w)", section)}


def documents():
    """{file: text} of runtime/share/masks."""
    found, page = {}, HEAD
    for name, text in declared().items():
        if "tensors:" in text:
            continue  # what it keeps its tensors decide
        what, words = MASKS[name]
        done = call(name, *words.split())
        assert not done.returncode, done.stderr
        found[name + ".svg"] = done.stdout
        lines = "\n".join(line.removeprefix("  ") for line in text.splitlines())
        page += f"\n## {name}\n\n{what}\n\n```yaml\n{lines}\n```\n\n"
        page += f"`warploom draw {name} {words}`\n\n![{name}]({name}.svg)\n"
    return {**found, "README.md": page}


def boxes(svg, fill):
    """The positions (row, column) that the paths of a colour cover, for each panel."""
    panels = []
    for panel in re.findall(r"<g transform.*?</g>", svg, re.S):
        d = "".join(re.findall(f'fill="{fill}" d="([^"]*)"', panel))
        found = re.findall(r"M(\d+) (\d+)h(\d+)v(\d+)h-(\d+)z", d)
        assert "".join("M{} {}h{}v{}h-{}z".format(*b) for b in found) == d, d
        panels.append({(row, col) for x, y, w, h, _ in (map(int, b) for b in found)
                       for row in range(y, y + h) for col in range(x, x + w)})
    return panels


FULL, MIXED, EMPTY, DARK = "#7fb2dd", "#f2c066", "#eeeeee", "#1d5a96"


class Draw(unittest.TestCase):
    def test_pictures_of_the_documentation(self):
        want = documents()
        self.assertEqual(sorted(os.listdir(FOLDER)), sorted(want))
        for name, text in want.items():
            with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
                self.assertEqual(file.read(), text, f"{name} is not current: make pictures")
            self.assertLess(len(text), 10000)

    def test_every_ready_mask_is_short(self):
        for name, text in declared().items():
            self.assertLessEqual(text.count("\n") + 1, 10, name)

    def test_the_same_bytes(self):
        for words in ("duo", "head_dim=64 dtype=bf16 mask=window layout=bshd seq_q=9000"):
            texts = {call(*words.split(), LC_ALL=lc).stdout for lc in ("C", "C.UTF-8", "C")}
            self.assertEqual(len(texts), 1)
            self.assertIn("<svg ", texts.pop())

    def check(self, mask, keep, words, n, tile_m=8, tile_n=8):
        """The picture is what brute force says of `keep`, tile by tile and pair by pair."""
        done = call(*mask.split(), *words.split(), *[f"{k}={n[k]}" for k in ("seq_q", "seq_k")])
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        xml.dom.minidom.parseString(done.stdout)
        keeps = test_masks.keeps(keep, ["seq_q", "seq_k", "head", "kv_head", *n.get("params", {})])
        panels = {fill: boxes(done.stdout, fill) for fill in (FULL, MIXED, EMPTY, DARK)}
        for head in range(n.get("heads", 1)):
            names = {"seq_q": n["seq_q"], "seq_k": n["seq_k"], "head": head, "kv_head": head,
                     **n.get("params", {})}
            past = n["seq_k"] - n["seq_q"]
            kept = {(i, col) for i in range(n["seq_q"]) for col in range(n["seq_k"])
                    if keeps(i + past, col, **names)}
            self.assertEqual(panels[DARK][head], kept)
            want = test_masks.brute(keeps, names, tile_m, tile_n)
            for fill, kind in ((FULL, "#"), (MIXED, "/")):
                tiles = {(i // tile_m, j // tile_n) for i, j in panels[fill][head]}
                self.assertEqual(tiles, {(i, j) for i, line in enumerate(want)
                                         for j, x in enumerate(line) if x == kind}, mask)
                self.assertEqual(panels[fill][head], {
                    (i, j) for i in range(n["seq_q"]) for j in range(n["seq_k"])
                    if (i // tile_m, j // tile_n) in tiles})
            self.assertEqual(len(panels[EMPTY][head]), n["seq_q"] * n["seq_k"])

    def test_pairs_and_tiles(self):
        self.check("causal", "col <= row", "", {"seq_q": 21, "seq_k": 34})
        self.check("none", "True", "", {"seq_q": 5, "seq_k": 17})
        self.check("window", "row - col <= left and col - row <= right", "mask_args=5,2",
                   {"seq_q": 40, "seq_k": 33, "params": {"left": 5, "right": 2}})
        self.check("headwindow", "col <= row and row - col <= 3 * (head + 1)",
                   "mask_args=3 heads=3", {"seq_q": 30, "seq_k": 30, "heads": 3})
        self.check("prefix", "col < prefix or col <= row", "mask_args=3 heads=9",
                   {"seq_q": 1, "seq_k": 40, "params": {"prefix": 3}})

    def test_params_that_would_not_show(self):
        self.assertIn(">window: left 16, right 0<", call("window").stdout)
        self.assertIn(">window: left 33, right 0<", call("window", "seq_q=100").stdout)
        self.assertIn(">window: left 1024, right 0<", call("window", "mask_args=1024").stdout)
        self.assertIn(">dilated: reach 16, step 4<", call("dilated").stdout)

    def test_a_problem_has_its_kernels_tiles(self):
        problem = "head_dim=64 dtype=bf16 mask=chunk mask_args=1000 layout=bshd seq_q=3000".split()
        svg = call(*problem).stdout
        self.assertEqual(boxes(svg, DARK), [set()])
        told = subprocess.run([BUILD + "/warploom", "explain", *problem], text=True, timeout=60,
                              stdout=subprocess.PIPE, check=True,
                              env={**os.environ, "WARPLOOM_CACHE": "off"}).stdout
        loaded, tiles = map(int, re.search(r"loaded +(\d+) of (\d+) tiles", told).groups())
        full, mixed, empty = (int(re.search(rf">(\d+) {x}<", svg)[1])
                              for x in ("full", "mixed", "empty"))
        self.assertEqual((full + mixed, full + mixed + empty), (loaded, tiles))

    def test_a_mask_of_ones_own(self):
        with tempfile.TemporaryDirectory() as folder:
            spec, out = os.path.join(folder, "s.yaml"), os.path.join(folder, "o.svg")
            with open(spec, "w", encoding="utf-8") as file:
                file.write("extends: fwd\nname: mine\nmasks:\n  odd: {keep: 'row < 3 or not (row "
                           "% 2 == 0) and (row - col) * 2 <= 9 and col <= row and 3 > 2 and "
                           "1 < 2'}\n")
            done = call("odd", "variant=mine", "--spec", spec, "-o", out)
            self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
            with open(out, encoding="utf-8") as file:
                svg = file.read()
            xml.dom.minidom.parseString(svg)
            self.assertIn("row &lt; 3 or not", svg)
            self.assertEqual(svg.count("<text "), 8)  # the formula is in two lines


if __name__ == "__main__":
    if "--write" in sys.argv:
        os.makedirs(FOLDER, exist_ok=True)
        for file_name, content in documents().items():
            with open(os.path.join(FOLDER, file_name), "w", encoding="utf-8") as out_file:
                out_file.write(content)
    else:
        unittest.main()
