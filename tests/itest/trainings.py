"""The scripts in scripts/, in the shape of public ones: two ranks, one of them killed,
end as undisturbed ones do."""

import os
import re
import signal
import subprocess

import cluster

SCRIPTS = cluster.SOURCE / "tests/itest/scripts"
BOOK = cluster.SOURCE / "data/text/moby-dick.txt.gz"
EPOCHS = ("--epochs", "12")


def said(text, what):
    """The number after `what` where a line of rank 0 first begins with it."""
    found = re.search(rf"^(?:\[0\] )?{what} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else None


class TrainingTest(cluster.ClusterTest):

    def setUp(self):
        super().setUp()
        self.environment = {
            name: value for name, value in os.environ.items()
            if name not in ("VIRTUAL_ENV", "CONDA_PREFIX")}

    def undisturbed(self, *command):
        """Its final loss, when it runs in a directory of its own."""
        here = self.sandbox.dir / "undisturbed"
        here.mkdir()
        done = subprocess.run(
            [str(word) for word in command], env=self.environment, cwd=here,
            capture_output=True, text=True, check=False,
            timeout=cluster.DEADLINE * 3)
        self.assertEqual(done.returncode, 0, done.stderr[-4000:])
        return said(done.stdout, "final loss")

    def killed_once(self, c, rank, *submit):
        """Its final loss, when `rank` is killed after some epochs."""
        job = c.submit("--max-failures", "1", "--retry-delay", "0s", *submit)

        def text(*flags):
            return c.logs(job, "--rank", "0", *flags)

        cluster.until("the epochs before the kill", lambda: (
            "epoch 3\n" in text() or c.job(job)["state"] == "FAILED"))
        os.kill(c.rank_pids(job)[rank], signal.SIGKILL)
        ended = c.await_end(job)
        self.assertEqual((ended["state"], ended["attempt"], ended["failures"]),
                         ("SUCCEEDED", 2, 1),
                         (ended, c.logs(job, "--stderr")[-4000:]))
        again = text("--attempt", "2")
        self.assertIn(said(again, "epoch"), (3, 4), again)
        return said(again, "final loss")
