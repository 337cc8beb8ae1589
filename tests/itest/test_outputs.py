"""What ranks leave: run directories, files of working directories, --keep-work."""

import json
import os
import signal

import cluster

# PyTorch's tutorial "fault-tolerant distributed training with torchrun" in
# shape: it saves its state beside itself, and goes on with it when it is there.
TUTORIAL = """
import os, pickle, signal, sys

class Trainer:
    def __init__(self, snapshot_path):
        self.epochs_run = 0
        self.snapshot_path = snapshot_path
        if os.path.exists(snapshot_path):
            print("Loading snapshot", flush=True)
            with open(snapshot_path, "rb") as f:
                self.epochs_run = pickle.load(f)["EPOCHS_RUN"]
            print(f"Resuming training from snapshot at Epoch {self.epochs_run}")

    def train(self, max_epochs):
        for epoch in range(self.epochs_run, max_epochs):
            print(f"Epoch {epoch}", flush=True)
            with open(self.snapshot_path + ".new", "wb") as f:
                pickle.dump({"EPOCHS_RUN": epoch + 1}, f)
            os.replace(self.snapshot_path + ".new", self.snapshot_path)
            if epoch == 3 and not self.epochs_run:
                os.kill(os.getpid(), signal.SIGKILL)

Trainer("snapshot.pt").train(6)
"""


class Outputs(cluster.ClusterTest):

    def files(self, c, job):
        return {f["path"]: f for f in c.json("jobs", "files", job)["files"]}

    def fetched(self, c, job, *paths):
        to = self.sandbox.dir / "fetched"
        done = c.run("jobs", "get-files", job, str(to), *paths)
        return done, to

    def test_a_run_directory_is_listed_and_fetched(self):
        c = self.cluster()
        job = c.submit("--", "sh", "-c",
                       'mkdir "$COHORT_STORAGE_DIR/a"; '
                       'echo hello > "$COHORT_STORAGE_DIR/a/model.txt"; '
                       'ln -s model.txt "$COHORT_STORAGE_DIR/a/link"; '
                       'echo beside > left.txt')
        c.await_end(job)
        node = c.json("jobs", "get", job)["ranks"][0]["node"]
        self.assertTrue(node)
        paths = self.files(c, job)
        self.assertEqual(sorted(paths),
                         ["a/link", "a/model.txt", "work-1/w0/left.txt"])
        self.assertEqual(paths["a/model.txt"]["size_bytes"], 6)
        self.assertEqual(paths["a/link"]["link"], "model.txt")
        self.assertIn("work-1/w0/left.txt", c.run("jobs", "files", job).stdout)
        done, to = self.fetched(c, job)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("3 files", done.stderr)
        self.assertEqual((to / "a/link").read_text(), "hello\n")
        self.assertEqual((to / "work-1/w0/left.txt").read_text(), "beside\n")
        self.assert_fails(c.run("jobs", "get-files", job, str(to), "nope"), 125,
                          "no file nope")

    def test_results_of_a_node_are_bounded(self):
        c = self.cluster("--num-cpus", "2", "--keep-results", "2MiB")
        big = ("--", "sh", "-c", "head -c 1500000 /dev/zero > model.pt")
        first = c.submit(*big)
        self.assertEqual(c.await_end(first)["state"], "SUCCEEDED")
        self.assertIn("work-1/w0/model.pt", self.files(c, first))
        done = c.run("submit", "--wait", *big)
        self.assertEqual(done.returncode, 0)
        self.assertIn("work-1/w0.not-kept.txt", done.stderr)
        second = done.stdout.splitlines()[0]
        self.assertNotIn("work-1/w0/model.pt", self.files(c, second))
        self.assertIn("work-1/w0/model.pt", self.files(c, first))
        # Also for who comes back later.
        cluster.until("the job has a warning",
                      lambda: c.json("jobs", "get", second)["warnings"])
        [warning] = c.json("jobs", "get", second)["warnings"]
        self.assertIn("1 file of attempt 1 on w0 was not kept", warning)
        self.assertIn(warning, c.run("jobs", "get", second).stdout)
        self.assertIn(warning, c.run("events", "--job", second).stdout)
        self.assertEqual(c.json("jobs", "get", first)["warnings"], [])
        done, to = self.fetched(c, second)
        self.assertIn("--keep-results",
                      (to / "work-1/w0.not-kept.txt").read_text())
        self.assertIn("model.pt", (to / "work-1/w0.not-kept.txt").read_text())

    def test_fetching_writes_through_no_link(self):
        c = self.cluster()
        outside = self.sandbox.dir / "outside"
        outside.mkdir()
        victim = self.file("victim", "mine")
        first = c.submit("--", "sh", "-c",
                         f'cd "$COHORT_STORAGE_DIR"; ln -s {outside} cfg; '
                         f'ln -s {victim} model')
        c.await_end(first)
        second = c.submit("--", "sh", "-c",
                          'cd "$COHORT_STORAGE_DIR"; mkdir cfg; echo x > cfg/key; '
                          'echo new > model; echo z > z')
        c.await_end(second)
        done, to = self.fetched(c, first)
        self.assertEqual(done.returncode, 0, done.stderr)
        done, to = self.fetched(c, second)
        # cfg is a link by now: that file is named, and the others are fetched.
        self.assert_fails(done, 125, "cfg/key")
        self.assertEqual((to / "z").read_text(), "z\n")
        self.assertEqual((to / "model").read_text(), "new\n")
        self.assertEqual(victim.read_text(), "mine")
        self.assertEqual(list(outside.iterdir()), [])

    def test_what_the_package_brought_is_not_an_output(self):
        c = self.cluster()
        package = self.sandbox.dir / "package"
        package.mkdir()
        (package / "same.txt").write_text("same")
        (package / "changed.txt").write_text("before")
        done = c.run("submit", "--wait", "--working-dir", str(package), "--",
                     "sh", "-c", "echo after > changed.txt; mkdir d; echo x > d/new")
        self.assertEqual(done.returncode, 0, done.stderr)
        job = done.stdout.split()[0]
        self.assertEqual(sorted(self.files(c, job)),
                         ["work-1/w0/changed.txt", "work-1/w0/d/new"])
        self.assertIn("it left 2 files", done.stderr)
        self.assertIn(f"cohort jobs get-files {job} DIR", done.stderr)

    def test_a_script_with_its_own_snapshot_resumes_after_a_kill(self):
        c = self.cluster()
        script = self.file("train.py", TUTORIAL)
        job = c.submit("--max-failures", "1", "--retry-delay", "10ms",
                       "--keep-work", "--file", script, "--", "python3",
                       "train.py")
        c.await_end(job)
        self.assertEqual(c.job(job)["state"], "SUCCEEDED")
        self.assertEqual(c.job(job)["attempt"], 2)
        out = c.logs(job)
        self.assertIn("Resuming training from snapshot at Epoch 4", out)
        self.assertNotIn("Epoch 0\n", out)
        self.assertEqual(sorted(self.files(c, job)),
                         ["work-2/w0/snapshot.pt"])

    def test_what_was_kept_replaces_what_the_package_has(self):
        c = self.cluster()
        self.file("package/t.py", "of the package")
        job = c.submit("--keep-work", "--max-failures", "1", "--retry-delay",
                       "10ms", "--working-dir", str(self.sandbox.dir / "package"),
                       "--", "sh", "-c",
                       'if [ "$COHORT_ATTEMPT" = 1 ]; then '
                       "rm t.py; mkdir t.py; echo kept > t.py/inner; exit 1; fi; "
                       "cat t.py/inner")
        c.await_end(job)
        self.assertEqual(c.job(job)["failures_by_class"], {"user": 1})
        self.assertEqual(c.logs(job), "kept\n")

    def test_says_when_kept_work_is_on_another_node(self):
        c = self.cluster(workers=2)
        script = ('ls; test -e left && exit; touch left; test "$COHORT_ATTEMPT" = 2 '
                  "|| sleep 600")
        storage = ("--storage-path", str(self.sandbox.dir / "storage"))
        for flags, found in ((), ""), (storage, "left\n"):
            job = c.submit("--keep-work", *flags, "--", "sh", "-c", script)
            c.await_state(job, "RUNNING")
            cluster.until("it has begun", lambda: "left" in str(
                c.run("jobs", "files", job).stdout))
            node = c.job(job)["ranks"][0]["node"]
            c.run("drain", node, "--deadline", "1ms")  # it starts again at once
            self.assertEqual(c.await_end(job)["state"], "SUCCEEDED")
            self.assertNotEqual(c.job(job)["ranks"][0]["node"], node)
            c.run("undrain", node)
            self.assertEqual(c.logs(job), found)
            warnings = "".join(c.job(job)["warnings"])
            self.assertEqual("found no files of an earlier" in warnings,
                             not found, warnings)

    def test_absolute_links_of_a_script_stay_right(self):
        c = self.cluster()
        job = c.submit("--", "sh", "-c", "mkdir runs; echo 5 > runs/ckpt-5.pt; "
                       'ln -s "$PWD/runs/ckpt-5.pt" latest.pt')
        c.await_end(job)
        done, to = self.fetched(c, job)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((to / "work-1/w0/latest.pt").read_text(), "5\n")

    def test_without_keep_work_each_attempt_keeps_its_own(self):
        c = self.cluster()
        job = c.submit("--max-failures", "1", "--retry-delay", "10ms", "--",
                       "sh", "-c",
                       "test ! -e left || exit 9; echo x > left; "
                       'test "$COHORT_ATTEMPT" = 2')
        c.await_end(job)
        self.assertEqual(c.job(job)["state"], "SUCCEEDED")
        self.assertEqual(sorted(self.files(c, job)),
                         ["work-1/w0/left", "work-2/w0/left"])

    def test_an_ended_job_is_removed(self):
        c = self.cluster()
        waits = c.submit("--hold", "--", "true")
        self.assert_fails(c.run("jobs", "remove", waits), 125,
                          "only what has ended can be removed")
        done = c.submit("--", "true")
        c.await_end(done)
        after = c.submit("--hold", "--after", f"{done}:any", "--", "true")
        self.assert_fails(c.run("jobs", "remove", done), 125, "waited for")
        c.run("jobs", "stop", after)
        removed = c.run("jobs", "remove", done, after)
        self.assertEqual(removed.returncode, 0, removed.stderr)
        self.assertEqual(removed.stdout, f"{done} removed\n{after} removed\n")
        self.assert_fails(c.run("jobs", "get", done), 125, "no job")
        self.assertEqual(c.json("jobs", "get", waits)["state"], "PENDING")

    def test_files_of_several_nodes_and_of_one_that_is_away(self):
        c = self.cluster(workers=2)
        job = c.submit("--num-workers", "2", "--strategy", "STRICT_SPREAD", "--",
                       "sh", "-c", 'echo $RANK > "$COHORT_STORAGE_DIR/rank.txt"')
        c.await_end(job)
        listed = c.json("jobs", "files", job)
        self.assertEqual([f["path"] for f in listed["files"]], ["rank.txt"] * 2)
        done, to = self.fetched(c, job)
        self.assertEqual(done.returncode, 0, done.stderr)
        both = {p.read_text() for p in to.glob("*/rank.txt")}
        self.assertEqual(both, {"0\n", "1\n"})
        # One that does not answer, and one that is gone.
        c.workers["w1"].send_signal(signal.SIGSTOP)
        for go_on in (lambda: c.kill_worker("w1"), lambda: None):
            done = c.run("jobs", "files", job, "--json")
            self.assertEqual(done.returncode, 125, done.stderr)
            listed = json.loads(done.stdout)
            self.assertEqual(listed["nodes_away"], ["w1"])
            self.assertEqual(len(listed["files"]), 1)
            done, to = self.fetched(c, job)
            self.assert_fails(done, 125, "node w1 did not answer", "1 file,")
            go_on()

    def test_a_storage_path_of_the_user_is_seen_once(self):
        c = self.cluster(workers=2)
        storage = self.sandbox.dir / "storage"
        job = c.submit("--num-workers", "2", "--strategy", "STRICT_SPREAD",
                       "--storage-path", str(storage), "--", "sh", "-c",
                       "echo $RANK > $RANK.txt")
        c.await_end(job)
        cluster.until("both nodes' files are there", lambda: len(list(
            storage.glob(f"{job}/out/work-1/w*/*.txt"))) == 2)
        names = {n["id"]: n["name"] for n in c.json("nodes")}
        both = [f"work-1/{names[r['node']]}.{r['node'][:8]}/{r['rank']}.txt"
                for r in c.job(job)["ranks"]]
        self.assertEqual(sorted(self.files(c, job)), sorted(both))
        self.assertTrue(os.path.isdir(storage / job / "out"))


if __name__ == "__main__":
    cluster.main()
