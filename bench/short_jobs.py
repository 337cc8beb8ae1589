#!/usr/bin/env python3
"""Measures jobs that end at once: short_jobs.py [--json] [--quick] [--peers].

An array of `true` on two workers of 4 CPUs, from its submission to the end of
its last element, beside as many fork and exec of `true`; and one job after
another, each waited for.  --peers: the same with HyperQueue (its package
`hyperqueue`, if this Python has it) and a Slurm of the bench's own (Debian's
munge, slurmctld, slurmd, slurm-client), by turns.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/itest"))

import cluster  # noqa: E402
import test_slurm  # noqa: E402

WORKERS = 2
CPUS = 4
TRUE = shutil.which("true")


def cpu_seconds(pids):
    """Of the processes and their children that ended."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(
                ")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


class Cohort:
    name = "cohort"

    def __init__(self, sandbox):
        self.cluster = cluster.Cluster(sandbox, node_timeout="10s")
        self.cluster.start_head()
        for index in range(WORKERS):
            self.cluster.start_worker(f"w{index}", "--num-cpus", str(CPUS))

    def array(self, size):
        done = self.cluster.run("submit", "--wait", "--array", f"0-{size - 1}",
                                "--", "true", timeout=600)
        assert done.returncode == 0, done.stderr

    def one(self):
        assert self.cluster.run("submit", "--wait", "--",
                                "true").returncode == 0

    def cpu(self):
        return cpu_seconds([self.cluster.head.pid] + [
            worker.pid for worker in self.cluster.workers.values()])


class HyperQueue:
    name = "HyperQueue"

    def __init__(self, sandbox):
        from hyperqueue import Job  # pylint: disable=import-error
        from hyperqueue.cluster import (  # pylint: disable=import-error
            LocalCluster, WorkerConfig)
        self.job = Job
        self.cluster = LocalCluster(str(sandbox.dir / "hq"))
        for _ in range(WORKERS):
            self.cluster.start_worker(WorkerConfig(cores=CPUS))
        self.client = self.cluster.client()

    def array(self, size):
        job = self.job()
        for _ in range(size):
            job.program([TRUE], stdout=None, stderr=None)
        assert self.client.wait_for_jobs([self.client.submit(job)])

    def one(self):
        self.array(1)


class Slurm:
    name = "Slurm"

    def __init__(self, sandbox):
        self.slurm = test_slurm.Slurm(sandbox)
        self.slurm.NODES = WORKERS
        self.slurm.start()

    def array(self, size):
        for first in range(0, size, 1000):  # MaxArraySize, as it comes
            last = min(size, first + 1000) - first - 1
            self.sbatch(f"--array=0-{last}")

    def one(self):
        self.sbatch()

    def sbatch(self, *flags):
        subprocess.run(["sbatch", "--wait", "-Q", "--output=/dev/null", "-n1",
                        *flags, "--wrap", TRUE], env=self.slurm.env, check=True,
                       stdout=subprocess.DEVNULL)


def fork_and_exec(count):
    for _ in range(count):
        subprocess.run([TRUE], check=True)


def seconds(function, *arguments):
    begin = time.monotonic()
    function(*arguments)
    return time.monotonic() - begin


class Report:

    def __init__(self, as_json, bench="short_jobs"):
        self.as_json = as_json
        self.bench = bench

    def add(self, name, unit, value, floor=None):
        if self.as_json:
            print(json.dumps({"bench": self.bench, "name": name,
                              "unit": unit, "value": value, "floor": floor}),
                  flush=True)
            return
        beside = f"   floor {floor:9.1f} {unit}" if floor else ""
        print(f"{name:40} {value:9.1f} {unit}{beside}", flush=True)


def peers(sandbox):
    if importlib.util.find_spec("hyperqueue"):
        yield HyperQueue(sandbox)
    else:
        print("short_jobs: HyperQueue is skipped: this Python has no package "
              "hyperqueue", file=sys.stderr)
    if shutil.which("slurmctld") and shutil.which("munged"):
        yield Slurm(sandbox)
    else:
        print("short_jobs: Slurm is skipped: it is not installed",
              file=sys.stderr)


def measure(systems, report, sizes, rounds):
    for size in sizes:
        floor = statistics.median(
            size / seconds(fork_and_exec, size) for _ in range(rounds))
        rates = {each.name: [] for each in systems}
        used = []
        for _ in range(rounds):  # by turns, with the same neighbours
            for each in systems:
                before = each.cpu() if isinstance(each, Cohort) else 0
                rates[each.name].append(size / seconds(each.array, size))
                if isinstance(each, Cohort):
                    used.append((each.cpu() - before) / size * 1e3)
        for name, measured in rates.items():
            report.add(f"{name}: array of {size:,}", "jobs/s",
                       statistics.median(measured), floor)
        report.add(f"cohort: CPU of its daemons, of {size:,}", "ms/job",
                   statistics.median(used))
    for each in systems:
        times = [seconds(each.one) * 1e3 for _ in range(rounds * 10)]
        report.add(f"{each.name}: submit to done, one by one", "ms",
                   statistics.median(times))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--peers", action="store_true")
    options = parser.parse_args()
    sandbox = cluster.Sandbox()
    try:
        systems = [Cohort(sandbox)]
        if options.peers:
            systems += peers(sandbox)
        measure(systems, Report(options.json),
                [200] if options.quick else [1000, 4000],
                1 if options.quick else 3)
    finally:
        sandbox.close()


if __name__ == "__main__":
    main()
