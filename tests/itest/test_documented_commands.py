"""The commands of README.md and docs/ as they are written there.

Each block of commands (``` or ```sh) runs in order, page by page.  One that
cannot run here has <!-- not run: why --> before it.  docs/design is history.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import cluster

BLOCK = re.compile(r"^(?:<!-- not run: (?P<why>[^\n]+) -->\n)?```(?P<tag>\w*)\n"
                   r"(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)

# `cohort` on a free port and in the test's directory, where the page relies on
# the places of a machine of its own.
COHORT = f"""#!/bin/bash
case $1 in
up) exec {cluster.BIN}/cohort "$@" --port 0 --state-dir $UP ;;
down) exec {cluster.BIN}/cohort "$@" --state-dir $UP ;;
esac
if [[ -e $UP/address ]]; then
  export COHORT_ADDRESS=$(<$UP/address) COHORT_CREDENTIAL_FILE=$UP/credential
elif [[ $1 = run && -z ${{COHORT_ADDRESS-}} ]]; then
  exec {cluster.BIN}/cohort run --standalone "${{@:2}}"
fi
exec {cluster.BIN}/cohort "$@"
"""
TRAIN = "import os\nprint('rank', os.environ.get('RANK'))\n"


def pages():
    root = cluster.SOURCE
    return [root / "README.md",
            *(page for page in sorted(root.glob("docs/**/*.md"))
              if "design" not in page.parts)]


def blocks(page):
    """Its blocks of commands, as matches of BLOCK."""
    return [block for block in BLOCK.finditer(page.read_text())
            if block["tag"] in ("", "sh")]


class DocumentedCommands(cluster.ClusterTest):

    def setUp(self):
        super().setUp()
        self.home = self.sandbox.dir / "home"
        self.file("bin/cohort", COHORT, 0o755)
        (self.sandbox.dir / "bin/counter").symlink_to(cluster.BIN / "counter")
        self.file("home/train.py", TRAIN)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip",
                        self.home / "envs/train"], check=True)

    def environment(self, client=None):
        own = client.environment() if client else {
            name: value for name, value in os.environ.items()
            if not name.startswith("COHORT_") and name != "VIRTUAL_ENV"}
        return {**own, "HOME": str(self.home), "UP": str(self.home / "up"),
                "PATH": f"{self.sandbox.dir}/bin:{os.environ['PATH']}"}

    def run_page(self, name, environment, words):
        """Runs its blocks, with what its placeholders stand for."""
        page = cluster.SOURCE / name
        ran = 0
        for block in blocks(page):
            if block["why"]:
                continue
            ran += 1
            text = block["text"]
            for word, value in words.items():
                text = re.sub(rf"(?<![\w-]){re.escape(word)}\b", str(value), text)
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", text], cwd=self.home,
                env=environment, stdin=subprocess.DEVNULL, text=True,
                capture_output=True, timeout=cluster.DEADLINE, check=False)
            line = page.read_text()[:block.start()].count("\n") + 1
            self.assertEqual(done.returncode, 0,
                             f"{name}:{line}\n{text}\n{done.stdout}{done.stderr}")
        self.assertGreater(ran, 0, name)

    def run_in_cluster(self, name):
        up = self.up("--workers", "2", "--num-cpus", "4")
        job = up.submit("--name", "train", "--", "touch", "left.txt")
        up.await_end(job)
        self.run_page(name, self.environment(up), {
            "JOB": job, "NODE": "worker-0", "DIR": self.home / "dir",
            "127.0.0.1:7711": up.json("status")["http_address"],
            "/usr/bin/python3.12": shutil.which("python3")})
        for each in up.json("jobs", "list"):
            self.assertEqual(up.await_end(each["id"])["state"], "SUCCEEDED",
                             up.logs(each["id"], "--stderr"))

    def test_readme(self):
        self.run_page("README.md", self.environment(), {})

    def test_autoscaling(self):
        page = (cluster.SOURCE / "docs/autoscaling.md").read_text()
        self.file("home/cluster.yaml",
                  re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1])
        self.run_page("docs/autoscaling.md", self.environment(), {})

    def test_python(self):
        self.run_in_cluster("docs/python.md")

    def test_jobs(self):
        self.run_in_cluster("docs/operations/jobs.md")

    def test_run(self):
        self.run_in_cluster("docs/operations/run.md")

    def test_security(self):
        self.run_in_cluster("docs/security.md")

    def test_backup(self):
        self.run_in_cluster("docs/operations/backup.md")

    @unittest.skipUnless(shutil.which("curl"), "needs curl")
    def test_reference(self):
        self.run_in_cluster("docs/operations/reference.md")

    def test_every_other_block_says_why_it_is_not_run(self):
        source = pathlib.Path(__file__).read_text()
        for page in pages():
            name = str(page.relative_to(cluster.SOURCE))
            if f'"{name}"' in source:
                continue
            for block in blocks(page):
                self.assertTrue(block["why"], f"{name}: {block['text']}")


if __name__ == "__main__":
    cluster.main()
