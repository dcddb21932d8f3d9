"""test_cli.py - the `warploom` command, as a table: arguments, exit code, exact output.
SPDX-License-Identifier: BSD-3-Clause

In a row's strings, {P} is a whole problem, {NAME} its preferred candidate, {T} the row's folder,
{ROOT} the checkout. stdout and stderr are exact texts, patterns (re.compile) or None: anything.
"""
import hashlib
import json
import os
import re
import shlex
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
P = "head_dim=64 dtype=fp16 mask=none layout=bshd seq_q=64"
FAKE = {"WARPLOOM_LIBCUDA": "{B}/libfake_cuda.so"}
NVRTC = {"WARPLOOM_NVRTC": "{B}/libfake_nvrtc.so"}
NO_GPU = {"WARPLOOM_LIBCUDA": "{T}/none.so"}
NO_SIM = {"WARPLOOM_SIM": "{T}/none.so"}
ANY = re.compile("")
NPY = "--q {T}/q.npy --k {T}/q.npy --v {T}/q.npy -o {T}/o.npy"


class Row:
    def __init__(self, args, code, err="", out="", env=None, files=None, then=None):
        self.args, self.code, self.err, self.out = args, code, err, out
        self.env, self.files, self.then = env or {}, files or {}, then


def say(text):
    return "warploom: " + text + "\n"


def npy(descr="<f2", shape="(1, 64, 1, 64)", size=2 * 64 * 64, fortran="False"):
    text = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(size)


def rows_of(keys):
    """stdout must be a JSON array of objects with exactly these keys."""
    def check(out, folder):
        rows = json.loads(out)
        assert isinstance(rows, list) and rows, "no rows"
        assert all(list(row) == keys.split() for row in rows), [list(row) for row in rows][:1]
    return check


def file_begins(name, head):
    def check(out, folder):
        with open(os.path.join(folder, name), "rb") as file:
            assert file.read(len(head)) == head, name
    return check


def siphash(key, data):
    """SipHash-2-4 of 128 bits."""
    k = struct.unpack("<2Q", key)
    v = [k[i % 2] ^ int.from_bytes(word, "big")
         for i, word in enumerate((b"somepseu", b"dorandom", b"lygenera", b"tedbytes"))]

    def mix(rounds):
        for a, b, turn, more in ((0, 1, 13, 32), (2, 3, 16, 0), (0, 3, 21, 0),
                                 (2, 1, 17, 32)) * rounds:
            v[a] = v[a] + v[b] & 2**64 - 1
            v[b] = (v[b] << turn | v[b] >> 64 - turn) & 2**64 - 1 ^ v[a]
            v[a] = (v[a] << more | v[a] >> 64 - more) & 2**64 - 1

    v[1] ^= 0xee
    data += bytes(7 - len(data) % 8) + bytes([len(data) & 255])
    for (word,) in struct.iter_unpack("<Q", data):
        v[3] ^= word
        mix(2)
        v[0] ^= word
    sums = []
    for at, mark in ((2, 0xee), (1, 0xdd)):
        v[at] ^= mark
        mix(4)
        sums.append(v[0] ^ v[1] ^ v[2] ^ v[3])
    return struct.pack("<2Q", *sums)


def entry(kind, payload):
    """An entry's bytes, as the cache writes them."""
    def field(data):
        return struct.pack("<Q", len(data)) + data

    key = bytes.fromhex(kind[1])
    head = struct.pack("<8sII32sQ", b"warploom", 2, ord(kind[0]), key, len(payload))
    hashed = hashlib.blake2b(field(head) + field(siphash(key[:16], payload)),
                             digest_size=32)
    return head + hashed.digest() + payload


CACHE = {"WARPLOOM_CACHE": "rw", "WARPLOOM_CACHE_DIR": "{T}/c"}
A, ZERO = "a" + 63 * "0", 64 * "0"
ENTRIES = {f"c/v2/0/0/{ZERO}.choice": entry(("c", ZERO), b"choice fwd_x\n"),
           f"c/v2/a/0/{A}.kernel": entry(("k", A), b"\x7fELF\n\n"),
           f"c/v2/a/0/{A}.tuned": entry(("t", A), b"choice fwd_y\n")}
FAULTY = {f"c/v2/f/0/f{63 * '0'}.kernel": b"rubbish"}


def gone(name):
    def check(out, folder):
        assert not os.path.exists(os.path.join(folder, name)), name
    return check


def archive(name):
    """A tar whose members are the entries and their folders, closed to others."""
    def check(out, folder):
        with tarfile.open(os.path.join(folder, name)) as tar:
            members = {m.name: m for m in tar.getmembers()}
            files = {"c/" + n: tar.extractfile(m).read() for n, m in members.items() if m.isfile()}
        assert files == ENTRIES, sorted(files)
        folders = {n for n, m in members.items() if m.isdir() and m.mode == 0o700}
        assert folders == {"v2", "v2/0", "v2/0/0", "v2/a", "v2/a/0"}, folders
    return check


COMPILE_KEYS = ("name arch registers spill_bytes stack_bytes shared_bytes barriers cubin_bytes "
                "compile_ms")
RUN_KEYS = "name time_us tflops rows checked norm_ratio max_error lse_error"
VARIANT = """extends: fwd
name: vit_l14
axes: {head_dim: [80], dtype: [bf16], mask: [none]}
tune: {tile: [[192, 64], [128, 128]], stages: [3, 5]}
"""
VIT = "head_dim=80 dtype=bf16 mask=none layout=bshd seq_q=64 variant=vit_l14"
SIMPLE = 'extern "C" __global__ void {NAME}(int *p) { *p = 1; }\n'

NO_NAME = "no kernel's name: it begins with fwd or fwd8 or quantize and a '_'"
ROWS = [
    # words of the command line
    Row("", 2, say("no command; see 'warploom -h'")),
    Row("-h", 0,
        out=re.compile(r"warploom 0\.1\.0 - .*\bdoctor\b.*head_dim .*Exit codes: 0", re.S)),
    Row("--help", 0, out=ANY),
    Row("--version", 0, out="warploom 0.1.0\n"),
    Row("lsit {P}", 2, say("unknown command 'lsit'; did you mean 'list'?")),
    Row("-x", 2, say("unknown option '-x'; see 'warploom -h'")),
    Row("--jsno", 2, say("unknown option '--jsno'; see 'warploom -h'")),
    Row("zzzzz", 2, say("unknown command 'zzzzz'; see 'warploom -h'")),
    Row("list", 2, say("list: PROBLEM is missing; see 'warploom list -h'")),
    Row("emit", 2, say("emit: NAME|PROBLEM is missing; see 'warploom emit -h'")),
    Row("explain --json", 2, say("explain: NAME|PROBLEM is missing; see 'warploom explain -h'")),
    Row("list --jsno {P}", 2, say("list: unknown option '--jsno'; did you mean '--json'?")),
    Row("list --check {P}", 2, say("list: unknown option '--check'; did you mean '--spec'?")),
    Row("list -x", 2, say("list: unknown option '-x'; did you mean '-h'?")),
    Row("list --frobnicate", 2, say("list: unknown option '--frobnicate'; see 'warploom list -h'")),
    Row("list --json=1 {P}", 2, say("list: --json takes no value")),
    Row("emit {P} -o", 2, say("emit: -o needs a value: FILE")),
    Row("emit {P} -o a -o b", 2, say("emit: -o is given twice")),
    Row("doctor now", 2, say("doctor takes no operand, got 'now'")),
    Row("list -- --json", 2, say("problem: expected key=value, got '--json'")),
    Row("list -- {P}", 0, out=ANY),
    Row("list -", 2, say("problem: expected key=value, got '-'")),
    *[Row(f"{c} -h", 0, out=re.compile(rf"warploom {c}\b.*Options:\n.*-h ", re.S))
      for c in "list check emit compile run verify sim tune explain cache doctor".split()],
    Row("tune", 2, say("tune: give PROBLEM, or --workload FILE with a problem a line")),
    Row("tune --workload {T}/none", 2, say("{T}/none: cannot open: No such file or directory")),
    Row("tune --seconds soon {P}", 2,
        say("--seconds: expected a whole number below 2^64, got 'soon'")),
    Row("tune-wrker", 2, say("unknown command 'tune-wrker'; see 'warploom -h'")),
    Row("run -h", 0, out=re.compile(r"--random SEED .*layout .*\(1\)", re.S)),
    Row("run --random -h", 0, out=re.compile(r"\Awarploom run PROBLEM ")),
    Row("list --bogus --help", 0, out=re.compile(r"\Awarploom list PROBLEM ")),
    Row("list -- -h", 2, say("problem: expected key=value, got '-h'")),

    # problems
    Row("list head_dim=64", 2, say("problem: dtype is missing: bf16, fp16, e4m3 or e5m2")),
    Row("list {P} head_dim=64", 2, say("problem: head_dim is given twice")),
    Row("list {P} haed_dim=64", 2,
        say("problem: unknown word 'haed_dim'; did you mean 'head_dim'?")),
    Row("list {P} colour=red", 2, say("problem: unknown word 'colour'")),
    Row("list {P} batch=0", 2, say("batch: expected a whole number from 1 to 65536, got '0'")),
    Row("list {P} batch=99999999999999999999", 2,
        say("batch: expected a whole number from 1 to 65536, got '99999999999999999999'")),
    Row("list {P} scale=-1", 2, say("scale: expected 0 or a number from 2e-38 to 2e+38, got '-1'")),
    Row("list {P} variant=A", 2, say("variant: expected a name, [a-z][a-z0-9_]{{0,31}}, got 'A'")),
    Row("list {P} heads=3 kv_heads=2", 2, say("problem: heads=3 is no multiple of kv_heads=2")),
    Row("list {P} variant=vit", 2, say("variant: no spec 'vit'; there is fwd, fwd8, quantize")),
    Row("list head_dim=64 dtype=fp17 mask=none layout=bshd seq_q=64", 2,
        say("dtype=fp17: fwd takes bf16, fp16; did you mean 'fp16'?")),
    Row("list head_dim=60 dtype=fp16 mask=none layout=bshd seq_q=64", 2,
        re.compile(r"warploom: head_dim=60: fwd takes 16 to 256 in steps of 8; ")),
    Row("list '{P}'", 0, out=re.compile(r"\A{NAME}\n(fwd_d64_fp16_none_\w+\n)+\Z")),
    Row("list {P} --json", 0, out=ANY, then=rows_of("name")),
    Row(["list", "\xff\xfe=\x01"], 2, ANY),
    Row(["emit", "a\x1b[31m\xff\u009b"], 2,
        say("a\\x1b[31m\xff\\xc2\\x9b: " + NO_NAME)),
    Row(["emit", b"\xff\xe9"], 2,
        say("\\xff\\xe9: " + NO_NAME)),
    Row(["check", "--json", b"\xff\x1f"], 2,
        say("\\xff\\x1f: cannot open: No such file or directory"),
        '[\n {{"file": "", "line": null, "column": null, "message": "\\ufffd\\u001f: cannot open: '
        'No such file or directory"}}\n]\n'),
    Row(["list", "a" * 100000 + "=1"], 2, ANY),
    Row(["list", "head_dim=" + "1" * 5000], 2, ANY),
    Row(["list", ""], 2, say("problem: head_dim is missing: elements of a query and key row")),

    # names
    Row("emit {NAME}", 0, out=re.compile(r"\A// {NAME}\n.*__global__", re.S)),
    Row("emit {P}", 0, out=re.compile(r"\A// {NAME}\n")),
    Row("emit nope", 2, say("nope: " + NO_NAME)),
    Row("emit {NAME}9", 2, re.compile(r"warploom: {NAME}9: ")),
    Row(["emit", "fwd_" * 10000], 2, re.compile(r"warploom: fwd_fwd_")),
    Row("emit {NAME} -o {T}/x.cu", 0, then=file_begins("x.cu", b"// fwd_d64_fp16_none_")),
    Row("emit {NAME} -o {T}/no/x.cu", 1,
        say("{T}/no/x.cu: cannot write: No such file or directory")),
    Row("emit {NAME} --json", 0, out=ANY, then=rows_of("name source")),
    Row("explain {NAME}", 0, out=re.compile(r"\A{NAME}\n.*\bd64 .*\bring .*chosen by", re.S)),
    Row("explain {P}", 0, out=re.compile(r"\A{NAME}\n.*prefer specs/fwd\.yaml:\d+", re.S)),
    *(Row(f"explain head_dim=64 dtype=bf16 mask={mask} layout=bshd seq_q=64 heads=2 mask_args={of}",
          2, say("mask_args: " + why))
      for mask, of, why in (("chunk", "0", "size = 0: expected 1 to 1073741824"),
                            ("window", "9,-5", "right = -5: expected 0 to 1073741824"),
                            ("window", "9,5,3", "3 are given, window has 2"),
                            ("causal", "9", "1 are given, causal has 0"))),
    Row("explain {P} --json", 0, out=ANY, then=rows_of("section what meaning")),
    Row("explain nope", 2, say("nope: " + NO_NAME)),
    Row("explain {P} batch=x", 2, say("batch: expected a whole number from 1 to 65536, got 'x'")),

    # specs
    Row("check", 0, out="built-in specs: ok\n"),
    Row("check --json", 0, out="[]\n"),
    Row("check {T}/v.yaml", 0, out="{T}/v.yaml: ok\n", files={"v.yaml": VARIANT}),
    Row("check {T}/none.yaml", 2, say("{T}/none.yaml: cannot open: No such file or directory")),
    Row("check {T}/a.yaml {T}/v.yaml {T}/b.yaml", 3,
        "{T}/a.yaml:1:1: spec: 'name' is missing\n"
        "{T}/a.yaml:2:1: spec: unknown key 'nmae'; did you mean 'name'?\n"
        "{T}/b.yaml:2:1: not YAML: did not find expected ',' or ']'\n",
        "{T}/v.yaml: ok\n",
        files={"v.yaml": VARIANT, "a.yaml": "extends: fwd\nnmae: x\n",
               "b.yaml": "extends: [fwd\n"}),
    Row("check --json {T}/a.yaml", 3, ANY, ANY, files={"a.yaml": "extends: fwd\nnmae: x\n"},
        then=rows_of("file line column message")),
    Row("list {VIT} --spec {T}/v.yaml", 0, out=re.compile(r"\A(vit_l14_d80_bf16_none_\w+\n)+\Z"),
        files={"v.yaml": VARIANT}),
    Row("list {VIT}", 0, out=re.compile(r"\A(vit_l14_\w+\n)+\Z"), files={"s/v.yaml": VARIANT},
        env={"WARPLOOM_SPECS": "{T}/s"}),
    Row("list {P} --spec /dev/null", 2, say("/dev/null: not a regular file")),
    Row("list {P} --spec {T}", 2, say("{T}: a folder without a spec, *.yaml")),
    Row(["list", *P.split(), "--spec", ""], 2, say("spec: the path is empty")),
    Row(["check", ""], 2, say("spec: the path is empty")),
    Row("check {T}/a:b.yaml", 0, out="{T}/a:b.yaml: ok\n", files={"a:b.yaml": VARIANT}),
    Row("check {T}/v.yaml", 0, out="{T}/v.yaml: ok\n", files={"v.yaml": VARIANT},
        env={"WARPLOOM_SPECS": "{T}"}),
    Row("check --json {T}/a:b.yaml", 3, ANY, re.compile(
        r'"file": "{T}/a:b\.yaml", "line": 1, "column": 1, "message": "spec: \'name\' is missing"'),
        files={"a:b.yaml": "extends: fwd\n"}),
    Row("list {VIT} --spec {T}/v.yaml --spec {T}/./v.yaml", 0, out=ANY,
        files={"v.yaml": VARIANT}),
    Row("check {T}/many.yaml", 3, re.compile(
            r"\A({T}/many\.yaml:\d+:1: spec: unknown key 'k\d+'\n){101,}… and \d+ more errors\n\Z"),
        files={"many.yaml": VARIANT + "".join(f"k{i}: 1\n" for i in range(300))}),
    Row("check {T}/big.yaml", 3, "{T}/big.yaml:1:1: too large: a spec has at most 1048576 bytes\n",
        files={"big.yaml": "#" * 3000000}),
    Row("check {T}/deep.yaml", 3, ANY, files={"deep.yaml": "a: " + "[" * 100000}),
    Row("check {T}/bits.yaml", 3, ANY, files={"bits.yaml": bytes(range(256))}),
    Row("list {VIT} --spec {T}/none.yaml", 2,
        say("{T}/none.yaml: cannot open: No such file or directory")),
    Row("list {P}", 4, ANY, env={"WARPLOOM_GEN": "{T}/none.so"}),

    # compile
    Row("compile", 2, say("compile: give either NAME|PROBLEM or --source FILE.cu")),
    Row("compile {P} --source x.cu", 2,
        say("compile: give either NAME|PROBLEM or --source FILE.cu")),
    Row("compile --source {T}/none.cu", 2,
        say("{T}/none.cu: cannot open: No such file or directory")),
    Row("compile {NAME} {NAME} -o {T}/x.cubin", 2,
        say("compile: -o takes one kernel, but several are asked for")),
    Row("compile {P} -o {T}/x.cubin", 0,
        out=re.compile(r"\Aname +arch +registers .*compile_ms\n{NAME}  sm_90a  +\d+ ", re.S),
        then=file_begins("x.cubin", b"\x7fELF")),
    Row("compile {P} -o {T}/no/x.cubin", 1, ANY, ANY),
    Row("compile {NAME} '{P}' {P} --json", 0, out=ANY, then=rows_of(COMPILE_KEYS)),
    Row("compile nope {NAME} batch=1", 2,
        "warploom: nope: " + NO_NAME + "\n"
        "warploom: problem: head_dim is missing: elements of a query and key row\n",
        re.compile(r"\Aname .*\n{NAME} ")),
    Row("compile {P}", 4, re.compile(r"warploom: no usable NVRTC: .*looked at:\n.*none\.so"),
        env={"WARPLOOM_NVRTC": "{T}/none.so"}),
    Row("compile {P}", 4, re.compile(r"^warploom: variant=fwd .* is to be compiled anew, and JIT "
                                     r"is off: set WARPLOOM_JIT=on\n$"),
        env={"WARPLOOM_JIT": "off", "WARPLOOM_MISSES": "{T}/misses"}, then=gone("misses")),
    Row("compile {P}", 2, re.compile(r"WARPLOOM_JIT|jit"), env={"WARPLOOM_JIT": "maybe"}),
    Row("compile {P}", 2, re.compile(r"WARPLOOM_CACHE|cache"), env={"WARPLOOM_CACHE": "maybe"}),
    Row("compile --source {T}/x.cu --json", 0, out=ANY, files={"x.cu": SIMPLE},
        then=rows_of(COMPILE_KEYS)),
    Row("compile --source {T}/x.cu --json", 0, out=re.compile(r'"shared_bytes": [1-9]\d{4,},'),
        files={"x.cu": SIMPLE}),
    Row("compile --source {T}/x.cu", 0, out=re.compile(r"\nother +sm_90a +\d+ +0 +0 +- "),
        files={"x.cu": SIMPLE.replace("{NAME}", "other")}),
    Row("compile --source {T}/x.cu --json", 0, out=re.compile(r'"shared_bytes": null,'),
        files={"x.cu": SIMPLE.replace("{NAME}", "other")}),
    Row("compile --source {T}/x.cu", 0, re.compile(r"\Awarploom: {T}/x\.cu:1: warning #.*\n"),
        ANY, files={"x.cu": SIMPLE.replace("*p = 1", "int unused; *p = 1")}),
    Row("compile {NAME}", 0, re.compile(r"\Awarploom: cache: /proc/nope: No such file"), ANY,
        env={"WARPLOOM_CACHE": "rw", "WARPLOOM_CACHE_DIR": "/proc/nope"}),
    Row("compile --source {T}/x.cu", 4, re.compile(r"{T}/x\.cu:1: .*broken"),
        files={"x.cu": SIMPLE.replace("*p = 1", "broken = 1")}),
    Row("compile --source {T}/x.cu", 2, re.compile(r"warploom: {T}/x\.cu: "),
        files={"x.cu": "int x;\n"}),

    # run
    Row("run {P}", 2, say("run: give --q, --k and --v, or --random SEED")),
    Row("run {P} --q x --k y", 2, say("run: give --q, --k and --v, or --random SEED")),
    Row("run {P} --random 1 --q x", 2, say("run: give --q, --k and --v, or --random SEED")),
    Row("run {P} --q x --k y --v z", 2, say("run: -o FILE.npy is missing: where O goes")),
    Row("run {P} --random 1 --source x --kernel y", 2,
        say("run: --source names its kernel itself; leave --kernel out")),
    Row("run {P} --random x", 2, say("--random: expected a whole number below 2^64, got 'x'")),
    Row("run {P} --random 1x", 2, say("--random: expected a whole number below 2^64, got '1x'")),
    Row("run {P} --random 99999999999999999999999", 2,
        say("--random: expected a whole number below 2^64, got '99999999999999999999999'")),
    Row("run head_dim=256 dtype=fp16 mask=none layout=bshd batch=65536 heads=65536 "
        "seq_q=1073741824 --random 1", 2,
        re.compile(r"\Awarploom: run: the tensors take 9\.\d+e\+12 GB, this machine has ")),
    Row("run {P} --random 1 --source {T}/none.cu", 2,
        say("{T}/none.cu: cannot open: No such file or directory")),
    Row("run head_dim=64 dtype=fp8 mask=none layout=bshd seq_q=1 --random 1", 2,
        say("dtype: run knows bf16, fp16, e4m3 and e5m2, got 'fp8'")),
    Row("draw", 2, say("draw: MASK [KEY=VALUE...] | PROBLEM is missing; see 'warploom draw -h'")),
    Row("draw document", 2, say("draw: mask document reads tensors: what it keeps, they decide")),
    Row("explain head_dim=64 dtype=bf16 mask=document layout=bshd seq_q=100", 0,
        out=re.compile(r"\ntiles\n  tiles  told by the launch, of its tensors\n")),
    Row("run head_dim=64 dtype=bf16 mask=document layout=bshd seq_q=9 --random 1 --device sim "
        "--tensor doc", 2, say("run: --tensor doc: expected NAME=FILE.npy")),
    Row("run head_dim=64 dtype=bf16 mask=document layout=bshd seq_q=9 --random 1 --device sim "
        "--tensor doc={T}/none.npy", 2, re.compile("none.npy: cannot open")),
    Row("run head_dim=64 dtype=bf16 mask=document layout=bshd seq_q=9 --random 1 --device sim "
        "--tensor doc={T}/f4.npy", 2, re.compile(
            r"f4.npy: tensor doc: elements are '<f4'; int32 is read from '<i4', bool from '\|b1', "
            "fp32 from '<f4', bf16 from '<f4' or its bits as '<u2'"),
        files={"f4.npy": npy("<f4", "(1, 9)", 36)}),
    Row("run head_dim=64 dtype=bf16 mask=document layout=bshd seq_q=9 --random 1 --device sim "
        "--tensor doc={T}/flat.npy", 2, re.compile(
            "flat.npy: tensor doc: 1 dimensions, the spec has 2 indexes"),
        files={"flat.npy": npy("<i4", "(9,)", 36)}),
    Row("run head_dim=64 dtype=bf16 mask=document layout=bshd seq_q=9 --random 1 --device sim "
        "--tensor doc={T}/short.npy", 2, re.compile(
            r"tensor doc: shape\[1\] = 8: the call needs 9"),
        files={"short.npy": npy("<i4", "(1, 8)", 32)}),
    Row("run head_dim=64 dtype=bf16 mask=document layout=bshd batch=2 seq_q=99 seq_k=120 "
        "--random 1 --check --device sim --tensor doc={T}/doc.npy", 0, re.compile("its times"),
        out=re.compile(r"\n.*_document_.* 198 +198 "),
        files={"doc.npy": npy("<i4", "(1, 120)", 0) + b"".join(
            struct.pack("<i", i // 31) for i in range(120))}),
    Row("run head_dim=64 dtype=bf16 mask=none score=slopes layout=bshd seq_q=9 heads=3 --random 1 "
        "--device sim --check --tensor slope={T}/slope.npy", 0, re.compile("its times"),
        out=re.compile("_slopes_"),
        files={"slope.npy": npy("<f4", "(3,)", 0) + struct.pack("<3f", 1, 0.5, 0.25)}),
    Row("run head_dim=64 dtype=bf16 mask=none score=bias layout=bshd seq_q=3 --random 1 "
        "--device sim --check --tensor bias={T}/bias.npy", 0, re.compile("its times"),
        out=re.compile("_bias_"),
        files={"bias.npy": npy("<f4", "(1, 3, 3)", 0) + struct.pack("<9f", *range(9))}),
    Row("draw windo", 2, say("masks: fwd has no 'windo'; did you mean 'window'?")),
    Row("draw window variant=x", 2, say("no spec 'x'")),
    Row("draw window mask_args=1,2,3", 2, say("mask_args: 3 are given, window has 2")),
    Row("draw window mask_args=-4", 2, say("mask_args: left = -4: expected 0 to 1073741824")),
    Row("draw window seq_k=x", 2, ANY),
    Row("draw mask=window", 2, re.compile("^warploom: problem: head_dim is missing")),
    Row("draw {P} seq_k=999999 -o {T}/o.svg", 2,
        say("draw: 1 x 7813 tiles: at most 1024 a side; take fewer rows or keys"), env=NO_GPU),
    Row("draw window -o {T}/o.svg", 0, then=file_begins("o.svg", b"<svg ")),
    Row("draw window -o {T}/none/o.svg", 1, ANY),
    Row("draw {P} --json", 2, ANY),
    Row("run head_dim=64 dtype=fp16 mask=windo layout=bshd seq_q=1 --random 1 --device sim", 2,
        say("mask=windo: fwd takes none, causal, topleft, window, sink, chunk, document, "
            "doccausal, docwindow, spans, blocks, prefix, dilated, longformer, localprefix, "
            "headwindow, duo; did you mean 'window'?")),
    Row("run head_dim=64 dtype=fp16 mask=none mask_args=1 layout=bshd seq_q=1 --random 1 "
        "--device sim", 2, re.compile("\nwarploom: mask_args: mask=none has no params\n")),
    Row("run head_dim=64 dtype=bf16 mask=window mask_args=9,-1 layout=bshd seq_q=9 --random 1 "
        "--device sim", 2, re.compile("\nwarploom: mask_args: right = -1: expected 0 to 10737")),
    Row("run head_dim=64 dtype=bf16 mask=window mask_args=40,3 layout=bshd seq_q=99 seq_k=120 "
        "--random 1 --check --device sim", 0, re.compile("its times"),
        out=re.compile(r"\n.*_window_.* 99 +99 ")),
    Row("run head_dim=64 dtype=fp16 mask=none score=softcup layout=bshd seq_q=1 --random 1 "
        "--device sim", 2, say("score=softcup: fwd takes none, softcap, alibi, distance, "
                               "slopes, bias, temperature; did you mean 'softcap'?")),
    Row("run head_dim=64 dtype=fp16 mask=none score_args=1 layout=bshd seq_q=1 --random 1 "
        "--device sim", 2, re.compile("\nwarploom: score_args: score=none has no params\n")),
    Row("run head_dim=64 dtype=bf16 mask=window mask_args=40,3 score=softcap score_args=2.5 "
        "layout=bshd seq_q=99 seq_k=120 --random 1 --check --device sim", 0,
        re.compile("its times"), out=re.compile(r"\n.*_window_softcap_.* 99 +99 ")),
    Row("explain head_dim=128 dtype=bf16 mask=window mask_args=1023 layout=bshd seq_q=4096 "
        "heads=2", 0, out=re.compile(
            r"\ntiles\n  loaded  \d+ of 4096 tiles of 64 x 128\n"
            r"  full    \d+: no mask code runs\n  mixed   \d+\n")),
    Row("explain head_dim=64 dtype=bf16 mask=none layout=bshd seq_q=1000000 heads=2", 0,
        out=re.compile(r"\ntiles\n  tiles  too many to count here\n")),
    Row("run head_dim=64 dtype=e4m3 mask=causal layout=bhsd heads=4 kv_heads=2 seq_q=99 seq_k=120 "
        "scales=head --random 1 --check --device sim", 0, re.compile("its times"),
        out=re.compile(r" format_error\n.*_e4m3_causal_\S+_exact_dyn_\S+ .* 0\.0[45]\d*\n")),
    Row("run head_dim=128 dtype=e5m2 out_dtype=fp16 precision=accurate mask=none layout=bshd "
        "seq_q=70 lse=no --random 1 --check --device sim", 0, re.compile("its times"),
        out=re.compile(r"_e5m2_fp16_none_\S+_exact_\S+ .* - +0\.\d+\n")),
    Row("run head_dim=48 dtype=e4m3 precision=fast mask=none layout=bshd seq_q=70 seq_k=2100 "
        "--random 1 --check --json --device sim", 0, re.compile("its times"),
        out=re.compile(r'_l1_.*"format_error": 0\.0')),
    Row("run head_dim=64 dtype=e4m3 mask=none layout=bshd seq_q=70 --random 1 --check --device sim "
        "--kernel fwd8_d64_e4m3_none_m192n96_s10_w3_opt_l1_dyn_p32c160", 2,
        re.compile("is for precision=fast; the problem asks precision=balanced")),
    Row("list head_dim=64 dtype=e4m3 precision=quick mask=none layout=bshd seq_q=70", 2,
        say("precision=quick: fwd8 takes balanced, accurate, fast")),
    Row("list head_dim=64 dtype=e4m3 score=softcap mask=none layout=bshd seq_q=70", 2,
        say("score=softcap: fwd8 takes none")),
    Row("list head_dim=72 dtype=e4m3 mask=none layout=bshd seq_q=70", 2,
        say("head_dim=72: fwd8 takes 16 to 256 in steps of 16; the next above is 80")),
    Row("explain head_dim=256 dtype=e4m3 mask=none layout=bshd seq_q=4096", 0,
        out=re.compile(r"the tiles in fp32; P V in 4 parts of 64 columns\n")),
    Row("run {P} --random 1 lse=maybe", 2, say("lse: run knows no and yes, got 'maybe'")),
    Row("run {P} --random 1 lse=no --lse {T}/l.npy", 2,
        say("run: --lse FILE, but the problem says lse=no; leave one out")),
    Row("list {P} lse=maybe", 2, say("lse=maybe: fwd takes yes, no")),
    Row("list {P} lse=no", 0, out=re.compile(r"\A{NAME}\n")),
    Row("run head_dim=64 --random 1", 2,
        say("problem: dtype is missing: bf16, fp16, e4m3 or e5m2")),
    Row("run {P} --random 1 --device gpu", 5,
        re.compile(r"\Awarploom: no NVIDIA driver: .*none\.so: .*install"), env=NO_GPU),
    Row("run {P} --random 1", 5,
        re.compile(r"\Awarploom: no NVIDIA driver: .*; no simulator: .*none\.so: "),
        env={**NO_GPU, **NO_SIM}),
    Row("run {P} --random 1", 5,
        re.compile(r"\Awarploom: the driver has no GPU; no simulator: .*none\.so: "),
        env={**FAKE, **NO_SIM, "FAKE_CUDA_DEVICES": "0"}),
    Row("run {P} --random 1", 5, re.compile(r"\Awarploom: no simulator: .*none\.so: "),
        env={**FAKE, **NO_SIM, "WARPLOOM_DEVICE": "sim"}),
    Row("run {P} --random 1 --device cpu", 2, say("device: expected gpu or sim, got 'cpu'"),
        env={"WARPLOOM_DEVICE": "gpu"}),
    Row("run head_dim=20 dtype=fp16 mask=none layout=bshd seq_q=64 --random 1", 2,
        re.compile(r"\Awarploom: head_dim=20: fwd takes 16 to 256 in steps of 8; "), env=NO_GPU),
    Row("run {P} variant=foo --random 1", 2,
        say("variant: no spec 'foo'; there is fwd, fwd8, quantize"),
        env=NO_GPU),
    Row("run {P} --random 1 --kernel foo", 2,
        say("foo: " + NO_NAME), env=NO_GPU),
    Row("run head_dim=128 dtype=fp16 mask=none layout=bshd seq_q=64 --random 1 --kernel {NAME}", 2,
        say("kernel {NAME} is for head_dim=64; the problem asks head_dim=128"), env=NO_GPU),
    Row("run {P} --random 1 --source {T}/x.cu", 0, re.compile(
        r"\Awarploom: {T}/x\.cu:1: warning #"), ANY, env=FAKE,
        files={"x.cu": SIMPLE.replace("*p = 1", "int unused; *p = 1")}),
    Row("run {P} --random 1", 0, re.compile(r"\Awarploom: cache: /proc/nope: No such"), ANY,
        env={"WARPLOOM_CACHE": "rw", "WARPLOOM_CACHE_DIR": "/proc/nope", **FAKE}),
    Row("compile {P} --device cpu", 2, say("device: expected gpu or sim, got 'cpu'")),
    Row("compile {P} --device sim -o {T}/x.ptx", 0, out=re.compile(r"\n{NAME}  compute_90a  "),
        then=file_begins("x.ptx", b"//")),

    # verify, without a simulator
    Row("verify", 2, say("verify: give PROBLEM, NAME or --source FILE.cu")),
    Row("verify {NAME} --schedules 0", 2, say("--schedules: expected 1 to 1000000, got '0'")),
    Row("verify {NAME} --schedules x", 2,
        say("--schedules: expected a whole number below 2^64, got 'x'")),
    Row("verify {NAME} --source {T}/none.cu", 2,
        say("{T}/none.cu: cannot open: No such file or directory")),
    Row("verify {NAME} --source {T}/x.cu", 2, files={"x.cu": SIMPLE},
        err=say("verify: --source names its kernel itself; leave {NAME} out")),
    Row("verify {NAME}", 5, re.compile(r"\Awarploom: no simulator: .*none\.so: "), env=NO_SIM),
    Row("verify head_dim=64", 2, say("problem: dtype is missing: bf16, fp16, e4m3 or e5m2")),
    Row("run {P} " + NPY, 2, say("{T}/q.npy: cannot open: No such file or directory")),
    Row("run {P} " + NPY, 2, say("{T}/q.npy: shape (64,64); the problem asks for (1,64,1,64)"),
        files={"q.npy": npy(shape="(64, 64)")}),
    Row("run {P} " + NPY, 2, say("{T}/q.npy: 8 bytes of data; its shape needs 8192"),
        files={"q.npy": npy(size=8)}),
    Row("run {P} " + NPY, 2, re.compile(r"{T}/q\.npy: Fortran order: "),
        files={"q.npy": npy(fortran="True")}),
    Row("run {P} --random 1 --check", 6,
        re.compile(r"\Awarploom: verification failed: norm ratio of O inf"),
        re.compile(r"\Aname .*checked .*\n{NAME} .* 64 +64 +inf"), env=FAKE),
    Row("run {P} --random 1 --check lse=no", 6, ANY,
        re.compile(r"\Aname .*checked .*\n{NAME} .* 64 +64 +inf +inf +-\n"), env=FAKE),
    Row("run {P} --random 1 --check --json", 6, ANY, ANY, env=FAKE, then=rows_of(RUN_KEYS)),
    Row("run {P} --random 1 --lse {T}/l.npy -o {T}/o.npy", 0,
        out=re.compile(r"\Aname +time_us +tflops\n"), env=FAKE,
        then=file_begins("l.npy", b"\x93NUMPY\x01\0")),
    Row("run {P} --random 1 -o {T}/no/o.npy", 1,
        say("{T}/no/o.npy: cannot write: No such file or directory"), env=FAKE),
    Row("run head_dim=64 dtype=fp16 mask=causal layout=bhsd seq_q=64 " + NPY + " --json", 0,
        out=ANY, env=FAKE, files={"q.npy": npy(shape="(1, 1, 64, 64)")},
        then=file_begins("o.npy", b"\x93NUMPY")),
    Row("run head_dim=64 dtype=bf16 mask=causal layout=bshd seq_q=9 seq_k=5 --random 1", 0, out=ANY,
        env=FAKE),
    Row("run {P} --random 1 --kernel {NAME}", 0, out=re.compile(r"\n{NAME} "), env=FAKE),
    Row("run {P} --random 1 --kernel nope", 2,
        say("nope: " + NO_NAME), env=FAKE),
    Row("run {P} --random 1 --source {T}/x.cu", 0, out=re.compile(r"\n{NAME} "),
        files={"x.cu": SIMPLE},
        env={"WARPLOOM_CACHE": "rw", "WARPLOOM_CACHE_DIR": "{T}/c", **FAKE}),
    Row("run {P} --random 1 --spec {T}/none.yaml", 2,
        say("{T}/none.yaml: cannot open: No such file or directory"), env=FAKE),
    *[Row("run {P} --random 1", 1, say(f"{call}: CUDA_ERROR_OUT_OF_MEMORY (a fake error)"),
          env={**FAKE, "FAKE_CUDA_FAIL": f"{call}{suffix}:2"})
      for call, suffix in [("cuDeviceGet", ""), ("cuDevicePrimaryCtxRetain", ""),
                           ("cuCtxSetCurrent", ""), ("cuMemAlloc", "_v2"),
                           ("cuMemcpyHtoD", "_v2"), ("cuMemcpyDtoH", "_v2"),
                           ("cuCtxSynchronize", "")]],

    # doctor
    Row("doctor", 0, env=NO_GPU, out=re.compile(
        r"warploom +ok .*generator +ok.*specs +ok.*driver +missing.*cache ", re.S)),
    Row("doctor", 0, out=re.compile(r"driver +ok +CUDA 13\.0\ngpu +ok +0: .*sm_90a"), env=FAKE),
    Row("doctor", 0, out=re.compile(r"gpu +missing +0: .*sm_80.*; kernels are made for sm_90a"),
        env={**FAKE, "FAKE_CUDA_CC": "80"}),
    Row("doctor", 0, out=re.compile(r"gpu +missing +cuDeviceGet: "),
        env={**FAKE, "FAKE_CUDA_FAIL": "cuDeviceGet:2"}),
    Row("doctor", 0, out=re.compile(r"nvrtc +missing +.*none\.so.*\nnvrtc +missing +`make setup`"),
        env={"WARPLOOM_NVRTC": "{T}/none.so"}),
    Row("doctor", 0,
        out=re.compile(r"nvrtc +missing +\S+: NVRTC 11\.8 is too old, 12\.0 is the first"),
        env={**NVRTC, "FAKE_NVRTC_VERSION": "11.8"}),
    Row("doctor", 0, out=re.compile(r"generator +missing +no generator: "),
        env={"WARPLOOM_GEN": "{T}/none.so"}),
    Row("doctor", 0, out=re.compile(r"cache +limited +/proc/nope \(rw\): /proc/nope: No such"),
        env={"WARPLOOM_CACHE": "rw", "WARPLOOM_CACHE_DIR": "/proc/nope"}),
    Row("doctor", 0, out=re.compile(r"cache +ok +{T}/c \(rw\)\n"),
        env={"WARPLOOM_CACHE": "rw", "WARPLOOM_CACHE_DIR": "{T}/c"}),
    Row("doctor --json", 0, out=ANY, then=rows_of("what state detail")),
    Row("doctor", 2, ANY, env={"WARPLOOM_CACHE": "maybe"}),
    Row("doctor", 2, say("cache size: expected bytes, or a number with K, M or G behind, got '1T'"),
        env={"WARPLOOM_CACHE_SIZE": "1T"}),

    # cache
    Row("cache ls --size 3", 2, say("cache ls: --size is not for it; it takes --json")),
    Row("cache", 2, say("cache: ls|path|verify|prune|export|explain-key A B is missing; see "
                        "'warploom cache -h'")),
    Row("cache lsx", 2, say("cache: unknown word 'lsx'; did you mean 'ls'?")),
    Row("cache frobnicate", 2, say("cache: unknown word 'frobnicate'; see 'warploom cache -h'")),
    Row("cache ls all", 2, say("cache ls takes no operand, got 'all'")),
    Row("cache path", 0, out="{T}/c\n", env=CACHE),
    Row("cache path --json", 0, env={**CACHE, "WARPLOOM_CACHE_SIZE": "2K"},
        out='[\n {{"path": "{T}/c", "mode": "rw", "limit": 2048, "reason": ""}}\n]\n'),
    Row("cache ls", 0, env=CACHE, out=""),
    Row("cache ls --json", 0, env=CACHE, files=ENTRIES, out=ANY,
        then=rows_of("kind bytes used name key")),
    Row("cache ls", 0, env=CACHE, files=ENTRIES, out=re.compile(
        r"\Akind +bytes +used +name +key\nchoice +101 +20\d\d-.*Z +fwd_x +0000.*\n"
        r"kernel +94 +20\d\d-.*Z +a000.*\ntuned +101 .* +fwd_y +a000.*\n\Z")),
    Row("cache verify", 0, env=CACHE, files=ENTRIES, out=""),
    Row("cache verify", 6, say("cache: 1 of 4 entries are faulty: they are made anew when they are "
                               "needed"),
        "{T}/c/v2/f/0/f" + 63 * "0" + ".kernel: too short\n", env=CACHE,
        files={**ENTRIES, **FAULTY}, then=gone("c/v2/f/0/f" + 63 * "0" + ".kernel")),
    Row("cache verify --json", 6, say("cache: 1 of 4 entries are faulty: they are passed over, and "
                                      "stay: the cache is not writable"), ANY,
        env={**CACHE, "WARPLOOM_CACHE": "ro"}, files={**ENTRIES, **FAULTY}, then=rows_of("fault")),
    Row("cache verify", 6, say("cache: 2 folders are passed over, with all that is in them: make "
                               "them your own, writable by nobody else, or remove them"),
        "{T}/c/v2/0/0: Not a directory\n{T}/c/v2/3: Not a directory\n", env=CACHE,
        files={"c/v2/0/0": b"", "c/v2/3": b""}),
    Row("cache ls", 1, say("cache: folders are passed over: {T}/c/v2/3: Not a directory; see "
                           "'warploom doctor'"), re.compile("fwd_x"), env=CACHE,
        files={**ENTRIES, "c/v2/3": b""}),
    Row("cache export -o {T}/x.tar", 1, re.compile("are passed over: {T}/c/v2/3: Not a dir"),
        env=CACHE, files={**ENTRIES, "c/v2/3": b""}, out="entries  bytes\n      3   6656\n"),
    Row("cache export -o {T}/x.tar", 1, say("cache {T}/c (off): it is not read; see 'warploom "
                                            "doctor'"), env={**CACHE, "WARPLOOM_CACHE": "off"}),
    *(Row("cache " + verb, 1, say("cache /dev/null (off): it is not read: /dev/null: not a "
                                  "directory; see 'warploom doctor'"),
          env={**CACHE, "WARPLOOM_CACHE_DIR": "/dev/null"}) for verb in ("ls", "verify")),
    Row("cache prune", 0, env=CACHE, files=ENTRIES,
        out="evicted  freed  kept  bytes  swept\n      0      0     3  12288      0\n"),
    Row("cache prune --size 1K", 0, env=CACHE, files=ENTRIES, out=ANY),
    Row("cache prune --size lots", 2, env=CACHE, err=say(
        "--size: expected bytes, or a number with K, M or G behind, got 'lots'")),
    Row("cache prune", 1, say("cache {T}/c (ro): it cannot be written; see 'warploom doctor'"),
        env={**CACHE, "WARPLOOM_CACHE": "ro"}),
    Row("cache export", 2, env=CACHE, err=say(
        "cache export: -o is missing: the archive to write, as cache.tar")),
    Row("cache export -o {T}/x.tar", 0, env=CACHE, files={**ENTRIES, **FAULTY},
        out="entries  bytes\n      3   6656\n", then=archive("x.tar")),
    Row("cache export -o {T}/no/x.tar", 1, env=CACHE, files=ENTRIES,
        err=say("{T}/no/x.tar: cannot write: No such file or directory")),
    Row("cache explain-key {NAME}", 2,
        say('cache explain-key: expected A B, each NAME or "PROBLEM"')),
    Row("cache explain-key {NAME} nope", 2, ANY),
    Row("cache explain-key --json {NAME} {NAME}", 0, env=NVRTC, out=re.compile(
        r'"record": "choice", "differs_in": "nothing", .*"kernel", "differs_in": "nothing"', re.S)),
    Row("cache explain-key '{P}' '{P} seq_k=640'", 0, env=NVRTC, out=re.compile(
        r"^choice +problem +.* seq_k=64 .* seq_k=640 .*\nkernel +entry +{NAME} +fwd_", re.M)),
]


def fill(text, words):
    for key, value in words.items():
        text = text.replace("{" + key + "}", value)
    return text.replace("{{", "{").replace("}}", "}")


def matches(want, got, words):
    if isinstance(want, str):
        return fill(want, words) == got
    return re.search(fill(want.pattern, words), got, want.flags) is not None


def environment(build, folder, row_env, options):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("WARPLOOM_", "XDG_", "FAKE_"))}
    env.update(WARPLOOM_CACHE="off", HOME=folder, **options)
    env.update({k: fill(v, {"B": build, "T": folder}) for k, v in row_env.items()})
    return env


def run_row(row, build, name, options):
    """None when all holds, else what does not."""
    with tempfile.TemporaryDirectory(prefix="warploom-cli-") as folder:
        words = {"P": P, "NAME": name, "T": folder, "ROOT": ROOT, "B": build, "VIT": VIT}
        args = row.args if isinstance(row.args, list) else shlex.split(fill(row.args, words))
        for file, content in row.files.items():
            path = os.path.join(folder, file)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as out:
                out.write(content if isinstance(content, bytes) else
                          content.replace("{NAME}", name).encode())
        done = subprocess.run([build + "/warploom", *args], text=True,
                              errors="replace", timeout=120,
                              env=environment(build, folder, row.env, options),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
        faults = []
        if done.returncode != row.code:
            faults.append(f"exit {done.returncode}, want {row.code}")
        for what, want, got in (("stdout", row.out, done.stdout), ("stderr", row.err, done.stderr)):
            if want is not None and not matches(want, got, words):
                faults.append(f"{what} is\n{got[:1500]}want\n{want}")
        if row.then and not faults:
            try:
                row.then(done.stdout, folder)
            except (AssertionError, OSError, ValueError) as error:
                faults.append(f"{type(error).__name__}: {error}\n{done.stdout[:500]}")
        shown = row.args if isinstance(row.args, str) else repr(row.args)[:80]
        return f"warploom {shown} {row.env or ''}: " + "; ".join(faults) if faults else None


def interrupt(build, options):
    """Ctrl-C while NVRTC works: exit 130, a word on stderr, no half-written entry."""
    with tempfile.TemporaryDirectory(prefix="warploom-cli-") as folder:
        cache = {"WARPLOOM_CACHE": "rw", "WARPLOOM_CACHE_DIR": "{T}/c"}
        env = environment(build, folder, cache, options)
        process = subprocess.Popen([build + "/warploom", "compile", *([P] * 50)], env=env,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(0.7)
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=60)[1]
        good = process.returncode == 130 and err == say("interrupted")
        return None if good else f"ctrl-C: exit {process.returncode}, stderr {err!r}"


def full_disk(build, options, *words):
    """What cannot be printed is a failure."""
    with tempfile.TemporaryDirectory() as folder, open("/dev/full", "w", encoding="ascii") as full:
        done = subprocess.run([build + "/warploom", *words], stdout=full, text=True,
                              stderr=subprocess.PIPE, env=environment(build, folder, {}, options))
    good = done.returncode == 1 and done.stderr == say("standard output: No space left on device")
    return None if good else f"full disk, {words}: exit {done.returncode}, {done.stderr!r}"


def run(build, **options):
    """(how many rows hold, a text for each that does not). Options go to the environment."""
    os.umask(0o022)  # folders that a group may write are not used
    first = subprocess.run([build + "/warploom", "list", *P.split()], stdout=subprocess.PIPE,
                           text=True, env=environment(build, "/tmp", {}, options))
    name = first.stdout.split("\n")[0]
    results = [run_row(row, build, name, options) for row in ROWS]
    results += [interrupt(build, options)]
    results += [full_disk(build, options, *words) for words in (
        ["list", *P.split()], ["emit", name], ["emit", name, "--json"], ["explain", name], ["-h"])]
    failures = [r for r in results if r]
    return len(results) - len(failures), failures


if __name__ == "__main__":
    good, bad = run(os.path.abspath(os.environ.get("BUILD", ROOT + "/build")))
    print("\n".join(bad), end="\n" if bad else "")
    print(f"{good} passed, {len(bad)} failed")
    sys.exit(bool(bad))
