"""Requests are limits: in each of the ways in which a worker may be started.

Needs cgroup v2 with the controllers, and root, to make groups as systemd and
containers do; skipped elsewhere.
"""

import contextlib
import os
import pathlib
import subprocess

import cluster

ROOT = pathlib.Path("/sys/fs/cgroup")
NEEDED = {"memory", "cpu", "pids"}
# $1: a group, of which it becomes a member; the rest: what it then runs.
ENTER = 'echo $$ > "$1/cgroup.procs"; shift; exec "$@"'
# As a container has it: the group that it is in looks like the root.
CONTAINER = ("umount -l /sys/fs/cgroup; "
             'mount -t cgroup2 none /sys/fs/cgroup; exec "$@"')


class Enforcement(cluster.ClusterTest):

    def setUp(self):
        self.addCleanup(self.remove_groups)
        super().setUp()
        self.base = ROOT / f"cohort-itest-{os.getpid()}"
        try:
            there = set((ROOT / "cgroup.controllers").read_text().split())
            if not there >= NEEDED:
                self.skipTest("no cgroup v2 with the controllers")
            self.group("")
        except OSError as error:
            self.skipTest(f"may not make control groups: {error}")

    def remove_groups(self):
        for top, _, _ in os.walk(self.base, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(top)

    def group(self, name, delegated=False):
        """A group below which others have the controllers."""
        path = self.base / name
        path.mkdir(parents=True, exist_ok=True)
        # Of the group above, which has no processes.
        (path.parent / "cgroup.subtree_control").write_text(
            " ".join("+" + each for each in NEEDED))
        if delegated:
            os.setxattr(path, "trusted.delegate", b"1")
        return path

    def worker(self, c, name, group, *around):
        c.worker_program = ["sh", "-c", ENTER, "sh", group, *around]
        c.start_worker(name, "--num-cpus", "2", "--labels", f"at={name}")
        return c.json("nodes", "get", name)["unenforced"]

    def ranks_group(self, pid):
        path = pathlib.Path(f"/proc/{pid}/cgroup").read_text()
        return ROOT / path.rpartition("0::")[2].strip().lstrip("/")

    def check_holds(self, c, name):
        """The node ends what takes too much, and says so."""
        job = c.submit("--selector", f"at={name}", "--cpus", "1.5", "--memory",
                       "64MiB", "--", "sleep", "1000")
        c.await_state(job, "RUNNING")
        group = self.ranks_group(c.rank_pids(job)[0])
        self.assertTrue(group.is_relative_to(self.base), group)
        for file, value in (("memory.max", 64 << 20), ("cpu.weight", 150),
                            ("pids.max", 32768)):
            self.assertEqual((group / file).read_text().strip(), str(value))
        c.run("jobs", "stop", job)
        hog = c.submit("--selector", f"at={name}", "--memory", "64MiB", "--",
                       "python3", "-c", "bytearray(1 << 30)")
        self.assertEqual(c.await_end(hog)["state"], "FAILED")
        self.assertEqual(c.job(hog)["failures_by_class"]["oom"], 1)
        self.assertIn("more than the 64 MiB of memory", c.job(hog)["reason"])
        c.await_state(job, "STOPPED")
        cluster.until("its group is gone", lambda: not group.exists())

    def test_ranks_are_held_where_the_group_is_the_workers(self):
        c = cluster.Cluster(self.sandbox, node_timeout="10s")
        c.start_head()
        self.group("a.service", delegated=True)
        ways = {
            # systemd-run --scope -p Delegate=yes
            "scope": (self.group("a.scope", delegated=True),),
            # Delegate=yes, DelegateSubgroup=cohort-daemon
            "service": (self.group("a.service/cohort-daemon"),),
            "container": (self.group("box"), "unshare", "--cgroup", "--mount",
                          "sh", "-c", CONTAINER, "sh"),
        }
        for name, way in ways.items():
            with self.subTest(name):
                self.assertIsNone(self.worker(c, name, *way))
                self.check_holds(c, name)

    def test_a_worker_says_why_ranks_are_not_held(self):
        c = cluster.Cluster(self.sandbox, node_timeout="10s")
        c.start_head()
        self.assertIn("DelegateSubgroup=cohort-daemon", self.worker(
            c, "service", self.group("b.service", delegated=True)))
        self.assertIn("is not delegated to us", self.worker(
            c, "foreign", self.group("foreign")))
        job = c.submit("--selector", "at=foreign", "--memory", "64MiB", "--",
                       "true")
        self.assertEqual(c.await_end(job)["state"], "SUCCEEDED")
        self.assertIn("not enforced: ", c.run("nodes", "get",
                                              "foreign").stdout)

    def test_a_fork_bomb_ends_in_its_own_rank(self):
        c = cluster.Cluster(self.sandbox, node_timeout="10s")
        c.start_head()
        group = self.group("c.scope", delegated=True)
        self.assertIsNone(self.worker(c, "w", group))
        job = c.submit("--grace", "0s", "--", "sleep", "1000")
        c.await_state(job, "RUNNING")
        ranks = self.ranks_group(c.rank_pids(job)[0])
        (ranks / "pids.max").write_text("20")
        done = subprocess.run(
            ["sh", "-c", ENTER, "sh", ranks, "sh", "-c",
             "for i in $(seq 50); do sleep 100 & done"],
            capture_output=True, text=True, check=False)
        self.assertIn("fork", done.stderr)
        other = c.submit("--", "true")
        self.assertEqual(c.await_end(other)["state"], "SUCCEEDED")
        # And all of it goes with the rank.
        c.run("jobs", "stop", job)
        c.await_state(job, "STOPPED")
        cluster.until("its group is gone", lambda: not ranks.exists())


if __name__ == "__main__":
    cluster.main()
