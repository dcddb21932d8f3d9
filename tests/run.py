"""run.py - `make check`: runs every test, prints what fails, then `N passed, N failed`.
SPDX-License-Identifier: BSD-3-Clause

run.py            everything that needs no GPU
run.py NAME…      the checks whose name begins so
run.py --all      the covering set's larger sister: every listed candidate is emitted, too
run.py --size     lines by module; fails above the limits in the Makefile
run.py -v         what each check passed, and how long it took
BUILD names the build folder.
"""
import collections
import concurrent.futures
import ctypes
import glob
import itertools
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.path.join(ROOT, os.environ.get("BUILD", "build")))
sys.path.insert(0, os.path.join(ROOT, "tests"))
sys.dont_write_bytecode = True
import test_cli  # noqa: E402
import test_masks  # noqa: E402

JOBS = 2
SANITIZE = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
COVERAGE = "-O0 -g --coverage"


class Result:
    """What a check found: how many things hold, and a text for each that does not."""

    def __init__(self, passed=0, failures=None):
        self.passed = passed
        self.failures = failures or []

    def expect(self, holds, text):
        if holds:
            self.passed += 1
        else:
            self.failures.append(text)


def environment(**more):
    """Ours, without what would steer warploom."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("WARPLOOM_", "XDG_"))}
    env.update(more)
    return env


def call(argv, cwd=ROOT, timeout=600, **env):
    return subprocess.run(argv, cwd=cwd, env=environment(**env), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          errors="replace", timeout=timeout)


def warploom(*args, **options):
    """The command with no cache, unless a check brings its own."""
    return call([os.path.join(BUILD, "warploom"), *args], **{"WARPLOOM_CACHE": "off", **options})


def make(build, opt):
    """A build of its own, with the deps folder of the main one."""
    os.makedirs(build, exist_ok=True)
    deps = os.path.join(build, "deps")
    if os.path.isdir(os.path.join(BUILD, "deps")) and not os.path.exists(deps):
        os.symlink(os.path.join(BUILD, "deps"), deps)
    return call(["make", "--no-print-directory", "-s", "BUILD=" + build, "OPT=" + opt, "tests"])


# ---- the generator, asked directly ----

class Buffer(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("room", ctypes.c_size_t)]


class Generator:
    def __init__(self, path=None):
        self.lib = ctypes.CDLL(path or os.path.join(BUILD, "libwarploom-gen.so"))
        self.lib.wl_gen_error.restype = ctypes.c_char_p
        self.handle = ctypes.c_void_p()
        if self.lib.wl_gen_open(ctypes.byref(self.handle)):
            raise RuntimeError(self.lib.wl_gen_error().decode())

    def add(self, text, path="t.yaml"):
        data = text.encode()
        if self.lib.wl_gen_spec(self.handle, path.encode(), data, ctypes.c_size_t(len(data))):
            raise RuntimeError(self.lib.wl_gen_error().decode())
        return self

    def ask(self, verb, arg=""):
        out = Buffer()
        if self.lib.wl_gen_call(self.handle, verb.encode(), arg.encode(), ctypes.byref(out)):
            raise RuntimeError(self.lib.wl_gen_error().decode())
        return ctypes.string_at(out.data, out.size).decode() if out.size else ""


# ---- checks ----

def programs(build, **env):
    """Every unit test of a build, in a home of its own; each prints `N passed, N failed` last."""
    result = Result()
    names = [os.path.basename(p)[:-2] for p in sorted(glob.glob(ROOT + "/tests/test_*.c"))]
    for program in (os.path.join(build, name) for name in names):
        with tempfile.TemporaryDirectory() as home:
            done = call([program], timeout=300, HOME=home, **env)
        last = (done.stdout.strip().splitlines() or [""])[-1]
        totals = re.fullmatch(r"(\d+) passed, (\d+) failed", last)
        result.passed += int(totals[1]) if totals else 0
        if not totals or done.returncode or int(totals[2]):
            result.failures.append(f"{program}: exit {done.returncode}\n{done.stdout[-4000:]}"
                                   f"{done.stderr[-4000:]}")
    return result


def check_unit():
    return programs(BUILD)


def check_cli():
    return Result(*test_cli.run(BUILD))


def check_bad():
    """tests/bad/X.yaml gives exactly tests/bad/X.expect, and exit code 3."""
    result = Result()
    for path in sorted(glob.glob(os.path.join(ROOT, "tests/bad/*.yaml"))):
        name = os.path.relpath(path, ROOT)
        with open(path[:-5] + ".expect", encoding="utf-8") as file:
            want = file.read()
        done = warploom("check", name)
        result.expect(done.returncode == 3 and done.stderr == want and not done.stdout,
                      f"{name}: exit {done.returncode}, got\n{done.stderr}want\n{want}")
    return result


def check_determinism():
    """One kernel from 20 processes: the same bytes."""
    name = Generator().ask("generated").split()[0]
    texts = {warploom("emit", name, LC_ALL=["C", "C.UTF-8"][i % 2]).stdout for i in range(20)}
    return Result(1) if len(texts) == 1 and "" not in texts else Result(
        0, [f"emit {name}: {len(texts)} different texts in 20 processes"])


def cover(part):
    """Half of a covering set compiles for sm_90a through the log gate."""
    names = Generator().ask("cover").split()[part::2]
    done = warploom("compile", "--json", *names, timeout=900)
    made = len(json.loads(done.stdout or "[]"))
    result = Result(made, [done.stderr] if done.returncode else [])
    result.expect(made == len(names) > 0, f"{made} of {len(names)} candidates compiled")
    return result


def check_cover_even():
    return cover(0)


def check_cover_odd():
    return cover(1)


def machine_code(path):
    """The .text sections of an ELF file: what is left when names differ in length."""
    data = open(path, "rb").read()
    start, = struct.unpack_from("<Q", data, 40)
    size, n, names = struct.unpack_from("<3H", data, 58)
    sections = [struct.unpack_from("<IIQQQQ", data, start + i * size) for i in range(n)]
    at = sections[names][4]
    return b"".join(data[s[4]:s[4] + s[5]] for s in sections
                    if data[at + s[0]:].startswith(b".text."))


def knob_parts(knobs, name):
    return itertools.zip_longest(knobs, name.split("_")[4:], fillvalue="")


TIED = {"tile", "consumer_warpgroups", "registers"}


def neighbours(names, knobs):
    """{(knob, value): pairs of names}: a pair differs in that knob alone. Rules tie the rows of a
    tile, the warpgroups and the registers together: for a value of these that allows no such pair,
    a pair differs in them alone. (A name is family, three axes, and a part for each knob; the last
    one's may be left out.)"""
    def pairs(free):
        groups = collections.defaultdict(list)
        for name in names:
            parts = dict(knob_parts(knobs, name))
            rest = [name.split("_")[:4]] + [v for k, v in parts.items() if k not in free]
            groups[repr(rest)].append((name, parts))
        return [(a, b, p, q) for group in groups.values() for a, p in group for b, q in group]

    found, tied = {}, pairs(TIED)
    for knob in knobs:
        for differ in [pairs({knob})] + [tied] * (knob in TIED):
            fresh = collections.defaultdict(list)
            for a, b, p, q in differ:
                if p[knob] != q[knob] and (knob, p[knob]) not in found:
                    fresh[knob, p[knob]].append((a, b))
            found.update(fresh)
    return found


def check_knobs():
    """Every value of every knob makes other machine code than a neighbour's value."""
    generator, result, codes = Generator(), Result(), {}
    names = [name for dim in (64, 128, 256) for name in generator.ask(
        "list", f"head_dim={dim} dtype=bf16 mask=none layout=bshd lse=no seq_q=4096").split()]
    spec = open(os.path.join(ROOT, "specs/fwd.yaml"), encoding="utf-8").read()
    knobs = re.findall(r"^  (\w+):", spec.split("\ntune:")[1].split("\n\n")[0], re.M)
    found = neighbours(names, knobs)
    for name in names:
        for value in knob_parts(knobs, name):
            if value not in found:
                found[value] = []
    with tempfile.TemporaryDirectory() as folder:
        def code(name):
            path = os.path.join(folder, name)
            if name not in codes:
                done = warploom("compile", name, "-o", path)
                codes[name] = done.stderr if done.returncode else machine_code(path)
            return codes[name]

        for (knob, value), pairs in found.items():
            pair = min(pairs, key=lambda p: sum(n not in codes for n in p), default=None)
            good = pair and all(isinstance(code(n), bytes) and code(n) for n in pair)
            result.expect(good and code(pair[0]) != code(pair[1]),
                          f"{knob}: {value} makes the same machine code, or none: {pair}")
    result.expect(len(found) >= 27, f"only {len(found)} values of knobs")
    return result


def check_python():
    """The unittest files of tests/ that need neither GPU nor torch."""
    result = Result()
    for path in sorted(glob.glob(ROOT + "/tests/test_*.py")):
        if path.endswith(("/test_cli.py", "/test_masks.py")):  # tables for checks here
            continue
        done = call([sys.executable, path], BUILD=BUILD)
        ran = re.search(r"Ran (\d+) test", done.stderr)
        result.passed += int(ran[1]) if ran and not done.returncode else 0
        if done.returncode or not ran:
            result.failures.append(f"{path}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return result


def long_functions(text, limit):
    """Functions of more lines than that, but for the consumer loop."""
    lines, start = text.splitlines(), 0
    for i, line in enumerate(lines):
        if line == "}" and i - start >= limit:
            code = " ".join(x for x in lines[start:i] if not x.startswith("//"))
            name = re.search(r"(\w+)\((?!threads)", code)[1]
            if "consume" not in name:
                yield f"{name} has {i - start + 1} lines"
        if line[:1].strip() and i and lines[i - 1] in ("", "}", "};"):
            start = i  # a line at the margin behind an empty one; within a function none is


def unused(text):
    """Names that a kernel does nothing with but declare them, once or (a prototype) oftener."""
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    words = collections.Counter(re.findall(r"\w+", code))
    types = r"\b(?:int|u16|u32|u64|float|bool|void|auto|[A-Z]\w*|\w+_params)\s[\s*&(]*"
    declared = re.findall(types + r"([a-z]\w*)", code)
    declared += re.findall(r"[,(]\s*([a-z]\w*) = ", code)  # the next of a list of declarators
    declared += re.findall(r"\bstruct (\w+)\s*[{;]", code)
    times = collections.Counter(declared)
    return [f"{name} is never used" for name in sorted(times) if words[name] <= times[name]]


# Each name that ends with _ is never used.
UNUSED = """struct Used { int a; u32 b_; };
struct Other_ { int a; };
__device__ void f_(float (&d_)[4], Used *p);
__device__ void f_(float (&d_)[4], Used *p) { p->a = 1; }
__device__ int g(int x); // f_ d_
__device__ int g(int x) { const Used s_ = {x, y_ = 2}; return x; }
__global__ void main(fwd_params q) { use(main, g(q.a)); }
"""


def check_examples():
    """The demo runs through without a GPU; the examples compile and stay short."""
    result = Result()
    with tempfile.TemporaryDirectory() as cache:
        done = call(["sh", "examples/demo.sh"], BUILD=BUILD, WARPLOOM_CACHE_DIR=cache,
                    WARPLOOM_LIBCUDA=cache + "/none.so")
    result.expect(done.returncode == 0 and "nothing found in 3 launches" in done.stdout and
                  "wgmma registers" in done.stdout,
                  f"demo: exit {done.returncode}\n{done.stdout}{done.stderr}")
    cuda = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "include")
    if os.path.exists(cuda + "/cuda.h"):
        done = call(["gcc", "-std=c17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-Iruntime",
                     "-isystem", cuda, "examples/forward.c"])
        result.expect(done.returncode == 0, done.stderr)
    for path, most in (("examples/forward.c", 149), ("runtime/python/warploom.py", 269)):
        lines = open(os.path.join(ROOT, path), encoding="utf-8").read().count("\n")
        result.expect(lines <= most, f"{path} has {lines} lines, the limit is {most}")
    return result


def unfit(text):
    """What keeps a kernel from reading as if it were written by hand."""
    lines = text.splitlines()
    faults = [f"line {i} has {len(x)} columns" for i, x in enumerate(lines, 1) if len(x) > 100]
    by_formula = '#include "formula.cuh"' in text  # how long its analysis is, a spec decides
    limit = 800 if "fwd_tensor " in text else 700 if by_formula else 450
    faults += [f"{len(lines)} lines, the limit is {limit}"] if len(lines) > limit else []
    long = long_functions(text, 90 if by_formula else 40)
    return "; ".join(faults + list(long) + unused(text))


def check_generated():
    """generated/ holds what emit gives today; it and the covering set read well."""
    generator, result = Generator(), Result()
    names = generator.ask("generated").split()
    there = sorted(os.path.basename(f)[:-3] for f in glob.glob(ROOT + "/generated/*.cu"))
    result.expect(there == sorted(names), f"generated/ holds {there}, the specs want {names}")
    for name in names:
        path = os.path.join(ROOT, "generated", name + ".cu")
        text = open(path, encoding="utf-8").read() if os.path.exists(path) else ""
        result.expect(text == warploom("emit", name).stdout,
                      f"{path} is not current: build/warploom emit {name} -o generated/{name}.cu")
    result.expect(unused(UNUSED) == [f"{name}_ is never used" for name in
                                     ("Other", "b", "d", "f", "s", "y")], unused(UNUSED))
    for name in names + generator.ask("cover").split():
        faults = unfit(generator.ask("source", name))
        result.expect(not faults, f"{name}: {faults}")
    return result


def prose(text):
    """Markdown without tables (and what is generated with them) and code: (line number, line)."""
    fenced = False
    for i, line in enumerate(text.splitlines(), 1):
        fenced ^= line.startswith(("```", "<!-- table", "<!-- end of table"))
        if not fenced and not line.startswith(("    ", "|")):
            yield i, line


def check_columns():
    """At most 100 columns in what people write: all files under git but generated ones and data."""
    result = Result()
    kinds = (".c", ".h", ".def", ".lua", ".in", ".cuh", ".cu", ".py", ".yaml", ".sh", ".md")
    for file in call(["git", "ls-files"]).stdout.split():
        own = file.endswith(kinds) or file in ("Makefile", ".ci/run")
        path = os.path.join(ROOT, file)
        made = file.startswith(("generated/", "tests/bad/", "specs/tuned/"))
        if not own or made or not os.path.exists(path):
            continue
        text = open(path, encoding="utf-8").read().replace("\t", "    ")
        lines = prose(text) if file.endswith(".md") else enumerate(text.splitlines(), 1)
        wide = [i for i, line in lines if len(line) > 100]
        result.expect(not wide, f"{file}: more than 100 columns in the lines {wide}")
    return result


# Each module may include what stands before it; the command, everything.
LAYERS = ["warploom", "base", "problem", "box", "match", "spec", "gen", "driver", "compile",
          "cache", "bundle", "store", "launch", "tools", "tuned", "kernel", "tensor", "context",
          "call", "attn", "tune", "npy", "quantise", "formula", "reference", "json", "foreign",
          "cli"]


def check_layers():
    """Includes go down only; of the runtime, tools alone (it opens the generator) sees gen.h."""
    result = Result()
    for path in sorted(glob.glob(ROOT + "/gen/*.[ch]") + glob.glob(ROOT + "/runtime/*.[ch]")):
        folder, file = path.split("/")[-2:]
        module = file.split(".")[0].split("_")[0]
        if file == "embed.c":
            continue
        for other in re.findall(r'#include "([\w/]+)\.h"', open(path, encoding="utf-8").read()):
            other = "warploom" if other == "sim/device" else other.split("_")[0]
            down = other in LAYERS and LAYERS.index(other) <= LAYERS.index(module)
            met = folder == "gen" or other not in ("spec", "gen") or file == "tools.c"
            device = os.path.exists(f"{ROOT}/templates/device/{other}.h")
            result.expect(device or (down and met), f"{folder}/{file} includes {other}.h")
    for path in sorted(glob.glob(ROOT + "/runtime/sim/*.[ch]")):
        for other in re.findall(r'#include "([\w/.]+)"', open(path, encoding="utf-8").read()):
            result.expect(other == "base.h" or os.path.exists(f"{ROOT}/runtime/sim/{other}"),
                          f"{path} includes {other}")
    entries = re.findall(r"^    X\((cu\w+),",
                         open(ROOT + "/runtime/sim/cuda.h", encoding="utf-8").read(), re.M)
    entries += re.findall(r"WARPLOOM_API \w+ (\w+)\(",
                          open(ROOT + "/runtime/sim/device.h", encoding="utf-8").read())
    symbols = call(["nm", "-D", "--defined-only", BUILD + "/sim/libcuda.so.1"]).stdout.split()[2::3]
    result.expect(set(symbols) == set(entries), f"sim/libcuda.so.1 exports {symbols}")
    for header, library in (("runtime/warploom.h", "libwarploom"),
                            ("gen/gen.h", "libwarploom-gen")):
        text = open(os.path.join(ROOT, header), encoding="utf-8").read()
        public = set(re.findall(r"WARPLOOM_API [^;(]*?\b(wl_\w+)\(", text))
        symbols = call(["nm", "-D", "--defined-only", f"{BUILD}/{library}.so"]).stdout.split()[2::3]
        symbols = [x.split("@")[0] for x in symbols if x != "WARPLOOM_0"]  # its version's own
        result.expect(set(symbols) == public, f"{library}.so exports {symbols}, {header} {public}")
    return result


def break_candidates(generator):
    """For each file of templates/: (line number, candidate in which that line is compiled)."""
    places = {}
    for name in generator.ask("cover").split():
        for place in generator.ask("linemap", name).splitlines():
            file, line = place.rsplit(":", 1)
            places.setdefault(file, {}).setdefault(int(line), name)
    anyone = generator.ask("generated").split()[0]
    sources = {x: generator.ask("source", x) for x in generator.ask("cover").split()}
    for path in sorted(glob.glob(ROOT + "/templates/**/*", recursive=True)):
        file = os.path.relpath(path, ROOT)
        if os.path.isdir(path):
            continue
        lines = open(path, encoding="utf-8").read().splitlines()
        if file.endswith((".cuh", ".h")):
            include = f'"{os.path.basename(file)}"'
            user = next((x for x in sources if include in sources[x]), anyone)
            lines_in = {i: user for i in range(1, len(lines) + 1)}
        elif file.endswith(".lua"):
            lines_in = {i: anyone for i, x in enumerate(lines, 1)
                        if re.match(r"    local \w+ = ", x)}
        else:
            lines_in = places.get(file, {})
        good = [i for i in sorted(lines_in) if file.endswith(".lua") or
                re.match(r" +[^*/$#].*;$", lines[i - 1])]
        yield file, good, lines_in


def break_one(file, line, name):
    """Breaks a line in a generator of its own; returns the error of compiling `name` by it."""
    with tempfile.TemporaryDirectory() as folder:
        for part in ("gen", "specs", "templates"):
            shutil.copytree(os.path.join(ROOT, part), os.path.join(folder, part))
        path = os.path.join(folder, file)
        lines = open(path, encoding="utf-8").read().split("\n")
        lines[line - 1] += " @" if file.endswith(".lua") else " wl_broken;"
        open(path, "w", encoding="utf-8").write("\n".join(lines))
        names = open(os.path.join(BUILD, "embed.list"), encoding="utf-8").read().split()
        objects = sorted(glob.glob(BUILD + "/obj/gen/*.o"))
        library = os.path.join(folder, "gen.so")
        for argv in ([BUILD + "/embed", "embed.c", "digest.c", *names],
                     ["gcc", "-shared", "-fPIC", "-Igen", "-I" + ROOT + "/runtime", "-o", library,
                      "embed.c", *objects, "-llua5.4", "-lyaml", "-lsodium"]):
            done = call(argv, cwd=folder)
            if done.returncode:
                return done.stderr
        return warploom("compile", name, WARPLOOM_GEN=library).stderr


def check_lines():
    """A broken line is reported at its own file and line, whichever file it is in."""
    result = Result()
    for file, good, lines_in in break_candidates(Generator()):
        if not good:
            result.failures.append(f"{file}: no line of it is in the covering set's kernels")
            continue
        line = good[len(good) // 2]
        error = break_one(file, line, lines_in[line])
        result.expect(f"{file}:{line}" in error,
                      f"{file}:{line} was broken; the error says\n{error}")
    return result


def replays(build, **env):
    """Every fuzz target over its corpus, and over changes of it for two seconds."""
    result = Result()
    for path in sorted(glob.glob(ROOT + "/tests/fuzz/fuzz_*.c")):
        name = os.path.basename(path)[5:-2]
        done = call([f"{build}/replay_{name}", "2", f"tests/fuzz/corpus_{name}"], **env)
        runs = re.fullmatch(r"(\d+) passed, 0 failed\n", done.stdout)
        result.expect(not done.returncode and runs and int(runs[1]) > 20,
                      f"{name}: exit {done.returncode}\n{done.stdout}{done.stderr[-4000:]}")
    return result


def check_threads():
    """16 threads on one simulated context and 4 on another's, under ThreadSanitizer."""
    build = os.path.join(BUILD, "tsan")
    os.makedirs(build, exist_ok=True)
    if os.path.isdir(BUILD + "/deps") and not os.path.exists(build + "/deps"):
        os.symlink(BUILD + "/deps", build + "/deps")
    made = call(["make", "--no-print-directory", "-s", "BUILD=" + build,
                 "OPT=-O1 -g -fsanitize=thread", "all", build + "/sim_threads"])
    if made.returncode:
        return Result(0, [made.stdout + made.stderr])
    with tempfile.TemporaryDirectory() as cache:
        done = call([build + "/sim_threads", "2"], TSAN_OPTIONS="exitcode=99",
                    WARPLOOM_CACHE_DIR=cache)
    totals = re.fullmatch(r"(\d+) passed, 0 failed", (done.stdout.splitlines() or [""])[-1])
    good = totals and not done.returncode
    return Result(int(totals[1]) if good else 0, [] if good else [
        f"exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-6000:]}"])


def check_sanitized():
    """Unit and command tests and the fuzz targets under ASan and UBSan."""
    build = os.path.join(BUILD, "sanitized")
    made = make(build, SANITIZE)
    if made.returncode:
        return Result(0, [made.stdout + made.stderr])
    options = {"ASAN_OPTIONS": "exitcode=99", "UBSAN_OPTIONS": "print_stacktrace=1",
               "LSAN_OPTIONS": "exitcode=99"}
    result = programs(build, **options)
    for more in (Result(*test_cli.run(build, **options)), replays(build, **options)):
        result = Result(result.passed + more.passed, result.failures + more.failures)
    return result


def unreached(source, listing):
    """Lines of gcov's listing (with -b -c) that call fail() and never did."""
    place = None
    for line in listing.splitlines():
        row = re.match(r"\s*[^:]+:\s*(\d+):(.*)", line)
        if row:
            calls = re.search(r"\bfail\(", row[2]) and not row[2].startswith("wl_status fail(")
            place = f"{source}:{row[1]}: {row[2].strip()}" if calls else None
            if place and re.match(r"\s*(#####|=====)", line):
                yield place
                place = None
        elif place and re.match(r"call\s+\d+ never executed", line):
            yield place
            place = None


def check_coverage():
    """Every line that can fail has failed, in a unit or command test."""
    build = os.path.join(BUILD, "coverage")
    made = make(build, COVERAGE)
    if made.returncode:
        return Result(0, [made.stdout + made.stderr])
    for old in glob.glob(build + "/obj/**/*.gcda", recursive=True):
        os.remove(old)
    programs(build)
    test_cli.run(build)
    call([sys.executable, "tests/test_sim_device.py", "Command", "Foreign"], BUILD=build)
    call([sys.executable, "tests/test_tune.py"], BUILD=build, LINK_FLAGS="--coverage")
    call([sys.executable, "tests/test_bundle.py", "Command"], BUILD=build)
    result = Result()
    for folder in ("gen", "runtime", "runtime/sim"):
        for source in sorted(glob.glob(f"{ROOT}/{folder}/*.c")):
            file = os.path.relpath(source, ROOT)
            if file == "gen/embed.c":
                continue
            done = call(["gcov", "-b", "-c", "-t", "-s", ROOT, "-r", "-o", f"{build}/obj/{folder}",
                         f"{build}/obj/{file[:-2]}.o"], cwd=ROOT)
            listing = [x for x in re.split(r"(?m)^ +-: +0:Source:", done.stdout)
                       if x.startswith(file)]
            missed = sorted(set(unreached(file, "".join(listing))))
            total = len(re.findall(r"\bfail\(", open(source, encoding="utf-8").read()))
            result.passed += max(0, total - len(missed))
            result.failures += [f"never reached by a test: {x}" for x in missed]
            if not listing:
                result.failures.append(f"{file}: no coverage data\n{done.stderr}")
    return result


def sizes(folders, apart=()):
    """Lines by module, and a text for each file that is too long."""
    modules, faults = {}, []
    for folder in folders:
        for path in glob.glob(f"{ROOT}/{folder}/**/*", recursive=True):
            if not path.endswith((".c", ".h", ".def", ".lua", ".in", ".cuh", ".py")):
                continue
            file = os.path.relpath(path, ROOT)
            if file.startswith(apart):
                continue
            lines = open(path, encoding="utf-8").read().count("\n")
            module = file.split(".")[0]
            modules[module] = modules.get(module, 0) + lines
            if lines > 600:
                faults.append(f"{path} has {lines} lines, the limit is 600")
    return modules, faults


def check_size():
    """Lines over gen/, templates/ and runtime/, by module; runtime/sim has a limit of its own."""
    makefile, result = open(ROOT + "/Makefile", encoding="utf-8").read(), Result()
    for what, limit, parts in (("in all", "SIZE_LIMIT", (["gen", "templates", "runtime"],
                                                         ("runtime/sim/",))),
                               ("of the simulator", "SIM_SIZE_LIMIT", (["runtime/sim"],))):
        limit = int(re.search(rf"^{limit} = (\d+)", makefile, re.M)[1])
        modules, faults = sizes(*parts)
        total = sum(modules.values())
        if "--size" in sys.argv:
            for module in sorted(modules):
                print(f"{modules[module]:6}  {module}")
            print(f"{total:6}  {what}, of {limit}")
        result.failures += faults
        result.expect(total <= limit, f"{total} lines {what}; the limit in the Makefile is {limit}")
    return result


def check_bugs():
    """tests/cache_bugs.md has a test that is there, or (at most 15) code that is, for each bug."""
    result = Result()
    rows = re.findall(r"^\| (\d+) \| (.*?) \| (.*?) \| (.*) \|$",
                      open(ROOT + "/tests/cache_bugs.md", encoding="utf-8").read(), re.M)
    result.expect([int(row[0]) for row in rows] == list(range(1, 59)), "not the rows 1 to 58")
    for number, report, _, where in rows:
        file, text = where.removeprefix("code ").split(": ", 1)
        has = open(os.path.join(ROOT, file), encoding="utf-8").read()
        wanted = [text] if where.startswith("code ") else [
            f"TEST({text}) {{", f"def {text}(", f'Row("{text} ']
        result.expect(re.search(r"#\d", report) and any(w in has for w in wanted),
                      f"bug {number}, {report}: {file} has no {text}")
    code = sum(row[3].startswith("code ") for row in rows)
    result.expect(code <= 15, f"{code} bugs have no test, at most 15 may")
    return result


def check_alone():
    """No program calls the network; no kernel includes what a toolkit would have to bring."""
    result = Result()
    for program in ("warploom", "libwarploom.so", "libwarploom-gen.so", "sim/libcuda.so.1"):
        names = call(["nm", "-D", "--undefined-only", f"{BUILD}/{program}"]).stdout.split()
        network = {"socket", "connect", "getaddrinfo", "gethostbyname", "bind", "listen"}
        used = {name.split("@")[0] for name in names} & network
        result.expect(names and not used, f"{program} calls {used or 'nothing at all'}")
    own = set(os.listdir(ROOT + "/templates/device"))
    for path in glob.glob(ROOT + "/generated/*.cu") + glob.glob(ROOT + "/templates/device/*"):
        included = set(re.findall(r"#include\s*[<\"]([^>\"]+)",
                                  open(path, encoding="utf-8").read()))
        result.expect(included <= own, f"{path} includes {included - own}")
    return result


def check_torture():
    """The cache under crowds, kills, damage, failing calls, odd places: `make torture`, short."""
    done = call([sys.executable, "tests/torture/torture.py", "--short"], BUILD=BUILD)
    told = re.search(r"^(\d+) faults$", done.stdout, re.M)
    result = Result(done.stdout.count("\n  "))
    if not told or done.returncode:
        result.failures.append(f"exit {done.returncode}\n{done.stdout}{done.stderr}")
    return result


def check_second():
    """A cache filled by `compile` with no GPU serves a process with neither generator nor NVRTC."""
    result = Result()
    problem = "head_dim=128 dtype=bf16 mask=none layout=bshd seq_q=256".split()
    with tempfile.TemporaryDirectory() as folder:
        cache = {"WARPLOOM_CACHE": "rw", "WARPLOOM_CACHE_DIR": folder + "/cache"}
        done = warploom("compile", *problem, **cache)
        result.expect(done.returncode == 0, done.stderr)
        hidden = {"WARPLOOM_GEN": folder + "/none.so", "WARPLOOM_NVRTC": folder + "/none.so",
                  "WARPLOOM_LIBCUDA": BUILD + "/libfake_cuda.so"}
        done = warploom("run", *problem, "--random", "1", **cache, **hidden)
        result.expect(done.returncode == 0, "with the cache: " + done.stderr)
        cache["WARPLOOM_CACHE_DIR"] = folder + "/empty"
        done = warploom("run", *problem, "--random", "1", **cache, **hidden)
        result.expect(done.returncode == 4, f"without: exit {done.returncode}: {done.stderr}")
    return result


def simulated(part):
    """Half of the covering set in the simulator: shapes x schedules, numbers, no finding."""
    cover = [x for x in Generator().ask("cover").split() if not x.startswith("quantize")]
    return in_simulator(["sim_cases", "4", "8", *cover[part::2]])


def in_simulator(command):
    with tempfile.TemporaryDirectory() as cache:
        done = call([BUILD + "/" + command[0], *command[1:]], timeout=900,
                    WARPLOOM_CACHE_DIR=cache)
    last = re.fullmatch(r"(\d+) passed, (\d+) failed",
                        (done.stdout.strip().splitlines() or [""])[-1])
    result = Result(int(last[1]) if last else 0)
    if not last or done.returncode:
        result.failures = [f"{line}" for line in done.stdout.splitlines()[:-1]] or [done.stderr]
    return result


def check_simulated_even():
    return simulated(0)


def check_simulated_odd():
    return simulated(1)


def masks(coded):
    """Random masks as C against brute force; random scores' derivatives."""
    result = Result()
    test_masks.check_code(result, lambda text: Generator().add(text), ROOT, coded)
    test_masks.check_scores(result, lambda text: Generator().add(text), 4 * coded)
    return result


def check_masks():
    return masks(40)


def check_masks_all():
    """The same with more masks (--all)."""
    return masks(250)


def check_tiles():
    """10,000 random masks at random sizes, and the ready ones, told tile by tile."""
    done = call([BUILD + "/tiles", "10000"])
    totals = re.fullmatch(r"(\d+) passed, 0 failed", (done.stdout.splitlines() or [""])[-1])
    good = totals and not done.returncode
    return Result(int(totals[1]) if good else 0, [] if good else [
        f"exit {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-2000:]}"])


READ = ("document", "doccausal", "docwindow", "spans", "blocks")  # masks that read tensors


def check_simulated_masks():
    """Each mask that fwd declares, in kernels of one and of three consumers: 16 shapes or more x
    schedules, against the float64 evaluator of its text."""
    names = [f"fwd_d64_bf16_{mask}_{rest}"
             for mask in Generator().ask("masks", "fwd").split()
             for rest in ("m64n64_s7_w1_opt_dyn_p248c248", "m192n64_s7_w3_opt_dyn_"
                          + ("p80c144" if mask in READ else "p56c152"))]
    return in_simulator(["sim_cases", "4", "8", *names])


def check_simulated_eight():
    """Tensors of 8 bits: quantised as on the host; NaN, zero scales, largest and least values."""
    return in_simulator(["sim_eight"])


def check_simulated_scores():
    """Each score that fwd declares with no mask, the ready one and one of a spec."""
    names = [f"fwd_d64_bf16_{mask}_{score}_{rest}"
             for score in ("softcap", "alibi", "distance", "temperature", "slopes", "bias")
             for mask, rest in (("none", "m128n64_s4_w2_exact_static_p32c232"),
                                ("causal", "m192n64_s7_w3_opt_dyn_p32c160"),
                                ("window", "m192n64_s7_w3_opt_dyn_p56c152"))]
    names.append("fwd_d64_bf16_causal_softcap_m256n64_s10_w4_opt_dyn_p32c112_ones")
    return in_simulator(["sim_cases", "4", "8", *names])


def check_emit_all():
    """Every listed candidate is emitted within the limits of generated/ (--all)."""
    generator, result = Generator(), Result()
    for name in generator.ask("all").split():
        faults = unfit(generator.ask("source", name))
        result.expect(not faults, f"{name}: {faults}")
    return result


# The long ones first, so that two at a time end together.
CHECKS = [check_cover_even, check_cover_odd, check_simulated_even, check_simulated_odd,
          check_simulated_masks, check_simulated_scores, check_simulated_eight,
          check_coverage, check_sanitized, check_threads, check_lines,
          check_knobs, check_unit, check_cli, check_bad, check_python, check_examples,
          check_torture, check_tiles, check_masks, check_bugs, check_alone, check_determinism,
          check_generated, check_second, check_layers, check_columns, check_size]


def guarded(check):
    start = time.monotonic()
    try:
        result = check()
    except Exception as error:  # a check that cannot run has failed
        result = Result(0, [f"{type(error).__name__}: {error}"])
    return check.__name__[6:], result, time.monotonic() - start


def main(argv):
    if argv[:1] == ["--size"]:
        result = check_size()
        print("\n".join(result.failures), end="\n" if result.failures else "")
        return bool(result.failures)
    checks = CHECKS + [check_emit_all, check_masks_all] if "--all" in argv else CHECKS
    names = [a for a in argv if not a.startswith("-")]
    unknown = [n for n in names if not any(c.__name__[6:].startswith(n) for c in checks)]
    unknown += set(argv) - set(names) - {"--all", "-v"}
    if unknown:
        print(f"neither a check nor an option: {' '.join(unknown)}\n{__doc__}", end="")
        return 2
    checks = [c for c in checks if not names or any(c.__name__[6:].startswith(n) for n in names)]
    passed = failed = 0
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for name, result, seconds in pool.map(guarded, checks):
            passed += result.passed
            failed += len(result.failures)
            for text in result.failures:
                print(f"FAIL {name}: {text.rstrip()}", flush=True)
            if "-v" in argv:
                print(f"{name}: {result.passed} passed, {len(result.failures)} failed, "
                      f"{seconds:.1f} s", flush=True)
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
