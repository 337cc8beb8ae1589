"""Which communicator ranks get that can use their GPU."""

import os
import pathlib

import cluster

RANK = pathlib.Path(os.environ["COHORT_BIN"]).parent / "tests" / "gpu-rank"


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


if __name__ == "__main__":
    cluster.main()
