"""What a person sees: commands in a terminal of 80x24, read back from tmux."""

import os
import re
import shutil
import subprocess
import sys
import unittest

import cluster

COMPLETION = cluster.SOURCE / "tools/completion"

# Draws a bar as tqdm does, and waits for FILE half way.
BAR = """
import os, sys, time
for i in range(11):
    while i == 6 and not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    if i == 3:
        print("a line", flush=True)
    bar = "#" * i + " " * (10 - i)
    sys.stderr.write(f"\\r{10 * i:3}%|{bar}| {i}/10 [00:0{i // 2}<00:05, 1.00it/s]")
    sys.stderr.flush()
sys.stderr.write("\\n")
print("done", flush=True)
"""
HALF = " 50%|#####     | 5/10 [00:02<00:05, 1.00it/s]"
WHOLE = "100%|##########| 10/10 [00:05<00:05, 1.00it/s]"


@unittest.skipUnless(shutil.which("tmux"), "no tmux here")
class Screens(cluster.ClusterTest):

    def tmux(self, *args):
        return subprocess.run(
            ["tmux", "-f", "/dev/null", "-S", self.sandbox.dir / "tmux", *args],
            env=self.environment, capture_output=True, text=True, check=True,
            timeout=cluster.DEADLINE).stdout

    def open(self, client, *program):
        """Runs it in a new terminal, in a directory of its own."""
        here = self.sandbox.dir / "here"
        here.mkdir(exist_ok=True)
        self.environment = {
            **client.environment(), "LC_ALL": "C.UTF-8", "TERM": "xterm",
            "PATH": f"{cluster.BIN}:{os.environ['PATH']}"}
        self.tmux("new-session", "-d", "-x", "80", "-y", "24", "-c", here,
                  *(str(word) for word in program))
        self.addCleanup(self.tmux, "kill-server")

    def type(self, client, *command):
        """`cohort COMMAND`, in a shell that outlives Ctrl-C as yours does."""
        script = self.file("typed", "trap : INT\n\"$@\"\necho status $?\n"
                                    "exec cat\n")
        self.open(client, "sh", script, "cohort", *command)

    def screen(self):
        text = self.tmux("capture-pane", "-p").rstrip("\n")
        return re.sub("[0-9a-f]{32}", "JOB", text)

    def await_screen(self, *lines):
        """The whole screen, line by line; `*` at the end of one is anything."""
        pattern = "\n".join(
            re.escape(line[:-1]) + ".*" if line.endswith("*") else
            re.escape(line) for line in lines)
        try:
            cluster.until("the screen", lambda: re.fullmatch(
                pattern, self.screen()), 15)
        except AssertionError:
            self.fail(f"on the screen:\n{self.screen()}")

    def bar(self):
        """The command that draws it, and the file that it waits for."""
        gate = self.sandbox.dir / "gate"
        return (sys.executable, self.file("bar.py", BAR), gate), gate

    def test_a_bar_is_redrawn_on_its_line(self):
        c = self.cluster()
        command, gate = self.bar()
        self.type(c, "submit", "-f", "--", *command)
        self.await_screen("JOB", "a line", HALF)
        gate.touch()
        self.await_screen("JOB", "a line", WHOLE, "done", "job JOB SUCCEEDED",
                          "status 0")

    def test_a_retry_is_told_after_what_failed(self):
        c = self.cluster()
        self.type(c, "submit", "-f", "--max-failures", "1", "--", "sh", "-c",
                  "echo try $TORCHELASTIC_RESTART_COUNT; "
                  "test $TORCHELASTIC_RESTART_COUNT = 1 || kill -9 $$")
        self.await_screen(
            "JOB", "try 0",
            "cohort: attempt 1 failed: rank 0 on w0 was killed by signal 9; "
            "attempt 2 of 2*", "*", "try 1", "job JOB SUCCEEDED attempt 2",
            "status 0")

    def test_ctrl_c_ends_a_run(self):
        command, _ = self.bar()
        self.type(cluster.Client("", ""), "run", "--standalone", "--no-python",
                  *command)
        self.await_screen("a line", HALF)
        self.tmux("send-keys", "C-c")
        self.await_screen("a line", HALF + "^C", "cohort: stopped on request",
                          "status 130")

    def test_ctrl_c_leaves_a_job_that_was_submitted(self):
        c = self.cluster()
        command, gate = self.bar()
        self.type(c, "submit", "-f", "--", *command)
        self.await_screen("JOB", "a line", HALF)
        self.tmux("send-keys", "C-c")
        self.await_screen(
            "JOB", "a line", HALF + "^C",
            "cohort: the job goes on; stop it with `cohort jobs stop *", "*",
            "status 130")
        gate.touch()
        self.assertEqual(c.await_end("last")["state"], "SUCCEEDED")

    @unittest.skipUnless(shutil.which("zsh"), "no zsh here")
    def test_zsh_completes(self):
        c = self.cluster()
        c.submit("--name", "my-train", "--", "true")
        self.open(c, "zsh", "-f")
        self.tmux("send-keys", f"fpath=({COMPLETION} $fpath); PS1='> '; autoload "
                  "-U compinit; compinit -D; clear", "Enter")
        self.await_screen(">*")
        self.tmux("send-keys", "cohort jobs get my", "Tab")
        self.await_screen("> cohort jobs get my-train*")


if __name__ == "__main__":
    cluster.main()
