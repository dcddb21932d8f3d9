# timing.py - times functions on the GPU against each other, and what a call costs the CPU.
# SPDX-License-Identifier: BSD-3-Clause
import math
import statistics
import subprocess
import time

import torch

SPIN_PER_SECOND = 2_000_000_000  # cycles of torch.cuda._sleep: the clock is a little below


class Clock:
    """The multiprocessors' clock in MHz, from NVML or nvidia-smi; 0 when neither answers."""

    def __init__(self):
        try:
            import pynvml
            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            self.driver = pynvml.nvmlSystemGetDriverVersion()
            self.read = lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
            self.read()
        except Exception:
            self.driver = self.smi("driver_version") or "unknown"
            self.read = lambda: int(self.smi("clocks.sm") or 0)
        if isinstance(self.driver, bytes):
            self.driver = self.driver.decode()

    @staticmethod
    def smi(what):
        try:
            return subprocess.run(["nvidia-smi", f"--query-gpu={what}", "--id=0",
                                   "--format=csv,noheader,nounits"], text=True,
                                  capture_output=True, timeout=20).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            return ""


def batch(call, n, spin):
    """Queues n calls between two events. The GPU first spins for as long as queueing them takes,
    so that it never waits for the CPU inside."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    if spin:
        torch.cuda._sleep(spin)
    begin.record()
    for _ in range(n):
        call()
    end.record()
    return begin, end, n


def calibrate(call, batch_ms):
    """(calls a batch, spin) so that a batch takes at least batch_ms."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    begin, end, n = batch(call, 3, 0)
    queue = (time.perf_counter() - start) / n
    end.synchronize()
    each = max(begin.elapsed_time(end) / n, 1e-3)
    n = min(200, math.ceil(batch_ms / each))
    return n, int(n * queue * 1.2 * SPIN_PER_SECOND)


def compare(calls, rounds, batch_ms, clock):
    """{name: (median us, noise, MHz)}: the calls interleaved, their order rotated each round. Noise
    is the distance of the quartiles over the median."""
    plans = {name: calibrate(call, batch_ms) for name, call in calls.items()}
    times, mhz = {name: [] for name in calls}, {name: [] for name in calls}
    names = list(calls)
    for r in range(rounds + 1 if names else 0):
        turn = r % len(names)
        for name in names[turn:] + names[:turn]:
            begin, end, n = batch(calls[name], *plans[name])
            speed = clock.read()
            end.synchronize()
            if r:  # round 0 warms up
                times[name].append(1e3 * begin.elapsed_time(end) / n)
                mhz[name].append(speed)
    result = {}
    for name in names:
        q1, q2, q3 = statistics.quantiles(times[name], n=4)
        result[name] = (statistics.median(times[name]), (q3 - q1) / q2,
                        int(statistics.median(mhz[name])))
    return result


def call_ns(call, loops=100, calls=100):
    """CPU time of one call: the median of `loops` loops of `calls`; the queue is drained between
    loops, so that it never fills."""
    costs = []
    for _ in range(loops + 5):
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        costs.append((time.perf_counter_ns() - start) / calls)
    torch.cuda.synchronize()
    return round(statistics.median(costs[5:]))


def heat(seconds):
    """Brings the clocks to what work of this kind leaves."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        a @ a
        torch.cuda.synchronize()
