"""test_sim_device.py - the simulator as a device: driver API, offline use, verify, sim.
SPDX-License-Identifier: BSD-3-Clause"""
import glob
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests"))
sys.dont_write_bytecode = True
from test_cli import npy  # noqa: E402

BUILD = os.path.abspath(os.path.join(ROOT, os.environ.get("BUILD", "build")))
P = "head_dim=64 dtype=bf16 mask=causal layout=bshd heads=2 seq_q=200 seq_k=300"
RUNNING = "warploom: running in the simulator: its times are the CPU's\n"
SCALE = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry scale(.param .u64 x, .param .align 4 .b8 s[12])
{
    .reg .pred %p<2>;
    .reg .b32 %r<6>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [x];
    ld.param.f32 %f1, [s+8];
    ld.param.u32 %r1, [s];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.s32 %p1, %r5, %r1;
    @%p1 bra $done;
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.s32 %rd3, %r5, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.f32 %f2, [%rd4];
    mul.f32 %f3, %f2, %f1;
    st.global.f32 [%rd4], %f3;
$done:
    ret;
}
.visible .entry tma(.param .align 64 .b8 map[128])
{
    ret;
}
"""
LAUNCH = {"entry": "scale", "grid": [4], "block": [32],
          "buffers": {"x": {"in": "x.npy", "out": "y.npy"}},
          "params": [{"pointer": "x"}, {"struct": [{"i32": 100}, {"f32": 2}, {"f32": 0.5}]}]}
MAP = {"map": "z", "type": "bf16", "dims": [64, 8], "strides": [128], "box": [64, 8],
       "swizzle": "128B"}


class Simulator(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = self.temporary.name
        self.addCleanup(self.temporary.cleanup)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())

    def call(self, argv, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("WARPLOOM_", "XDG_"))}
        env.update({"HOME": self.folder, "WARPLOOM_CACHE_DIR": self.path("cache"), **more})
        return subprocess.run(argv, cwd=self.folder, env=env, text=True, errors="replace",
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=300, check=False)

    def warploom(self, *args, **more):
        return self.call([BUILD + "/warploom", *args], **more)


class Driver(Simulator):
    """A program of the driver API, unchanged."""

    def forward(self, include):
        done = self.call(["gcc", "-std=c17", "-I" + ROOT + "/runtime", "-I" + ROOT + "/gen",
                          "-I" + include, ROOT + "/examples/forward.c", "-o", "forward",
                          "-L" + BUILD, "-L" + BUILD + "/sim", "-Wl,-rpath," + BUILD,
                          "-Wl,-rpath," + BUILD + "/sim", "-lwarploom", "-l:libcuda.so.1", "-lm"])
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        done = self.call([self.path("forward")])
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertRegex(done.stdout, r"(?s)kernel  fwd_d128_bf16_causal_.*\nlargest error .*: \d")

    def test_forward(self):
        self.forward(ROOT + "/runtime/sim")

    def test_forward_by_the_toolkits_header(self):
        cuda = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "include")
        if not os.path.exists(cuda + "/cuda.h"):
            self.skipTest("no toolkit here")
        self.forward(cuda)


class Command(Simulator):
    def test_run(self):
        done = self.warploom("run", *P.split(), "--random", "1", "--check", "--device", "sim")
        self.assertEqual((done.returncode, done.stderr), (0, RUNNING))
        self.assertRegex(done.stdout, r"^name .*checked .*\nfwd_d64_\S+ .* 400 +400 ")

    def test_no_gpu(self):
        done = self.warploom("run", *P.split(), "--random", "1", WARPLOOM_LIBCUDA="/none.so")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"^warploom: no NVIDIA driver: .*\n" + RUNNING + "$")

    def test_offline(self):
        done = self.warploom("compile", *P.split(), "--device", "sim")
        self.assertEqual(done.returncode, 0, done.stderr)
        hidden = {"WARPLOOM_GEN": "/none.so", "WARPLOOM_NVRTC": "/none.so",
                  "WARPLOOM_JIT": "off", "WARPLOOM_DEVICE": "sim"}
        done = self.warploom("run", *P.split(), "--random", "1", "--check", **hidden)
        self.assertEqual((done.returncode, done.stderr), (0, RUNNING))
        done = self.warploom("run", *P.split(), "batch=50", "--random", "1", **hidden)
        self.assertEqual(done.returncode, 4)
        self.assertIn("JIT: off", done.stderr)

    def test_verify(self):
        done = self.warploom("verify", *P.split(), "--schedules", "4")
        self.assertEqual((done.returncode, done.stderr), (0, RUNNING), done.stdout)
        self.assertRegex(done.stdout,
                         r"^fwd_\S+: nothing found in 4 launches: 4 schedules, 1 shapes\n$")
        name = done.stdout.split(":")[0]
        done = self.warploom("verify", name, "--schedules", "2", "--json")
        self.assertEqual((done.returncode, done.stdout), (0, "[]\n"), done.stderr)
        done = self.warploom("verify", "head_dim=64", "dtype=fp8", "mask=none", "layout=bshd",
                             "seq_q=1")
        self.assertEqual(done.returncode, 2)

    def verify_source(self, text, *problem):
        self.write("edited.cu", text)
        done = self.warploom("verify", "--source", "edited.cu", *problem, "--schedules", "3",
                             "--json")
        self.assertIn(done.returncode, (0, 6), done.stderr)
        rows = json.loads(done.stdout)
        self.assertEqual(done.returncode, 6 if rows else 0)
        return rows

    def test_broken_kernels(self):
        """What is dropped from the emitted kernel is found where it is missed."""
        source = self.warploom("emit", *P.split()).stdout
        self.assertEqual(self.verify_source(source), [])
        drops = {r"        wgmma_wait_all\(\);": "wgmma", r"wgmma_fence\(\);": "wgmma",
                 r"wgmma_commit\(\);": "wgmma", r"mbarrier_init_fence\(\);": "proxy",
                 r"__syncthreads\(\);": "race",
                 r"mbarrier_arrive_expect\(&s\.full.*?\);": "deadlock"}
        for drop, rule in drops.items():
            broken, n = re.subn(drop, "", source, count=1)
            self.assertEqual(n, 1, drop)
            rows = self.verify_source(broken, *P.split())
            self.assertTrue(rows, drop + ": nothing is found")
            self.assertTrue(any(rule in row["rule"] for row in rows), (drop, rows))
            self.assertEqual(list(rows[0]), "rule where ptx_line launches count text".split())
            self.assertTrue(any(re.match(r"edited\.cu:\d+(, called at edited\.cu:\d+)?$",
                                         row["where"]) for row in rows), rows)

    def test_broken_between_items(self):
        """A block has several row tiles to do under some schedules: what goes wrong between two
        is found, too."""
        source = self.warploom("emit", *P.split()).stdout
        for drop in (r"advance\(q_ring, q_stages\);", r"mbarrier_wait\(&s\.q_empty.*?\);"):
            broken, n = re.subn(drop, "", source, count=1)
            self.assertEqual(n, 1, drop)
            rows = self.verify_source(broken)
            self.assertTrue(any(row["rule"] in ("race", "deadlock") for row in rows), (drop, rows))

    def generator(self, path, line, old, new):
        """A generator with one line of one of its files changed."""
        patterns = "gen/*.lua gen/*.[ch] specs/*.yaml specs/*/*.yaml templates/*.* templates/*/*"
        files = sorted(f for p in patterns.split() for f in glob.glob(p, root_dir=ROOT))
        for name in files:
            os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
            with open(os.path.join(ROOT, name), encoding="utf-8") as file:
                lines = file.read().split("\n")
            if name == path:
                self.assertIn(old, lines[line - 1])
                lines[line - 1] = lines[line - 1].replace(old, new)
            self.write(name, "\n".join(lines))
        done = self.call([BUILD + "/embed", "embed.c", "digest.c", *files])
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.call(["gcc", "-shared", "-fPIC", "-I" + ROOT + "/gen", "-I" + ROOT + "/runtime",
                          "embed.c", *glob.glob(BUILD + "/obj/gen/*.o"), "-o", "broken.so",
                          "-L" + BUILD, "-Wl,-rpath," + BUILD, "-llua5.4", "-lyaml", "-lsodium"])
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.path("broken.so")

    def test_broken_template(self):
        """What a template's line breaks is told at lines of templates, both sides of it."""
        path = "templates/device/epilogue.cuh"
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            lines = file.read().split("\n")
        fence = lines.index("        fence_async_shared();") + 1
        broken = self.generator(path, fence, "fence_async_shared();", "")
        done = self.warploom("verify", *P.split(), "--schedules", "1", "--json",
                             WARPLOOM_GEN=broken)
        self.assertEqual(done.returncode, 6, done.stderr)
        row = next(row for row in json.loads(done.stdout) if row["rule"] == "proxy")
        with open(os.path.join(ROOT, "templates/parts/fwd_consume.in"), encoding="utf-8") as file:
            parts = file.read().split("\n")
        store = next(i for i, text in enumerate(parts, 1) if " store_rows(" in text)
        place = rf"templates/parts/fwd_consume\.in:{store}, called at "
        place += r"templates/parts/fwd_kernel\.in:\d+"
        self.assertRegex(row["where"], rf"^{place}$")
        self.assertRegex(row["text"], rf"written by warp \d+ \(stmatrix[a-z0-9.:]*, {place}, PTX ")
        self.assertNotIn(" line ", row["text"])

    def test_findings_of_run(self):
        source = self.warploom("emit", *P.split()).stdout
        self.write("x.cu", source.replace("wgmma_wait_all();", ""))
        done = self.warploom("run", *P.split(), "--random", "1", "--source", "x.cu", "--device",
                             "sim")
        self.assertEqual(done.returncode, 6)
        self.assertRegex(done.stderr, r"warploom: fwd_\S+: \d+ findings?\n"
                                      r"x\.cu:\d+(, called at x\.cu:\d+)?: wgmma")

    def test_doctor(self):
        done = self.warploom("doctor")
        self.assertRegex(done.stdout, r"simulator +ok +runs kernels with no GPU: --device sim\n")
        done = self.warploom("doctor", WARPLOOM_SIM="/none.so")
        self.assertRegex(done.stdout, r"simulator +missing +no simulator: /none\.so: ")


class Foreign(Simulator):
    """warploom sim: any kernel, launched as a file says."""

    def setUp(self):
        super().setUp()
        self.write("k.ptx", SCALE)
        self.write("x.npy", npy("<f4", "(100,)", 0) + struct.pack("<100f", *range(100)))

    def sim(self, launch, *args):
        self.write("l.json", launch if isinstance(launch, (str, bytes)) else json.dumps(launch))
        return self.warploom("sim", "k.ptx", "--launch", "l.json", *args)

    def test_scale(self):
        done = self.sim(LAUNCH)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, "scale: nothing found in 1 launches\n")
        with open(self.path("y.npy"), "rb") as file:
            data = file.read()
        self.assertEqual(struct.unpack("<100f", data[-400:]), tuple(x / 2 for x in range(100)))
        self.assertIn(b"'descr': '<f4', 'fortran_order': False, 'shape': (100,)", data)
        done = self.sim(LAUNCH, "--schedules", "3", "--json")
        self.assertEqual((done.returncode, done.stdout), (0, "[]\n"))

    def test_zeros(self):
        launch = {**LAUNCH, "buffers": {"x": {"shape": [10, 10], "type": "<f4", "out": "y.npy"}}}
        self.assertEqual(self.sim(launch).returncode, 0)
        with open(self.path("y.npy"), "rb") as file:
            self.assertTrue(file.read().endswith(bytes(400)))

    def test_beyond_the_end(self):
        launch = {**LAUNCH, "buffers": {"x": {"bytes": 200}}}
        done = self.sim(launch, "--json")
        self.assertEqual((done.returncode, done.stderr), (6, "warploom: scale: 2 findings\n"))
        self.assertEqual([row["where"] for row in json.loads(done.stdout)],
                         ["k.ptx:22", "k.ptx:24"])

    def expect(self, launch, message, code=2):
        done = self.sim(launch)
        self.assertEqual((done.returncode, done.stderr), (code, f"warploom: {message}\n"))

    def test_bad_launches(self):
        """What only the kernel can tell; test_foreign.c has what the file itself tells."""
        struct_of = LAUNCH["params"]
        invalid = "CUDA_ERROR_INVALID_VALUE"
        place = lambda launch, text: "l.json:1:%d" % (json.dumps(launch).index(text) + 1)
        self.expect("", "l.json:1:1: expected a value")
        self.expect(b"{\"entry\": \"\xff\x00\"}", "l.json:1:12: expected UTF-8")
        self.expect({**LAUNCH, "entry": "scal"}, "l.json:1:11: cuLibraryGetKernel: CUDA_ERROR_NOT_"
                    "FOUND (the image has no entry 'scal')")
        launch = {**LAUNCH, "params": struct_of[:1]}
        self.expect(launch, "l.json:1:11: scale takes more than 1 parameters; the next has 12 "
                    "bytes")
        launch = {**LAUNCH, "params": struct_of + [{"i8": 1}]}
        self.expect(launch, place(launch, '{"i8"') + ": scale takes 2 parameters")
        launch = {**LAUNCH, "params": [{"i32": 7}, struct_of[1]]}
        self.expect(launch, place(launch, '{"i32": 7') +
                    ": parameter 0 of scale has 8 bytes, this is 4")
        launch = {**LAUNCH, "params": [struct_of[0], {"struct": [{"i64": 7}]}]}
        self.expect(launch, place(launch, '{"struct"') +
                    ": parameter 1 of scale has 12 bytes, this is 8")
        launch = {**LAUNCH, "buffers": {"x": {"in": "none.npy"}}}
        self.expect(launch, "none.npy: cannot open: No such file or directory")
        launch = {**LAUNCH, "buffers": {"x": {"in": "k.ptx"}}}
        self.expect(launch, "k.ptx: not a .npy file: it does not begin with \\x93NUMPY")
        self.write("z.npy", npy("<f3", "(100,)", 400))
        launch = {**LAUNCH, "buffers": {"x": {"in": "z.npy"}}}
        self.expect(launch, "z.npy: elements '<f3' of shape (100,) are not read")
        self.write("z.npy", npy("<f4", "(100,)", 399))
        self.expect(launch, "z.npy: 399 bytes of data; its shape needs 400")
        launch = {**LAUNCH, "buffers": {"x": {"shape": [1 << 40], "type": "<f4"}}}
        done = self.sim(launch)
        self.assertRegex(done.stderr, r"^warploom: l\.json:1:\d+: cuMemAlloc: CUDA_ERROR_OUT_OF_"
                         r"MEMORY \(\d+ bytes asked for; this machine has \d+\)\n$")
        launch = {**LAUNCH, "block": [2000]}
        self.assertEqual(self.sim(launch).returncode, 2)
        self.assertIn("l.json:1:11: cuLaunchKernelEx: " + invalid, self.sim(launch).stderr)
        launch = {**LAUNCH, "grid": [5], "cluster": [2]}
        self.assertIn("cuLaunchKernelEx: " + invalid, self.sim(launch).stderr)

    def test_maps(self):
        launch = {"entry": "tma", "grid": [1], "block": [32], "buffers": {"z": {"bytes": 1024}},
                  "params": [MAP]}
        self.assertEqual(self.sim(launch).returncode, 0)
        launch["params"] = [{**MAP, "strides": [120]}]
        done = self.sim(launch)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"^warploom: l\.json:1:\d+: cuTensorMapEncodeTiled: "
                         r"CUDA_ERROR_INVALID_VALUE \(globalStrides\[0\] = 120: must be a "
                         r"multiple of 16\)\n$")

    def test_endless(self):
        self.write("k.ptx", SCALE.replace("$done:", "$done:\nbra $done;"))
        self.write("l.json", json.dumps(LAUNCH))
        done = self.warploom("sim", "k.ptx", "--launch", "l.json", WARPLOOM_SIM_STEPS="100000")
        self.assertEqual((done.returncode, done.stderr), (6, "warploom: scale: 1 findings\n"))
        self.assertIn("gave up after 100000 instructions", done.stdout)

    def test_bad_files(self):
        for args, message in ((["sim", "k.ptx"], "sim: expected FILE.ptx --launch FILE.json"),
                              (["sim", "none.ptx", "--launch", "x"],
                               "none.ptx: cannot open: No such file or directory"),
                              (["sim", "k.ptx", "--launch", "none.json"],
                               "none.json: cannot open: No such file or directory"),
                              (["sim"], "sim: FILE.ptx --launch FILE.json is missing; see "
                               "'warploom sim -h'"),
                              (["sim", "k.ptx", "--launch", "k.ptx", "--schedules", "0"],
                               "--schedules: expected 1 to 1000000, got '0'")):
            done = self.warploom(*args)
            self.assertEqual((done.returncode, done.stderr), (2, f"warploom: {message}\n"))
        self.write("k.ptx", SCALE.replace("mul.f32", "mul.f33"))
        self.expect(LAUNCH, "l.json:1:11: cuLibraryGetKernel: CUDA_ERROR_INVALID_PTX (k.ptx:23: "
                    "mul.f33: this instruction is not known here)")
        other = {"entry": "tma", "grid": [1], "block": [32], "buffers": {"z": {"bytes": 1024}},
                 "params": [MAP]}
        self.assertEqual(self.sim(other).returncode, 0)
        self.write("k.ptx", SCALE.replace("%f1;", "%f1,;"))
        done = self.sim(other)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^warploom: cuLibraryLoadData: CUDA_ERROR_INVALID_PTX "
                         r"\(k\.ptx:23: ")
        self.write("k.ptx", b"")
        self.assertEqual(self.sim(LAUNCH).returncode, 1)


if __name__ == "__main__":
    unittest.main()
