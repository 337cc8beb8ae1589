"""Nodes that are containers of a real Docker engine of the test's own
(docs/autoscaling.md).

Needs root and Debian's packages docker.io, containerd and runc; skipped without
them.
"""

import json
import os
import select
import subprocess
import textwrap

import cluster
import containers

IMAGE = "cohort:test"
KEY = "0123456789abcdef" * 2
PROGRAM = cluster.BIN / "cohort-provider-docker"


class Docker:
    """dockerd, without a bridge: its containers use the test's loopback."""

    def __init__(self, sandbox):
        self.sandbox = sandbox
        self.dir = sandbox.dir / "docker"
        self.dir.mkdir()
        self.daemon = None
        # As the provider finds docker, whatever else the machine has.
        (self.dir / "bin").mkdir()
        (self.dir / "bin/docker").symlink_to("/usr/bin/docker")
        self.variables = {
            "PATH": f"{self.dir}/bin:{os.environ['PATH']}",
            "DOCKER_HOST": f"unix://{self.dir}/socket",
            "DOCKER_CONFIG": str(self.dir / "client")}

    def start(self, group):
        config = self.dir / "daemon.json"
        config.write_text(json.dumps({"default-ulimits": {"nofile": {
            "Name": "nofile", "Soft": 1024, "Hard": 4096}}}))
        self.daemon = self.sandbox.spawn(
            ["/usr/sbin/dockerd", f"--config-file={config}",
             f"--data-root={self.dir}/data", f"--exec-root={self.dir}/exec",
             f"--pidfile={self.dir}/pid", f"--host=unix://{self.dir}/socket",
             "--bridge=none", "--iptables=false", "--ip6tables=false",
             f"--cgroup-parent={group}"], "dockerd.log",
            env=os.environ | {"PATH": containers.PATH})
        cluster.until("dockerd serves", lambda: self.run("info").returncode == 0)
        archive = self.dir / "image.tar"
        containers.write_worker_image(archive, IMAGE)
        self("load", "--input", archive)

    def stop(self):
        for container in self("ps", "--all", "--quiet").split():
            self("rm", "--force", container)
        self.daemon.terminate()
        self.daemon.wait(cluster.DEADLINE)

    def run(self, *args):
        return subprocess.run(
            ["/usr/bin/docker", *map(str, args)],
            env=os.environ | self.variables, capture_output=True, text=True,
            check=False)

    def __call__(self, *args):
        done = self.run(*args)
        if done.returncode:
            raise cluster.Gone(f"docker {args}: {done.stderr}")
        return done.stdout

    def workers(self):
        return self("ps", "--all", "--quiet", "--no-trunc",
                    "--filter=label=cohort.cluster").split()

    def inspect(self, container):
        return json.loads(self("inspect", container))[0]


class DockerTest(containers.EngineTest):

    PROGRAMS = ("/usr/sbin/dockerd", "/usr/bin/docker", "/usr/bin/containerd",
                "/usr/sbin/runc")

    def setUp(self):
        super().setUp()
        self.docker = Docker(self.sandbox)
        self.docker.start(self.group)
        self.addCleanup(self.docker.stop)


class DockerProgram(DockerTest):
    """The provider's program by itself."""

    def popen(self, *args, **config):
        variables = {
            "COHORT_CLUSTER": "c1", "COHORT_ADDRESS": "127.0.0.1:1",
            "COHORT_JOIN_TOKEN": "cohort1.a.b.c",
            "COHORT_HEAD_STATE_DIR": str(self.sandbox.dir),
            "COHORT_WORKER": str(cluster.BIN / "cohort-worker"),
            "COHORT_PROVIDER_CONFIG": json.dumps({"image": IMAGE} | config)}
        return subprocess.Popen(
            [PROGRAM, *args], env=os.environ | self.docker.variables | variables,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def ended(self, process):
        out, err = process.communicate(timeout=cluster.DEADLINE)
        self.assertEqual(process.returncode, 0, err)
        return json.loads(out) if out else None

    def call(self, *args, **config):
        return self.ended(self.popen(*args, **config))

    def fails(self, *args, **config):
        process = self.popen(*args, **config)
        out, err = process.communicate(timeout=cluster.DEADLINE)
        self.assertNotEqual(process.returncode, 0, out)
        return err.strip().splitlines()[-1]

    def test_one_key_is_one_container_and_ends_once(self):
        launches = [self.popen("launch", KEY, "cpu", "--num-cpus", "1",
                               "--memory", "64MiB", worker="idle")
                    for _ in range(4)]
        ids = {self.ended(each)["id"] for each in launches}
        ids.add(self.call("launch", KEY, "cpu")["id"])
        self.assertEqual(ids, set(self.docker.workers()))
        self.assertEqual(len(ids), 1)
        limits = self.docker.inspect(*ids)["HostConfig"]
        self.assertEqual(limits["Memory"], 64 << 20)
        self.assertEqual(limits["NanoCpus"], 10**9)
        self.assertEqual(limits["NetworkMode"], "host")
        [listed] = self.call("list")["instances"]
        self.assertEqual((listed["id"], listed["instance"], listed["state"]),
                         (*ids, KEY, "running"))
        for _ in range(2):
            self.call("terminate", *ids)
            self.assertEqual(self.docker.workers(), [])
        self.assertEqual(self.call("list"), {"instances": []})

    def test_what_is_of_another_cluster_is_left_alone(self):
        other = self.docker("create", "--label=cohort.cluster=c2",
                            "--label=cohort.instance=" + KEY, IMAGE,
                            "true").strip()
        self.assertEqual(self.call("list"), {"instances": []})
        self.call("terminate", other)
        self.assertEqual(self.docker.workers(), [other])

    def test_a_launch_that_was_cut_off_is_finished(self):
        made = self.docker("create", f"--name=cohort-{KEY}",
                           "--label=cohort.cluster=c1",
                           f"--label=cohort.instance={KEY}", IMAGE, "sleep",
                           "1000").strip()
        [listed] = self.call("list")["instances"]
        self.assertEqual((listed["id"], listed["state"]), (made, "running"))
        self.assertEqual(self.call("launch", KEY, "cpu")["id"], made)
        self.docker("rm", "--force", made)

    def test_why_a_container_ended_is_told(self):
        self.call("launch", KEY, "cpu", "--memory", "32MiB", worker="hungry")

        def reason():
            [listed] = self.call("list")["instances"]
            return listed["state"] == "failed" and listed["reason"]
        self.assertIn("out of memory", cluster.until("it ended", reason))
        other = KEY[::-1]
        # No such flag: the worker says so and ends.
        number = self.call("launch", other, "cpu", "--nonsense", "1")["id"]
        self.docker("wait", number)
        listed = {each["instance"]: each
                  for each in self.call("list")["instances"]}[other]
        self.assertEqual(listed["state"], "failed")
        self.assertRegex(listed["reason"], "exited with [1-9][0-9]*: .*nonsense")

    def test_a_watch_says_at_once_that_a_container_has_ended(self):
        number = self.call("launch", KEY, "cpu", worker="idle")["id"]
        watch = self.popen("watch")
        # What ends before docker listens is told by the next that ends.
        ended = []

        def end_another():
            other = self.call("launch", f"{len(ended):032x}", "cpu",
                              worker="idle")["id"]
            ended.append(other)
            self.docker("kill", other)
            return select.select([watch.stdout], [], [], 0.5)[0]
        cluster.until("an end is told", end_another)
        event = json.loads(watch.stdout.readline())
        self.assertEqual((event["event"], event["reason"]),
                         ("gone", "exited with 137"))
        self.assertIn(event["id"], ended)
        watch.kill()
        watch.communicate()
        self.call("terminate", number)

    def test_what_cannot_be_launched_says_why_and_leaves_nothing(self):
        for config, why in (
                ({"image": "localhost:1/none:1"}, "localhost:1"),
                ({"image": 3}, "image is a string, not 3"),
                ({"image": None}, "image is a string"),
                ({"docker": "--gpus=all"}, "docker is a list"),
                ({"docker": ["--nonsense"]}, "nonsense"),
                ({"network": "nowhere"}, "nowhere"),
                ({"worker": "absent"}, "absent")):
            self.assertIn(why, self.fails("launch", KEY, "cpu", **config))
            self.assertEqual(self.docker.workers(), [])
        self.assertIn("no container", self.fails("terminate", "--all"))
        self.docker.stop()
        self.assertIn("docker", self.fails("list").lower())
        self.docker.start(self.group)


class DockerProvider(DockerTest):

    FILE = textwrap.dedent("""\
        provider: docker
        max_nodes: 3
        idle_timeout: 1s
        node_types:
          cpu:
            resources: {CPU: 2, memory: 256MiB}
            provider_config: {image: "cohort:test"}
        """)

    def setUp(self):
        super().setUp()
        self.set_variables(self.docker.variables)
        self.head = cluster.Cluster(self.sandbox, "3s")
        self.head.head_flags = ("--cluster-file",
                                self.file("cluster.yaml", self.FILE))
        self.head.start_head()

    def await_none(self):
        cluster.until("all containers are gone",
                      lambda: not self.docker.workers())
        cluster.until("no instance is left", lambda: not self.head.json(
            "autoscaler", "status")["instances"])

    def test_a_gang_runs_on_containers_that_come_and_go(self):
        gang = self.head.submit("--num-workers", "3", "--cpus", "2", "--",
                                "true")
        self.assertEqual(self.head.await_end(gang)["state"], "SUCCEEDED")
        self.assertEqual(
            len({rank["node"] for rank in self.head.job(gang)["ranks"]}), 3)
        self.await_none()

    def test_a_container_that_is_killed_is_replaced(self):
        self.head.run("autoscaler", "request", "room", "--num-cpus", "2")

        def joined():
            return {node["name"] for node in self.head.json("nodes")
                    if node["state"] == "ALIVE"}
        [first] = cluster.until("a node is there", joined)
        self.docker("kill", *self.docker.workers())
        cluster.until("another is there", lambda: joined() - {first})
        self.head.run("autoscaler", "withdraw", "room")
        self.await_none()

    def test_no_head_that_is_killed_leaks_or_doubles_a_container(self):
        for round_ in range(5):
            job = self.head.submit("--num-workers", "2", "--cpus", "2", "--",
                                   "true")
            cluster.until("something is launched", lambda: (
                round_ % 2 == 0 or self.docker.workers()))
            self.head.kill_head()
            self.head.start_head()
            self.assertEqual(self.head.await_end(job)["state"], "SUCCEEDED")
            self.assertLessEqual(len(self.docker.workers()), 3)
        self.await_none()


if __name__ == "__main__":
    cluster.main()
