"""The head over HTTP: who gets in, what it shows, and who cannot disturb it."""

import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess

import cluster

try:
    from prometheus_client.openmetrics import parser as openmetrics
    from prometheus_client import parser as text_format
except ImportError:  # Debian: python3-prometheus-client
    openmetrics = None

LEAST = ("cohort_build_info", "cohort_head_term", "cohort_head_read_only",
         "cohort_nodes", "cohort_jobs", "cohort_resource_capacity",
         "cohort_resource_available", "cohort_store_size_bytes",
         "cohort_history_entries", "cohort_history_bytes_limit",
         "process_resident_memory_bytes", "process_start_time_seconds")


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    def json(self):
        return json.loads(self.body)


def ask(address, path, token=None, method="GET", headers=None, body=None):
    connection = http.client.HTTPConnection(address, timeout=30)
    with contextlib.closing(connection):
        headers = dict(headers or {})
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        connection.request(method, path, body=body, headers=headers)
        return Answer(connection.getresponse())


def token_of(client):
    return client.token()


def connect(address):
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)


class Http(cluster.ClusterTest):

    def get(self, c, path, **options):
        return ask(c.http_address, path, token_of(c), **options)

    def test_says_where_it_serves(self):
        c = self.cluster()
        self.assertEqual(c.json("status")["http_address"], c.http_address)
        self.assertIn(f"http://{c.http_address}\n", c.run("status").stdout)

    def test_health_is_open_and_all_else_asks_for_the_credential(self):
        c = self.cluster()
        for path in ("/healthz", "/readyz"):
            answer = ask(c.http_address, path)
            self.assertEqual((answer.status, answer.body), (200, b"ok\n"))
        token = token_of(c)
        for path in ("/metrics", "/v1/status", "/v1/nodes", "/v1/jobs",
                     "/v1/resources", "/v1/nothing"):
            for wrong in (None, "", "00" * 32, token[:-2], token + "00", "é"):
                headers = {}
                if wrong is not None:
                    headers["Authorization"] = f"Bearer {wrong}".encode()
                answer = ask(c.http_address, path, headers=headers)
                self.assertEqual(answer.status, 401, (path, wrong))
                self.assertIn("Bearer", answer.headers["WWW-Authenticate"])
                self.assertNotIn(token, answer.body.decode())
        self.assertEqual(self.get(c, "/v1/status").status, 200)

    def test_a_ranks_credential_does_not_pass(self):
        c = self.cluster()
        job = c.submit("--", "sh", "-c",
                       f"cp $COHORT_CREDENTIAL_FILE {self.sandbox.dir}/rank")
        c.await_end(job)
        token = cluster.secret_of(self.sandbox.dir / "rank")
        self.assertEqual(len(token), 120)
        for path in ("/metrics", "/v1/status", f"/v1/jobs/{job}"):
            self.assertEqual(ask(c.http_address, path, token).status, 403)

    def test_v1_is_what_json_prints(self):
        c = self.cluster("--num-cpus", "2", "--resources", "license=1")
        done = c.submit("--name", "über", "--", "true")
        c.await_end(done)
        waits = c.submit("--cpus", "64", "--", "true")
        for path, command in (
                ("/v1/status", ("status",)), ("/v1/nodes", ("nodes",)),
                ("/v1/gpus", ("gpus",)),
                ("/v1/jobs", ("jobs", "list")),
                ("/v1/resources", ("resources",)),
                (f"/v1/jobs/{done}", ("jobs", "get", done)),
                (f"/v1/jobs/{waits}", ("jobs", "get", waits))):
            answer = self.get(c, path)
            self.assertEqual(answer.status, 200, path)
            self.assertEqual(answer.headers["Content-Type"],
                             "application/json")
            printed = c.run(*command, "--json").stdout
            self.assertEqual(answer.body.decode(), printed, path)

    def test_jobs_are_chosen_as_the_command_chooses_them(self):
        c = self.cluster("--num-cpus", "2")
        c.await_end(c.submit("--label", "team=nlp", "--", "true"))
        c.await_end(c.submit("--namespace", "lab", "--", "false"))
        array = c.submit("--array", "0-2", "--", "true")
        c.await_end(array)
        for query, flags in (
                ("label=team%3Dnlp", ("--label", "team=nlp")),
                ("namespace=lab", ("--namespace", "lab")),
                (f"array={array}", ("--array", array)),
                ("state=failed", ("--state", "FAILED"))):
            answer = self.get(c, "/v1/jobs?" + query)
            self.assertEqual(answer.status, 200, query)
            self.assertGreaterEqual(len(answer.json()), 1, query)
            printed = c.run("jobs", "list", *flags, "--json").stdout
            self.assertEqual(answer.body.decode(), printed, query)

    def test_names_what_is_wrong(self):
        c = self.cluster(workers=0)
        for path, status, word in (
                ("/v1/nothing", 404, "/v1/nothing"),
                ("/", 404, "/healthz"),
                ("/v1/jobs/zz", 404, "zz"),
                ("/v1/jobs/" + "0" * 32, 404, "0" * 32),
                ("/v1/status?colour=red", 400, "colour"),
                ("/v1/nodes?a=1", 400, "a"),
                ("/v1/jobs?label=team", 400, "label"),
                ("/v1/jobs?array=zz", 400, "array"),
                ("/v1/jobs?page=", 400, "page"),
                ("/v1/jobs?page=x", 400, "page"),
                ("/v1/jobs?state=%zz", 400, "escape"),
                ("/v1/jobs?namespace=%ff", 400, "namespace"),
                ("/v1/jobs?limit=99999999999", 400, "limit"),
                ("/v1/jobs?array=" + "f" * 32, 404, "f" * 32),
                ("/v1/jobs?" + "x" * 9_000 + "=1", 400, "xxx..."),
                ("/v1/" + "x" * 9_000 + "?a=1", 400, "xxx..."),
                ("/v1/jobs/" + "x" * 9_000, 404, "xxx...")):
            answer = self.get(c, path)
            self.assertEqual(answer.status, status, path)
            self.assertEqual(set(answer.json()), {"code", "reason", "message"})
            self.assertIn(word, answer.json()["message"])
            self.assertLess(len(answer.json()["message"]), 500)
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "BREW"):
            answer = self.get(c, "/v1/jobs", method=method, body=b"x" * 9999)
            self.assertEqual(answer.status, 405, method)
            self.assertEqual(answer.headers["Allow"], "GET, HEAD")
        head = self.get(c, "/v1/status", method="HEAD")
        self.assertEqual((head.status, head.body), (200, b""))
        self.assertGreater(int(head.headers["Content-Length"]), 100)

    def test_metrics_are_what_prometheus_reads(self):
        c = self.cluster()
        c.await_end(c.submit("--", "true"))
        text = self.get(c, "/metrics")
        self.assertEqual(text.headers["Content-Type"],
                         "text/plain; version=0.0.4; charset=utf-8")
        body = text.body.decode()
        for name in LEAST:
            self.assertIn(f"# TYPE {name} ", body)
        self.assertIn('cohort_jobs{state="SUCCEEDED"} 1\n', body)
        self.assertIn('cohort_nodes{state="ALIVE"} 1\n', body)
        self.assertIn('cohort_rpc_requests_total{method="ClusterService/'
                      'SubmitJob",code="OK"} 1\n', body)
        open_text = self.get(
            c, "/metrics", headers={"Accept": "application/openmetrics-text"})
        self.assertTrue(open_text.headers["Content-Type"].startswith(
            "application/openmetrics-text; version=1.0.0"))
        self.assertTrue(open_text.body.endswith(b"# EOF\n"))
        if shutil.which("promtool"):
            checked = subprocess.run(
                ["promtool", "check", "metrics"], input=text.body,
                capture_output=True, check=False)
            self.assertEqual((checked.returncode, checked.stdout + checked.stderr),
                             (0, b""))
        if openmetrics is None:
            self.skipTest("no python3-prometheus-client: only looked at")
        families = list(text_format.text_string_to_metric_families(body))
        strict = list(openmetrics.text_string_to_metric_families(
            open_text.body.decode()))
        self.assertEqual({f.name for f in families}, {f.name for f in strict})

    def test_garbage_and_slow_clients_disturb_nobody(self):
        c = self.cluster()
        seed = random.randrange(1 << 32)
        print("seed", seed)
        rng = random.Random(seed)
        idle = [connect(c.http_address) for _ in range(300)]
        for sock in idle:
            with contextlib.suppress(OSError):
                sock.send(b"GET /v1/sta")
        for _ in range(200):
            with contextlib.closing(connect(c.http_address)) as sock:
                with contextlib.suppress(OSError):
                    sock.send(rng.randbytes(rng.randrange(1, 40_000)))
        self.assertEqual(ask(c.http_address, "/healthz").status, 200)
        self.assertEqual(self.get(c, "/v1/nodes").json()[0]["state"], "ALIVE")
        c.await_state(c.submit("--", "true"), "SUCCEEDED")
        for sock in idle:
            sock.close()

    def test_readyz_tells_when_writes_are_refused(self):
        disk = self.sandbox.tmpfs("disk", "16m")
        if disk is None:
            self.skipTest("may not mount a tmpfs here")
        c = cluster.Cluster(self.sandbox)
        ready = self.sandbox.dir / "full.ready"
        c.credential = disk / "head/credential"
        c.head = self.sandbox.spawn(
            [cluster.BIN / "cohort-head", "--address", "127.0.0.1:0",
             "--state-dir", disk / "head", "--ready-file", ready,
             "--volatile"], "head.log")
        cluster.until("the head is ready", ready.exists)
        c.address = ready.read_text().strip()
        c.http_address = (disk / "head/http_address").read_text().strip()
        self.assertEqual(ask(c.http_address, "/readyz").status, 200)
        filler = disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb") as out:
            while True:
                out.write(bytes(1 << 16))
                out.flush()

        # Nobody writes: the head finds out by itself.
        cluster.until("readyz is 503", lambda: ask(
            c.http_address, "/readyz").status == 503, 60)
        self.assertEqual(ask(c.http_address, "/healthz").status, 200)
        filler.unlink()
        cluster.until("readyz is 200", lambda: ask(
            c.http_address, "/readyz").status == 200)

    def test_refuses_what_it_cannot_serve_at(self):
        c = self.cluster(workers=0)

        def head(*flags):
            return subprocess.run(
                [cluster.BIN / "cohort-head", "--address", "127.0.0.1:0",
                 "--state-dir", self.sandbox.dir / "other", *flags],
                capture_output=True, text=True, timeout=60, check=False)
        self.assert_fails(head("--http-address", c.http_address), 125,
                          "--http-address", c.http_address, "port 0")
        self.assertFalse((self.sandbox.dir / "other/store").exists())
        for wrong in ("nonsense", "127.0.0.1", "127.0.0.1:99999", ":7711", ""):
            self.assert_fails(head("--http-address", wrong), 2,
                              "--http-address")
        self.assert_fails(head("--http-address", "0.0.0.0:0", "--insecure"), 2,
                          "--http-address", "--insecure")
        up = c.run("up", "--port", "0", "--state-dir",
                   self.sandbox.dir / "up", "--http-address", "0.0.0.0:0")
        self.assert_fails(up, 2, "--http-address", "loopback")
        up = c.run("up", "--port", "0", "--state-dir",
                   self.sandbox.dir / "up", "--http-address", c.http_address)
        self.assert_fails(up, 125, "--http-address", "port 0")

    def test_up_serves_where_it_did_after_its_head_died(self):
        up = self.up("--workers", "1")
        before = up.json("status")
        self.assertEqual(ask(before["http_address"], "/readyz").status, 200)
        os.kill(before["head_pid"], signal.SIGKILL)

        def back():
            with contextlib.suppress(OSError, http.client.HTTPException):
                answer = ask(before["http_address"], "/v1/status",
                             token_of(up))
                return (answer.status == 200 and
                        answer.json()["term"] > before["term"])
            return False
        cluster.until("the head is back at its address", back)


if __name__ == "__main__":
    cluster.main()
