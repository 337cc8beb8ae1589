"""A node that has more to say, or to be told, than one message takes."""

import cluster

TAIL = 64 << 10
FAILED = 130  # with their last words 8.1 MiB
LONG = 40  # jobs with 900 KiB of environment each: 35 MiB


class LargeSets(cluster.ClusterTest):

    def test_many_failures_with_all_their_last_words(self):
        c = self.cluster("--num-cpus", str(FAILED), node_timeout="60s")
        go, ended = self.sandbox.dir / "go", self.sandbox.dir / "ended"
        ended.mkdir()
        wait = (f"while ! test -e {go}; do sleep 1; done; "
                f"head -c {TAIL} /dev/zero | tr '\\0' x >&2; "
                f"touch {ended}/$COHORT_ARRAY_INDEX; exit 3")
        array = c.submit("--array", f"0-{FAILED - 1}", "--", "sh", "-c", wait)

        def elements(state):
            return c.json("jobs", "list", "--state", state, "--limit", "1000")
        cluster.until("all run", lambda: len(elements("RUNNING")) == FAILED)
        c.kill_head()
        go.touch()
        cluster.until("all have failed",
                      lambda: len(list(ended.iterdir())) == FAILED)
        # What the keepers recorded is what a new daemon finds.
        cluster.until("no rank is left", lambda: not [
            pid for pid in cluster.descendants()
            if not cluster.program_of(pid).startswith("cohort-")])
        c.kill_worker("w0")
        c.start_worker("w0", wait=False)
        c.start_head()
        cluster.until("all are told of",
                      lambda: len(elements("FAILED")) == FAILED)
        for index in (0, FAILED // 2, FAILED - 1):
            cluster.until("its last words are there", lambda: len(
                c.job(f"{array}.{index}")["stderr_tail"] or "") == TAIL)
        cluster.until("the node has forgotten them", lambda: not list(
            (self.sandbox.dir / "w0/keepers").iterdir()))
        job = c.submit("--", "true")
        self.assertEqual(c.await_end(job)["state"], "SUCCEEDED")

    def test_long_environments_come_back_to_a_restarted_worker(self):
        c = self.cluster("--num-cpus", str(LONG), node_timeout="60s")
        long = [flag for i in range(9)
                for flag in ("--env", f"LONG{i}={'x' * (100 << 10)}")]
        jobs = [c.submit(*long, "--", "sleep", "600") for _ in range(LONG)]
        for job in jobs:
            c.await_state(job, "RUNNING")
        c.kill_worker("w0")
        c.start_worker("w0")
        for job in jobs:
            self.assertEqual(c.job(job)["attempt"], 1)
        # It hears of changes, and so of all that came before.
        c.kill_head()
        c.start_head()
        for job in jobs:
            c.run("jobs", "stop", job)
        for job in jobs:
            self.assertEqual(c.await_end(job)["state"], "STOPPED")


if __name__ == "__main__":
    cluster.main()
