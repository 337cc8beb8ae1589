"""What `cohort logs` and `submit -f` show of the output of ranks, and when."""

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios

import cluster

# Does each of its arguments in turn, once the keeper has read all output so far:
# "o:TEXT" and "e:TEXT" write to stdout and stderr, "w:FILE" waits for a file.
STEPS = r"""
import fcntl, os, struct, sys, termios, time
def unread(stream):
    return fcntl.ioctl(stream, termios.FIONREAD, bytes(4)) != bytes(4)
for step in sys.argv[1:]:
    kind, _, text = step.partition(":")
    text = text.encode().decode("unicode_escape").encode()
    if kind == "w":
        while not os.path.exists(text):
            time.sleep(0.01)
    else:
        stream = 1 if kind == "o" else 2
        os.write(stream, text)
        while unread(stream):
            time.sleep(0.002)
        time.sleep(0.002)  # times are shown in milliseconds
"""


class LogViews(cluster.ClusterTest):

    def steps(self, *steps):
        script = self.file("steps.py", STEPS)
        return [sys.executable, script, *steps]

    def until_read(self, stream, text, gathered=b""):
        """What came from `stream`, a descriptor, up to `text`."""
        while text not in gathered:
            more = os.read(stream, 1 << 16)
            self.assertTrue(more, f"{gathered!r} ended without {text!r}")
            gathered += more
        return gathered

    def on_terminal(self, c, columns, *args):
        """The command's process and its terminal's other end."""
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ,
                    struct.pack("HHHH", 24, columns, 0, 0))
        environment = {name: value for name, value in c.environment().items()
                       if name != "COLUMNS"}
        process = subprocess.Popen(
            [str(cluster.BIN / "cohort"), *(str(arg) for arg in args)],
            stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        os.close(theirs)
        return process, ours

    def test_both_streams_in_the_order_in_which_lines_were_ended(self):
        c = self.cluster()
        job = c.submit("--", *self.steps("o:1\\n", "e:2\\n", "o:4", "e:3\\n",
                                         "o:\\n", "e:5\\n"))
        c.await_end(job)
        self.assertEqual(c.run("logs", job).stdout, "1\n2\n3\n4\n5\n")
        self.assertEqual(c.run("logs", job, "--stderr").stdout, "2\n3\n5\n")
        times = [json.loads(line)["time"]
                 for line in c.run("logs", job, "--json").stdout.splitlines()]
        self.assertEqual(len(set(times)), 5, "of their beginnings")

    def test_tail_since_ranks_and_timestamps(self):
        c = self.cluster()
        job = c.submit("--num-workers", "3", "--cpus", "0.5", "--",
                       *self.steps(*(f"{stream}:{stream}{i}\\n"
                                     for i in (1, 2, 3) for stream in "oe")))
        c.await_end(job)
        tail = c.run("logs", job, "--tail", "3", "--rank", "0,2").stdout
        for rank in "02":
            self.assertEqual(
                [line for line in tail.splitlines() if line[1] == rank],
                [f"[{rank}] {text}" for text in ("e2", "o3", "e3")])
        self.assertNotIn("[1]", tail)
        self.assertEqual(
            c.run("logs", job, "--rank", "1", "--tail", "1", "--stdout").stdout,
            "[1] o3\n")
        self.assertEqual(c.run("logs", job, "--tail", "0").stdout, "")
        timed = c.run("logs", job, "--rank", "1", "--timestamps").stdout
        lines = timed.splitlines()
        self.assertEqual(len(lines), 6)
        for line in lines:
            self.assertRegex(line, r"^\[1\] \d{4}-\d\d-\d\dT[\d:.]+Z [oe]\d$")
        since = lines[3].split()[1]
        self.assertEqual(
            c.run("logs", job, "--rank", "1", "--since", since).stdout,
            "".join(f"[1] {text}\n" for text in ("e2", "o3", "e3")))
        self.assertEqual(
            len(c.run("logs", job, "--since", "1h").stdout.splitlines()), 18)

    def test_a_failed_gang_shows_first_who_failed_first(self):
        c = self.cluster("--num-cpus", "4")
        job = c.submit("--num-workers", "3", "--", "sh", "-c",
                       "echo begun $RANK; [ $RANK != 2 ] || { echo why >&2; "
                       "exit 3; }; sleep 600")
        c.await_end(job)
        done = c.run("logs", job)
        self.assertEqual(done.stderr, "last lines of rank 2, which failed "
                                      "first:\n  begun 2\n  why\n\n")
        self.assertEqual(
            set(done.stdout.splitlines()),
            {"[0] begun 0", "[1] begun 1", "[2] begun 2", "[2] why"})
        for flags in (("--rank", "0"), ("--stdout",), ("--json",)):
            self.assertEqual(c.run("logs", job, *flags).stderr, "")

    def test_tail_of_a_long_log_reads_its_end(self):
        c = self.cluster()
        job = c.submit("--", "seq", "3000000")
        c.await_end(job)
        self.assertEqual(c.run("logs", job, "--tail", "2").stdout,
                         "2999999\n3000000\n")
        many = c.run("logs", job, "--tail", "50000").stdout.splitlines()
        self.assertEqual((many[0], len(many)), ("2950001", 50_000))

    def test_follows_from_the_tail_on(self):
        c = self.cluster()
        gate = self.sandbox.dir / "gate"
        job = c.submit("--", *self.steps("o:1\\n2\\n", "e:3\\n", f"w:{gate}",
                                         "o:4\\n"))
        cluster.until("3 is there", lambda: "3" in c.run("logs", job).stdout)
        follower = c.popen("logs", job, "-f", "--tail", "2",
                           stdout=subprocess.PIPE)
        got = self.until_read(follower.stdout.fileno(), b"3\n")
        gate.touch()
        got += follower.communicate()[0]
        self.assertEqual(sorted(got.split()), [b"2", b"3", b"4"])

    def test_attempts_and_what_is_said_of_a_retry(self):
        c = self.cluster()
        done = c.run("submit", "--max-failures", "2", "-f", "--", "sh", "-c",
                     'echo "try $TORCHELASTIC_RESTART_COUNT"; '
                     'test $TORCHELASTIC_RESTART_COUNT = 1 || kill -9 $$')
        self.assertEqual(done.returncode, 0, done)
        self.assertRegex(done.stderr,
                         r"(?m)^cohort: attempt 1 failed: rank 0 on w0 was "
                         r"killed by signal 9; attempt 2 of 3( in [0-9.]+m?s)?$")
        job = done.stdout.splitlines()[0]
        self.assertEqual(done.stdout, f"{job}\ntry 0\ntry 1\n")
        self.assertEqual(c.run("logs", job).stdout, "try 1\n")
        self.assertEqual(c.run("logs", job, "--attempt", "1").stdout,
                         "try 0\n")
        self.assertEqual(c.run("logs", job, "--attempt", "all").stdout,
                         "try 0\ntry 1\n")
        self.assert_fails(c.run("logs", job, "--attempt", "3"), 125,
                          "no attempt 3")

    def test_a_progress_bar_is_seen_while_it_runs(self):
        c = self.cluster()
        gate = self.sandbox.dir / "gate"
        process, terminal = self.on_terminal(
            c, 20, "submit", "-f", "--",
            *self.steps("e:\\r 10%|###", "e:\\r 20%|" + "#" * 30,
                        f"w:{gate}", "o:a line\\n", "e:\\r100%|#####\\n"))
        got = self.until_read(terminal, b" 20%|###")
        gate.touch()
        got = self.until_read(terminal, b"SUCCEEDED", got)
        self.assertEqual(process.wait(), 0)
        self.assertNotIn(b"#" * 20, got, "it would wrap")
        self.assertIn(b"\r\033[Ka line\r\n", got)
        self.assertIn(b"100%|#####\r\n", got)

    def test_bars_of_several_ranks_are_lines_where_nobody_can_redraw(self):
        c = self.cluster()
        gate = self.sandbox.dir / "gate"
        follower = c.popen("submit", "--num-workers", "2", "-f", "--",
                           *self.steps("e:\\r 10%", "e:\\r 20%", f"w:{gate}",
                                       "e:\\r100%\\n"),
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        stderr = follower.stderr.fileno()
        got = self.until_read(stderr, b"[0]  20%")
        got = self.until_read(stderr, b"[1]  20%", got)
        gate.touch()
        got += follower.communicate()[1]
        lines = got.decode().splitlines()
        for rank in "01":
            self.assertIn(f"[{rank}] 100%", lines)
        for line in lines:
            self.assertRegex(line, r"^(\[[01]\] ( 10| 20|100)%|job .*)$")

    def test_a_closed_pipe_ends_it_quietly(self):
        c = self.cluster()
        job = c.submit("--num-workers", "2", "--", "sh", "-c",
                       "seq 100000; seq 100000 >&2")
        c.await_end(job)
        for flags in ((), ("-f",), ("--tail", "90000"), ("--json",)):
            reader = c.popen("logs", job, *flags, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
            reader.stdout.readline()
            reader.stdout.close()
            errors = reader.stderr.read()
            reader.stderr.close()
            self.assertIn(reader.wait(), (-signal.SIGPIPE,
                                          128 + signal.SIGPIPE))
            self.assertEqual(errors, b"")

    def test_logs_without_times_are_read_all_the_same(self):
        c = self.cluster()
        job = c.submit("--", *self.steps("o:1\\n", "e:2\\n", "o:3\\n"))
        c.await_end(job)
        indexes = list(self.sandbox.dir.glob("w0/logs/**/*.times"))
        self.assertEqual(len(indexes), 2)
        indexes[0].write_bytes(b"foreign")
        indexes[1].unlink()
        self.assertEqual(sorted(c.run("logs", job).stdout.split()),
                         ["1", "2", "3"])
        self.assertEqual(
            len(c.run("logs", job, "--since", "1s").stdout.split()), 3)
        self.assertEqual(
            c.run("logs", job, "--stdout", "--timestamps").stdout,
            "- 1\n- 3\n")

    def test_wrong_flags_are_refused(self):
        c = self.cluster()
        job = c.submit("--", "true")
        c.await_end(job)
        for flags, words in (
                (("--rank", "x"), "--rank x: give ranks"),
                (("--rank", "0-3%2"), "--rank 0-3%2: give ranks"),
                (("--tail", "-1"), "--tail -1"),
                (("--tail", "all"), "--tail all"),
                (("--since", "tomorrow"), "--since"),
                (("--attempt", "0"), "--attempt 0"),
                (("--attempt", "all", "--tail", "1"), "choose an attempt")):
            self.assert_fails(c.run("logs", job, *flags), 2, words)
        self.assert_fails(c.run("logs", job, "--rank", "0-3"), 125,
                          "no rank 1")


if __name__ == "__main__":
    cluster.main()
