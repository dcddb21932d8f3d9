"""test_trust.py - specs of strangers: odd values make kernels that touch their tensors alone.
SPDX-License-Identifier: BSD-3-Clause

Specs that bend what they may: a variant with tiles, stages and sections that nobody meant, and one
that takes the place of the family fwd and leaves out its rules. What they may make is run in the
simulator, which tells every access outside a tensor, and every wrong result."""
import os
import re
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.path.join(ROOT, os.environ.get("BUILD", "build")))
VARIANT = """extends: fwd
name: odd
tune: {tile: [[64, 16], [64, 48], [128, 80], [192, 48]], stages: [2, 3, 23],
  softmax: [exact, optimistic]}
launch: {section_mb: [0, 999999999]}
require: [{rule: stages > 1, why: 'it''s "odd" */ \\ #include <x> 𝐞'}]
"""
LAWLESS = """family: fwd
arch: sm_90a
names: {head_dim: d, head_dim_v: v, tile: [m, n], stages: s, consumer_warpgroups: w,
  registers: [p, c]}
axes:
  head_dim: {from: 8, to: 256, step: 8, listed: [8, 40, 256]}
  head_dim_v: {from: 8, to: 256, step: 8, listed: [8, 40, 256]}
  dtype: [bf16, fp16]
  mask: [none, causal]
  layout: [bshd, bhsd]
  lse: [yes, no]
launch_axes: [layout, lse]
tune:
  tile: [[64, 16], [128, 32], [256, 48], [64, 208], [448, 16]]
  stages: [2, 3, 7, 64]
  softmax: [exact, lazy, optimistic]
  schedule: [static, dynamic]
  consumer_warpgroups: [1, 2, 4, 7]
  registers: [[24, 24], [248, 248], [40, 232], [32, 112], [24, 64]]
  row_sums: [add]
launch: {section_mb: [999999999, 0]}
require: [{rule: tile_m == 64 * consumer_warpgroups, why: order}]
"""
GOOD = [
    (VARIANT, "odd_d64_bf16_causal_m64n16_s2_w1_exact_dyn_p248c248"),
    (VARIANT, "odd_d24_v200_fp16_none_m128n80_s3_w2_opt_static_p40c232"),
    (VARIANT, "odd_d64_bf16_causal_m192n48_s23_w3_opt_dyn_p32c160"),
    (LAWLESS, "fwd_d8_v40_bf16_causal_m64n208_s2_exact_static_w1_p248c248_add"),
    (LAWLESS, "fwd_d40_v8_fp16_none_m256n48_s3_optimistic_dynamic_w4_p32c112_add"),
    (LAWLESS, "fwd_d64_bf16_none_m448n16_s2_exact_static_w7_p24c64_add"),
    (LAWLESS, "fwd_d256_v8_bf16_causal_m64n16_s3_optimistic_dynamic_w1_p24c24_add"),
]
BAD = [(LAWLESS, "fwd_d256_bf16_none_m64n208_s64_exact_static_w1_p24c24_add", 3,
        "launch record, .*'shared 6866944': number out of range")]


class Odd(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)

    def warploom(self, spec, *args):
        path = os.path.join(self.temporary.name, "spec.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(spec)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("WARPLOOM_", "XDG_"))}
        env["WARPLOOM_CACHE_DIR"] = self.temporary.name + "/cache"
        return subprocess.run([BUILD + "/warploom", *args, "--spec", path], env=env, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=600, check=False)

    def test_in_the_simulator(self):
        for spec, name in GOOD:
            done = self.warploom(spec, "verify", name, "--schedules", "2")
            self.assertEqual(done.returncode, 0, name + "\n" + done.stdout + done.stderr)
            self.assertIn("nothing found in 8 launches", done.stdout + done.stderr)

    def test_refused(self):
        for spec, name, code, why in BAD:
            done = self.warploom(spec, "verify", name, "--schedules", "1")
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertRegex(done.stderr, why)

    def test_text_has_no_word_of_theirs_but_the_name(self):
        own = self.warploom(VARIANT, "emit", GOOD[0][1]).stdout
        self.assertNotRegex(own, r"#include <|\*/|𝐞|it's")
        plain = self.warploom(VARIANT.replace("name: odd", "name: even"), "emit",
                              GOOD[0][1].replace("odd", "even")).stdout
        self.assertTrue(own and own == re.sub(r"\beven_", "odd_", plain))


if __name__ == "__main__":
    unittest.main()
