"""Which communicator ranks get that can use their GPU."""

import json
import os
import pathlib

import cluster

TESTS = pathlib.Path(os.environ["COHORT_BIN"]).parent / "tests"
RANK = TESTS / "gpu-rank"
STUCK = TESTS / "stuck_cuda"  # holds a libcuda.so.1


class GpuComm(cluster.ClusterTest):

    def test_a_gang_without_gpus_works_on_the_host_and_says_why(self):
        c = self.cluster("--num-cpus", "3")
        job = c.submit("--num-workers", "3", "--", str(RANK))
        ended = c.await_end(job)
        out = c.logs(job)
        logs = c.logs(job, "--stderr")
        self.assertEqual(ended["state"], "SUCCEEDED", (ended, logs))
        self.assertEqual(out.count("works on the host, sum 3"), 3, out)
        # Every rank heard the first one's reason.
        self.assertEqual(logs.count("no_gpu_comm"), 3, logs)
        self.assertEqual(logs.count("rank 0: no GPU was granted"), 3, logs)

    def test_all_hear_which_rank_hangs_where_and_it_is_killed(self):
        c = self.cluster("--num-cpus", "2")
        job = c.submit("--num-workers", "2", "--", "env",
                       "CUDA_VISIBLE_DEVICES=0", f"LD_LIBRARY_PATH={STUCK}",
                       "GPU_RANK_TIMEOUT=8", str(RANK))
        ended = c.await_end(job)
        logs = c.logs(job, "--stderr")
        self.assertEqual(ended["state"], "FAILED", (ended, logs))
        self.assertIn("rank 0 on GPU 0: taking the GPU is not over, in cuInit",
                      logs)
        events = [json.loads(line) for line in
                  c.run("events", "--json", "--job", job).stdout.splitlines()]
        killed = [event["text"] for event in events
                  if event["kind"] == "gpu_comm_killed"]
        self.assertEqual(len(killed), 1, events)
        self.assertIn("rank 0 on GPU 0", killed[0])
        self.assertIn("hangs in cuInit", killed[0])


if __name__ == "__main__":
    cluster.main()
