"""`cohort run`: a script in the current directory, with no cluster before it."""

import os
import shutil
import signal
import subprocess

import cluster


class Run(cluster.ClusterTest):

    def setUp(self):
        super().setUp()
        self.here = self.sandbox.dir / "here"
        self.temporary = self.sandbox.dir / "tmp"
        for directory in (self.here, self.temporary):
            directory.mkdir()
        self.environment = {
            **os.environ, "TMPDIR": str(self.temporary),
            "HOME": str(self.sandbox.dir)}
        for name in ("COHORT_ADDRESS", "COHORT_CREDENTIAL_FILE", "VIRTUAL_ENV",
                     "CONDA_PREFIX"):
            self.environment.pop(name, None)

    def script(self, text, name="train.py"):
        (self.here / name).write_text(text)
        return name

    def start(self, *args, **environment):
        process = subprocess.Popen(
            [str(cluster.BIN / "cohort"), "run", *(str(arg) for arg in args)],
            env={**self.environment, **environment}, cwd=self.here, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        return process

    def run_here(self, *args, **environment):
        process = self.start(*args, **environment)
        out, err = process.communicate(timeout=cluster.DEADLINE * 3)
        return subprocess.CompletedProcess(args, process.returncode, out, err)

    def assert_gone(self):
        """No process of it is left, and no directory."""
        self.assert_nothing_left()
        self.assertEqual(os.listdir(self.temporary), [])

    def lines(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        return sorted(done.stdout.splitlines())

    def test_a_script_runs_as_it_does_by_hand(self):
        name = self.script(
            "import os, sys\n"
            "print(sys.argv[1:], os.getcwd(), os.environ['MINE'])\n"
            "print(os.environ['RANK'], os.environ['WORLD_SIZE'])\n"
            "print(sys.executable)\n"
            "print('err', file=sys.stderr)\n"
            "open('left', 'w').close()\n")
        done = self.run_here(name, "--lr", "0.1", "--", "-m", "", MINE="yes")
        python = subprocess.run(
            ["python3", "-c", "import sys; print(sys.executable)"],
            capture_output=True, text=True, check=True).stdout
        self.assertEqual(
            done.stdout, f"['--lr', '0.1', '--', '-m', ''] {self.here} yes\n"
            f"0 1\n{python}", done.stderr)
        self.assertEqual(done.stderr, "err\n")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(sorted(os.listdir(self.here)), ["left", name])
        self.assert_gone()

    def test_more_ranks_than_cores(self):
        name = self.script(
            "import os\n"
            "print(*(os.environ[name] for name in ('LOCAL_RANK', "
            "'LOCAL_WORLD_SIZE', 'GROUP_RANK')))\n")
        expected = [f"[{rank}] {rank} 4 0" for rank in range(4)]
        for flag in ("--nproc-per-node", "--nproc_per_node"):
            self.assertEqual(self.lines(self.run_here(flag, "4", name)),
                             expected)
        shown = self.run_here("--standalone", "--nnodes=1:1",
                              "--nproc-per-node=4", "--tee", "3",
                              "--local-ranks-filter", "0,3", name)
        self.assertEqual(self.lines(shown), [expected[0], expected[3]])
        self.assert_gone()

    def test_as_many_ranks_as_the_machine_has_cpus(self):
        cpus = len(os.sched_getaffinity(0))
        if cpus > 64:
            self.skipTest("more CPUs than a node takes ranks")
        name = self.script("print('here')")
        for word in ("cpu", "auto"):
            done = self.run_here("--nproc-per-node", word, name)
            if word == "cpu":
                self.assertEqual(len(self.lines(done)), cpus)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_programs_and_modules(self):
        program = self.here / "own"
        program.write_text("#!/bin/sh\necho own $1 $RANK\n")
        program.chmod(0o755)
        self.assertEqual(self.lines(self.run_here("./own", "x")), ["own x 0"])
        self.assertEqual(self.lines(self.run_here("echo", "--lr")), ["--lr"])
        self.script("import sys\nprint(__name__, sys.argv[1:])", "mod.py")
        self.assertEqual(self.lines(self.run_here("-m", "mod", "-x")),
                         ["__main__ ['-x']"])
        self.script("#!/bin/sh\necho shell\n", "odd.py")
        (self.here / "odd.py").chmod(0o755)
        self.assertEqual(self.lines(self.run_here("--no-python", "./odd.py")),
                         ["shell"])

    def test_the_python_of_the_environment(self):
        for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
            prefix = self.sandbox.dir / variable
            (prefix / "bin").mkdir(parents=True)
            python = prefix / "bin/python3"
            python.write_text(f"#!/bin/sh\necho {variable} $1\n")
            python.chmod(0o755)
            done = self.run_here(self.script(""), **{variable: str(prefix)})
            self.assertEqual(self.lines(done), [f"{variable} train.py"])

    def test_each_rank_has_a_gpu_or_a_part_of_one(self):
        up = self.up("--workers", "1", "--num-cpus", "2", "--simulate-gpus",
                     "2")
        named = {"COHORT_ADDRESS": up.address,
                 "COHORT_CREDENTIAL_FILE": str(up.credential)}
        name = self.script("import os\nprint(os.environ['COHORT_GPU_IDS'])")
        ids = {device["id"] for device in up.json("nodes")[0]["devices"]}
        for ranks, flag in ((2, "gpu"), (2, "auto"), (4, "4"), (3, "3")):
            done = self.run_here("--nproc-per-node", flag, name, **named)
            lines = [line.split()[1] for line in self.lines(done)]
            self.assertEqual((len(lines), set(lines)), (ranks, ids))
        none = self.run_here("--gpus", "0", name, **named)
        self.assertEqual(none.stdout, "\n")

    def test_says_when_the_machine_cannot_hold_it(self):
        done = self.run_here("--cpus", "9999", self.script(""))
        self.assert_fails(done, 125, "does not fit this machine", "CPU")
        self.assert_gone()

    def test_ends_as_the_rank_that_failed_first(self):
        name = self.script(
            "import os, sys, time\n"
            "if os.environ['RANK'] == '1':\n"
            "    print('why', file=sys.stderr)\n"
            "    sys.exit(7)\n"
            "time.sleep(600)\n")
        done = self.run_here("--nproc-per-node", "2", name)
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertIn("rank 1 exited with code 7", done.stderr)
        self.assertTrue(done.stderr.endswith(
            "\nlast lines of stderr of rank 1, which failed first:\n  why\n"), done.stderr)
        killed = self.run_here("sh", "-c", "kill -SEGV $$")
        self.assertEqual(killed.returncode, 128 + signal.SIGSEGV)
        self.assert_gone()

    def test_starts_again_as_often_as_it_may(self):
        name = self.script(
            "import os, sys\n"
            "attempt = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
            "print('attempt', attempt)\n"
            "sys.exit(attempt < 1)\n")
        logs = self.here / "logs"
        done = self.run_here("--max-restarts", "1", "--log-dir", logs, name)
        self.assertEqual(done.stdout, "attempt 0\nattempt 1\n", done.stderr)
        self.assertEqual(done.returncode, 0)
        for attempt in (0, 1):
            [log] = logs.glob(f"*/attempt_{attempt}/0/stdout.log")
            self.assertEqual(log.read_text(), f"attempt {attempt}\n")

    def test_refuses_before_anything_starts(self):
        name = self.script("print('must not run')")
        for args, *parts in (
                ((), "there is no program"),
                (("none.py",), "there is no script none.py", str(self.here)),
                (("./none",), "there is no program ./none"),
                (("no-such-program",), "no-such-program on PATH"),
                (("./" + "text",), "not executable"),
                (("--rdzv-backend", "c10d", name), "--rdzv-backend",
                 "leave it out"),
                (("--master_port=1", name), "--master-port"),
                (("--redirects", "3", name), "--log-dir"),
                (("--nproc-per-node", "0", name), "--nproc-per-node"),
                (("--nnodes", "2", name), "this machine is one node"),
                (("--nnodes", "1:2", name), "give one number"),
                (("--local-ranks-filter", "x", name), "--local-ranks-filter"),
                (("--local-ranks-filter", "9", "--nproc-per-node", "2", name),
                 "no local rank 9"),
                (("-m", "--no-python", name), "exclude each other"),
                (("--frob", name), "--frob")):
            (self.here / "text").write_text("")
            done = self.run_here(*args)
            self.assert_fails(done, 2, *parts)
            self.assertEqual(done.stdout, "")
        gpu = self.run_here("--nproc-per-node", "gpu", name)
        if gpu.returncode == 2:  # a machine without GPUs
            self.assertIn("give a number", gpu.stderr)
        self.assert_gone()

    def test_ctrl_c_asks_the_ranks_to_end(self):
        name = self.script(
            "import os, signal, sys, time\n"
            "def end(*_):\n"
            "    print('asked', flush=True)\n"
            "    sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, end)\n"
            "print('up', flush=True)\n"
            "time.sleep(600)\n")
        process = self.start(name)
        self.assertEqual(process.stdout.readline(), "up\n")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=cluster.DEADLINE)
        self.assertEqual((out, process.returncode), ("asked\n", 130), err)
        self.assert_gone()

    def test_a_terminal_that_closes_ends_it_but_not_under_nohup(self):
        name = self.script("import os, time\nprint('up', flush=True)\n"
                           "while not os.path.exists('go'): time.sleep(0.01)\n")
        process = self.start(name)
        self.assertEqual(process.stdout.readline(), "up\n")
        process.send_signal(signal.SIGHUP)
        _, err = process.communicate(timeout=cluster.DEADLINE)
        self.assertEqual(process.returncode, 130, err)
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup has it
        try:
            process = self.start(name)
        finally:
            signal.signal(signal.SIGHUP, before)
        self.assertEqual(process.stdout.readline(), "up\n")
        process.send_signal(signal.SIGHUP)
        (self.here / "go").touch()
        _, err = process.communicate(timeout=cluster.DEADLINE)
        self.assertEqual(process.returncode, 0, err)
        self.assert_gone()

    def test_a_second_ctrl_c_is_at_once(self):
        name = self.script(
            "import signal, time\n"
            "signal.signal(signal.SIGTERM, lambda *_: print('no', flush=True))\n"
            "print('up', flush=True)\n"
            "while True: time.sleep(600)\n")
        process = self.start("--grace", "30m", name)
        self.assertEqual(process.stdout.readline(), "up\n")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.stdout.readline(), "no\n")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=cluster.DEADLINE)
        self.assertEqual(process.returncode, 130, err)
        self.assert_gone()

    def test_nothing_outlives_a_kill(self):
        process = self.start(self.script(
            "import time\nprint('up', flush=True)\ntime.sleep(600)\n"))
        self.assertEqual(process.stdout.readline(), "up\n")
        process.kill()
        process.wait()
        cluster.until("all has ended", lambda: not cluster.descendants())
        self.assert_gone()

    def test_ends_when_its_cluster_is_killed(self):
        process = self.start("sh", "-c", "echo up; sleep 600")
        self.assertEqual(process.stdout.readline(), "up\n")
        [server] = [pid for pid in cluster.descendants()
                    if cluster.parent(pid) == process.pid]
        os.kill(server, signal.SIGKILL)
        _, err = process.communicate(timeout=cluster.DEADLINE)
        self.assertEqual(process.returncode, 125, err)
        self.assertIn("was killed", err)
        cluster.until("all has ended", lambda: not cluster.descendants())
        for left in err.partition("left: ")[2].split():
            shutil.rmtree(left)
        self.assert_gone()

    def test_runs_in_the_cluster_that_is_named_or_runs_here(self):
        name = self.script("import os\nprint(os.environ['COHORT_JOB_NAME'], "
                           "os.environ.get('OF_SHELL'))")
        up = cluster.Up(self.sandbox, "--workers", "2", "--num-cpus", "1",
                        state=".local/state/cohort/up")
        up.start()
        named = {"COHORT_ADDRESS": up.address,
                 "COHORT_CREDENTIAL_FILE": str(up.credential)}
        # The default state directory of who is not root is below HOME.
        environments = [named] + ([{}] if os.getuid() else [])
        for environment in environments:
            done = self.run_here("--nnodes", "2", "--nproc-per-node", "2", name,
                                 OF_SHELL="its value", **environment)
            self.assertEqual(
                self.lines(done),
                [f"[{rank}] train.py its value" for rank in range(4)])
            self.assertIn(f"of the cluster at {up.address}", done.stderr)
        job = up.json("jobs", "get", done.stderr.split()[2])
        self.assertNotIn("its value", up.run("jobs", "get", job["id"]).stdout)
        self.assertNotIn("its value", str(job))
        nodes = [rank["node"] for rank in job["ranks"]]
        self.assertEqual((nodes[0], nodes[2]), (nodes[1], nodes[3]))
        self.assertNotEqual(nodes[0], nodes[2])
        alone = self.run_here("--standalone", name, **named)
        self.assertNotIn("of the cluster", alone.stderr)
        self.assertEqual(len(up.json("jobs", "list")), len(environments))

    def test_says_which_directory_the_workers_lack(self):
        c = self.cluster()
        lost = c.run("submit", "--wait", "--cwd", self.here / "none", "--",
                     "true")
        self.assertEqual(lost.returncode, 125)
        self.assertIn(f"no directory {self.here}/none", lost.stderr)
        job = c.job("last")
        self.assertEqual((job["attempt"], job["failures"]), (1, 1))
        self.assertEqual(c.json("nodes")[0]["state"], "ALIVE")

    def test_submit_in_a_directory_of_the_workers(self):
        c = self.cluster()
        done = c.run("submit", "-f", "--cwd", "here", "--", "sh", "-c",
                     "pwd; echo $PWD; touch left", cwd=self.sandbox.dir)
        self.assertEqual(done.stdout.splitlines()[1:], [str(self.here)] * 2,
                         done.stderr)
        self.assertEqual(os.listdir(self.here), ["left"])
        both = c.run("submit", "--cwd", self.here, "--file",
                     self.here / "left", "--", "true")
        self.assert_fails(both, 2, "not in both")

    def test_submit_to_so_many_nodes_with_so_many_ranks(self):
        c = self.cluster("--num-cpus", "3", workers=3)
        job = c.submit("--nnodes", "3", "--nproc-per-node", "2", "--", "true")
        ranks = c.await_end(job)["ranks"]
        nodes = [rank["node"] for rank in ranks]
        self.assertEqual(len(set(nodes)), 3)
        self.assertEqual(nodes[0::2], nodes[1::2])
        wide = c.submit("--nnodes", "4", "--nproc-per-node", "2", "--", "true")
        text = c.run("explain", wide).stdout
        self.assertIn("2 on each node", text)
        self.assertIn("6 workers instead of 8  [--nnodes 3]", text)
        self.assertIn("any number of workers on a node instead of 2", text)
        self.assert_fails(
            c.run("submit", "--nnodes", "2", "--restart", "one", "--", "true"),
            2, "restart policy all")
        self.assert_fails(
            c.run("submit", "--nnodes", "2", "--num-workers", "2", "--",
                  "true"), 2, "exclude each other")


if __name__ == "__main__":
    cluster.main()
