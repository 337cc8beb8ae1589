"""Fit() from a driver, from a rank, and alone: what its pages promise
(docs/training.md)."""

import fcntl
import json
import os
import pathlib
import subprocess

import cluster

BIN = cluster.BIN
PROGRAM = BIN.parent / "tests" / "fit-program"


class Fit(cluster.ClusterTest):

    def program(self, mode, ranks=2, epochs=1, gate=""):
        return [PROGRAM, mode, str(ranks), str(epochs), str(gate),
                str(self.sandbox.dir / "results")]

    def fit(self, c, *args, **kwargs):
        return subprocess.run(
            list(map(str, self.program(*args, **kwargs))),
            env=c.environment(), text=True, capture_output=True,
            timeout=cluster.DEADLINE)

    def result(self, done):
        """The lines of the result, by their first word."""
        lines = [line.partition(" ") for line in done.stdout.splitlines()]
        return {word: rest for word, _, rest in lines}

    def test_a_driver_gets_what_came_of_its_run(self):
        c = self.cluster("--num-cpus", "2")
        done = self.fit(c, "ok", epochs=2)
        self.assertEqual(done.returncode, 0, done)
        result = self.result(done)
        # Rank 0's words are shown.
        self.assertIn("the loop is over", done.stdout)
        self.assertRegex(done.stderr, r"^fit: runs as job [0-9a-f]{32}\n")
        self.assertRegex(result["sum"], r"^\S+ rows 8 step 8$")
        self.assertEqual(result["error"], "")
        self.assertTrue(pathlib.Path(result["path"]).is_dir(), result)
        job = c.json("jobs", "list")[0]
        self.assertEqual((job["name"], job["state"]), ("fit", "SUCCEEDED"))
        self.assertEqual(job["metrics"]["progress"], 1.0)

    def test_a_run_goes_on_exactly_after_a_rank_died(self):
        c = self.cluster("--num-cpus", "2")
        expected = self.result(self.fit(c, "ok", epochs=3))
        done = self.fit(c, "die", epochs=3)
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("resuming from step 2 in epoch 1", done.stdout)
        self.assertEqual(self.result(done)["sum"], expected["sum"])
        self.assertEqual(c.json("jobs", "list")[0]["attempt"], 2)

    def test_it_says_which_rank_failed_and_why(self):
        c = self.cluster("--num-cpus", "2")
        for mode, why in (("error", "the sensor is broken"),
                          ("throw", "the training loop threw: stoi"),
                          ("nan", "sum is nan at step 3"),
                          ("exit", "exited with code 3")):
            done = self.fit(c, mode)
            self.assertEqual(done.returncode, 1, done)
            error = self.result(done)["error"]
            self.assertIn(why, error)
            if mode != "nan":  # which all ranks learn
                self.assertIn("rank 1", error)
            job = c.json("jobs", "list")[0]
            self.assertEqual(job["state"], "FAILED")
            self.assertIn(why, job["reason"])

    def test_a_run_outlives_its_driver_and_is_joined_by_another(self):
        c = self.cluster("--num-cpus", "2")
        gate = self.sandbox.dir / "gate"
        closed = gate.open("w")
        self.addCleanup(closed.close)
        fcntl.flock(closed, fcntl.LOCK_EX)
        command = list(map(str, self.program("ok", epochs=2, gate=gate)))
        first = self.sandbox.spawn(command, "driver.log",
                                   env=c.environment())
        cluster.until("it runs", lambda: [
            job for job in c.json("jobs", "list")
            if (job["metrics"] or {}).get("step", 0) == 2])
        self.assertRegex(c.metrics(), r'(?m)^cohort_job_metric{job_id="'
                         r'[0-9a-f]{32}",job_name="fit",metric="step"} 2$')
        first.kill()
        first.wait()
        second = subprocess.Popen(command, env=c.environment(), text=True,
                                  stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE)
        cluster.until("it has joined", lambda: second.stderr.readline()
                      .startswith("fit: joins job "))
        fcntl.flock(closed, fcntl.LOCK_UN)
        out, _ = second.communicate(timeout=cluster.DEADLINE)
        self.assertEqual(second.returncode, 0, out)
        self.assertEqual(len(c.json("jobs", "list")), 1)
        third = self.fit(c, "ok", epochs=2, gate=gate)
        self.assertIn("fit: runs as job", third.stderr)
        self.assertEqual(len(c.json("jobs", "list")), 2)

    def test_in_the_ranks_of_a_job_it_runs_there(self):
        c = self.cluster("--num-cpus", "3")
        job = c.submit("--num-workers", "3", "--", *self.program("ok"))
        ended = c.await_end(job)
        self.assertEqual(ended["state"], "SUCCEEDED", c.logs(job, "--stderr"))
        out = c.logs(job, "--rank", "0")
        self.assertIn("training on 3 ranks", out)
        self.assertIn("num_workers 2 is not used", out)
        self.assertEqual(len(c.json("jobs", "list")), 1)

    def test_in_its_own_process(self):
        done = subprocess.run(
            list(map(str, self.program("ok", ranks=0))), text=True,
            capture_output=True, timeout=cluster.DEADLINE,
            cwd=self.sandbox.dir)
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("rows 8 step 8", done.stdout)

    def test_alone_it_starts_a_cluster_and_ends_it(self):
        directory = self.sandbox.dir / "here"
        directory.mkdir()
        environment = {key: value for key, value in os.environ.items()
                       if not key.startswith("COHORT_")}
        done = subprocess.run([BIN / "logistic", "2",
                               cluster.MNIST_DATA], text=True,
                              capture_output=True, cwd=directory,
                              env={**environment, "HOME": str(directory),
                                   "PATH": f"{BIN}:{os.environ['PATH']}"},
                              timeout=cluster.DEADLINE)
        self.assertEqual(done.returncode, 0, done)
        self.assertRegex(done.stdout, r"accuracy 9\d\.\d+ %")
        metrics = list(directory.glob("cohort-results/*/out/metrics.jsonl"))
        self.assertEqual(len(metrics), 1, done)
        self.assertEqual(len(metrics[0].read_text().splitlines()), 600)


class Shown(cluster.ClusterTest):

    def test_metrics_are_shown_step_by_step(self):
        c = self.cluster("--num-cpus", "2")
        job = c.submit("--num-workers", "2", "--name", "shown", "--",
                       BIN / "logistic", "2", cluster.MNIST_DATA)
        self.assertEqual(c.await_end(job)["state"], "SUCCEEDED")

        rows = json.loads(c.run("jobs", "metrics", job, "--format",
                                "json").stdout)
        self.assertEqual([row["step"] for row in rows], list(range(1, 601)))
        self.assertLess(rows[-1]["loss"], rows[0]["loss"])
        self.assertGreater(rows[-1]["accuracy"], 85)
        lines = c.run("jobs", "metrics", job, "--format",
                      "csv").stdout.splitlines()
        self.assertEqual((lines[0], len(lines)),
                         ("step,accuracy,epoch,loss", 601))
        table = c.run("jobs", "metrics", "shown").stdout.splitlines()
        self.assertEqual((len(table), table[-1].split()[0]), (21, "600"))

        events = self.sandbox.dir / "events"
        done = c.run("jobs", "metrics", job, "--format", "tensorboard",
                     "--dir", events)
        self.assertEqual(done.returncode, 0, done)
        file, = events.iterdir()
        self.assertIn(b"brain.Event:2", file.read_bytes())
        self.assert_fails(c.run("jobs", "metrics", job, "--format",
                                "tensorboard"), 2, "--dir")

    def test_the_head_keeps_curves_that_outlive_the_files(self):
        c = self.cluster("--num-cpus", "2")
        job = c.submit("--num-workers", "2", "--", BIN / "logistic", "2",
                       cluster.MNIST_DATA)
        self.assertEqual(c.await_end(job)["state"], "SUCCEEDED")
        file, = self.sandbox.dir.rglob(f"{job}/**/metrics.jsonl")
        file.unlink()
        done = c.run("jobs", "metrics", job, "--format", "json")
        self.assertEqual(done.returncode, 0, done)
        rows = json.loads(done.stdout)
        self.assertIn("points that the head keeps", done.stderr)
        self.assertEqual(rows[-1]["step"], 600)
        self.assertGreater(rows[-1]["accuracy"], 85)
        self.assertEqual(c.run("plot", job).returncode, 0)

    def test_curves_of_several_jobs_are_drawn(self):
        c = self.cluster("--num-cpus", "4")
        jobs = [c.submit("--num-workers", str(ranks), "--", BIN / "logistic",
                         "2", cluster.MNIST_DATA) for ranks in (1, 2)]
        for job in jobs:
            self.assertEqual(c.await_end(job)["state"], "SUCCEEDED")
        done = c.run("plot", *jobs)
        self.assertEqual(done.returncode, 0, done)
        for sign, job in zip("*+", jobs):
            self.assertRegex(done.stdout, rf"(?m)^\{sign} .*{job[:8]}: loss 0\.")
        picture = self.sandbox.dir / "curves.svg"
        done = c.run("plot", *jobs, "--metric", "loss", "--svg", picture)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(picture.read_text().count("<polyline"), 4)
        self.assert_fails(c.run("plot", jobs[0], "--metric", "lost"), 125,
                          'no metric "lost"', "accuracy", "loss")

    def test_a_job_without_metrics_says_so(self):
        c = self.cluster()
        job = c.submit("--", "true")
        c.await_end(job)
        self.assert_fails(c.run("plot", job), 125, "metrics.jsonl")
        self.assertIn("has reported no metrics",
                      c.run("jobs", "top", job).stdout)

    def test_top_says_where_the_time_goes(self):
        c = self.cluster("--num-cpus", "2")
        job = c.submit("--num-workers", "2", "--", BIN / "logistic", "2",
                       cluster.MNIST_DATA)
        c.await_end(job)
        shown = c.run("jobs", "top", job).stdout
        self.assertRegex(shown, r"collective_share +\d+\.\d %")
        self.assertRegex(shown, r"loader_share +\d+\.\d %")
        self.assertRegex(shown, r"progress +100\.0 %")


class Page(cluster.ClusterTest):

    def test_the_examples_stay_short(self):
        for name, most in (("logistic", 100), ("mnist", 150),
                           ("resnet", 200), ("gpt", 250)):
            path = cluster.SOURCE / "examples" / name / "main.cc"
            lines = len(path.read_text().splitlines())
            self.assertLessEqual(lines, most, path)


if __name__ == "__main__":
    cluster.main()
