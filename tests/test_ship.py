"""test_ship.py - what is shipped: install, pkg-config, ABI, man pages, completion, the tarball.
SPDX-License-Identifier: BSD-3-Clause

test_ship.py --abi prints what tests/abi.txt must hold."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.path.join(ROOT, os.environ.get("BUILD", "build")))


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


HEADER = read("runtime/warploom.h")


def call(argv, cwd=ROOT, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("WARPLOOM_", "XDG_", "MAKE"))}
    env.update(more)
    return subprocess.run(argv, cwd=cwd, env=env, text=True, errors="replace", timeout=600,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def structs():
    """{name: fields} of the header's public structs."""
    code = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.S)
    found = {}
    for body, name in re.findall(r"typedef struct \{(.*?)\} (\w+);", code, re.S):
        body = re.sub(r"\w+ \(\*(\w+)\)\([^)]*\)", r"void *\1", body)
        names = [re.findall(r"\w+", re.sub(r"\[.*", "", piece))[-1]
                 for line in body.split(";") if line.strip() for piece in line.split(",")]
        found[name] = names
    return found


def abi():
    """Symbols, sizes, offsets and constants, a line each."""
    out = call(["nm", "-D", "--defined-only", BUILD + "/libwarploom.so.0"]).stdout.split("\n")
    lines = sorted(line.split()[2] for line in out if len(line.split()) == 3)
    dynamic = call(["readelf", "-d", BUILD + "/libwarploom.so.0"]).stdout
    lines.insert(0, "soname " + re.search(r"SONAME.*\[(.*)\]", dynamic)[1])
    code = '#include <stdio.h>\n#include "warploom.h"\nint main(void) {\n'
    for name, fields in structs().items():
        code += f'printf("{name} %zu\\n", sizeof({name}));\n'
        for field in fields:
            code += (f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), '
                     f'sizeof((({name} *)0)->{field}));\n')
    names = re.findall(r"\b(WL_\w+) = ", HEADER)
    names += ["WL_" + x for x in re.findall(r"^    X\((\w+), \d", HEADER, re.M)]
    for name in names:
        code += f'printf("{name} %d\\n", (int){name});\n'
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "abi")
        made = subprocess.run(["gcc", "-x", "c", "-", "-I" + ROOT + "/runtime", "-o", path],
                              input=code + "return 0; }\n", text=True, stderr=subprocess.PIPE)
        assert not made.returncode, made.stderr
        return "\n".join(lines) + "\n" + call([path]).stdout


PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <warploom.h>
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, size_t);
int cuMemsetD8_v2(unsigned long long, unsigned char, size_t);
int cuMemcpyDtoH_v2(void *, unsigned long long, size_t);
int main(void) {
    wl_context *ctx;
    void *cuda;
    unsigned long long at;
    static unsigned short out[64 * 64];
    wl_options options = {.size = sizeof options};
    wl_forward_args a = {.size = sizeof a};
    wl_tensor *tensors[] = {&a.q, &a.k, &a.v, &a.o};
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&cuda, 0) || cuCtxSetCurrent(cuda)) return 90;
    if (cuMemAlloc_v2(&at, 4 * sizeof out) || cuMemsetD8_v2(at, 0x3f, 4 * sizeof out)) return 91;
    for (int i = 0; i < 4; i++)
        *tensors[i] = (wl_tensor){(char *)at + i * sizeof out, WL_BF16, {1, 64, 1, 64},
                                  {64 * 64, 64, 64, 1}};
    if (wl_open(&ctx, &options) || wl_forward(ctx, &a)) return puts(wl_error()), 92;
    if (cuMemcpyDtoH_v2(out, (unsigned long long)a.o.data, sizeof out)) return 93;
    for (int i = 0; i < 64 * 64; i++) if (out[i] != 0x3f3f) return 94;
    wl_close(ctx);
    return strcmp(wl_version(), WARPLOOM_VERSION) ? 95 : 0;
}
"""


class Abi(unittest.TestCase):
    def test_is_the_committed_one(self):
        self.assertEqual(read("tests/abi.txt"), abi(),
                         "if it is meant: make abi, and say so in NEWS.md")

    def test_only_public_names_of_one_version(self):
        names = [x for x in abi().split("\n") if "@" in x]
        self.assertTrue(names and all(re.fullmatch(r"wl_\w+@@WARPLOOM_0", x) for x in names), names)


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.root = cls.temporary.name
        cls.made = call(["make", "--no-print-directory", "BUILD=" + BUILD, "DESTDIR=" + cls.root,
                         "PREFIX=/opt/w", "install"])
        cls.prefix = cls.root + "/opt/w"

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def test_a_program_by_pkg_config(self):
        self.assertEqual(self.made.returncode, 0, self.made.stderr)
        config = {"PKG_CONFIG_PATH": self.prefix + "/lib/pkgconfig"}
        flags = call(["pkg-config", "--define-variable=prefix=" + self.prefix, "--cflags", "--libs",
                      "warploom"], **config).stdout.split()
        self.assertEqual(flags, [f"-I{self.prefix}/include", f"-L{self.prefix}/lib", "-lwarploom"])
        version = call(["pkg-config", "--modversion", "warploom"], **config).stdout.strip()
        self.assertIn(f'WARPLOOM_VERSION "{version}"', HEADER)
        source, program = self.root + "/p.c", self.root + "/p"
        with open(source, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        simulator = self.prefix + "/lib/warploom/sim"
        done = call(["gcc", "-Wall", "-Werror", source, "-o", program, *flags,
                     simulator + "/libcuda.so.1", f"-Wl,-rpath,{self.prefix}/lib:{simulator}"])
        self.assertEqual(done.returncode, 0, done.stderr)
        needed = call(["readelf", "-d", program]).stdout
        self.assertIn("[libwarploom.so.0]", needed)
        env = {"HOME": self.root, "LD_LIBRARY_PATH": simulator}
        nvrtc = re.search(r"^nvrtc  *ok .*?(/\S*libnvrtc\S*?)[,;]?$",
                          call([BUILD + "/warploom", "doctor"]).stdout, re.M)
        if nvrtc:
            env["WARPLOOM_NVRTC"] = nvrtc[1]
        done = call([program], **env)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        command = call([self.prefix + "/bin/warploom", "--version"])
        self.assertEqual(command.stdout.split()[0], "warploom", command.stderr)

    def test_all_is_there(self):
        there = {os.path.relpath(os.path.join(folder, file), self.prefix)
                 for folder, _, files in os.walk(self.prefix) for file in files}
        for path in ("bin/warploom", "include/warploom.h", "lib/libwarploom.so",
                     "lib/libwarploom.so.0", "lib/pkgconfig/warploom.pc", "lib/warploom/warploom",
                     "lib/warploom/libwarploom.so.0", "lib/warploom/libwarploom-gen.so",
                     "lib/warploom/sim/libcuda.so.1", "share/man/man1/warploom.1",
                     "share/man/man3/libwarploom.3", "share/man/man5/warploom-spec.5",
                     "share/bash-completion/completions/warploom",
                     "share/doc/warploom/SECURITY.md"):
            self.assertIn(path, there)
        for path in there:  # no link leads out of the tree
            self.assertTrue(os.path.realpath(os.path.join(self.prefix, path)).startswith(
                os.path.realpath(self.root)), path)


    def test_odd_places(self):
        """Blanks in DESTDIR, a shy umask; a PREFIX that no file could name is refused."""
        place = self.root + "/a b"
        made = call(["sh", "-c", 'umask 077; exec make --no-print-directory "$@"', "sh",
                     "BUILD=" + BUILD, "DESTDIR=" + place, "PREFIX=", "install"])
        self.assertEqual(made.returncode, 0, made.stderr)
        for folder, _, files in os.walk(place + "/lib"):
            for path in [folder] + [os.path.join(folder, file) for file in files]:
                self.assertEqual(os.stat(path).st_mode & 0o444, 0o444, path)
        for prefix in ("rel", "/a&b", "/a b"):
            made = call(["make", "--no-print-directory", "BUILD=" + BUILD,
                         "DESTDIR=" + place + "/c", "PREFIX=" + prefix, "install"])
            self.assertEqual(made.returncode, 2)
            self.assertIn(f"PREFIX={prefix}: expected an absolute path of plain", made.stderr)
            self.assertFalse(os.path.exists(place + "/c"))


class Pages(unittest.TestCase):
    @unittest.skipUnless(shutil.which("groff"), "no groff")
    def test_without_warnings(self):
        for page in ("warploom.1", "libwarploom.3", "warploom-spec.5"):
            done = call(["groff", "-man", "-ww", "-Tutf8", "-z",
                         os.path.join(ROOT, "runtime/share/man", page)])
            self.assertEqual((done.returncode, done.stderr), (0, ""), page)

    def test_every_option_word_and_variable(self):
        """What is there is told, and what is told is there."""
        page = read("runtime/share/man/warploom.1").replace("\\-", "-").replace("\\fR", "")
        options = set(re.findall(r'X\(\w+, "(-[\w-]+)"', read("runtime/cli.h")))
        self.assertGreater(len(options), 20)
        self.assertEqual(set(re.findall(r"(?<![\w-])--[a-z][\w-]*", page)) - {"--"} | {"-h", "-o"},
                         options)
        told = page.split(".SH OPTIONS")[1].split(".SH EXIT")[0]
        for option in options:
            self.assertRegex(told, rf"\n\.BI?R? {option}\b", option)
        for file in (x for x in os.listdir(ROOT + "/runtime") if x.endswith(".c")):
            for columns in re.findall(r"column\[\] = {(.*?)}", read("runtime/" + file), re.S):
                for key in re.findall(r'"#?(\w+)"', columns):
                    self.assertRegex(told, rf"\b{key}\b", (file, key))
        for command in ("bundle", "cache"):
            words = re.findall(r'^    {"([\w-]+)", ', read(f"runtime/cli_{command}.c"), re.M)
            self.assertGreater(len(words), 5)
            synopsis = re.search(rf"\.B warploom {command}\n\.BR ([^\n]+)", page)[1]
            self.assertEqual(synopsis.split(" | "), words)
            for word in words:
                self.assertRegex(
                    page, rf"(?m)^\.BI? \"?({command} )?{word}( |$)|, {command} {word} ")
        names = set()
        for folder in ("gen", "runtime", "runtime/sim"):
            for file in os.listdir(os.path.join(ROOT, folder)):
                if file.endswith((".c", ".h", ".def")):
                    names |= set(re.findall(r'"(WARPLOOM_[A-Z_]+)"', read(f"{folder}/{file}")))
        told = page.split(".SH ENVIRONMENT")[1]
        self.assertEqual(set(re.findall(r"WARPLOOM_[A-Z_]+", told)), names)

    def test_every_function_and_its_threads(self):
        page = read("runtime/share/man/libwarploom.3")
        names = set(re.findall(r"WARPLOOM_API [^;(]*?\b(wl_\w+)\(", HEADER))
        synopsis, threads = page.split(".SH DESCRIPTION")[0], page.split(".SH THREADS")[1]
        self.assertEqual(set(re.findall(r"\b(wl_\w+)\(", synopsis)), names)
        self.assertEqual(set(re.findall(r"\\fB(wl_\w+)\\fR +\w", threads)), names)
        for name in names - {"wl_status_text", "wl_version"}:
            at = re.search(rf"WARPLOOM_API [^;(]*?\b{name}\(", HEADER).start()
            self.assertIn("Threads:", HEADER[:at].rsplit("/*", 1)[1], name)
            self.assertRegex(HEADER[:at], r"\*/\n$", name)

    def test_every_key_of_a_spec(self):
        page = read("runtime/share/man/warploom-spec.5")
        schema = read("gen/schema.lua")
        for shape in re.findall(r"local \w+_shape = \{(.*?)\}\n\n?l", schema, re.S):
            for key in re.findall(r'\{"(\w+)"', shape):
                self.assertRegex(page, r"\b" + key + r"\b")


class Completion(unittest.TestCase):
    def complete(self, *words, lines=False):
        script = (f". {ROOT}/runtime/share/warploom.bash; COMP_WORDS=(\"$@\"); "
                  "COMP_CWORD=$(($# - 1)); _warploom \"$1\"; printf '%s\\n' \"${COMPREPLY[@]}\"")
        done = call(["bash", "-c", script, "bash", BUILD + "/warploom", *words], cwd="/")
        self.assertEqual(done.stderr, "")
        return done.stdout.splitlines() if lines else done.stdout.split()

    def test_commands_options_words(self):
        self.assertEqual(self.complete("expl"), ["explain"])
        self.assertLess({"run", "emit", "verify"}, set(self.complete("")))
        self.assertEqual(self.complete("run", "--ran"), ["--random"])
        self.assertEqual(self.complete("run", "head_"), ["head_dim=", "head_dim_v="])
        self.assertEqual(self.complete("run", "--source", "us"), ["usr"])
        self.assertEqual(self.complete("bundle", "key"), ["keygen"])
        self.assertEqual(self.complete("cache", "ex"), ["export", "explain-key"])
        self.assertEqual(self.complete("bundle", "build", "--ke"), ["--key"])
        self.assertEqual(self.complete("bundle", "ls", "--fo"), ["--for"])
        self.assertEqual(self.complete("bundle", "build", "--arch", "c"), ["compute_90a"])
        self.assertEqual(self.complete("run", "--device", ""), ["gpu", "sim"])
        for option in ("-o", "--key", "--record", "--workload"):
            self.assertEqual(self.complete("bundle", "build", option, "us"), ["usr"], option)

    def test_names_with_blanks(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(folder + "/a b.yaml", "w", encoding="utf-8"):
                pass
            self.assertEqual(self.complete("check", folder + "/a", lines=True),
                             [folder + "/a b.yaml"])


class Help(unittest.TestCase):
    def test_every_command_that_takes_a_problem_takes_a_spec(self):
        def told(*words):
            return call([BUILD + "/warploom", *words, "-h"]).stdout
        commands = re.findall(r"^  ([a-z]+) +.*PROBLEM", told(), re.M)
        self.assertGreater(len(commands), 6)
        for command in commands:
            self.assertIn("--spec FILE", told(command), command)


class Tarball(unittest.TestCase):
    @unittest.skipUnless(os.path.exists(ROOT + "/.git"), "no repository")
    def test_the_same_twice_and_builds(self):
        with tempfile.TemporaryDirectory() as folder:
            packed = []
            with open(folder + "/.gitconfig", "w", encoding="utf-8") as file:
                file.write("[tar]\n umask = 0077\n[core]\n autocrlf = true\n")
            for i in "ab":
                done = call(["make", "--no-print-directory", f"BUILD={folder}/{i}", "dist"],
                            TZ="Asia/Tokyo" if i == "a" else "UTC", LC_ALL="C",
                            GZIP="-1" if i == "a" else "-5",
                            HOME=folder if i == "a" else "/nowhere")
                self.assertEqual(done.returncode, 0, done.stderr)
                path, = [os.path.join(folder, i, x) for x in os.listdir(os.path.join(folder, i))]
                with open(path, "rb") as file:
                    packed.append(file.read())
            self.assertEqual(packed[0], packed[1])
            call(["tar", "xzf", path, "-C", folder])
            tree, = [os.path.join(folder, x) for x in os.listdir(folder) if x.startswith("warp")]
            self.assertEqual(call(["make", "BUILD=build", "dist"], cwd=tree).returncode, 2)
            done = call(["make", "--no-print-directory", "-s", "-j2", "OPT=-O0",
                         "BUILD=build", "all"], cwd=tree)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(call([tree + "/build/warploom", "check"]).returncode, 0)


if __name__ == "__main__":
    if "--abi" in sys.argv:
        sys.stdout.write(abi())
    else:
        unittest.main()
