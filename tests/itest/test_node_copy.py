"""State directories of which there are two: a copy on the machine of the first,
as a restored image has it.  The copy ends and removes nothing of the first."""

import os
import pathlib
import shutil
import signal
import subprocess

import cluster


class NodeCopy(cluster.ClusterTest):

    def copy(self, name="copy"):
        """Of w0's state directory, as it is now."""
        path = self.sandbox.dir / name
        subprocess.run(["cp", "-a", self.sandbox.dir / "w0", path], check=True)
        return path

    def runtime(self):
        node = (self.sandbox.dir / "w0/node_id").read_text()[:12]
        return pathlib.Path(f"/dev/shm/cohort-{node}")

    def log(self, name):
        return (self.sandbox.dir / f"{name}.log").read_text()

    def start_copy(self, c, path, *flags):
        return self.sandbox.spawn(
            [cluster.BIN / "cohort-worker", "--address", c.address,
             "--credential-file", c.credential, "--num-cpus", "2", "--name",
             path.name, "--state-dir", path, *flags], f"{path.name}.log")

    def assert_refused(self, c, path, *words, times=2):
        """As often as it is started, as a service manager does."""
        for _ in range(times):
            before = len(self.log(path.name)) if (
                self.sandbox.dir / f"{path.name}.log").exists() else 0
            done = self.start_copy(c, path, "--ready-file",
                                   self.sandbox.dir / "w0.ready")
            self.assertEqual(done.wait(cluster.DEADLINE), 125)
            said = self.log(path.name)[before:]
            for word in words:
                self.assertIn(str(word), said)

    def await_running(self, c, job):
        c.await_state(job, "RUNNING")
        return cluster.until("its rank runs",
                             lambda: c.rank_pids(job).get(0))

    def test_a_copy_leaves_an_idle_node_as_it_is(self):
        c = self.cluster()
        self.assert_refused(c, self.copy(), c.workers["w0"].pid,
                            "remove node_id")
        self.assertTrue((self.runtime() / "worker.sock").is_socket())
        self.assertTrue((self.sandbox.dir / "w0.ready").exists())
        done = c.submit("--", "sh", "-c", "test -S $COHORT_WORKER_SOCKET")
        self.assertEqual(c.await_end(done)["state"], "SUCCEEDED")
        self.assertEqual(c.json("nodes", "get", "w0")["state"], "ALIVE")
        self.assertNotIn("not_ready", self.log("w0"))

    def test_a_copy_leaves_a_busy_node_as_it_is(self):
        c = self.cluster()
        job = c.submit("--max-failures", "0", "--", "sleep", "1000")
        rank = self.await_running(c, job)
        keepers = c.keepers()
        self.assert_refused(c, self.copy(), c.workers["w0"].pid,
                            "remove node_id")
        self.assertTrue((self.runtime() / "worker.sock").is_socket())
        self.assertTrue(cluster.alive(rank))
        self.assertEqual(c.keepers(), keepers)
        done = c.submit("--", "sh", "-c", "test -S $COHORT_WORKER_SOCKET")
        self.assertEqual(c.await_end(done)["state"], "SUCCEEDED")
        now = c.job(job)
        self.assertEqual((now["state"], now["attempt"]), ("RUNNING", 1))

    def test_a_copy_does_not_end_what_another_directory_keeps(self):
        c = self.cluster(node_timeout="60s")
        job = c.submit("--", "sleep", "1000")
        rank = self.await_running(c, job)
        copy = self.copy()
        # Of this one the copy has never heard.
        later = self.await_running(c, c.submit("--", "sleep", "1000"))
        keepers = c.keepers()
        c.kill_worker("w0")
        self.assert_refused(c, copy, self.sandbox.dir / "w0", "kill ")
        self.assertTrue(cluster.alive(rank) and cluster.alive(later))
        self.assertEqual(c.keepers(), keepers)
        # The original finds all of it as it left it.
        c.start_worker("w0")
        for _ in range(2):
            now = c.job(job)
            self.assertEqual((now["state"], now["attempt"], now["failures"]),
                             ("RUNNING", 1, 0))
        self.assertTrue(cluster.alive(rank) and cluster.alive(later))
        self.assert_refused(c, copy, c.workers["w0"].pid)

    def test_a_copy_without_its_node_id_takes_over_no_attempts(self):
        c = self.cluster(node_timeout="60s")
        job = c.submit("--", "sleep", "1000")
        rank = self.await_running(c, job)
        copy = self.copy()
        c.kill_worker("w0")
        (copy / "node_id").unlink()
        self.assert_refused(c, copy, copy / "node_id", copy / "journal",
                            "empty --state-dir")
        # Of the first nothing was touched.
        self.assertTrue(cluster.alive(rank))
        c.start_worker("w0")
        now = c.job(job)
        self.assertEqual((now["state"], now["attempt"], now["failures"]),
                         ("RUNNING", 1, 0))
        self.assertEqual(c.rank_pids(job), {0: rank})

    def test_a_copy_goes_on_when_the_ranks_of_the_first_have_ended(self):
        c = self.cluster(node_timeout="60s")
        job = c.submit("--", "sleep", "1000")
        self.await_running(c, job)
        copy = self.copy()
        c.kill_worker("w0")
        self.assert_refused(c, copy, "kill ", times=1)
        for keeper in c.keepers():
            os.kill(keeper, 15)
        cluster.until("no keeper is left", lambda: not c.keepers())
        self.start_copy(c, copy)
        cluster.until("it runs again", lambda: (
            c.job(job)["attempt"], c.job(job)["state"]) == (2, "RUNNING"))
        (node,) = c.json("nodes")
        self.assertEqual((node["name"], node["state"]), ("copy", "ALIVE"))
        # Now it is the original that is the copy.
        self.assert_refused(c, self.sandbox.dir / "w0", "remove node_id",
                            times=1)

    def test_a_directory_that_was_renamed_keeps_its_ranks(self):
        c = self.cluster(node_timeout="60s")
        gate = self.sandbox.dir / "gate"
        os.mkfifo(gate)
        job = c.submit("--", "sh", "-c",
                       f"echo before; read x < {gate}; echo after")
        rank = self.await_running(c, job)
        c.kill_worker("w0")
        moved = self.sandbox.dir / "moved"
        (self.sandbox.dir / "w0").rename(moved)
        self.start_copy(c, moved)
        cluster.until("it has joined", lambda: [
            node for node in c.json("nodes")
            if (node["name"], node["state"]) == ("moved", "ALIVE")])
        # Another node may have the old name.
        c.start_worker("w0")
        now = c.job(job)
        self.assertEqual((now["state"], now["attempt"]), ("RUNNING", 1))
        self.assertTrue(cluster.alive(rank))
        gate.write_text("\n")
        self.assertEqual(c.await_end(job)["state"], "SUCCEEDED")
        self.assertEqual(c.logs(job), "before\nafter\n")
        cluster.until("no keeper is left", lambda: not c.keepers())
        self.assertEqual(list((self.sandbox.dir / "w0/logs").iterdir()), [])

    def test_a_copy_of_hard_links_is_a_copy(self):
        c = self.cluster(node_timeout="60s")
        job = c.submit("--", "sleep", "1000")
        rank = self.await_running(c, job)
        copy = self.sandbox.dir / "copy"
        subprocess.run(["cp", "-al", self.sandbox.dir / "w0", copy],
                       check=True)
        c.kill_worker("w0")
        self.assert_refused(c, copy, self.sandbox.dir / "w0", "kill ")
        self.assertTrue(cluster.alive(rank))
        c.start_worker("w0")
        now = c.job(job)
        self.assertEqual((now["state"], now["attempt"], now["failures"]),
                         ("RUNNING", 1, 0))

    def test_parts_of_one_attempt_are_no_copies_of_each_other(self):
        c = self.cluster(workers=2, node_timeout="60s")
        job = c.submit("--num-workers", "2", "--strategy",
                       "STRICT_SPREAD", "--", "sleep", "1000")
        c.await_state(job, "RUNNING")
        for name in ("w0", "w1"):
            c.kill_worker(name)
            c.start_worker(name)
        now = c.job(job)
        self.assertEqual((now["state"], now["attempt"], now["failures"]),
                         ("RUNNING", 1, 0))

    def test_a_part_of_an_attempt_is_not_killed_with_anothers(self):
        c = self.cluster(workers=2)
        saved = self.sandbox.dir / "saved"
        job = c.submit("--max-failures", "0", "--num-workers", "2",
                       "--strategy", "STRICT_SPREAD", "--", "bash", "-c",
                       f"trap 'echo $RANK >>{saved}; exit 0' TERM; "
                       f"touch {self.sandbox.dir}/ready.$RANK; "
                       "while :; do sleep 0.1; done")
        for rank in (0, 1):
            cluster.until("its trap is set", lambda rank=rank: (
                self.sandbox.dir / f"ready.{rank}").exists())
        os.kill(cluster.parent(c.rank_pids(job)[1]), signal.SIGKILL)
        cluster.until("the other rank was asked to end", lambda: (
            saved.exists() and saved.read_text() == "0\n"))

    def test_an_older_copy_does_not_forget_what_the_first_one_runs(self):
        c = self.cluster(node_timeout="60s")
        older = self.copy()
        job = c.submit("--", "sleep", "1000")
        rank = self.await_running(c, job)
        c.kill_worker("w0")
        shutil.rmtree(self.runtime())
        self.assert_refused(c, older, self.sandbox.dir / "w0", "kill ")
        self.assertTrue(cluster.alive(rank))

    def test_a_node_starts_when_its_tmpfs_is_gone(self):
        c = self.cluster(node_timeout="60s")
        c.kill_worker("w0")
        shutil.rmtree(self.runtime())
        c.start_worker("w0")
        done = c.submit("--", "sh", "-c", "test -S $COHORT_WORKER_SOCKET")
        self.assertEqual(c.await_end(done)["state"], "SUCCEEDED")


if __name__ == "__main__":
    cluster.main()
