"""The daemons as services: ready, ended, killed, and their systemd units."""

import os
import shutil
import signal
import socket
import subprocess

import cluster

UNITS = cluster.SOURCE / "docker/deploy/systemd"


class Service(cluster.ClusterTest):

    def head(self, state="head", env=None):
        ready = self.sandbox.dir / f"{state}.ready"
        return self.sandbox.spawn(
            [cluster.BIN / "cohort-head", "--address", "127.0.0.1:0",
             "--state-dir", self.sandbox.dir / state, "--ready-file", ready],
            f"{state}.log", env={**os.environ, **(env or {})})

    def notifications(self, name):
        """A socket as systemd's, and its name for the daemon."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(listener.close)
        listener.bind(name.replace("@", "\0", 1) if name[0] == "@" else name)
        listener.settimeout(cluster.DEADLINE)
        return listener

    def test_says_that_it_is_ready_and_that_it_stops(self):
        for name in (str(self.sandbox.dir / "notify"),
                     f"@cohort-test-{os.getpid()}"):
            listener = self.notifications(name)
            head = self.head(env={"NOTIFY_SOCKET": name})
            self.assertEqual(listener.recv(100), b"READY=1")
            self.assertTrue((self.sandbox.dir / "head.ready").exists())
            head.send_signal(signal.SIGTERM)
            self.assertEqual(listener.recv(100), b"STOPPING=1")
            self.assertEqual(head.wait(30), 0)

    def test_no_manager_is_no_error(self):
        for name in ("", "relative", "/no/such/socket", "/" + "x" * 300):
            head = self.head(env={"NOTIFY_SOCKET": name})
            ready = self.sandbox.dir / "head.ready"
            cluster.until("it is ready", ready.exists)
            head.send_signal(signal.SIGTERM)
            self.assertEqual(head.wait(30), 0)
            ready.unlink()

    def test_sigterm_ends_it_with_everything_durable(self):
        c = self.cluster(workers=0)
        jobs = [c.submit("--", "true") for _ in range(20)]
        c.head.send_signal(signal.SIGTERM)
        self.assertEqual(c.head.wait(30), 0)
        c.start_head()
        self.assertEqual({job["id"] for job in c.json("jobs", "list")},
                         set(jobs))

    def test_a_store_locked_by_a_dead_process_is_free(self):
        c = self.cluster(workers=0)
        job = c.submit("--", "true")
        # While its owner lives it is not.
        second = self.sandbox.spawn(
            [cluster.BIN / "cohort-head", "--address", "127.0.0.1:0",
             "--state-dir", self.sandbox.dir / "head"], "second.log")
        self.assertEqual(second.wait(60), 125)
        self.assertIn(str(c.head.pid),
                      (self.sandbox.dir / "second.log").read_text())
        # A stopped process still is its owner, a killed one is not.
        c.head.send_signal(signal.SIGSTOP)
        third = self.sandbox.spawn(
            [cluster.BIN / "cohort-head", "--address", "127.0.0.1:0",
             "--state-dir", self.sandbox.dir / "head"], "third.log")
        self.assertEqual(third.wait(60), 125)
        c.kill_head()
        locks = [path for path in (self.sandbox.dir / "head").rglob("*")
                 if "lock" in path.name.lower()]
        self.assertTrue(locks)
        c.start_head()
        self.assertEqual(c.job(job)["id"], job)

    def test_units_are_what_systemd_reads(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("no systemd-analyze here")
        units = self.sandbox.dir / "units"
        units.mkdir()
        for source in sorted(UNITS.glob("*.service.in")):
            text = source.read_text().replace(
                "@CMAKE_INSTALL_FULL_BINDIR@", str(cluster.BIN))
            self.assertNotIn("@CMAKE", text)
            (units / source.stem).write_text(text)
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no",
             *sorted(str(path) for path in units.glob("*.service"))],
            capture_output=True, text=True, check=False)
        # A key that older ones ignore: what it is for is then not enforced.
        ours = [line for line in done.stderr.splitlines()
                if "cohort-" in line and "'DelegateSubgroup'" not in line]
        self.assertEqual(ours, [], done.stderr)


if __name__ == "__main__":
    cluster.main()
