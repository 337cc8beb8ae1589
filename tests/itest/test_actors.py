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

    def __init__(self, test, environment, program=PROGRAM):
        super().__init__(test, program, environment)


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
        c.kill_head()
        for n in range(2, 200):
            self.assertEqual(driver.value("add", "a", 1), str(n))
        driver.say("create", "b", 7, 0, 0)  # waits for the head
        c.start_head()
        self.assertEqual(driver.hear(), "ok")
        self.assertEqual(driver.value("add", "b", 1), "8")
        self.assertEqual(driver.value("add", "a", 1), "200")
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
        # Who asks the head anew is told where it serves, too.
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

    def test_a_driver_that_is_killed_loses_its_actors(self):
        c = self.cluster()
        driver = Driver(self, c.environment())
        driver.value("create", "a", 0, 0, 0)
        pid = int(driver.value("pid", "a"))
        actor = driver.value("id", "a")
        driver.kill()
        c.await_state(actor, "STOPPED", deadline=60)
        cluster.until("its process is gone", lambda: not cluster.alive(pid))

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


if __name__ == "__main__":
    cluster.main()
