"""A worker that cannot begin attempts: it says so, takes none until it can, and
no job spends its restarts on it."""

import os
import pathlib
import shutil

import cluster


class WorkerFaults(cluster.ClusterTest):

    def node_in(self, c, state):
        def reached():
            now = c.json("nodes", "get", "w0")
            return now if now["state"] == state else None
        return cluster.until(f"w0 is {state}", reached)

    def worker_of_its_own(self):
        """A cluster whose worker's programs are copies; gives its keeper."""
        programs = self.sandbox.dir / "bin"
        programs.mkdir()
        for name in ("cohort-worker", "cohort-keeper"):
            shutil.copy(cluster.BIN / name, programs / name)
        c = cluster.Cluster(self.sandbox, "60s")
        c.start_head()
        self.sandbox.spawn(
            [programs / "cohort-worker", "--address", c.address,
             "--credential-file", c.credential, "--name", "w0", "--num-cpus",
             "2", "--state-dir", self.sandbox.dir / "w0"], "w0.log")
        cluster.until("w0 has joined", lambda: c.json("nodes"))
        return c, programs / "cohort-keeper"

    def assert_waits_for(self, c, words, mend, looked=lambda: True):
        """Jobs that may not fail once start when `mend` was done, which is when
        the worker has `looked` some times."""
        job = c.submit("--max-failures", "0", "--", "true")
        self.node_in(c, "NOT_READY")
        cluster.until(f"a look has found {words}", lambda: all(
            word in c.run("nodes", "get", "w0").stdout
            for word in (*words, "looked at again each 1s")))
        # A second job does not even begin.
        second = c.submit("--max-failures", "0", "--", "true")
        begun = c.job(job)["attempt"]
        cluster.until("the worker has looked", looked)
        now = c.job(job)
        self.assertEqual((now["state"], now["attempt"]), ("PENDING", begun))
        self.assertLessEqual(begun, 1)
        self.assertEqual(c.job(second)["attempt"], 0)
        self.assertIn("not ready", c.job(second)["reason"])
        self.node_in(c, "NOT_READY")
        mend()
        for each in (job, second):
            self.assertEqual(c.await_end(each)["state"], "SUCCEEDED")
        history = self.node_in(c, "ALIVE")["history"]
        kinds = [event["kind"] for event in history]
        self.assertEqual(kinds.count("node_ready"), 1, kinds)

    def test_a_keeper_that_is_gone(self):
        c, keeper = self.worker_of_its_own()
        away = keeper.with_suffix(".away")
        keeper.rename(away)
        self.assert_waits_for(c, (str(keeper), "No such file"),
                              lambda: away.rename(keeper))

    def test_a_keeper_that_does_not_run(self):
        c, keeper = self.worker_of_its_own()
        away = keeper.with_suffix(".away")
        keeper.rename(away)
        runs = self.file("runs", "")
        keeper.write_text(f"#!/bin/sh\necho >> {runs}\nexit 1\n")
        keeper.chmod(0o755)
        self.assert_waits_for(c, (str(keeper), "status 1"),
                              lambda: away.rename(keeper),
                              lambda: len(runs.read_text()) > 4)

    def test_directories_that_are_gone_are_made_again(self):
        c = self.cluster()
        package = self.file("package/input", "words\n")
        for name in ("journal", "keepers", "packages", "work"):
            directory = self.sandbox.dir / "w0" / name
            shutil.rmtree(directory, ignore_errors=True)
            job = c.submit("--max-failures", "0", "--working-dir",
                           package.parent, "--env", f"NAME={name}", "--",
                           "cat", "input")
            self.assertEqual(c.await_end(job)["state"], "SUCCEEDED", name)
            self.assertTrue(directory.is_dir(), name)

    def test_a_runtime_directory_that_is_gone_is_made_again(self):
        c = self.cluster()
        gate = self.sandbox.dir / "gate"
        os.mkfifo(gate)
        running = c.submit("--max-failures", "0", "--", "sh", "-c",
                           f"read x < {gate}; echo after")
        c.await_state(running, "RUNNING")
        cluster.until("its rank runs", lambda: c.rank_pids(running))
        node = (self.sandbox.dir / "w0/node_id").read_text()[:12]
        runtime = pathlib.Path(f"/dev/shm/cohort-{node}")
        shutil.rmtree(runtime)
        cluster.until("it is there again",
                      lambda: (runtime / "worker.sock").is_socket())
        self.assertTrue((runtime / "LOCK").is_file())
        job = c.submit("--max-failures", "0", "--", "sh", "-c",
                       "test -S $COHORT_WORKER_SOCKET")
        self.assertEqual(c.await_end(job)["state"], "SUCCEEDED")
        # What ran goes on, to its end, under a daemon that is started again, too.
        c.kill_worker("w0")
        c.start_worker("w0")
        self.assertEqual(c.job(running)["state"], "RUNNING")
        gate.write_text("\n")
        self.assertEqual(c.await_end(running)["state"], "SUCCEEDED")
        self.assertEqual(c.logs(running), "after\n")

    def test_what_cannot_be_removed_is_tried_again(self):
        c = self.cluster()
        job = c.submit("--", "sleep", "1000")
        c.await_state(job, "RUNNING")
        (work,) = (each for each in (self.sandbox.dir / "w0/work").iterdir()
                   if each.is_dir())
        # Something that nobody can remove before it is unmounted.
        busy = self.sandbox.tmpfs(f"w0/work/{work.name}/busy", "1m")
        if busy is None:
            self.skipTest("may not mount")
        self.assertEqual(c.run("jobs", "stop", job).returncode, 0)
        c.await_end(job)
        cluster.until("it could not be removed", lambda: "forget_failed" in (
            self.sandbox.dir / "w0.log").read_text())
        log = self.sandbox.dir / "w0.log"
        self.assertNotIn("forgotten_at_last", log.read_text())
        self.sandbox.unmount(busy)
        cluster.until("all of it is removed", lambda: not work.exists()
                      and "forgotten_at_last" in log.read_text())


if __name__ == "__main__":
    cluster.main()
