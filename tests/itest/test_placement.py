"""Who runs where: simulated GPUs, fractions, jobs that wait."""

import cluster

SHOW = ("sh", "-c", "echo =$CUDA_VISIBLE_DEVICES=; sleep 600")


class Placement(cluster.ClusterTest):

    def visible(self, c, job, rank=0):
        line = cluster.until("it wrote", lambda: c.logs(job, "--rank", rank))
        return line.strip().rpartition("] ")[2].strip("=")

    def gpu_ids(self, c, job):
        return [rank["gpu_ids"] for rank in c.job(job)["ranks"]]

    def test_a_rank_sees_exactly_its_gpus(self):
        c = self.cluster("--num-cpus", "8", "--simulate-gpus", "4")
        known = {device["id"] for device in c.json("nodes")[0]["devices"]}
        self.assertEqual(len(known), 4)
        two = c.submit("--num-workers", "2", "--gpus", "2", "--", *SHOW)
        c.await_state(two, "RUNNING")
        ids = self.gpu_ids(c, two)
        self.assertEqual(set(ids[0] + ids[1]), known)
        for rank in (0, 1):
            self.assertEqual(len(ids[rank]), 2)
            self.assertEqual(self.visible(c, two, rank), ",".join(ids[rank]))
        none = c.submit("--", *SHOW)
        c.await_state(none, "RUNNING")
        self.assertEqual(self.visible(c, none), "")
        self.assertEqual(self.gpu_ids(c, none), [[]])
        self.assertEqual(c.json("resources")["available"]["GPU"], 0)
        self.assertEqual(c.json("resources")["total"]["GPU"], 4)

    def test_a_stock_script_opens_the_gpu_of_its_local_rank(self):
        # What torch.device("cuda", LOCAL_RANK) is to it, from what it sees; its
        # own by what was granted.
        opens = """
import os
visible = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
opened = visible[int(os.environ["LOCAL_RANK"])]
assert opened == os.environ["COHORT_GPU_IDS"], (opened, visible)
print(opened, len(visible))
"""
        c = self.cluster("--num-cpus", "8", "--simulate-gpus", "4", workers=2)
        job = c.submit("--num-workers", "6", "--use-gpu", "--", "python3",
                       "-c", opens)
        self.assertEqual(c.await_end(job)["state"], "SUCCEEDED",
                         c.logs(job, "--stderr"))
        ranks = c.job(job)["ranks"]
        for rank in ranks:
            siblings = sum(r["node"] == rank["node"] for r in ranks)
            self.assertIn(f"{rank['gpu_ids'][0]} {siblings}",
                          c.logs(job, "--rank", rank["rank"]))

    def test_isolated_ranks_see_their_own_gpu_alone(self):
        c = self.cluster("--num-cpus", "8", "--simulate-gpus", "4")
        job = c.submit("--num-workers", "3", "--use-gpu", "--isolate-gpus",
                       "--", *SHOW)
        c.await_state(job, "RUNNING")
        for rank, ids in enumerate(self.gpu_ids(c, job)):
            self.assertEqual(self.visible(c, job, rank), ids[0])

    def test_fractions_share_a_gpu(self):
        c = self.cluster("--num-cpus", "8", "--simulate-gpus", "1")
        halves = [c.submit("--gpus", "0.5", "--", *SHOW) for _ in range(3)]
        for half in halves[:2]:
            c.await_state(half, "RUNNING")
        device = c.json("nodes")[0]["devices"][0]["id"]
        self.assertEqual(self.visible(c, halves[0]), device)
        self.assertEqual(self.visible(c, halves[1]), device)
        self.assertEqual(c.job(halves[2])["state"], "PENDING")
        c.run("jobs", "stop", halves[0])
        c.await_state(halves[2], "RUNNING")

    def test_a_release_wakes_who_waits(self):
        c = self.cluster("--num-cpus", "2")
        first = c.submit("--cpus", "2", "--", "sleep", "600")
        c.await_state(first, "RUNNING")
        gang = c.submit("--num-workers", "2", "--", "true")
        waiting = c.job(gang)
        self.assertEqual(waiting["state"], "PENDING")
        self.assertIn("CPU", waiting["reason"])
        self.assertTrue(all(rank["state"] == "PENDING"
                            for rank in waiting["ranks"]))
        c.run("jobs", "stop", first)
        self.assertEqual(c.await_end(gang)["state"], "SUCCEEDED")

    def test_what_never_fits_starts_when_a_node_joins(self):
        c = self.cluster("--num-cpus", "2")
        big = c.submit("--cpus", "6", "--resources", "licence=1", "--", "true")
        reason = c.job(big)["reason"]
        self.assertEqual(c.job(big)["state"], "PENDING")
        self.assertIn("6", reason)
        self.assertIn("CPU", reason)
        c.start_worker("w1", "--num-cpus", "8", "--resources", "licence=1")
        self.assertEqual(c.await_end(big)["state"], "SUCCEEDED")

    def test_strategies_spread_and_pack(self):
        c = self.cluster("--num-cpus", "2", workers=2)

        def nodes(strategy):
            job = c.submit("--num-workers", "2", "--strategy", strategy, "--",
                           "true")
            self.assertEqual(c.await_end(job)["state"], "SUCCEEDED")
            return len({rank["node"] for rank in c.job(job)["ranks"]})

        self.assertEqual(nodes("STRICT_PACK"), 1)
        self.assertEqual(nodes("PACK"), 1)
        self.assertEqual(nodes("STRICT_SPREAD"), 2)
        self.assertEqual(nodes("SPREAD"), 2)


if __name__ == "__main__":
    cluster.main()
