"""`cohort checkpoints`, and what Python reads of them (docs/training.md)."""

import json
import pathlib
import struct

import cluster

BIN = cluster.BIN
SIZES = {"F32": 4, "F64": 8, "I64": 8, "U8": 1}


def load(path):
    """A safetensors file: its tensors as (dtype, shape, bytes) by name."""
    raw = pathlib.Path(path).read_bytes()
    length, = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    data, tensors, end = raw[8 + length:], {}, 0
    for name, entry in header.items():
        begin, stop = entry["data_offsets"]
        count = 1
        for size in entry["shape"]:
            count *= size
        assert stop - begin == count * SIZES[entry["dtype"]], (name, entry)
        tensors[name] = (entry["dtype"], entry["shape"], data[begin:stop])
        end = max(end, stop)
    assert end == len(data), path
    return tensors


class Checkpoints(cluster.ClusterTest):

    def trained(self, *command, storage=None):
        self.c = self.cluster("--num-cpus", "2")
        flags = ["--storage-path", storage] if storage else []
        job = self.c.submit("--num-workers", "2", *flags, "--",
                            *map(str, command))
        ended = self.c.await_end(job)
        self.assertEqual(ended["state"], "SUCCEEDED",
                         self.c.logs(job, "--stderr"))
        return job

    def checkpoints(self, *args):
        done = self.c.run("checkpoints", *args)
        self.assertEqual(done.returncode, 0, done)
        return done.stdout

    def test_they_are_listed_shown_and_exported(self):
        job = self.trained(BIN / "logistic", "2", cluster.MNIST_DATA)
        first, last = json.loads(self.checkpoints("list", job, "--json"))
        self.assertEqual((first["step"], last["step"]), (300, 600))
        self.assertEqual((first["marks"], last["marks"]), ([], ["latest"]))
        self.assertEqual(last["epochs"], 2)
        self.assertGreater(last["metrics"]["accuracy"], 85)
        self.assertGreater(last["size_bytes"], 28 * 28 * 10 * 4)
        table = self.checkpoints("list", job)
        self.assertRegex(table, r"attempt-1.1/step-600 +600 +2 .*latest")
        shown = json.loads(self.checkpoints("show", job, "--json"))
        self.assertIn({"part": "weights", "name": "values", "dtype": "F32",
                       "shape": [7840]}, shown["tensors"])
        self.assertEqual(shown["manifest"]["world"], 2)
        self.assertIn("weights: values", self.checkpoints("show", job, "300"))

        out = self.sandbox.dir / "weights.safetensors"
        self.checkpoints("export", job, out, "step-300",
                         "--part", "weights")
        dtype, shape, values = load(out)["values"]
        self.assertEqual((dtype, shape), ("F32", [7840]))
        self.assertNotEqual(values, bytes(len(values)))
        self.assert_fails(self.c.run("checkpoints", "export", job, out), 125,
                          'no part "model"', "weights")
        self.assert_fails(self.c.run("checkpoints", "show", job, "7"), 125,
                          'no checkpoint "7"', "step-300")

    def test_damage_is_named(self):
        storage = self.sandbox.dir / "storage"
        job = self.trained(BIN / "logistic", "2", cluster.MNIST_DATA,
                           storage=storage)
        self.assertEqual(self.checkpoints("verify", job).count(": good"), 2)
        weights, = storage.glob("*/attempt-1.1/step-600/weights.safetensors")
        raw = bytearray(weights.read_bytes())
        raw[-1] ^= 1
        weights.write_bytes(raw)
        done = self.c.run("checkpoints", "verify", job)
        self.assert_fails(done, 125, "step-600/weights.safetensors",
                          "checksum")
        self.assertIn("step-300: good", done.stdout)
        self.checkpoints("verify", job, "300")
        self.assert_fails(
            self.c.run("checkpoints", "export", job, self.sandbox.dir / "out",
                       "--part", "weights"), 125, "weights.safetensors")
        self.assertFalse((self.sandbox.dir / "out").exists())
        weights.unlink()
        self.assert_fails(self.c.run("checkpoints", "verify", job, "latest"),
                          125, "weights.safetensors is missing")
        manifest = weights.with_name("manifest.json")
        manifest.write_text("{")
        self.assert_fails(self.c.run("checkpoints", "verify", job), 125,
                          "manifest.json is damaged")

    def test_files_of_several_ranks_become_one(self):
        if not (BIN / "mnist").exists():
            self.skipTest("built without LibTorch: no mnist")
        storage = self.sandbox.dir / "storage"
        job = self.trained(BIN / "mnist", "--data", cluster.MNIST_DATA,
                           "--epochs", "1", "--train-samples", "2560",
                           "--test-samples", "256", storage=storage)
        saved, = storage.glob("*/attempt-1.1/step-*")
        shards = sorted(saved.glob("optimizer-*.safetensors"))
        self.assertEqual([shard.name for shard in shards],
                         ["optimizer-00001-of-00002.safetensors",
                          "optimizer-00002-of-00002.safetensors"])
        expected = {}
        for shard in shards:
            expected.update(load(shard))
        self.assertIn("exp_avg.fc1.weight", expected)
        out = self.sandbox.dir / "out"
        self.checkpoints("export", job, out, "--part", "optimizer")
        self.assertEqual(load(out), expected)
        self.checkpoints("export", job, out)
        self.assertEqual(load(out), load(saved / "model.safetensors"))
        # Without it transformers refuses a file.
        self.assertIn(b'"__metadata__":{"format":"pt"}', out.read_bytes())
        try:
            from safetensors import safe_open  # Debian has no such package
        except ImportError:
            return
        with safe_open(str(out), framework="numpy") as file:
            self.assertIn("fc1.weight", file.keys())


if __name__ == "__main__":
    cluster.main()
