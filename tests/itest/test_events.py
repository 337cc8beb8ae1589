"""What happened, to whom, by whom and why, through everything."""

import getpass
import json
import signal
import subprocess
import threading

import cluster
import test_http


class Events(cluster.ClusterTest):

    def events(self, c, *flags):
        done = c.run("events", "--json", *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def follow(self, c, *flags, stderr=subprocess.DEVNULL):
        """Starts `events -f`; gives its process and the list that grows."""
        process = c.popen("events", "-f", "--json", *flags, text=True,
                          stdout=subprocess.PIPE, stderr=stderr)
        seen = []

        def read():
            for line in process.stdout:
                seen.append(json.loads(line))
        reader = threading.Thread(target=read, daemon=True)
        reader.start()

        def end():
            process.kill()
            process.wait()
            reader.join()
            process.stdout.close()
        self.addCleanup(end)
        return process, seen

    def test_tells_the_story_of_a_job(self):
        c = self.cluster()
        job = c.submit("--name", "story", "--request-id", "r-7", "--", "true")
        c.await_end(job)
        story = self.events(c, "--job", job)
        self.assertEqual({event["job"] for event in story}, {job})
        first = story[0]
        self.assertEqual(
            (first["kind"], first["principal"], first["request_id"],
             first["namespace"], first["text"]),
            ("job_submitted", "cluster", "r-7", "default", "story"))
        self.assertIn("SUCCEEDED", story[-1]["text"])
        # Each but the first was caused by an event before it.
        everything = self.events(c)
        numbers = [event["number"] for event in everything]
        self.assertEqual(numbers, list(range(1, len(numbers) + 1)))
        for event in story[1:]:
            self.assertLess(event["cause"], event["number"])
            self.assertGreaterEqual(event["cause"], first["number"])
        self.assertTrue(all(event["principal"] for event in everything))
        # The same for a person.
        text = c.run("events", "--job", job, "-o", "wide").stdout.splitlines()
        self.assertEqual(len(text), len(story))
        self.assertIn("by cluster", text[0])
        self.assertIn(job, text[0])
        self.assertIn(f"(because of {story[1]['cause']})", text[1])
        short = c.run("events", "--job", job).stdout.splitlines()
        self.assertRegex(short[0], r"\d  \d\d-\d\d \d\d:\d\d:\d\d  job_submitted  "
                         f"by cluster  job {job[:8]}  story$")

    def test_says_who_stopped_a_job(self):
        c = self.cluster()
        job = c.submit("--", "sleep", "600")
        c.await_state(job, "RUNNING")
        c.run("jobs", "stop", job)
        c.await_end(job)
        asked = [event for event in self.events(c, "--job", job)
                 if event["kind"] == "job_stop_requested"]
        self.assertEqual([event["principal"] for event in asked], ["cluster"])

    def test_nil_names_nothing(self):
        c = self.cluster()
        nil = "0" * 32
        for command in (("events", "--job", nil), ("events", "--node", nil),
                        ("jobs", "list", "--array", nil)):
            self.assert_fails(c.run(*command), 125, "there is no")

    def test_filters_by_node_and_time(self):
        c = self.cluster(workers=2)
        everything = self.events(c)
        w0 = self.events(c, "--node", "w0")
        self.assertEqual([event["kind"] for event in w0], ["node_registered"])
        self.assertEqual(w0[0]["node_name"], "w0")
        self.assertEqual(w0[0]["principal"], "node/w0")
        self.assertEqual(self.events(c, "--node", w0[0]["node"]), w0)
        self.assertEqual(self.events(c, "--since", "1h"), everything)
        self.assertEqual(self.events(c, "--since", w0[0]["time"])[0]["number"],
                         w0[0]["number"])
        self.assertEqual(self.events(c, "--since", "0s"), [])

    def test_names_what_is_wrong(self):
        c = self.cluster(workers=0)
        for flags, code, word in (
                (("--since", "yesterday"), 2, "10m"),
                (("--since", "2026-11-21"), 2, "2026-11-21T10:00:00Z"),
                (("--since", ""), 2, "--since"),
                (("--since", "2999-01-01T00:00:00Z"), 2, "still to come"),
                (("--job", "zz"), 125, "zz"),
                (("--job", "f" * 32), 125, "f" * 32),
                (("-f", "--job", "f" * 32), 125, "f" * 32),
                (("--node", "f" * 32), 125, "f" * 32),
                (("--node", "nowhere"), 125, "nowhere")):
            self.assert_fails(c.run("events", *flags), code, word)
        for query, word in (("since=tomorrow", "since"), ("limit=0", "limit"),
                            ("job=zz", "job"), ("after=x", "after"),
                            ("colour=red", "colour")):
            answer = test_http.ask(c.http_address, f"/v1/events?{query}",
                                   test_http.token_of(c))
            self.assertEqual(answer.status, 400, query)
            self.assertIn(word, answer.json()["message"])
        beyond = test_http.ask(c.http_address, "/v1/events?after=1000",
                               test_http.token_of(c))
        self.assertEqual(beyond.status, 400)
        self.assertIn("1000", beyond.json()["message"])

    def test_http_shows_the_same(self):
        c = self.cluster()
        job = c.submit("--", "true")
        c.await_end(job)
        for path, flags in (("/v1/events", ()),
                            (f"/v1/events?job={job}", ("--job", job)),
                            ("/v1/events?node=w0&since=1h",
                             ("--node", "w0", "--since", "1h"))):
            answer = test_http.ask(c.http_address, path,
                                   test_http.token_of(c))
            self.assertEqual(answer.body.decode(),
                             c.run("events", "--json", *flags).stdout, path)
        page = test_http.ask(c.http_address, "/v1/events?after=1&limit=2",
                             test_http.token_of(c))
        self.assertEqual([json.loads(line)["number"]
                          for line in page.body.splitlines()], [2, 3])
        self.assertEqual(page.headers["X-Cohort-Next"], "3")

    def test_a_node_shows_what_happened_to_ranks_there(self):
        c = self.cluster("--num-cpus", "1", workers=2)
        gang = c.submit("--num-workers", "2", "--", "true")
        c.await_end(gang)
        for node in ("w0", "w1"):
            kinds = [event["kind"] for event in self.events(c, "--node", node)
                     if event["job"] == gang]
            self.assertIn("job_moved", kinds)
            self.assertIn("attempt_moved", kinds)
        alone = c.submit("--", "true")
        c.await_end(alone)
        ran = {node: [event for event in self.events(c, "--node", node)
                      if event["job"] == alone] for node in ("w0", "w1")}
        self.assertEqual(sorted(bool(events) for events in ran.values()),
                         [False, True])
        node = next(name for name, events in ran.items() if events)
        kinds = [event["kind"]
                 for event in c.json("nodes", "get", node)["history"]]
        self.assertEqual(kinds, ["node_registered"])

    def test_follow_tells_of_a_restore_and_goes_on_where_histories_part(self):
        c = self.cluster()
        said = self.sandbox.dir / "follower.err"
        with said.open("w") as errors:
            follower, seen = self.follow(c, stderr=errors)
        c.await_end(c.submit("--name", "common", "--", "true"))
        done = c.run("head", "backup", "backup", cwd=self.sandbox.dir)
        self.assertEqual(done.returncode, 0, done.stderr)
        for _ in range(3):
            lost = c.submit("--name", "lost", "--", "true")
            c.await_end(lost)
        before = self.events(c)
        cluster.until("all was seen", lambda: len(seen) == len(before))
        cursor = test_http.ask(c.http_address, "/v1/events?limit=1",
                               test_http.token_of(c)).headers
        c.kill_head()
        subprocess.run(
            [str(cluster.BIN / "cohort"), "head", "restore", "backup",
             "--state-dir", "restored"], check=True, cwd=self.sandbox.dir,
            stdout=subprocess.DEVNULL)
        c.start_head("restored")
        c.await_end(c.submit("--name", "new", "--", "true"))
        after = self.events(c)
        cluster.until("the follower came over", lambda: seen[-1] == after[-1])
        self.assertIsNone(follower.poll())
        restored = next(event for event in after
                        if event["kind"] == "store_restored")
        self.assertEqual(restored["principal"], f"user/{getpass.getuser()}")
        common = restored["number"] - 1
        self.assertEqual(before[:common], after[:common])
        self.assertEqual(seen[:len(before)], before)
        self.assertEqual(seen[len(before):], after[common:])
        self.assertIn(f"from number {restored['number']} on",
                      said.read_text())
        # Over HTTP a cursor of the old life is refused.
        path = (f"/v1/events?after={cursor['X-Cohort-Next']}&generation=" +
                cursor["X-Cohort-Generation"])
        answer = test_http.ask(c.http_address, path, test_http.token_of(c))
        self.assertGreaterEqual(answer.status, 400)
        self.assertIn("store_restored", answer.json()["message"])

    def test_follow_survives_the_head_without_losing_or_repeating_one(self):
        c = self.cluster()
        follower, seen = self.follow(c)
        for _ in range(5):
            for _ in range(3):
                c.await_end(c.submit("--", "true"))
            c.kill_head()
            c.start_head()
        c.await_end(c.submit("--name", "final", "--", "true"))

        def last_ended():
            return (seen and seen[-1]["kind"] == "job_moved"
                    and seen[-1]["text"].startswith("SUCCEEDED")
                    and sum(event["kind"] == "head_started"
                            for event in seen) == 6
                    and any(event["text"] == "final" for event in seen))
        cluster.until("the follower has seen it all", last_ended)
        numbers = [event["number"] for event in seen]
        self.assertEqual(numbers, list(range(1, len(numbers) + 1)))
        self.assertEqual(seen, self.events(c))
        follower.send_signal(signal.SIGINT)
        follower.wait(30)

    def test_follow_waits_for_what_is_asked_for(self):
        c = self.cluster()
        job = c.submit("--", "sh", "-c", "read x < fifo || sleep 600")
        c.await_state(job, "RUNNING")
        _, seen = self.follow(c, "--job", job, "--since", "0s")
        other = c.submit("--", "true")
        c.await_end(other)
        c.run("jobs", "stop", job)
        cluster.until("its end is seen", lambda: any(
            event["text"].startswith("STOPPED") for event in list(seen)))
        self.assertEqual({event["job"] for event in seen}, {job})


if __name__ == "__main__":
    cluster.main()
