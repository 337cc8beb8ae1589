"""The certificate authority is changed, and users are let out, while all runs."""

import os
import shutil
import ssl
import subprocess
import threading

import cluster
import driver as told
from test_security import handshake, port_of

PROGRAM = cluster.BIN.parent / "tests/actor-program"
# Without children.
TICKS = ("python3", "-u", "-c",
         "import time\nwhile True: print('tick'); time.sleep(0.05)")


class Follower:
    """`cohort logs -f` of a job, and how many lines it has written."""

    def __init__(self, test, client, job):
        self.lines = 0
        self._process = client.popen("logs", "-f", job, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        test.addCleanup(self.kill)

    def _read(self):
        for _ in self._process.stdout:
            self.lines += 1

    def await_more(self):
        before = self.lines
        cluster.until("another line", lambda: self.lines > before + 2)

    def await_end(self):
        """Its exit code and stderr."""
        code = self._process.wait(cluster.DEADLINE)
        self._thread.join()
        return code, self._process.stderr.read()

    def kill(self):
        self._process.kill()
        self._process.wait()
        self._thread.join()
        self._process.stdout.close()
        self._process.stderr.close()


class Trust(cluster.ClusterTest):

    def joined(self, *names):
        """A head, and workers that joined it by a token each."""
        c = cluster.Cluster(self.sandbox, node_timeout="20s")
        c.start_head()
        self.processes = {name: self.worker(c, name, "--join", self.token(c))
                          for name in names}
        cluster.until("they joined", lambda: all(
            self.states(c).get(name) == "ALIVE" for name in names))
        return c

    def worker(self, c, name, *flags):
        own = {key: value for key, value in os.environ.items()
               if not key.startswith("COHORT_")}
        return self.sandbox.spawn(
            [cluster.BIN / "cohort-worker", "--address", c.address, "--name",
             name, "--state-dir", self.sandbox.dir / name, "--num-cpus", "3",
             *flags], f"{name}.log", env=own)

    def token(self, c):
        return self.ok(c.run("token", "create")).strip()

    def user(self, c, name):
        file = self.sandbox.dir / name
        self.ok(c.run("user", "add", name, "--file", file))
        return cluster.Client(c.address, file)

    def ok(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def states(self, c):
        return {node["name"]: node["state"] for node in c.json("nodes")}

    def log(self, name):
        return (self.sandbox.dir / f"{name}.log").read_text()

    def authorities(self, c):
        return [(each["fingerprint"], each["next"])
                for each in c.json("authority", "list")["authorities"]]

    def rotate(self, c):
        self.ok(c.run("authority", "rotate"))
        cluster.until("all nodes have it", lambda: not c.json(
            "authority", "list")["nodes_without"])
        return self.authorities(c)[1][0]


class Rotation(Trust):

    def test_a_whole_rotation_ends_nothing(self):
        c = self.joined("w0", "w1")
        ann = self.user(c, "ann")
        job = ann.submit("--num-workers", "2", "--", *TICKS)
        ann.await_state(job, "RUNNING")
        ranks = c.rank_pids(job)
        follower = Follower(self, ann, job)
        follower.await_more()
        # Its own file, which no command of ann's writes again.
        shutil.copy(ann.credential, self.sandbox.dir / "driver")
        driver = told.Driver(self, PROGRAM, cluster.Client(
            c.address, self.sandbox.dir / "driver").environment())
        driver.value("create", "a", 5, 0, 0)
        old = self.file("old", ann.credential.read_text(), 0o600)

        first = self.authorities(c)
        self.assertEqual([is_next for _, is_next in first], [False])
        later = self.rotate(c)
        self.assertEqual(self.authorities(c), [first[0], (later, True)])
        self.assertIn("NEXT", c.run("authority", "list").stdout)
        # Both are good, and who comes by has the next one.
        self.assertEqual(handshake(port_of(c.address), authority=old), "TLSv1.3")
        for client in (c, ann):
            self.ok(client.run("jobs"))
        texts = {path: path.read_text() for path in (
            ann.credential, c.credential, self.sandbox.dir / "driver",
            self.sandbox.dir / "w0/credential")}
        pem = c.run("authority", "list", "--pem").stdout
        self.assertEqual(pem.count("BEGIN CERTIFICATE"), 2)
        for path, text in texts.items():
            certificate = text.partition("\n")[2]
            self.assertTrue(pem.endswith(certificate), path)
        for rank in ranks.values():
            file = cluster.environment_of(rank)["COHORT_CREDENTIAL_FILE"]
            with open(file, encoding="ascii") as text:
                self.assertTrue(pem.endswith(text.read().partition("\n")[2]))

        self.ok(c.run("authority", "finish"))
        self.assertEqual(self.authorities(c), [(later, False)])
        with self.assertRaises(ssl.SSLError):
            handshake(port_of(c.address), authority=old)
        self.assertEqual(handshake(port_of(c.address), authority=c.credential),
                         "TLSv1.3")
        follower.await_more()
        self.assertEqual(driver.value("add", "a", 2), "7")
        self.assertEqual(c.rank_pids(job), ranks)
        self.assertEqual(self.states(c), {"w0": "ALIVE", "w1": "ALIVE"})

        # Who was away is refused, and can be helped.
        away = old
        self.assert_fails(ann.run("status", "--credential-file", away), 125,
                          "another authority", "cohort authority trust")
        self.assert_fails(ann.run("authority", "trust", first[0][0],
                                  "--credential-file", away), 125,
                          "another authority")
        self.ok(ann.run("authority", "trust", later, "--credential-file", away))
        self.ok(ann.run("status", "--credential-file", away))

        # All connect again, by the next one alone.
        c.kill_head()
        c.start_head()
        cluster.until("the nodes are back", lambda: self.states(c) == {
            "w0": "ALIVE", "w1": "ALIVE"})
        self.assertEqual(c.rank_pids(job), ranks)
        driver.value("create", "b", 1, 0, 0)
        self.assertEqual(driver.value("add", "b", 2), "3")
        self.assertEqual(driver.quit(), 0)
        follower.await_more()
        self.assertEqual(ann.job(job)["state"], "RUNNING")
        calls = c.run("audit").stdout
        self.assertIn("SecurityService/RotateAuthority", calls)
        self.assertIn("SecurityService/FinishRotation", calls)
        # And once more, from an authority that was rotated to.
        self.assertNotEqual(self.rotate(c), later)
        self.ok(c.run("authority", "finish"))
        self.assertEqual(c.rank_pids(job), ranks)

    def test_https_changes_once_the_rotation_is_finished(self):
        c = cluster.Cluster(self.sandbox)
        c.http_address = "0.0.0.0:0"
        c.start_head()
        port = port_of(c.http_address)
        old = self.file("old", c.credential.read_text(), 0o600)
        self.rotate(c)
        self.assertEqual(handshake(port, authority=old), "TLSv1.3")
        with self.assertRaises(ssl.SSLError):
            handshake(port, authority=c.credential)
        self.ok(c.run("authority", "finish"))
        self.assertEqual(handshake(port, authority=c.credential), "TLSv1.3")
        with self.assertRaises(ssl.SSLError):
            handshake(port, authority=old)

    def test_a_node_that_is_away_is_waited_for(self):
        c = self.joined("w0", "w1")
        self.processes["w1"].kill()
        self.processes["w1"].wait()
        self.assert_fails(c.run("authority", "finish"), 125,
                          "cohort authority rotate")
        self.ok(c.run("authority", "rotate"))
        cluster.until("w0 has it", lambda: c.json(
            "authority", "list")["nodes_without"] == ["w1"])
        self.assert_fails(c.run("authority", "finish"), 125, "w1", "--force")
        later = self.authorities(c)[1][0]
        self.ok(c.run("authority", "finish", "--force"))
        self.worker(c, "w1")
        cluster.until("it is refused", lambda: "cohort authority trust" in
                      self.log("w1"))
        self.ok(c.run("authority", "trust", later, "--credential-file",
                      self.sandbox.dir / "w1/credential"))
        cluster.until("it is back", lambda: self.states(c) == {
            "w0": "ALIVE", "w1": "ALIVE"})

    def test_a_head_that_is_killed_goes_on_with_it(self):
        c = self.joined("w0")
        old = c.credential.read_text()
        key = self.sandbox.dir / "head/ca.key"
        self.ok(c.run("authority", "rotate"))
        both = self.authorities(c)
        new = c.credential.read_text()
        self.assertNotEqual(old, new)
        c.kill_head()
        # As if it had been killed before it wrote the credential.
        c.credential.write_text(old)
        c.start_head()
        self.assertEqual(c.credential.read_text(), new)
        self.assertEqual(self.authorities(c), both)
        self.ok(c.run("authority", "rotate"))
        self.assertEqual(self.authorities(c), both)
        cluster.until("the node has it", lambda: not c.json(
            "authority", "list")["nodes_without"])
        self.ok(c.run("authority", "finish"))
        c.kill_head()
        c.start_head()
        self.assertEqual(self.authorities(c), [(both[1][0], False)])
        cluster.until("the node is back",
                      lambda: self.states(c) == {"w0": "ALIVE"})
        # A key that is cut is said so.
        c.kill_head()
        key.write_text(key.read_text()[:-30])
        done = subprocess.run(
            [cluster.BIN / "cohort-head", "--address", "127.0.0.1:0",
             "--state-dir", self.sandbox.dir / "head"], capture_output=True,
            text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 125, done.stderr)
        self.assertIn("ca.key, is damaged", done.stderr)

    def test_join_tokens_of_before_and_of_the_rotation(self):
        c = self.joined()
        before, too_late = self.token(c), self.token(c)
        self.ok(c.run("authority", "rotate"))
        during, later = self.token(c), self.token(c)
        self.assertNotEqual(before.split(".")[1], during.split(".")[1])
        self.worker(c, "w0", "--join", before)
        self.worker(c, "w1", "--join", during)
        cluster.until("both joined, and have the next one", lambda: (
            self.states(c) == {"w0": "ALIVE", "w1": "ALIVE"} and
            not c.json("authority", "list")["nodes_without"]))
        self.ok(c.run("authority", "finish"))
        self.worker(c, "w2", "--join", later)
        cluster.until("it joined",
                      lambda: self.states(c).get("w2") == "ALIVE")
        refused = self.worker(c, "w3", "--join", too_late)
        self.assertNotEqual(refused.wait(cluster.DEADLINE), 0)
        self.assertIn("another authority", self.log("w3"))


class Revocation(Trust):

    def test_what_a_user_reads_ends_with_the_user(self):
        c = self.joined("w0")
        ann = self.user(c, "ann")
        job = c.submit("--", *TICKS)
        c.await_state(job, "RUNNING")
        follower = Follower(self, ann, job)
        follower.await_more()
        waiting = ann.popen("jobs", "wait", job, stderr=subprocess.PIPE,
                            text=True)
        own = Follower(self, c, job)
        driver = told.Driver(self, PROGRAM, ann.environment())
        driver.value("create", "a", 5, 0, 0)
        self.ok(c.run("user", "remove", "ann"))
        code, text = follower.await_end()
        self.assertEqual(code, 125)
        self.assertIn("was revoked", text)
        self.assertEqual(waiting.wait(cluster.DEADLINE), 125)
        self.assertIn("was revoked", waiting.stderr.read())
        waiting.stderr.close()
        driver.ask("create", "b", 5, 0, 0)
        self.assertIn("was revoked", driver.ask("add", "b", 1))
        # Nobody else's.
        own.await_more()
        self.assertEqual(self.states(c), {"w0": "ALIVE"})

    def test_a_stream_ends_when_its_token_expires(self):
        c = self.joined("w0")
        job = c.submit("--", *TICKS)
        c.await_state(job, "RUNNING")
        file = self.sandbox.dir / "eve"
        self.ok(c.run("user", "add", "eve", "--ttl", "3s", "--file", file))
        code, text = Follower(
            self, cluster.Client(c.address, file), job).await_end()
        self.assertEqual(code, 125)
        self.assertIn("expired at", text)

    def test_what_was_revoked_after_a_backup_stays_so(self):
        c = self.joined()
        ann, bob = self.user(c, "ann"), self.user(c, "bob")
        backup = self.sandbox.dir / "backup"
        self.ok(c.run("head", "backup", backup))
        self.ok(c.run("user", "remove", "ann"))
        authority = self.authorities(c)[0][0]
        self.assertFalse((backup / "revoked").exists())
        c.kill_head()

        def restore(name, *flags):
            return self.ok(subprocess.run(
                [cluster.BIN / "cohort-head", "restore", backup, "--state-dir",
                 self.sandbox.dir / name, *flags], capture_output=True,
                text=True, check=False))
        said = restore("kept", "--keys", self.sandbox.dir / "head")
        self.assertNotIn("let in again", said)
        c.start_head("kept")
        self.assert_fails(ann.run("jobs"), 125, "was revoked",
                          "cohort user add")
        self.ok(bob.run("jobs"))
        self.assertRegex(c.run("user", "list").stdout, "ann +all +REVOKED")
        c.kill_head()
        # Without it the restore says what that means.
        said = restore("bare")
        self.assertIn("let in again", said)
        self.assertIn(f"the backup's, {authority}: nodes", said)
        c.start_head("bare")
        self.ok(ann.run("jobs"))


if __name__ == "__main__":
    cluster.main()
