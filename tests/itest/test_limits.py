"""At a limit: who passes it is refused, nobody else notices, and all is as
before when the pressure is gone.  limits.py does the same for longer."""

import argparse
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import urllib.error
import urllib.request

import cluster
import limits

NOBODY = 65534


class Limits(cluster.ClusterTest):

    def test_a_directory_of_a_stranger_is_refused_by_name(self):
        if os.geteuid():
            self.skipTest("only root can give a directory away")
        c = self.cluster()
        node = (self.sandbox.dir / "w0/node_id").read_text()[:12]
        c.workers["w0"].send_signal(signal.SIGTERM)
        c.workers["w0"].wait(cluster.DEADLINE)
        runtime = pathlib.Path(f"/dev/shm/cohort-{node}")
        self.assertFalse(runtime.exists())
        runtime.mkdir(mode=0o777)
        os.chown(runtime, NOBODY, NOBODY)
        c.start_worker("w0", wait=False)
        self.assertEqual(c.workers["w0"].wait(cluster.DEADLINE), 125)
        said = (self.sandbox.dir / "w0.log").read_text()
        self.assertIn(f"{runtime} belongs to user {NOBODY}", said)
        runtime.rmdir()
        c.start_worker("w0")

    def test_memory_is_held_to_the_request_or_the_node_says_why_not(self):
        c = self.cluster()
        why = c.json("nodes", "get", "w0")["unenforced"]
        if why:
            self.assertIn(f"not enforced: {why}", c.run("nodes", "get",
                                                        "w0").stdout)
            self.skipTest(f"requests are not enforced here: {why}")
        # Of which a child takes too much: its parent is not to wait for it.
        hog = "import os\nif os.fork(): os.wait()\nelse: bytearray(1 << 30)"
        job = c.submit("--memory", "64MiB", "--", "python3", "-c", hog)
        beside = c.submit("--memory", "64MiB", "--", "true")
        self.assertEqual(c.await_end(job)["state"], "FAILED")
        job = c.job(job)
        self.assertEqual(job["failures_by_class"]["oom"], 1)
        self.assertIn("more than the 64 MiB of memory", job["reason"])
        self.assertEqual(c.await_end(beside)["state"], "SUCCEEDED")

    def test_a_head_starts_on_a_full_disk_and_shows_what_there_is(self):
        # Of which ext4 keeps 16 MiB back even from root.
        disk = self.sandbox.ext4("small", 1200)
        if disk is None:
            self.skipTest("may not mount")
        c = cluster.Cluster(self.sandbox, disk=disk)
        c.start_head()
        job = c.submit("--", "true")
        fill = limits.fill_disk(disk)
        with contextlib.suppress(subprocess.TimeoutExpired):
            c.run("submit", "--", "true", timeout=1)  # which finds out
        for _ in range(2):
            cluster.until("it says that the disk is full", lambda: (
                "is full" in c.run("status").stdout))
            self.assertEqual(c.job(job)["state"], "PENDING")
            c.kill_head()
            c.start_head()
        fill.unlink()
        c.submit("--", "true")  # tries again until then

    def test_a_rank_that_cuts_its_arena_ends_no_daemon(self):
        c = self.cluster("--num-cpus", "2")
        job = c.submit(
            "--num-workers", "2", "--", "sh", "-c",
            'truncate -s 0 "${COHORT_WORKER_SOCKET%/*}/$COHORT_ATTEMPT_ID/arena"'
            " && sleep 1")
        self.assertEqual(c.await_end(job)["state"], "SUCCEEDED")
        self.assertIsNone(c.workers["w0"].poll())
        self.assertIn("arena_cut", (self.sandbox.dir / "w0.log").read_text())

    def test_idle_connections_leave_the_head_a_listener(self):
        c = cluster.Cluster(self.sandbox)
        c.head_program = ["prlimit", "--nofile=256:256"]
        c.start_head()
        before = limits.files_of(c.head.pid)
        idle = []
        for _ in range(300):
            idle.append(socket.create_connection(
                limits.host_port(c.address), timeout=cluster.DEADLINE))

        def health():
            try:
                with urllib.request.urlopen(
                        f"http://{c.http_address}/healthz") as answer:
                    return answer.status
            except urllib.error.HTTPError as error:
                return error.code
        cluster.until("it says that it takes none", lambda: health() == 503)
        for each in idle:
            each.close()
        cluster.until("it is healthy", lambda: health() == 200)
        c.submit("--", "true")
        cluster.until("its descriptors are free",
                      lambda: limits.files_of(c.head.pid) <= before + 8)

    def test_on_a_small_disk_with_everything_at_once_no_job_is_lost(self):
        if self.sandbox.ext4("probe", 20) is None:
            self.skipTest("may not mount")
        limits.run(argparse.Namespace(elements=40, followers=4), small=True)

    def test_a_large_package_holds_up_nobody_else(self):
        c = self.cluster("--num-cpus", "4")
        package = self.sandbox.dir / "package"
        limits.fill_package(package, 20_000)
        large = c.submit("--working-dir", package, "--", "true")
        cluster.until("it is unpacked", lambda: len(
            list((self.sandbox.dir / "w0/work").glob("*/*"))) > 0)
        self.assertEqual(c.await_end(c.submit("--", "true"))["state"],
                         "SUCCEEDED")
        self.assertNotIn(c.job(large)["state"], ("SUCCEEDED", "FAILED"))
        self.assertEqual(c.await_end(large)["state"], "SUCCEEDED")


if __name__ == "__main__":
    cluster.main()
