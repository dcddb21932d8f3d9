"""test_choices.py - from a measurement to choices: the record of `tune`, the table made of it, and
what `explain` says of both. The GPU and what measures are fakes.
SPDX-License-Identifier: BSD-3-Clause"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.path.join(ROOT, os.environ.get("BUILD", "build")))
P = "head_dim=64 dtype=bf16 mask=causal layout=bshd heads=8 seq_q=512"


class Choices(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        self.gpu = {"WARPLOOM_LIBCUDA": BUILD + "/libfake_cuda.so",
                    "WARPLOOM_WORKER": ROOT + "/tests/fake_worker.sh",
                    "FAKE_WORKER_LOG": self.path("worker.log")}
        self.none = {"WARPLOOM_LIBCUDA": self.path("none.so")}

    def path(self, name):
        return os.path.join(self.folder, name)

    def ask(self, *argv, env, program=(BUILD + "/warploom",)):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("WARPLOOM_", "XDG_"))}
        clean.update(env, HOME=self.folder, WARPLOOM_CACHE_DIR=self.path("cache"), BUILD=BUILD)
        done = subprocess.run([*program, *argv], env=clean, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def by(self, *argv, env):
        """The first line of `explain`, the kernel, and the last: who chose it."""
        lines = self.ask("explain", *argv, *P.split(), env=env).splitlines()
        return lines[0], lines[-1].strip()

    def test_a_measurement_chooses_here_and_as_a_table_elsewhere(self):
        before = self.by(env=self.gpu)
        self.assertTrue(before[1].startswith("prefer specs/fwd.yaml:"), before)
        rows = self.ask("tune", *P.split(), "--json", env=self.gpu)
        best = json.loads(rows)[0]["kernel"]
        self.assertNotEqual(best, before[0])
        here = self.by(env=self.gpu)
        self.assertEqual(here[0], best)
        self.assertRegex(here[1], r"^tuned here, 20\d\d-.*: \d+\.\d us; next fwd_d64_.*, \+\d")
        run = self.ask("run", *P.split(), "--random", "1", env={  # what tune left is enough
            **self.gpu, "WARPLOOM_GEN": "/none.so", "WARPLOOM_NVRTC": "/none.so",
            "WARPLOOM_JIT": "off"})
        self.assertIn(best, run)
        self.assertEqual(self.by(env=self.none), before)  # no device: no record of one
        self.assertIn(best, self.ask("emit", *P.split(), env=self.gpu).splitlines()[0])

        for name, text in (("rows", rows), ("doctor", self.ask("doctor", "--json", env=self.gpu))):
            with open(self.path(name), "w", encoding="utf-8") as file:
                file.write(text)
        table = self.path("mine.yaml")
        self.ask("--from", self.path("rows"), "--doctor", self.path("doctor"), "--table", table,
                 env=self.gpu, program=(sys.executable, ROOT + "/tests/bench/tuned.py"))
        there = self.by("--spec", table, env=self.none)
        self.assertEqual(there[0], best)
        self.assertRegex(there[1], rf"^table {table}:12, measured on Fake GPU 0: \d+ us; next fwd_")
        near = self.ask("explain", "--spec", table, *P.split()[:-1], "seq_q=520",
                        env=self.none).splitlines()[-1]
        self.assertRegex(near, rf"^  nearest entry {table}:12, .* in bf16, at distance 0\.")


if __name__ == "__main__":
    unittest.main()
