"""test_tune.py - the command tune over fakes; the real tune-worker, in the simulator.
SPDX-License-Identifier: BSD-3-Clause"""
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests"))
sys.dont_write_bytecode = True
import broken  # noqa: E402

BUILD = os.path.abspath(os.path.join(ROOT, os.environ.get("BUILD", "build")))
COMMAND = os.path.join(BUILD, "warploom")
SPEC = """extends: fwd
name: few
axes: {head_dim: [64], dtype: [bf16], mask: [causal]}
tune: {tile: [[64, 64], [128, 64]], consumer_warpgroups: [1, 2], stages: [4],
       softmax: [exact], schedule: [dynamic]}
"""
PROBLEM = "variant=few head_dim=64 dtype=bf16 mask=causal layout=bshd heads=4 seq_q=100"


class Tune(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.spec = os.path.join(self.folder.name, "few.yaml")
        self.log = os.path.join(self.folder.name, "log")
        with open(self.spec, "w", encoding="utf-8") as file:
            file.write(SPEC)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("WARPLOOM_", "XDG_"))}
        self.env.update(WARPLOOM_CACHE_DIR=self.folder.name + "/cache", WARPLOOM_SPECS=self.spec,
                        FAKE_WORKER_LOG=self.log)

    def tearDown(self):
        self.folder.cleanup()

    def fakes(self):
        self.env.update(WARPLOOM_LIBCUDA=BUILD + "/libfake_cuda.so",
                        WARPLOOM_NVRTC=BUILD + "/libfake_nvrtc.so",
                        WARPLOOM_WORKER=ROOT + "/tests/fake_worker.sh")

    def run_it(self, *args, text=None):
        return subprocess.run([COMMAND, *args], env=self.env, input=text, text=True,
                              stdin=None if text else subprocess.DEVNULL, capture_output=True,
                              timeout=300)

    def logged(self):
        if not os.path.exists(self.log):
            return ""
        with open(self.log, encoding="utf-8") as file:
            return file.read()

    # ---- the command ----

    def test_a_table_of_results(self):
        self.fakes()
        done = self.run_it("tune", *PROBLEM.split(), "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        row, = json.loads(done.stdout)
        self.assertEqual(row["problem"], PROBLEM)
        self.assertTrue(row["kernel"].startswith("few_d64_bf16_causal_m"), row)
        self.assertEqual(row["cold_us"], 2 * len(row["kernel"]))
        self.assertGreaterEqual(row["prefer_ratio"], 1)
        self.assertEqual((row["rejected"], row["finished"]), (0, "yes"))
        self.assertRegex(row["seconds"], r"^compile \d+\.\d\d, time 1\.25$")
        self.assertGreater(row["timed"], 1)
        before = self.logged()
        again = self.run_it("tune", *PROBLEM.split())
        self.assertRegex(again.stdout, r"(?m)^problem +kernel +section_mb .*\n" +
                         PROBLEM + " +" + row["kernel"])
        self.assertEqual(self.logged(), before, "what is tuned is not measured again")
        self.run_it("tune", *PROBLEM.split(), "--all")
        self.assertGreater(len(self.logged()), len(before))

    def test_the_choice_is_used(self):
        self.fakes()
        names = self.run_it("list", *PROBLEM.split()).stdout.split()
        self.env["FAKE_WORKER_FAST"] = names[-1]
        row, = json.loads(self.run_it("tune", *PROBLEM.split(), "--json").stdout)
        self.assertEqual(row["kernel"], names[-1])
        done = self.run_it("run", *PROBLEM.split(), "--random", "1", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)[0]["name"], names[-1])

    def test_a_workload(self):
        self.fakes()
        path = os.path.join(self.folder.name, "work")
        other = PROBLEM.replace("seq_q=100", "seq_q=200")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"# ours\n\n{PROBLEM} # the small one\n  {other}\r\n")
        done = self.run_it("tune", "--workload", path, "--seconds", "60", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([row["problem"].strip() for row in json.loads(done.stdout)],
                         [PROBLEM, other])
        with open(path, "a", encoding="utf-8") as file:
            file.write(PROBLEM.replace("head_dim=64", "head_dim=72") + "\n")
        done = self.run_it("tune", "--workload", path)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stderr.count("head_dim=72"), 2, done.stderr)  # told once: whose, why
        self.assertEqual(done.stdout.count("\n"), 3, "the others are tuned all the same")
        with open(path, "a", encoding="utf-8") as file:
            file.write("head_dim=64 colour=red\n")
        done = self.run_it("tune", "--workload", path)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, re.escape(path) + r":6: problem: unknown word 'colour'")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"{PROBLEM}\n\0\n{other}\n")
        done = self.run_it("tune", "--workload", path)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn(path + ": has a NUL byte: expected text, a problem a line", done.stderr)

    def test_blocked_candidates_are_told(self):
        self.fakes()
        self.env["FAKE_WORKER_CRASH"] = self.run_it("list", *PROBLEM.split()).stdout.split()[0]
        done = self.run_it("tune", *PROBLEM.split(), "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "warploom: 1 candidates crashed or hung and are not tried "
                         f"again; delete {self.folder.name}/cache/blocklist to do so\n")
        row, = json.loads(done.stdout)
        self.assertEqual((row["rejected"], row["prefer_ratio"]), (1, None))

    def test_interrupt(self):
        self.fakes()
        self.env["FAKE_WORKER_OPEN"] = "sleep 30"
        child = subprocess.Popen([COMMAND, "tune", *PROBLEM.split()], env=self.env, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        end = time.monotonic() + 20
        while "problem" not in self.logged() and time.monotonic() < end:
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        start = time.monotonic()
        out, err = child.communicate(timeout=20)
        self.assertLess(time.monotonic() - start, 1)
        self.assertEqual(child.returncode, 130)
        self.assertEqual(err, "warploom: tune: interrupted; what was done is kept, and a second "
                         "run goes on\n")
        self.assertEqual(out, "")

    def test_progress_on_a_terminal(self):
        self.fakes()
        ours, theirs = pty.openpty()
        child = subprocess.Popen([COMMAND, "tune", *PROBLEM.split()], env=self.env, stderr=theirs,
                                 stdout=subprocess.DEVNULL)
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError:  # the other end is closed
            pass
        os.close(ours)
        self.assertEqual(child.wait(), 0)
        self.assertRegex(shown.decode(), r"\r\x1b\[K\[1/1\] compile 0/\d+, at most 30 s left")
        self.assertRegex(shown.decode(), r"\[1/1\] measure 3/12, at most \d+ s left, \d\d\.0 us")
        self.assertTrue(shown.endswith(b"\r\x1b[K"), "the line is gone in the end")

    def test_no_gpu(self):
        self.env["WARPLOOM_LIBCUDA"] = "/nowhere/libcuda.so.1"
        done = self.run_it("tune", *PROBLEM.split())
        self.assertEqual(done.returncode, 5)
        self.assertIn("no NVIDIA driver", done.stderr)
        self.env["WARPLOOM_DEVICE"] = "sim"
        done = self.run_it("tune", *PROBLEM.split())
        self.assertEqual(done.returncode, 5)
        self.assertIn("the simulator's times say nothing of a GPU", done.stderr)

    def test_compile_only_needs_no_gpu(self):
        self.fakes()
        self.env["WARPLOOM_LIBCUDA"] = "/nowhere/libcuda.so.1"
        del self.env["WARPLOOM_WORKER"]  # the real one, with a fake NVRTC
        done = self.run_it("tune", "--compile-only", *PROBLEM.split(), "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        row, = json.loads(done.stdout)
        n = len(self.run_it("list", *PROBLEM.split()).stdout.split())
        self.assertEqual((row["compiled"], row["candidates"]), (n, n))
        kernels = [f for _, _, files in os.walk(self.folder.name) for f in files
                   if f.endswith(".kernel")]
        self.assertEqual(len(kernels), n)
        # the cache travels: nothing is compiled there (and this driver runs nothing)
        self.fakes()
        del self.env["WARPLOOM_WORKER"]
        self.env.update(WARPLOOM_NVRTC="/nowhere/libnvrtc.so.13", WARPLOOM_JIT="off")
        done = self.run_it("tune", *PROBLEM.split())
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "no candidate is of use; few_.*: leaves elements of its outp")

    # ---- the worker ----

    def worker(self, *lines, device="sim"):
        done = self.run_it("tune-worker", "--device", device, text="\n".join(lines) + "\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()

    def test_the_worker_in_the_simulator(self):
        name = self.run_it("list", *PROBLEM.split()).stdout.split()[0]
        replies = self.worker(f"check {name} section_mb 32", f"compile {name}", "compile few_odd",
                              f"problem 0 {PROBLEM}", f"check {name} section_mb 32",
                              f"check {name} section_mb 16", "check few_odd section_mb 32",
                              f"screen {name} section_mb 32", f"time {name} section_mb 32")
        self.assertEqual(replies[0], "bad tune-worker: no such request, or no problem yet")
        self.assertEqual(replies[1], "good")
        self.assertRegex(replies[2], "^bad few_odd: ")
        self.assertEqual(replies[3:6], ["good"] * 3)
        self.assertRegex(replies[6], "^bad few_odd: ")
        for reply in replies[7:]:
            self.assertEqual(reply, "bad this driver has no GPU: nothing can be timed")

    def test_the_worker_with_masks(self):
        problem = ("head_dim=64 dtype=bf16 layout=bshd heads=2 seq_q=130 seq_k=200 mask=window "
                   "mask_args=")
        name = "fwd_d64_bf16_window_m128n64_s4_w2_exact_dyn_p56c224"
        replies = self.worker(f"problem 0 {problem}9,4", f"check {name} section_mb 32",
                              f"problem 0 {problem}70", f"check {name} section_mb 32",
                              f"problem 0 {problem}70,-1")
        self.assertEqual(replies[:4], ["good"] * 4)
        self.assertEqual(replies[4], "bad mask_args: right = -1: expected 0 to 1073741824")

    def test_the_worker_with_scores(self):
        problem = ("head_dim=64 dtype=bf16 layout=bshd heads=2 seq_q=130 seq_k=200 mask=causal "
                   "score=softcap score_args=")
        name = "fwd_d64_bf16_causal_softcap_m128n64_s4_w2_exact_dyn_p32c232"
        replies = self.worker(f"problem 0 {problem}2", f"check {name} section_mb 32",
                              f"problem 0 {problem}0")
        self.assertEqual(replies[:2], ["good"] * 2)
        self.assertEqual(replies[2], "bad score_args: cap = 0: expected 0.001 to 1.07374e+09")

    def test_the_worker_without_lse(self):
        problem = "head_dim=64 dtype=bf16 mask=causal layout=bshd heads=2 seq_q=100 lse="
        names = self.run_it("list", *(problem + "no").split()).stdout.split()
        checks = [f"check {next(n for n in names if n.endswith(end))} section_mb 32"
                  for end in ("_opt_dyn_p32c112", "_opt_dyn_p32c112_ones")]
        replies = self.worker(f"problem 0 {problem}no", *checks, f"problem 0 {problem}yes",
                              *checks, "seconds", f"problem 0 {problem}no", *checks)
        self.assertEqual(replies[:5], ["good"] * 5)  # one worker for all problems
        self.assertRegex(replies[5], "^bad kernel .*_ones sums rounded probabilities: ")
        self.assertRegex(replies[6], r"^seconds open \d+\.\d\d, load \d.*, time 0\.00$")
        self.assertEqual(replies[7:], ["good"] * 3)

    def test_the_worker_with_a_driver_that_does_nothing(self):
        self.fakes()
        name = self.run_it("list", *PROBLEM.split()).stdout.split()[0]
        replies = self.worker(f"problem 0 {PROBLEM}", f"check {name} section_mb 32",
                              f"screen {name} section_mb 32", f"time {name} section_mb 32",
                              device="gpu")
        self.assertEqual(replies[:2], ["good", "bad leaves elements of its outputs unwritten"])
        self.assertRegex(replies[2], r"^time 10\.0000 0\.0000 \d+$")  # every launch takes 10 us
        self.assertRegex(replies[3], r"^time 10\.0000 10\.0000 \d+$")
        self.env["FAKE_CUDA_FAIL"] = "cuCtxSynchronize:700"
        replies = self.worker(f"problem 0 {PROBLEM}", f"check {name} section_mb 32",
                              f"check {name} section_mb 32", device="gpu")
        self.assertRegex(replies[1], r"^crash cuCtxSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS ")
        self.assertEqual(len(replies), 2, "after a crash it ends")

    def test_broken_candidates_in_the_simulator(self):
        with open(self.spec, "w", encoding="utf-8") as file:
            file.write(broken.SPEC)
        self.env["WARPLOOM_GEN"] = broken.make()
        problem = ("variant=broken head_dim=64 dtype=bf16 mask=none layout=bshd heads=2 seq_q=150 "
                   "seq_k=70")
        names = self.run_it("list", *problem.split()).stdout.split()
        good, behind, wrong, far, _ = sorted(names, key=lambda name: "43625".find(
            re.search(r"_s(\d)_", name)[1]))
        self.assertEqual(len(names), 5)
        replies = self.worker("problem 0 " + problem,
                              *(f"check {name} section_mb 32" for name in
                                (behind, good, behind, wrong, good, far)))
        self.assertEqual(replies[:3], ["good", "bad writes outside of its outputs", "good"])
        self.assertEqual(replies[3], "bad writes outside of its outputs")
        self.assertRegex(replies[4], "^bad (verification failed: norm ratio|results are not those)")
        self.assertEqual(replies[5], "good")
        self.assertRegex(replies[6], "^crash cuCtxSynchronize: |^crash cuLaunchKernelEx: ")

    def test_a_worker_without_its_problem(self):
        self.assertRegex(self.worker("problem 0 head_dim=64")[0], "^bad problem: dtype is missing")
        self.assertRegex(self.worker("problem 7 " + PROBLEM)[0], "^bad cuDeviceGet: ")


if __name__ == "__main__":
    unittest.main()
