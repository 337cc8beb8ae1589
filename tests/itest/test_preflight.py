"""Jobs whose ranks are tried before their command runs."""

import json
import os
import pathlib

import cluster
import test_http

TESTS = pathlib.Path(os.environ["COHORT_BIN"]).parent / "tests"
FAULT = TESTS / "libpreflight_fault.so"
RANK = TESTS / "gpu-rank"


class Preflight(cluster.ClusterTest):

    def submit(self, c, *args, workers=4, fault=None):
        flags = ["--preflight", "--num-workers", str(workers)]
        if fault:
            flags += ["--env", f"LD_PRELOAD={FAULT}",
                      "--env", f"PREFLIGHT_FAULT={fault}"]
        return c.submit(*flags, *args)

    def events(self, c, job):
        lines = c.run("events", "--json", "--job", job).stdout.splitlines()
        return [json.loads(line) for line in lines]

    def failed(self, c, job):
        def reached():
            told = [event for event in self.events(c, job)
                    if event["kind"] == "preflight_failed"]
            return told[0] if told else None
        return cluster.until("the preflight has failed", reached, 60)

    def test_a_gang_on_one_node_is_tried_then_trains(self):
        c = self.cluster("--num-cpus", "4")
        # It meets in the very arena that it would have met in without.
        job = self.submit(c, "--", str(RANK))
        ended = c.await_end(job)
        self.assertEqual(ended["state"], "SUCCEEDED",
                         (ended, c.logs(job, "--stderr")))
        self.assertEqual(c.logs(job).count("works on the host, sum 6"), 4)
        told = ended["preflight"]
        self.assertIn(told["verdict"], ("passed", "slow"))
        self.assertEqual(told["attempt"], 1)
        self.assertIn("over shared memory", told["summary"])
        report = told["report"]
        self.assertEqual(report["failed_ranks"], [])
        self.assertIn(report["slowest_pair"]["ranks"],
                      [[a, b] for a in range(4) for b in range(a + 1, 4)])
        self.assertGreater(report["slowest_pair"]["gigabytes_per_second"], 0)
        self.assertGreater(report["slowest_pair"]["usual"], 0)
        self.assertIn("preflight:", c.run("jobs", "get", job).stdout)
        kinds = [event["kind"] for event in self.events(c, job)]
        self.assertIn(f"preflight_{told['verdict']}", kinds)
        # Over HTTP the same.
        answer = test_http.ask(c.http_address, f"/v1/jobs/{job}",
                               test_http.token_of(c))
        self.assertEqual(answer.json()["preflight"], told)
        # And after the head is another one.
        c.kill_head()
        c.start_head()
        self.assertEqual(c.job(job)["preflight"], told)

    def test_a_gang_over_two_nodes_meets_over_gloo(self):
        c = self.cluster("--num-cpus", "2", "--host", "127.0.0.1", workers=2)
        job = self.submit(c, "--", str(RANK))
        ended = c.await_end(job)
        self.assertEqual(ended["state"], "SUCCEEDED",
                         (ended, c.logs(job, "--stderr")))
        self.assertEqual(c.logs(job).count("works on the host, sum 6"), 4)
        told = ended["preflight"]
        self.assertIn("over Gloo (127.0.0.1, 127.0.0.1)", told["summary"])
        self.assertEqual(len(told["report"]["slowest_pair"]["ranks"]), 2)

    def test_the_command_finds_nothing_of_it(self):
        c = self.cluster("--num-cpus", "2")
        script = ("env | grep -v -E '^(RANK|ROLE_RANK|LOCAL_RANK|COHORT_|"
                  "TORCHELASTIC_|MASTER_|PWD)' | sort; "
                  "for f in /proc/$$/fd/*; do echo fd ${f##*/}; done; "
                  "grep -E 'Sig(Blk|Ign)' /proc/self/status")
        said = []
        for flags in ((), ("--preflight",)):
            job = c.submit(*flags, "--num-workers", "2", "--", "sh", "-c",
                           script)
            self.assertEqual(c.await_end(job)["state"], "SUCCEEDED")
            self.assertEqual(c.logs(job, "--stderr"), "")
            said.append(sorted(c.logs(job).splitlines()))
        self.assertEqual(said[0], said[1])

    def test_one_rank_alone_meets_nobody(self):
        c = self.cluster()
        job = self.submit(c, "--", "sh", "-c", "exit 3", workers=1)
        ended = c.await_end(job)
        # What the command does is the command's.
        self.assertEqual((ended["exit_code"], ended["class"]), (3, "user"))
        self.assertEqual(ended["preflight"]["verdict"], "passed")
        self.assertIsNone(ended["preflight"]["report"]["slowest_pair"])
        job = self.submit(c, "--", "no-such-program", workers=1)
        ended = c.await_end(job)
        self.assertEqual((ended["exit_code"], ended["class"]), (127, "user"))
        self.assertIn('cannot run "no-such-program"', ended["stderr_tail"])

    def test_a_rank_that_stops_in_it_is_named_and_costs_nothing(self):
        c = self.cluster("--num-cpus", "3")
        job = self.submit(c, "--", "true", workers=3, fault="STOP:2")
        text = self.failed(c, job)["text"]
        self.assertIn("rank(s) 2", text)
        self.assertIn("shared memory", text)
        ended = c.await_end(job)
        # The next attempt has no such rank.
        self.assertEqual(ended["state"], "SUCCEEDED", ended)
        self.assertEqual((ended["attempt"], ended["failures"]), (2, 0))
        self.assertEqual(ended["failures_by_class"], {"infra": 1})
        self.assertEqual(ended["preflight"]["attempt"], 2)
        self.assert_no_ranks_left(c)

    def test_a_rank_that_stops_in_it_on_another_node_is_named(self):
        c = self.cluster("--num-cpus", "2", "--host", "127.0.0.1", workers=2)
        job = self.submit(c, "--", "true", workers=4, fault="STOP:3")
        text = self.failed(c, job)["text"]
        self.assertIn("rank(s) 3", text)
        ended = c.await_end(job)
        self.assertEqual((ended["state"], ended["attempt"]), ("SUCCEEDED", 2))
        self.assert_no_ranks_left(c)

    def test_a_rank_that_is_killed_in_it_is_named_and_costs_nothing(self):
        c = self.cluster("--num-cpus", "3")
        job = self.submit(c, "--", "true", workers=3, fault="KILL:1")
        text = self.failed(c, job)["text"]
        self.assertRegex(text, r"rank 1 was killed by signal 9 in it|"
                               r"local rank 1")
        ended = c.await_end(job)
        self.assertEqual((ended["state"], ended["attempt"], ended["failures"]),
                         ("SUCCEEDED", 2, 0))
        self.assertEqual(ended["failures_by_class"], {"infra": 1})

    def assert_no_ranks_left(self, c):
        cluster.until("no rank is left", lambda: not [
            pid for pid in cluster.descendants()
            if cluster.program_of(pid) == "cohort-preflight"], 10)


if __name__ == "__main__":
    cluster.main()
