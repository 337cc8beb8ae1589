"""The communicator program as people run it: on CPUs here, on GPUs where
tools/gpu_check.sh finds one."""

import os
import pathlib
import subprocess

import cluster

BIN = pathlib.Path(os.environ["COHORT_BIN"])
PROGRAM = BIN / "all-reduce"
OVER_NODES = BIN.parent / "tests" / "all-reduce-over-nodes"


class AllReduce(cluster.ClusterTest):

    def test_a_job_checks_and_times_its_ranks(self):
        c = self.cluster("--num-cpus", "2")
        job = c.submit("--num-workers", "2", "--", PROGRAM, "--max-bytes",
                       "300000")
        ended = c.await_end(job)
        self.assertEqual(ended["state"], "SUCCEEDED",
                         (ended, c.logs(job, "--stderr")))
        said = [line.removeprefix("[0] ")
                for line in c.logs(job).splitlines()]
        self.assertIn("2 ranks", said[0])
        sizes = [int(line.split()[0]) for line in said[2:]]
        self.assertEqual(sizes, [4 * 8 ** i for i in range(6)])

    def over_two_nodes(self, *nodes):
        """What a gang of as many ranks as CPUs wrote to stderr."""
        if not OVER_NODES.exists():
            self.skipTest("built without Gloo")
        c = self.cluster("--num-cpus", str(nodes[0]), workers=2)
        job = c.submit("--num-workers", str(sum(nodes)), "--", OVER_NODES,
                       "--max-bytes", "300000")
        ended = c.await_end(job)
        said = c.logs(job, "--stderr")
        self.assertEqual(ended["state"], "SUCCEEDED", (ended, said))
        self.assertIn(f"{sum(nodes)} ranks", c.logs(job))
        return said

    def test_two_ranks_on_each_of_two_nodes(self):
        said = self.over_two_nodes(2, 2)
        self.assertIn("comm_over_nodes", said)
        self.assertIn("shared memory in nodes, Gloo between them (2 lanes): "
                      "4 ranks on 2 nodes", said)

    def test_nodes_with_different_numbers_of_ranks(self):
        self.assertIn("(1 lane): 3 ranks on 2 nodes",
                      self.over_two_nodes(2, 1))

    def test_one_rank_on_each_of_two_nodes(self):
        self.assertIn("Gloo: each node has one rank",
                      self.over_two_nodes(1, 1))

    def test_without_a_gpu_it_says_so(self):
        c = self.cluster("--num-cpus", "1")
        job = c.submit("--", PROGRAM, "--use-gpu")
        ended = c.await_end(job)
        self.assertEqual(ended["state"], "FAILED")
        self.assertIn("all-reduce: --use-gpu: the ranks' GPUs cannot",
                      c.logs(job, "--stderr"))

    def test_alone_it_is_a_gang_of_one(self):
        done = subprocess.run([PROGRAM, "--max-bytes", "4"], timeout=120,
                              cwd=self.sandbox.dir, capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("1 rank", done.stdout)


if __name__ == "__main__":
    cluster.main()
