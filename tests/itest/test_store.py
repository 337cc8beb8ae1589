"""The control store: backup under load, restore, inspect, orphans."""

import json
import shutil
import subprocess
import threading

import cluster

WAIT = "echo $$ > {0}.pid; until [ -e {0}.go ]; do sleep 0.05; done"


class Store(cluster.ClusterTest):

    def head_command(self, *args):
        return subprocess.run(
            [str(cluster.BIN / "cohort"), "head", *(str(arg) for arg in args)],
            capture_output=True, text=True, timeout=60, check=False,
            cwd=self.sandbox.dir)

    def begin(self, c, name):
        """A job that runs until it is let go; its id and its rank's pid."""
        job = c.submit("--", "sh", "-c",
                       WAIT.format(self.sandbox.dir / name))
        c.await_state(job, "RUNNING")
        path = self.sandbox.dir / f"{name}.pid"
        pid = cluster.until("the rank wrote its pid",
                            lambda: path.exists() and path.read_text().strip())
        return job, int(pid)

    def let_go(self, name):
        (self.sandbox.dir / f"{name}.go").touch()

    def backup(self, c, name):
        done = c.run("head", "backup", name, cwd=self.sandbox.dir)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.sandbox.dir / name

    def restore(self, c, backup, state):
        c.kill_head()
        done = self.head_command("restore", backup, "--state-dir", state)
        self.assertEqual(done.returncode, 0, done.stderr)
        c.start_head(state)

    def orphans(self, c, *jobs):
        """All orphans by job, once those of `jobs` run."""
        def reached():
            found = c.json("status")["orphans"]
            running = {each["job"] for each in found
                       if each["state"] == "RUNNING"}
            if running >= set(jobs):
                return {each["job"]: each["attempt"] for each in found}
            return None
        return cluster.until(f"orphans: {jobs}", reached)

    def test_a_job_beyond_what_is_kept_is_said_to_be_trimmed(self):
        c = cluster.Cluster(self.sandbox)
        c.head_flags = ("--keep-jobs", "2", "--keep-for", "1d")
        c.start_head()
        jobs = [c.submit("--", "true") for _ in range(5)]
        for job in jobs:
            self.assertEqual(c.run("jobs", "stop", job).returncode, 0)
        cluster.until("the oldest were trimmed",
                      lambda: len(c.json("jobs", "list")) == 2)
        for command in (("jobs", "get"), ("jobs", "wait"), ("jobs", "logs"),
                        ("jobs", "stop"), ("explain",)):
            done = c.run(*command, jobs[0])
            self.assertNotEqual(done.returncode, 0, command)
            self.assertIn(f"there is no job {jobs[0]} here", done.stderr)
            self.assertIn("trimmed", done.stderr)
        self.assertEqual(c.job(jobs[4])["state"], "STOPPED")
        c.kill_head()
        c.start_head()
        self.assertEqual({job["id"] for job in c.json("jobs", "list")},
                         set(jobs[3:]))

    def test_restored_under_running_workers(self):
        c = self.cluster("--num-cpus", "3", workers=2, node_timeout="2s")
        adopted, adopted_pid = self.begin(c, "adopted")
        ended, ended_pid = self.begin(c, "ended")
        acknowledged = []
        stop = threading.Event()

        def submit():
            while not stop.is_set():
                acknowledged.append(c.submit("--", "true"))
        load = threading.Thread(target=submit)
        load.start()
        try:
            cluster.until("load", lambda: len(acknowledged) > 3)
            before = list(acknowledged)
            backup = self.backup(c, "backup")
        finally:
            stop.set()
            load.join()
        later, later_pid = self.begin(c, "later")

        self.restore(c, backup, "restored")
        attempts = self.orphans(c, adopted, ended, later)
        for pid in (adopted_pid, ended_pid, later_pid):
            self.assertTrue(cluster.alive(pid))
        # Of the load, what was in flight: it ended, and nobody knows how.
        for job in set(attempts) - {adopted, ended, later}:
            done = c.run("end", attempts[job])
            self.assertEqual(done.returncode, 0, done.stderr)
        for job in before:
            self.assertEqual(c.await_end(job)["state"], "SUCCEEDED")
        cluster.until("the rest is free", lambda: c.json(
            "resources")["available"]["CPU"] == 3)
        self.assertIn("is an orphan", c.job(adopted)["reason"])

        done = c.run("adopt", attempts[adopted])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.let_go("adopted")
        job = c.await_end(adopted)
        self.assertEqual((job["state"], job["attempt"]), ("SUCCEEDED", 1))

        (self.sandbox.dir / "ended.pid").unlink()
        done = c.run("end", attempts[ended])
        self.assertEqual(done.returncode, 0, done.stderr)
        cluster.until("the rank is gone", lambda: not cluster.alive(ended_pid))
        cluster.until("the next attempt",
                      lambda: c.job(ended)["attempt"] == 2)
        self.assertEqual(c.await_state(ended, "RUNNING")["failures"], 0)
        self.let_go("ended")
        self.assertEqual(c.await_end(ended)["state"], "SUCCEEDED")

        # Of this job the backup knows nothing.
        self.assertEqual(c.run("jobs", "get", later).returncode, 125)
        self.assert_fails(c.run("adopt", attempts[later]), 125,
                          "cannot be adopted", f"cohort end {attempts[later]}")
        self.assertTrue(cluster.alive(later_pid))
        done = c.run("end", attempts[later])
        self.assertEqual(done.returncode, 0, done.stderr)
        cluster.until("the rank is gone", lambda: not cluster.alive(later_pid))
        cluster.until("no orphan is left",
                      lambda: c.json("status")["orphans"] == [])
        cluster.until("everything is free", lambda: c.json(
            "resources")["available"]["CPU"] == 6)

    def test_the_store_before_a_restore_is_not_followed_any_more(self):
        c = self.cluster(node_timeout="2s")
        job, pid = self.begin(c, "job")
        backup = self.backup(c, "backup")
        self.restore(c, backup, "restored")
        self.orphans(c, job)
        c.kill_head()
        c.start_head("head")  # the old one again
        log = self.sandbox.dir / "w0.log"
        cluster.until("the worker refuses it",
                      lambda: "restored" in log.read_text())
        self.assertTrue(cluster.alive(pid))
        c.kill_head()
        c.start_head("restored")
        attempts = self.orphans(c, job)
        self.assertEqual(c.run("adopt", attempts[job]).returncode, 0)
        self.assertTrue(cluster.alive(pid))
        self.let_go("job")
        self.assertEqual(c.await_end(job)["state"], "SUCCEEDED")

    def test_a_copy_of_the_state_directory_is_not_followed(self):
        c = self.cluster(node_timeout="2s")
        c.kill_head()
        shutil.copytree(self.sandbox.dir / "head", self.sandbox.dir / "copy")
        c.start_head()
        job, pid = self.begin(c, "job")
        for _ in range(2):  # first of the term that was there already
            c.kill_head()
            c.start_head("copy")
            later = cluster.until("the node refuses it",
                                  lambda: c.json("status")["later_store"])
            self.assertEqual(later["term"], 2)
            self.assertIn("an older copy", later["why"])
            self.assertTrue(cluster.alive(pid))
        c.kill_head()
        c.start_head()
        self.assertEqual(c.await_state(job, "RUNNING")["attempt"], 1)
        self.assertTrue(cluster.alive(pid))
        self.let_go("job")
        self.assertEqual(c.await_end(job)["state"], "SUCCEEDED")

    def test_bad_directories_and_commands(self):
        c = self.cluster()
        backup = self.backup(c, "backup")
        self.assert_fails(c.run("head", "backup", backup), 125,
                          "is there already", backup)
        self.assert_fails(c.run("head", "backup", "/nowhere/b"), 2,
                          "/nowhere")
        self.assert_fails(c.run("head", "backup"), 2, "DIR")
        self.assert_fails(c.run("head", "backup", ""), 2, "DIR is empty")
        link = self.sandbox.dir / "link"
        link.symlink_to(self.sandbox.dir / "elsewhere")
        self.assert_fails(
            self.head_command("restore", backup, "--state-dir", link), 2,
            link, "symbolic link to", "name a new directory")
        self.assert_fails(
            self.head_command("restore", backup, "--state-dir", ""), 2,
            "--state-dir")
        self.assert_fails(
            self.head_command("restore", "", "--state-dir", "new"), 2, "DIR")
        self.assert_fails(c.run("adopt", "x"), 125, "cohort status")
        self.assert_fails(c.run("end", 32 * "a"), 125, "is not an orphan")
        head = self.sandbox.dir / "head"
        self.assert_fails(self.head_command("inspect", "--state-dir", head),
                          125, "cohort-head", head)
        self.assert_fails(
            self.head_command("restore", backup, "--state-dir", head), 2,
            "is not empty", head)
        self.assert_fails(
            self.head_command("restore", head, "--state-dir", "new"), 2,
            "is not a backup")
        self.assert_fails(self.head_command("--state-dir", backup), 2,
                          "is a backup")
        self.assert_fails(
            self.head_command("inspect", "--state-dir", backup, "x"), 2,
            "there are cluster, nodes")
        damaged = next(backup.glob("store/MANIFEST*"))
        damaged.write_bytes(damaged.read_bytes()[:-1])
        self.assert_fails(
            self.head_command("restore", backup, "--state-dir", "new"), 125,
            damaged.name, "nothing was restored")
        self.assertFalse((self.sandbox.dir / "new").exists())

    def test_a_log_cut_between_records_is_refused_until_it_is_whole(self):
        c = self.cluster("--num-cpus", "2")
        running, pid = self.begin(c, "running")
        c.submit("--", "true")
        c.kill_head()  # kill -9
        head = self.sandbox.dir / "head"
        log = max(head.glob("store/*.log"))
        whole = log.read_bytes()
        # A store without its last batch says of itself that it is whole.
        log.write_bytes(b"")
        before = self.files(head)
        for _ in range(2):
            done = self.head_command("--state-dir", head, "--address",
                                     "127.0.0.1:0")
            self.assert_fails(done, 125, log.name, "cut short", head / "store",
                              "cohort head restore")
            self.assertEqual(self.files(head), before)
        log.write_bytes(whole)
        c.start_head("head")
        self.assertEqual(c.await_state(running, "RUNNING")["attempt"], 1)
        self.assertTrue(cluster.alive(pid))
        self.let_go("running")
        self.assertEqual(c.await_end(running)["state"], "SUCCEEDED")

    def test_a_lost_credential_is_not_replaced_unasked(self):
        c = self.cluster()
        c.kill_head()
        head = self.sandbox.dir / "head"
        credential = head / "credential"
        secret = credential.read_bytes()
        credential.unlink()
        command = ("--state-dir", head, "--address", "127.0.0.1:0")
        self.assert_fails(self.head_command(*command), 125, credential,
                          "--new-credential")
        self.assertFalse(credential.exists())
        credential.write_bytes(secret)
        credential.chmod(0o600)
        c.start_head("head")
        self.assertEqual(c.await_end(c.submit("--", "true"))["state"],
                         "SUCCEEDED")

    @staticmethod
    def files(directory):
        """All bytes below it, but for the lock's."""
        return {path: path.read_bytes() for path in directory.rglob("*")
                if path.is_file() and path.name != "LOCK"}

    def test_inspect_prints_records_and_changes_nothing(self):
        c = self.cluster()
        job = c.submit("--", "true")
        c.await_end(job)
        c.kill_head()
        head = self.sandbox.dir / "head"
        copy = self.sandbox.dir / "copy"
        shutil.copytree(head, copy)
        done = self.head_command("inspect", "--state-dir", head, "jobs",
                                 "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        record = json.loads(done.stdout)
        self.assertEqual((record["table"], record["key"]), ("jobs", job))
        self.assertEqual(record["record"]["state"], "SUCCEEDED")
        done = self.head_command("inspect", "--state-dir", head)
        self.assertIn(f"jobs {job}\n  job_id: {job}\n", done.stdout)
        same = subprocess.run(["diff", "-r", head, copy], check=False)
        self.assertEqual(same.returncode, 0)

    def test_check_counts_a_whole_store_and_names_damage(self):
        c = self.cluster()
        head = self.sandbox.dir / "head"
        self.assert_fails(self.head_command("check", "--state-dir", head),
                          125, "cohort-head", head)
        backup = self.backup(c, "backup")
        c.await_end(c.submit("--", "true"))
        c.kill_head()
        before = self.files(head)
        done = self.head_command("check", "--state-dir", head)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^whole: \d+ rows \(cluster 1, nodes 1,"
                                      r" jobs 1, .*\), term 1, change \d+\n$")
        done = self.head_command("check", "--state-dir", backup, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(report["rows"]["jobs"], 0)
        self.assertTrue(report["has_mark"])
        self.assertEqual(self.files(head), before)
        log = max(head.glob("store/*.log"))
        damaged = bytearray(before[log])
        damaged[len(damaged) // 2] ^= 1
        log.write_bytes(damaged)
        done = self.head_command("check", "--state-dir", head)
        self.assert_fails(done, 125, log, "cohort head restore")
        self.assertEqual(done.stdout, "")

    def test_a_full_disk_leaves_nothing(self):
        small = self.sandbox.tmpfs("small", "16m")
        if small is None:
            self.skipTest("may not mount")
        c = self.cluster()
        self.assert_fails(c.run("head", "backup", small / "b"), 125,
                          "no room", small)
        self.assertEqual(list(small.iterdir()), [])
        job = c.submit("--", "true")
        self.assertEqual(c.await_end(job)["state"], "SUCCEEDED")


    def test_a_backup_on_the_heads_own_full_disk_ends_soon(self):
        small = self.sandbox.tmpfs("head", "64m")
        if small is None:
            self.skipTest("may not mount")
        c = cluster.Cluster(self.sandbox)
        c.head_flags = ("--volatile",)
        c.start_head()
        fill = small / "fill"
        with fill.open("wb") as out:
            try:
                while True:
                    out.write(bytes(1 << 20))
            except OSError:
                pass
        target = self.sandbox.dir / "backup"
        done = c.run("head", "backup", target, timeout=20)
        self.assert_fails(done, 125, "full", small)
        self.assertEqual(list(self.sandbox.dir.glob("backup*")), [])
        self.assertFalse((small / "backup.tmp").exists())
        fill.unlink()
        self.assertEqual(c.run("head", "backup", target).returncode, 0)

    def test_a_log_whose_bytes_stand_twice_is_refused(self):
        c = self.cluster()
        c.await_end(c.submit("--", "true"))
        c.kill_head()
        head = self.sandbox.dir / "head"
        log = max((head / "store").glob("*.log"))
        log.write_bytes(2 * log.read_bytes())
        before = self.files(head)
        for command in (("inspect", "--state-dir", head),
                        ("--state-dir", head, "--address", "127.0.0.1:0")):
            self.assert_fails(self.head_command(*command), 125, log,
                              "cohort head restore")
        self.assertEqual(self.files(head), before)


if __name__ == "__main__":
    cluster.main()
