"""Groups of actors: placed whole, called in slices and down a tree, restarted."""

import contextlib
import os
import signal
import subprocess

import cluster
import test_actors

PROGRAM = test_actors.BUILD / "tests" / "group-program"
STATISTIC = test_actors.BUILD / "bin" / "group_statistic"


class Groups(cluster.ClusterTest):

    def group(self, c, restart="one", max_restarts=0, cpus=0,
              dimensions=("hosts=2", "gpus=2")):
        driver = test_actors.Driver(self, c.environment(), PROGRAM)
        driver.value("create", "g", restart, max_restarts, cpus, 10,
                     *dimensions)
        return driver

    def pids(self, driver, name="g"):
        return [int(pid) for pid in driver.value("pids", name).split(",")]

    def test_the_statistic_of_the_example(self):
        done = subprocess.run(
            [STATISTIC], env=self.cluster().environment(), text=True,
            capture_output=True, timeout=cluster.DEADLINE)
        self.assertEqual(
            (done.returncode, done.stdout),
            (0, "mean 50000, deviation 28868\n"),
            done)

    def test_ranks_slices_and_reductions(self):
        driver = self.group(self.cluster(workers=2))
        self.assertEqual(driver.value("ranks", "g"), "0,1,2,3")
        self.assertEqual(
            driver.value("places", "g"),
            "hosts 0 gpus 0 next 1,hosts 0 gpus 1 next 0,"
            "hosts 1 gpus 0 next 3,hosts 1 gpus 1 next 2")
        self.assertEqual(driver.value("add", "g", 5), "15,15,15,15")
        driver.value("slice", "g", "host1", "hosts", 1, 2)
        driver.value("slice", "host1", "last", "gpus", 1, 2)
        self.assertEqual(driver.value("ranks", "host1"), "2,3")
        self.assertEqual(driver.value("ranks", "last"), "3")
        self.assertEqual(driver.value("add", "host1", 1), "16,16")
        self.assertEqual(driver.value("add-at", "host1", 1), "17")
        self.assertEqual(driver.value("add", "g", 0), "15,15,16,17")
        self.assertEqual(driver.value("each", "g", 1), "16 16 17 18")
        self.assertEqual(driver.value("sum", "g"), "6")
        self.assertEqual(driver.value("most", "host1"), "3")
        self.assertEqual(driver.value("longest", "host1"),
                         "hosts 1 gpus 0 next 3")
        self.assertEqual(driver.value("all-places", "last"),
                         "hosts 1 gpus 1 next 2")
        driver.value("slice", "g", "none", "racks", 0, 1)
        self.assertRegex(driver.ask("ranks", "none"),
                         "^INVALID_ARGUMENT - no dimension .*hosts, gpus")
        self.assertEqual(driver.quit(), 0)

    def test_down_a_tree_it_is_as_to_each(self):
        driver = self.group(self.cluster(workers=2),
                            dimensions=("hosts=2", "gpus=10"))
        ranks = ",".join(str(rank) for rank in range(20))
        self.assertEqual(driver.value("ranks", "g"), ranks)  # to each
        self.assertEqual(driver.value("ranks", "g"), ranks)
        self.assertEqual(driver.value("sum", "g"), "190")
        self.assertEqual(driver.value("most", "g"), "19")
        self.assertEqual(driver.value("all-places", "g"), "".join(
            driver.value("places", "g").split(",")))
        self.assertRegex(driver.ask("throw-at", "g", 13),
                         "^UNKNOWN exception rank 13: cannot")
        orders = driver.value("orders", "g").split(",")
        self.assertEqual(orders, ["ac" * 20] * 10 + ["a" * 20] * 9 +
                         ["ab" * 20])
        driver.value("slice", "g", "host1", "hosts", 1, 2)
        self.assertEqual(driver.value("ranks", "host1"),
                         ",".join(str(rank) for rank in range(10, 20)))

    def killed(self, c, driver, rank):
        """Kills it while all ranks run a call, and answers the call's end."""
        pipe = self.sandbox.dir / "pipe"
        os.mkfifo(pipe)
        pids = self.pids(driver)
        call = driver.value("start-wait", "g", pipe)
        job = driver.value("id", "g")
        cluster.until("the call has begun everywhere", lambda: c.logs(
            job).count("waits") == len(pids))
        os.kill(pids[rank], signal.SIGKILL)
        answer = driver.ask("wait", call)
        # Those that still wait, unless they have ended with the group.
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return answer

    def test_a_killed_rank_is_named_with_its_reason(self):
        c = self.cluster()
        driver = self.group(c)
        self.assertRegex(self.killed(c, driver, 2),
                         "^UNAVAILABLE may_have_run rank 2: .*signal 9")

    def test_a_killed_rank_of_a_tree_is_named_with_its_reason(self):
        c = self.cluster()
        driver = self.group(c, dimensions=("ranks=12",))
        self.pids(driver)
        self.assertRegex(self.killed(c, driver, 7),
                         "^UNAVAILABLE may_have_run rank 7: .*signal 9")

    def test_one_starts_the_rank_again(self):
        driver = self.group(self.cluster(), "one", max_restarts=3)
        before = self.pids(driver)
        driver.value("add", "g", 1)
        os.kill(before[1], signal.SIGKILL)
        after = cluster.until("rank 1 runs again", lambda: self.runs(
            driver, lambda pids: pids[1] != before[1]))
        self.assertEqual([after[0], *after[2:]], [before[0], *before[2:]])
        self.assertEqual(driver.value("add", "g", 0), "11,10,11,11")

    def test_all_starts_all_ranks_again(self):
        driver = self.group(self.cluster(), "all", max_restarts=3)
        before = self.pids(driver)
        driver.value("add", "g", 1)
        os.kill(before[1], signal.SIGKILL)
        cluster.until("all run again", lambda: self.runs(
            driver, lambda pids: not set(pids) & set(before)))
        self.assertEqual(driver.value("add", "g", 0), "10,10,10,10")

    def runs(self, driver, condition):
        answer = driver.ask("pids", "g")
        if not answer.startswith("ok"):
            return None
        pids = [int(pid) for pid in answer[3:].split(",")]
        return pids if condition(pids) else None

    def test_all_without_restarts_ends_the_group(self):
        c = self.cluster()
        driver = self.group(c, "all")
        os.kill(self.pids(driver)[1], signal.SIGKILL)
        c.await_state(driver.value("id", "g"), "FAILED")
        answer = cluster.until("it is over", lambda: next(
            (a for a in [driver.ask("add-at", "g", 0)]
             if a.startswith("UNAVAILABLE not_started")), None))
        self.assertIn("rank 1", answer)

    def test_none_goes_on_without_the_rank(self):
        driver = self.group(self.cluster(), "none")
        before = self.pids(driver)
        os.kill(before[1], signal.SIGKILL)
        answer = cluster.until("rank 1 is over", lambda: next(
            (a for a in [driver.ask("add", "g", 0)]
             if "not_started" in a), None))
        self.assertRegex(answer, "rank 1: .*signal 9")
        self.assertEqual(driver.value("each", "g", 1).split()[1],
                         "not_started")
        self.assertRegex(driver.value("add-at", "g", 3), "^1[0-9]$")

    def shared(self, c, count, processes=2, **options):
        """`count` actors in so many processes."""
        return self.group(c, dimensions=(
            f"ranks={count}", f"processes:{processes}"), **options)

    def test_many_share_a_process(self):
        driver = self.group(self.cluster(workers=2), dimensions=(
            "hosts=2", "gpus=10", "processes:2"))
        ranks = ",".join(str(rank) for rank in range(20))
        self.assertEqual(driver.value("ranks", "g"), ranks)  # to each
        self.assertEqual(driver.value("ranks", "g"), ranks)
        pids = self.pids(driver)
        self.assertEqual([pids[0]] * 10 + [pids[-1]] * 10, pids)
        self.assertNotEqual(pids[0], pids[-1])
        self.assertRegex(driver.value("places", "g"),
                         "hosts 1 gpus 3 next 14,")
        self.assertEqual(driver.value("sum", "g"), "190")
        self.assertEqual(driver.value("most", "g"), "19")
        self.assertEqual(driver.value("all-places", "g"), "".join(
            driver.value("places", "g").split(",")))
        self.assertEqual(driver.value("add-at", "g", 7), "11")
        self.assertEqual(driver.value("add", "g", 1).split(",")[6:9],
                         ["11", "12", "11"])
        self.assertRegex(driver.ask("throw-at", "g", 13),
                         "^UNKNOWN exception rank 13: cannot")
        orders = driver.value("orders", "g").split(",")
        self.assertEqual(orders, ["ac" * 20] * 10 + ["a" * 20] * 9 +
                         ["ab" * 20])
        # One waits for another, of its process and of the other one.
        self.assertEqual(driver.value("ask", "g", 2, 3), "3")
        self.assertEqual(driver.value("ask", "g", 2, 13), "13")
        # One that many wait for at once.
        driver.value("slice", "g", "host1", "hosts", 1, 2)
        self.assertEqual(driver.value("ranks", "host1"),
                         ",".join(str(rank) for rank in range(10, 20)))
        self.assertEqual(driver.quit(), 0)

    def test_a_thousand_in_two_processes(self):
        driver = self.shared(self.cluster(), 1000)
        self.assertEqual(driver.value("sum", "g"), str(sum(range(1000))))
        self.assertEqual(driver.value("sum", "g"), str(sum(range(1000))))
        pids = set(self.pids(driver))
        self.assertEqual(len(pids), 2)
        for pid in pids:
            self.assertLess(len(os.listdir(f"/proc/{pid}/task")), 30)
        self.assertEqual(driver.value("each", "g", 1),
                         " ".join(["11"] * 1000))

    def test_those_of_a_process_fail_and_start_again_together(self):
        c = self.cluster()
        driver = self.shared(c, 20, max_restarts=3)
        driver.value("add", "g", 1)
        pids = self.pids(driver)
        # A call waits in the first process, others behind it.
        pipe = self.sandbox.dir / "pipe"
        os.mkfifo(pipe)
        driver.value("slice", "g", "first", "ranks", 0, 10)
        call = driver.value("start-wait", "first", pipe)
        cluster.until("the call has begun", lambda: c.logs(
            driver.value("id", "g")).count("waits") == 1)
        os.kill(pids[0], signal.SIGKILL)
        self.assertRegex(driver.ask("wait", call),
                         "^UNAVAILABLE may_have_run rank [0-9]: .*signal 9")
        after = cluster.until("they run again", lambda: self.runs(
            driver, lambda now: now[0] != pids[0]))
        self.assertEqual(after, [after[0]] * 10 + [pids[19]] * 10)
        self.assertEqual(driver.value("add", "g", 0),
                         ",".join(["10"] * 10 + ["11"] * 10))

    def test_a_constructor_that_throws_fails_its_process(self):
        c = self.cluster()
        driver = test_actors.Driver(self, c.environment(), PROGRAM)
        driver.value("create", "g", "one", 0, 0, -13, "ranks=20",
                     "processes:2")
        job = driver.value("id", "g")
        c.await_state(job, "FAILED")
        self.assertRegex(driver.ask("add-at", "g", 13),
                         "(?s)^UNAVAILABLE not_started .*rank 13: .*no")

    def test_each_of_a_process_has_its_own_state(self):
        driver = test_actors.Driver(self, self.cluster().environment(), PROGRAM)
        driver.value("savers", "s")
        self.assertEqual(driver.value("save-add", 5), "5,5,5,5")
        driver.value("save", 1)
        pids = driver.value("save-pids").split(",")
        for pid in set(pids):
            os.kill(int(pid), signal.SIGKILL)
        self.assertEqual(cluster.until("they run again", lambda: next(
            (a for a in [driver.ask("save-add", 0)]
             if a.startswith("ok")), None)), "ok 0,5,0,0")

    def test_processes_that_cannot_be_say_why(self):
        driver = self.shared(self.cluster(), 2, processes=3)
        self.assertRegex(driver.ask("ranks", "g"),
                         "^INVALID_ARGUMENT - processes is 3: 2 actors")
        self.assertRegex(driver.ask("create", "h", "one", 0, 0, 1,
                                    "processes:1"),
                         "^INVALID_ARGUMENT - processes is for groups")

    def test_waits_for_room_for_all(self):
        c = self.cluster("--num-cpus", "1")
        driver = self.group(c, cpus=1, dimensions=("ranks=2",))
        job = driver.value("id", "g")
        driver.say("ranks", "g")
        said = cluster.until("it is explained", lambda: next(
            (text for text in [c.run("explain", job).stdout]
             if "CPU" in text), None))
        self.assertIn("2", said)
        self.assertEqual([rank for rank in c.job(job).get("ranks", [])
                          if rank.get("pid")], [])
        c.start_worker("w1", "--num-cpus", "1")
        self.assertEqual(driver.hear(), "ok 0,1")

    def test_ends_with_its_driver_and_by_kill(self):
        c = self.cluster()
        driver = self.group(c)
        pids = self.pids(driver)
        job = driver.value("id", "g")
        self.assertRegex(driver.ask("kill-rank", "g", 1),
                         "^INVALID_ARGUMENT .*ends as a whole")
        driver.value("slice", "g", "first", "hosts", 0, 1)
        self.assertRegex(driver.ask("kill", "first"), "^INVALID_ARGUMENT ")
        driver.value("kill", "g")
        c.await_state(job, "STOPPED")
        cluster.until("all are gone",
                      lambda: not any(cluster.alive(pid) for pid in pids))
        self.assertRegex(driver.ask("add", "g", 1), "^UNAVAILABLE not_started ")
        driver.value("create", "h", "one", 0, 0, 1, "ranks=2")
        driver.value("ranks", "h")
        job = driver.value("id", "h")
        driver.kill()
        c.await_state(job, "STOPPED", deadline=60)

    def test_is_found_by_its_name(self):
        c = self.cluster(workers=2)
        driver = self.group(c, dimensions=("hosts=2", "gpus=5", "detached"))
        driver.value("create", "alone", "one", 0, 0, 10)
        driver.value("create", "own", "one", 0, 0, 10, "ranks=2")
        self.assertEqual(driver.value("add", "g", 1), ",".join(["11"] * 10))
        other = test_actors.Driver(self, c.environment(), PROGRAM)
        other.value("find", "g")
        self.assertEqual(other.value("ranks", "g"),
                         ",".join(str(rank) for rank in range(10)))
        self.assertEqual(other.value("add", "g", 1), ",".join(["12"] * 10))
        other.value("slice", "g", "host1", "hosts", 1, 2)
        self.assertEqual(other.value("ranks", "host1"), "5,6,7,8,9")
        self.assertRegex(other.ask("find", "alone"),
                         "^FAILED_PRECONDITION wrong_kind .*alone.* an actor")
        self.assertRegex(other.ask("find", "nobody"), "^NOT_FOUND no_actor ")
        other.value("find", "own")
        self.assertEqual(driver.quit(), 0)
        # The group that is detached is there yet.
        self.assertEqual(other.value("add", "g", 1), ",".join(["13"] * 10))
        cluster.until("the other is over", lambda: "not_started" in other.ask(
            "ranks", "own"))
        self.assertRegex(other.ask("find", "own"), "^NOT_FOUND no_actor ")
        other.value("kill", "g")

    def test_a_handle_of_a_rank_outlives_its_group(self):
        c = self.cluster()
        driver = self.group(c)
        driver.value("keep", "g", 3)
        other = test_actors.Driver(self, c.environment(), PROGRAM)
        self.assertEqual(other.value("add-kept", "keeper"), "11")
        job = driver.value("id", "g")
        driver.value("kill", "g")
        c.await_state(job, "STOPPED")
        self.assertRegex(other.ask("add-kept", "keeper"),
                         "^UNAVAILABLE not_started ")
        # Nor does the head know of it any more.
        c.run("jobs", "remove", "--yes", job)
        last = test_actors.Driver(self, c.environment(), PROGRAM)
        self.assertRegex(last.ask("add-kept", "keeper"),
                         "^UNAVAILABLE not_started .*no job")

    def test_who_made_it_finds_it(self):
        driver = self.group(self.cluster())
        driver.value("find", "g")
        self.assertEqual(driver.value("add", "g", 1), "11,11,11,11")

    def test_what_cannot_be_says_why(self):
        driver = self.group(self.cluster(), dimensions=("ranks=0",))
        self.assertRegex(driver.ask("ranks", "g"),
                         "^INVALID_ARGUMENT - dimension ranks has size 0")


if __name__ == "__main__":
    cluster.main()
