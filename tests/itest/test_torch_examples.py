"""The examples on LibTorch as people run them, but for mnist's training on CPUs,
which test_up.py and faults.py run."""

import os
import pathlib
import subprocess
import tempfile

import cluster

BIN = pathlib.Path(os.environ["COHORT_BIN"])
TEXT = cluster.SOURCE / "data/text/moby-dick.txt.gz"
SMALL = ("--data", TEXT, "--steps", "12", "--checkpoint-every", "5",
         "--context", "32", "--width", "32", "--layers", "1", "--batch", "4",
         "--sample", "30")


def run(program, *flags, **environment):
    return subprocess.run(
        [BIN / program, *flags], timeout=150,
        env={**os.environ, **environment}, capture_output=True, text=True)


class TorchExamples(cluster.ClusterTest):

    def setUp(self):
        super().setUp()
        if not (BIN / "gpt").exists():
            self.skipTest("built without LibTorch: no mnist, no gpt")

    def test_a_gang_trains_gpt(self):
        c = self.cluster("--num-cpus", "2")
        job = c.submit("--num-workers", "2", "--", str(BIN / "gpt"),
                       *map(str, SMALL), "--dtype", "bf16")
        ended = c.await_end(job)
        out = c.logs(job)
        self.assertEqual(ended["state"], "SUCCEEDED",
                         (ended, c.logs(job, "--stderr")))
        self.assertIn("training on 2 ranks", out)
        self.assertIn("on cpu", out)
        self.assertIn("checkpoint: ", out)
        self.assertIn("sample: Call me Ishmael.", out)
        self.assertIn("validation_loss", str(ended))

    def test_they_refuse_a_gpu_that_is_not_there(self):
        for program in ("mnist", "gpt", "resnet"):
            # No device is visible, with a driver or without one.
            done = run(program, "--use-gpu", CUDA_VISIBLE_DEVICES="")
            self.assertEqual(done.returncode, 1, done)
            self.assertIn(f"{program}: ", done.stderr)
            self.assertRegex(done.stderr, "COHORT_TORCH_DIR|finds 0 GPUs")
            self.assertEqual(done.stdout, "")

    def test_gpt_goes_on_from_a_checkpoint_by_hand(self):
        with tempfile.TemporaryDirectory() as directory:
            logs = [pathlib.Path(directory) / name for name in ("a", "b")]

            def train(log, *flags, small=SMALL):
                return run("gpt", *small, "--loss-log", log, "--storage-path",
                           directory, *flags)
            whole = train(logs[0])
            self.assertEqual(whole.returncode, 0, whole)
            middle = pathlib.Path(directory) / "local/attempt-1.1/step-5"
            self.assertTrue(middle.is_dir(), whole.stdout)
            resumed = train(logs[1], "--restore", middle)
            self.assertEqual(resumed.returncode, 0, resumed)
            self.assertIn("resuming from step 5", resumed.stdout)
            self.assertEqual(logs[0].read_text(), logs[1].read_text())
            wider = tuple("48" if flag == "32" else flag for flag in SMALL)
            other = train(logs[1], "--restore", middle, small=wider)
            self.assertEqual(other.returncode, 1, other)
            self.assertIn("embedding is F32 [256,48]", other.stderr)

    def test_a_gang_trains_the_resnet(self):
        c = self.cluster("--num-cpus", "2")
        job = c.submit("--num-workers", "2", "--", str(BIN / "resnet"),
                       "--data", str(cluster.MNIST_DATA), "--epochs", "2",
                       "--train-samples", "4000", "--test-samples", "1000")
        ended = c.await_end(job)
        self.assertEqual(ended["state"], "SUCCEEDED",
                         (ended, c.logs(job, "--stderr")))
        self.assertGreater(ended["metrics"]["accuracy"], 60)

    def test_mnist_saves_before_its_node_is_left(self):
        c = self.cluster("--num-cpus", "2")
        storage = self.sandbox.dir / "storage"
        # Else it saves at the end of an epoch, of 600 steps.
        job = c.submit("--num-workers", "2", "--storage-path", storage, "--",
                       str(BIN / "mnist"), "--data", str(cluster.MNIST_DATA),
                       "--batch", "50", "--test-samples", "200",
                       "--epochs", "1000")
        cluster.until("it trains", lambda: c.job(job)["metrics"])
        c.start_worker("w1", "--num-cpus", "2")
        c.json("drain", "w0", "--deadline", "5s")
        saved = cluster.until("it has saved within an epoch", lambda: [
            step for step in storage.glob("*/attempt-1.*/step-*")
            if int(step.name.removeprefix("step-")) % 600])
        self.assertEqual(len(saved), 1, saved)
        cluster.until("it goes on elsewhere", lambda:
                      "resuming from step" in c.logs(job))
        self.assertEqual(c.job(job)["failures"], 0)


if __name__ == "__main__":
    cluster.main()
