#!/usr/bin/env python3
"""Presses on every limit at once, under a load of short jobs.

A head and a worker under a soft limit of 256 descriptors, and meanwhile

  idle       2,000 connections that say nothing
  garbage    500 that say nonsense
  followers  `logs -f` whose output nobody reads
  package    a job with 100,000 files
  elements   an array of 400, at once
  disk       their disk is full for some seconds

first one after the other, then together; and then again all of it with both on
a disk of 200 MB, in a memory group of 512 MiB.  Each time no job may be lost or
fail, /healthz has to be well after it, and descriptors and memory of head and
worker have to go back to where they were.  What this machine does not let do is
left out, and counted.

  limits.py [--files N] [--elements N] [--followers N]
"""

import argparse
import contextlib
import os
import pathlib
import resource
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import cluster

SLACK = 16  # descriptors: what a daemon keeps open of its own accord
MEMORY_SLACK = 128 << 20  # what allocators and caches keep
CGROUPS = pathlib.Path("/sys/fs/cgroup")
DISK_MEGABYTES = 200
GROUP_BYTES = 512 << 20


def files_of(pid):
    """How many descriptors the process has."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def memory_of(pid):
    """What it holds of its own, in bytes."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    return 0


def host_port(address):
    host, _, port = address.rpartition(":")
    return host, int(port)


def fill_package(path, files):
    for number in range(files):
        if number % 1000 == 0:
            directory = path / str(number // 1000)
            directory.mkdir(parents=True)
        (directory / str(number)).write_text("x")


def fill_disk(path):
    """Takes all that there is; gives the file that has it."""
    with (path / "fill").open("ab", buffering=0) as out:
        for size in (1 << 20, 1 << 10):
            with contextlib.suppress(OSError):
                while True:
                    out.write(bytes(size))
    return path / "fill"


class Pressure:
    """What can be done to a cluster; each gives a function that ends it."""

    def __init__(self, c, package, options, disk=None):
        self.c = c
        self.package = package
        self.options = options
        self.small_disk = disk

    def all(self):
        found = {"idle": self.idle, "garbage": self.garbage,
                 "followers": self.followers, "package": self.package_job,
                 "elements": self.elements}
        if self.small_disk:
            found["disk"] = self.disk
        return found

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
        job = self.c.submit("--cpus", "0", "--grace", "0s", "--", "sh", "-c",
                            "yes | head -c 50000000; sleep 1000")
        self.c.await_state(job, "RUNNING")
        readers = [self.c.popen("logs", "-f", job, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL)
                   for _ in range(self.options.followers)]
        for reader in readers:
            reader.stdout.read(1)

        def end():
            for reader in readers:
                reader.kill()
                reader.stdout.close()
                reader.wait()
            cluster.until("the followed job is stopped", lambda: (
                self.c.run("jobs", "stop", job).returncode == 0))
            self.c.await_state(job, "STOPPED")
        return end

    def package_job(self):
        if self.small_disk:  # which is for the store alone
            done = self.c.run("submit", "--working-dir", self.package, "--",
                              "true")
            if not done.returncode or "no room" not in done.stderr:
                raise AssertionError(f"a package on a small disk: {done}")
            return lambda: None
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

    def disk(self):
        filled = fill_disk(self.small_disk)

        def end():
            try:
                # Room that came free meanwhile is taken, too.
                cluster.until("the head says that its disk is full", lambda: (
                    fill_disk(self.small_disk) and
                    "is full" in self.c.run("status").stdout))
            finally:
                filled.unlink()
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
        self.refused = 0
        self.failed = []
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        while not self.stop.is_set():
            begin = time.monotonic()
            done = self.c.run("submit", "--wait", "--cpus", "0", "--", "true",
                              timeout=600)
            # Refused on a full disk: no job was accepted, so none is lost.
            if done.returncode and "is full" in done.stderr:
                self.refused += 1
                continue
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
    files = [files_of(pid) for pid in pids]
    load = Load(c)
    begin = time.monotonic()
    ends = []
    try:
        for pressure in pressures:
            ends.append(pressure())
        at = load.count
        if "disk" not in [pressure.__name__ for pressure in pressures]:
            cluster.until(f"{name}: short jobs go on",
                          lambda: load.count >= at + 3)
        # The disk first: with a full one nothing ends.
        while ends:
            ends.pop()()
        took = time.monotonic() - begin
    finally:
        load.end()
    if load.failed:
        raise AssertionError(f"{name}: short jobs failed: {load.failed[:3]}")
    cluster.until(f"after {name}: healthy", lambda: healthy(c))
    cluster.until(
        f"after {name}: descriptors are free",
        lambda: all(files_of(pid) <= was + SLACK
                    for pid, was in zip(pids, files)))
    used = ", ".join(f"{memory_of(pid) >> 20} MiB" for pid in pids)
    print(f"{name}: {took:.1f} s, {load.count} short jobs, the slowest "
          f"{load.slowest:.2f} s, {load.refused} refused; head and worker hold "
          f"{used}", flush=True)


def press_on_all(c, pressure, singly):
    """One after the other, if they are to be, and all together."""
    pids = [c.head.pid, c.workers["w0"].pid]
    c.run("submit", "--wait", "--", "true")
    memory = [memory_of(pid) for pid in pids]
    every = pressure.all()
    for name, each in every.items() if singly else ():
        press(c, name, [each])
    press(c, "together", list(every.values()))
    cluster.until("memory is as before", lambda: all(
        memory_of(pid) <= was + MEMORY_SLACK
        for pid, was in zip(pids, memory)))
    left = [job for job in c.json("jobs", "list")
            if job["state"] not in ("SUCCEEDED", "STOPPED")]
    if left:
        raise AssertionError(f"not ended well: {left[:3]}")


def memory_group(sandbox):
    """A group with GROUP_BYTES of memory, and what starts a program in it; None
    where there can be none."""
    group = CGROUPS / f"cohort-{sandbox.dir.name}"
    try:
        if "memory" not in (CGROUPS / "cgroup.subtree_control").read_text():
            (CGROUPS / "cgroup.subtree_control").write_text("+memory")
        group.mkdir()
        (group / "memory.max").write_text(str(GROUP_BYTES))
    except OSError:
        with contextlib.suppress(OSError):
            group.rmdir()
        return None, []
    return group, ["sh", "-c", 'echo $$ > "$0/cgroup.procs"; exec "$@"', group]


def run(options, small):
    """On a disk and in a memory group of their own, if they are to be small;
    gives how many of the two this machine did not let do."""
    # This end of the connections is open here.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    sandbox = cluster.Sandbox()
    missing = 0
    group = None
    try:
        few = ["prlimit", "--nofile=256:"]
        disk = None
        if small:
            disk = sandbox.ext4("small", DISK_MEGABYTES)
            group, entered = memory_group(sandbox)
            few = entered + few
            missing = (disk is None) + (group is None)
        c = cluster.Cluster(sandbox, node_timeout="10s", disk=disk)
        c.head_program = c.worker_program = few
        c.start_head()
        c.start_worker("w0", "--num-cpus", "4")
        package = sandbox.dir / "package"
        fill_package(package, 100 if disk else options.files)
        press_on_all(c, Pressure(c, package, options, disk), singly=not small)
        if group:
            killed = (group / "memory.events").read_text().splitlines()
            if "oom_kill 0" not in killed:
                raise AssertionError(f"processes were killed: {killed}")
    except BaseException:
        sandbox.show_logs()
        raise
    finally:
        sandbox.close()
        if group:
            with contextlib.suppress(OSError):
                group.rmdir()
    return missing


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--elements", type=int, default=400)
    parser.add_argument("--followers", type=int, default=100)
    options = parser.parse_args()
    run(options, small=False)
    missing = run(options, small=True)
    print(f"limits: ok, {missing} of 2 left out (a small disk, a memory group)"
          if missing else "limits: ok")


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    main()
