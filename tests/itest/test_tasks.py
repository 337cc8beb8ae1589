"""Tasks of a C++ program: functions that run where there is room."""

import os
import pathlib
import signal
import subprocess

import cluster
import driver as told

BUILD = pathlib.Path(os.environ["COHORT_BIN"]).parent
PROGRAM = BUILD / "tests" / "task-program"


class Driver(told.Driver):

    def __init__(self, test, environment):
        super().__init__(test, PROGRAM, environment)


class Tasks(cluster.ClusterTest):

    def pipe(self, name="pipe"):
        path = self.sandbox.dir / name
        os.mkfifo(path)
        return path

    def executors(self, c, state="RUNNING"):
        return [job for job in c.json("jobs", "list", "-a")
                if job["state"] == state]

    def test_values_and_errors(self):
        c = self.cluster()
        driver = Driver(self, c.environment())
        self.assertEqual(driver.value("add"), "42")
        # The same process serves the next one.
        self.assertEqual(driver.value("pid"), driver.value("pid"))
        self.assertRegex(driver.ask("throw"), "^UNKNOWN exception .*why")
        self.assertEqual(driver.value("large"), str(3 << 20))
        self.assertEqual(driver.quit(), 0)

    def test_many(self):
        c = self.cluster()
        driver = Driver(self, c.environment())
        count = 20000
        self.assertEqual(driver.value("many", count),
                         str(count * (count + 1) // 2))

    def test_tasks_of_tasks_need_no_cpu_of_their_own(self):
        c = self.cluster("--num-cpus", "1")
        driver = Driver(self, c.environment())
        self.assertEqual(driver.value("fibonacci", 12), "144")

    def test_tasks_that_wait_hold_large_arguments(self):
        c = self.cluster("--num-cpus", "1")
        driver = Driver(self, c.environment())
        self.assertEqual(driver.value("chain", 40), str(1 << 20))

    def test_one_without_room_says_what_it_waits_for(self):
        c = self.cluster()
        driver = Driver(self, c.environment())
        driver.value("cpus", 1000)
        driver.value("wait", "nothing")
        told = cluster.until("it says why", lambda: next(
            (a for a in [driver.ask("get_within")] if "waits" in a), None))
        self.assertRegex(told, "^DEADLINE_EXCEEDED deadline no result within "
                         "20ms: task executor .* waits: .*cohort explain")

    def test_a_killed_process_costs_a_retry(self):
        c = self.cluster()
        driver = Driver(self, c.environment())
        file = self.sandbox.dir / "exits"
        self.assertEqual(driver.value("exit_times", file, 3), "3")
        driver.value("retries", 0, 0)
        file.unlink()
        self.assertRegex(driver.ask("exit_times", file, 3),
                         "^UNAVAILABLE may_have_run task executor .* may "
                         "have run tasks::ExitTimes.*status 7")
        self.assertEqual(driver.value("add"), "42")

    def test_exceptions_are_retried_when_asked(self):
        c = self.cluster()
        driver = Driver(self, c.environment())
        file = self.sandbox.dir / "throws"
        self.assertRegex(driver.ask("throw_times", file, 3), "^UNKNOWN exception")
        driver.value("retries", 3, 1)
        self.assertEqual(driver.value("throw_times", file, 3), "3")

    def test_cancel_and_deadline(self):
        c = self.cluster("--num-cpus", "1")
        driver = Driver(self, c.environment())
        pipe = self.pipe()
        driver.value("wait", pipe)
        self.assertRegex(driver.ask("get_within"), "^DEADLINE_EXCEEDED deadline")
        driver.value("wait", pipe)  # waits behind it
        driver.value("cancel")
        pipe.write_text("go\n")
        self.assertRegex(driver.value("get"), "[0-9]+")
        self.assertRegex(driver.ask("get"), "^CANCELLED cancelled")
        self.assertEqual(driver.value("add"), "42")

    def read(self, path):
        return path.read_text() if path.exists() else ""

    def test_a_running_task_sees_that_it_is_cancelled(self):
        c = self.cluster("--num-cpus", "1")
        driver = Driver(self, c.environment())
        file = self.sandbox.dir / "cancelled"
        driver.value("wait_for_cancel", file)
        cluster.until("it runs", lambda: self.read(file))
        driver.value("cancel")
        self.assertRegex(driver.ask("get"), "^CANCELLED cancelled")
        cluster.until("it saw it", lambda: "cancelled" in self.read(file))
        # In the same process.
        self.assertEqual(driver.value("pid"), self.read(file).split()[0])

    def test_a_call_of_an_actor_sees_that_it_is_cancelled(self):
        c = self.cluster()
        driver = Driver(self, c.environment())
        file = self.sandbox.dir / "cancelled"
        driver.value("actor", "a", "create")
        driver.value("actor", "a", "wait_for_cancel", file)
        cluster.until("it runs", lambda: self.read(file))
        driver.value("cancel")
        self.assertRegex(driver.ask("get"), "^CANCELLED cancelled")
        cluster.until("it saw it", lambda: "cancelled" in self.read(file))

    def test_force_ends_what_hangs(self):
        c = self.cluster("--num-cpus", "1")
        driver = Driver(self, c.environment())
        file = self.sandbox.dir / "pids"
        driver.value("hang", file)
        pid = int(cluster.until("it runs", lambda: self.read(file)))
        driver.value("force")
        self.assertRegex(driver.ask("get"), "^CANCELLED cancelled")
        cluster.until("its process is gone", lambda: not cluster.alive(pid))
        # Another takes its place, and it is not run again.
        self.assertEqual(driver.value("add"), "42")
        self.assertEqual(self.read(file).split(), [str(pid)])

    def test_methods_of_actors_run_tasks(self):
        c = self.cluster("--num-cpus", "1")
        driver = Driver(self, c.environment())
        driver.value("actor", "a", "create")
        self.assertEqual(driver.value("actor", "a", "fibonacci", 10), "55")
        # So do those of its next process.
        os.kill(int(driver.value("actor", "a", "pid")), signal.SIGKILL)
        cluster.until("it runs tasks again", lambda: driver.ask(
            "actor", "a", "fibonacci", 10) == "ok 55")

    def test_a_detached_actor_has_no_driver_to_run_tasks(self):
        c = self.cluster("--num-cpus", "1")
        driver = Driver(self, c.environment())
        driver.value("actor", "a", "detach")
        self.assertRegex(driver.ask("actor", "a", "fibonacci", 10),
                         "^FAILED_PRECONDITION no_driver .*detached")
        # It can be one itself.
        self.assertEqual(driver.value("actor", "a", "own", 10), "55")
        driver.value("actor", "a", "kill")

    def test_what_no_node_has_waits_and_explain_says_why(self):
        c = self.cluster("--num-cpus", "1")
        driver = Driver(self, c.environment())
        driver.value("cpus", 64)
        driver.value("wait", self.pipe())
        waiting = cluster.until("it waits", lambda: self.executors(c, "PENDING"))
        self.assertIn("CPU", c.run("explain", waiting[0]["id"]).stdout)
        driver.value("cpus", 1)
        self.assertEqual(driver.value("add"), "42")

    def test_two_drivers_share_a_cpu(self):
        c = self.cluster("--num-cpus", "1")
        first = Driver(self, c.environment())
        second = Driver(self, c.environment())
        self.assertEqual(first.value("add"), "42")
        first.say("many", 2000000)
        # It does not wait for all of those.
        self.assertEqual(second.value("add"), "42")
        first.kill()

    def test_goes_on_while_the_head_is_away(self):
        c = self.cluster()
        driver = Driver(self, c.environment())
        self.assertEqual(driver.value("add"), "42")
        c.kill_head()
        for _ in range(20):
            self.assertEqual(driver.value("add"), "42")
        driver.say("cpus", 0.5)
        self.assertEqual(driver.hear(), "ok")
        driver.say("add")  # asks for executors of another shape
        c.start_head()
        self.assertEqual(driver.hear(), "ok 42")

    def test_executors_end_with_their_driver(self):
        c = self.cluster()
        driver = Driver(self, c.environment())
        pid = int(driver.value("pid"))
        self.assertEqual(driver.quit(), 0)
        cluster.until("its process is gone", lambda: not cluster.alive(pid))

    def test_the_examples(self):
        c = self.cluster()
        done = subprocess.run([BUILD / "bin" / "pi", "20000"], text=True,
                              env=c.environment(), capture_output=True,
                              timeout=cluster.DEADLINE)
        self.assertEqual((done.returncode, done.stdout), (0, "3.14116\n"), done)
        text = cluster.SOURCE / "data/text/moby-dick.txt.gz"
        done = subprocess.run([BUILD / "bin" / "word_count", text], text=True,
                              env=c.environment(), capture_output=True,
                              timeout=cluster.DEADLINE)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(done.stdout.split("\n")[0].split()[0], "the")


if __name__ == "__main__":
    cluster.main()
