"""Jobs by their names, by the beginning of an id and by `last`; several at once."""

import json
import os
import pty
import subprocess

import cluster


class JobNames(cluster.ClusterTest):

    def submit(self, c, name, *flags):
        return c.submit("--hold", "--name", name, *flags, "--", "true")

    def found(self, c, text):
        return c.json("jobs", "get", text)["id"]

    def test_a_job_is_found_however_it_is_named(self):
        c = self.cluster()
        first = self.submit(c, "train")
        array = self.submit(c, "sweep", "--array", "0-3")
        last = self.submit(c, "eval")
        self.assertEqual(self.found(c, "train"), first)
        self.assertEqual(self.found(c, first[:10]), first)
        self.assertEqual(self.found(c, first[:10].upper()), first)
        self.assertEqual(self.found(c, "sweep"), array)
        self.assertEqual(self.found(c, array[:10] + ".2"), array + ".2")
        self.assertEqual(self.found(c, "last"), last)
        self.assertEqual(self.found(c, "last~2"), first)
        for name in ("sweep", "last~1"):
            self.assertEqual(self.found(c, f"{name}.2"), f"{array}.2")
        self.assert_fails(c.run("jobs", "get", "sweep.9"), 125, "no job")
        self.assert_fails(c.run("jobs", "get", "sweep.x"), 125, "no job sweep.x")
        # A name precedes what else the text may mean.
        dotted = self.submit(c, "sweep.2")
        self.assertEqual(self.found(c, "sweep.2"), dotted)
        c.run("jobs", "stop", dotted)
        c.run("jobs", "remove", dotted)
        after = c.submit("--hold", "--after", "train:any", "--", "true")
        spec = c.json("jobs", "get", after)
        self.assertEqual(spec["after"], [{"job": first, "kind": "any"}])
        self.assertEqual(c.run("explain", "eval").returncode, 0)
        listed = c.run("jobs", "list", "--name", "train").stdout
        self.assertIn(first[:8], listed)
        self.assertNotIn(last[:8], listed)

    def test_a_name_of_several_jobs_means_the_live_one_or_none(self):
        c = self.cluster()
        old = self.submit(c, "train")
        c.run("jobs", "stop", old)
        c.await_end(old)
        live = self.submit(c, "train")
        self.assertEqual(self.found(c, "train"), live)
        other = self.submit(c, "train")
        done = c.run("jobs", "stop", "train")
        self.assert_fails(done, 125, "names several jobs", live, other, old)
        self.assert_fails(c.run("jobs", "get", "zz"), 125, "no job")
        self.assert_fails(c.run("jobs", "get", "last~77"), 125, "no job")
        self.assert_fails(c.run("submit", "--after", "zz", "--", "true"), 125,
                          "--after", "no job")
        self.assert_fails(c.run("jobs", "get"), 2, "takes JOBs")

    def test_several_jobs_at_once(self):
        c = self.cluster()
        jobs = [self.submit(c, "a", "--label", f"n={n}") for n in range(3)]
        c.run("jobs", "stop", jobs[0], jobs[1])
        self.assertEqual([c.job(job)["state"] for job in jobs],
                         ["STOPPED", "STOPPED", "PENDING"])
        good = c.submit("--name", "good", "--", "true")
        bad = c.submit("--name", "bad", "--", "sh", "-c", "exit 3")
        self.assertEqual(c.run("jobs", "wait", good, bad, jobs[0]).returncode, 3)
        array = self.submit(c, "sweep", "--array", "0-9")
        done = c.run("jobs", "stop", "--label", "n=2", "--yes")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(c.job(jobs[2])["state"], "STOPPED")
        self.assert_fails(c.run("jobs", "stop", "--all"), 2, "1 job", "--yes")
        self.assertEqual(c.job(array)["state"], "PENDING")
        self.assertEqual(c.run("jobs", "stop", "--all", "--yes").returncode, 0)
        self.assertEqual(c.job(array)["state"], "STOPPED")

    def test_several_jobs_are_explained_and_are_a_list_in_json(self):
        c = self.cluster()
        jobs = [self.submit(c, f"job-{n}", "--label", "kind=x") for n in range(2)]
        both = c.run("explain", *jobs)
        self.assertEqual(both.returncode, 0, both.stderr)
        for job in jobs:
            self.assertIn(f"Job {job}", both.stdout)
        self.assertEqual([each["job"] for each in c.json("explain", *jobs)], jobs)
        self.assertEqual(c.json("explain", jobs[0])["job"], jobs[0])
        chosen = c.json("explain", "--label", "kind=x", "--state", "PENDING")
        self.assertEqual({each["job"] for each in chosen}, set(jobs))
        self.assert_fails(c.run("explain"), 2, "`cohort explain` takes JOBs")
        self.assertEqual([each["id"] for each in c.json("jobs", "get", *jobs)],
                         jobs)
        self.assertEqual([each["id"] for each in
                          c.json("jobs", "get", "--name", "job-1")], jobs[1:])
        self.assertEqual(c.json("jobs", "stop", *jobs),
                         [{"id": job} for job in jobs])
        ended = c.run("jobs", "wait", *jobs, "--json")
        self.assertEqual([each["state"] for each in json.loads(ended.stdout)],
                         ["STOPPED"] * 2)
        self.assertEqual(c.json("jobs", "remove", jobs[0]), {"id": jobs[0]})

    def test_a_choice_that_matches_nothing_says_so(self):
        c = self.cluster()
        old = self.submit(c, "old")
        c.run("jobs", "stop", old)
        for command in (("explain",), ("jobs", "get"), ("jobs", "wait"),
                        ("jobs", "stop")):
            done = c.run(*command, "--name", "nobody")
            self.assert_fails(done, 125, "no job has the name nobody")
            done = c.run(*command, "--name", "nobody", "--json")
            self.assertEqual((done.returncode, done.stdout), (125, "[]\n"))
            done = c.run(*command, "--label", "a=b", "--json")
            self.assertEqual((done.returncode, done.stdout), (0, "[]\n"))
            self.assertIn("no job matches --label a=b", done.stderr)
        done = c.run("jobs", "stop", "--name", "old")
        self.assertEqual(done.returncode, 0)
        self.assertIn("no job matches --name old (ended jobs do not count)",
                      done.stderr)
        done = c.run("jobs", "wait", "--all")
        self.assertEqual(done.returncode, 0)
        self.assertIn("no job matches --all", done.stderr)

    def test_a_job_that_ended_before_the_wait_counts(self):
        c = self.cluster()
        bad = c.submit("--name", "bad", "--label", "k=v", "--", "sh", "-c",
                       "exit 3")
        c.await_end(bad)
        for flags in (("--name", "bad"), ("--label", "k=v"),
                      ("--state", "FAILED")):
            done = c.run("jobs", "wait", *flags)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn(bad, done.stdout)
        self.assertEqual(c.run("jobs", "wait", "--all").returncode, 0)

    def test_no_job_is_named_as_the_newest_is(self):
        c = self.cluster()
        for name in ("last", "last~1"):
            self.assert_fails(c.run("submit", "--name", name, "--", "true"), 2,
                              f"--name {name}")

    def test_a_large_array_shows_what_runs_and_what_ended_last(self):
        c = self.cluster()
        array = self.submit(c, "sweep", "--array", "0-99")
        shown = c.run("jobs", "get", array).stdout
        self.assertIn("100: 100 PENDING", shown)
        self.assertIn("100 of 100 elements are not shown", shown)
        c.run("jobs", "stop", array)
        shown = c.run("jobs", "get", array).stdout
        self.assertIn("80 of 100 elements are not shown", shown)
        self.assertIn(f"{array[:8]}.99", shown)
        self.assertNotIn(f"{array[:8]}.0 ", shown)
        small = self.submit(c, "small", "--array", "0-4")
        shown = c.run("jobs", "get", small).stdout
        self.assertIn(f"{small[:8]}.0 ", shown)
        self.assertNotIn("not shown", shown)

    def test_what_cannot_be_held_is_passed_when_it_was_only_chosen(self):
        c = self.cluster("--num-cpus", "1")
        runs = c.submit("--", "sleep", "600")
        c.await_state(runs, "RUNNING")
        waits = c.submit("--", "true")
        self.assert_fails(c.run("jobs", "hold", runs), 125, "waits")
        held = c.run("jobs", "hold", "--all", "--yes")
        self.assertEqual(held.returncode, 0, held.stderr)
        self.assertTrue(c.job(waits)["held"])
        self.assertFalse(c.job(runs)["held"])
        # What ended before an error decides, and the error is told.
        bad = c.submit("--hold", "--", "true")
        c.run("jobs", "stop", bad)
        self.assert_fails(c.run("jobs", "wait", bad, runs, "--timeout", "1s"),
                          130, "RUNNING")

    def test_lists_fold_arrays_and_show_what_ended_last(self):
        c = self.cluster()
        array = self.submit(c, "sweep", "--array", "0-49")
        live = self.submit(c, "train")
        ended = [self.submit(c, f"old-{n}") for n in range(22)]
        c.run("jobs", "stop", *ended)
        done = c.run("jobs")
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 1 + 2 + 20, done.stdout)
        self.assertIn("50 PENDING", next(line for line in lines
                                         if line.startswith(array[:8])))
        self.assertIn("there are more", done.stderr)
        self.assertNotIn(ended[0][:8], done.stdout)
        wide = c.run("jobs", "list", "--wide", "--state", "PENDING").stdout
        self.assertIn(live, wide)
        self.assertEqual(len(c.json("jobs", "list")), 50 + 1 + 22)
        narrow = subprocess.run(
            [cluster.BIN / "cohort", "jobs"], capture_output=True, text=True,
            env={**c.environment(), "COLUMNS": "40"}, check=True).stdout
        self.assertLessEqual(max(map(len, narrow.splitlines())), 40)

    def test_last_is_the_newest_that_is_still_known(self):
        c = self.cluster()
        first, second, third = (c.submit("--", "true") for _ in range(3))
        c.run("jobs", "wait", first, second, third)
        self.assertEqual(c.run("jobs", "remove", "last").stdout,
                         f"{third} removed\n")
        self.assertEqual(self.found(c, "last"), second)
        self.assertEqual(self.found(c, "last~1"), first)
        recent = self.sandbox.dir / "user/cohort/recent-jobs"
        self.assertNotIn(third, recent.read_text())
        self.assertIn(second, recent.read_text())
        self.assert_fails(c.run("jobs", "remove", "--all"), 2, "--yes")
        self.assertEqual(c.run("jobs", "remove", "--all", "--yes").returncode, 0)
        self.assert_fails(c.run("jobs", "get", "last"), 125, "you have submitted none to ")
        self.assertEqual(recent.read_text(), "")
        # Of none nobody is asked.
        self.assertEqual(c.run("jobs", "remove", "--all").returncode, 0)

    def test_misspelt_words_get_a_hint(self):
        c = self.cluster()
        self.assert_fails(c.run("job", "list"), 2, "did you mean jobs?")
        self.assert_fails(c.run("hlep"), 2, "did you mean help?")
        self.assert_fails(c.run("worker", "--nmae", "x"), 2,
                          "did you mean --name?")
        self.assert_fails(c.run("jobs", "lsit"), 2, "did you mean list?")
        self.assert_fails(c.run("jobs", "list", "--lable", "a=b"), 2,
                          "did you mean --label?")
        helped = c.run("help", "jobs", "list")
        self.assertEqual(helped.stdout, c.run("jobs", "list", "--help").stdout)
        self.assertEqual(c.run("--version").stdout, c.run("version").stdout)

    def test_on_a_terminal_stop_all_asks(self):
        c = self.cluster()
        job = self.submit(c, "a")
        others = [self.submit(c, f"other-{n}") for n in range(11)]
        for answer, state in ((b"n\n", "PENDING"), (b"y\n", "STOPPED")):
            ours, theirs = pty.openpty()
            os.write(ours, answer)
            done = subprocess.run(
                [cluster.BIN / "cohort", "jobs", "stop", "--all"],
                env=c.environment(), stdin=theirs, capture_output=True,
                timeout=cluster.DEADLINE, check=False)
            os.close(theirs)
            os.close(ours)
            self.assertIn(b"12 jobs are chosen", done.stderr)
            self.assertIn(others[10][:8].encode(), done.stderr)
            self.assertNotIn(others[0][:8].encode(), done.stderr)
            self.assertIn(b"and 2 more\ngo on? [y/N]", done.stderr)
            self.assertEqual(c.job(job)["state"], state)

    def test_a_closed_output_is_named_before_anything_is_sent(self):
        c = self.cluster()
        def closed(*args):
            done = subprocess.run(
                ["sh", "-c", 'exec "$0" "$@" >&-', cluster.BIN / "cohort", *args],
                env=c.environment(), stderr=subprocess.PIPE, text=True,
                timeout=cluster.DEADLINE, check=False)
            self.assertEqual(done.returncode, 125)
            self.assertIn("standard output is closed", done.stderr)
        closed("jobs")
        closed("submit", "--", "true")
        self.assertEqual(c.json("jobs", "list"), [])
        # A reader that went away ends it quietly; a full disk does not.
        done = subprocess.run(
            ["bash", "-c", '"$0" jobs | true; echo "${PIPESTATUS[0]}"',
             cluster.BIN / "cohort"], env=c.environment(), capture_output=True,
            text=True, timeout=cluster.DEADLINE, check=False)
        self.assertIn(done.stdout, ("141\n", "0\n"))
        self.assertEqual(done.stderr, "")
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run(
                [cluster.BIN / "cohort", "submit", "--hold", "--", "true"],
                env=c.environment(), stdout=full, stderr=subprocess.PIPE,
                text=True, timeout=cluster.DEADLINE, check=False)
        self.assertEqual(done.returncode, 125)
        self.assertIn(f"job {self.found(c, 'last')} is submitted: ", done.stderr)


if __name__ == "__main__":
    cluster.main()
