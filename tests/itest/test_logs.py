"""Output and packages arrive whole, whatever is killed meanwhile."""

import hashlib
import subprocess
import sys

import cluster

MEGABYTES = 10
# Waits for files, so that the test decides when it goes on.
WRITER = """
import os, sys, time
def await_file(name):
    while not os.path.exists(name):
        time.sleep(0.02)
for mib in range({megabytes}):
    if mib in (3, 6):
        sys.stdout.flush()
        await_file("{gate}.%d" % mib)
    for line in range(16384):
        print("%03d %05d %s" % (mib, line, "x" * 53))
"""


def expected():
    return "".join(f"{mib:03d} {line:05d} {'x' * 53}\n"
                   for mib in range(MEGABYTES)
                   for line in range(16384)).encode()


class Logs(cluster.ClusterTest):

    def test_followed_across_kills_byte_for_byte(self):
        c = self.cluster()
        gate = self.sandbox.dir / "gate"
        script = self.file("writer.py", WRITER.format(
            megabytes=MEGABYTES, gate=gate))
        job = c.submit("--file", script, "--", sys.executable, "writer.py")
        out = self.sandbox.dir / "followed"
        with open(out, "wb") as sink:
            follower = c.popen("jobs", "logs", "-f", job, stdout=sink,
                               stderr=subprocess.PIPE)
        size = lambda: out.stat().st_size
        cluster.until("3 MB came", lambda: size() >= 3 * 2**20)
        c.kill_worker("w0")
        gate.with_suffix(".3").touch()
        c.start_worker("w0")
        cluster.until("6 MB came", lambda: size() >= 6 * 2**20)
        c.kill_head()
        gate.with_suffix(".6").touch()
        c.start_head()
        _, errors = follower.communicate(timeout=cluster.DEADLINE)
        self.assertEqual(follower.returncode, 0, errors)
        got, want = out.read_bytes(), expected()
        self.assertEqual(len(got), len(want))
        self.assertEqual(hashlib.sha256(got).digest(),
                         hashlib.sha256(want).digest())
        self.assertEqual(c.await_end(job)["attempt"], 1)
        again = c.popen("jobs", "logs", "--stdout", job, stdout=subprocess.PIPE)
        self.assertEqual(again.communicate()[0], want)

    def test_both_streams_of_each_rank(self):
        c = self.cluster()
        job = c.submit("--num-workers", "2", "--", "sh", "-c",
                       'echo "out $RANK"; echo "err $RANK" >&2')
        c.await_end(job)
        self.assertEqual(sorted(c.logs(job).splitlines()),
                         ["[0] out 0", "[1] out 1"])
        self.assertEqual(sorted(c.logs(job, "--stderr").splitlines()),
                         ["[0] err 0", "[1] err 1"])
        self.assertEqual(sorted(c.run("logs", job).stdout.splitlines()),
                         ["[0] err 0", "[0] out 0", "[1] err 1", "[1] out 1"])
        self.assertIn("out 1", c.logs(job, "--rank", "1"))
        self.assertNotIn("out 0", c.logs(job, "--rank", "1"))

    def test_an_upload_survives_a_kill_of_the_head(self):
        c = self.cluster()
        big = self.sandbox.dir / "tree/big"
        big.parent.mkdir()
        with open(big, "wb") as sink:
            for block in range(96):
                sink.write(bytes([block]) * 2**20)
        packages = self.sandbox.dir / "head/packages"
        submit = c.popen("submit", "--wait", "--working-dir", big.parent, "--",
                         "sha256sum", "big", stdout=subprocess.PIPE, text=True)
        part = cluster.until("an upload has begun", lambda: [
            path for path in packages.glob("*.part")
            if path.stat().st_size > 4 * 2**20])[0]
        c.kill_head()
        had = part.stat().st_size if part.exists() else 0
        self.assertLess(had, 96 * 2**20, "it was killed in time")
        c.start_head()
        out, _ = submit.communicate(timeout=cluster.DEADLINE * 2)
        self.assertEqual(submit.returncode, 0)
        job = out.splitlines()[0]
        digest = hashlib.sha256(big.read_bytes()).hexdigest()
        self.assertTrue(c.logs(job).startswith(digest))
        self.assertEqual(list(packages.glob("*.part")), [])


if __name__ == "__main__":
    cluster.main()
