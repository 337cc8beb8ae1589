"""PyTorch's own data parallelism, in a script that knows nothing of cohort."""

import importlib.util
import sys
import unittest

import cluster

SCRIPT = cluster.SOURCE / "examples/ddp/train.py"


@unittest.skipUnless(importlib.util.find_spec("torch"), "no PyTorch here")
class StockScripts(cluster.ClusterTest):

    def last_words(self, c, *flags):
        job = c.submit(*flags, "--file", str(SCRIPT), "--", sys.executable,
                       "train.py", "--steps", "20")
        ended = c.await_end(job)
        self.assertEqual(ended["state"], "SUCCEEDED",
                         (ended, c.logs(job, "--stderr")))
        return c.logs(job)

    def test_a_gang_trains_one_model(self):
        c = self.cluster("--num-cpus", "2")
        self.assertIn("2 ranks over gloo on cpu: loss ",
                      self.last_words(c, "--num-workers", "2"))

    def test_a_rank_with_a_gpu_finds_what_it_needs(self):
        # Simulated: CUDA sees none, and the script takes Gloo.
        c = self.cluster("--num-cpus", "2", "--simulate-gpus", "1")
        self.assertIn("1 ranks over gloo on cpu: loss ",
                      self.last_words(c, "--use-gpu", "--num-workers", "1"))


if __name__ == "__main__":
    cluster.main()
