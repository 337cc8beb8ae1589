"""The example without LibTorch as people run it: on CPUs here, on GPUs where
tools/gpu_check.sh finds one."""

import json
import os
import pathlib
import subprocess
import tempfile

import cluster

MLP = pathlib.Path(os.environ["COHORT_BIN"]) / "mlp"
SMALL = ("--train-samples", "640", "--test-samples", "200", "--epochs", "1",
         "--hidden", "32")


def run(*flags, **environment):
    with tempfile.TemporaryDirectory() as storage:
        return subprocess.run(
            [MLP, *SMALL, "--storage-path", storage, *flags], timeout=120,
            env={**os.environ, **environment}, capture_output=True, text=True)


class Mlp(cluster.ClusterTest):

    def test_a_gang_trains_in_half_precision(self):
        c = self.cluster("--num-cpus", "2")
        job = c.submit("--num-workers", "2", "--", str(MLP), *SMALL,
                       "--precision", "fp16")
        ended = c.await_end(job)
        self.assertEqual(ended["state"], "SUCCEEDED",
                         (ended, c.logs(job, "--stderr")))
        self.assertIn("training on 2 ranks", c.logs(job))
        self.assertIn("loss_scale", json.dumps(ended))

    def test_it_saves_before_its_node_is_left(self):
        c = self.cluster("--num-cpus", "2")
        storage = self.sandbox.dir / "storage"
        # Else it saves at the end of an epoch, of 600 steps.
        job = c.submit("--num-workers", "2", "--storage-path", storage, "--",
                       MLP, "--batch", "50", "--train-samples", "60000",
                       "--test-samples", "200", "--epochs", "1000")
        cluster.until("it trains", lambda: c.job(job)["metrics"])
        c.start_worker("w1", "--num-cpus", "2")
        c.json("drain", "w0", "--deadline", "5s")
        saved = cluster.until("it has saved within an epoch", lambda: [
            step for step in storage.glob("*/attempt-1.*/step-*")
            if int(step.name.removeprefix("step-")) % 600])
        self.assertEqual(len(saved), 1, saved)
        cluster.until("it goes on elsewhere", lambda:
                      "going on from step" in c.logs(job))
        self.assertEqual(c.job(job)["failures"], 0)

    def test_it_refuses_a_gpu_that_is_not_there(self):
        # No device is visible, with a driver or without one.
        done = run("--use-gpu", CUDA_VISIBLE_DEVICES="")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("mlp: --use-gpu: ", done.stderr)
        self.assertEqual(done.stdout, "")

    def test_it_refuses_flags_that_make_no_sense(self):
        done = run("--precision", "int8")
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("none of f32, bf16, fp16", done.stderr)


if __name__ == "__main__":
    cluster.main()
