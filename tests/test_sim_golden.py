#!/usr/bin/env python3
# test_sim_golden.py - the simulator gives what a GPU gave for single instructions.
# SPDX-License-Identifier: BSD-3-Clause
import glob
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "sim"))
sys.dont_write_bytecode = True
import golden  # noqa: E402


@unittest.skipUnless(glob.glob(golden.FOLDER + "/*.bin"), "none is recorded")
class Golden(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.nvrtc = golden.Nvrtc()
        cls.driver = golden.Driver(golden.SIMULATOR)

    def case(self, case):
        self.assertIsNone(golden.check_case(case, self.nvrtc, self.driver))


for one in golden.CASES:
    setattr(Golden, "test_" + one.name, lambda self, one=one: self.case(one))

if __name__ == "__main__":
    unittest.main()
