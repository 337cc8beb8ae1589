"""Python as a job: its interpreter, and what it raised."""

import os
import subprocess
import sys
import venv

import cluster

# Writes what torch's @record does, at second TIME of 1970, and ends or stays.
RECORD = """
import json, os, pathlib, signal, sys, time, traceback
rank, here = int(os.environ["RANK"]), pathlib.Path(sys.argv[1])
while rank == 0 and not (here / "raised").exists():
    time.sleep(0.02)
try:
    raise RuntimeError(f"boom of {rank}")
except RuntimeError as error:
    info = {"py_callstack": traceback.format_exc(),
            "timestamp": str(200 - rank)}
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
        json.dump({"message": {"message": f"RuntimeError: {error}",
                               "extraInfo": info}}, file)
(here / "raised").touch()
if rank == 1:
    signal.pause()  # a teardown that hangs
sys.exit(1)
"""
SHOW = ("python3", "-c", "import os, sys; "
        "print('at', sys.prefix, os.environ.get('VIRTUAL_ENV'))")


class Interpreter(cluster.ClusterTest):

    def make_venv(self):
        path = self.sandbox.dir / "venv"
        venv.create(path, symlinks=True)
        return path

    def test_a_job_runs_in_the_venv_that_is_named(self):
        c = self.cluster()
        path = self.make_venv()
        for command in (SHOW, ("sh", "-c", 'exec python3 -c "$0"', SHOW[2])):
            done = c.run("submit", "--python", path, "-f", "--", *command)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"at {path} {path}\n", done.stdout)

    def test_a_job_runs_in_the_venv_of_the_shell(self):
        c = self.cluster()
        path = self.make_venv()
        shell = {**c.environment(), "VIRTUAL_ENV": str(path)}
        c.environment = lambda: shell
        done = c.run("submit", "-f", "--", *SHOW)
        self.assertIn(f"at {path} {path}\n", done.stdout)
        self.assertEqual(done.stderr.count("VIRTUAL_ENV"), 1, done.stderr)
        done = c.run("submit", "--python", "none", "-f", "--", *SHOW)
        self.assertNotIn(f"at {path}", done.stdout)
        self.assertNotIn("VIRTUAL_ENV", done.stderr)

    def test_a_rank_fails_where_its_python_is_not(self):
        c = self.cluster()
        done = c.run("submit", "--python", "/no/venv", "--wait", "--", "true")
        self.assert_fails(done, 126,
                          "/no/venv/bin/python3 is not on this node")
        # Its rank never began, so there is no log to follow.
        done = c.run("submit", "--python", "/no/venv", "-f", "--", "true")
        self.assert_fails(done, 126, "is not on this node")
        done = c.run("submit", "--python", "no/venv", "--", "true")
        self.assert_fails(done, 2, "--python no/venv: no such file")

    def test_values_name_what_the_worker_has(self):
        c = self.cluster()
        job = c.submit("--env", "PATH=/own:$PATH", "--env", "X=${HOME}/x$Q",
                       "--", "sh", "-c", "echo $PATH; echo $X")
        c.await_end(job)
        path, x = c.logs(job).split()
        self.assertTrue(path.endswith(f"/own:{os.environ['PATH']}"), path)
        self.assertTrue(x.endswith(f"{os.environ['HOME']}/x$Q"), x)

    def test_says_which_python_lacked_a_module_or_program(self):
        c = self.cluster()
        done = c.run("submit", "--wait", "--", sys.executable, "-c",
                     "import no_such_module")
        self.assert_fails(
            done, 1, "ModuleNotFoundError: No module named 'no_such_module' "
            f"(its Python is {sys.executable})")
        done = c.run("submit", "--wait", "--", "sh", "-c", "no-such-program")
        self.assert_fails(done, 127, "a program was not found")
        self.assertNotIn("Python", done.stderr)
        done = c.run("submit", "--wait", "--", "no-such-program")
        self.assert_fails(done, 127, 'cannot run "no-such-program"')
        self.assertNotIn("Python", done.stderr)
        done = c.run("submit", "--wait", "--", "sh", "-c",
                     "python3 -c 'import no_such_module'")
        self.assert_fails(done, 1, "(python3 on its PATH is ")
        done = c.run("submit", "--wait", "--env", "PATH=/nowhere", "--",
                     "/bin/sh", "-c", "python3")
        self.assert_fails(done, 127, "(no python3 is on its PATH)")


class Exceptions(cluster.ClusterTest):

    def test_names_the_rank_that_raised_first(self):
        c = self.cluster()
        script = self.file("record.py", RECORD)
        job = c.submit("--num-workers", "2", "--", sys.executable, script,
                       self.sandbox.dir)
        ended = c.await_end(job)
        self.assertEqual(ended["state"], "FAILED")
        self.assertEqual(
            ended["reason"], "attempt 1: rank 1 failed: RuntimeError: "
            "boom of 1 (raised at 1970-01-01T00:03:19.999999Z), and was killed "
            "by signal 15 afterwards")
        text = c.run("jobs", "get", job).stdout
        for rank in (0, 1):
            _, _, rest = text.partition(f"\nexception of rank {rank}:\n")
            self.assertRegex(rest, "^  Traceback .*\n    File .*\n"
                             f"      raise .*\n(.*\n)?"
                             f"  RuntimeError: boom of {rank}\n")

    def test_shows_what_a_script_without_record_raised(self):
        c = self.cluster()
        script = self.file("plain.py", "def f():\n    return 1 / 0\nf()\n")
        job = c.submit("--", sys.executable, script)
        self.assertIn(": ZeroDivisionError: division by zero",
                      c.await_end(job)["reason"])
        self.assertIn("\n    File ", c.run("jobs", "get", job).stdout)


class Completion(cluster.ClusterTest):

    SCRIPT = cluster.SOURCE / "tools/completion/cohort.bash"

    def complete(self, c, *words):
        """What bash offers for the last of `words`."""
        quoted = " ".join(f"'{word}'" for word in ("cohort", *words))
        return subprocess.run(
            ["bash", "-c", f"source {self.SCRIPT}; COMP_WORDS=({quoted}); "
             f"COMP_CWORD={len(words)}; _cohort; "
             "printf '%s\\n' \"${COMPREPLY[@]}\""],
            env={**c.environment(),
                 "PATH": f"{cluster.BIN}:{os.environ['PATH']}"},
            capture_output=True, text=True, check=True,
            timeout=cluster.DEADLINE)

    def words_of(self, line):
        return subprocess.run(
            ["bash", "-c", f"set -- {line}; printf '%s\\0' \"$@\""],
            cwd=self.sandbox.dir, capture_output=True, text=True, check=False,
            timeout=cluster.DEADLINE).stdout.split("\0")[:-1]

    def test_offers_jobs_by_name_and_id_and_nodes(self):
        c = self.cluster()
        job = c.submit("--name", "my-train", "--", "true")
        self.assertEqual(self.complete(c, "jobs", "get", "my").stdout,
                         "my-train\n")
        self.assertEqual(self.complete(c, "logs", job[:6]).stdout,
                         f"{job[:8]}\n")
        self.assertEqual(self.complete(c, "drain", "").stdout, "w0\n")
        self.assertEqual(self.complete(c, "submit", "--num-w").stdout,
                         "--num-workers\n")
        self.assertEqual(self.complete(c, "submit", "--strategy", "S").stdout,
                         "SPREAD\nSTRICT_PACK\nSTRICT_SPREAD\n")
        self.assertEqual(self.complete(c, "jobs", "--state=RUNNING,P").stdout,
                         "--state=RUNNING,PENDING\n")
        self.assertEqual(self.complete(c, "nodes", "-o", "").stdout,
                         "json\nwide\n")
        # What the shell makes of a word that it is offered is the name.
        for name in ("x;touch pwned", "my job", "$(id)", "*"):
            c.submit("--name", name, "--", "true")
            offered = self.complete(c, "jobs", "get", name[:1]).stdout
            self.assertIn([name], [self.words_of(line)
                                   for line in offered.splitlines()])
        # A directory: the shell offers its files.
        self.assertEqual(
            c.run("__complete", "jobs", "get-files", "last", "").stdout, "")

    def test_is_silent_without_a_head(self):
        c = self.cluster()
        c.kill_head()
        done = c.run("__complete", "jobs", "get", "")
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (0, "", ""))
        done = c.run("__complete", "jobs", "ge")
        self.assertEqual(done.stdout, "get\nget-files\n")


if __name__ == "__main__":
    cluster.main()
