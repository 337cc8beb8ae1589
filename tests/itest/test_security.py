"""Closed by default: who answers at the cluster's ports, and whom they answer."""

import contextlib
import http.client
import json
import os
import socket
import ssl
import stat
import subprocess
import threading

import cluster
import driver as told

# How a client in plaintext begins.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)


def listeners_of(pid):
    """(host, port) of each TCP port at which the process listens, by /proc."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    found = set()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/net/{table}", encoding="ascii") as lines:
            for line in list(lines)[1:]:
                fields = line.split()
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                    found.add(int(fields[1].rpartition(":")[2], 16))
    return found


def own_address():
    """An address of this machine that is not loopback, or None."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        with contextlib.suppress(OSError):
            probe.connect(("192.0.2.1", 9))
            address = probe.getsockname()[0]
            return None if address.startswith("127.") else address
    return None


def handshake(port, host="127.0.0.1", authority=None, newest=None):
    """The TLS version of a connection; raises ssl.SSLError, OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if authority is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.load_verify_locations(authority)
    if newest is not None:
        context.maximum_version = newest
    with socket.create_connection((host, port), timeout=20) as plain:
        with context.wrap_socket(plain, server_hostname="cohort") as secure:
            return secure.version()


def readable(directory):
    """The files below it that others may read."""
    for path in directory.iterdir():
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode) and mode & 0o011:
            yield from readable(path)
        elif stat.S_ISREG(mode) and mode & 0o044:
            yield path


def port_of(address):
    return int(address.rpartition(":")[2])


class Impostor:
    """Listens at a port that a head left, and keeps what it is sent."""

    def __init__(self, port, certificate=None):
        self.heard = []
        self._listener = socket.create_server(("127.0.0.1", port))
        self._context = None
        if certificate is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.set_alpn_protocols(["h2"])
            self._context.load_cert_chain(*certificate)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                peer.settimeout(5)
                with contextlib.suppress(OSError, ssl.SSLError), peer:
                    if self._context is not None:
                        peer = self._context.wrap_socket(peer, server_side=True)
                    self.heard.append(peer.recv(65536))

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


class Tls(cluster.ClusterTest):

    def test_every_port_of_the_daemons_speaks_tls_1_3_alone(self):
        c = self.cluster()
        port = port_of(c.address)
        self.assertEqual(listeners_of(c.head.pid),
                         {port, port_of(c.http_address)})
        self.assertEqual(listeners_of(c.workers["w0"].pid), set())
        self.assertEqual(handshake(port, authority=c.credential), "TLSv1.3")
        with self.assertRaises((ssl.SSLError, OSError)):
            handshake(port, newest=ssl.TLSVersion.TLSv1_2)
        with socket.create_connection(("127.0.0.1", port), timeout=20) as peer:
            peer.sendall(PREFACE)
            with contextlib.suppress(ConnectionResetError):
                self.assertNotIn(b"PRI", peer.recv(1024))

    def test_what_is_secret_is_private(self):
        c = self.cluster(workers=0)
        for name in ("credential", "ca.key"):
            info = (self.sandbox.dir / "head" / name).stat()
            self.assertEqual(stat.S_IMODE(info.st_mode), 0o600, name)
        self.assertIn("PRIVATE KEY",
                      c.credential.with_name("ca.key").read_text())
        self.assertNotIn("PRIVATE KEY", c.credential.read_text())

    def test_who_takes_the_port_of_a_head_is_told_nothing(self):
        c = self.cluster()
        job = c.submit("--", "sleep", "300")
        c.await_state(job, "RUNNING")
        ranks = c.rank_pids(job)
        secrets = [c.token().encode(), b"Bearer", bytes.fromhex(c.token())]
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes",
             "-subj", "/CN=cohort", "-addext", "subjectAltName=DNS:cohort",
             "-keyout", self.sandbox.dir / "key", "-out",
             self.sandbox.dir / "cert"], check=True, capture_output=True)
        for certificate in (None, (self.sandbox.dir / "cert",
                                   self.sandbox.dir / "key")):
            c.kill_head()
            impostor = Impostor(port_of(c.address), certificate)
            try:
                done = c.run("status")
                self.assertEqual(done.returncode, 125)
                cluster.until("the worker came by",
                              lambda i=impostor: len(i.heard) >= 4
                              or i._context is not None)
                if certificate is not None:
                    self.assertIn("another authority", done.stderr)
            finally:
                impostor.close()
            for text in impostor.heard:
                for secret in secrets:
                    self.assertNotIn(secret, text)
            c.start_head()
            cluster.until("the node is back", lambda: [
                node["state"] for node in c.json("nodes")] == ["ALIVE"])
        self.assertEqual(c.rank_pids(job), ranks)

    def test_a_credential_of_another_cluster_is_named(self):
        c = self.cluster(workers=0)
        other = cluster.Cluster(self.sandbox)
        other.credential = self.sandbox.dir / "other/credential"
        other.start_head(state="other")
        done = c.run("status", "--credential-file", other.credential)
        self.assert_fails(done, 125, "another authority",
                          "<state-dir>/credential")
        # Of before TLS.
        old = self.sandbox.dir / "old"
        old.write_bytes(bytes(32))
        old.chmod(0o600)
        self.assert_fails(c.run("status", "--credential-file", old), 2,
                          "without TLS")

    def test_insecure_is_plaintext_on_loopback_and_shouts(self):
        c = cluster.Cluster(self.sandbox)
        c.head_flags = ("--insecure",)
        c.start_head()
        c.start_worker("w0", "--num-cpus", "1")
        self.assertEqual(c.run("submit", "--wait", "--", "true").returncode, 0)
        self.assertIn("insecure", (self.sandbox.dir / "head.log").read_text())
        with self.assertRaises((ssl.SSLError, OSError)):
            handshake(port_of(c.address))
        tls = cluster.Cluster(self.sandbox)
        tls.credential = self.sandbox.dir / "tls/credential"
        tls.start_head(state="tls")
        self.assert_fails(
            c.run("status", "--credential-file", tls.credential), 125,
            "plaintext")
        self.assert_fails(
            c.run("status", "--address", "192.0.2.1:7710"), 125, "--insecure")
        c.kill_head()
        done = subprocess.run(
            [cluster.BIN / "cohort-head", "--address", "127.0.0.1:0",
             "--state-dir", self.sandbox.dir / "head"], capture_output=True,
            text=True, timeout=60, check=False)
        self.assert_fails(done, 2, "--insecure")

    def test_a_cluster_on_a_network(self):
        host = own_address()
        if host is None:
            self.skipTest("this machine has no network")
        c = cluster.Cluster(self.sandbox)
        c.address = f"{host}:0"
        c.http_address = f"{host}:0"
        c.start_head()
        c.start_worker("w0", "--num-cpus", "1")
        self.assertEqual(c.json("nodes")[0]["host"], host)
        self.assertEqual(c.run("submit", "--wait", "--", "true").returncode, 0)
        port = port_of(c.http_address)
        self.assertEqual(handshake(port, host, c.credential), "TLSv1.3")
        with self.assertRaises((ssl.SSLError, OSError)):
            handshake(port, host, newest=ssl.TLSVersion.TLSv1_2)
        context = ssl.create_default_context(cafile=c.credential)
        context.check_hostname = False
        connection = http.client.HTTPSConnection(host, port, timeout=30,
                                                 context=context)
        for path, token, status in (("/healthz", None, 200),
                                    ("/v1/status", None, 401),
                                    ("/v1/status", c.token(), 200),
                                    ("/metrics", c.token(), 200)):
            connection.request("GET", path, headers={} if token is None else {
                "Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            answer.read()
            self.assertEqual(answer.status, status, path)
        connection.close()
        plain = http.client.HTTPConnection(host, port, timeout=30)
        with self.assertRaises((OSError, http.client.HTTPException)):
            plain.request("GET", "/healthz")
            plain.getresponse()
        plain.close()


    def test_actors_on_a_network_speak_tls_1_3_alone(self):
        host = own_address()
        if host is None or os.geteuid() != 0:
            self.skipTest("needs a network, and root for a namespace")
        c = self.cluster("--num-cpus", "2", "--host", host)
        program = cluster.BIN.parent / "tests/actor-program"
        # Without the actor's unix socket, as on another node.
        # In a chroot the root is not a mount whose propagation could be changed.
        far = self.file(
            "far", "#!/bin/sh\nexec unshare -m --propagation unchanged sh -c "
            "'mount --make-private /dev/shm && mount -t tmpfs none /dev/shm && "
            f"exec {program}'\n", 0o755)
        driver = told.Driver(self, far, c.environment(), None)
        driver.value("create", "a", 5, 0, 0)
        self.assertEqual(driver.value("add", "a", 2), "7")
        ports = listeners_of(int(driver.value("pid", "a")))
        self.assertEqual(len(ports), 1)
        for port in ports:
            self.assertEqual(handshake(port, host), "TLSv1.3")
            with socket.create_connection((host, port), timeout=20) as peer:
                peer.sendall(PREFACE)
                with contextlib.suppress(ConnectionResetError):
                    self.assertNotIn(b"PRI", peer.recv(1024))
        self.assertEqual(driver.quit(), 0)


class Secrets(cluster.ClusterTest):

    def test_a_jobs_secret_reaches_its_ranks_and_nobody_else(self):
        c = self.cluster()
        word = "sesame-$HOME-" + "x" * 20
        key = self.file("key", word + "\n", mode=0o600)
        os.environ["COHORT_TEST_TOKEN"] = word
        self.addCleanup(os.environ.pop, "COHORT_TEST_TOKEN")
        job = c.submit("--secret-env", "COHORT_TEST_TOKEN", "--secret-file",
                       f"KEY={key}", "--", "sh", "-c",
                       'test "$COHORT_TEST_TOKEN" = "$KEY" && '
                       'printf %s "$KEY" | wc -c')
        self.assertEqual(c.await_end(job)["state"], "SUCCEEDED")
        self.assertEqual(c.logs(job).strip(), str(len(word)))
        shown = [c.run("jobs", "get", job, *flags).stdout
                 for flags in ((), ("--json",))]
        shown += [c.run(*words).stdout
                  for words in (("events",), ("jobs", "list", "--json"))]
        self.assertNotIn("sesame", "".join(shown))
        self.assertIn("COHORT_TEST_TOKEN=***", shown[0])
        self.assertEqual(c.job(job)["secrets"], {"COHORT_TEST_TOKEN": "***",
                                                 "KEY": "***"})
        self.assertEqual([path for path in readable(self.sandbox.dir)
                          if b"sesame" in path.read_bytes()], [])

    def test_a_backup_has_no_secrets_and_a_restored_job_waits_for_them(self):
        c = self.cluster()
        file = self.file("key", "sesame", mode=0o600)
        job = c.submit("--hold", "--secret-file", f"KEY={file}", "--", "sh",
                       "-c", 'test "${#KEY}" = 6')
        array = c.submit("--hold", "--array", "0-1", "--secret-file",
                         f"KEY={file}", "--", "true")
        other = c.submit("--hold", "--", "true")
        backup = self.sandbox.dir / "backup"
        done = c.run("head", "backup", backup)
        self.assertEqual(done.returncode, 0, done.stderr)
        for kept in (backup, self.sandbox.dir / "head"):
            for path in kept.rglob("*"):
                if path.is_file():
                    self.assertNotIn(b"sesame", path.read_bytes(), path)
        self.assertEqual(list(backup.rglob("secrets.key")), [])
        c.kill_head()
        done = c.run("head", "restore", backup, "--state-dir",
                     self.sandbox.dir / "restored")
        self.assertEqual(done.returncode, 0, done.stderr)
        c.start_head("restored")
        for each in (job, array, other):
            self.assertEqual(c.run("jobs", "release", each).returncode, 0)
        self.assertEqual(c.await_end(other)["state"], "SUCCEEDED")
        self.assertIn("its secrets", c.job(job)["reason"])
        explained = c.run("explain", job).stdout
        self.assertIn("secrets.key", explained)
        self.assertIn("submit it again", explained)
        self.assertIn("secrets", c.run("explain", array).stdout)
        # With the other head's key it runs.
        c.kill_head()
        with open(self.sandbox.dir / "restored/secrets.key", "a",
                  encoding="ascii") as keys:
            keys.write((self.sandbox.dir / "head/secrets.key").read_text())
        c.start_head("restored")
        for each in (job, array):
            self.assertEqual(c.await_end(each)["state"], "SUCCEEDED")


class Tokens(cluster.ClusterTest):

    def head_alone(self):
        c = cluster.Cluster(self.sandbox)
        c.start_head()
        return c

    def token(self, c, *flags):
        done = c.run("token", "create", *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def worker(self, c, name, *flags, address=None):
        """A worker that has no credential but what `flags` give."""
        own = {key: value for key, value in os.environ.items()
               if not key.startswith("COHORT_")}
        return self.sandbox.spawn(
            [cluster.BIN / "cohort-worker", "--address", address or c.address,
             "--name", name, "--state-dir", self.sandbox.dir / name,
             "--num-cpus", "1", *flags], f"{name}.log", env=own)

    def log(self, name):
        return (self.sandbox.dir / f"{name}.log").read_text()

    def states(self, c):
        return {node["name"]: node["state"] for node in c.json("nodes")}

    def assert_refused(self, process, name, *words):
        self.assertNotEqual(process.wait(cluster.DEADLINE), 0)
        for word in words:
            self.assertIn(word, self.log(name))

    def test_a_machine_joins_by_a_token_and_stays(self):
        c = self.head_alone()
        token = self.token(c)
        self.assertRegex(token, r"^cohort1\.[0-9a-f]{64}\.[0-9a-f]{16}"
                                r"\.[0-9a-f]{64}$")
        worker = self.worker(c, "w0", "--join", token)
        cluster.until("it joined", lambda: self.states(c) == {"w0": "ALIVE"})
        kept = self.sandbox.dir / "w0/credential"
        self.assertEqual(stat.S_IMODE(kept.stat().st_mode), 0o600)
        self.assertNotIn(c.token(), kept.read_text())
        # A rank has a credential of the node's, and gets at its own job.
        job = c.submit("--", cluster.BIN / "cohort", "jobs", "get", "--json",
                       "last")
        self.assertIn(c.await_end(job)["state"], ("SUCCEEDED", "FAILED"))
        done = c.submit("--", "sh", "-c",
                        f"{cluster.BIN}/cohort jobs get $COHORT_JOB_ID")
        self.assertEqual(c.await_end(done)["state"], "SUCCEEDED",
                         c.logs(done, "--stderr"))
        # Without the token, which is over.
        self.assertEqual(
            c.run("token", "revoke", token.split(".")[2]).returncode, 0)
        worker.kill()
        worker.wait()
        self.worker(c, "w0")
        cluster.until("it is back", lambda: self.log("w0").count(" joined "))
        self.assertEqual(c.run("submit", "--wait", "--", "true").returncode, 0)

    def test_a_token_that_is_no_good_says_why(self):
        c = self.head_alone()
        token = self.token(c)
        revoked = self.token(c)
        self.assertEqual(
            c.run("token", "revoke", revoked.split(".")[2]).returncode, 0)
        short = self.token(c, "--ttl", "1ms")
        other = cluster.Cluster(self.sandbox)
        other.credential = self.sandbox.dir / "other-head/credential"
        other.start_head(state="other-head")
        parts = token.split(".")
        swapped = ".".join([*parts[:2], revoked.split(".")[2], parts[3]])
        for name, text, words in (
                ("cut", token[:-1], ("--join", "cut short")),
                ("revoked", revoked, ("was revoked", "cohort token create")),
                ("expired", short, ("expired at", "the head's clock")),
                ("swapped", swapped, ("not this cluster's",)),
                ("other", self.token(other), ("another authority",))):
            process = self.worker(c, name, "--join", text)
            self.assert_refused(process, name, *words)
            self.assertNotIn(parts[3], self.log(name))
        process = self.worker(c, "none")
        self.assert_refused(process, "none", "--join", "cohort token create")
        plain = cluster.Cluster(self.sandbox)
        plain.head_flags = ("--insecure",)
        plain.credential = self.sandbox.dir / "plain/credential"
        plain.start_head(state="plain")
        process = self.worker(c, "plain-w", "--join", token,
                              address=plain.address)
        self.assert_refused(process, "plain-w", "does not speak TLS 1.3")
        self.assertEqual(c.json("nodes"), [])

    def test_a_revoked_node_is_out_at_once(self):
        c = self.head_alone()
        worker = self.worker(c, "w0", "--join", self.token(c))
        cluster.until("it joined", lambda: self.states(c) == {"w0": "ALIVE"})
        tokens = c.json("token", "list")["tokens"]
        node = [each for each in tokens if each["role"] == "worker"]
        self.assertEqual([each["name"] for each in node], ["w0"])
        done = c.run("token", "revoke", node[0]["id"])
        self.assertEqual(done.returncode, 0, done.stderr)
        cluster.until("it is told",
                      lambda: "was revoked" in self.log("w0"), 10)
        cluster.until("it is out", lambda: self.states(c)["w0"] != "ALIVE")
        self.assertIn("token_revoked", c.run("events").stdout)
        worker.kill()
        worker.wait()
        # With another token it joins again, and keeps what it gets.
        worker = self.worker(c, "w0", "--join", self.token(c))
        cluster.until("it is back",
                      lambda: self.states(c) == {"w0": "ALIVE"})
        kept = (self.sandbox.dir / "w0/credential").read_text()
        worker.kill()
        worker.wait()
        self.worker(c, "w0", "--join", self.token(c))
        cluster.until("it is back", lambda: self.log("w0").count(" joined ") > 2)
        self.assertEqual((self.sandbox.dir / "w0/credential").read_text(), kept)

    def test_users_have_names_and_roles(self):
        c = self.cluster()
        for name, role in (("ann", "submit"), ("rae", "read")):
            done = c.run("user", "add", name, "--role", role, "--file",
                         self.sandbox.dir / name)
            self.assertEqual(done.returncode, 0, done.stderr)
        ann = cluster.Client(c.address, self.sandbox.dir / "ann")
        rae = cluster.Client(c.address, self.sandbox.dir / "rae")
        self.assertEqual(stat.S_IMODE(ann.credential.stat().st_mode), 0o600)
        job = ann.submit("--", "true")
        ann.await_end(job)
        self.assertIn("user/ann", c.run("events").stdout)
        self.assertEqual(rae.job(job)["state"], "SUCCEEDED")
        self.assert_fails(rae.run("submit", "--", "true"), 125, "user/rae",
                          "read")
        self.assert_fails(ann.run("token", "create"), 125, "user/ann",
                          "submit")
        self.assert_fails(ann.run("user", "add", "bob"), 125, "submit")
        self.assert_fails(ann.run("undrain", "w0"), 125, "submit")
        self.assert_fails(c.run("user", "add", "ann"), 125, "there already")
        self.assert_fails(c.run("user", "add", "bob", "--role", "worker"), 2,
                          "--role")
        listed = c.run("user", "list").stdout
        self.assertRegex(listed, r"submit +ann +all +VALID")
        self.assertEqual(c.run("user", "remove", "ann").returncode, 0)
        self.assert_fails(ann.run("jobs"), 125, "was revoked")
        self.assert_fails(c.run("user", "remove", "ann"), 125, "no user ann")
        self.assert_fails(c.run("user", "add", "zoe", "--file", c.credential),
                          125, "is there already", "--file")
        self.assertNotIn("zoe", c.run("user", "list").stdout)
        self.assert_fails(c.run("user", "add", "bob", "--file", "/none/bob"),
                          125, "/none", "`cohort user remove`")
        # HTTP knows them, too.
        for client, status in ((rae, 200), (ann, 401)):
            connection = http.client.HTTPConnection(c.http_address, timeout=30)
            connection.request("GET", "/v1/jobs", headers={
                "Authorization": f"Bearer {client.token()}"})
            self.assertEqual(connection.getresponse().status, status)
            connection.close()

    def test_who_changed_what_and_who_was_refused_is_in_the_audit_log(self):
        c = self.head_alone()
        file = self.sandbox.dir / "ann"
        done = c.run("user", "add", "ann", "--file", file)
        self.assertEqual(done.returncode, 0, done.stderr)
        ann = cluster.Client(c.address, file)
        job = ann.submit("--name", "train", "--", "true")
        self.assertEqual(ann.run("jobs", "stop", job).returncode, 0)
        self.assert_fails(ann.run("token", "create"), 125, "submit")
        self.assert_fails(ann.run("audit"), 125, "submit")
        file.write_text("secret " + "0" * 64 + "\n" +
                        file.read_text().partition("\n")[2])
        for _ in range(5):
            self.assertEqual(ann.run("jobs", "stop", job).returncode, 125)

        def log(*flags):
            done = c.run("audit", "--json", *flags)
            self.assertEqual(done.returncode, 0, done.stderr)
            return [json.loads(line) for line in done.stdout.splitlines()]
        cluster.until("refused calls are there", lambda: log(
            "--principal", "nobody"))
        calls = [(call["principal"], call["role"], call["method"],
                  call["result"]) for call in log("--principal", "ann")]
        self.assertEqual(calls, [
            ("user/ann", "submit", "ClusterService/SubmitJob", "OK"),
            ("user/ann", "submit", "ClusterService/StopJob", "OK"),
            ("user/ann", "submit", "SecurityService/CreateToken",
             "PERMISSION_DENIED"),
            ("user/ann", "submit", "SecurityService/ListAudit",
             "PERMISSION_DENIED")])
        first = log("--principal", "user/ann")[0]
        self.assertEqual((first["job"], first["what"], first["count"]),
                         (job, "name=train", 1))
        self.assertRegex(first["peer"], r"^ipv4:127\.0\.0\.1:\d+$")
        self.assertEqual([call["method"] for call in log("--tail", "1")],
                         [log()[-1]["method"]])
        # It outlives the head, and the store of a flood is not larger.
        before = log("--principal", "ann")
        c.kill_head()
        c.start_head()
        self.assertEqual(log("--principal", "ann"), before)
        self.assertLess(len(log()), 15)
        table = c.run("audit").stdout
        self.assertRegex(table, r"user/ann +submit +ipv4:\S+ +"
                         r"ClusterService/SubmitJob +job=")

    def test_a_user_has_the_namespaces_that_are_granted(self):
        c = self.cluster()
        file = self.sandbox.dir / "ann"
        done = c.run("user", "add", "ann", "--namespaces", "ml", "--file", file)
        self.assertEqual(done.returncode, 0, done.stderr)
        ann = cluster.Client(c.address, file)
        other = c.submit("--", "echo", "of others")
        c.await_end(other)
        own = ann.submit("--namespace", "ml", "--", "echo", "of ann")
        ann.await_end(own)
        self.assertEqual(c.job(own)["submitted_by"], "user/ann")
        for command in (["jobs", "get"], ["logs"], ["explain"], ["jobs", "wait"],
                        ["jobs", "files"], ["jobs", "remove"]):
            self.assert_fails(ann.run(*command, other), 125, "namespace ml only")
        self.assert_fails(ann.run("submit", "--", "true"), 125,
                          "namespace ml only, not default")
        self.assertIn("of ann", ann.run("logs", own).stdout)
        self.assertEqual([job["id"] for job in ann.json("jobs", "list")], [own])
        self.assertEqual(len(c.json("jobs", "list")), 2)
        package = self.sandbox.dir / "private.py"
        package.write_text("PRIVATE = 42")
        c.submit("--file", package, "--", "true")
        self.assertIn("package_completed", c.run("events").stdout)
        seen = ann.run("events").stdout
        self.assertIn("node_registered", seen)
        for hidden in (other[:8], "package_completed", "token_created"):
            self.assertNotIn(hidden, seen)
        self.assertRegex(c.run("user", "list").stdout, r"submit +ann +ml +VALID")
        connection = http.client.HTTPConnection(c.http_address, timeout=30)
        self.addCleanup(connection.close)
        for path, status in ((f"/v1/jobs/{own}", 200), (f"/v1/jobs/{other}", 403)):
            connection.request("GET", path, headers={
                "Authorization": f"Bearer {ann.token()}"})
            answer = connection.getresponse()
            answer.read()
            self.assertEqual(answer.status, status)

    def test_a_user_logs_in_to_several_clusters(self):
        c = self.cluster()
        job = c.submit("--", "true")
        variables = {"COHORT_CONFIG_DIR": str(self.sandbox.dir / "clusters"),
                     "PATH": os.environ["PATH"], "HOME": str(self.sandbox.dir)}

        def run(*args):
            return subprocess.run(
                [cluster.BIN / "cohort", *map(str, args)], env=variables,
                capture_output=True, text=True, check=False)
        self.assert_fails(
            run("login", "prod", "--address", "127.0.0.1:1",
                "--credential-file", c.credential), 125, "127.0.0.1:1")
        self.assertNotIn("prod", run("config", "list").stdout)
        done = run("login", "prod", "--address", c.address, "--credential-file",
                   c.credential)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(run("config", "list").stdout,
                         f"prod +{c.address} +yes")
        self.assertIn(job[:8], run("jobs").stdout)
        self.assert_fails(run("config", "use", "test"), 125, "prod", "login")
        self.assertEqual(run("config", "remove", "prod").returncode, 0)
        self.assertNotIn("prod", run("config", "list").stdout)


if __name__ == "__main__":
    cluster.main()
