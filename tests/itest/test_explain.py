"""Why a job waits: numbers, who holds what, and changes that are true."""

import datetime
import time

import cluster


class Explain(cluster.ClusterTest):

    def explain(self, c, job, *flags):
        return c.json("explain", job, *flags)

    def resources(self, why):
        return next(b for b in why["blockers"] if b["kind"] == "resources")

    def test_it_counts_what_is_short_and_says_who_holds_it(self):
        c = self.cluster("--num-cpus", "4", "--simulate-gpus", "2")
        holder = c.submit("--gpus", "1", "--", "sleep", "600")
        c.await_state(holder, "RUNNING")
        waiting = c.submit("--num-workers", "2", "--gpus", "1", "--",
                           "sleep", "600")
        why = self.explain(c, waiting)
        self.assertEqual(why["job"], waiting)
        self.assertEqual(why["state"], "PENDING")
        blocker = self.resources(why)
        self.assertEqual(blocker["nodes"], 1)
        self.assertEqual(blocker["nodes"], blocker["nodes_that_fit"] +
                         sum(f["nodes"] for f in blocker["fail"]))
        self.assertEqual(blocker["workers_that_fit"], 1)
        self.assertIn({"resource": "GPU", "job": holder, "amount": 1,
                       "nodes": 1}, blocker["holders"])
        kinds = {change["kind"]: change for change in why["changes"]}
        self.assertEqual(why["smallest_change"], why["changes"][0])
        self.assertEqual(kinds["FEWER_WORKERS"]["how"], "--num-workers 1")
        self.assertIn(holder, kinds["JOB_ENDS"]["text"])
        self.assertEqual(kinds["MORE_NODES"]["of"], "cluster")

        behind = c.submit("--num-workers", "2", "--gpus", "1", "--", "true")
        ahead = self.explain(c, behind)["ahead"]
        self.assertEqual(ahead["jobs"], 1)
        self.assertEqual(ahead["first"][0]["job"], waiting)

        text = c.run("explain", waiting).stdout
        self.assertIn("It needs 2 x {CPU 1, GPU 1}", text)
        self.assertIn(holder, text)
        # What it said is true.
        c.run("jobs", "stop", holder)
        c.await_state(waiting, "RUNNING")
        self.assertEqual(self.explain(c, waiting)["blockers"], [])
        self.assertIn("waits for nothing", c.run("explain", waiting).stdout)
        c.run("jobs", "stop", waiting)
        c.await_end(waiting)
        self.assertEqual(self.explain(c, waiting)["summary"],
                         "stopped on request")

    def test_says_that_there_is_no_gpu(self):
        c = self.cluster("--num-cpus", "2")
        job = c.submit("--use-gpu", "--num-workers", "1", "--", "true")
        why = self.explain(c, job)
        blocker = self.resources(why)
        self.assertTrue(blocker["never_fits"], why)
        [gpu] = [f for f in blocker["fail"] if f["by"] == "resource:GPU"]
        self.assertEqual((gpu["nodes"], gpu["short"]), (1, 1))
        text = c.run("explain", job).stdout
        self.assertIn("It does not fit this cluster", text)
        self.assertIn("1  lacks GPU 1", text)
        self.assertIn("1 node with CPU 1, GPU 1", text)

    def test_what_never_fits_says_so_at_once(self):
        c = self.cluster("--num-cpus", "2", "--simulate-gpus", "1")
        begun = time.monotonic()
        done = c.run("submit", "--gpus", "8", "--", "true")
        self.assertLess(time.monotonic() - begun, 10)
        job = done.stdout.strip()
        self.assertIn("does not fit this cluster", done.stderr)
        self.assertIn("GPU", done.stderr)
        shown = c.job(job)
        self.assertEqual(shown["state"], "PENDING")
        self.assertIn("never fits", shown["reason"])
        self.assertTrue(shown["never_fits"])
        blocker = self.resources(self.explain(c, job))
        self.assertTrue(blocker["never_fits"])
        [gpu] = [f for f in blocker["fail"] if f["by"] == "resource:GPU"]
        self.assertEqual((gpu["nodes"], gpu["short"]), (1, 7))
        self.assertIn("not even if all nodes were idle",
                      c.run("explain", job).stdout)
        array = c.run("submit", "--array", "0-9", "--gpus", "8", "--", "true")
        self.assertIn("does not fit this cluster", array.stderr)
        self.assertTrue(c.job(array.stdout.strip())["never_fits"])
        fits = c.run("submit", "--gpus", "1", "--", "true")
        self.assertNotIn("does not fit", fits.stderr)
        held = c.run("submit", "--hold", "--gpus", "9", "--", "true")
        self.assertIn("does not fit this cluster, and waits until other nodes "
                      "join: needs 1 x {CPU 1, GPU 9}", held.stderr)
        self.assertIn("besides it is held by", held.stderr)
        text = c.run("explain", held.stdout.strip()).stdout
        self.assertIn("It is held by", text)
        self.assertIn("It does not fit this cluster", text)

    def test_a_restarted_head_tells_of_nodes_that_are_not_back(self):
        c = self.cluster("--num-cpus", "2", node_timeout="60s")
        c.kill_worker("w0")
        c.kill_head()
        c.start_head()
        job = c.submit("--", "true")
        blocker = self.resources(self.explain(c, job))
        self.assertEqual([f["by"] for f in blocker["fail"]], ["state:ABSENT"])
        self.assertIsNotNone(blocker["fail"][0]["since"])
        self.assertIn("is away (ABSENT) since", c.run("explain", job).stdout)

    def test_it_tells_why_a_job_waited_also_after_it_has_started(self):
        c = self.cluster("--num-cpus", "2")
        holder = c.submit("--cpus", "2", "--", "sleep", "600")
        c.await_state(holder, "RUNNING")
        job = c.submit("--cpus", "2", "--", "sleep", "600")
        noted = cluster.until("a reason is noted down", lambda: self.explain(
            c, job, "--history")["history"])
        self.assertIsNone(noted[0]["until"])
        then = noted[0]["since"]
        time.sleep(0.1)
        c.run("jobs", "stop", holder)
        c.await_state(job, "RUNNING")
        c.kill_head()
        c.start_head()
        cluster.until("the reason is over", lambda: self.explain(
            c, job, "--history")["history"][0]["until"])
        why = self.explain(c, job, "--at", then)
        self.assertIn("it waited: needs 1 x {CPU 2}", why["summary"])
        [reason] = why["history"]
        self.assertEqual(reason["since"], then)
        [cpu] = reason["blocker"]["fail"]
        self.assertEqual((cpu["by"], cpu["nodes"], cpu["short"]),
                         ("resource:CPU", 1, 2))
        early = self.explain(c, job, "--at", "1h")
        self.assertIn("submitted later", early["summary"])

    def test_the_past_of_a_job_is_its_own(self):
        c = self.cluster("--num-cpus", "2")
        holder = c.submit("--cpus", "2", "--", "sleep", "600")
        c.await_state(holder, "RUNNING")
        waiting = c.submit("--cpus", "2", "--", "sleep", "600")
        held = c.submit("--hold", "--cpus", "2", "--", "sleep", "600")
        after = c.submit("--after", holder + ":any", "--cpus", "2", "--",
                         "sleep", "600")
        then = datetime.datetime.now(datetime.timezone.utc).isoformat(
            timespec="milliseconds").replace("+00:00", "Z")
        c.run("jobs", "release", held)
        c.run("jobs", "stop", holder)
        c.await_state(waiting, "RUNNING")
        for job, kind, text in (
                (held, "held", "held"),
                (after, "after", f"job {holder} had to end first")):
            why = self.explain(c, job, "--at", then)
            self.assertEqual(why["summary"], "it waited: " + text)
            [wait] = why["history"]
            self.assertEqual(wait["blocker"]["kind"], kind)
            self.assertIsNotNone(wait["until"])
            cluster.until("it is noted why it waits now", lambda: [
                wait["blocker"]["kind"] for wait in
                self.explain(c, job, "--history")["history"]
            ][:2] == [kind, "resources"])
            self.assertIn("\n  " + text,
                          c.run("explain", job, "--history").stdout)

    def test_it_tells_what_else_keeps_a_job(self):
        c = self.cluster("--num-cpus", "2")
        held = c.submit("--hold", "--", "true")
        first = c.submit("--", "sleep", "600")
        after = c.submit("--after", first, "--", "true")
        array = c.submit("--array", "0-1%1", "--", "sleep", "600")
        for job, kind, word in ((held, "held", "jobs release"),
                                (after, "after", first),
                                (array + ".1", "array", array)):
            # That there is no room either is told beside it.
            [blocker] = [b for b in self.explain(c, job)["blockers"]
                         if b["kind"] != "resources"]
            self.assertEqual(blocker["kind"], kind)
            self.assertIn(word, blocker["text"])
            self.assertIn(word, c.run("explain", job).stdout)

    def test_an_array_is_explained_as_one(self):
        c = self.cluster("--num-cpus", "4")
        array = c.submit("--array", "0-9%2", "--", "sleep", "600")
        for element in ("0", "1"):
            c.await_state(f"{array}.{element}", "RUNNING")
        c.run("jobs", "hold", f"{array}.9")
        why = self.explain(c, array)
        self.assertEqual((why["job"], why["element"]), (array, f"{array}.2"))
        self.assertEqual(why["elements"], [
            {"kind": "array", "count": 7, "first": f"{array}.2"},
            {"kind": "held", "count": 1, "first": f"{array}.9"}])
        kinds = {change["kind"]: change for change in why["changes"]}
        self.assertEqual(kinds["RAISE_ARRAY_LIMIT"]["how"], "--array 0-9%3")
        text = c.run("explain", array).stdout
        self.assertIn(f"Array {array} is RUNNING", text)
        self.assertIn(f"7  for a place among those that may run at once, first "
                      f"{array}.2", text)
        # What it said is true.
        c.run("jobs", "stop", f"{array}.0")
        c.await_state(f"{array}.2", "RUNNING")

    def test_changes_are_true_in_spite_of_the_line(self):
        c = self.cluster("--num-cpus", "2")
        holder = c.submit("--cpus", "2", "--", "sleep", "600")
        c.await_state(holder, "RUNNING")
        ahead = c.submit("--cpus", "2", "--", "sleep", "600")
        job = c.submit("--cpus", "2", "--", "sleep", "600")

        def ends():
            return [change["text"] for change in self.explain(c, job)["changes"]
                    if change["kind"] == "JOB_ENDS"]

        self.assertEqual(ends(), [], "the one ahead would take the room")
        c.run("jobs", "hold", ahead)
        self.assertEqual(ends(), [f"the end of job {holder}"])
        c.run("jobs", "stop", holder)
        c.await_state(job, "RUNNING")
        # Held, and without room: no single change would do.
        self.assertEqual(self.explain(c, ahead)["changes"], [])

    def test_bad_input_is_named(self):
        c = self.cluster("--num-cpus", "1")
        unknown = c.run("explain", "0" * 31 + "1")
        self.assertNotEqual(unknown.returncode, 0)
        self.assertIn("no job", unknown.stderr)
        job = c.submit("--", "true")
        when = c.run("explain", job, "--at", "yesterday")
        self.assertEqual(when.returncode, 2)
        self.assertIn("yesterday", when.stderr)
        self.assert_fails(c.run("explain", job, "--at", "bla"), 2, "column 1")
        self.assert_fails(
            c.run("explain", job, "--at", "2999-01-01T00:00:00Z"), 2,
            "still to come")


if __name__ == "__main__":
    cluster.main()
