"""`cohort up`: one command, its end, and its second start."""

import hashlib
import os
import pathlib
import signal
import subprocess

import cluster

TRAIN = ["--epochs", "1", "--train-samples", 80 * 128, "--test-samples", "256",
         "--checkpoint-every", "8", "--seed", "5"]


class Up(cluster.ClusterTest):

    def train(self, up, results, *flags):
        return up.submit(*flags, "--storage-path", self.sandbox.dir / results,
                         "--", cluster.BIN / "mnist", "--data",
                         cluster.MNIST_DATA, *TRAIN)

    def model(self, job):
        self.assertEqual(job["state"], "SUCCEEDED", job)
        path = pathlib.Path(job["checkpoint"]["path"])
        return hashlib.sha256(
            (path / "model.safetensors").read_bytes()).hexdigest()

    def need_mnist(self):
        if not (cluster.BIN / "mnist").exists():
            self.skipTest("built without LibTorch: no mnist")

    def test_says_how_to_reach_it(self):
        up = self.up("--workers", "1")
        text = (self.sandbox.dir / "up.log").read_text()
        self.assertIn(f"export COHORT_ADDRESS={up.address}\n", text)
        self.assertIn(f"export COHORT_CREDENTIAL_FILE={up.credential}\n", text)
        self.assertEqual((up.state / "address").read_text().strip(),
                         up.address)
        self.assertEqual(up.json("status")["nodes"]["ALIVE"], 1)

    def test_detached_until_down(self):
        state = self.sandbox.dir / "detached"
        command = [cluster.BIN / "cohort", "up", "--detach", "--port", "0",
                   "--workers", "1", "--state-dir", state]
        started = subprocess.run(command, capture_output=True, text=True,
                                 timeout=cluster.DEADLINE, check=True)
        address = (state / "address").read_text().strip()
        self.assertIn(f"export COHORT_ADDRESS={address}\n", started.stdout)
        client = cluster.Client(address, state / "credential")
        self.assertEqual(client.run("submit", "--wait", "--", "true").returncode,
                         0)
        again = subprocess.run(command, capture_output=True, text=True,
                               timeout=cluster.DEADLINE, check=False)
        self.assert_fails(again, 125, "cohort up")
        down = client.run("down", "--state-dir", state)
        self.assertEqual(down.returncode, 0, down.stderr)
        self.assert_nothing_left()
        self.assert_fails(client.run("down", "--state-dir", state), 125,
                          "no `cohort up` runs")

    def test_a_detached_start_that_nobody_waits_for_leaves_nothing(self):
        state = self.sandbox.dir / "detached"
        ours, theirs = os.pipe()
        starting = subprocess.Popen(
            [cluster.BIN / "cohort", "up", "--detach", "--port", "0",
             "--workers", "1", "--state-dir", state],
            stdout=theirs, stderr=subprocess.STDOUT)
        os.close(theirs)
        cluster.until("it starts", (state / "head.log").exists)
        starting.kill()
        starting.wait()
        # Its end closes the pipe, also of one that came to serve.
        with open(ours, "rb") as out:
            out.read()
        self.assert_nothing_left()
        again = subprocess.run(
            [cluster.BIN / "cohort", "down", "--state-dir", state],
            capture_output=True, text=True, check=False)
        self.assert_fails(again, 125, "no `cohort up` runs")

    def test_ctrl_c_leaves_nothing_behind(self):
        up = self.up("--num-cpus", "2")
        # A rank with a family that ignores SIGTERM, and one that detached.
        stubborn = up.submit("--", "sh", "-c",
                             "trap '' TERM; setsid sleep 600 & sleep 600 & "
                             "while :; do sleep 1; done")
        plain = up.submit("--num-workers", "2", "--", "sleep", "600")
        up.await_state(stubborn, "RUNNING")
        up.await_state(plain, "RUNNING")
        marked = [pid for pid in cluster.descendants()
                  if "COHORT_ATTEMPT_ID" in cluster.environment_of(pid)]
        self.assertGreaterEqual(len(marked), 6)
        marked += [pid for pid in cluster.descendants()
                   if cluster.program_of(pid) == "cohort-keeper"]
        # Promised: 15 s; the rest is for a busy machine.
        self.assertLess(up.end(signal.SIGINT), 17)
        self.assertEqual(up.process.returncode, 0)
        self.assert_nothing_left()
        self.assertFalse([pid for pid in marked if cluster.alive(pid)])

    def test_a_second_ctrl_c_ends_it_at_once(self):
        up = self.up("--num-cpus", "2")
        asked = self.sandbox.dir / "asked"
        job = up.submit("--", "sh", "-c", f"trap ': >{asked}' TERM; echo ready;"
                        " while :; do sleep 0.1; done")
        cluster.until("it traps", lambda: "ready" in up.logs(job))
        up.process.send_signal(signal.SIGINT)
        cluster.until("the rank was asked to end", asked.exists)
        # Its grace is 10 s.
        self.assertLess(up.end(signal.SIGINT), 8)
        self.assertEqual(up.process.returncode, 0)
        self.assert_nothing_left()

    def test_goes_on_from_the_checkpoint_without_a_charge(self):
        self.need_mnist()
        up = self.up("--num-cpus", "1")
        expected = self.model(up.await_end(
            self.train(up, "plain", "--num-workers", "2")))
        job = self.train(up, "broken", "--num-workers", "2")
        cluster.until("a checkpoint is committed", lambda: (
            up.job(job)["checkpoint"] or {}).get("step", 0) >= 16)
        up.end(signal.SIGTERM)
        self.assert_nothing_left()
        up.start()
        ended = up.await_end(job)
        self.assertEqual(self.model(ended), expected)
        self.assertEqual(ended["failures"], 0)
        self.assertEqual(ended["attempt"], 2)
        started = up.logs(job, "--rank", "0")
        self.assertRegex(started, r"attempt 2")
        self.assertNotRegex(started, r"step-8\n",
                            "it did not begin at the beginning")

    def test_waiting_jobs_wait_on(self):
        up = self.up("--workers", "1", "--num-cpus", "1")
        running = up.submit("--", "sleep", "600")
        up.await_state(running, "RUNNING")
        waiting = up.submit("--", "true")
        up.end()
        up.start()
        up.await_state(running, "RUNNING")
        self.assertEqual(up.job(running)["failures"], 0)
        self.assertEqual(up.job(waiting)["state"], "PENDING")
        up.run("jobs", "stop", running)
        self.assertEqual(up.await_end(waiting)["state"], "SUCCEEDED")

    def test_a_slow_end_is_never_charged(self):
        # Each rank takes longer to end than a node may be silent.
        up = self.up("--workers", "1", "--num-cpus", "1", "--node-timeout",
                     "1s")
        job = up.submit("--", "sh", "-c",
                        "trap 'sleep 2; echo last words; exit 0' TERM; "
                        "while :; do sleep 0.1; done")
        up.await_state(job, "RUNNING")
        for _ in range(4):
            up.end()
            up.start()
            now = up.await_state(job, "RUNNING")
            self.assertEqual(now["failures"], 0, now)
        head = (up.state / "head.log").read_text()
        self.assertNotIn("node_dead", head)

    def test_ends_the_ranks_of_a_worker_that_was_just_killed(self):
        up = self.up("--workers", "1", "--num-cpus", "1")
        job = up.submit("--", "sleep", "600")
        pid = up.await_state(job, "RUNNING")["ranks"][0]["pid"]
        os.kill(up.json("nodes")[0]["pid"], signal.SIGKILL)
        up.end(signal.SIGINT)
        self.assertFalse(cluster.alive(pid))
        self.assert_nothing_left()

    def test_restarts_what_dies(self):
        up = self.up("--workers", "1", "--num-cpus", "1")
        job = up.submit("--", "sleep", "600")
        pid = up.await_state(job, "RUNNING")["ranks"][0]["pid"]
        worker = up.json("nodes")[0]["pid"]
        os.kill(worker, signal.SIGKILL)
        cluster.until("another worker is there", lambda: up.json("nodes")[0][
            "pid"] not in (worker, None))
        head = up.json("status")["head_pid"]
        os.kill(head, signal.SIGKILL)

        def another():
            done = up.run("status", "--json")
            return (done.returncode == 0 and
                    f'"head_pid": {head},' not in done.stdout)
        cluster.until("another head is there", another)
        # Its row says RUNNING, its node says the pid once it is back.
        cluster.until("it runs on",
                      lambda: up.job(job)["ranks"][0]["pid"] == pid)
        self.assertEqual(up.job(job)["state"], "RUNNING")
        self.assertEqual(up.job(job)["attempt"], 1)
        self.assertTrue(cluster.alive(pid))

    def test_dies_with_its_daemons(self):
        up = self.up("--workers", "1")
        up.process.kill()
        up.process.wait()
        self.assert_nothing_left()

    def test_one_model_in_shared_memory_and_over_gloo(self):
        self.need_mnist()
        one = self.up("--workers", "1", "--num-cpus", "2", state="up1")
        shared = self.model(one.await_end(
            self.train(one, "one", "--num-workers", "2")))
        one.end()
        two = self.up("--workers", "2", "--num-cpus", "1", state="up2")
        job = self.train(two, "two", "--num-workers", "2")
        ended = two.await_end(job)
        self.assertEqual(len({rank["node"] for rank in ended["ranks"]}), 2)
        self.assertEqual(self.model(ended), shared)

    def test_second_up_on_a_directory_names_the_first(self):
        up = self.up("--workers", "1")
        done = up.run("up", "--port", "0", "--state-dir", up.state)
        self.assert_fails(done, 125, up.state, up.process.pid)

    def test_says_the_last_words_of_this_start_only(self):
        up = self.up("--workers", "1")
        up.end()
        (up.state / "head.log").write_text("words of an earlier run\n")
        store = up.state / "head/store"
        for name in store.glob("CURRENT"):
            name.write_text("damaged")
        done = up.run("up", "--port", "0", "--state-dir", up.state)
        self.assert_fails(done, 125, "head did not start")
        self.assertNotIn("earlier run", done.stderr)

    def test_refuses_files_that_cannot_be(self):
        client = cluster.Client("", "/nonexistent")
        file = self.file("file", "")
        none = self.sandbox.dir / "none"
        for flags in (("--state-dir", file),
                      ("--state-dir", none, "--ready-file", "/nope/ready")):
            done = client.run("up", "--port", "0", *flags)
            self.assert_fails(done, 2, flags[-2], flags[-1])
            self.assertFalse(none.exists())

    def test_refuses_what_it_cannot_parse(self):
        client = cluster.Client("", "/nonexistent")
        for flags in (("--workers", "0"), ("--workers", "x"),
                      ("--num-cpus", "-1"), ("--memory", "lots"),
                      ("--resources", "a"), ("--node-timeout", "soon"),
                      ("--num-gpus", "1", "--simulate-gpus", "1"),
                      ("--port", "99999"), ("--no-such-flag",)):
            done = client.run("up", "--state-dir", self.sandbox.dir / "none",
                              "--port", "0", *flags)
            self.assertEqual(done.returncode, 2, (flags, done.stderr))
            self.assertFalse((self.sandbox.dir / "none").exists(), flags)


if __name__ == "__main__":
    cluster.main()
