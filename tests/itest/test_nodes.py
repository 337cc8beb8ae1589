"""Nodes that are silent, drained, dead and back, or not who they say."""

import json
import os
import re
import shutil
import signal
import subprocess

import cluster


class Nodes(cluster.ClusterTest):

    def node(self, c, name):
        return c.json("nodes", "get", name)

    def await_node(self, c, name, *states):
        def reached():
            now = self.node(c, name)
            return now if now["state"] in states else None
        return cluster.until(f"{name} in {states}", reached)

    def log(self, name):
        return (self.sandbox.dir / f"{name}.log").read_text()

    def await_log(self, name, words):
        cluster.until(f"{name}'s log says {words}",
                      lambda: words in self.log(name))

    def await_running(self, c, job, on=None):
        def reached():
            now = c.job(job)
            ok = now["state"] == "RUNNING" and (
                on is None or now["ranks"][0]["node"] == on)
            return now if ok else None
        return cluster.until(f"job {job} runs on {on}", reached)

    def worker(self, c, log, *flags):
        return self.sandbox.spawn(
            [cluster.BIN / "cohort-worker", "--address", c.address,
             "--credential-file", c.credential, "--num-cpus", "1", *flags],
            f"{log}.log")

    def test_a_drain_moves_what_runs_and_outlives_restarts(self):
        c = self.cluster("--num-cpus", "1")
        w0 = self.node(c, "w0")["id"]
        job = c.submit("--", "sleep", "1000")
        self.await_running(c, job, w0)
        c.start_worker("w1", "--num-cpus", "1")
        w1 = self.node(c, "w1")["id"]
        drained = c.json("drain", "w0", "--reason", "fan 3", "--deadline",
                         "1s")
        self.assertEqual(drained["state"], "DRAINING")
        self.assertEqual(drained["drain"]["reason"], "fan 3")
        moved = self.await_running(c, job, w1)
        self.assertEqual((moved["failures"], moved["attempt"]), (0, 2))
        now = self.await_node(c, w0[:8], "DRAINED")
        self.assertEqual(now["held"], [])
        self.assertEqual(c.json("status")["nodes"]["DRAINED"], 1)

        c.kill_head()
        c.kill_worker("w0")
        c.start_head()
        c.start_worker("w0")
        waiting = c.submit("--", "sleep", "1000")
        self.assertEqual(self.await_node(c, "w0", "DRAINED")["drain"]["reason"],
                         "fan 3")
        self.assertEqual(c.job(waiting)["state"], "PENDING")
        self.assertIn("drained", c.job(waiting)["reason"])
        done = c.run("undrain", "w0")
        self.assertEqual((done.returncode, done.stdout), (0, "w0 is ALIVE\n"))
        self.await_running(c, waiting, w0)
        kinds = [event["kind"] for event in self.node(c, "w0")["history"]]
        for kind in ("node_registered", "node_drained", "node_empty",
                     "node_undrained"):
            self.assertIn(kind, kinds)
        held = self.node(c, "w0")["held"]
        self.assertEqual([(each["job_id"], each["state"]) for each in held],
                         [(waiting, "RUNNING")])
        shown = c.run("nodes", "get", "w0", "-o", "wide").stdout
        for words in (w0, waiting, "ALIVE since", "127.0.0.1"):
            self.assertIn(words, shown)

    def test_a_silent_node_is_suspect_and_alive_again(self):
        c = self.cluster("--num-cpus", "2", node_timeout="20s")
        job = c.submit("--", "sleep", "1000")
        before = self.await_running(c, job)["ranks"][0]["pid"]
        os.kill(c.workers["w0"].pid, signal.SIGSTOP)
        self.await_node(c, "w0", "SUSPECT")
        waiting = c.submit("--", "true")
        self.assertEqual(c.job(waiting)["state"], "PENDING")
        self.assertIn("suspect", c.job(waiting)["reason"])
        os.kill(c.workers["w0"].pid, signal.SIGCONT)
        self.await_node(c, "w0", "ALIVE")
        c.await_state(waiting, "SUCCEEDED")
        now = c.job(job)
        self.assertEqual((now["state"], now["ranks"][0]["pid"]),
                         ("RUNNING", before))

    def test_a_node_that_returns_ends_what_lost_its_lease_and_says_so(self):
        c = self.cluster("--num-cpus", "1", node_timeout="2s")
        job = c.submit("--", "sleep", "1000")
        pid = self.await_running(c, job)["ranks"][0]["pid"]
        os.kill(c.workers["w0"].pid, signal.SIGSTOP)
        self.await_node(c, "w0", "DEAD")
        c.start_worker("w1", "--num-cpus", "1")
        self.await_running(c, job, self.node(c, "w1")["id"])
        self.assertTrue(cluster.alive(pid))
        os.kill(c.workers["w0"].pid, signal.SIGCONT)
        cluster.until("the rank without a lease is gone", lambda: not cluster.alive(pid))
        self.await_log("w0", "lease_ended")
        self.assertIn("lease_lost", self.log("w0"))
        self.assertIn("was silent for 2s", self.log("w0"))
        self.assertIn(job, self.log("w0"))
        self.assertEqual(self.await_node(c, "w0", "ALIVE")["held"], [])
        self.assertEqual(c.job(job)["state"], "RUNNING")

    def test_one_state_directory_is_one_daemons(self):
        c = self.cluster()
        second = self.worker(c, "second", "--name", "w0", "--state-dir",
                             self.sandbox.dir / "w0")
        self.assertEqual(second.wait(cluster.DEADLINE), 125)
        self.assertIn(str(c.workers["w0"].pid), self.log("second"))
        self.assertEqual(self.node(c, "w0")["pid"], c.workers["w0"].pid)

    def test_a_copy_of_a_node_is_refused_and_told_what_to_do(self):
        c = self.cluster("--num-cpus", "1")
        job = c.submit("--", "sleep", "1000")
        self.await_running(c, job)
        copy = self.sandbox.dir / "copy"
        copy.mkdir(mode=0o700)
        shutil.copy(self.sandbox.dir / "w0/node_id", copy / "node_id")
        flags = ("--name", "copy", "--state-dir", copy)
        # Here, on one machine, it does not come as far as the head.
        second = self.worker(c, "copy", *flags)
        self.assertEqual(second.wait(cluster.DEADLINE), 125)
        self.assertIn("remove node_id", self.log("copy"))
        self.assertEqual(self.node(c, "w0")["pid"], c.workers["w0"].pid)
        self.assertEqual(c.job(job)["state"], "RUNNING")
        (copy / "node_id").unlink()
        self.worker(c, "copy", *flags)
        cluster.until("both have joined", lambda: len(c.json("nodes")) == 2)
        self.assertEqual(self.node(c, "copy")["state"], "ALIVE")

    def test_a_directory_put_back_from_a_copy_leaves_no_rank_behind(self):
        c = self.cluster("--num-cpus", "3", node_timeout="60s")
        before = c.submit("--", "sleep", "1000")
        self.await_running(c, before)
        copy = self.sandbox.dir / "older"
        subprocess.run(["cp", "-a", self.sandbox.dir / "w0", copy], check=True)
        # What is between has no trace in the copy, a child without its
        # environment included.
        between = c.submit("--num-workers", "2", "--", "sh", "-c",
                           "env -i sleep 1000 & wait")
        self.await_running(c, between)
        # Head, worker, two keepers, three ranks and two children of ranks.
        cluster.until("all are there",
                      lambda: len(cluster.descendants()) >= 9)
        old = cluster.descendants() - {c.head.pid, c.workers["w0"].pid}
        c.kill_worker("w0")
        shutil.rmtree(self.sandbox.dir / "w0")
        copy.rename(self.sandbox.dir / "w0")
        c.start_worker("w0")
        for job in (before, between):
            cluster.until(f"{job} runs again", lambda job=job: (
                c.job(job)["attempt"], c.job(job)["state"]) == (2, "RUNNING"))
        cluster.until("nothing of before runs", lambda: not any(
            cluster.alive(pid) for pid in old))
        self.assertIn("leftover_attempt_ended", self.log("w0"))
        # Where there are cgroups: only those of the two that run now.
        left = [path for path in re.findall(r"cgroup=(/\S+)", self.log("w0"))
                if os.path.exists(path)]
        self.assertLessEqual(len(left), 2, left)

    def harm_spec(self, harm):
        """Of a rank whose worker is away: its keeper knows it all the same."""
        c = self.cluster("--num-cpus", "2", node_timeout="60s")
        job = c.submit("--cpus", "2", "--", "sleep", "1000")
        self.await_running(c, job)
        (pid,) = c.rank_pids(job).values()
        c.kill_worker("w0")
        (spec,) = (self.sandbox.dir / "w0/keepers").glob("*/*.spec")
        spec.chmod(0o600)
        harm(spec)
        c.start_worker("w0")
        cluster.until("its worker has taken it back",
                      lambda: "keeper_adopt" in self.log("w0"))
        self.await_running(c, job)
        self.assertEqual(c.job(job)["attempt"], 1)
        self.assertTrue(cluster.alive(pid))
        c.run("jobs", "stop", job)
        cluster.until("it was ended", lambda: not cluster.alive(pid))

    def test_a_rank_whose_spec_is_gone_runs_on(self):
        self.harm_spec(lambda spec: spec.unlink())

    def test_a_rank_whose_spec_is_damaged_runs_on(self):
        self.harm_spec(lambda spec: spec.write_bytes(spec.read_bytes()[:-1]))

    def test_a_name_that_means_two_nodes_is_refused(self):
        c = self.cluster()
        self.worker(c, "twin", "--name", "w0", "--state-dir",
                    self.sandbox.dir / "twin")
        cluster.until("both have joined", lambda: len(c.json("nodes")) == 2)
        ids = [node["id"] for node in c.json("nodes")]
        self.assert_fails(c.run("drain", "w0"), 125, *ids)
        self.assertEqual(c.json("drain", ids[1])["state"], "DRAINED")
        self.assertEqual(c.json("nodes", "get", ids[0])["state"], "ALIVE")

    def test_taints_are_shown_and_bad_ones_refused(self):
        c = self.cluster("--num-cpus", "1", "--taint", "gpu=only", "--taint",
                         "slow")
        self.assertEqual(c.json("nodes", "list")[0]["taints"],
                         [{"key": "gpu", "value": "only"},
                          {"key": "slow", "value": ""}])
        self.assertIn("gpu=only,slow", c.run("nodes").stdout)
        node = c.json("nodes", "list")[0]
        wide = c.run("nodes", "list", "-o", "wide").stdout
        self.assertIn(node["id"], wide)
        self.assertIn(str(node["pid"]), wide)
        self.assertNotIn(node["id"], c.run("nodes", "list").stdout)
        self.assertEqual(json.loads(c.run("nodes", "-o", "json").stdout)[0]["id"],
                         node["id"])
        for taint, words in (("a b", "column 3"), ("=x", "column 1"),
                             ("k=v=w", "column 4")):
            done = subprocess.run(
                [cluster.BIN / "cohort-worker", "--address", c.address,
                 "--credential-file", c.credential, "--state-dir",
                 self.sandbox.dir / "bad", "--taint", taint],
                capture_output=True, text=True, check=False,
                timeout=cluster.DEADLINE)
            self.assert_fails(done, 2, "--taint", taint, words)

    def test_bad_input_is_refused(self):
        c = self.cluster()
        for args in (("drain",), ("undrain",), ("nodes", "get"),
                     ("drain", "w0", "--deadline", "soon"),
                     ("drain", "w0", "--deadline", "-1s"),
                     ("drain", "w0", "--reason", ""),
                     ("drain", "w0", "--reason", "a\nb"),
                     ("drain", "w0", "--reason", "x" * 2000),
                     ("nodes", "sideways")):
            done = c.run(*args)
            self.assertEqual(done.returncode, 2, (args, done.stderr))
        for args in (("drain", "nobody"), ("undrain", "nobody"),
                     ("nodes", "get", "nobody")):
            self.assert_fails(c.run(*args), 125, "nobody", "cohort nodes")
        self.assertEqual(self.node(c, "w0")["state"], "ALIVE")


if __name__ == "__main__":
    cluster.main()
