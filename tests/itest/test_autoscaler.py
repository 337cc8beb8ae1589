"""A cluster that grows for what waits and shrinks, by the providers `process`
and a script of the test's own."""

import json
import os
import shutil
import signal
import subprocess
import textwrap

import cluster


class Growing(cluster.ClusterTest):
    """A head without workers, whose nodes a provider launches."""

    FILE = textwrap.dedent("""\
        provider: process
        max_nodes: 4
        idle_timeout: 1s
        node_types:
          cpu: {resources: {CPU: 2, memory: 256MiB}, max: 3}
          large: {resources: {CPU: 8, memory: 512MiB}, max: 1, cost: 10}
        """)

    def head(self, text=FILE):
        """A head without workers, and a cluster file."""
        file = self.file("cluster.yaml", text)
        head = cluster.Cluster(self.sandbox, "3s")
        head.head_flags = ("--cluster-file", file)
        self.addCleanup(self.end_instances)
        head.start_head()
        return head

    def instances(self):
        """As the provider has them, not as the head says."""
        directory = self.sandbox.dir / "head/instances"
        return sorted(os.listdir(directory)) if directory.exists() else []

    def worker_pids(self):
        return [pid for pid in cluster.descendants()
                if cluster.program_of(pid) == "cohort-worker"]

    def end_instances(self):
        for pid in self.worker_pids():
            os.kill(pid, signal.SIGTERM)

    def await_none(self, head):
        cluster.until("all instances are gone", lambda: (
            not self.instances() and not self.worker_pids() and
            not head.json("autoscaler", "status")["instances"]))
        self.assertEqual(head.json("token", "list"), {"tokens": []})

    def burst_and_gang(self, head):
        jobs = [head.submit("--", "true") for _ in range(50)]
        gang = head.submit("--num-workers", "3", "--cpus", "2", "--strategy",
                           "STRICT_SPREAD", "--", "true")
        for job in [*jobs, gang]:
            self.assertEqual(head.await_end(job)["state"], "SUCCEEDED")
        self.assertEqual(len({rank["node"] for rank in head.job(gang)["ranks"]}),
                         3)
        self.await_none(head)
        events = head.run("events").stdout
        for kind in ("instance_queued", "instance_joined", "instance_draining",
                     "instance_ended"):
            self.assertIn(kind, events)

    def kills(self, head):
        for round_ in range(20):
            job = head.submit("--num-workers", "3", "--cpus", "2", "--", "true")
            cluster.until("something is launched", lambda: (
                round_ % 2 == 0 or self.instances()))
            head.kill_head()
            self.assertLessEqual(len(self.instances()), 4)
            head.start_head()
            self.assertEqual(head.await_end(job)["state"], "SUCCEEDED")
            self.assertLessEqual(len(self.instances()), 3)
            self.assertLessEqual(len(self.worker_pids()), 3)
        self.await_none(head)


class AnyProgram(Growing):
    """A provider that is named by its path."""

    PROVIDER = textwrap.dedent('''\
        #!/usr/bin/env python3
        """Workers of this machine, a directory each: its name is the key."""
        import fcntl, json, os, pathlib, shutil, signal, subprocess, sys
        DIR = pathlib.Path(os.environ["COHORT_HEAD_STATE_DIR"]) / "instances"
        DIR.mkdir(exist_ok=True)

        def pid_of(key):
            """Of its worker while that runs."""
            try:
                pid = int((DIR / key / "pid").read_text())
                command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
            except (OSError, ValueError):
                return None
            return pid if key.encode() in command else None

        def launch(key, _type, *flags):
            (DIR / key).mkdir(exist_ok=True)
            lock = open(DIR / key / "lock", "w")
            fcntl.flock(lock, fcntl.LOCK_EX)
            if pid_of(key) is None:
                token = os.environ["COHORT_JOIN_TOKEN"]
                environment = dict(os.environ, COHORT_JOIN_TOKEN=%(token)s)
                worker = subprocess.Popen(
                    [os.environ["COHORT_WORKER"], "--address",
                     os.environ["COHORT_ADDRESS"], "--state-dir",
                     DIR / key / "state", "--end-ranks", *flags],
                    env=environment, start_new_session=True,
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                    stderr=open(DIR / key / "log", "w"))
                (DIR / key / "pid").write_text(str(worker.pid))
            print(json.dumps({"id": key}))

        def terminate(key):
            if pid := pid_of(key):
                os.kill(pid, signal.SIGTERM)
                while pid_of(key):
                    signal.sigtimedwait([signal.SIGCHLD], 0.05)
            shutil.rmtree(DIR / key, ignore_errors=True)

        def list_all():
            keys = [key for key in os.listdir(DIR) if (DIR / key / "pid").exists()]
            print(json.dumps({"instances": [
                {"id": key, "instance": key, "reason": "its worker has ended",
                 "state": "running" if pid_of(key) else "failed"}
                for key in keys]}))

        {"launch": launch, "terminate": terminate, "list": list_all,
         "watch": lambda: sys.exit(2)}[sys.argv[1]](*sys.argv[2:])
        ''')

    def head_of(self, token):
        provider = self.file("provider", self.PROVIDER % {"token": token}, 0o755)
        return self.head(self.FILE.replace("process", str(provider)))

    def test_a_burst_and_a_gang_run_on_nodes_that_come_and_go(self):
        self.burst_and_gang(self.head_of("token"))

    def test_no_head_that_is_killed_leaks_or_doubles_an_instance(self):
        self.kills(self.head_of("token"))

    def test_a_rotation_waits_for_machines_that_have_not_joined(self):
        # It has a token, and asks where nobody is.
        head = self.head_of(
            '(os.environ.update(COHORT_ADDRESS="127.0.0.1:1"), token)[1]')
        waits = head.submit("--", "true")
        cluster.until("a machine is launched", lambda: [
            each["state"] for each in
            head.json("autoscaler", "status")["instances"]] == ["ALLOCATED"])
        launched = head.json("autoscaler", "status")["instances"][0]
        instance = launched["id"]
        self.assertEqual(launched["provider_id"], instance)  # as it answers
        self.assertEqual(head.run("authority", "rotate").returncode, 0)
        self.assert_fails(head.run("authority", "finish"), 125,
                          f"instance {instance} (has not joined)")
        head.run("jobs", "stop", waits)

    def test_a_launch_lets_one_machine_in_and_as_itself(self):
        kept = self.sandbox.dir / "tokens"
        # The machines themselves ask where nobody is.
        head = self.head_of(
            f'(print(key, token, file=open({str(kept)!r}, "a")), '
            'os.environ.update(COHORT_ADDRESS="127.0.0.1:1"), token)[2]')
        waits = head.submit("--num-workers", "2", "--cpus", "2", "--", "true")
        cluster.until("two are launched", lambda: (
            kept.exists() and kept.read_text().count("\n") >= 2))
        (one, token), (other, _) = map(str.split,
                                       kept.read_text().splitlines()[:2])

        def join(name, **pipes):
            return subprocess.Popen(
                [cluster.BIN / "cohort-worker", "--address", head.address,
                 "--state-dir", self.sandbox.dir / name, "--name", name,
                 "--num-cpus", "1", "--labels", f"instance={other}"], text=True,
                env=dict(os.environ, COHORT_JOIN_TOKEN=token), **pipes)
        first = join("first", stderr=subprocess.DEVNULL)
        self.addCleanup(first.wait)
        self.addCleanup(first.kill)
        cluster.until("the first is in", lambda: head.json("nodes"))
        # By the token of one it is not the other, whatever its label says.
        self.assertEqual(
            {each["id"]: each["node"] for each in
             head.json("autoscaler", "status")["instances"]},
            {one: None, other: None})
        second = join("second", stderr=subprocess.PIPE)
        _, why = second.communicate(timeout=cluster.DEADLINE)
        self.assertNotEqual(second.returncode, 0)
        self.assertIn("another node has joined", why)
        self.assertEqual([node["name"] for node in head.json("nodes")],
                         ["first"])
        head.run("jobs", "stop", waits)

    def test_a_machine_of_another_cluster_is_not_let_in(self):
        # A whole token, though not one of this head's.
        other = cluster.Cluster(self.sandbox, "3s")
        other.start_head()
        token = other.run("token", "create").stdout.strip()
        other.kill_head()
        shutil.rmtree(self.sandbox.dir / "head")
        head = self.head_of(repr(token))
        waits = head.submit("--", "true")
        cluster.until("its type has failed", lambda: any(
            each["failure"] for each in
            head.json("autoscaler", "status")["node_types"]))
        self.assertEqual(head.job(waits)["state"], "PENDING")
        self.assertEqual(head.json("nodes"), [])
        head.run("jobs", "stop", waits)
        self.await_none(head)


class Autoscaler(Growing):

    def test_a_burst_and_a_gang_run_on_nodes_that_come_and_go(self):
        self.burst_and_gang(self.head())

    def test_no_head_that_is_killed_leaks_or_doubles_an_instance(self):
        self.kills(self.head())

    def test_what_a_lost_node_had_is_said_to_be_lost(self):
        head = self.head(self.FILE.replace("idle_timeout: 1s",
                                           "idle_timeout: 10m"))
        job = head.submit("--", "sh", "-c",
                          "echo weights >$COHORT_STORAGE_DIR/model.pt")
        self.assertEqual(head.await_end(job)["state"], "SUCCEEDED")
        self.assertIn("model.pt", head.run("jobs", "files", job).stdout)
        stubborn = head.submit("--", "sh", "-c", "trap '' TERM; sleep 1000")
        head.await_state(stubborn, "RUNNING")
        rank = cluster.until("its rank", lambda: head.rank_pids(stubborn))[0]
        memory = "/dev/shm/cohort-" + head.json("nodes")[0]["id"][:12]
        worker, = self.worker_pids()
        os.kill(worker, signal.SIGKILL)
        cluster.until("the rank of a dead worker is ended", lambda:
                      not cluster.alive(rank))
        cluster.until("what it had in memory is gone",
                      lambda: not os.path.exists(memory))
        head.run("jobs", "stop", stubborn)
        # The node that came for it goes soon.
        head.run("autoscaler", "apply", self.file("soon.yaml", self.FILE))
        self.await_none(head)
        self.assertIn("results_lost", head.run("events").stdout)
        self.assertIn("is lost with the node", head.run("jobs", "get", job).stdout)
        done = head.run("jobs", "files", job)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("what it had of the job is lost with it", done.stderr)
        self.assert_fails(head.run("jobs", "get-files", job,
                                   self.sandbox.dir / "to"), 125, "is lost with it")
        self.assert_fails(head.run("logs", job), 125, "has ended, and the log of")
        self.assertIn("is lost with the node", head.run("explain", job).stdout)

    def test_what_lies_on_storage_is_found_elsewhere_or_named(self):
        head = self.head()
        storage = self.sandbox.dir / "storage"
        job = head.submit("--storage-path", str(storage), "--", "sh", "-c",
                          "echo said; echo weights >$COHORT_STORAGE_DIR/model.pt")
        self.assertEqual(head.await_end(job)["state"], "SUCCEEDED")
        self.await_none(head)
        # Long before the head takes its node for dead.
        done = head.run("jobs", "files", job)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"has {storage}/{job}: where that outlives", done.stderr)
        to = self.sandbox.dir / "to"
        self.assert_fails(head.run("jobs", "get-files", job, to), 125,
                          f"has {storage}/{job}")
        self.assertEqual(head.run("logs", job).stdout, "said\n")
        head.start_worker("w0", "--num-cpus", "1")
        done = head.run("jobs", "files", job)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("model.pt", done.stdout)
        done = head.run("jobs", "get-files", job, to)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((to / "model.pt").read_text(), "weights\n")

    def test_submit_warns_when_results_may_go_with_their_node(self):
        head = self.head()
        warning = "--storage-path DIR keeps checkpoints and results"
        done = head.run("submit", "--", "true")
        self.assertEqual((done.returncode, done.stderr.count(warning)), (0, 1))
        done = head.run("submit", "--storage-path", self.sandbox.dir, "--",
                        "true")
        self.assertNotIn(warning, done.stderr)
        fixed = self.file("fixed.yaml", self.FILE.replace(
            "max: 3", "min: 1, max: 1").replace("max: 1, cost",
                                                "min: 0, max: 0, cost"))
        done = head.run("autoscaler", "apply", fixed)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn(warning, head.run("submit", "--", "true").stderr)
        none = self.file("none.yaml", "provider: process\nnode_types: {}\n")
        self.assertEqual(head.run("autoscaler", "apply", none).returncode, 0)
        self.await_none(head)

    def test_logs_and_for_a_while_results_outlive_a_node(self):
        head = self.head(self.FILE.replace("idle_timeout: 1s",
                                           "idle_timeout: 1s\ndata_timeout: 5s"))
        job = head.submit("--", "sh", "-c",
                          "seq 300000; echo bye >&2; echo weights >model.pt")
        self.assertEqual(head.await_end(job)["state"], "SUCCEEDED")
        cluster.until("its results hold the node", lambda: (
            "with what 1 job wrote only there" in
            head.run("autoscaler", "status").stdout))
        self.assertNotIn("is gone", head.run("logs", job).stderr)
        silent = head.submit("--", "echo", "alone")
        self.assertEqual(head.await_end(silent)["state"], "SUCCEEDED")
        self.await_none(head)
        # That a log was empty is known, too.
        done = head.run("logs", silent)
        self.assertEqual((done.returncode, done.stdout), (0, "alone\n"))
        self.assertIn("results_lost", head.run("events").stdout)
        done = head.run("logs", job)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count(
            "is gone: of each log there at most the last 1 MiB is left"), 1)
        lines = done.stdout.splitlines()
        self.assertIn("bye", lines)
        self.assertIn("300000", lines)
        self.assertIn("200000", lines)
        self.assertLess(len(done.stdout), (1 << 20) + 1000)
        self.assertTrue(head.run("logs", "--tail", "2", "--stdout", job)
                        .stdout.endswith("299999\n300000\n"))

    def test_requested_room_and_the_commands(self):
        head = self.head()
        done = head.run("autoscaler", "request", "mine", "--bundles",
                        "2*CPU=2", "--ttl", "1h")
        self.assertEqual(done.returncode, 0, done.stderr)
        cluster.until("both are there",
                      lambda: head.json("nodes").__len__() == 2)
        instances = {each["id"]: each["node"] for each in head.json(
            "autoscaler", "status")["instances"]}
        for node in head.json("nodes"):
            self.assertEqual(node["type"], "cpu")
            self.assertEqual(instances[node["instance"]], node["id"])
            self.assertIn(f"cpu   {node['instance'][:8]}",
                          head.run("nodes").stdout)
        status = head.json("autoscaler", "status")
        self.assertEqual(status["requests"][0]["name"], "mine")
        text = head.run("autoscaler", "status").stdout
        for word in ("provider process", "RUNNING", "JOINED", "mine"):
            self.assertIn(word, text)
        requests = head.run("autoscaler", "requests").stdout
        self.assertIn("2 x {CPU 2}", requests)
        self.assertIn("mine     cluster", requests)
        self.assert_fails(head.run("autoscaler", "withdraw", "yours"), 125,
                          "no request for capacity")
        self.assertEqual(
            head.run("autoscaler", "withdraw", "mine").returncode, 0)
        self.await_none(head)
        # Of a user, by the name that `user list` shows; too large for any node.
        file = self.sandbox.dir / "ann"
        self.assertEqual(
            head.run("user", "add", "ann", "--file", file).returncode, 0)
        ann = cluster.Client(head.address, file)
        self.assertEqual(ann.run("autoscaler", "request", "hers", "--num-cpus",
                                 "999").returncode, 0)
        done = head.run("autoscaler", "withdraw", "hers", "--owner", "ann")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_node_that_gets_sigterm_is_drained_and_replaced(self):
        head = self.head(self.FILE.replace("max: 3", "max: 3, provider_config: "
                                           "{drain_on_sigterm: 10m}"))
        go = self.sandbox.dir / "go"
        job = head.submit("--cpus", "2", "--max-failures", "0", "--", "sh", "-c",
                          f"until [ -e {go} ]; do sleep 0.1; done")
        head.await_state(job, "RUNNING")
        worker, = self.worker_pids()
        os.kill(worker, signal.SIGTERM)
        cluster.until("its node is drained", lambda: [
            node for node in head.json("nodes")
            if node["state"] == "DRAINING"])
        # What runs there goes on, and what waits gets a node of its own.
        other = head.submit("--cpus", "2", "--", "true")
        self.assertEqual(head.await_end(other)["state"], "SUCCEEDED")
        self.assertEqual(head.job(job)["state"], "RUNNING")
        self.assertTrue(cluster.alive(worker))
        go.touch()
        self.assertEqual(head.await_end(job)["state"], "SUCCEEDED")
        cluster.until("its worker has ended by itself",
                      lambda: not cluster.alive(worker))
        self.await_none(head)

    def test_what_a_deadline_moves_is_not_charged(self):
        head = self.head(self.FILE.replace("max: 3", "max: 3, provider_config: "
                                           "{drain_on_sigterm: 100ms}"))
        job = head.submit("--cpus", "2", "--max-failures", "0", "--", "sleep",
                          "1000")
        head.await_state(job, "RUNNING")
        first, = self.worker_pids()
        os.kill(first, signal.SIGTERM)
        now = cluster.until("it runs elsewhere", lambda: (
            lambda job: job if job["state"] == "RUNNING" and
            job["attempt"] == 2 else None)(head.job(job)))
        self.assertEqual((now["failures"], now["infra_restarts"]), (0, 0))
        cluster.until("the first worker has ended",
                      lambda: not cluster.alive(first))
        head.run("jobs", "stop", job)
        self.await_none(head)

    def test_a_second_sigterm_ends_a_worker_at_once(self):
        head = self.head(self.FILE.replace("max: 3", "max: 3, provider_config: "
                                           "{drain_on_sigterm: 10m}"))
        job = head.submit("--cpus", "2", "--max-failures", "0", "--", "sleep",
                          "1000")
        head.await_state(job, "RUNNING")
        first, = self.worker_pids()
        os.kill(first, signal.SIGTERM)
        cluster.until("its node is drained", lambda: [
            node for node in head.json("nodes") if node["state"] == "DRAINING"])
        os.kill(first, signal.SIGTERM)
        cluster.until("it has ended", lambda: not cluster.alive(first))
        self.assertEqual(head.await_state(job, "RUNNING")["failures"], 0)
        head.run("jobs", "stop", job)
        self.await_none(head)

    WATCHING = textwrap.dedent('''\
        #!/usr/bin/env python3
        import json, os, subprocess, sys, time
        if sys.argv[1] != "watch":
            sys.exit(subprocess.run([%(process)r, *sys.argv[1:]]).returncode)
        with open(%(watches)r, "a") as watches:
            print(os.getpid(), file=watches)
        print("garbage", "x" * 100000, flush=True)
        while not os.path.exists(%(say)r):
            time.sleep(0.05)
        with open(%(say)r) as say:
            print(say.read(), flush=True)
        os.remove(%(say)r)
        print('{"event": "gone", "id": "nobody"}', '[' * 5000, sep="\\n",
              flush=True)
        sys.exit("the connection is lost")
        ''')

    def test_what_a_provider_tells_drains_a_node(self):
        say, watches = self.sandbox.dir / "say", self.sandbox.dir / "watches"
        provider = self.file("watching", self.WATCHING % {
            "process": str(cluster.BIN / "cohort-provider-process"),
            "say": str(say), "watches": str(watches)}, 0o755)
        head = self.head(self.FILE.replace("process", str(provider)))
        job = head.submit("--cpus", "2", "--max-failures", "0", "--", "sleep",
                          "1000")
        head.await_state(job, "RUNNING")
        first, = self.instances()
        whole = self.file("part", json.dumps({
            "event": "notice", "id": first, "deadline_s": 1,
            "reason": "spot is full"}))
        os.rename(whole, say)
        now = cluster.until("it runs elsewhere", lambda: (
            lambda job: job if job["state"] == "RUNNING" and
            job["attempt"] == 2 else None)(head.job(job)))
        self.assertEqual((now["failures"], now["infra_restarts"]), (0, 0))
        self.assertIn("spot is full", head.run("events").stdout)
        cluster.until("its program was started again", lambda: (
            len(watches.read_text().split()) > 1))
        # None outlives its head.
        self.assertIn("watch_not_understood",
                      (self.sandbox.dir / "head.log").read_text())
        head.kill_head()
        cluster.until("no program watches", lambda: not any(
            cluster.alive(int(pid)) for pid in watches.read_text().split()))
        head.start_head()
        head.run("jobs", "stop", job)
        self.await_none(head)

    def test_a_provider_that_is_missing_is_told(self):
        head = self.head(self.FILE.replace("process", "nimbus"))
        for command in ("autoscaler", "status"), ("events",):
            self.assertIn("provider nimbus is not a program that can be run",
                          head.run(*command).stdout)
        file = self.file("good.yaml", self.FILE)
        self.assertEqual(head.run("autoscaler", "apply", file).returncode, 0)
        self.assertNotIn("nimbus", head.run("autoscaler", "status").stdout)

    def test_an_end_that_fails_is_told_and_tried_again(self):
        broken = self.sandbox.dir / "broken"
        process = cluster.BIN / "cohort-provider-process"
        provider = self.file("provider", textwrap.dedent(f"""\
            #!/bin/sh
            if [ "$1" = terminate ] && [ -e {broken} ]; then
              echo 'error 429: slow down' >&2; exit 1
            fi
            exec {process} "$@"
            """), 0o755)
        broken.touch()
        head = self.head(self.FILE.replace("process", str(provider)))
        job = head.submit("--", "true")
        self.assertEqual(head.await_end(job)["state"], "SUCCEEDED")
        cluster.until("it says so", lambda: (
            "the provider did not end it, asked 2 times, again in " in
            head.run("autoscaler", "status").stdout))
        self.assertIn("error 429: slow down",
                      head.run("events").stdout)
        broken.unlink()
        self.await_none(head)

    def test_a_file_is_checked_applied_and_kept(self):
        head = self.head()
        bad = self.file("bad.yaml", "provider: process\nmax_node: 3\n")
        for command in ("check", "apply"):
            self.assert_fails(head.run("autoscaler", command, bad), 2,
                              "line 2", "max_node")
        good = self.file("good.yaml", self.FILE.replace("max: 3", "max: 2"))
        self.assertEqual(head.run("autoscaler", "check", good).returncode, 0)
        self.assertEqual(head.run("autoscaler", "apply", good).returncode, 0)
        head.head_flags = ()
        head.kill_head()
        head.start_head()
        types = head.json("autoscaler", "status")["node_types"]
        self.assertEqual({each["name"]: each["max"] for each in types},
                         {"cpu": 2, "large": 1})

    def test_a_provider_that_fails_harms_nobody(self):
        calls = self.sandbox.dir / "calls"
        provider = self.file("provider", textwrap.dedent(f"""\
            #!/bin/sh
            echo "$1" >>{calls}
            case $1 in
              list) echo '{{"instances": []}}' ;;
              *) echo 'the quota is spent' >&2; exit 1 ;;
            esac
            """), 0o755)
        head = self.head(self.FILE.replace("process", str(provider)))
        head.start_worker("w0", "--num-cpus", "1")
        waits = head.submit("--cpus", "8", "--", "true")
        fits = head.submit("--", "true")
        self.assertEqual(head.await_end(fits)["state"], "SUCCEEDED")
        cluster.until("it was tried", lambda: (
            calls.exists() and "launch" in calls.read_text()))
        cluster.until("it says so", lambda: "the quota is spent" in
                      head.run("autoscaler", "status").stdout)
        self.assertEqual(head.job(waits)["state"], "PENDING")


if __name__ == "__main__":
    cluster.main()
