"""A worker whose disk is full: it says so, takes nothing, and recovers."""

import cluster


def fill(directory):
    """Takes all of a small disk; gives the file that has it."""
    path = directory / "fill"
    with path.open("wb", buffering=0) as out:
        for size in (1 << 16, 1):
            try:
                while True:
                    out.write(bytes(size))
            except OSError:
                pass
    return path


class FullWorker(cluster.ClusterTest):

    def await_node(self, c, name, state):
        def reached():
            now = c.json("nodes", "get", name)
            return now if now["state"] == state else None
        return cluster.until(f"{name} is {state}", reached)

    def test_it_takes_nothing_until_there_is_room(self):
        small = self.sandbox.tmpfs("w0", "24m")
        if small is None:
            self.skipTest("may not mount")
        c = self.cluster("--num-cpus", "2")
        running = c.submit("--", "sleep", "1000")
        c.await_state(running, "RUNNING")
        taken = fill(small)
        node = self.await_node(c, "w0", "NOT_READY")
        for words in (str(small), "No space left on device"):
            self.assertIn(words, node["not_ready"])
            self.assertIn(words, c.run("nodes", "get", "w0").stdout)
        self.assertIn("node_not_ready", [e["kind"] for e in node["history"]])
        job = c.submit("--max-failures", "0", "--", "true")
        self.assertEqual(c.job(job)["state"], "PENDING")
        self.assertIn("not ready", c.job(job)["reason"])
        explained = c.run("explain", job).stdout
        self.assertIn("No space left on device", explained)
        # What runs goes on, and can be stopped.
        self.assertEqual(c.job(running)["state"], "RUNNING")
        self.assertEqual(c.run("jobs", "stop", running).returncode, 0)
        c.await_state(running, "STOPPED")
        # A head that starts again is followed, and told.
        c.kill_head()
        c.start_head()
        self.await_node(c, "w0", "NOT_READY")
        self.assertEqual(c.job(job)["state"], "PENDING")
        taken.unlink()
        self.assertEqual(c.await_end(job)["state"], "SUCCEEDED")
        self.await_node(c, "w0", "ALIVE")

    def test_logs_have_a_disk_of_their_own(self):
        (self.sandbox.dir / "w0").mkdir(mode=0o700)
        small = self.sandbox.tmpfs("w0/logs", "1m")
        if small is None:
            self.skipTest("may not mount")
        c = self.cluster()
        taken = fill(small)
        node = self.await_node(c, "w0", "NOT_READY")
        for words in (str(small), "No space left on device"):
            self.assertIn(words, node["not_ready"])
        job = c.submit("--max-failures", "0", "--", "true")
        self.assertIn("not ready", c.job(job)["reason"])
        taken.unlink()
        self.assertEqual(c.await_end(job)["state"], "SUCCEEDED")

    def test_a_package_that_does_not_fit_is_the_nodes_failure(self):
        if self.sandbox.tmpfs("w0", "24m") is None:
            self.skipTest("may not mount")
        c = self.cluster("--num-cpus", "2")
        package = self.sandbox.dir / "package"
        package.mkdir()
        (package / "big").write_bytes(bytes(40 << 20))
        job = c.submit("--max-failures", "0", "--working-dir", package,
                       "--", "true")
        ended = c.await_state(job, "FAILED", deadline=60)
        self.assertEqual(ended["class"], "infra")
        self.assertEqual(ended["failures_by_class"].get("infra"), 4)
        self.assertIn("No space left on device", ended["causes"][0])
        # Nothing of it is left in the way of others.
        self.assertEqual(c.await_end(c.submit("--", "true"))["state"],
                         "SUCCEEDED")


if __name__ == "__main__":
    cluster.main()
