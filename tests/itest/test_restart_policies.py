"""Jobs whose ranks start again one by one, or not at all, and that change size."""

import contextlib
import json
import os
import pathlib
import signal

import cluster

TRAINER = pathlib.Path(os.environ["COHORT_BIN"]) / "logistic"

# What a rank notes down of itself: its rank and when it started.
NOTE = "echo $RANK $(date +%s.%N) >>{starts}; "


class PolicyTest(cluster.ClusterTest):
    """What both kinds of tests below ask."""

    def ranks(self, c, job):
        return {rank["rank"]: rank for rank in c.job(job)["ranks"]}

    def running(self, c, job, count):
        """Its ranks by number, once exactly so many run."""
        def reached():
            now = c.job(job)
            # As long as its ranks come and go, it runs.
            self.assertIn(now["state"], ("PENDING", "STARTING", "RUNNING"), now)
            ranks = {rank["rank"]: rank for rank in now["ranks"]
                     if rank["state"] == "RUNNING" and rank["pid"]}
            return ranks if set(ranks) == set(range(count)) else None
        return cluster.until(f"{count} ranks of {job} run", reached)

    def replaced(self, c, job, rank, old):
        """That rank, once it runs as another process than `old`."""
        def reached():
            now = self.ranks(c, job).get(rank)
            return now if (now and now["state"] == "RUNNING" and now["pid"] and
                           now["pid"] != old["pid"]) else None
        return cluster.until(f"rank {rank} of {job} runs again", reached)

    def assert_untouched(self, before, after, ranks):
        for rank in ranks:
            for key in ("pid", "incarnation", "node", "failures"):
                self.assertEqual(after[rank][key], before[rank][key],
                                 (rank, key))
            self.assertTrue(cluster.alive(before[rank]["pid"]), rank)

    def starts(self):
        """The times at which each rank has started, by rank."""
        times = {}
        with contextlib.suppress(FileNotFoundError):
            for line in (self.sandbox.dir / "starts").read_text().splitlines():
                rank, time = line.split()
                times.setdefault(int(rank), []).append(float(time))
        return times

    def script(self, text):
        """A command that notes down its start and goes on with `text`."""
        return ("sh", "-c",
                NOTE.format(starts=self.sandbox.dir / "starts") + text)

    def gate(self):
        """A file that ranks wait for, and the shell's words for that."""
        gate = self.sandbox.dir / "gate"
        return gate, f"while ! test -e {gate}; do sleep 0.05; done; "


class RestartPolicies(PolicyTest):

    def test_one_replaces_the_rank_alone(self):
        c = self.cluster("--num-cpus", "4")
        job = c.submit("--num-workers", "3", "--restart", "one",
                       "--retry-delay", "0s", "--", "sleep", "600")
        before = self.running(c, job, 3)
        epoch = c.job(job)["epoch"]
        incarnations = {rank["incarnation"] for rank in before.values()}
        self.assertEqual(len(incarnations), 3)
        os.kill(before[1]["pid"], signal.SIGKILL)
        again = self.replaced(c, job, 1, before[1])
        now = c.job(job)
        self.assertEqual((now["state"], now["attempt"], now["restart"]),
                         ("RUNNING", 1, "one"))
        self.assertGreater(now["epoch"], epoch)
        self.assertGreater(again["incarnation"], max(incarnations))
        self.assertEqual(again["failures"], 1)
        self.assert_untouched(before, self.ranks(c, job), (0, 2))
        # What a process keeps for life is of the membership that it began with.
        env = cluster.environment_of(again["pid"])
        self.assertEqual(
            (env["RANK"], env["WORLD_SIZE"], env["COHORT_SLOT"],
             env["COHORT_INCARNATION"], env["COHORT_EPOCH"]),
            ("1", "3", "1", str(again["incarnation"]), str(now["epoch"])))
        self.assertEqual(c.run("jobs", "stop", job).returncode, 0)
        self.assertEqual(c.await_end(job)["state"], "STOPPED")
        cluster.until("its ranks are gone", lambda: not any(
            cluster.alive(rank["pid"]) for rank in (before[0], before[2],
                                                    again)))

    def test_a_spent_budget_of_one_rank_ends_the_job(self):
        c = self.cluster("--num-cpus", "4")
        gate, wait = self.gate()
        job = c.submit("--num-workers", "3", "--restart", "one",
                       "--max-failures", "2", "--retry-delay", "0s", "--",
                       *self.script("test $RANK = 1 || exec sleep 600; " +
                                    wait + "echo oops >&2; exit 3"))
        before = self.running(c, job, 3)
        gate.touch()
        ended = c.await_end(job)
        self.assertEqual((ended["state"], ended["exit_code"],
                          ended["class"], ended["attempt"]),
                         ("FAILED", 3, "user", 1))
        self.assertEqual({rank: len(times) for rank, times in
                          self.starts().items()}, {0: 1, 1: 3, 2: 1})
        self.assertEqual(self.ranks(c, job)[1]["failures"], 3)
        self.assertEqual(c.run("jobs", "wait", job).returncode, 3)
        self.assertEqual(
            cluster.until("its last words are there",
                          lambda: c.job(job)["stderr_tail"]), "oops\n")
        for follow in ((), ("-f",)):
            self.assertEqual(c.logs(job, "--stderr", "--rank", "1", *follow),
                             "[1] oops\n" * 3)
        for rank in (0, 2):
            cluster.until(f"rank {rank} is gone", lambda rank=rank: not
                          cluster.alive(before[rank]["pid"]))

    def test_budgets_are_of_each_rank(self):
        c = self.cluster("--num-cpus", "4")
        # Each rank fails twice: six failures that each of them may have.
        job = c.submit(
            "--num-workers", "3", "--restart", "one", "--max-failures", "2",
            "--retry-delay", "0s", "--",
            *self.script(f"test $(grep -c ^$RANK {self.sandbox.dir}/starts) "
                         "-ge 3 || exit 3"))
        ended = c.await_end(job)
        self.assertEqual((ended["state"], ended["attempt"]), ("SUCCEEDED", 1))
        self.assertEqual({rank: len(times) for rank, times in
                          self.starts().items()}, {0: 3, 1: 3, 2: 3})
        self.assertEqual([rank["failures"] for rank in ended["ranks"]],
                         [2, 2, 2])

    def test_one_goes_on_without_a_budget(self):
        c = self.cluster()
        job = c.submit(
            "--num-workers", "2", "--restart", "one", "--retry-delay", "0s",
            "--", *self.script(
                f"test $RANK = 0 || test $(grep -c ^1 {self.sandbox.dir}/"
                "starts) -ge 6 || exit 3; exec sleep 600"))
        cluster.until("rank 1 has started six times",
                      lambda: len(self.starts().get(1, ())) == 6)
        now = self.running(c, job, 2)
        self.assertEqual((now[0]["failures"], now[1]["failures"]), (0, 5))
        self.assertEqual(len(self.starts()[0]), 1)
        self.assertEqual(c.job(job)["attempt"], 1)

    def test_a_rank_has_a_back_off_of_its_own(self):
        c = self.cluster("--num-cpus", "4")
        # Rank 2 ends once and has the first wait, whatever rank 1 has had.
        job = c.submit(
            "--num-workers", "3", "--restart", "one", "--retry-delay", "1s",
            "--", *self.script(
                f"count() {{ grep -c ^$1 {self.sandbox.dir}/starts; }}; "
                "test $RANK = 1 && test $(count 1) -lt 3 && exit 3; "
                "test $RANK = 2 && test $(count 2) -lt 2 && { "
                "while test $(count 1) -lt 3; do sleep 0.05; done; exit 3; }; "
                "exec sleep 600"))
        cluster.until("both have started again", lambda: (
            len(self.starts().get(1, ())), len(self.starts().get(2, ()))) ==
                      (3, 2))
        one, two = self.starts()[1], self.starts()[2]
        self.assertGreaterEqual(one[1] - one[0], 1)
        self.assertGreaterEqual(one[2] - one[1], 2)
        self.assertGreaterEqual(two[1] - one[2], 1)
        self.assertLess(two[1] - one[2], 4)
        after = self.running(c, job, 3)
        self.assertEqual([after[rank]["failures"] for rank in range(3)],
                         [0, 2, 1])

    def test_none_lets_the_others_end(self):
        c = self.cluster("--num-cpus", "4")
        gate, wait = self.gate()
        job = c.submit("--num-workers", "3", "--restart", "none", "--",
                       *self.script("test $RANK = 1 && exit 7; " + wait))
        cluster.until("rank 1 has ended", lambda: self.ranks(c, job).get(
            1, {}).get("state") == "EXITED")
        pids = cluster.until("the others run", lambda: (
            lambda now: now if set(now) == {0, 2} else None)(c.rank_pids(job)))
        self.assertEqual(c.job(job)["state"], "RUNNING")
        self.assertTrue(all(cluster.alive(pid) for pid in pids.values()))
        gate.touch()
        ended = c.await_end(job)
        self.assertEqual((ended["state"], ended["exit_code"],
                          ended["class"], ended["attempt"]),
                         ("FAILED", 7, "user", 1))
        self.assertEqual([rank["exit_code"] for rank in ended["ranks"]],
                         [0, 7, 0])
        self.assertEqual({rank: len(times) for rank, times in
                          self.starts().items()}, {0: 1, 1: 1, 2: 1})
        self.assertEqual(c.run("jobs", "wait", job).returncode, 7)

    def test_none_succeeds_when_all_do(self):
        c = self.cluster("--num-cpus", "4")
        done = c.run("submit", "--wait", "--num-workers", "3", "--restart",
                     "none", "--", "true")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_exit_0_completes_a_rank(self):
        c = self.cluster("--num-cpus", "4")
        gate, wait = self.gate()
        job = c.submit("--num-workers", "3", "--restart", "one",
                       "--retry-delay", "0s", "--",
                       *self.script("test $RANK = 0 && exit 0; " + wait))
        cluster.until("rank 0 has ended", lambda: self.ranks(c, job).get(
            0, {}).get("state") == "EXITED")
        pids = cluster.until("the others run", lambda: (
            lambda now: now if set(now) == {1, 2} else None)(c.rank_pids(job)))
        before = self.ranks(c, job)
        os.kill(pids[1], signal.SIGKILL)
        self.replaced(c, job, 1, before[1])
        now = self.ranks(c, job)
        self.assertEqual((now[0]["state"], now[0]["exit_code"],
                          now[0]["incarnation"]),
                         ("EXITED", 0, before[0]["incarnation"]))
        self.assert_untouched(before, now, (2,))
        self.assertEqual(c.job(job)["state"], "RUNNING")
        gate.touch()
        ended = c.await_end(job)
        self.assertEqual((ended["state"], ended["attempt"]), ("SUCCEEDED", 1))
        self.assertEqual({rank: len(times) for rank, times in
                          self.starts().items()}, {0: 1, 1: 2, 2: 1})

    def test_a_node_has_more_ranks_than_share_an_arena(self):
        c = self.cluster("--num-cpus", "2")
        size = ("--num-workers", "100", "--cpus", "0.02")
        gang = c.submit(*size, "--", "true")
        self.assertEqual(c.job(gang)["state"], "PENDING")
        c.run("jobs", "stop", gang)
        gate, wait = self.gate()
        job = c.submit(*size, "--restart", "none", "--",
                       *self.script(wait + "echo rank $RANK"))
        before = self.running(c, job, 100)
        self.assertEqual(len({rank["node"] for rank in before.values()}), 1)
        self.assertEqual(
            {cluster.environment_of(rank["pid"])["LOCAL_RANK"]
             for rank in before.values()}, {str(n) for n in range(100)})
        # Its worker takes all of them over.
        c.kill_worker("w0")
        c.start_worker("w0")
        self.assert_untouched(before, self.running(c, job, 100), range(100))
        gate.touch()
        ended = c.await_end(job)
        self.assertEqual(ended["state"], "SUCCEEDED", ended)
        self.assertEqual(set(self.starts()), set(range(100)))
        self.assertEqual(
            sorted(line.split()[-1] for line in c.logs(job).splitlines()),
            sorted(str(n) for n in range(100)))

    def test_a_lost_node_moves_its_ranks_and_charges_nobody(self):
        self.lose_a_node("one", "--max-failures", "0")

    def test_a_lost_node_moves_them_under_none_too(self):
        self.lose_a_node("none")

    def lose_a_node(self, policy, *flags):
        c = self.cluster("--num-cpus", "2", workers=2, node_timeout="2s")
        node = {each["name"]: each["id"] for each in c.json("nodes")}
        job = c.submit("--num-workers", "2", "--strategy", "SPREAD",
                       "--restart", policy, *flags, "--", "sleep", "600")
        before = self.running(c, job, 2)
        self.assertEqual({rank["node"] for rank in before.values()},
                         set(node.values()))
        [moved] = [rank for rank in before
                   if before[rank]["node"] == node["w1"]]
        keeper = cluster.parent(before[moved]["pid"])
        self.assertEqual(cluster.program_of(keeper), "cohort-keeper")
        c.kill_worker("w1")
        os.kill(keeper, signal.SIGKILL)
        again = self.replaced(c, job, moved, before[moved])
        self.assertEqual((again["node"], again["failures"]), (node["w0"], 0))
        self.assertGreater(again["incarnation"],
                           max(rank["incarnation"] for rank in
                               before.values()))
        self.assert_untouched(before, self.ranks(c, job), (1 - moved,))
        # A node that is back begins nothing of what it has lost.
        c.start_worker("w1")
        cluster.until("the node is back", lambda: c.json(
            "nodes", "get", "w1")["state"] == "ALIVE")
        cluster.until("nothing is left there", lambda: not c.json(
            "nodes", "get", "w1")["held"])
        now = c.job(job)
        self.assertEqual((now["state"], now["attempt"], now["failures"]),
                         ("RUNNING", 1, 0))
        self.assertEqual(self.ranks(c, job)[moved]["pid"], again["pid"])

    def test_a_drained_node_moves_its_ranks_and_charges_nobody(self):
        c = self.cluster("--num-cpus", "2", workers=2)
        node = {each["name"]: each["id"] for each in c.json("nodes")}
        job = c.submit("--num-workers", "2", "--strategy", "SPREAD",
                       "--restart", "one", "--max-failures", "0", "--",
                       "sleep", "600")
        before = self.running(c, job, 2)
        [moved] = [rank for rank in before
                   if before[rank]["node"] == node["w1"]]
        c.json("drain", "w1", "--deadline", "1s")
        again = self.replaced(c, job, moved, before[moved])
        self.assertEqual((again["node"], again["failures"]), (node["w0"], 0))
        self.assert_untouched(before, self.ranks(c, job), (1 - moved,))
        cluster.until("the node is drained", lambda: c.json(
            "nodes", "get", "w1")["state"] == "DRAINED")
        self.assertEqual(c.job(job)["attempt"], 1)

    def test_a_back_off_outlives_the_head(self):
        c = self.cluster()
        job = c.submit("--num-workers", "2", "--restart", "one",
                       "--retry-delay", "5s", "--",
                       *self.script("exec sleep 600"))
        before = self.running(c, job, 2)
        os.kill(before[1]["pid"], signal.SIGKILL)
        cluster.until("the head knows of it", lambda: self.ranks(c, job)[1][
            "state"] != "RUNNING")
        c.kill_head()
        self.assertEqual(len(self.starts()[1]), 1)
        c.start_head()
        again = self.replaced(c, job, 1, before[1])
        self.assertGreater(again["incarnation"],
                           max(rank["incarnation"] for rank in
                               before.values()))
        self.assertEqual(again["failures"], 1)
        now = c.job(job)
        self.assertEqual((now["state"], now["attempt"]), ("RUNNING", 1))
        self.assert_untouched(before, self.ranks(c, job), (0,))
        self.assertEqual(len(self.starts()[1]), 2)

    def test_a_restarted_worker_adopts_them(self):
        c = self.cluster("--num-cpus", "4", node_timeout="60s")
        job = c.submit("--num-workers", "3", "--restart", "one",
                       "--retry-delay", "0s", "--", "sleep", "600")
        first = self.running(c, job, 3)
        # So that its keeper was given processes more than once.
        os.kill(first[1]["pid"], signal.SIGKILL)
        self.replaced(c, job, 1, first[1])
        before, epoch = self.running(c, job, 3), c.job(job)["epoch"]
        c.kill_worker("w0")
        c.start_worker("w0")
        self.assert_untouched(before, self.running(c, job, 3), range(3))
        self.assertEqual(c.job(job)["epoch"], epoch)
        # And is their daemon: it tells how they end, and begins the next ones.
        os.kill(before[2]["pid"], signal.SIGKILL)
        again = self.replaced(c, job, 2, before[2])
        self.assertEqual(again["failures"], 1)
        self.assert_untouched(before, self.ranks(c, job), (0, 1))

    def test_one_that_ends_while_its_worker_is_away_is_replaced(self):
        c = self.cluster(node_timeout="60s")
        job = c.submit("--num-workers", "2", "--restart", "one",
                       "--retry-delay", "0s", "--", "sleep", "600")
        before = self.running(c, job, 2)
        c.kill_worker("w0")
        os.kill(before[0]["pid"], signal.SIGKILL)
        c.start_worker("w0")
        again = self.replaced(c, job, 0, before[0])
        self.assertEqual(again["failures"], 1)
        self.assert_untouched(before, self.ranks(c, job), (1,))

    def test_trainers_refuse_them(self):
        c = self.cluster("--num-cpus", "2")
        for policy, flags in (("one", ("--max-failures", "0")), ("none", ())):
            job = c.submit("--num-workers", "2", "--restart", policy, *flags,
                           "--", TRAINER)
            ended = c.await_end(job)
            self.assertEqual((ended["state"], ended["exit_code"],
                              ended["class"]), ("FAILED", 1, "user"), ended)
            self.assertIn(
                f'logistic: restart policy "{policy}" is not supported by trainers '
                "yet (submit with --restart all, or run a plain command)",
                c.logs(job, "--stderr"))

    def test_bad_words_are_refused(self):
        c = self.cluster()
        self.assert_fails(c.run("submit", "--restart", "some", "--", "true"),
                          2, "--restart", "all, one, none")


class Resize(PolicyTest):

    def resize(self, c, job, count):
        done = c.run("jobs", "resize", job, count)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(c.job(job)["num_workers"], count)

    def test_a_job_grows_beside_what_runs(self):
        c = self.cluster("--num-cpus", "4")
        for policy in ("one", "none"):
            job = c.submit("--num-workers", "2", "--restart", policy, "--",
                           "sleep", "600")
            before, epoch = self.running(c, job, 2), c.job(job)["epoch"]
            self.resize(c, job, 4)
            after = self.running(c, job, 4)
            self.assert_untouched(before, after, (0, 1))
            now = c.job(job)
            self.assertEqual((now["state"], now["attempt"]), ("RUNNING", 1))
            self.assertGreater(now["epoch"], epoch)
            env = cluster.environment_of(after[3]["pid"])
            self.assertEqual((env["RANK"], env["WORLD_SIZE"]), ("3", "4"))
            # The same again changes nothing.
            self.resize(c, job, 4)
            self.assertEqual(c.job(job)["epoch"], now["epoch"])
            c.run("jobs", "stop", job)
            self.assertEqual(c.await_end(job)["state"], "STOPPED")

    def test_a_job_shrinks_from_its_end(self):
        c = self.cluster("--num-cpus", "4")
        told = self.sandbox.dir / "told"
        job = c.submit(
            "--num-workers", "4", "--restart", "one", "--", "sh", "-c",
            f"trap 'echo $RANK >>{told}; exit 1' TERM; "
            "while :; do sleep 0.05; done")
        before, epoch = self.running(c, job, 4), c.job(job)["epoch"]
        self.resize(c, job, 2)
        for rank in (2, 3):
            cluster.until(f"rank {rank} is gone", lambda rank=rank: not
                          cluster.alive(before[rank]["pid"]))
        after = self.running(c, job, 2)
        self.assertEqual(sorted(told.read_text().split()), ["2", "3"])
        self.assert_untouched(before, after, (0, 1))
        now = c.job(job)
        # Who was told to go has not failed.
        self.assertEqual((now["state"], now["attempt"], now["failures"],
                          now["failures_by_class"]), ("RUNNING", 1, 0, {}))
        self.assertGreater(now["epoch"], epoch)
        cluster.until("what they held is free", lambda: c.json("resources")[
            "available"]["CPU"] == 2)
        # A slot that comes back has a process of its own.
        self.resize(c, job, 3)
        again = self.running(c, job, 3)
        self.assert_untouched(before, again, (0, 1))
        self.assertGreater(again[2]["incarnation"],
                           max(rank["incarnation"] for rank in
                               before.values()))

    def test_ranks_without_room_wait_together(self):
        c = self.cluster("--num-cpus", "4")
        job = c.submit("--num-workers", "2", "--restart", "one", "--",
                       "sleep", "600")
        before = self.running(c, job, 2)
        self.resize(c, job, 6)
        blockers = cluster.until("it is told why they wait", lambda: c.json(
            "explain", job)["blockers"])
        self.assertIn("resources", [each["kind"] for each in blockers])
        self.assertIn("CPU", c.run("explain", job).stdout)
        fewer, more = c.json("explain", job)["changes"]
        self.assertEqual((fewer["text"], fewer["how"]),
                         ("ranks 2 to 3: 4 workers instead of 6",
                          f"cohort jobs resize {job} 4"))
        self.assertIn("ranks 2 to 5: 1 more node like w0 (", more["text"])
        # There is room for two of the four: none of them runs.
        self.assertEqual(c.json("resources")["available"]["CPU"], 2)
        self.assertEqual(c.job(job)["state"], "RUNNING")
        self.assertEqual(set(c.rank_pids(job)), {0, 1})
        # One that is replaced meanwhile does not wait for them.
        os.kill(before[0]["pid"], signal.SIGKILL)
        before[0] = self.replaced(c, job, 0, before[0])
        self.assertEqual(set(c.rank_pids(job)), {0, 1})
        c.start_worker("w1", "--num-cpus", "4")
        self.assert_untouched(before, self.running(c, job, 6), (0, 1))
        self.assertEqual(c.json("explain", job)["blockers"], [])

    def test_ranks_that_wait_are_taken_back(self):
        c = self.cluster("--num-cpus", "2")
        job = c.submit("--num-workers", "2", "--restart", "one", "--",
                       "sleep", "600")
        before = self.running(c, job, 2)
        self.resize(c, job, 4)
        cluster.until("it is told why they wait",
                      lambda: c.json("explain", job)["blockers"])
        self.resize(c, job, 2)
        cluster.until("nothing waits",
                      lambda: not c.json("explain", job)["blockers"])
        c.start_worker("w1", "--num-cpus", "2")
        other = c.submit("--num-workers", "2", "--", "true")
        self.assertEqual(c.await_end(other)["state"], "SUCCEEDED")
        self.assert_untouched(before, self.running(c, job, 2), (0, 1))

    def test_a_size_outlives_the_head(self):
        c = self.cluster("--num-cpus", "4")
        job = c.submit("--num-workers", "2", "--restart", "one", "--",
                       "sleep", "600")
        before = self.running(c, job, 2)
        self.resize(c, job, 6)
        c.kill_head()
        c.start_head()
        self.assertEqual(c.job(job)["num_workers"], 6)
        c.start_worker("w1", "--num-cpus", "4")
        self.assert_untouched(before, self.running(c, job, 6), (0, 1))

    def test_who_waits_starts_with_its_new_size(self):
        c = self.cluster("--num-cpus", "4")
        job = c.submit("--hold", "--restart", "none", "--", *self.script(""))
        self.resize(c, job, 3)
        self.assertEqual(c.run("jobs", "release", job).returncode, 0)
        self.assertEqual(c.await_end(job)["state"], "SUCCEEDED")
        self.assertEqual(set(self.starts()), {0, 1, 2})

    def test_ranks_that_are_complete_stay_so(self):
        c = self.cluster("--num-cpus", "4")
        job = c.submit("--num-workers", "2", "--restart", "one", "--",
                       *self.script("test $RANK = 0 && exit 0; "
                                    "exec sleep 600"))
        before = cluster.until("rank 0 is complete", lambda: (
            lambda ranks: ranks if ranks and
            ranks[0]["state"] == "EXITED" and ranks[1]["state"] == "RUNNING"
            else None)(self.ranks(c, job)))
        self.resize(c, job, 3)
        after = cluster.until("rank 2 runs", lambda: (
            lambda ranks: ranks if 2 in ranks and
            ranks[2]["state"] == "RUNNING" else None)(self.ranks(c, job)))
        self.assert_untouched(before, after, (1,))
        # Without those that are not complete, the job is.
        self.resize(c, job, 1)
        self.assertEqual(c.await_end(job)["state"], "SUCCEEDED")
        self.assertEqual(len(self.starts()[0]), 1)

    def test_what_cannot_be_resized_is_refused(self):
        c = self.cluster()
        gang = c.submit("--num-workers", "2", "--", "sleep", "600")
        before = self.running(c, gang, 2)
        self.assert_fails(c.run("jobs", "resize", gang, "1"), 125, gang,
                          "--restart")
        self.assert_untouched(before, self.running(c, gang, 2), (0, 1))
        self.assertEqual(c.job(gang)["num_workers"], 2)
        c.run("jobs", "stop", gang)
        c.await_end(gang)
        ended = c.submit("--restart", "one", "--", "true")
        self.assertEqual(c.await_end(ended)["state"], "SUCCEEDED")
        self.assert_fails(c.run("jobs", "resize", ended, "3"), 125, ended,
                          "has ended")
        done = c.run("jobs", "resize", ended, "3", "--json")
        self.assertEqual(json.loads(done.stderr)["code"],
                         "FAILED_PRECONDITION")
        self.assert_fails(c.run("jobs", "resize", "0" * 31 + "1", "3"), 125,
                          "no job")
        for size in ("0", "-1", "many", "1000000"):
            self.assertEqual(c.run("jobs", "resize", ended, size).returncode,
                             2, size)


if __name__ == "__main__":
    cluster.main()
