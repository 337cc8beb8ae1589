#!/usr/bin/env python3
"""Measures `cohort logs -f`: logs.py [--json] [--quick].

A rank prints as fast as it can while it is followed, and once more after it
has ended; the floor is `cat` of as many bytes through a pipe.  Then 64 ranks
say nothing: CPU of worker, head and follower, beside the same seconds without
a follower.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests/itest"), str(ROOT / "bench")]

import cluster  # noqa: E402
from short_jobs import Report, cpu_seconds  # noqa: E402

RANKS = 64


def rate(process, expected):
    """MB/s of its standard output, from the first byte on."""
    total = len(process.stdout.read1(1 << 20))
    begin = time.monotonic()
    while data := process.stdout.read1(1 << 20):
        total += len(data)
    taken = time.monotonic() - begin
    assert process.wait() == 0 and total == expected, (total, expected)
    return total / taken / 1e6


def throughput(c, report, size, rounds):
    path = c.sandbox.dir / "printed"
    path.write_bytes(b"y\n" * (size // 2))
    figures = {"while it prints": [], "afterwards": [], "floor": []}
    for _ in range(rounds):
        job = c.submit("--", "cat", path)
        follow = ("logs", "--stdout", "-f", job)
        figures["while it prints"].append(
            rate(c.popen(*follow, stdout=subprocess.PIPE), size))
        c.await_end(job)
        figures["afterwards"].append(
            rate(c.popen(*follow, stdout=subprocess.PIPE), size))
        with subprocess.Popen(["cat", path], stdout=subprocess.PIPE) as cat:
            figures["floor"].append(rate(cat, size))
    floor = statistics.median(figures.pop("floor"))
    for name, rates in figures.items():
        report.add(f"follow: {name}", "MB/s", statistics.median(rates), floor)


def used(pids, seconds):
    """CPU of the processes, in percent of a core."""
    before = cpu_seconds(pids)
    begin = time.monotonic()
    time.sleep(seconds)
    return (cpu_seconds(pids) - before) / (time.monotonic() - begin) * 100


def idle(c, report, seconds):
    job = c.submit("--num-workers", str(RANKS), "--cpus", "0", "--", "sh", "-c",
                   "echo begun; sleep 1000")
    c.await_state(job, "RUNNING")
    daemons = {"worker": c.workers["w0"].pid, "head": c.head.pid}
    floors = {name: used([pid], seconds) for name, pid in daemons.items()}
    with c.popen("logs", "-f", job, stdout=subprocess.PIPE) as follower:
        for _ in range(RANKS):
            assert b"begun" in follower.stdout.readline()
        time.sleep(1)
        for name, pid in {**daemons, "follower": follower.pid}.items():
            report.add(f"{RANKS} idle ranks followed: CPU of the {name}", "%",
                       used([pid], seconds), floors.get(name))
        follower.kill()
    c.run("jobs", "stop", job)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    sandbox = cluster.Sandbox()
    try:
        c = cluster.Cluster(sandbox, node_timeout="10s")
        c.start_head()
        c.start_worker("w0", "--num-cpus", "4")
        report = Report(options.json, "logs")
        throughput(c, report, 40_000_000 if options.quick else 200_000_000,
                   1 if options.quick else 5)
        idle(c, report, 2 if options.quick else 10)
    finally:
        sandbox.close()


if __name__ == "__main__":
    main()
