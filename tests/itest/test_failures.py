"""How a job fails, is told about, is limited and starts again."""

import json
import os
import pathlib
import shutil
import signal
import sys
import time

import cluster

TAIL = 64 << 10

# Writes COUNT numbered lines to stderr, then does as it is told.
NOISY = """
import os, signal, sys
count, end = int(sys.argv[1]), sys.argv[2]
with open(2, "wb", buffering=1 << 20, closefd=False) as out:
    for i in range(count):
        out.write(b"%09d a line of stderr\\n" % i)
if end.startswith("signal"):
    os.kill(os.getpid(), int(end[6:]))
sys.exit(int(end))
"""


class Failures(cluster.ClusterTest):

    def ends(self, c, job):
        ended = c.await_end(job)
        self.assertEqual(ended["state"], "FAILED", ended)
        return ended

    def last_words(self, c, job):
        """Of a node that was away; they follow the state."""
        return cluster.until("its last words are there",
                             lambda: c.job(job)["stderr_tail"])

    def test_class_causes_and_stderr_outlive_the_node(self):
        c = self.cluster("--num-cpus", "1", workers=2, node_timeout="2s")
        script = self.file("noisy.py", NOISY)
        # More than one segment of its log, so that the tail crosses one.
        count = (16 << 20) // 27 + 1_000
        job = c.submit(
            "--num-workers", "2", "--strategy", "STRICT_SPREAD", "--", "sh",
            "-c", f'test $RANK = 0 && exec sleep 600; '
            f'exec {sys.executable} {script} {count} signal11')
        ended = self.ends(c, job)
        node = next(rank["node"] for rank in ended["ranks"]
                    if rank["rank"] == 1)
        name = next(each["name"] for each in c.json("nodes")
                    if node in (each["id"], each["name"]))
        c.kill_worker(name)
        shutil.rmtree(self.sandbox.dir / name / "logs")
        cluster.until("the node is dead", lambda: [
            each for each in c.json("nodes")
            if each["name"] == name and each["state"] == "DEAD"])
        c.kill_head()
        c.start_head()
        told = c.job(job)
        self.assertEqual(told["class"], "user")
        self.assertEqual(told["failures_by_class"], {"user": 1})
        self.assertEqual(told["signal"], 11)
        self.assertEqual(told["causes"][:2], [
            f"rank 1 on {name} was killed by signal 11",
            "attempt 1 ended; 1 sibling was stopped"])
        self.assertEqual(len(told["stderr_tail"]), TAIL)
        self.assertTrue(told["stderr_tail"].endswith(
            f"{count - 1:09d} a line of stderr\n"))
        lines = told["stderr_tail"].splitlines()
        first = int(lines[1].split()[0])
        self.assertEqual(
            lines[1:],
            [f"{i:09d} a line of stderr" for i in range(first, count)])

    def test_a_lost_package_is_not_the_users_failure(self):
        c = self.cluster()
        packages = self.sandbox.dir / "head/packages"
        for number, spoil in enumerate((pathlib.Path.unlink,
                                        lambda path: path.write_bytes(b"x"))):
            self.file(f"tree{number}/run", f"#!/bin/sh\nexit {number}\n",
                      0o755)
            tree = self.sandbox.dir / f"tree{number}"
            before = set(packages.iterdir())
            job = c.submit("--hold", "--max-failures", "5", "--working-dir",
                           tree, "--", "./run")
            [package] = set(packages.iterdir()) - before
            spoil(package)
            self.assertEqual(c.run("jobs", "release", job).returncode, 0)
            told = self.ends(c, job)
            self.assertEqual(told["class"], "infra")
            self.assertEqual(told["failures_by_class"], {"infra": 1})
            self.assertEqual(told["failures"], 0)
            self.assertEqual(told["attempt"], 1)
            for text in (told["reason"], told["causes"][0]):
                self.assertIn(package.name, text)
                self.assertIn("submit the job again", text)
            events = map(json.loads,
                         c.run("events", "--json").stdout.splitlines())
            lost = [event["text"] for event in events
                    if event["kind"] == "package_lost"]
            self.assertEqual(len(lost), number + 1)
            self.assertIn(package.name, lost[-1])
            # The fix that it names.
            again = c.submit("--working-dir", tree, "--", "./run")
            self.assertEqual(c.await_end(again)["exit_code"], number)

    def test_a_program_that_is_written_a_moment_longer_runs(self):
        c = self.cluster()
        program = self.sandbox.dir / "program"
        shutil.copy("/bin/true", program)
        with open(program, "r+b"):
            job = c.submit("--", str(program))
            cluster.until("it is to begin", c.keepers)
        self.assertEqual(c.await_end(job)["state"], "SUCCEEDED")

    def test_stderr_of_a_rank_that_ended_without_a_daemon(self):
        c = self.cluster()
        gate = self.sandbox.dir / "gate"
        os.mkfifo(gate)
        job = c.submit("--", "sh", "-c",
                       f"echo started >&2; read x < {gate}; "
                       "echo the last words >&2; exit 3")
        c.await_state(job, "RUNNING")
        c.kill_worker("w0")
        with open(gate, "w", encoding="ascii") as out:
            out.write("go\n")
        cluster.until("it ended", lambda: not c.keepers())
        c.start_worker("w0")
        ended = self.ends(c, job)
        self.assertEqual(ended["class"], "user")
        self.assertEqual(ended["exit_code"], 3)
        self.assertEqual(self.last_words(c, job), "started\nthe last words\n")

    def test_the_time_limit_needs_no_head_and_no_daemon(self):
        c = self.cluster()
        job = c.submit("--time-limit", "4s", "--max-failures", "5", "--", "sh",
                       "-c", "echo working >&2; exec sleep 600")
        c.await_state(job, "RUNNING")
        pid = c.rank_pids(job)[0]
        c.kill_head()
        c.kill_worker("w0")
        cluster.until("it ended", lambda: not cluster.alive(pid))
        c.start_head()
        c.start_worker("w0")
        ended = self.ends(c, job)
        self.assertEqual(ended["class"], "timeout")
        self.assertEqual(ended["reason"], "exceeded its --time-limit of 4s")
        self.assertEqual(ended["signal"], signal.SIGTERM)
        self.assertEqual(ended["attempt"], 1)
        self.assertEqual(ended["failures"], 0)
        self.assertEqual(ended["failures_by_class"], {"timeout": 1})
        self.assertEqual(self.last_words(c, job), "working\n")

    def test_the_time_limit_is_of_all_attempts(self):
        c = self.cluster()
        third = self.sandbox.dir / "third"
        job = c.submit("--time-limit", "8s", "--max-failures", "9",
                       "--retry-delay", "0s", "--", "sh", "-c",
                       f"test $COHORT_ATTEMPT = 3 && touch {third} && "
                       "exec sleep 600; sleep 1.5; exit 3")
        ended = self.ends(c, job)
        # What the first two left of it: 5 s, or less on a busy machine.
        self.assertLess(time.time() - third.stat().st_mtime, 7.9)
        self.assertEqual(ended["class"], "timeout")
        self.assertEqual(ended["failures_by_class"],
                         {"user": 2, "timeout": 1})
        self.assertEqual(ended["attempt"], 3)

    def test_who_ends_before_the_limit_is_no_timeout(self):
        c = self.cluster()
        job = c.submit("--time-limit", "30s", "--", "true")
        self.assertEqual(c.await_end(job)["state"], "SUCCEEDED")

    def test_starts_again_after_a_back_off(self):
        c = self.cluster()
        starts = self.sandbox.dir / "starts"
        job = c.submit("--max-failures", "2", "--retry-delay", "1s", "--",
                       "sh", "-c", f"date +%s.%N >>{starts}; exit 3")
        cluster.until("it backs off", lambda: "attempt 2 starts in" in
                      (c.job(job)["reason"] or ""))
        ended = self.ends(c, job)
        self.assertEqual(ended["failures_by_class"], {"user": 3})
        times = [float(line) for line in starts.read_text().split()]
        self.assertEqual(len(times), 3)
        self.assertGreaterEqual(times[1] - times[0], 1)
        self.assertGreaterEqual(times[2] - times[1], 2)

    def test_tells_of_the_last_failure_while_it_runs_again(self):
        c = self.cluster()
        job = c.submit("--max-failures", "1", "--retry-delay", "0s", "--",
                       "sh", "-c", "test $COHORT_ATTEMPT = 2 && "
                       "exec sleep 600; echo oops >&2; exit 3")
        cluster.until("it runs again", lambda: (
            lambda now: now["state"] == "RUNNING" and now["attempt"] == 2)(
                c.job(job)))
        now = c.job(job)
        self.assertEqual(now["class"], "user")
        self.assertEqual(now["stderr_tail"], "oops\n")
        self.assertEqual(now["causes"][0],
                         "rank 0 on w0 exited with code 3")

    def test_a_lost_node_is_the_cause_whoever_reports_first(self):
        c = self.cluster("--num-cpus", "1", workers=2, node_timeout="2s")
        job = c.submit("--num-workers", "2", "--strategy", "STRICT_SPREAD",
                       "--", "sleep", "600")
        c.await_state(job, "RUNNING")
        ranks = {rank["rank"]: rank for rank in c.job(job)["ranks"]}
        for pid in c.keepers():
            if cluster.parent(ranks[1]["pid"]) == pid:
                os.kill(pid, signal.SIGKILL)
        again = cluster.until("it starts again", lambda: (
            lambda now: now if now["attempt"] == 2 else None)(c.job(job)))
        self.assertEqual(again["class"], "infra")
        self.assertEqual(again["failures"], 0)
        self.assertEqual(again["failures_by_class"], {"infra": 1})
        self.assertIn("was lost", again["causes"][1])

    def leave_without_a_head(self, node_timeout):
        """A worker that ended its ranks while no head was there to hear it;
        gives the cluster, whose head is back, and the job."""
        c = self.cluster("--num-cpus", "1", "--end-ranks",
                         node_timeout=node_timeout)
        job = c.submit("--max-failures", "0", "--", "sleep", "1000")
        c.await_state(job, "RUNNING")
        rank = cluster.until("its rank runs", lambda: c.rank_pids(job).get(0))
        c.kill_head()
        c.workers["w0"].terminate()
        self.assertEqual(c.workers["w0"].wait(cluster.DEADLINE), 0)
        self.assertFalse(cluster.alive(rank))
        self.assertIn("ends_not_recorded",
                      (self.sandbox.dir / "w0.log").read_text())
        c.start_head()
        return c, job

    def test_who_left_while_the_head_was_away_and_is_back_is_no_failure(self):
        c, job = self.leave_without_a_head("60s")
        self.assertEqual(c.job(job)["attempt"], 1)
        c.start_worker("w0")
        now = cluster.until("it runs again", lambda: (
            c.job(job)["attempt"] == 2 and c.job(job)["state"] == "RUNNING" and
            c.job(job)))
        self.assertEqual((now["failures"], now["failures_by_class"]), (0, {}))

    def test_who_left_while_the_head_was_away_and_stays_is_lost(self):
        c, job = self.leave_without_a_head("1s")
        now = cluster.until("its node is given up", lambda: (
            c.job(job)["state"] == "PENDING" and c.job(job)))
        self.assertEqual(now["failures_by_class"], {"infra": 1})
        # What the next daemon tells comes too late to change that.
        c.start_worker("w0")
        now = cluster.until("it runs again", lambda: (
            c.job(job)["state"] == "RUNNING" and c.job(job)))
        self.assertEqual((now["attempt"], now["failures"],
                          now["failures_by_class"]), (2, 0, {"infra": 1}))

    def test_a_stop_has_the_jobs_grace(self):
        c = self.cluster()
        job = c.submit("--grace", "0s", "--", "sh", "-c",
                       "trap 'echo asked' TERM; echo ready; "
                       "while :; do sleep 1; done")
        cluster.until("it traps", lambda: "ready" in c.logs(job))
        self.assertEqual(c.run("jobs", "stop", job).returncode, 0)
        self.assertEqual(c.run("jobs", "wait", job).returncode, 130)
        self.assertNotIn("asked", c.logs(job))

    def saves(self, name):
        """A child that saves its work at SIGTERM, once the gate opens, of a
        shell that does not wait for it; and the gate's opening."""
        gate, never = (self.sandbox.dir / f"{name}.{fifo}"
                       for fifo in ("gate", "never"))
        os.mkfifo(gate)
        os.mkfifo(never)

        def open_gate():
            try:
                os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
            except OSError:
                return False  # nobody waits there
            return True
        return (f"(trap 'read x <{gate}; echo saved; exit' TERM; echo ready; "
                f"read x <{never}) & exec sleep 600", open_gate)

    def test_a_stop_has_the_grace_for_the_whole_process_group(self):
        c = self.cluster()
        script, open_gate = self.saves("stopped")
        job = c.submit("--grace", "60s", "--", "sh", "-c", script)
        cluster.until("it traps", lambda: "ready" in c.logs(job))
        self.assertEqual(c.run("jobs", "stop", job).returncode, 0)
        cluster.until("what leads the group has ended", lambda: (
            c.job(job)["ranks"][0]["state"] == "EXITED"))
        cluster.until("the rest waits at the gate", open_gate)
        self.assertEqual(c.await_end(job)["state"], "STOPPED")
        self.assertIn("saved", c.logs(job))

    def test_the_siblings_of_a_failed_rank_have_the_grace(self):
        c = self.cluster()
        script, open_gate = self.saves("sibling")
        fails = self.sandbox.dir / "fails"
        os.mkfifo(fails)
        job = c.submit("--num-workers", "2", "--grace", "60s", "--", "sh", "-c",
                       f"test $RANK = 0 || {{ read x <{fails}; exit 3; }}; "
                       + script)
        cluster.until("it traps", lambda: "ready" in c.logs(job))
        fails.write_text("now\n")
        cluster.until("the sibling waits at the gate", open_gate)
        ended = self.ends(c, job)
        self.assertIn("rank 1 exited with code 3", ended["reason"])
        self.assertIn("saved", c.logs(job))


if __name__ == "__main__":
    cluster.main()
