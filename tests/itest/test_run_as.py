"""--run-as: ranks of two users, as two users of the machine, keep out of each other's."""

import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import unittest
from unittest import mock

import cluster
import driver as told

# Of no user database: so this test makes no users.
ANN = 71_001
BOB = 71_002
PYTHON = "/usr/bin/python3"

# A rank of ann's: what she has that is nobody else's.
OURS = """
import os, socket, sys
here = os.path.dirname(os.environ["COHORT_CREDENTIAL_FILE"])
door = socket.socket(socket.AF_UNIX)
door.bind(here + "/door")
door.listen()
open("private.txt", "w").write("ann's")
open(os.environ["COHORT_STORAGE_DIR"] + "/out.txt", "w").write("ann's")
open("/dev/stderr", "w").write("said\\n")
print(os.getuid(), os.geteuid(), os.getgid(), os.getgroups(),
      os.environ["HOME"], os.environ["USER"], flush=True)
door.accept()
"""

# A rank of bob's: tries what he is told, and says what came of each.
THEIRS = """
import json, os, signal, socket, sys
def outcome(what, path):
    try:
        if what == "read":
            open(path, "rb").read()
        elif what == "write":
            open(path, "ab").write(b"x")
        elif what == "list":
            os.listdir(path)
        elif what == "connect":
            socket.socket(socket.AF_UNIX).connect(path)
        elif what == "packets":
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect(path)
        elif what == "kill":
            os.kill(int(path), signal.SIGTERM)
    except OSError as error:
        return type(error).__name__
    return "done"
tries = json.load(open("tries.json"))
print(json.dumps([outcome(*each) for each in tries]), flush=True)
"""


def status_of(pid):
    """/proc/PID/status as a dictionary."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.split() for key, _, value in
            (line.partition(":") for line in lines)}


@unittest.skipUnless(os.geteuid() == 0, "needs root to run ranks as others")
class RunAs(cluster.ClusterTest):

    def setUp(self):
        super().setUp()
        self.sandbox.dir.chmod(0o711)
        # The tree, and the tests' PATH in it, may be where others may not go.
        self.enterContext(mock.patch.dict(
            os.environ, PATH="/usr/local/bin:/usr/bin:/bin"))
        self.c = cluster.Cluster(self.sandbox)
        self.c.start_head()
        self.ann, self.bob, self.carl = (
            self.user(name) for name in ("ann", "bob", "carl"))

    def user(self, name):
        file = self.sandbox.dir / name
        done = self.c.run("user", "add", name, "--role", "submit", "--file",
                          file)
        self.assertEqual(done.returncode, 0, done.stderr)
        return cluster.Client(self.c.address, file)

    def start_worker(self):
        self.c.start_worker("w0", "--num-cpus", "4", "--run-as", f"ann={ANN}",
                            "--run-as", f"bob={BOB}")

    def running(self, client, *submit):
        job = client.submit(*submit)
        client.await_state(job, "RUNNING")
        return job, cluster.until("its rank", lambda: self.c.rank_pids(job))[0]

    def test_pipes_in_the_place_of_files_hold_nobody_up(self):
        self.start_worker()
        job = self.ann.submit(
            "--max-failures", "1", "--", "sh", "-c",
            'mkfifo "$TORCHELASTIC_ERROR_FILE" "$COHORT_CREDENTIAL_FILE.new"; '
            'cd "$COHORT_STORAGE_DIR/.." && rm -f .generation && '
            'mkfifo .generation; exit 3')
        self.assertEqual(self.ann.await_end(job)["state"], "FAILED")
        other = self.bob.submit("--", "true")
        self.assertEqual(self.bob.await_end(other)["state"], "SUCCEEDED")

    def test_what_a_job_puts_in_the_way_stops_no_rotation(self):
        self.start_worker()
        job, _ = self.running(
            self.ann, "--", "sh", "-c",
            'rm "$COHORT_CREDENTIAL_FILE"; mkdir "$COHORT_CREDENTIAL_FILE"; '
            'echo made; exec sleep 1000')
        cluster.until("it is in the way", lambda: self.ann.logs(job))
        self.assertEqual(self.c.run("authority", "rotate").returncode, 0)
        for client in (self.ann, self.bob):
            self.assertEqual(client.run("status").returncode, 0)
        cluster.until("the node has the next authority", lambda: self.c.run(
            "authority", "finish").returncode == 0)
        other = self.bob.submit("--", "true")
        self.assertEqual(self.bob.await_end(other)["state"], "SUCCEEDED")
        self.ann.run("jobs", "stop", job)
        self.assertEqual(self.ann.await_end(job)["state"], "STOPPED")

    def test_a_rank_is_its_users_and_out_of_anothers_reach(self):
        self.start_worker()
        job, pid = self.running(self.ann, "--file",
                                self.file("ours.py", OURS), "--", PYTHON,
                                "ours.py")
        cluster.until("it has said who it is", lambda: self.ann.logs(job))
        self.assertEqual(self.ann.logs(job).strip(),
                         f"{ANN} {ANN} {ANN} [{ANN}] / {ANN}")
        self.assertEqual(self.ann.logs(job, "--stderr").strip(), "said")
        status = status_of(pid)
        self.assertEqual(status["Uid"], [str(ANN)] * 4)
        self.assertEqual(status["NoNewPrivs"], ["1"])
        self.assertEqual([status[each] for each in
                          ("CapPrm", "CapEff", "CapAmb")], [["0" * 16]] * 3)
        # The keeper is still the daemon's.
        self.assertEqual(status_of(cluster.parent(pid))["Uid"], ["0"] * 4)

        environment = cluster.environment_of(pid)
        credential = pathlib.Path(environment["COHORT_CREDENTIAL_FILE"])
        work = pathlib.Path(os.readlink(f"/proc/{pid}/cwd"))
        storage = pathlib.Path(environment["COHORT_STORAGE_DIR"])
        node = self.sandbox.dir / "w0"
        control = list(credential.parents[1].glob("k-*/control"))
        self.assertEqual(len(control), 1)
        for path in (work, work / "private.txt", work / "ours.py", storage,
                     storage.parent, credential.parent, credential):
            info = path.stat()
            self.assertEqual((info.st_uid, stat.S_IMODE(info.st_mode) & 0o077
                              if path.is_dir() or path == credential else 0),
                             (ANN, 0), path)
        tries = [("read", work / "private.txt"), ("read", work / "ours.py"),
                 ("write", work / "private.txt"), ("list", work),
                 ("read", storage / "out.txt"), ("list", storage),
                 ("list", credential.parent), ("read", credential),
                 ("write", credential.parent / "arena"),
                 ("connect", credential.parent / "door"),
                 ("packets", control[0]),
                 ("read", f"/proc/{pid}/environ"), ("read", f"/proc/{pid}/mem"),
                 ("read", f"/proc/{pid}/fd/1"), ("kill", pid),
                 ("kill", cluster.parent(pid)),
                 ("read", self.sandbox.dir / "head/credential"),
                 ("read", node / "node_id"), ("list", node / "logs"),
                 ("list", node / "packages"), ("list", node / "journal"),
                 ("list", node / "work"), ("list", node / "results"),
                 ("list", credential.parents[1])]
        paths = [(what, str(path)) for what, path in tries]
        theirs = self.bob.submit(
            "--file", self.file("theirs.py", THEIRS), "--file",
            self.file("tries.json", json.dumps(paths)), "--", PYTHON,
            "theirs.py")
        self.assertEqual(self.bob.await_end(theirs)["state"], "SUCCEEDED",
                         self.bob.logs(theirs, "--stderr"))
        got = json.loads(self.bob.logs(theirs))
        self.assertEqual([(each, how) for each, how in zip(paths, got)
                          if how != "PermissionError"], [])

        # People still get at what is theirs, and end it.
        self.assertEqual(self.ann.run("stack", job).returncode, 0)
        files = [each["path"] for each in
                 self.ann.json("jobs", "files", job)["files"]]
        self.assertIn("out.txt", files)
        self.assertIn("work-1/w0/private.txt", files)
        done = self.ann.run("jobs", "stop", job)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.ann.await_end(job)
        cluster.until("it has ended", lambda: not cluster.alive(pid))
        cluster.until("its places are gone", lambda: not (
            credential.parent.exists() or work.exists()))
        to = self.sandbox.dir / "got"
        done = self.ann.run("jobs", "get-files", job, to)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((to / "work-1/w0/private.txt").read_text(), "ann's")
        self.assertEqual((to / "out.txt").read_text(), "ann's")

    def test_links_that_a_user_lays_lead_the_daemon_nowhere(self):
        self.start_worker()
        secret = self.file("secret", "root's", mode=0o600)
        job = self.ann.submit(
            "--max-failures", "0", "--", "sh", "-c",
            f'ln -s {secret} "$TORCHELASTIC_ERROR_FILE"; '
            f'ln -s {secret} "$COHORT_STORAGE_DIR/link"; ln -s {secret} link; '
            f'ln -s {self.sandbox.dir} "$COHORT_STORAGE_DIR/work-1"; '
            'echo mine > left; exit 3')
        ended = self.ann.await_end(job)
        self.assertEqual(ended["state"], "FAILED")
        self.assertNotIn("root's", json.dumps(ended))
        done = self.ann.run("jobs", "get-files", job, self.sandbox.dir / "got")
        for path in (self.sandbox.dir / "got").rglob("*"):
            self.assertFalse(path.is_file() and not path.is_symlink()
                             and "root's" in path.read_text(), done.stderr)
        self.assertEqual(list(self.sandbox.dir.glob("w0/left")), [])
        self.assertEqual((self.sandbox.dir / "w0").stat().st_uid, 0)

    def test_a_tool_that_a_user_brings_does_not_run_as_the_daemon(self):
        self.start_worker()
        tool = self.file("py-spy", "#!/bin/sh\nid -u > /proc/$PPID/cwd/x\n"
                                   "echo it ran as $(id -u)\n", 0o755)
        job, _ = self.running(
            self.ann, "--file", tool, "--", "sh", "-c",
            f'PATH="$PWD:$PATH" exec {PYTHON} -c "import time; '
            'time.sleep(300)"')
        cluster.until("it is Python", lambda: "eu-stack" in
                      self.ann.run("stack", job).stdout)
        self.assertNotIn("it ran as", self.ann.run("stack", job).stdout)

    def test_attempts_go_on_with_what_they_left(self):
        self.start_worker()
        job = self.ann.submit(
            "--keep-work", "--max-failures", "1", "--retry-delay", "0s",
            "--file", self.file("run.sh", "#!/bin/sh\nexit 1\n", 0o755), "--",
            "sh", "-c", "test -e once && exec id -u; echo > once; ./run.sh")
        ended = self.ann.await_end(job)
        self.assertEqual((ended["state"], ended["attempt"]), ("SUCCEEDED", 2))
        self.assertEqual(self.ann.logs(job, "--attempt", "2").strip(), str(ANN))

    def test_a_gang_meets_in_shared_memory(self):
        self.start_worker()
        program = shutil.copy(cluster.BIN / "all-reduce", self.sandbox.dir)
        job = self.ann.submit("--num-workers", "2", "--", program, "--runs", "3",
                              "--max-bytes", "65536")
        ended = self.ann.await_end(job)
        self.assertEqual(ended["state"], "SUCCEEDED",
                         self.ann.logs(job, "--stderr"))

    def test_a_daemon_that_was_killed_takes_its_ranks_over(self):
        self.start_worker()
        job, pid = self.running(self.ann, "--", "sh", "-c",
                                "setsid sleep 300 & exec sleep 300")
        self.c.kill_worker("w0")
        self.c.start_worker("w0")
        self.assertEqual(self.c.rank_pids(job), {0: pid})
        self.assertEqual(self.ann.run("jobs", "stop", job).returncode, 0)
        self.assertEqual(self.ann.await_end(job)["state"], "STOPPED")
        cluster.until("all of it has ended", lambda: not [
            each for each in cluster.descendants()
            if status_of(each)["Uid"][0] == str(ANN)])

    def test_actors_of_a_rank_are_its_users(self):
        self.start_worker()
        program = cluster.BIN.parent / "tests/actor-program"
        own = told.Driver(self, program, self.ann.environment(), None)
        self.assertRegex(own.ask("create", "a", 5, 0, 0), "^ok")
        cluster.until("an actor of hers runs", lambda: [
            each for each in cluster.descendants()
            if cluster.program_of(each) == "actor-program"
            and status_of(each)["Uid"] == [str(ANN)] * 4])
        own.process.send_signal(signal.SIGKILL)

    def test_who_has_no_account_here_is_told_so(self):
        self.start_worker()
        job = self.carl.submit("--max-failures", "0", "--", "true")
        ended = self.carl.await_end(job)
        self.assertEqual(ended["state"], "FAILED")
        self.assertIn("--run-as carl=ACCOUNT", json.dumps(ended))
        self.assertEqual(self.ann.run("submit", "--wait", "--",
                                      "true").returncode, 0)

    def test_only_roots_worker_runs_ranks_as_others(self):
        done = subprocess.run(
            ["setpriv", f"--reuid={ANN}", "--clear-groups",
             cluster.BIN / "cohort-worker", "--address", self.c.address,
             "--state-dir", self.sandbox.dir / "none", "--run-as",
             f"ann={ANN}"], capture_output=True, text=True, check=False,
            timeout=60)
        self.assert_fails(done, 2, "--run-as", str(ANN), "root")
        for entry, word in (("ann=root", "root"), ("ann", "WHO=ACCOUNT"),
                            ("ann=nobody-here", "no user nobody-here")):
            done = subprocess.run(
                [cluster.BIN / "cohort-worker", "--address", self.c.address,
                 "--state-dir", self.sandbox.dir / "none", "--run-as", entry],
                capture_output=True, text=True, check=False, timeout=60)
            self.assert_fails(done, 2, "--run-as", word)


if __name__ == "__main__":
    cluster.main()
