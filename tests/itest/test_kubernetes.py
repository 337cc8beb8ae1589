"""Nodes that are pods of a real Kubernetes of the test's own: its API server,
controllers, scheduler, and one kubelet with containerd (docs/autoscaling.md).

Needs root and what tools/kubernetes_engine.sh builds and installs; skipped
without it.
"""

import http.client
import json
import os
import pathlib
import ssl
import subprocess
import textwrap

import cluster
import containers

ENGINE = pathlib.Path(os.environ.get("COHORT_KUBERNETES_DIR",
                                     "/var/cache/cohort-kubernetes"))
OPENSSL = "/usr/bin/openssl"
API = "127.0.0.1:6443"
ETCD = "http://127.0.0.1:2379"
NODE = "node-a"
NODE_IP = "10.99.0.1"
IMAGE = "localhost/cohort:test"
PAUSE = "localhost/pause:test"
PODS = "/api/v1/namespaces/default/pods"
# What a kubelet wants the kernel to do; read only by itself, in its mounts.
KERNEL = {"vm/overcommit_memory": 1, "vm/panic_on_oom": 0, "kernel/panic": 10,
          "kernel/panic_on_oops": 1, "kernel/keys/root_maxkeys": 1000000,
          "kernel/keys/root_maxbytes": 25000000}


def run(*command):
    subprocess.run(list(map(str, command)), check=True, capture_output=True)


class Kubernetes:
    """Ports are the namespace's own, so each has its usual one."""

    def __init__(self, sandbox, group):
        self.sandbox = sandbox
        self.group = group
        self.dir = sandbox.dir / "kubernetes"
        (self.dir / "cni").mkdir(parents=True)
        self.processes = []
        self.kubeconfig = self.dir / "kubeconfig"

    def path(self, name):
        return self.dir / name

    def write(self, name, content):
        self.path(name).write_text(
            content if isinstance(content, str) else json.dumps(content))
        return self.path(name)

    def start(self):
        self._make_machine()
        self._make_identities()
        self._start_control_plane()
        self._start_node()

    def _make_machine(self):
        # A kubelet takes its address from the default route.
        for command in (f"link add {NODE} type veth peer name peer",
                        f"addr add {NODE_IP}/24 dev {NODE}",
                        f"link set {NODE} up", "link set peer up",
                        f"route add default dev {NODE} src {NODE_IP}",
                        # Where it would wait for a cloud's credentials.
                        "route add unreachable 169.254.0.0/16"):
            run("/usr/sbin/ip", *command.split())
        files = {"/etc/hosts": f"127.0.0.1 localhost {NODE}\n",
                 "/etc/resolv.conf": "nameserver 127.0.0.1\n"}
        files |= {f"/proc/sys/{name}": str(value)
                  for name, value in KERNEL.items()}
        for path, text in files.items():
            run("mount", "--bind", self.write(path.replace("/", "-"), text),
                path)
        for hierarchy in pathlib.Path("/sys/fs/cgroup").iterdir():
            if not hierarchy.is_symlink():
                (hierarchy / self.group).mkdir()

    def _make_identities(self):
        run(OPENSSL, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days",
            "2", "-keyout", self.path("ca.key"), "-out", self.path("ca.crt"),
            "-subj", "/CN=ca")
        for name, subject, extensions in (
                ("server", "/CN=kube-apiserver",
                 "subjectAltName=DNS:localhost,IP:127.0.0.1\n"
                 "extendedKeyUsage=serverAuth\n"),
                ("admin", "/O=system:masters/CN=admin",
                 "extendedKeyUsage=clientAuth\n")):
            run(OPENSSL, "req", "-newkey", "rsa:2048", "-nodes", "-keyout",
                self.path(f"{name}.key"), "-out", self.path(f"{name}.csr"),
                "-subj", subject)
            run(OPENSSL, "x509", "-req", "-in", self.path(f"{name}.csr"),
                "-CA", self.path("ca.crt"), "-CAkey", self.path("ca.key"),
                "-CAcreateserial", "-days", "2", "-out",
                self.path(f"{name}.crt"), "-extfile",
                self.write(f"{name}.ext", extensions))
        run(OPENSSL, "genrsa", "-out", self.path("accounts.key"), "2048")
        self.write("kubeconfig", {
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "k", "cluster": {
                "server": f"https://{API}",
                "certificate-authority": "ca.crt"}}],
            "users": [{"name": "u", "user": {"client-certificate": "admin.crt",
                                             "client-key": "admin.key"}}],
            "contexts": [{"name": "c",
                          "context": {"cluster": "k", "user": "u"}}]})

    def spawn(self, program, *flags):
        self.processes.append(self.sandbox.spawn(
            [program, *flags], f"{pathlib.Path(program).name}.log",
            env=os.environ | {"PATH": containers.PATH}))
        return self.processes[-1]

    def _start_control_plane(self):
        self.spawn("/usr/bin/etcd", "--data-dir", self.path("etcd"),
                   "--unsafe-no-fsync", "--listen-client-urls", ETCD,
                   "--advertise-client-urls", ETCD)
        self.start_api_server()
        for program, flags in (
                ("kube-controller-manager",
                 ["--service-account-private-key-file",
                  self.path("accounts.key"),
                  "--root-ca-file", self.path("ca.crt"),
                  "--use-service-account-credentials"]),
                ("kube-scheduler", [])):
            self.spawn(ENGINE / program, "--kubeconfig", self.kubeconfig,
                       "--bind-address", "127.0.0.1", "--port", "0",
                       "--leader-elect=false", *flags)

    def start_api_server(self):
        self.api_server = self.spawn(
            ENGINE / "kube-apiserver", "--etcd-servers", ETCD,
            "--bind-address", "127.0.0.1", "--advertise-address", NODE_IP,
            "--authorization-mode", "RBAC", "--allow-privileged=true",
            "--client-ca-file", self.path("ca.crt"),
            "--tls-cert-file", self.path("server.crt"),
            "--tls-private-key-file", self.path("server.key"),
            "--service-account-issuer", f"https://{API}",
            "--service-account-key-file", self.path("accounts.key"),
            "--service-account-signing-key-file", self.path("accounts.key"),
            "--service-cluster-ip-range", "10.96.0.0/16",
            "--endpoint-reconciler-type", "none")
        cluster.until("the API server serves", self._is_ready)

    def _is_ready(self):
        try:
            return self.ask("GET", "/readyz") == "ok"
        except (OSError, http.client.HTTPException, cluster.Gone):
            return False

    def _start_node(self):
        self.write("cni/net.conflist", {
            "cniVersion": "0.4.0", "name": "none",
            "plugins": [{"type": "loopback"}]})
        socket = self.path("containerd.socket")
        self.spawn("/usr/bin/containerd", "--config", self.write(
            "containerd.toml", textwrap.dedent(f"""\
                version = 2
                root = "{self.dir}/containerd"
                state = "{self.dir}/run"
                [grpc]
                address = "{socket}"
                [plugins."io.containerd.grpc.v1.cri"]
                sandbox_image = "{PAUSE}"
                restrict_oom_score_adj = true
                disable_apparmor = true
                stream_server_address = "127.0.0.1"
                cni.conf_dir = "{self.dir}/cni"
                """)))
        cluster.until("containerd serves", lambda: not subprocess.run(
            ["/usr/bin/ctr", "--address", socket, "version"],
            capture_output=True, check=False).returncode)
        archive = self.path("image.tar")
        containers.write_image(archive, PAUSE, [(ENGINE / "pause", "/pause")],
                               command=["/pause"])
        self._import(socket, archive)
        containers.write_worker_image(archive, IMAGE)
        self._import(socket, archive)
        self.spawn(
            ENGINE / "kubelet", "--kubeconfig", self.kubeconfig, "--config",
            self.write("kubelet.yaml", {
                "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "kind": "KubeletConfiguration", "address": "127.0.0.1",
                "readOnlyPort": 0, "cgroupDriver": "cgroupfs",
                "cgroupRoot": f"/{self.group}", "enforceNodeAllocatable": [],
                "failSwapOn": False, "protectKernelDefaults": True,
                "makeIPTablesUtilChains": False, "oomScoreAdj": 0,
                "maxOpenFiles": 20000, "nodeStatusUpdateFrequency": "1s",
                "evictionHard": {"memory.available": "1Mi"},
                "authentication": {"anonymous": {"enabled": False},
                                   "webhook": {"enabled": False},
                                   "x509": {"clientCAFile":
                                            str(self.path("ca.crt"))}},
                "authorization": {"mode": "AlwaysAllow"}}),
            "--container-runtime", "remote", "--container-runtime-endpoint",
            f"unix://{socket}", "--root-dir", self.path("kubelet"),
            "--cert-dir", self.path("kubelet-certificates"),
            "--hostname-override", NODE,
            "--pod-infra-container-image", PAUSE)
        cluster.until("the node is ready", self._node_is_ready)

    def _import(self, socket, archive):
        run("/usr/bin/ctr", "--address", socket, "--namespace", "k8s.io",
            "images", "import", archive)

    def _node_is_ready(self):
        try:
            node = self.ask("GET", f"/api/v1/nodes/{NODE}")
        except cluster.Gone:
            return False
        # The scheduler asks for no more either.
        return not node["spec"].get("taints") and any(
            each["type"] == "Ready" and each["status"] == "True"
            for each in node["status"]["conditions"])

    def ask(self, method, path, body=None):
        tls = ssl.create_default_context(cafile=self.path("ca.crt"))
        tls.load_cert_chain(self.path("admin.crt"), self.path("admin.key"))
        connection = http.client.HTTPSConnection(API, context=tls, timeout=10)
        try:
            connection.request(method, path, body and json.dumps(body), {
                "Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status >= 300:
            raise cluster.Gone(f"{method} {path}: {answer.status}: {text}")
        return json.loads(text) if text.startswith("{") else text

    def pods(self):
        return {each["metadata"]["name"]: each
                for each in self.ask("GET", PODS)["items"]}

    def stop(self):
        """Pods first: who made them unmounts what is theirs."""
        for name in self.pods():
            self.ask("DELETE", f"{PODS}/{name}?gracePeriodSeconds=1")
        cluster.until("all pods are gone", lambda: not self.pods())
        for process in reversed(self.processes):
            process.kill()
            process.wait()


class KubernetesProvider(containers.EngineTest):

    PROGRAMS = (*(ENGINE / program for program in (
        "kube-apiserver", "kube-controller-manager", "kube-scheduler",
        "kubelet", "pause")), "/usr/bin/etcd", "/usr/bin/containerd",
        "/usr/sbin/runc", "/usr/sbin/ip", OPENSSL)

    FILE = textwrap.dedent("""\
        provider: kubernetes
        max_nodes: 3
        idle_timeout: 1s
        node_types:
          cpu:
            resources: {CPU: 0.25, memory: 256MiB}
            provider_config: &config
              image: localhost/cohort:test
              pod:
                hostNetwork: true
                terminationGracePeriodSeconds: 20
                securityContext: {runAsUser: 1000}
              container: {imagePullPolicy: Never}
          gpu:
            resources: {CPU: 0.25, GPU: 1, memory: 256MiB}
            provider_config: *config
        """)

    def setUp(self):
        super().setUp()
        self.kubernetes = Kubernetes(self.sandbox, self.group)
        self.kubernetes.start()
        self.addCleanup(self.kubernetes.stop)
        # As a head in a pod: an account that may do what the page names.
        self.act_as_account()
        self.head = cluster.Cluster(self.sandbox, "3s")
        self.head.head_flags = ("--cluster-file",
                                self.file("cluster.yaml", self.FILE))
        self.head.start_head()

    def act_as_account(self):
        namespace = "/api/v1/namespaces/default"
        rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
        ask = self.kubernetes.ask
        ask("POST", f"{namespace}/serviceaccounts",
            {"metadata": {"name": "head"}})
        ask("POST", f"{rbac}/roles", {
            "metadata": {"name": "head"}, "rules": [{
                "apiGroups": [""], "resources": ["pods"],
                "verbs": ["create", "delete", "list", "watch"]}]})
        ask("POST", f"{rbac}/rolebindings", {
            "metadata": {"name": "head"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io",
                        "kind": "Role", "name": "head"},
            "subjects": [{"kind": "ServiceAccount", "name": "head",
                          "namespace": "default"}]})
        token = ask("POST", f"{namespace}/serviceaccounts/head/token", {
            "spec": {}})["status"]["token"]
        account = self.sandbox.dir / "account"
        account.mkdir()
        authority = self.kubernetes.path("ca.crt").read_text()
        for name, text in (("token", token), ("namespace", "default"),
                           ("ca.crt", authority)):
            (account / name).write_text(text)
        # A mount of the test's own, as all below.
        run("mount", "-t", "tmpfs", "tmpfs", "/var/run/")
        mounted = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
        mounted.mkdir(parents=True)
        run("mount", "--bind", account, mounted)
        host, port = API.split(":")
        self.set_variables({
            "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port,
            "HOME": str(self.sandbox.dir)})

    def await_none(self):
        cluster.until("all pods are gone", lambda: not self.kubernetes.pods())
        cluster.until("no instance is left", lambda: not self.head.json(
            "autoscaler", "status")["instances"])

    def test_a_gang_runs_on_pods_that_come_and_go(self):
        gang = self.head.submit("--num-workers", "3", "--cpus", "0.25", "--",
                                "true")
        self.assertEqual(self.head.await_end(gang)["state"], "SUCCEEDED")
        self.assertEqual(
            len({rank["node"] for rank in self.head.job(gang)["ranks"]}), 3)
        self.await_none()

    def test_the_api_server_and_the_head_are_killed_in_the_middle(self):
        for _ in range(3):
            gang = self.head.submit("--num-workers", "2", "--cpus", "0.25",
                                    "--", "true")
            cluster.until("a pod is there", self.kubernetes.pods)
            self.kubernetes.api_server.kill()
            self.kubernetes.api_server.wait()
            self.head.kill_head()
            self.head.start_head()
            self.kubernetes.start_api_server()
            self.assertEqual(self.head.await_end(gang)["state"], "SUCCEEDED")
            self.assertLessEqual(len(self.kubernetes.pods()), 3)
        self.await_none()

    def test_explain_says_why_a_pod_waits(self):
        waits = self.head.submit("--cpus", "0.25", "--gpus", "1", "--",
                                 "true")
        cluster.until("it says so", lambda: "Insufficient nvidia.com/gpu" in
                      self.head.run("explain", waits).stdout)
        # The pod itself waits for launch_timeout; the test's end deletes it.
        self.head.run("jobs", "stop", waits)

    def test_an_evicted_pod_is_emptied_and_replaced_without_charge(self):
        job = self.head.submit("--cpus", "0.25", "--max-failures", "0", "--",
                               "sleep", "1000")
        self.head.await_state(job, "RUNNING")
        [(first, pod)] = self.kubernetes.pods().items()
        self.kubernetes.ask("POST", f"{PODS}/{first}/eviction", {
            "apiVersion": "policy/v1beta1", "kind": "Eviction",
            "metadata": {"name": first, "namespace": "default"}})
        watch = subprocess.Popen(
            [cluster.BIN / "cohort-provider-kubernetes", "watch"],
            stdout=subprocess.PIPE, text=True, env=os.environ | {
                "COHORT_CLUSTER": pod["metadata"]["labels"]["cohort.cluster"]})
        told = json.loads(watch.stdout.readline())
        self.assertEqual((told["event"], told["id"]), ("notice", first))
        watch.kill()
        watch.communicate()
        now = cluster.until("it runs elsewhere", lambda: (
            lambda job: job if job["state"] == "RUNNING" and
            job["attempt"] == 2 else None)(self.head.job(job)))
        self.assertEqual((now["failures"], now["infra_restarts"]), (0, 0))
        self.assertIn("the provider takes it in",
                      self.head.run("events").stdout)
        self.head.run("jobs", "stop", job)
        self.await_none()


if __name__ == "__main__":
    cluster.main()
