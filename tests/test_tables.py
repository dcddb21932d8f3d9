#!/usr/bin/env python3
# test_tables.py - what of the GPU tests and benches needs no GPU: cases, points, tables.
# SPDX-License-Identifier: BSD-3-Clause
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "gpu"), os.path.join(HERE, "bench")]
import bench  # noqa: E402
import cases  # noqa: E402
import points  # noqa: E402
import tables  # noqa: E402
import tuned  # noqa: E402

ROW = {"name": "fwd_d128_bf16_none_m192n64", "tflops": 700.4, "noise": 0.012, "clock_mhz": 1500}
DATA = {"gpu": "NVIDIA H200", "driver": "580.1", "cuda": "13.0", "torch": "2.11",
        "date": "2026-11-30", "commit": "abc", "command": "python3 tests/bench/bench.py",
        "seed": 7, "cold_ms": 3210.4,
        "warm_ms": 12.34, "launch_cpu_ns": 3456,
        "calls": {"prepared_ns": 5400, "python_ns": 9000, "fa2_ns": 20800, "cudnn_ns": 17500},
        "rows": [
            {**ROW, "problem": "head_dim=128 dtype=bf16 mask=none layout=bshd batch=2 heads=16 "
             "seq_q=8192", "ours_us": 1000.0, "peers": {"cudnn_us": 1200.0, "fa2_us": 2000.0}},
            {**ROW, "problem": "head_dim=128 dtype=bf16 mask=causal layout=bshd batch=2 heads=16 "
             "seq_q=8192", "ours_us": 500.0, "peers": {"cudnn_us": 600.0, "fa3_us": 550.0}},
            {**ROW, "problem": "head_dim=80 dtype=fp16 mask=none layout=bshd batch=2 heads=16 "
             "kv_heads=4 seq_q=777 seq_k=999", "ours_us": 100.0, "peers": {"cudnn_us": 90.0}}]}


WINNER = "fwd_d128_bf16_causal_m192n64_s7_w3_opt_dyn_p32c160"
TIMED = {"problem": "head_dim=128 dtype=bf16 mask=causal layout=bshd batch=4 heads=16 seq_q=4096",
         "kernel": WINNER, "section_mb": 100, "time_us": 381.9, "cold_us": 390.0, "noise_pct": 0.2,
         "runner_up": "fwd_d128_bf16_causal_m128n128_s4_w2_opt_dyn_p40c232",
         "lost_pct": 2.5, "prefer_ratio": 1.0, "timed": 30, "rejected": 0, "finished": "yes"}
DOCTOR = [{"what": "gpu", "state": "ok", "detail": "0: NVIDIA H200, sm_90a, 132 SMs, 143771 MiB"},
          {"what": "gpu", "state": "ok", "detail": "1: NVIDIA H100, sm_90a, 114 SMs, 81559 MiB"},
          {"what": "nvrtc", "state": "missing", "detail": "/x: NVRTC 11.8 is too old"},
          {"what": "nvrtc", "state": "ok", "detail": "/y/libnvrtc.so.13: NVRTC 13.0"},
          {"what": "driver", "state": "ok", "detail": "CUDA 13.0"}]


class Tuned(unittest.TestCase):
    """What `tune --json` printed becomes a table that the generator reads, byte for byte the same
    whatever the order was."""

    def convert(self, folder, rows, table="h200.yaml"):
        paths = [os.path.join(folder, name) for name in ("rows.json", "doctor.json", table)]
        for path, data in zip(paths, (rows, DOCTOR)):
            with open(path, "w", encoding="utf-8") as file:
                json.dump(data, file)
        done = subprocess.run(
            [sys.executable, os.path.join(HERE, "bench/tuned.py"), "--from", paths[0], "--doctor",
             paths[1], "--table", paths[2], "--date", "2026-11-30", "--commit", "abc"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        with open(paths[2], encoding="utf-8") as file:
            return done, file.read(), paths[2]

    def test_rows_become_entries(self):
        second = {**TIMED, "problem": TIMED["problem"].replace("4096", "8192"), "runner_up": "-"}
        third = {**TIMED, "problem": TIMED["problem"].replace("4096", "512"), "finished": "no"}
        with tempfile.TemporaryDirectory() as folder:
            done, text, path = self.convert(folder, [second, third, TIMED])
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn("2 of 3 measured to the end; 2 entries", done.stdout)
            words = "head_dim=128 dtype=bf16 mask=causal batch=4 heads=16 seq_q="
            self.assertEqual(text.splitlines()[2:], [
                "tuned: h200", "arch: sm_90a", "gpu: NVIDIA H200", "sms: 132", "driver: 13.0",
                "nvrtc: 13.0", "date: 2026-11-30", "commit: abc", "entries:",
                f"  - {{problem: {words}4096, use: {WINNER}, section_mb: 100, us: 381.90, "
                f"runner_up: {{name: {TIMED['runner_up']}, us: 391.45}}}}",
                f"  - {{problem: {words}8192, use: {WINNER}, section_mb: 100, us: 381.90}}"])
            explained = subprocess.run(
                [os.path.join(tuned.BUILD, "warploom"), "explain", "--spec", path,
                 *TIMED["problem"].split()], stdout=subprocess.PIPE, text=True).stdout
            self.assertIn(f"table {path}:12, measured on NVIDIA H200: 381.9 us; next "
                          f"{TIMED['runner_up']}, 2.5 % slower", explained)
            again = self.convert(folder, [TIMED])[1]  # replaced by itself, the other stays
            self.assertEqual(again, text)
            other = self.convert(folder, [TIMED, second], "other.yaml")[1]
            self.assertEqual(other.splitlines()[3:], text.splitlines()[3:])

    def test_an_entry_that_no_spec_allows_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            done, _, path = self.convert(folder, [{**TIMED, "section_mb": 7}])
            self.assertEqual(done.returncode, 3)
            self.assertIn(f"{path}:12:5: entry: dead: section_mb=7: fwd takes ", done.stdout)

    def test_the_workload_has_no_bucket_twice(self):
        with tempfile.TemporaryDirectory() as folder:
            rows = [{**TIMED, "problem": p, "kernel": "x"} for g in tuned.workload() for p in g]
            done = self.convert(folder, rows)[0]
            self.assertGreaterEqual(len(rows), 80)
            self.assertNotIn("again", done.stdout)

    def test_the_shipped_table_has_no_dead_entry(self):
        done = subprocess.run([os.path.join(tuned.BUILD, "warploom"), "check"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.stdout, "built-in specs: ok\n")


class Cases(unittest.TestCase):
    def test_table_is_as_large_and_wide_as_promised(self):
        all_cases = cases.table()
        self.assertGreaterEqual(len(all_cases), 600)
        self.assertEqual(len(all_cases), len({str(c) for c in all_cases}))
        self.assertGreaterEqual(len({(c.sq, c.sk) for c in all_cases}), 40)
        for d in cases.HEAD_DIMS:
            here = {(c.dtype, c.mask) for c in all_cases if c.d == d == c.dv}
            self.assertEqual(len(here), 4, d)
        for what, values in (("view", cases.VIEWS), ("kind", cases.KINDS),
                             ("dtype", cases.DTYPES), ("mask", cases.MASKS)):
            for some in (all_cases, cases.quick()):
                self.assertEqual({getattr(c, what) for c in some}, set(values))

    def test_cases_are_legal(self):
        for c in cases.table() + cases.quick():
            self.assertEqual(c.heads % c.kv_heads, 0, c)
            self.assertTrue(c.d % 8 == c.dv % 8 == 0, c)
            if c.view in ("packed", "kv"):
                self.assertEqual(c.sq, c.sk, c)

    def test_names(self):
        name = "fwd_d192_v128_bf16_causal_m128n64_s5_w2_lazy_dynamic_p24c240"
        self.assertEqual(cases.parse(name)[:5], ("fwd", 192, 128, "bf16", "causal"))
        self.assertEqual(cases.parse("vit_l14_d80_fp16_none_m64n64")[:4],
                         ("vit_l14", 80, 80, "fp16"))
        for mask in ("topleft", "m2", "doc_causal", "near_m64"):
            name = f"fwd_d16_v248_bf16_{mask}_m128n64_s4_w2_opt_dyn_p56c224"
            self.assertEqual(cases.parse(name)[4:], (mask, "m128n64 s4 w2 opt dyn p56c224".split()))
        name = "fwd8_d16_v240_e4m3_none_m128n128_s6_w2_opt_dyn_p40c232"
        self.assertEqual(cases.parse(name)[:5], ("fwd8", 16, 240, "e4m3", "none"))
        self.assertRaises(ValueError, cases.parse, "fwd_d64")

    def test_cover_takes_every_value_with_few_names(self):
        names = [f"fwd_d64_bf16_none_m{m}n64_s{s}_{o}" for m in (64, 128) for s in (3, 4, 5)
                 for o in ("opt", "lazy")]
        few = cases.cover(names)
        self.assertEqual(few[0], names[0])
        self.assertEqual(len(few), 3)
        self.assertEqual({w for n in few for w in cases.parse(n)[5]},
                         {w for n in names for w in cases.parse(n)[5]})

    def test_forced_cases_name_the_kernel_and_the_variant(self):
        for c in cases.forced("vit_l14_d80_fp16_none_m64n64_s3"):
            self.assertEqual((c.variant, c.d, c.dtype, c.mask), ("vit_l14", 80, "fp16", "none"))
            self.assertTrue(c.lse and "lse" not in c.problem)

    def test_kernels_that_give_no_lse_are_asked_for_none(self):
        for c in cases.forced("fwd_d64_bf16_none_m64n64_s4_w1_ones"):
            self.assertTrue(not c.lse and c.problem.endswith(" lse=no") and "_no_lse" in str(c))


class Points(unittest.TestCase):
    def test_points_survive_their_words(self):
        known, drawn = list(points.table()), points.drawn()
        self.assertEqual((len(known), len(drawn)), (36, 24))
        for p in known + drawn:
            self.assertEqual(points.parse(p.problem), p)
            self.assertTrue(p.problem.endswith(" lse=no"))
        self.assertEqual(drawn, points.drawn())
        self.assertNotEqual(drawn, points.drawn(1))

    def test_flops_and_ratios(self):
        p = points.parse(DATA["rows"][0]["problem"])
        self.assertEqual(p.flops, 4 * 8192 ** 2 * 128 * 16 * 2)
        cudnn, fa3, measured = points.ratios(DATA["rows"][0])
        self.assertEqual((cudnn, measured), (1.2, False))
        self.assertAlmostEqual(fa3, 1.2 / points.table()[p]["fa3_over_cudnn"])
        self.assertEqual(points.ratios(DATA["rows"][1]), (1.2, 1.1, True))
        self.assertEqual(points.ratios(DATA["rows"][2]), (0.9, None, False))


    def test_command_names_no_place(self):
        self.assertEqual(bench.own_command(["--points", "36", "--out", "/x/y.json", "--ms", "2"]),
                         "python3 tests/bench/bench.py --points 36 --ms 2")

    def test_candidates_fit_their_axes(self):
        p = points.parse("head_dim=192 head_dim_v=128 dtype=bf16 mask=none batch=1 heads=1 seq_q=9")
        self.assertTrue(bench.fits("fwd_d192_v128_bf16_none_m64n64", p))
        self.assertFalse(bench.fits("fwd_d192_bf16_none_m64n64", p))
        self.assertEqual(bench.force("variant=x"), {"variant": "x"})
        self.assertEqual(bench.force("fwd_d64_bf16_none_m64n64"),
                         {"kernel": "fwd_d64_bf16_none_m64n64"})


class Tables(unittest.TestCase):
    def make(self, kind):
        text = f"before\n<!-- table {kind} r.json -->\nstale\n<!-- end of table -->\nafter\n"
        made = tables.remake(text, lambda path: {"r.json": DATA}[path])
        self.assertEqual(made, tables.remake(made, lambda path: DATA))
        self.assertTrue(made.startswith("before\n<!-- table") and made.endswith("-->\nafter\n"))
        self.assertNotIn("stale", made)
        return made

    def test_kinds(self):
        self.assertIn("| 128 | none | 700 (~1.11) |", self.make("speed"))
        self.assertIn("| 128 | causal | 700 (1.10) |", self.make("speed"))
        self.assertIn("| 128 | 8192 | none | 1000.0 | 1200.0 | 2000.0 | - | 700 | 1.20 | ~1.11 |",
                      self.make("points"))
        self.assertIn("kv_heads=4 seq_q=777 seq_k=999 | 100.0 | 90.0 | - | - | 700 | 0.90 | - |",
                      self.make("drawn"))
        self.assertIn("| CPU time of a launch, C | 3.46 µs |", self.make("costs"))
        self.assertIn("NVIDIA H200, driver 580.1, CUDA 13.0, 2026-11-30, commit abc",
                      self.make("costs"))

    def test_what_lse_costs(self):
        self.assertIn("Timed with LSE.", self.make("speed"))
        rows = [{**row, "ours_lse_us": us} for row, us in zip(DATA["rows"], (1030.0, 501.0))]
        self.assertEqual(tables.lse({**DATA, "rows": rows}), "Timed without LSE, as by default; "
                         "with it a call takes 0.2 to 3.0 % longer.")

    def test_full_is_all_of_them(self):
        made = self.make("full")
        for text in ("| 128 | 8192 | causal |", "drawn from seed 7", "| first call, cold"):
            self.assertIn(text, made)

    def test_no_results_file(self):
        empty = "<!-- table speed r.json -->\n<!-- end of table -->"
        self.assertEqual(tables.remake(empty, lambda path: None), empty)
        with self.assertRaisesRegex(ValueError, "there is no r.json"):
            tables.remake(empty.replace("\n", "\nrow\n"), lambda path: None)

    def test_unknown_kind(self):
        with self.assertRaisesRegex(ValueError, "no such kind"):
            self.make("nonsense")

    def test_committed_tables_are_current(self):
        done = subprocess.run([sys.executable, os.path.join(HERE, "bench", "tables.py"), "--check"],
                              text=True, capture_output=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - bad} passed, {bad} failed")
    sys.exit(bad != 0)
