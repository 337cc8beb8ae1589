"""The examples of actors, as their pages say: each ends well and says so."""

import subprocess

import cluster
import test_actors

BIN = test_actors.BUILD / "bin"


class Examples(cluster.ClusterTest):

    def run_example(self, c, *command):
        done = subprocess.run(
            [BIN / command[0], *map(str, command[1:])], env=c.environment(),
            text=True, capture_output=True, timeout=cluster.DEADLINE)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        return done.stdout.splitlines()

    def test_the_parameter_server_learns_mnist(self):
        said = self.run_example(self.cluster("--num-cpus", "2"),
                                "parameter_server", cluster.MNIST_DATA)
        self.assertEqual(len(said), 1)
        self.assertRegex(said[0], r"^test accuracy 0\.\d+$")
        self.assertGreater(float(said[0].split()[-1]), 0.88)

    def test_the_parameter_server_says_what_it_misses(self):
        c = self.cluster("--num-cpus", "2")
        done = subprocess.run(
            [BIN / "parameter_server", self.sandbox.dir], env=c.environment(),
            text=True, capture_output=True, timeout=cluster.DEADLINE)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done)
        self.assertIn(str(self.sandbox.dir), done.stderr)

    def test_the_training_group_learns(self):
        said = self.run_example(self.cluster(), "training_group")
        self.assertEqual(len(said), 20)
        errors = [float(line.split()[-1]) for line in said]
        # It begins with nothing; the noise is all that is left, and with the
        # smaller rate less than before.
        self.assertGreater(errors[0], 5)
        self.assertLess(max(errors[15:]), min(0.5, min(errors[5:10])))

    def test_actors_have_a_gpu_each(self):
        c = self.cluster("--num-cpus", "1", "--simulate-gpus", "2")
        said = self.run_example(c, "gpu_actor", 2)
        self.assertEqual(len(set(said)), 2, said)
        self.assertNotIn("not one GPU", said)


if __name__ == "__main__":
    cluster.main()
