"""Actors of a C++ program: created, called, killed, restarted, found by name."""

import os
import pathlib
import signal
import subprocess

import cluster
import driver as told

BUILD = pathlib.Path(os.environ["COHORT_BIN"]).parent
PROGRAM = BUILD / "tests" / "actor-program"
COUNTER = BUILD / "bin" / "counter"


class Driver(told.Driver):

    def __init__(self, test, environment, program=PROGRAM, cwd=None):
        super().__init__(test, program, environment, cwd)


class Actors(cluster.ClusterTest):

    def pipe(self):
        path = self.sandbox.dir / "pipe"
        os.mkfifo(path)
        return path

    def await_wait(self, c, actor):
        cluster.until("the call has begun", lambda: "waits" in c.logs(actor))

    def test_the_counter_of_the_readme(self):
        c = self.cluster()
        done = subprocess.run([COUNTER], env=c.environment(), text=True,
                              capture_output=True, timeout=cluster.DEADLINE)
        self.assertEqual((done.returncode, done.stdout), (0, "42\n"), done)
        # It ended with its program.
        jobs = c.json("actors", "list")
        self.assertEqual(len(jobs), 1)
        ended = c.await_state(jobs[0]["id"], "STOPPED")
        self.assertIn("driver counter has ended", ended["reason"])

    def alone(self):
        """An environment without a cluster."""
        environment = dict(os.environ, HOME=str(self.sandbox.dir),
                           TMPDIR=str(self.sandbox.dir),
                           PATH=f"{COUNTER.parent}:{os.environ['PATH']}")
        for name in ("COHORT_ADDRESS", "COHORT_CREDENTIAL_FILE"):
            environment.pop(name, None)
        return environment

    def test_a_killed_program_leaves_nothing_of_its_cluster(self):
        driver = Driver(self, self.alone())
        driver.value("create", "a", 0, 0, 0)
        pid = int(driver.value("pid", "a"))
        runtime = pathlib.Path(
            driver.value("env", "a", "COHORT_WORKER_SOCKET")).parent
        self.assertEqual(runtime.parent, pathlib.Path("/dev/shm"))
        driver.kill()
        cluster.until("its process is gone", lambda: not cluster.alive(pid))
        cluster.until("what it had in memory is gone",
                      lambda: not runtime.exists())
        cluster.until("its directory is gone", lambda: not list(
            self.sandbox.dir.glob("cohort-run-*")))

    def test_starts_a_cluster_where_there_is_none(self):
        done = subprocess.run([COUNTER], env=self.alone(), text=True,
                              capture_output=True, timeout=cluster.DEADLINE)
        self.assertEqual((done.returncode, done.stdout), (0, "42\n"), done)
        self.assert_nothing_left()
        self.assertEqual(list(self.sandbox.dir.glob("cohort-run-*")), [])

    def test_results_of_a_cluster_of_its_own_stay(self):
        here = self.sandbox.dir / "here"
        here.mkdir()
        driver = Driver(self, self.alone(), cwd=here)
        driver.value("create", "a", 0, 0, 0)
        driver.value("create", "silent", 0, 0, 0)
        job = driver.value("id", "a")
        kept = here / "cohort-results"
        out = pathlib.Path(driver.value("env", "a", "COHORT_STORAGE_DIR"))
        self.assertEqual(driver.value("pid", "silent"),
                         driver.value("pid", "silent"))
        (out / "written").write_text("by the actor")
        self.assertFalse(kept.exists())
        driver.kill()
        cluster.until("its directory is gone", lambda: not list(
            self.sandbox.dir.glob("cohort-run-*")))
        files = [each.relative_to(kept) for each in kept.rglob("*")
                 if each.is_file()]
        self.assertEqual(files, [pathlib.Path(job, "out", "written")])
        self.assertEqual((kept / files[0]).read_text(), "by the actor")

    def test_calls_values_and_errors(self):
        c = self.cluster()
        driver = Driver(self, c.environment())
        driver.value("create", "a", 5, 0, 0)
        self.assertEqual(driver.value("add", "a", 2), "7")
        self.assertEqual(driver.value("add", "a", 3), "10")
        self.assertEqual(driver.value("echo", "a", "some words"), "some words")
        self.assertEqual(driver.value("env", "a", "PROBE"), "a")
        self.assertEqual(driver.value("length", "a", 1000000), "1000000")
        self.assertRegex(driver.ask("throw", "a", "no such thing"),
                         "^UNKNOWN exception .*no such thing")
        self.assertRegex(driver.ask("length", "a", 2000000),
                         "^INVALID_ARGUMENT too_large ")
        # None of it harmed the actor.
        self.assertEqual(driver.value("add", "a", 1), "11")
        self.assertEqual(driver.quit(), 0)

    def test_a_killed_process_starts_again_with_its_constructor(self):
        c = self.cluster()
        driver = Driver(self, c.environment())
        driver.value("create", "a", 5, 1, 0)
        self.assertEqual(driver.value("add", "a", 2), "7")
        first = int(driver.value("pid", "a"))
        call = driver.value("start-wait", "a", self.pipe())
        self.await_wait(c, driver.value("id", "a"))
        os.kill(first, signal.SIGKILL)
        self.assertRegex(driver.ask("wait", call),
                         "^UNAVAILABLE may_have_run .*signal 9")
        self.assertEqual(driver.value("add", "a", 2), "7")
        second = int(driver.value("pid", "a"))
        self.assertNotEqual(first, second)
        os.kill(second, signal.SIGKILL)
        # Its one restart is spent.
        answer = cluster.until("it is dead", lambda: next(
            (a for a in [driver.ask("add", "a", 1)]
             if a.startswith("UNAVAILABLE not_started")), None))
        self.assertIn("signal 9", answer)

    def test_a_call_with_retries_runs_again(self):
        c = self.cluster()
        driver = Driver(self, c.environment())
        driver.value("create", "a", 5, 3, 3)
        first = int(driver.value("pid", "a"))
        pipe = self.pipe()
        call = driver.value("start-wait", "a", pipe)
        after = driver.value("start-add", "a", 1)
        self.await_wait(c, driver.value("id", "a"))
        os.kill(first, signal.SIGKILL)
        # Else it might read the line yet.
        cluster.until("it is gone", lambda: not cluster.alive(first))
        pipe.write_text("go\n")  # once the call is there again
        self.assertEqual(driver.value("wait", call), "5")
        self.assertEqual(driver.value("wait", after), "6")

    def test_kill_ends_it_for_good(self):
        c = self.cluster()
        driver = Driver(self, c.environment())
        driver.value("create", "a", 5, -1, 0)
        pid = int(driver.value("pid", "a"))
        driver.value("kill", "a")
        self.assertRegex(driver.ask("add", "a", 1), "^UNAVAILABLE not_started ")
        cluster.until("its process is gone", lambda: not cluster.alive(pid))
        c.await_state(driver.value("id", "a"), "STOPPED")

    def test_what_cannot_be_created_says_why(self):
        c = self.cluster()
        driver = Driver(self, c.environment())
        driver.value("create", "bad", -1, 0, 0)
        self.assertRegex(driver.ask("add", "bad", 1),
                         "^UNAVAILABLE not_started .*start is negative")
        driver.value("create", "a", 1, 0, 0)
        self.assertEqual(driver.value("add", "a", 1), "2")
        driver.value("create", "a", 1, 0, 0)
        self.assertRegex(driver.ask("add", "a", 1), "^ALREADY_EXISTS name_taken")

    def test_ends_with_its_driver_unless_it_is_detached(self):
        c = self.cluster()
        driver = Driver(self, c.environment())
        driver.value("create", "own", 1, 0, 0)
        driver.value("create", "kept", 1, 0, 0, 0, 0, "detached")
        own = driver.value("id", "own")
        self.assertEqual(driver.value("add", "own", 1), "2")
        self.assertEqual(driver.value("add", "kept", 1), "2")
        self.assertEqual(driver.quit(), 0)
        c.await_state(own, "STOPPED")
        other = Driver(self, c.environment())
        self.assertRegex(other.ask("find", "own"), "^NOT_FOUND no_actor ")
        other.value("find", "kept")
        self.assertEqual(other.value("add", "kept", 1), "3")
        other.value("kill", "kept")

    def test_calls_go_on_while_the_head_is_away(self):
        c = self.cluster()
        driver = Driver(self, c.environment())
        driver.value("create", "a", 0, 0, 0)
        driver.value("create", "kept", 1, 0, 0, 0, 0, "detached")
        self.assertEqual(driver.value("add", "a", 1), "1")
        self.assertEqual(driver.value("add", "kept", 1), "2")
        caller = driver.value("caller", "a")
        self.assertEqual(driver.value("via", caller, 0), "1")
        c.kill_head()
        self.assertEqual(driver.value("via", caller, 0), "1")
        for n in range(2, 200):
            self.assertEqual(driver.value("add", "a", 1), str(n))
        driver.say("create", "b", 7, 0, 0)  # waits for the head
        c.start_head()
        self.assertEqual(driver.hear(), "ok")
        self.assertEqual(driver.value("add", "b", 1), "8")
        self.assertEqual(driver.value("add", "a", 1), "200")
        self.assertEqual(driver.value("via", caller, 0), "200")
        # The actor's process, too, hears of others from the next head.
        self.assertEqual(driver.value("via", caller, 1, "b"), "9")
        self.assertEqual(driver.value("add", "kept", 1), "3")
        driver.value("kill", "kept")

    def test_lives_through_a_restart_of_its_worker_daemon(self):
        c = self.cluster()
        driver = Driver(self, c.environment())
        driver.value("create", "a", 0, 0, 0)
        self.assertEqual(driver.value("add", "a", 1), "1")
        c.kill_worker("w0")
        self.assertEqual(driver.value("add", "a", 1), "2")
        c.start_worker("w0")
        # Who asks the head again is told where it serves, too.
        other = Driver(self, c.environment())
        other.value("find", "a")
        self.assertEqual(other.value("add", "a", 1), "3")

    def test_calls_end_when_the_head_has_given_the_driver_up(self):
        c = self.cluster()
        driver = Driver(self, c.environment())
        driver.value("create", "a", 0, 0, 0)
        self.assertEqual(driver.value("add", "a", 1), "1")
        c.kill_head()
        driver.process.send_signal(signal.SIGSTOP)
        c.start_head()
        cluster.until("the driver is over",
                      lambda: "driver_ended" in c.run("events").stdout)
        driver.process.send_signal(signal.SIGCONT)
        cluster.until("the driver knows", lambda: driver.ask(
            "add", "a", 1).startswith("FAILED_PRECONDITION session_over"))
        driver.value("create", "b", 0, 0, 0)
        self.assertRegex(driver.ask("add", "b", 1),
                         "^FAILED_PRECONDITION session_over")

    def test_nothing_waits_for_a_cluster_that_is_gone(self):
        c = self.cluster()
        driver = Driver(self, dict(c.environment(), HEAD_TIMEOUT_S="2"))
        driver.value("create", "a", 0, 0, 0)
        pid = int(driver.value("pid", "a"))
        c.kill_head()
        os.kill(pid, signal.SIGKILL)  # whether it comes back only a head knows
        cluster.until("the driver knows", lambda: driver.ask(
            "add", "a", 1).startswith("FAILED_PRECONDITION session_over"))
        driver.value("create", "b", 0, 0, 0)
        self.assertRegex(driver.ask("add", "b", 1),
                         "^FAILED_PRECONDITION session_over .*head_timeout")

    def test_down_leaves_nothing_of_a_driver_that_goes_on(self):
        state = self.sandbox.dir / "up"
        subprocess.run([cluster.BIN / "cohort", "up", "--detach", "--port", "0",
                        "--workers", "1", "--state-dir", state],
                       capture_output=True, timeout=cluster.DEADLINE, check=True)
        address = (state / "address").read_text().strip()
        driver = Driver(self, dict(
            self.alone(), COHORT_ADDRESS=address,
            COHORT_CREDENTIAL_FILE=str(state / "credential")))
        driver.value("create", "a", 0, 0, 0)
        runtime = pathlib.Path(
            driver.value("env", "a", "COHORT_WORKER_SOCKET")).parent
        self.assertTrue(runtime.is_dir())
        down = cluster.Client(address, state / "credential").run(
            "down", "--state-dir", state)
        self.assertEqual(down.returncode, 0, down.stderr)
        self.assertFalse(runtime.exists())

    def test_a_driver_that_is_killed_loses_its_actors(self):
        c = self.cluster()
        driver = Driver(self, c.environment())
        driver.value("create", "a", 0, 0, 0)
        pid = int(driver.value("pid", "a"))
        actor = driver.value("id", "a")
        driver.kill()
        c.await_state(actor, "STOPPED", deadline=60)
        cluster.until("its process is gone", lambda: not cluster.alive(pid))

    def test_is_called_by_those_who_are_given_its_handle(self):
        c = self.cluster(workers=2)
        driver = Driver(self, c.environment())
        driver.value("create", "b", 0, 1, 0)
        # Perhaps before it serves.
        caller = driver.value("caller", "b")
        self.assertEqual(driver.value("via", caller, 5), "5")
        self.assertEqual(driver.value("add", "b", 1), "6")
        driver.value("create", "other", 100, 0, 0)
        self.assertEqual(driver.value("via", caller, 1, "other"), "101")
        driver.value("given", caller)
        self.assertEqual(driver.value("add", "given", 1), "7")
        self.assertEqual(driver.value("id", "given"), driver.value("id", "b"))
        self.assertEqual(driver.value("task-add", "b", 1), "8")
        values = driver.value("group-add", "b").split(",")
        self.assertEqual(sorted(map(int, values)), list(range(9, 19)))
        # Calls follow it to its next process.
        pid = int(driver.value("pid", "b"))
        os.kill(pid, signal.SIGKILL)
        cluster.until("it runs again", lambda: driver.ask(
            "via", caller, 0) == "ok 0")
        driver.value("kill", "b")
        answer = cluster.until("it is dead", lambda: next(
            (a for a in [driver.ask("via", caller, 1)]
             if a.startswith("UNAVAILABLE not_started")), None))
        self.assertIn("actor b (Probe) is dead and did not run Probe::Add",
                      answer)
        # One that it never called before it was gone.
        late = driver.value("caller", "b")
        self.assertRegex(driver.ask("via", late, 1),
                         "^UNAVAILABLE not_started .*b \\(Probe\\) is dead")

    def test_finds_others_of_its_driver_by_name(self):
        c = self.cluster()
        driver = Driver(self, c.environment())
        driver.value("create", "b", 0, 0, 0)
        driver.value("create", "lasting", 0, 0, 0, 0, 0, "detached")
        caller = driver.value("caller", "b")
        self.assertEqual(driver.value("by-name", caller, "b", 5), "5")
        self.assertEqual(driver.value("add", "b", 1), "6")
        self.assertRegex(driver.ask("by-name", caller, "lasting", 5),
                         "^NOT_FOUND no_actor .*pass a handle")
        driver.value("kill", "lasting")

    def test_a_killed_actor_ends_the_calls_of_others(self):
        c = self.cluster()
        driver = Driver(self, c.environment())
        driver.value("create", "b", 0, 0, 0)
        caller = driver.value("caller", "b")
        driver.value("via", caller, 1)
        driver.value("start-wait", "b", self.pipe())
        self.await_wait(c, driver.value("id", "b"))
        driver.say("via", caller, 1)  # waits behind that
        os.kill(int(c.json("actors", "get", "b")["ranks"][0]["pid"]),
                signal.SIGKILL)
        self.assertRegex(driver.hear(), "^UNAVAILABLE may_have_run .*signal 9")

    def test_begins_again_with_what_it_saved(self):
        c = self.cluster()
        driver = Driver(self, c.environment())
        driver.value("create", "a", 5, 2, 0)
        self.assertEqual(driver.value("add", "a", 2), "7")
        driver.value("save", "a")
        self.assertEqual(driver.value("add", "a", 100), "107")
        for _ in range(2):
            os.kill(int(driver.value("pid", "a")), signal.SIGKILL)
            cluster.until("it runs again", lambda: driver.ask(
                "add", "a", 0) == "ok 7")
        self.assertEqual(len(list(self.sandbox.dir.glob(
            "**/results/*/state/0.*"))), 1)

    def test_a_drain_takes_what_it_knows_along(self):
        c = self.cluster(workers=2)
        driver = Driver(self, c.environment())
        storage = self.sandbox.dir / "shared"
        storage.mkdir()
        driver.value("create", "a", 5, 0, 0, 0, 0, storage)
        self.assertEqual(driver.value("add", "a", 2), "7")
        actor = driver.value("id", "a")
        first = c.json("actors", "get", actor)["ranks"][0]["node"]
        c.json("drain", first, "--deadline", "2s")
        cluster.until("it saves when it hears of it",
                      lambda: list(storage.glob("*/state/0.*")))
        # What it does from then on is kept as well.
        self.assertEqual(driver.value("add", "a", 1), "8")
        cluster.until("it is elsewhere", lambda: next(
            (True for rank in c.json("actors", "get", actor)["ranks"]
             if rank["node"] != first and rank["pid"]), None))
        cluster.until("it serves with its state", lambda: driver.ask(
            "add", "a", 0) == "ok 8")

    def test_on_another_node_without_shared_storage_it_begins_anew(self):
        c = self.cluster(workers=2)
        driver = Driver(self, c.environment())
        driver.value("create", "a", 5, 0, 0)
        self.assertEqual(driver.value("add", "a", 2), "7")
        driver.value("save", "a")
        actor = driver.value("id", "a")
        first = c.json("actors", "get", actor)["ranks"][0]["node"]
        c.json("drain", first, "--deadline", "0s")
        cluster.until("it serves elsewhere", lambda: driver.ask(
            "add", "a", 0) == "ok 5")

    def test_has_the_gpus_that_it_asks_for(self):
        c = self.cluster("--num-cpus", "1", "--simulate-gpus", "2")
        driver = Driver(self, c.environment())
        driver.value("create", "a", 0, 0, 0, 0, 1)
        driver.value("create", "half", 0, 0, 0, 0, 0.5)
        one = driver.value("gpus", "a").split()
        half = driver.value("gpus", "half").split()
        self.assertEqual((len(one), len(half)), (1, 1))
        self.assertNotEqual(one, half)

    def test_waits_for_room(self):
        c = self.cluster("--num-cpus", "1")
        driver = Driver(self, c.environment())
        driver.value("create", "a", 0, 0, 0, 1)
        self.assertEqual(driver.value("add", "a", 1), "1")
        driver.value("create", "b", 0, 0, 0, 1)
        call = driver.value("start-add", "b", 1)
        said = c.run("explain", driver.value("id", "b")).stdout
        self.assertIn("CPU", said)
        driver.value("kill", "a")
        self.assertEqual(driver.value("wait", call), "1")


class Rank:
    """A rank of a job that is a driver: told as any other."""

    def __init__(self, test, rank):
        self.test = test
        directory = test.sandbox.dir
        self.out = open(directory / f"in.{rank}", "w")
        self.into = open(directory / f"out.{rank}")
        test.addCleanup(self.into.close)
        test.addCleanup(self.out.close)
        test.assertEqual(self.into.readline(), "ready\n")

    ask = told.Driver.ask
    value = told.Driver.value

    def say(self, *words):
        print(*words, file=self.out, flush=True)

    def hear(self):
        return self.into.readline().rstrip("\n")


class DriversInJobs(cluster.ClusterTest):

    def ranks(self, c):
        """The job, and its two ranks with an actor each: [(rank, pid)]."""
        directory = self.sandbox.dir
        for rank in range(2):
            os.mkfifo(directory / f"in.{rank}")
            os.mkfifo(directory / f"out.{rank}")
        job = c.submit(
            "--num-workers", "2", "--restart", "none", "--", "sh", "-c",
            f"exec {PROGRAM} < {directory}/in.$RANK > {directory}/out.$RANK")
        all_ranks = []
        for number in range(2):
            rank = Rank(self, number)
            rank.value("create", f"a{number}", number, 0, 0)
            self.assertEqual(rank.value("double", 21), "42")
            all_ranks.append((rank, int(rank.value("pid", f"a{number}"))))
        return job, all_ranks

    def await_gone(self, pid):
        cluster.until(f"process {pid} is gone", lambda: not cluster.alive(pid))

    def assert_nothing_runs(self, c):
        cluster.until("all it had has ended", lambda: all(
            job["state"] in ("STOPPED", "SUCCEEDED", "FAILED")
            for job in c.json("jobs", "list", "-a")))
        cluster.until("no driver is left", lambda: not c.json("drivers", "list"))

    def test_what_they_own_ends_with_the_job(self):
        c = self.cluster("--num-cpus", "4")
        job, ranks = self.ranks(c)
        owners = c.json("drivers", "list")
        self.assertEqual([d["job"] for d in owners], [job, job])
        # They find each other's actors.
        (first, _), (second, _) = ranks
        first.value("find", "a1")
        self.assertEqual(first.value("add", "a1", 5), "6")
        c.run("jobs", "stop", job)
        for _, pid in ranks:
            self.await_gone(pid)
        self.assert_nothing_runs(c)

    def test_what_they_own_ends_when_they_are_done(self):
        c = self.cluster("--num-cpus", "4")
        job, ranks = self.ranks(c)
        for rank, _ in ranks:
            rank.say("quit")
        c.await_state(job, "SUCCEEDED")
        for _, pid in ranks:
            self.await_gone(pid)
        self.assert_nothing_runs(c)

    def test_a_killed_rank_loses_its_own_at_once(self):
        c = self.cluster("--num-cpus", "4")
        job, ranks = self.ranks(c)
        (first, kept), (_, lost) = ranks
        actor = next(a["id"] for a in c.json("actors", "list")
                     if a["name"] == "a1")
        os.kill(c.rank_pids(job)[1], signal.SIGKILL)
        self.await_gone(lost)
        ended = c.await_state(actor, "STOPPED")
        self.assertIn("has ended with rank 1", ended["reason"])
        self.assertTrue(cluster.alive(kept))
        self.assertEqual(first.value("add", "a0", 1), "1")

    def test_a_restarted_head_ends_what_a_rank_left_meanwhile(self):
        c = self.cluster("--num-cpus", "4")
        job, ranks = self.ranks(c)
        (first, _), (_, lost) = ranks
        pid = c.rank_pids(job)[1]
        c.kill_head()
        os.kill(pid, signal.SIGKILL)
        self.await_gone(pid)
        c.start_head()
        self.await_gone(lost)
        self.assertEqual(first.value("add", "a0", 1), "1")
        self.assertEqual(first.value("double", 4), "8")

    def test_its_credential_is_good_for_no_more(self):
        c = self.cluster("--num-cpus", "4")
        outside = Driver(self, c.environment())
        outside.value("create", "outside", 0, 0, 0)
        job, ranks = self.ranks(c)
        (first, _), _ = ranks
        first.value("create", "kept", 0, 0, 0, 0, 0, "detached")
        self.assertRegex(first.ask("add", "kept", 1), "^PERMISSION_DENIED")
        self.assertRegex(first.ask("find", "outside"), "^NOT_FOUND no_actor")
        # Outside of the job they are found as any other.
        outside.value("find", "a0")
        self.assertEqual(outside.value("add", "a0", 1), "1")


if __name__ == "__main__":
    cluster.main()
