"""test_bundle.py - the command bundle; programs that have nothing but a bundle.
SPDX-License-Identifier: BSD-3-Clause

Command runs over the fake NVRTC, but for what says otherwise; Real compiles, and runs in the
simulator.
"""
import hashlib
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests"))
sys.dont_write_bytecode = True
import offline  # noqa: E402

BUILD = os.path.abspath(os.path.join(ROOT, os.environ.get("BUILD", "build")))
COMMAND = os.path.join(BUILD, "warploom")
ONE = "head_dim=64 dtype=fp16 mask=none layout=bshd seq_q=64 lse=no"
TWO = "head_dim=64 dtype=bf16 mask=causal layout=bshd heads=4 seq_q=512"
NAME = "fwd_d64_fp16_none_m64n64_s7_w1_opt_dyn_p248c248"


class Base(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = self.temporary.name
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("WARPLOOM_", "XDG_"))}
        self.env.update(WARPLOOM_CACHE_DIR=self.path("cache"), WARPLOOM_LIBCUDA="/none",
                        HOME=self.folder)

    def tearDown(self):
        self.temporary.cleanup()

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return self.path(name)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def run_it(self, *args, code=0, **env):
        done = subprocess.run([COMMAND, *args], env={**self.env, **env}, text=True, cwd=self.folder,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=300)
        self.assertEqual(done.returncode, code, (args, done.stdout, done.stderr))
        return done

    def bundle(self, *args, **options):
        return self.run_it("bundle", *args, **options)

    def rows(self, *args, **options):
        return json.loads(self.bundle(*args, "--json", **options).stdout)

    def build(self, name, *args, **options):
        return self.bundle("build", "-o", name, *args, **options)


class Command(Base):
    def setUp(self):
        super().setUp()
        self.env.update(WARPLOOM_NVRTC=BUILD + "/libfake_nvrtc.so")

    def test_words_are_checked(self):
        self.write("key", "abc\n")
        self.write("used", "k nonsense\n")
        self.write("gone", "k " + "ab" * 32 + " fwd_x\n")
        self.write("empty", "")
        self.write("work", "# two\n\nhead_dim=64\n")
        self.write("cut", f"# {NAME}\n\0\n{NAME}\n")
        self.build("a.wlb", NAME)
        for args, code, text in [
                (("biuld",), 2, "bundle: unknown word 'biuld'; did you mean 'build'?"),
                (("zzzzzzzz",), 2, "bundle: unknown word 'zzzzzzzz'; see 'warploom bundle -h'"),
                (("ls",), 2, "bundle ls: expected FILE"),
                (("diff", "a", "b", "c"), 2, "bundle diff: expected FILE FILE"),
                (("keygen", "x"), 2, "bundle keygen takes no operand, got 'x'"),
                (("keygen",), 2, "bundle keygen: -o is missing: the file of the secret key"),
                (("keygen", "-o", "key"), 1, "key: cannot write the key: File exists"),
                (("sign", "a.wlb"), 2, "bundle sign: --key is missing: the secret key's file"),
                (("sign", "a.wlb", "--key", "key"), 2, "key: no secret key of `warploom bundle ke"),
                (("ls", "none"), 2, "none: cannot open: No such file or directory"),
                (("ls", "key"), 2, "key: no bundle of warploom"),
                (("ls", "a.wlb", "--driver", "new"), 2,
                 "--driver: expected a CUDA version, as 12.4, got 'new'"),
                (("build", "-o", "x", NAME, "--key", "key"), 2,
                 "bundle build: --key is not for it; it takes --json, --spec, -o, --workload, "),
                (("verify", "a.wlb", "-o", "x"), 2, "bundle verify: -o is not for it; it takes"),
                (("keygen", "--json", "-o", "x"), 2, "bundle keygen: --json is not for it; it tak"),
                (("merge", "a.wlb"), 2, "bundle merge: -o is missing: the bundle to write"),
                (("extract", "a.wlb", "-o", "key/x"), 1,
                 "key/x: cannot make the folder: Not a directory"),
                (("link", "a.wlb"), 2, "bundle link: -o is missing: the object, as attn.o"),
                (("link", "key", "-o", "x.o"), 2, "key: no bundle of warploom"),
                (("build", NAME), 2, "bundle build: -o is missing: the file to write"),
                (("build", "-o", "x"), 2, "bundle build: give PROBLEM or NAME, --workload FILE"),
                (("build", "-o", "x", "--arch", "sm_80", NAME), 2,
                 "--arch: expected sm_90a, or compute_90a for the simulator, got 'sm_80'"),
                (("build", "-o", "x", "--workload", "work"), 2,
                 "work:3: problem: dtype is missing: bf16, fp16, e4m3 or e5m2"),
                (("build", "-o", "x", "--workload", "cut"), 2,
                 "cut: has a NUL byte: expected text, a problem a line"),
                (("build", "-o", "x", "fwd_none"), 2, "fwd_none"),
                (("build", "-o", "x", "--record", "used"), 2,
                 "used:1: no line that WARPLOOM_RECORD writes"),
                (("build", "-o", "x", "--record", "gone"), 1,
                 "gone:1: fwd_x was used, and is in no layer now"),
                (("build", "-o", "x", "--record", "cut"), 2,
                 "cut: has a NUL byte: expected text, lines that WARPLOOM_RECORD writes"),
                (("build", "-o", "x", "--record", "empty"), 1,
                 "bundle build: nothing to pack: no kernel of warploom was used"),
                (("record", "-o", "x", "--", "false"), 1,
                 "bundle record: false ended with exit code 1: nothing is written"),
                (("record", "-o", "x", "--", "/none"), 1, "ended with exit code 127"),
                (("record", "-o", "x", "--", "true"), 1, "bundle record: nothing to pack"),
                (("record", "true"), 2, "bundle record: -o is missing: the file to write")]:
            with self.subTest(args=args):
                self.assertIn(text, self.bundle(*args, code=code).stderr)
        self.assertEqual(sorted(os.listdir(self.folder)),
                         ["a.wlb", "cache", "cut", "empty", "gone", "key", "used", "work"])

    def test_the_same_bytes_whatever_the_way(self):
        self.write("work", f"# a problem or a name a line\n{TWO} # here\n\n  {NAME}\n{ONE}\n")
        self.build("a.wlb", ONE, TWO, NAME)
        self.build("b.wlb", "--workload", "work", WARPLOOM_CACHE_DIR=self.path("other"))
        self.build("c.wlb", "--workload", "work", WARPLOOM_CACHE="off")
        self.build("d.wlb", *ONE.split(), TWO, NAME)
        one = {name: self.read(name) for name in ("a.wlb", "b.wlb", "c.wlb", "d.wlb")}
        self.assertEqual(len(set(one.values())), 1)
        rows = self.rows("ls", "a.wlb")
        self.assertEqual([r["kind"] for r in rows], ["choice"] * 3 + ["kernel"] * 2)
        self.assertEqual({r["refused"] for r in rows}, {"-"})

    def test_one_core_or_all_and_a_terminal(self):
        self.build("a.wlb", ONE, TWO)
        parent, child = pty.openpty()
        self.env["WARPLOOM_CACHE_DIR"] = self.path("fresh")
        done = subprocess.run([COMMAND, "bundle", "build", "-o", "b.wlb", ONE, TWO], env=self.env,
                              cwd=self.folder, stdin=subprocess.DEVNULL, stderr=child,
                              stdout=subprocess.PIPE, preexec_fn=lambda: os.sched_setaffinity(
                                  0, {min(os.sched_getaffinity(0))}))
        os.close(child)
        shown = os.read(parent, 4096).decode()
        os.close(parent)
        self.assertEqual(done.returncode, 0, shown)
        self.assertIn("[1/2] compiled", shown)
        self.assertEqual(self.read("a.wlb"), self.read("b.wlb"))

    def test_a_killed_build_goes_on(self):
        """Nothing half-written is left, and what was compiled is not compiled again."""
        done = self.build("none/a.wlb", ONE, code=1)
        self.assertIn("none/a.wlb: cannot write: No such file or directory", done.stderr)
        self.build("a.wlb", ONE, WARPLOOM_NVRTC="/none")
        for i in range(8):
            self.env["WARPLOOM_CACHE_DIR"] = self.path(f"killed{i}")
            process = subprocess.Popen([COMMAND, "bundle", "build", "-o", "b.wlb", ONE, TWO],
                                       env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(0.004 * i)
            process.send_signal(signal.SIGKILL)
            process.wait()
            if os.path.exists(self.path("b.wlb")):
                self.bundle("verify", "b.wlb")
            self.build("b.wlb", ONE, TWO)
            self.bundle("verify", "b.wlb")
            os.unlink(self.path("b.wlb"))

    def test_several_processes_are_recorded(self):
        self.build("both.wlb", ONE, TWO)
        script = f"{COMMAND} compile '{ONE}' & {COMMAND} compile '{TWO}' & wait"
        self.bundle("record", "-o", "used.wlb", "--", "sh", "-c", script)
        self.assertEqual(self.read("used.wlb"), self.read("both.wlb"))

    def test_a_command_may_change_its_folder(self):
        self.build("a.wlb", ONE)
        os.mkdir(self.path("sub"))
        before = set(os.listdir(self.folder)) | {"used.wlb", "used"}
        script = f"cd sub && {COMMAND} compile '{ONE}'"
        self.bundle("record", "-o", "used.wlb", "--", "sh", "-c", script)
        self.assertEqual(self.read("used.wlb"), self.read("a.wlb"))
        self.run_it("compile", ONE, WARPLOOM_RECORD="used")
        self.assertEqual((set(os.listdir(self.folder)), os.listdir(self.path("sub"))), (before, []))

    def test_an_interrupted_command(self):
        """^C goes to it and to us: it ends as it likes, and we leave nothing behind."""
        for script, code, said in (("echo; read x", 130, "bundle record: interrupted"),
                                   ("trap 'exit 3' INT; echo; read x", 1, "exit code 3")):
            process = subprocess.Popen([COMMAND, "bundle", "record", "-o", "x", "--", "bash", "-c",
                                        script], env=self.env, cwd=self.folder, text=True,
                                       start_new_session=True, stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            process.stdout.readline()
            os.killpg(process.pid, signal.SIGINT)
            errors = process.communicate(timeout=60)[1]
            self.assertEqual(process.returncode, code, errors)
            self.assertIn(said, errors)
            self.assertEqual(os.listdir(self.folder), [])

    def test_odd_files_of_misses_and_records(self):
        """A FIFO is not waited for; a last line that nobody ended is ended."""
        os.mkfifo(self.path("fifo"))
        run = ("run", *ONE.split(), "--random", "1")
        lacking = {"WARPLOOM_JIT": "off", "WARPLOOM_CACHE": "off", "WARPLOOM_GEN": "/none",
                   "WARPLOOM_LIBCUDA": BUILD + "/sim/libcuda.so.1"}
        self.write("misses", TWO)
        for name in ("fifo", ".", "/none/misses", "misses"):
            self.assertIn("For a bundle, add", self.run_it(*run, code=4, **lacking,
                                                           WARPLOOM_MISSES=name).stderr)
        self.assertRegex(self.read("misses").decode(), rf"^{TWO}\nvariant=.*seq_k=64\n$")
        for name in ("fifo", "."):
            self.run_it("compile", ONE, WARPLOOM_RECORD=name)

    def test_memory_that_goes_or_is_none(self):
        """A library with a bundle in it stays when it is closed; what is none serves nobody."""
        self.build("a.wlb", ONE)
        self.bundle("link", "a.wlb", "-o", "attn.o")
        subprocess.run(["gcc", "-shared", "attn.o", "-L" + BUILD, "-lwarploom", "-o", "plug.so"],
                       cwd=self.folder, check=True)
        script = """if 1:
            import ctypes, _ctypes
            w = ctypes.CDLL(%r)
            def use():
                ctx = ctypes.c_void_p()
                print(w.wl_open(ctypes.byref(ctx), None), flush=True)
                w.wl_close(ctx)
            plug = ctypes.CDLL("./plug.so")
            use()
            _ctypes.dlclose(plug._handle)
            use()
            w.wl_bundle_add(None, ctypes.c_size_t(1 << 20))
            w.wl_bundle_add(b"no bundle", ctypes.c_size_t(9))
            use()
            """ % (BUILD + "/libwarploom.so.0")
        done = subprocess.run([sys.executable, "-c", script], cwd=self.folder, capture_output=True,
                              env={**self.env, "WARPLOOM_LIBCUDA": BUILD + "/libfake_cuda.so",
                                   "LD_LIBRARY_PATH": BUILD}, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, "0\n0\n0\n"), done.stderr)

    def test_diff_merge_extract(self):
        self.build("a.wlb", ONE)
        self.build("b.wlb", TWO)
        self.build("both.wlb", ONE, TWO)
        self.bundle("merge", "-o", "merged.wlb", "a.wlb", "b.wlb", "a.wlb")
        self.assertEqual(self.read("merged.wlb"), self.read("both.wlb"))
        self.assertEqual(self.bundle("diff", "both.wlb", "merged.wlb").stdout, "")
        done = self.bundle("diff", "a.wlb", "both.wlb", code=1)
        self.assertIn("a.wlb and both.wlb differ in 2 entries", done.stderr)
        self.assertIn("only in the second", done.stdout)
        # the same key, another image: the first stays
        self.build("new.wlb", ONE, WARPLOOM_CACHE="off", FAKE_NVRTC_IMAGE="another")
        self.assertIn("differs", self.bundle("diff", "a.wlb", "new.wlb", code=1).stdout)
        done = self.bundle("merge", "-o", "merged.wlb", "a.wlb", "new.wlb")
        self.assertIn("another one is there already, and stays", done.stderr)
        self.assertEqual(self.read("merged.wlb"), self.read("a.wlb"))
        self.bundle("extract", "a.wlb", "-o", "out")
        names = sorted(os.listdir(self.path("out")))
        self.assertRegex(names[0], rf"^{NAME}-[0-9a-f]{{12}}\.cubin$")
        self.assertRegex(names[1], r"^variant=fwd-head_dim=64-.*\.choice$")
        self.assertEqual(self.read("out/" + names[0])[:4], b"\x7fELF")

    def forge(self, data, offset, value):
        """With the digest made right again: BLAKE2b over fields, each behind its length."""
        data = bytearray(data)
        data[offset:offset + len(value)] = value
        size, = struct.unpack_from("<I", data, 12)
        fields = (data[8:16], data[144:144 + size])
        text = b"".join(struct.pack("<Q", len(f)) + f for f in fields)
        data[112:144] = hashlib.blake2b(text, digest_size=32).digest()
        return bytes(data)

    def test_verify(self):
        self.build("a.wlb", ONE)
        self.assertRegex(self.bundle("verify", "a.wlb").stdout,
                         r"^a.wlb: ok: 2 entries, \d+ bytes, digest [0-9a-f]{64}, unsigned\n$")
        told, = self.rows("verify", "a.wlb")
        self.assertEqual((told["file"], told["entries"], told["signer"]), ("a.wlb", 2, "-"))
        good = self.read("a.wlb")
        for at in range(0, len(good), 97):
            self.write("bad.wlb", good[:at] + bytes([good[at] ^ 4]) + good[at + 1:])
            self.bundle("verify", "bad.wlb", code=2 if at < 12 else 6)
        self.bundle("keygen", "-o", "key")
        for args in (("sign", "bad.wlb", "--key", "key"), ("link", "bad.wlb", "-o", "x.o")):
            self.assertIn("it has another digest than the index states",
                          self.bundle(*args, code=6).stderr)
        self.write("bad.wlb", good[:-1])
        self.assertIn("damaged", self.bundle("verify", "bad.wlb", code=6).stderr)
        self.write("bad.wlb", self.forge(good, 144 + 112 + 112 + 32 + 32 + 8 + 20, b"sm_80\0"))
        self.assertIn("its image is of another arch or toolkit than the index states",
                      self.bundle("verify", "bad.wlb", code=6).stderr)
        self.write("old.wlb", self.forge(good, 144 + 16, b"\1" * 32))
        self.assertIn("a.wlb and old.wlb: made by other generators or with other specs",
                      self.bundle("merge", "-o", "x", "a.wlb", "old.wlb", code=2).stderr)
        done = self.run_it("doctor", WARPLOOM_BUNDLES="old.wlb:a.wlb")
        self.assertRegex(done.stdout, r"bundle old.wlb +missing +refused: made by warploom 0.1.0, ")
        self.assertRegex(done.stdout, r"bundle a.wlb +ok +2 entries, ")
        # a choice alone
        self.bundle("record", "-o", "x.wlb", "--", COMMAND, "compile", ONE)
        record = f"c {self.rows('ls', 'a.wlb')[0]['key']}"
        self.assertEqual(self.read("x.wlb"), good)
        self.run_it("compile", ONE, WARPLOOM_RECORD=self.path("used"))
        lines = self.read("used").decode().splitlines()
        self.assertTrue(lines[0].startswith(record) and lines[1].startswith("k "), lines)
        self.write("used", lines[0] + "\n")
        self.build("half.wlb", "--record", "used")
        self.assertIn("is not in the bundle", self.bundle("verify", "half.wlb", code=6).stderr)

    def test_a_name_is_no_row(self):
        self.build("a.wlb", ONE)
        good = self.read("a.wlb")
        at = good.find(NAME.encode())
        self.write("bad.wlb", self.forge(good, at, b"a\n\x1b[2J"))
        shown = self.bundle("ls", "bad.wlb").stdout
        self.assertEqual(shown.count("\n"), 3, shown)
        self.assertIn("kernel  a\\x0a\\x1b[2J", shown)

    def test_who_can_be_served(self):
        self.build("a.wlb", ONE)
        for args, why in ((("--for", "sm_100a"), "is for sm_90a, not for sm_100a"),
                          (("--for", "sm_90a", "--driver", "12.4"), "-")):  # no toolkit stated
            for row in self.rows("ls", "a.wlb", *args):
                self.assertTrue(row["refused"].endswith(why), row)

    def test_explain_tells_the_layers(self):
        self.build("a.wlb", ONE)
        for jit in ("on", "off"):
            text = self.run_it("explain", ONE, WARPLOOM_BUNDLES="none.wlb:a.wlb", WARPLOOM_JIT=jit,
                               WARPLOOM_CACHE="off").stdout
            self.assertRegex(text, r"\nlayers\n  linked-in  none\n  bundle none.wlb  refused: .*\n"
                                   rf"  bundle a.wlb  has it\n  cache  turned off\n  JIT  {jit}\n")

    def test_keys(self):
        self.build("a.wlb", ONE)
        shown = self.bundle("keygen", "-o", "key").stdout
        self.assertRegex(shown, r"^[0-9a-f]{64}\n$")
        self.assertEqual(os.stat(self.path("key")).st_mode & 0o777, 0o600)
        self.bundle("keygen", "-o", "other")
        self.write("mine.pub", "mine")
        self.assertIn("mine.pub: cannot write the key: File exists",
                      self.bundle("keygen", "-o", "mine", code=1).stderr)
        self.assertEqual((self.read("mine.pub"), os.path.exists(self.path("mine"))),
                         (b"mine", False))
        plain = self.read("a.wlb")
        self.assertIn("unsigned, and only keys",
                      self.bundle("verify", "a.wlb", code=6, WARPLOOM_TRUST="key.pub").stderr)
        for args, text in ((("sign", "a.wlb", "--key", "key.pub"), "key.pub: no secret key of"),
                           (("link", "a.wlb", "-o", "x.o"), "a.wlb: unsigned, and only keys")):
            self.assertIn(text, self.bundle(*args, code=2 if args[0] == "sign" else 6,
                                            WARPLOOM_TRUST="key.pub").stderr)
        self.assertIn("key:1: expected a public key",
                      self.bundle("ls", "a.wlb", code=2, WARPLOOM_TRUST="key").stderr)
        self.bundle("sign", "a.wlb", "--key", "key", "-o", "signed.wlb")
        self.assertEqual(self.read("a.wlb"), plain)
        done = self.bundle("verify", "signed.wlb", WARPLOOM_TRUST="key.pub")
        self.assertTrue(done.stdout.endswith(" signed by " + shown))
        self.assertIn("is no key of WARPLOOM_TRUST",
                      self.bundle("ls", "signed.wlb", code=6, WARPLOOM_TRUST="other.pub").stderr)
        self.bundle("sign", "signed.wlb", "--key", "other")
        self.bundle("verify", "signed.wlb", WARPLOOM_TRUST="other.pub")
        self.assertEqual(self.bundle("diff", "signed.wlb", "a.wlb").stdout, "")


class Real(Base):
    def test_record_misses_and_link(self):
        """What a program used is what is built for it; a miss is what the next bundle needs."""
        env = {"WARPLOOM_LIBCUDA": BUILD + "/sim/libcuda.so.1"}
        run = [COMMAND, "run", *ONE.split(), "--random", "1", "--check"]
        self.bundle("record", "-o", "used.wlb", "--", *run, **env)
        self.build("built.wlb", "--arch", "compute_90a", ONE)
        self.assertEqual(self.read("used.wlb"), self.read("built.wlb"))
        self.assertEqual({r["toolkit"] for r in self.rows("ls", "built.wlb")}, {"-", "13.0"})
        bare = {**env, "WARPLOOM_CACHE": "off", "WARPLOOM_JIT": "off", "WARPLOOM_GEN": "/none",
                "WARPLOOM_NVRTC": "/none", "WARPLOOM_MISSES": self.path("misses")}
        done = self.run_it(*run[1:], code=4, **bare)
        self.assertIn("linked-in: none; bundles: none; cache", done.stderr)
        self.build("missed.wlb", "--arch", "compute_90a", "--workload", "misses")
        self.assertEqual(self.read("missed.wlb"), self.read("built.wlb"))
        self.run_it(*run[1:], WARPLOOM_BUNDLES="missed.wlb", **bare)

        # a program and a library with bundles inside
        self.bundle("link", "built.wlb", "-o", "attn.o")
        for flags in (["-pie", "-fPIE"], ["-no-pie"]):
            made = subprocess.run(["gcc", "-O0", *flags, ROOT + "/tests/offline.c", "attn.o",
                                   "-I" + ROOT + "/runtime", "-L" + BUILD, "-lwarploom", "-lm",
                                   "-ldl", "-Wl,-rpath," + BUILD, "-Wl,--gc-sections",
                                   "-Wl,--fatal-warnings", "-o", "program"],
                                  cwd=self.folder, capture_output=True, text=True)
            self.assertEqual(made.returncode, 0, made.stderr)
            done = subprocess.run(["./program"], cwd=self.folder, capture_output=True, text=True,
                                  env={**self.env, **bare, "LD_LIBRARY_PATH": BUILD + "/sim"})
            self.assertRegex(done.stdout, r"\nright: ", done.stdout + done.stderr)
        program = self.path("program")
        faults, text = offline.run(None, BUILD + "/sim/libcuda.so.1", program=program)
        self.assertEqual(faults, [], text)

    def test_nothing_else_is_needed(self):
        """A root of libc, libsodium, libzstd, libcuda and a bundle: see offline.py."""
        self.build("attn.wlb", "--arch", "compute_90a", ONE)
        libcuda = BUILD + "/sim/libcuda.so.1"
        faults, text = offline.run(self.path("attn.wlb"), libcuda)
        self.assertEqual(faults, [], text)
        needed = subprocess.run(["readelf", "-d", BUILD + "/libwarploom.so"], capture_output=True,
                                text=True).stdout
        needed = re.findall(r"NEEDED.*\[(\S+)\]", needed)
        self.assertIn("libzstd.so.1", needed)
        self.assertTrue(all(offline.ALLOWED.fullmatch(name) for name in needed), needed)


if __name__ == "__main__":
    unittest.main()
