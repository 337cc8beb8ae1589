"""PyTorch's own data parallelism, in scripts that know nothing of cohort."""

import importlib.util
import sys
import unittest

import cluster
import trainings

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


@unittest.skipUnless(importlib.util.find_spec("torch"), "no PyTorch here")
class Snapshots(trainings.TrainingTest):
    """Each node saves its own, in the working directory; --keep-work does the rest."""

    def check(self, script, data):
        command = (sys.executable, script, data, *trainings.EPOCHS)
        loss = self.undisturbed(
            cluster.BIN / "cohort", "run", "--standalone", "--nproc-per-node",
            "2", "--no-python", sys.executable, trainings.SCRIPTS / script,
            *command[2:])
        c = self.cluster("--num-cpus", "2", workers=2)
        for nodes, rank in ((1, 1), (2, 0)):
            with self.subTest(nodes=nodes):
                killed = self.killed_once(
                    c, rank, "--nnodes", nodes, "--nproc-per-node", 2 // nodes,
                    "--keep-work", "--working-dir", trainings.SCRIPTS, "--",
                    *command)
                self.assertAlmostEqual(killed, loss, places=4)

    def test_elastic_imagenet_resumes(self):
        self.check("elastic_imagenet.py", cluster.MNIST_DATA)

    def test_ddp_tutorial_resumes(self):
        self.check("ddp_tutorial.py", cluster.MNIST_DATA)

    def test_mingpt_resumes(self):
        self.check("mingpt.py", trainings.BOOK)


if __name__ == "__main__":
    cluster.main()
