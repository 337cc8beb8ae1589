"""When jobs start: arrays, --after, hold and release, priority, lists."""

import cluster


class JobOrder(cluster.ClusterTest):

    def states(self, c, array):
        return c.job(array)["array"]["states"]

    def test_an_array_runs_each_index_and_no_more_at_once_than_allowed(self):
        c = self.cluster("--num-cpus", "4")
        out = self.sandbox.dir / "out"
        out.mkdir()
        # Each rank leaves its index, and counts who runs beside it.
        script = self.file("element.sh", """
touch "$1/run.$COHORT_ARRAY_INDEX"
ls "$1" | grep -c '^run' > "$1/seen.$COHORT_ARRAY_INDEX"
sleep 0.2
rm "$1/run.$COHORT_ARRAY_INDEX"
test "$COHORT_JOB_ID" = "$COHORT_ARRAY_ID.$COHORT_ARRAY_INDEX"
""")
        array = c.submit("--array", "0-6:2,9%2", "--", "sh", str(script),
                         str(out))
        ended = c.await_end(array)
        self.assertEqual(ended["state"], "SUCCEEDED", ended)
        self.assertEqual(ended["array"], {"size": 5, "at_once": 2,
                                          "states": {"SUCCEEDED": 5}})
        self.assertEqual(ended["num_workers"], 1)  # of each element
        seen = {path.name: int(path.read_text()) for path in out.iterdir()}
        self.assertEqual(sorted(seen), ["seen.0", "seen.2", "seen.4", "seen.6",
                                        "seen.9"])
        self.assertLessEqual(max(seen.values()), 2)
        listed = c.json("jobs", "list", "--array", array)
        self.assertEqual([job["id"] for job in listed],
                         [f"{array}.{i}" for i in (9, 6, 4, 2, 0)])

    def test_an_array_survives_the_head_and_ends_as_its_first_failure(self):
        c = self.cluster("--num-cpus", "2")
        array = c.submit("--array", "0-3%1", "--", "sh", "-c",
                         "exit $COHORT_ARRAY_INDEX")
        c.kill_head()
        c.start_head()
        self.assertEqual(c.run("jobs", "wait", array).returncode, 1)
        self.assertEqual(self.states(c, array), {"SUCCEEDED": 1, "FAILED": 3})
        self.assert_fails(c.run("jobs", "logs", array), 125, "array of 4")
        self.assertEqual(c.job(f"{array}.3")["exit_code"], 3)

    def test_stop_and_hold_name_all_elements(self):
        c = self.cluster("--num-cpus", "1")
        array = c.submit("--array", "0-2", "--hold", "--", "true")
        self.assertEqual(self.states(c, array), {"PENDING": 3})
        c.json("jobs", "release", f"{array}.1")
        c.await_end(f"{array}.1")
        self.assertEqual(c.job(f"{array}.0")["reason"], "held by cluster")
        c.json("jobs", "stop", array)
        self.assertEqual(self.states(c, array), {"SUCCEEDED": 1, "STOPPED": 2})
        self.assertEqual(c.run("jobs", "wait", array).returncode, 130)

    def test_jobs_start_after_others_or_fail_with_the_chain(self):
        c = self.cluster("--num-cpus", "2")
        first = c.submit("--hold", "--", "sh", "-c", "exit 3")
        second = c.submit("--after", first, "--", "true")
        third = c.submit("--after", second, "--", "true")
        anyway = c.submit("--after", f"{first}:any", "--", "true")
        self.assertEqual(c.job(second)["reason"],
                         f"after {first}, which is PENDING")
        c.kill_head()
        c.start_head()
        c.json("jobs", "release", first)
        self.assertEqual(c.await_end(anyway)["state"], "SUCCEEDED")
        failed = c.await_end(third)
        self.assertEqual(failed["state"], "FAILED")
        self.assertTrue(any(f"job {first} ended FAILED" in cause
                            for cause in failed["causes"]), failed)
        self.assert_fails(
            c.run("submit", "--after", "0" * 31 + "1", "--", "true"), 125,
            "there is no job 0000")

    def test_jobs_begin_at_their_time_and_not_before(self):
        c = self.cluster("--num-cpus", "2")
        soon = c.submit("--begin", "+1.5s", "--", "true")
        past = c.submit("--begin", "2020-01-01T00:00:00Z", "--", "true")
        far = c.submit("--begin", "+1h", "--array", "0-1", "--", "true")
        self.assertEqual(c.await_end(past)["state"], "SUCCEEDED")
        ended = c.await_end(soon)
        self.assertEqual(ended["state"], "SUCCEEDED", ended)
        self.assertGreaterEqual(ended["started_at"], ended["begin"])
        c.kill_head()
        c.start_head()
        waits = c.job(f"{far}.1")
        self.assertEqual(waits["state"], "PENDING")
        self.assertRegex(waits["reason"], r"^starts at 20\S+Z$")
        self.assertIn(waits["reason"],
                      c.run("jobs", "list").stdout)
        why = c.json("explain", far)
        self.assertEqual(why["blockers"][0]["kind"], "start_time", why)
        self.assertEqual(why["elements"],
                         [{"kind": "start_time", "count": 2,
                           "first": f"{far}.0"}])
        self.assert_fails(c.run("submit", "--begin", "+400d", "--", "true"), 2,
                          "--begin: ", "365 days")
        self.assert_fails(
            c.run("submit", "--begin", "2999-01-01T00:00:00Z", "--", "true"),
            2, "365 days")
        self.assert_fails(c.run("submit", "--begin", "noon", "--", "true"), 2,
                          "--begin: \"noon\", column 1")

    def test_hold_refuses_what_runs(self):
        c = self.cluster("--num-cpus", "1")
        job = c.submit("--", "sleep", "600")
        c.await_state(job, "RUNNING")
        self.assert_fails(c.run("jobs", "hold", job), 125, "only what waits")
        c.json("jobs", "stop", job)

    def test_lists_choose_by_label_namespace_and_state(self):
        c = self.cluster("--num-cpus", "1")
        job = c.submit("--label", "team=vision", "--namespace", "research",
                       "--priority", "7", "--comment", "the last try",
                       "--hold", "--", "true")
        other = c.submit("--", "true")
        c.await_end(other)

        def listed(*flags):
            return [each["id"] for each in c.json("jobs", "list", *flags)]

        self.assertEqual(listed("--label", "team=vision"), [job])
        self.assertEqual(listed("--namespace", "research"), [job])
        self.assertEqual(listed("--state", "SUCCEEDED"), [other])
        self.assertEqual(listed("--limit", "1"), [other])
        told = c.job(job)
        self.assertEqual(told["labels"], {"team": "vision"})
        self.assertEqual(told["priority"], 7)
        self.assertEqual(told["comment"], "the last try")

    def test_bad_flags_name_the_column(self):
        c = self.cluster()
        for flags, words in [
                (("--array", "0-9%"), "column 5"),
                (("--array", "0-999999"), "more than 100000"),
                (("--selector", "zone in a"), "column"),
                (("--after", "x:now"), "column 3"),
                (("--same", "rack", "--prefer-same", "rack"), "--prefer-same"),
                (("--time-limit", "soon"), "--time-limit")]:
            self.assert_fails(c.run("submit", *flags, "--", "true"), 2, words)


if __name__ == "__main__":
    cluster.main()
