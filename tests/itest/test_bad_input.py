"""What nobody should give us: it is named and refused, nobody else notices."""

import contextlib
import json
import os
import pathlib
import random
import shutil
import socket
import subprocess

import cluster


class CommandLine(cluster.ClusterTest):

    def credential(self, name, mode=0o600):
        path = self.sandbox.dir / name
        path.write_text(f"secret {os.urandom(32).hex()}\n")
        path.chmod(mode)
        return path

    def test_malformed_flags_are_2(self):
        c = self.cluster()
        for args in (
                (), ("no-such-command",), ("submit",), ("submit", "--"),
                ("submit", "--num-workers", "0", "--", "true"),
                ("submit", "--num-workers", "-3", "--", "true"),
                ("submit", "--cpus", "-1", "--", "true"),
                ("submit", "--cpus", "nan", "--", "true"),
                ("submit", "--cpus", "1e300", "--", "true"),
                ("submit", "--gpus", "-0.5", "--", "true"),
                ("submit", "--gpus", "1.5", "--", "true"),
                ("submit", "--memory", "12 bananas", "--", "true"),
                ("submit", "--resources", "=1", "--", "true"),
                ("submit", "--resources", "a=-1", "--", "true"),
                ("submit", "--strategy", "SIDEWAYS", "--", "true"),
                ("submit", "--env", "=x", "--", "true"),
                ("submit", "--env", "RANK=7", "--", "true"),
                ("submit", "--env", "CUDA_VISIBLE_DEVICES=9", "--", "true"),
                ("submit", "--name", "\udcff\udcfe", "--", "true"),
                ("submit", "--storage-path", "/a\nb", "--", "true"),
                ("submit", "--request-id", "", "--", "true"),
                ("submit", "--working-dir", "", "--", "true"),
                ("submit", "--cpus", "", "--", "true"),
                ("status", "--address", ""),
                ("--json", "status"),
                ("submit", "--max-failures", "-2", "--", "true"),
                ("submit", "--use-gpu", "--gpus", "0", "--", "true"),
                ("submit", "--accelerator", "", "--", "true"),
                ("submit", "--accelerator", "  ", "--", "true"),
                ("submit", "--selector", " ", "--", "true"),
                ("submit", "--env", "A=1", "--env", "A=2", "--", "true"),
                ("submit", "--same", "a=b", "--", "true"),
                ("submit", "--prefer-same", "rack in (a)", "--", "true"),
                ("submit", "--namespace", " x", "--", "true"),
                ("submit", "--label", "a\nb=x", "--", "true"),
                ("submit", "--label", " =x", "--", "true"),
                ("submit", "--name", "a\u009bb", "--", "true"),
                ("submit", "--request-id", "\udcff", "--", "true"),
                ("submit", "--priority", "99999999999", "--", "true"),
                ("submit", "--time-limit", "1e9h", "--", "true"),
                ("submit", "--time-limit", "-5s", "--", "true"),
                ("submit", "--after", "0" * 32, "--", "true"),
                ("jobs", "list", "--limit", "0"),
                ("jobs", "list", "--namespace", "\udcff"),
                ("jobs", "get", ""), ("nodes", "get", ""),
                ("nodes", "get", "x" * 1000),
                ("drain", "w0", "--reason", "a\nb"),
                ("drain", "w0", "--reason", " "),
                ("drain", "w0", "--deadline", "999999999h"),
                ("adopt", ""), ("head", "backup", ""),
                ("explain", "0" * 32, "--at", "2999-01-01T00:00:00Z"),
                ("submit", "--file", "/no/such/file", "--", "true"),
                ("submit", "--working-dir", "/no/such/dir", "--", "true"),
                ("jobs", "get"), ("jobs", "stop", "x", "--all"),
                ("jobs", "wait", "0" * 32, "--timeout", "soon"),
                ("--credential-file",)):
            done = c.run(*args)
            self.assertEqual(done.returncode, 2, (args, done.stderr))
            self.assertTrue(done.stderr.strip(), args)
        self.assertEqual(c.json("jobs", "list"), [])

    def test_the_message_names_the_thing(self):
        c = self.cluster()
        self.assert_fails(c.run("submit", "--use-gpu", "--gpus", "0", "--",
                                "true"), 2, "--use-gpu", "--gpus")
        self.assert_fails(c.run("submit", "--file", "/no/such/file", "--",
                                "true"), 2, "/no/such/file")
        self.assert_fails(c.run("submit", "--memory", "lots", "--", "true"), 2,
                          "--memory", "lots")
        self.assert_fails(c.run("submit", "--strategy", "SIDEWAYS", "--",
                                "true"), 2, "SIDEWAYS", "STRICT_SPREAD")
        self.assert_fails(c.run("submit", "--env", "A=1", "--env", "A=2", "--",
                                "true"), 2, "--env A=2", "give it once")
        self.assert_fails(c.run("submit", "--same", "a=b", "--", "true"), 2,
                          "--same", "a=b", "label's key")
        self.assert_fails(c.run("submit", "--array", "0-100000", "--", "true"),
                          2, "--array", "column 1", "100000")
        job = c.submit("--hold", "--", "true")
        array = c.submit("--hold", "--array", "0-1", "--", "true")
        self.assert_fails(c.run("jobs", "list", "--array", job), 2, "not an array")
        self.assert_fails(c.run("jobs", "list", "--array", f"{array}.1"), 2,
                          "name its array", array)
        self.assert_fails(c.run("jobs", "list", "--array", "f" * 32), 125,
                          "f" * 32)

    def test_what_is_too_long_is_not_said_again_in_full(self):
        c = self.cluster()
        huge = "x" * 70_000
        for args in (("submit", "--selector", huge, "--", "true"),
                     ("submit", "--name", huge, "--", "true"),
                     ("submit", "--file", huge, "--", "true"),
                     ("submit", "--storage-path", huge, "--", "true"),
                     ("submit", "--request-id", huge, "--", "true"),
                     (huge,), ("jobs", "get", huge), ("nodes", "get", huge),
                     ("events", "--node", huge), ("events", "--since", huge),
                     ("drain", "w0", "--reason", huge), ("adopt", huge),
                     ("head", "backup", f"/{huge}"),
                     ("status", "--address", huge),
                     ("status", "--credential-file", huge),
                     ("up", "--memory", huge), ("up", "--state-dir", huge)):
            for json_flag in ((), ("--json",)):
                if args[0] in ("submit", "up", huge) and json_flag:
                    continue
                done = c.run(*args, *json_flag)
                self.assertIn(done.returncode, (2, 125), args[:2])
                self.assertLess(len(done.stderr), 6_000, args[:2])
                self.assertEqual(done.stderr.count("\n"), 1, args[:2])

    def test_unknown_jobs_are_125(self):
        c = self.cluster()
        unknown = "0123456789abcdef" * 2
        for command in ("get", "wait", "stop", "logs"):
            self.assert_fails(c.run("jobs", command, "not-an-id"), 125,
                              "not-an-id")
            self.assert_fails(c.run("jobs", command, unknown), 125, unknown)
        done = c.run("jobs", "get", unknown, "--json")
        error = json.loads(done.stderr)
        self.assertEqual(set(error), {"code", "reason", "message"})
        self.assertEqual(error["code"], "NOT_FOUND")

    def test_daemons_refuse_bad_flags_and_files_with_2(self):
        file = self.file("file", "")
        state = ("--state-dir", self.sandbox.dir / "state")
        head = (cluster.BIN / "cohort-head", "--address", "127.0.0.1:0")
        worker = (cluster.BIN / "cohort-worker", "--address", "127.0.0.1:1",
                  *state)
        known = ("--credential-file", self.credential("known"))
        for command, words in (
                ((*head, *state, "--bogus"), ("--bogus", "--help")),
                ((*head, "--state-dir", ""), ("--state-dir is empty",)),
                ((*head, "--state-dir", file), ("--state-dir", file)),
                ((*head, *state, "--ready-file", ""),
                 ("--ready-file is empty",)),
                ((*head, *state, "--ready-file", "/nope/y"),
                 ("--ready-file", "/nope")),
                ((head[0], "--address", "8.8.8.8:0", "--volatile",
                  *state), ("--address", "8.8.8.8")),
                ((*worker, "--credential-file", "/nope"),
                 ("--credential-file", "/nope")),
                ((*worker, *known, "--ready-file", "/nope/r"),
                 ("--ready-file", "/nope")),
                ((*worker, *known, "--num-gpus", "-1"),
                 ("--num-gpus", "--help")),
                ((*worker, *known, "--num-gpus", ""), ("--num-gpus",)),
                ((*worker, *known, "--memory", "1PiB"),
                 ("--memory 1PiB", "900000000000000 bytes")),
                ((*worker, *known, "--name", "a\nb"), ("--name",)),
                ((*worker, *known, "--labels", "a=\x1b"), ("--labels",)),
                ((*worker, *known, "--labels", "host=x"),
                 ("--labels", "host=x", "another key")),
                ((*worker, *known, "--taint", " "), ("--taint is empty",)),
                ((*worker, *known, "--share", "1/9999999"), ("--share",)),
                ((*worker, *known, "--memory", "x" * 70_000),
                 ("--memory", "xxx...")),
                ((*head, *state, "--node-timeout", "1e9h"),
                 ("--node-timeout", "column")),
                ((*worker, *known, "--host", "a b"), ("--host",)),
                ((*worker, *known, "--host", "nohost.invalid"),
                 ("nohost.invalid", "resolve"))):
            done = subprocess.run([str(part) for part in command],
                                  capture_output=True, text=True, check=False,
                                  timeout=cluster.DEADLINE)
            self.assert_fails(done, 2, *words)
            message = [line for line in done.stderr.splitlines()
                       if line.startswith(command[0].name + ": ")]
            self.assertEqual(len(message), 1, done.stderr)

    def test_a_wrong_credential_is_125(self):
        c = self.cluster()
        other = self.file("other", c.credential.read_text().replace(
            c.token(), "00" * 32), 0o600)
        done = c.run("status", "--credential-file", other)
        self.assert_fails(done, 125, "credential")
        done = c.run("status", "--credential-file", "/no/such/credential")
        self.assertIn(done.returncode, (2, 125))
        self.assertIn("/no/such/credential", done.stderr)
        readable = self.credential("readable", 0o644)
        self.assert_fails(c.run("status", "--credential-file", readable), 2,
                          readable, "chmod")
        short = self.file("short", "x", 0o600)
        self.assert_fails(c.run("status", "--credential-file", short), 2, short)
        worker = self.sandbox.spawn(
            [cluster.BIN / "cohort-worker", "--address", c.address,
             "--credential-file", other, "--state-dir",
             self.sandbox.dir / "wx"], "wx.log")
        log = self.sandbox.dir / "wx.log"
        cluster.until("it says so", lambda: "credential" in log.read_text())
        self.assertEqual(len(c.json("nodes")), 1)
        worker.kill()

    def test_nobody_there_is_125(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))  # nobody listens
            address = "127.0.0.1:%d" % listener.getsockname()[1]
            client = cluster.Client(address, self.credential("any"))
            self.assert_fails(client.run("status"), 125, address)

    def test_a_package_with_a_link_is_refused(self):
        c = self.cluster()
        self.file("tree/a", "a")
        (self.sandbox.dir / "tree/link").symlink_to("/etc/passwd")
        done = c.run("submit", "--working-dir", self.sandbox.dir / "tree", "--",
                     "true")
        self.assert_fails(done, 2, "tree/link")
        self.assertEqual(c.json("jobs", "list"), [])

    def test_an_unusable_storage_path_fails_the_job_alone(self):
        if not (cluster.BIN / "mnist").exists():
            self.skipTest("built without LibTorch: no mnist")
        c = self.cluster()
        blocker = self.file("blocker", "")
        job = c.submit("--storage-path", blocker / "results", "--",
                       cluster.BIN / "mnist", "--data", cluster.MNIST_DATA,
                       "--train-samples", "64", "--epochs", "1",
                       "--test-samples", "64")
        ended = c.await_end(job)
        self.assertEqual(ended["state"], "FAILED")
        told = (ended["reason"] or "") + c.logs(job, "--stderr")
        self.assertIn(str(blocker), told)
        self.assertEqual(c.run("submit", "--wait", "--", "true").returncode, 0)


class Daemons(cluster.ClusterTest):

    def head(self, *flags):
        return subprocess.run(
            [cluster.BIN / "cohort-head", *map(str, flags)],
            capture_output=True, text=True, timeout=cluster.DEADLINE,
            check=False, stdin=subprocess.DEVNULL)

    def test_a_busy_port_names_its_holder(self):
        c = self.cluster()
        done = self.head("--address", c.address, "--http-address",
                         "127.0.0.1:0", "--state-dir",
                         self.sandbox.dir / "second")
        self.assert_fails(done, 125, c.address, c.head.pid, "cohort-head")

    def test_a_second_head_names_the_first(self):
        c = self.cluster()
        done = self.head("--address", "127.0.0.1:0", "--state-dir",
                         self.sandbox.dir / "head")
        self.assert_fails(done, 125, self.sandbox.dir / "head", c.head.pid)

    def test_a_second_worker_names_the_first(self):
        c = self.cluster()
        done = subprocess.run(
            [cluster.BIN / "cohort-worker", "--address", c.address,
             "--credential-file", c.credential, "--state-dir",
             self.sandbox.dir / "w0"], capture_output=True, text=True,
            timeout=cluster.DEADLINE, check=False)
        self.assert_fails(done, 125, self.sandbox.dir / "w0",
                          c.workers["w0"].pid)

    def test_tmpfs_needs_volatile(self):
        state = pathlib.Path("/dev/shm") / self.sandbox.dir.name
        self.addCleanup(shutil.rmtree, state, ignore_errors=True)
        done = self.head("--address", "127.0.0.1:0", "--state-dir", state)
        self.assert_fails(done, 2, state, "tmpfs", "--volatile")
        ready = self.sandbox.dir / "ready"
        self.sandbox.spawn(
            [cluster.BIN / "cohort-head", "--address", "127.0.0.1:0",
             "--state-dir", state, "--volatile", "--ready-file", ready],
            "volatile.log")
        cluster.until("it serves", ready.exists)

    def test_a_directory_that_cannot_be(self):
        blocker = self.file("blocker", "")
        done = self.head("--address", "127.0.0.1:0", "--state-dir",
                         blocker / "head")
        self.assertIn(done.returncode, (2, 125))
        self.assertIn(str(blocker), done.stderr)

    def test_plaintext_is_for_loopback(self):
        done = self.head("--address", "0.0.0.0:0", "--insecure", "--state-dir",
                         self.sandbox.dir / "h")
        self.assert_fails(done, 2, "--insecure")

    def test_worker_flags_are_checked(self):
        for flags in (("--num-cpus", "-1"), ("--memory", "x"),
                      ("--num-gpus", "1", "--simulate-gpus", "1"),
                      ("--resources", "a"), ("--labels", "a"), ("--what",)):
            done = subprocess.run(
                [cluster.BIN / "cohort-worker", "--address", "127.0.0.1:1",
                 "--credential-file", "/none", "--state-dir",
                 self.sandbox.dir / "w", *flags],
                capture_output=True, text=True, timeout=cluster.DEADLINE,
                check=False)
            self.assert_fails(done, 2, flags[0])

    def test_a_truncated_store_is_named(self):
        c = self.cluster()
        for _ in range(3):
            c.submit("--cpus", "1000", "--", "true")
        c.kill_head()
        for kind in ("MANIFEST-*", "*.log", "CURRENT"):
            broken = self.sandbox.dir / f"broken-{kind.strip('*.-')}"
            shutil.copytree(self.sandbox.dir / "head", broken)
            victim = max(broken.glob(f"store/{kind}"),
                         key=lambda path: path.stat().st_size)
            data = victim.read_bytes()
            if kind == "*.log":  # a tail may be torn by a crash; the middle not
                middle = len(data) // 3
                data = data[:middle] + b"\xff" * 8 + data[middle + 8:]
            else:
                data = data[:len(data) // 2]
            victim.write_bytes(data)
            done = self.head("--address", "127.0.0.1:0", "--state-dir", broken)
            self.assert_fails(done, 125, broken / "store")
        c.start_head()
        self.assertEqual(len(c.json("jobs", "list")), 3)

    def test_garbage_at_the_heads_port_hurts_nobody(self):
        c = self.cluster()
        job = c.submit("--", "sleep", "600")
        c.await_state(job, "RUNNING")
        host, _, port = c.address.partition(":")
        self.throw_garbage(socket.AF_INET, (host, int(port)))
        self.still_well(c, job)

    def test_garbage_at_the_workers_socket_hurts_nobody(self):
        c = self.cluster()
        job = c.submit("--", "sleep", "600")
        pid = c.await_state(job, "RUNNING")["ranks"][0]["pid"]
        path = cluster.environment_of(pid)["COHORT_WORKER_SOCKET"]
        self.throw_garbage(socket.AF_UNIX, path.removeprefix("unix:"))
        self.still_well(c, job)

    def throw_garbage(self, family, address):
        rng = random.Random(7)
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        for garbage in (b"", b"\0" * 100, b"GET / HTTP/1.1\r\n\r\n",
                        rng.randbytes(100_000), preface + rng.randbytes(5000),
                        preface + b"\0\0\0\4\0\0\0\0\0" + rng.randbytes(5000),
                        b"\x16\x03\x01" + rng.randbytes(300)):
            with socket.socket(family) as peer:
                peer.settimeout(cluster.DEADLINE)
                peer.connect(address)
                with contextlib.suppress(OSError):
                    peer.sendall(garbage)
                    peer.shutdown(socket.SHUT_WR)
                    while peer.recv(4096):
                        pass

    def still_well(self, c, job):
        self.assertIsNone(c.head.poll())
        self.assertIsNone(c.workers["w0"].poll())
        self.assertEqual(c.job(job)["state"], "RUNNING")
        self.assertEqual(c.job(job)["attempt"], 1)
        self.assertEqual(c.run("submit", "--wait", "--", "true").returncode, 0)

    def test_a_head_with_a_full_disk_says_so_and_comes_back(self):
        full = self.sandbox.tmpfs("full", "24m")
        if full is None:
            self.skipTest("may not mount a tmpfs")
        c = cluster.Cluster(self.sandbox)
        ready = self.sandbox.dir / "ready"
        head = self.sandbox.spawn(
            [cluster.BIN / "cohort-head", "--address", "127.0.0.1:0",
             "--state-dir", full / "head", "--volatile", "--ready-file",
             ready], "head.log")
        cluster.until("it serves", ready.exists)
        c.address = ready.read_text().strip()
        c.credential = full / "head/credential"
        before = c.submit("--cpus", "1000", "--", "true")
        ballast = full / "ballast"
        with open(ballast, "wb", buffering=0) as sink:
            with contextlib.suppress(OSError):
                while sink.write(b"x" * 4096):
                    pass
        for number in range(200):
            submit = c.popen("submit", "--cpus", "1000", "--env",
                             "V=" + "x" * 60_000, "--", "true",
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True)
            said = submit.stderr.readline()  # empty when it went well
            if said:
                break
            submit.communicate()
        while "disk" not in said and submit.poll() is None:
            said = submit.stderr.readline()
        self.assertIn("is full", said)
        self.assertIn(str(full), said)
        self.assertIsNone(head.poll(), "the head lives")
        ballast.unlink()
        out, _ = submit.communicate(timeout=cluster.DEADLINE)
        self.assertEqual(submit.returncode, 0, "tried until it was taken")
        listed = [job["id"] for job in c.json("jobs", "list")]
        self.assertEqual(listed.count(out.strip()), 1)
        self.assertIn(before, listed)

    def test_a_full_dev_shm_fails_the_job_alone(self):
        if not (cluster.BIN / "mnist").exists():
            self.skipTest("built without LibTorch: no mnist")
        if subprocess.run(["unshare", "-m", "true"], check=False,
                          capture_output=True).returncode:
            self.skipTest("may not mount a small /dev/shm")
        c = cluster.Cluster(self.sandbox)
        c.start_head()
        ready = self.sandbox.dir / "w0.ready"
        worker = self.sandbox.spawn(
            ["unshare", "-m", "sh", "-c",
             "mount -t tmpfs -o size=1m tmpfs /dev/shm && exec \"$@\"", "sh",
             cluster.BIN / "cohort-worker", "--address", c.address,
             "--credential-file", c.credential, "--state-dir",
             self.sandbox.dir / "w0", "--num-cpus", "2", "--ready-file",
             ready], "w0.log")
        cluster.until("it has joined", ready.exists)
        job = c.submit("--num-workers", "2", "--", cluster.BIN / "mnist",
                       "--data", cluster.MNIST_DATA, "--train-samples", "256",
                       "--epochs", "1", "--test-samples", "64")
        ended = c.await_end(job)
        self.assertEqual(ended["state"], "FAILED")
        told = (ended["reason"] or "") + c.logs(job, "--stderr")
        self.assertIn("/dev/shm", told)
        self.assertIsNone(worker.poll())
        self.assertEqual(c.run("submit", "--wait", "--", "true").returncode, 0)

    def test_a_message_over_the_limit_is_refused(self):
        c = self.cluster()
        huge = [flag for number in range(60) for flag in
                ("--env", f"V{number}=" + "x" * 30_000)]
        done = c.run("submit", *huge, "--", "true")
        self.assertIn(done.returncode, (2, 125))
        self.assertIn("at most", done.stderr)
        self.assertEqual(c.json("jobs", "list"), [])
        self.assertEqual(c.run("submit", "--wait", "--", "true").returncode, 0)


if __name__ == "__main__":
    cluster.main()
