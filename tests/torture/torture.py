"""torture.py - `make torture`: the cache under crowds, kills, damage, failing calls, odd places.
SPDX-License-Identifier: BSD-3-Clause

torture.py [--short] [NAME…]   the tortures whose name begins so; --short: what `make check` runs
Each prints what it did; exit status 1 when a kernel was wrong, a call failed, or damage stayed.
BUILD names the build folder. Kernels come from the fake generator and the fake NVRTC of the tests.
"""
import errno
import fcntl
import glob
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.path.join(ROOT, os.environ.get("BUILD", "build")))
USE, OTHER, SHIM = (f"{BUILD}/torture_{name}" for name in ("use", "other", "shim.so"))
SHORT = "--short" in sys.argv
ERRNOS = ("ENOSPC", "EIO", "EROFS", "EACCES", "ESTALE", "EINTR", "SHORT")
YEARS = 10 * 365 * 86400
faults = []


def expect(holds, text):
    if not holds:
        faults.append(text)
        print("FAULT " + text, flush=True)


class Place:
    """A folder with a cache, on memory where there is some: an fsync is not what is tortured."""

    def __init__(self):
        shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = tempfile.mkdtemp(prefix="wl-torture-", dir=shm)
        self.cache = self.folder + "/cache"
        os.mkdir(self.folder + "/run", 0o700)
        self.env = {"PATH": os.environ["PATH"], "HOME": self.folder + "/home",
                    "XDG_RUNTIME_DIR": self.folder + "/run", "WARPLOOM_CACHE_DIR": self.cache,
                    "WARPLOOM_NVRTC": BUILD + "/libfake_nvrtc.so",
                    "WARPLOOM_GEN": BUILD + "/libfake_gen.so",
                    "FAKE_NVRTC_COUNT": self.folder + "/count"}
        if os.environ.get("ASAN_OPTIONS"):
            self.env["ASAN_OPTIONS"] = os.environ["ASAN_OPTIONS"]

    def start(self, *args, program=USE, user=None, **more):
        env = {k: v for k, v in {**self.env, **more}.items() if v is not None}
        return subprocess.Popen([program, *args], env=env, cwd="/", text=True, user=user,
                                group=user, extra_groups=[] if user else None,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def use(self, *args, **more):
        """Runs to the end; the output of one that is right, else a fault."""
        child = self.start(*args, **more)
        try:
            out, _ = child.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            child.kill()
            out = child.communicate()[0] + " hangs"
        expect(child.returncode == 0, f"use {args} {more}: exit {child.returncode}: {out[:500]}")
        return out

    def compiled(self):
        """How many compiles since the last question."""
        path = self.env["FAKE_NVRTC_COUNT"]
        n = open(path, encoding="ascii").read().count("\n") if os.path.exists(path) else 0
        if n:
            os.remove(path)
        return n

    def files(self, end=""):
        return sorted(os.path.join(folder, name) for folder, _, names in os.walk(self.cache)
                      for name in names if name.endswith(end))

    def torn(self):
        """Entries that are not as long as they say, in a place where a process was killed."""
        out = []
        for path in self.files(".kernel") + self.files(".choice"):
            entry = open(path, "rb").read()
            if len(entry) < 88 or len(entry) != 88 + struct.unpack_from("<Q", entry, 48)[0]:
                out.append(path)
        return out

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def torture_crowd(place):
    """64 processes ask for the same 40 keys at once: right, each compiled at most a few times."""
    n, keys = (16, 10) if SHORT else (64, 40)
    names = [f"fwd_{i}" for i in range(keys)]
    for rules, most in (({}, keys), ({"XDG_RUNTIME_DIR": "/nowhere"}, keys),
                        ({"WARPLOOM_CACHE_WAIT": "0"}, None)):
        shutil.rmtree(place.cache, ignore_errors=True)
        crowd = [place.start("get", *names, FAKE_NVRTC_MS="5", **rules) for _ in range(n)]
        for child in crowd:
            out, _ = child.communicate(timeout=300)
            expect(child.returncode == 0, f"crowd: exit {child.returncode}: {out}")
        count = place.compiled()
        expect(count >= keys and (most is None or count <= 2 * most),
               f"crowd {rules}: {keys} keys were compiled {count} times")
        expect(len(place.files(".kernel")) == keys, "crowd: not every kernel is in the cache")
        expect(not place.files(".tmp"), "crowd: temporary files are left")
        print(f"  {n} processes, {keys} keys, {rules or 'locks'}: {count} compiles")
    shutil.rmtree(place.cache)
    place.use("threads", "16", *names, FAKE_NVRTC_MS="5")
    count = place.compiled()
    expect(keys <= count <= 2 * keys, f"threads: {keys} keys were compiled {count} times")
    place.use("threads", "16", *names, WARPLOOM_CACHE="off")
    print(f"  16 threads, {keys} keys: {count} compiles")
    place.compiled()


def torture_kill(place):
    """Killed at a random moment, and at each system call; the next run is right."""
    kills, died, runs, dice = 60 if SHORT else 1000, 0, 0, random.Random(1)
    start = time.monotonic()
    for i in range(20):
        place.use("get", f"fwd_warm{i}", f"fwd_{i - 1}", f"fwd_new{i}")
    usual = (time.monotonic() - start) / 20
    while died < kills and runs < 10 * kills:
        names = [f"fwd_{runs}", f"fwd_{runs - 1}", f"fwd_new{runs}"]
        child = place.start("get", *names)
        time.sleep(dice.random() * usual)
        child.kill()
        child.communicate()
        died += child.returncode == -signal.SIGKILL
        runs += 1
        expect(not place.torn(), f"kill: {place.torn()}")
        place.use("get", *names)
    expect(died == kills, f"kill: only {died} of {runs} died")
    calls = 0
    for prepare in (lambda: shutil.rmtree(place.cache), lambda: place.use("get", "fwd_a")):
        at, status = 0, -signal.SIGKILL
        while status == -signal.SIGKILL:
            prepare()
            at += 1
            child = place.start("get", "fwd_a", f"fwd_at{at}", LD_PRELOAD=SHIM, SHIM_KILL=str(at))
            out, _ = child.communicate()
            status = child.returncode
            expect(not place.torn(), f"kill at call {at}: {place.torn()}")
            place.use("get", "fwd_a", f"fwd_at{at}")
        expect(status == 0 and at > 100, f"kill at call {at}: exit {status}: {out}")
        calls += at - 1
    old = time.time() - 4000
    for path in place.files(".tmp"):
        os.utime(path, (old, old))
    left = len(place.files(".tmp"))
    done = subprocess.run([BUILD + "/warploom", "cache", "verify"], env=place.env, text=True,
                          capture_output=True)
    expect(done.returncode == 0, f"kill: {done.stdout}{done.stderr}")
    subprocess.run([BUILD + "/warploom", "cache", "prune"], env=place.env, check=True,
                   capture_output=True)
    expect(not place.files(".tmp"), "kill: temporary files are not swept")
    print(f"  {runs} runs, {died} killed; {calls} killed at a system call; "
          f"{left} temporary files left and swept")


def torture_flips(place):
    """Random flips and cuts, and each bit of one entry: found, and healed."""
    n = 500 if SHORT else 10000
    print(f"  {place.use('flips', str(n), '7').strip()} flips and cuts")
    print(f"  {place.use('flips', '0').strip()} single bits")
    expect(len(place.files(".bad")) <= 4, f"{len(place.files('.bad'))} .bad files are kept")


def steps(place, prepare):
    """The system calls of one `use get` after `prepare`."""
    prepare()
    log = place.folder + "/log"
    place.use("get", "fwd_a", LD_PRELOAD=SHIM, SHIM_LOG=log, SHIM_ROOT=place.cache)
    lines = open(log, encoding="utf-8").read().splitlines()
    os.remove(log)
    bad = [line for line in lines if line.endswith(" BAD")]
    expect(not bad, f"without O_CLOEXEC or O_NOFOLLOW: {bad}")
    return lines


def torture_calls(place):
    """Each system call fails, with each errno; the kernel is right, and the next run's, too."""
    def nothing():
        shutil.rmtree(place.cache, ignore_errors=True)

    def filled():
        nothing()
        place.use("get", "fwd_a")

    def spoilt():
        filled()
        for path in place.files(".kernel"):
            open(path, "r+b").truncate(100)

    def old():
        filled()
        for path in place.files(".kernel") + place.files(".choice"):
            os.utime(path, (1e9, 1e9))

    def beside():
        """What a cache in the wrong place would be (other tests may build things there)."""
        return [f for f in os.listdir(BUILD)
                if f.endswith((".kernel", ".choice", ".tuned", ".tmp", ".bad")) or f == "v2"]

    runs, built = 0, beside()
    for prepare in (nothing, filled, spoilt, old):
        small = {"WARPLOOM_CACHE_SIZE": "4K"} if prepare is spoilt else {}
        lines = steps(place, prepare)
        for at, line in enumerate(lines, 1):
            if line.startswith("open ") and "libfake_nvrtc" in line:
                continue  # NVRTC's own file is no cache: it must be readable
            for name in ERRNOS[at % len(ERRNOS)::len(ERRNOS)] if SHORT else ERRNOS:
                prepare()
                number = "0" if name == "SHORT" else str(getattr(errno, name))
                place.use("get", "fwd_a", LD_PRELOAD=SHIM, SHIM_AT=str(at), SHIM_ERRNO=number,
                          **small)
                expect(not place.files(".tmp"), f"{name} at {line}: a temporary file is left")
                place.use("get", "fwd_a")
                runs += 1
        prepare()
        place.use("get", "fwd_a", LD_PRELOAD=SHIM, SHIM_ALL="1")
        print(f"  {prepare.__name__}: {len(lines)} calls")
    place.compiled()
    expect(beside() == built, "something was written beside the program")
    print(f"  {runs} runs with a call that failed")


def torture_places(place):
    """Homes and folders that cannot be used, or must not be: the call still works."""
    home = {"WARPLOOM_CACHE_DIR": None}
    user = 65534 if os.geteuid() == 0 else None  # nothing is forbidden to root
    os.chmod(place.folder, 0o755)
    programs = tempfile.mkdtemp(prefix="wl-torture-")  # the build's folder may be closed to others
    os.chmod(programs, 0o755)
    for path in glob.glob(BUILD + "/lib*.so*") + [USE]:
        shutil.copy(path, programs)
    place.env.update(WARPLOOM_NVRTC=programs + "/libfake_nvrtc.so",
                     WARPLOOM_GEN=programs + "/libfake_gen.so")
    os.mkdir(place.folder + "/home", 0o555)
    cases = 0

    def case(what, compiles, **more):
        nonlocal cases
        place.compiled()
        place.use("get", "fwd_a", FAKE_NVRTC_COUNT=place.folder + "/open/count",
                  program=programs + "/torture_use", **more)
        count = place.folder + "/open/count"
        n = open(count, encoding="ascii").read().count("\n") if os.path.exists(count) else 0
        if n:
            os.remove(count)
        expect(n == compiles, f"{what}: {n} compiles, expected {compiles}")
        cases += 1

    os.mkdir(place.folder + "/open")
    os.chmod(place.folder + "/open", 0o1777)
    case("read-only home", 2, user=user, **home)
    expect(os.listdir(place.folder + "/home") == [], "a read-only home was written")
    case("no home", 2, user=user, HOME=None, XDG_RUNTIME_DIR=None, **home)
    case("HOME=/dev/null", 2, HOME="/dev/null", XDG_CACHE_HOME="/dev/null", **home)
    case("relative XDG_CACHE_HOME", 1, XDG_CACHE_HOME="here", HOME=place.folder + "/h1", **home)
    place.use("get", "fwd_a")
    case("a filled cache", 0)
    case("a filled cache, read-only", 0, WARPLOOM_CACHE="ro")
    for path in place.files(".kernel"):
        os.rename(path, path + ".real")
        os.symlink(path + ".real", path)
    case("a symlink as an entry", 1)
    for path in place.files(".kernel"):
        os.remove(path)
        os.mkfifo(path, 0o600)
    case("a FIFO as an entry", 1)
    for path in place.files(".choice"):
        os.remove(path)
        os.mkdir(path)
    case("a folder as an entry", 0)
    case("healed", 0)
    folder = place.cache + "/v2"
    os.rename(folder, place.folder + "/v2")
    os.symlink(place.folder + "/v2", folder)
    case("a symlink as a folder", 2)
    os.remove(folder)
    os.rename(place.folder + "/v2", folder)
    os.chmod(folder, 0o777)
    case("a folder that all may write", 2)
    os.chmod(folder, 0o700)
    if user:
        os.chown(folder, user, user)
        case("a folder owned by another", 2)
        os.chown(folder, 0, 0)
        subprocess.run(["chmod", "-R", "go+rX", place.cache], check=True)
        case("root's cache, for all to read", 0, user=user, XDG_RUNTIME_DIR=None)
        case("another's cache must not be written", 2, user=user, XDG_RUNTIME_DIR=None,
             WARPLOOM_CACHE_DIR=place.folder + "/run/deep/cache")
    os.mkdir(place.folder + "/crossed")
    os.symlink(place.folder + "/crossed", place.folder + "/link")
    case("a symlink as the cache's folder", 1, WARPLOOM_CACHE_DIR=place.folder + "/link")
    shutil.rmtree(programs)
    print(f"  {cases} places, {'as another user too' if user else 'as this user'}")


def torture_locks(place):
    """Locks held by others, or not to be had: delays at worst."""
    os.mkdir(place.folder + "/run/warploom", 0o700)
    with open(place.folder + "/run/warploom/locks", "w+b") as file:
        lock = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(file, 37, lock)  # F_OFD_SETLK on all of it
        start = time.monotonic()
        place.use("get", "fwd_a", WARPLOOM_CACHE_WAIT="0.3")
        took = time.monotonic() - start
        expect(0.2 < took < 5, f"a held lock: waited {took:.2f} s for WARPLOOM_CACHE_WAIT=0.3")
        child = place.start("get", "fwd_b")
        time.sleep(0.2)
        expect(child.poll() is None, "a held lock was not waited for")
    out, _ = child.communicate(timeout=60)  # closing the file has let go of it
    expect(child.returncode == 0, "a lock that was let go of: " + out)
    expect(os.path.exists(place.folder + "/run/warploom/locks"), "the lock's file was removed")
    for number, spoil in enumerate((lambda p: os.chmod(p, 0o777), lambda p: os.symlink("/tmp", p),
                                    lambda p: open(p, "w").close())):
        path = place.folder + "/run/warploom"
        shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.remove(path)
        if number == 0:
            os.mkdir(path)
        spoil(path)
        before = set(os.listdir("/tmp"))
        place.use("get", f"fwd_c{number}")
        expect("locks" not in set(os.listdir("/tmp")) - before, "a lock was made through a link")


def torture_versions(place):
    """Two versions use one cache: neither takes nor removes what the other made."""
    place.use("get", "fwd_a", "fwd_b")
    first = place.files()
    place.use("get", "fwd_a", "fwd_b", program=OTHER)
    expect(set(first) < set(place.files()), "versions: files of the first are gone")
    place.compiled()
    for program in (USE, OTHER) * 3:
        place.use("get", "fwd_a", "fwd_b", program=program)
    expect(place.compiled() == 0, "versions: compiled again")
    os.makedirs(place.cache + "/v3/a/b", 0o700)
    open(place.cache + "/v3/a/b/" + 64 * "0" + ".kernel", "w").close()
    place.use("get", *[f"fwd_{i}" for i in range(10)], WARPLOOM_CACHE_SIZE="8K")
    expect(os.path.exists(place.cache + "/v3/a/b/" + 64 * "0" + ".kernel"), "v3 was pruned by v2")
    crowd = [place.start("get", *[f"fwd_x{i}" for i in range(5)], program=program)
             for program in (USE, OTHER) * 4]
    for child in crowd:
        out, _ = child.communicate(timeout=60)
        expect(child.returncode == 0, f"versions at once: {out}")
    print("  both found their own")


def torture_clock(place):
    """The time of day jumps by years, there and back; kernels stay right, and found."""
    place.use("get", "fwd_a")
    place.compiled()
    for shift in (YEARS, -YEARS, 0, -YEARS, YEARS, 0):
        clock = {"LD_PRELOAD": SHIM, "SHIM_CLOCK": str(shift)}
        place.use("get", "fwd_a", **clock)
        expect(place.compiled() == 0, f"clock {shift}: compiled again")
        place.use("get", f"fwd_b{shift}", WARPLOOM_CACHE_SIZE="1M", **clock)
        place.use("get", f"fwd_c{shift}", WARPLOOM_CACHE_SIZE="16K", **clock)
        place.compiled()
        place.use("get", "fwd_a", **clock)
        place.compiled()
    now = time.time()
    place.use("get", "fwd_a")
    ages = [abs(now - os.stat(path).st_mtime) for path in place.files(".kernel")
            if b"fwd_a(" in open(path, "rb").read()]
    expect(ages and ages[0] < 86400, f"clock: an entry in use is {ages} s old")
    print("  6 jumps")


def torture_many(place):
    """10^5 entries: a look-up takes at most 50 us."""
    n = 2000 if SHORT else 100000
    start = time.monotonic()
    entries, small, large, listing = place.use("many", str(n)).split()
    slow = 1 if not os.environ.get("ASAN_OPTIONS") else 20
    expect(int(entries) == n, f"many: {entries} entries")
    for took in (small, large):
        expect(float(took) <= 50 * slow, f"many: a look-up takes {took} us, the limit is 50")
    leaf = max(len(names) for _, _, names in os.walk(place.cache))
    expect(leaf <= n / 50, f"many: {leaf} entries in one folder")
    print(f"  {n} entries in {time.monotonic() - start:.0f} s, {leaf} in the fullest folder: a "
          f"look-up takes {small} us (2 KiB, read and verified), {large} us (48 KiB); listing all "
          f"{listing} ms")


TORTURES = [torture_crowd, torture_kill, torture_flips, torture_calls, torture_places,
            torture_locks, torture_versions, torture_clock, torture_many]


def main():
    names = [a for a in sys.argv[1:] if not a.startswith("-")]
    for torture in TORTURES:
        name = torture.__name__[8:]
        if names and not any(name.startswith(n) for n in names):
            continue
        place, start = Place(), time.monotonic()
        print(f"{name}: {torture.__doc__}", flush=True)
        try:
            torture(place)
        finally:
            place.close()
        print(f"  {time.monotonic() - start:.1f} s", flush=True)
    print(f"{len(faults)} faults")
    return len(faults) > 0


if __name__ == "__main__":
    sys.exit(main())
