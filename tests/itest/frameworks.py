"""Lightning, Fabric and Accelerate on PyPI's torch, which tools/frameworks.sh installs;
run by tools/check.sh --all."""

import os
import pathlib
import unittest

import cluster
import trainings

VENV = pathlib.Path(os.environ.get("COHORT_FRAMEWORKS_DIR",
                                   "/var/cache/cohort-frameworks"))


@unittest.skipUnless((VENV / "whole").exists(), "no tools/frameworks.sh was run")
class Frameworks(trainings.TrainingTest):
    """All ranks read one checkpoint, so they share a directory."""

    def check(self, script, takes_nodes=True):
        script = trainings.SCRIPTS / script

        def arguments(nodes):
            shape = ("--devices", 2 // nodes, "--num-nodes", nodes)
            return (script, cluster.MNIST_DATA, *trainings.EPOCHS,
                    *(shape if takes_nodes else ()))

        loss = self.undisturbed(VENV / "bin/torchrun", "--standalone",
                                "--nproc-per-node", "2", *arguments(1))
        c = self.cluster("--num-cpus", "2", workers=2)
        for nodes, rank in ((1, 1), (2, 0)):
            with self.subTest(nodes=nodes):
                here = self.sandbox.dir / f"on-{nodes}"
                here.mkdir()
                killed = self.killed_once(
                    c, rank, "--nnodes", nodes, "--nproc-per-node", 2 // nodes,
                    "--python", VENV, "--cwd", here, "--", "python3",
                    *arguments(nodes))
                self.assertAlmostEqual(killed, loss, places=4)

    def test_lightning_resumes(self):
        self.check("lightning_ddp.py")

    def test_fabric_resumes(self):
        self.check("fabric_fit.py")

    def test_accelerate_resumes(self):
        self.check("accelerate_fit.py", takes_nodes=False)


if __name__ == "__main__":
    cluster.main()
