"""The provider `kubernetes` before an API server that fails, which a real one
does when nobody asks for it (docs/autoscaling.md)."""

import http.server
import json
import os
import re
import subprocess
import threading

import cluster

KEY = "0123456789abcdef" * 2
PODS = "/api/v1/namespaces/ml/pods"
CLOSE = "close"


class Api(http.server.ThreadingHTTPServer):
    """Gives its `answers` one by one, (status, body[, headers]), CLOSE, or a
    list of events, and keeps what was asked; then it closes each connection."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = []
        self.asked = []
        self.thread = threading.Thread(target=self.serve_forever)
        self.thread.start()

    def stop(self):
        self.shutdown()
        self.thread.join()
        self.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):

    def answer(self):
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size) or "null")
        self.server.asked.append((self.command, self.path, body,
                                  self.headers.get("Authorization")))
        answer = self.server.answers.pop(0) if self.server.answers else CLOSE
        if answer == CLOSE:
            self.close_connection = True
            return
        if isinstance(answer, list):
            self.send_response(200)
            self.end_headers()
            for event in answer:
                self.wfile.write(json.dumps(event).encode() + b"\n")
            return
        status, content, *headers = answer
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        for name, value in dict(*headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_DELETE = answer

    def log_message(self, *_):
        pass


def refusal(status, reason, message, *headers):
    return (status, {"kind": "Status", "status": "Failure", "reason": reason,
                     "message": message, "code": status}, *headers)


CREATED = (201, {"kind": "Pod"})
OVERLOAD = refusal(429, "TooManyRequests", "too many requests",
                   {"Retry-After": "1"})
BROKEN = refusal(500, "InternalError", "etcdserver: leader changed")


def pod(key, **status):
    return {"metadata": {"name": f"cohort-{key}",
                         "labels": {"cohort.instance": key}}, "status": status}


def page(*pods, more=""):
    return (200, {"kind": "PodList", "metadata": {"continue": more},
                  "items": list(pods)})


class KubernetesFaults(cluster.ClusterTest):

    def setUp(self):
        super().setUp()
        self.api = Api()
        self.addCleanup(self.api.stop)
        self.user = {"token": "secret"}

    def popen(self, *args, **config):
        kubeconfig = self.file("kubeconfig", json.dumps({
            "current-context": "c",
            "contexts": [{"name": "c", "context": {
                "cluster": "k", "user": "u", "namespace": "ml"}}],
            "clusters": [{"name": "k", "cluster": {
                "server": f"http://127.0.0.1:{self.api.server_port}"}}],
            "users": [{"name": "u", "user": self.user}]}))
        variables = {
            "COHORT_CLUSTER": "c1", "COHORT_ADDRESS": "head:7710",
            "COHORT_JOIN_TOKEN": "cohort1.a.b.c",
            "KUBECONFIG": str(kubeconfig), "COHORT_PROVIDER_CONFIG": json.dumps(
                {"image": "cohort:1"} | config)}
        # Debian's Python, which has Debian's python3-yaml.
        return subprocess.Popen(
            ["/usr/bin/python3", cluster.BIN / "cohort-provider-kubernetes",
             *args], env=os.environ | variables, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)

    def call(self, *args, **config):
        process = self.popen(*args, **config)
        out, err = process.communicate(timeout=cluster.DEADLINE)
        return subprocess.CompletedProcess(args, process.returncode, out, err)

    def gives(self, *args, **config):
        done = self.call(*args, **config)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.api.answers, [])
        return json.loads(done.stdout or "null")

    def fails(self, *args, **config):
        done = self.call(*args, **config)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertEqual(self.api.answers, [])
        return done.stderr.strip().splitlines()[-1]

    def test_a_launch_outlasts_faults_and_is_one_pod(self):
        self.api.answers = [
            CLOSE, OVERLOAD, BROKEN, [],
            refusal(409, "Conflict", "quota: the object has been modified"),
            refusal(409, "AlreadyExists", "pods already exists")]
        self.assertEqual(self.gives("launch", KEY, "cpu", "--num-cpus", "2"),
                         {"id": f"cohort-{KEY}"})
        self.assertEqual(len(self.api.asked), 6)
        self.assertEqual(len({json.dumps(each) for each in self.api.asked}), 1)
        method, path, wanted, who = self.api.asked[0]
        self.assertEqual((method, path, who), ("POST", PODS, "Bearer secret"))
        self.assertEqual(wanted["metadata"]["name"], f"cohort-{KEY}")

    def test_a_refusal_is_told_at_once(self):
        self.api.answers = [refusal(
            403, "Forbidden", "exceeded quota: gpus, requested: 8")]
        self.assertIn("exceeded quota: gpus",
                      self.fails("launch", KEY, "gpu", "--num-gpus", "8"))
        self.assertEqual(len(self.api.asked), 1)
        for config, why in (({"image": None}, "image is a string"),
                            ({"worker": 3}, "worker is a string, not 3"),
                            ({"pod": []}, "pod is a map")):
            self.assertIn(why, self.fails("launch", KEY, "gpu", **config))
        self.assertIn("no name of a pod",
                      self.fails("terminate", "../nodes/n1"))
        self.assertEqual(len(self.api.asked), 1)

    def test_a_server_that_stays_broken_ends_in_an_error_in_time(self):
        self.api.answers = [refusal(503, "ServiceUnavailable", "not ready",
                                    {"Retry-After": "3600"})]
        self.assertIn("not ready", self.fails("list"))

    def test_a_list_whose_pages_expire_begins_again(self):
        one, two = (pod(digit * 32, phase="Running") for digit in "12")
        self.api.answers = [
            page(one, more="t1"), refusal(410, "Expired", "too old"),
            page(one, more="t2"), CLOSE, page(two)]
        listed = self.gives("list")["instances"]
        self.assertEqual([each["instance"] for each in listed],
                         ["1" * 32, "2" * 32])
        self.assertIn("continue=t2", self.api.asked[-1][1])
        self.assertIn("labelSelector=cohort.cluster%3Dc1", self.api.asked[0][1])

    def test_why_a_pod_does_not_run_and_until_when_it_does(self):
        gone = pod("5" * 32, phase="Running")
        gone["metadata"]["deletionTimestamp"] = "2020-01-01T00:00:00Z"
        self.api.answers = [page(
            pod("1" * 32, phase="Pending", conditions=[
                {"type": "PodScheduled", "status": "False",
                 "reason": "Unschedulable", "message": "0/3 nodes"}]),
            pod("2" * 32, phase="Pending", containerStatuses=[{"state": {
                "waiting": {"reason": "ImagePullBackOff",
                            "message": "Back-off"}}}]),
            pod("3" * 32, phase="Failed", containerStatuses=[{"state": {
                "terminated": {"reason": "OOMKilled", "exitCode": 137}}}]),
            pod("4" * 32, phase="Failed", reason="Evicted", message="disk"),
            gone, pod("6" * 32))]
        listed = self.gives("list")["instances"]
        self.assertEqual(
            [(each["state"], each.get("reason")) for each in listed],
            [("pending", "Unschedulable: 0/3 nodes"),
             ("pending", "ImagePullBackOff: Back-off"),
             ("failed", "OOMKilled: exit code 137"),
             ("failed", "Evicted: disk"),
             ("running", None), ("pending", "")])
        self.assertEqual(listed[4]["notice_seconds"], 0)

    def test_a_pod_that_is_gone_is_terminated(self):
        self.api.answers = [CLOSE, refusal(404, "NotFound", "not found")]
        self.gives("terminate", f"cohort-{KEY}")
        self.assertEqual(self.api.asked[-1][:2],
                         ("DELETE", f"{PODS}/cohort-{KEY}"))

    def test_a_pod_asks_for_what_the_node_offers_and_the_file_says(self):
        self.api.answers = [CREATED]
        self.gives(
            "launch", KEY, "gpu", "--name", "gpu-1", "--num-cpus", "8",
            "--num-gpus", "4", "--memory", "64GiB",
            pod={"nodeSelector": {"pool": "gpu"}, "serviceAccountName": "ranks",
                 "tolerations": [{"operator": "Exists"}],
                 "volumes": [{"name": "data", "emptyDir": {}}]},
            container={"volumeMounts": [{"name": "data", "mountPath": "/data"}],
                       "env": [{"name": "A", "value": "b"}]})
        wanted = self.api.asked[0][2]
        spec = wanted["spec"]
        [container] = spec["containers"]
        self.assertEqual(container["resources"]["limits"], {
            "cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "4"})
        self.assertEqual(container["image"], "cohort:1")
        self.assertEqual(container["args"][-2:], ["--memory", "64GiB"])
        self.assertEqual(container["env"], [
            {"name": "COHORT_JOIN_TOKEN", "value": "cohort1.a.b.c"},
            {"name": "A", "value": "b"}])
        self.assertEqual([each["name"] for each in container["volumeMounts"]],
                         ["shm", "data"])
        self.assertEqual(spec["nodeSelector"], {"pool": "gpu"})
        self.assertEqual(spec["serviceAccountName"], "ranks")
        self.assertEqual(spec["restartPolicy"], "Never")
        self.assertEqual(len(spec["tolerations"]), 1)
        self.assertEqual(wanted["metadata"]["labels"], {
            "cohort.cluster": "c1", "cohort.instance": KEY,
            "cohort.node-type": "gpu"})

    def test_a_kubeconfig_that_asks_a_program_is_refused_with_a_way(self):
        self.user = {"exec": {"command": "aws"}}
        self.assertIn("run kubectl proxy", self.fails("list"))

    def test_a_watch_goes_on_from_where_it_was_and_by_a_list(self):
        def event(kind, version, each):
            metadata = each["metadata"] | {"resourceVersion": version}
            return {"type": kind, "object": each | {"metadata": metadata}}
        going = pod("2" * 32, phase="Running")
        going["metadata"]["deletionTimestamp"] = "2020-01-01T00:00:00Z"
        listed = page(pod("1" * 32, phase="Running"))
        listed[1]["metadata"]["resourceVersion"] = "10"
        again = page(pod("3" * 32, phase="Failed", reason="Evicted"))
        again[1]["metadata"]["resourceVersion"] = "90"
        self.api.answers = [
            listed,
            # The server ends it in the middle.
            [event("ADDED", "11", pod("2" * 32, phase="Pending")),
             event("MODIFIED", "12", going), event("MODIFIED", "13", going)],
            [event("DELETED", "14", going), event("BOOKMARK", "20", going)],
            [{"type": "ERROR", "object": {"code": 410}}],
            CLOSE, again, refusal(410, "Expired", "too old"), again,
            [event("DELETED", "91", pod("4" * 32, phase="Running"))]]
        watch = self.popen("watch")
        lines = [watch.stdout.readline() for _ in range(4)]
        watch.kill()
        _, err = watch.communicate()
        self.assertTrue(all(lines), err)
        told = list(map(json.loads, lines))
        self.assertEqual(
            [(each["event"], each["id"][-1]) for each in told],
            [("notice", "2"), ("gone", "2"), ("gone", "3"), ("gone", "4")])
        self.assertEqual(told[0]["deadline_s"], 0)
        self.assertEqual(told[2]["reason"], "Evicted")
        self.assertEqual(
            [found and found[0] for found in (
                re.findall(r"resourceVersion=(\d+)", each[1])
                for each in self.api.asked[:9])],
            [[], "10", "13", "20", [], [], "90", [], "90"])


if __name__ == "__main__":
    cluster.main()
