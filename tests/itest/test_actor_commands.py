"""What people type about actors: list, get, kill, logs, stack, timeline."""

import json
import os
import shutil
import unittest

import cluster
import test_actors
import test_http


class ActorCommands(cluster.ClusterTest):

    def two_actors(self):
        """One that serves, named `a`, and one that waits for room, `late`."""
        c = self.cluster("--num-cpus", "2")
        driver = test_actors.Driver(self, c.environment())
        driver.value("create", "a", 5, 3, 0, 1)
        self.assertEqual(driver.value("add", "a", 2), "7")
        driver.value("create", "late", 5, 0, 0, 2)
        c.await_state("late", "PENDING")
        return c, driver

    def test_list_and_get_show_actors_and_jobs_do_not(self):
        c, driver = self.two_actors()
        job = c.submit("--name", "plain", "--", "true")
        c.await_end(job)
        lines = c.run("actors").stdout.splitlines()
        self.assertEqual(lines[0].split()[:6],
                         ["ID", "NAME", "CLASS", "STATE", "NODE", "PID"])
        self.assertEqual(len(lines), 3)
        late, first = lines[1], lines[2]
        self.assertRegex(late, r"late +Probe +PENDING +- +- +0")
        pid = driver.value("pid", "a")
        self.assertRegex(first, rf"a +Probe +RUNNING +w0 +{pid} +0 +1 +0")
        self.assertEqual(c.run("actors", "list").stdout.splitlines()[0],
                         lines[0])
        wide = c.run("actors", "list", "-o", "wide").stdout
        actor = driver.value("id", "a")
        self.assertIn(actor, wide)

        self.assertEqual([j["id"] for j in c.json("jobs", "list")], [job])
        self.assertNotIn("late", c.run("jobs").stdout)
        self.assertEqual(len(c.json("jobs", "list", "-a")), 3)
        self.assertIn("late", c.run("jobs", "--actors").stdout)

        for name in ("a", actor, actor[:10]):
            text = c.run("actors", "get", name).stdout
            self.assertRegex(text, r"class: +Probe")
            self.assertRegex(text, r"node: +w0")
            self.assertRegex(text, r"restarts: +0 of 3")
        found = c.json("actors", "get", "a")
        drivers = c.json("drivers")
        self.assertEqual(found["class"], "Probe")
        self.assertEqual(found["driver"], drivers[0]["driver"])
        self.assertEqual(found["resources"]["CPU"], 1)
        self.assertEqual(found["ranks"][0]["pid"], int(pid))
        listed = c.json("actors", "list")
        self.assertEqual([a["name"] for a in listed], ["late", "a"])
        self.assertEqual(set(listed[0]), set(found))

        self.assert_fails(c.run("actors", "get", "nobody"), 125,
                          "there is no actor nobody", "`cohort actors`")
        self.assert_fails(c.run("actors", "get", job), 125,
                          "it is a job (`cohort jobs get`)")
        self.assert_fails(
            c.run("actors", "get", "late", "--namespace", "other"), 125,
            "there is no actor late")
        self.assert_fails(c.run("groups", "get", "late"), 125,
                          "there is no group late")
        self.assertEqual(c.json("groups"), [])

    def test_explain_says_why_an_actor_waits(self):
        c, _ = self.two_actors()
        text = c.run("explain", "late").stdout
        self.assertIn("CPU", text)
        self.assertIn("PENDING", text)
        self.assertIn("CPU 1 a worker instead of 2", text)
        self.assertNotIn("--cpus", text)
        self.assertEqual(c.json("explain", "late")["state"], "PENDING")

    def test_kill_ends_an_actor_and_lets_the_next_one_run(self):
        c, driver = self.two_actors()
        actor = driver.value("id", "a")
        pid = int(driver.value("pid", "a"))
        done = c.run("actors", "kill", "a")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(actor, done.stdout)
        c.await_state(actor, "STOPPED")
        cluster.until("its process is gone", lambda: not cluster.alive(pid))
        self.assertRegex(driver.ask("add", "a", 1),
                         "^UNAVAILABLE not_started ")
        self.assertEqual(driver.value("add", "late", 1), "6")
        self.assertEqual(
            c.json("actors", "list", "--state", "RUNNING")[0]["name"], "late")

    def test_logs_are_those_of_its_process(self):
        c, driver = self.two_actors()
        pipe = self.sandbox.dir / "pipe"
        pipe.write_text("go\n")
        call = driver.value("start-wait", "a", pipe)
        self.assertEqual(driver.value("wait", call), "7")
        cluster.until("it is in the log", lambda: "waits" in c.run(
            "actors", "logs", "a", "--tail", "5").stdout)

    def test_drivers_and_what_http_says(self):
        c, driver = self.two_actors()
        text = c.run("drivers", "list").stdout.splitlines()
        self.assertRegex(text[1], r"actor-program +CONNECTED +\S+ +2 ")
        found = c.json("drivers")
        self.assertEqual([(d["name"], d["connected"], d["actors"])
                          for d in found], [("actor-program", True, 2)])
        self.assertEqual(c.json("tasks"), found[0]["tasks"])
        self.assertEqual(c.run("tasks", "list").returncode, 0)
        actor = driver.value("id", "a")
        for path, command in (
                ("/v1/actors", ("actors", "list")),
                (f"/v1/actors/{actor}", ("actors", "get", actor)),
                ("/v1/groups", ("groups", "list")),
                ("/v1/drivers", ("drivers", "list")),
                ("/v1/tasks", ("tasks", "list")),
                ("/v1/jobs", ("jobs", "list"))):
            answer = test_http.ask(c.http_address, path, test_http.token_of(c))
            self.assertEqual(answer.body.decode(),
                             c.run(*command, "--json").stdout, path)
        answer = test_http.ask(c.http_address, "/v1/jobs?actors=true",
                               test_http.token_of(c))
        self.assertEqual([j["name"] for j in answer.json()], ["late", "a"])
        driver.kill()
        cluster.until("it is over", lambda: not c.json("drivers"), 60)

    @unittest.skipUnless(shutil.which("eu-stack"), "there is no eu-stack")
    def test_stack_shows_threads_and_leaves_them_as_they_were(self):
        c, driver = self.two_actors()
        done = c.run("stack", "a")
        self.assertEqual(done.returncode, 0, done.stderr)
        pid = driver.value("pid", "a")
        self.assertIn(f"rank 0 on w0, pid {pid}", done.stdout)
        self.assertIn("native stacks (eu-stack)", done.stdout)
        self.assertIn("__libc_start_main", done.stdout)
        self.assertEqual(driver.value("add", "a", 1), "8")
        stacks = c.json("stack", "a", "--rank", "0")
        self.assertEqual((stacks[0]["rank"], stacks[0]["pid"]), (0, int(pid)))
        self.assert_fails(c.run("stack", "late"), 125, "has no process now")
        self.assert_fails(c.run("stack", "a", "--rank", "3"), 125,
                          "has no rank 3")

    @unittest.skipUnless(shutil.which("eu-stack"), "there is no eu-stack")
    def test_stack_of_a_python_names_what_is_missing_or_shows_it(self):
        c = self.cluster()
        script = self.file("wait.py", "import time\n"
                           "def here():\n    time.sleep(600)\nhere()\n")
        job = c.submit("--", "python3", str(script))
        c.await_state(job, "RUNNING")
        text = cluster.until("it sleeps", lambda: next(
            (t for t in [c.run("stack", job).stdout] if "nanosleep" in t),
            None))
        self.assertIn("Python stacks (py-spy):", text)
        self.assertRegex(text, r"here \(wait.py:3\)|not shown: install it")
        c.run("jobs", "stop", job)

    def test_timeline_is_a_trace_of_states_and_attempts(self):
        c, driver = self.two_actors()
        driver.value("kill", "a")
        actor = driver.value("id", "a")
        c.await_state(actor, "STOPPED")
        file = self.sandbox.dir / "trace.json"
        done = c.run("timeline", actor, "-o", str(file))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("ui.perfetto.dev", done.stderr)
        trace = json.loads(file.read_text())
        events = trace["traceEvents"]
        states = [e["name"] for e in events
                  if e["ph"] == "X" and e["pid"] == 1 and e["tid"] == 1]
        self.assertEqual(states[0], "PENDING")
        self.assertIn("RUNNING", states)
        names = {e["args"]["name"] for e in events if e["ph"] == "M"}
        self.assertLessEqual({"state", "node w0", "rank 0"}, names)
        starts = [e["ts"] for e in events if e["ph"] == "X"]
        self.assertTrue(all(e.get("dur", 0) >= 0 for e in events))
        self.assertGreater(min(starts), 1_700_000_000_000_000)
        # The head notes a reason down a second after the first refusal.
        late = c.submit("--cpus", "9", "--", "true")
        cluster.until("its wait is noted down", lambda: "waits for" in c.run(
            "timeline", late).stdout)

    def test_timeline_shows_calls_as_spans_of_threads(self):
        c, driver = self.two_actors()
        pipe = self.sandbox.dir / "pipe"
        os.mkfifo(pipe)
        call = driver.value("start-wait", "a", pipe)
        for n in range(3):
            driver.ask("start-add", "a", n)
        cluster.until("it runs", lambda: "Probe::Wait" in c.run(
            "timeline", "a").stdout)

        def spans():
            trace = json.loads(c.run("timeline", "a").stdout)
            events = trace["traceEvents"]
            process = next(e["pid"] for e in events
                           if e["name"] == "process_name"
                           and e["args"]["name"].startswith(
                               "calls of rank 0 on w0, pid "))
            return [e for e in events
                    if e["pid"] == process and e["ph"] == "X"]
        running = [s for s in spans() if s["args"]["runs"]]
        self.assertEqual(len(running), 1)
        self.assertIn("Probe::Wait", running[0]["name"])
        pipe.write_text("go\n")
        driver.value("wait", call)
        driver.value("add", "a", 1)
        done = cluster.until("all have ended", lambda: next(
            (s for s in [spans()] if not any(e["args"]["runs"] for e in s)),
            None))
        waits = ["Probe::Wait" in s["name"] for s in done]
        self.assertEqual(waits.count(True), 1)
        self.assertIn("Probe::Add", done[-1]["name"])
        self.assertEqual(len({s["args"]["caller"] for s in done}), 1)
        for one, next_one in zip(done, done[1:]):
            if one["tid"] == next_one["tid"]:
                self.assertLessEqual(one["ts"] + one["dur"], next_one["ts"])
        behind = done[waits.index(True) + 1]
        self.assertGreater(behind["args"]["waited_us"], 0)

    def test_completion_knows_actors(self):
        c, driver = self.two_actors()

        def complete(*words):
            done = c.run("__complete", *words)
            return done.stdout.split()
        actor = driver.value("id", "a")
        self.assertEqual(complete("actors", ""), ["get", "kill", "list",
                                                  "logs"])
        self.assertEqual(complete("actors", "kill", "la"), ["late"])
        self.assertIn(actor[:8], complete("actors", "get", ""))
        self.assertIn("late", complete("stack", ""))
        self.assertEqual(complete("groups", "get", ""), [])


if __name__ == "__main__":
    cluster.main()
