#!/usr/bin/env python3
"""Presses on every limit at once, under a load of short jobs.

A head and a worker under a soft limit of 256 descriptors, and meanwhile

  idle       2,000 connections that say nothing
  garbage    500 that say nonsense
  followers  `logs -f` whose output nobody reads
  package    a job with 100,000 files
  elements   an array of 400, at once

first one after the other, then together.  Each time no job may be lost or
fail, /healthz has to be well after it, and the descriptors of head and worker
have to go back to where they were.

  limits.py [--files N] [--elements N] [--followers N]
"""

import argparse
import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import cluster

SLACK = 16  # descriptors: what a daemon keeps open of its own accord


def files_of(pid):
    """How many descriptors the process has."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def host_port(address):
    host, _, port = address.rpartition(":")
    return host, int(port)


def fill_package(path, files):
    for number in range(files):
        if number % 1000 == 0:
            directory = path / str(number // 1000)
            directory.mkdir(parents=True)
        (directory / str(number)).write_text("x")


class Pressure:
    """What can be done to a cluster; each gives a function that ends it."""

    def __init__(self, c, sandbox, options):
        self.c = c
        self.sandbox = sandbox
        self.options = options
        self.package = sandbox.dir / "package"
        fill_package(self.package, options.files)

    def _connections(self, count, text):
        opened = []
        for _ in range(count):
            with contextlib.suppress(OSError):
                opened.append(socket.create_connection(
                    host_port(self.c.address), timeout=10))
                if text:
                    opened[-1].sendall(text)
        return lambda: [each.close() for each in opened]

    def idle(self):
        return self._connections(2000, b"")

    def garbage(self):
        return self._connections(500, b"\x16\x03\x01GET / HTTP/9\r\n" * 50)

    def followers(self):
        job = self.c.submit("--cpus", "0", "--", "sh", "-c",
                            "yes | head -c 50000000; sleep 20")
        self.c.await_state(job, "RUNNING")
        readers = [self.c.popen("logs", "-f", job, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL)
                   for _ in range(self.options.followers)]

        def end():
            for reader in readers:
                reader.kill()
                reader.stdout.close()
                reader.wait()
            self.succeeds(job)
        return end

    def package_job(self):
        job = self.c.submit("--cpus", "0", "--working-dir", self.package,
                            "--", "true")
        return lambda: self.succeeds(job)

    def elements(self):
        job = self.c.submit("--cpus", "0", "--array",
                            f"0-{self.options.elements - 1}", "--", "true")

        def end():
            done = self.c.run("jobs", "wait", job, timeout=600)
            if done.returncode:
                raise AssertionError(f"elements failed: {done.stderr}")
        return end

    def succeeds(self, job):
        now = self.c.await_end(job, deadline=300)
        if now["state"] != "SUCCEEDED":
            raise AssertionError(f"{job}: {now['state']}: {now['causes']}")


class Load:
    """Short jobs, one after the other, all of which have to succeed."""

    def __init__(self, c):
        self.c = c
        self.stop = threading.Event()
        self.count = 0
        self.slowest = 0.0
        self.failed = []
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        while not self.stop.is_set():
            begin = time.monotonic()
            done = self.c.run("submit", "--wait", "--cpus", "0", "--", "true",
                              timeout=600)
            self.slowest = max(self.slowest, time.monotonic() - begin)
            self.count += 1
            if done.returncode:
                self.failed.append(done.stderr)

    def end(self):
        self.stop.set()
        self.thread.join()
        return self


def healthy(c):
    with contextlib.suppress(OSError):
        with urllib.request.urlopen(f"http://{c.http_address}/healthz") as said:
            return said.status == 200
    return False


def press(c, name, pressures):
    pids = [c.head.pid, c.workers["w0"].pid]
    before = [files_of(pid) for pid in pids]
    load = Load(c)
    begin = time.monotonic()
    ends = [pressure() for pressure in pressures]
    for end in ends:
        end()
    took = time.monotonic() - begin
    load.end()
    if load.failed:
        raise AssertionError(f"{name}: short jobs failed: {load.failed[:3]}")
    cluster.until(f"after {name}: healthy", lambda: healthy(c))
    cluster.until(
        f"after {name}: descriptors are free",
        lambda: all(files_of(pid) <= was + SLACK
                    for pid, was in zip(pids, before)))
    print(f"{name}: {took:.1f} s, {load.count} short jobs, the slowest "
          f"{load.slowest:.2f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--elements", type=int, default=400)
    parser.add_argument("--followers", type=int, default=100)
    options = parser.parse_args()
    sandbox = cluster.Sandbox()
    try:
        c = cluster.Cluster(sandbox, node_timeout="10s")
        c.head_program = c.worker_program = ["prlimit", "--nofile=256:"]
        c.start_head()
        c.start_worker("w0", "--num-cpus", "4")
        pressure = Pressure(c, sandbox, options)
        all_of_it = {"idle": pressure.idle, "garbage": pressure.garbage,
                     "followers": pressure.followers,
                     "package": pressure.package_job,
                     "elements": pressure.elements}
        for name, each in all_of_it.items():
            press(c, name, [each])
        press(c, "together", list(all_of_it.values()))
        left = [job for job in c.json("jobs", "list")
                if job["state"] != "SUCCEEDED"]
        if left:
            raise AssertionError(f"not ended well: {left[:3]}")
    except BaseException:
        sandbox.show_logs()
        raise
    finally:
        sandbox.close()
    print("limits: ok")


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    main()
