"""The communicator program as people run it: on CPUs here, on GPUs where
tools/gpu_check.sh finds one."""

import os
import pathlib
import subprocess

import cluster

PROGRAM = pathlib.Path(os.environ["COHORT_BIN"]) / "all-reduce"


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
