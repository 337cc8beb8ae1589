"""Nodes that are jobs of a real Slurm of the test's own (docs/autoscaling.md).

Needs root and Debian's packages munge, slurmctld, slurmd, slurm-client and
slurm-wlm-basic-plugins; skipped without them.
"""

import json
import os
import shutil
import socket
import subprocess
import textwrap

import cluster


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Slurm:
    """One slurmctld and some slurmd on this machine, with keys and ports of
    their own."""

    NODES = 3

    def __init__(self, sandbox):
        self.sandbox = sandbox
        self.dir = sandbox.dir / "slurm"
        for name in ("state", "spool", "log"):
            (self.dir / name).mkdir(parents=True)
        self.env = dict(os.environ, SLURM_CONF=str(self.dir / "slurm.conf"))
        self.controller = None

    def start(self):
        key = self.dir / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        munge = self.dir / "munge.socket"
        self.sandbox.spawn(
            ["/usr/sbin/munged", "--foreground", "--force",
             f"--socket={munge}", f"--key-file={key}",
             f"--pid-file={self.dir}/munged.pid",
             f"--log-file={self.dir}/log/munged",
             f"--seed-file={self.dir}/munged.seed"], "munged.log")
        cluster.until("munged serves", munge.exists)
        ports = free_ports(1 + self.NODES)
        host = socket.gethostname().split(".")[0]
        nodes = "\n".join(
            f"NodeName=n{i} NodeHostname={host} NodeAddr=127.0.0.1 "
            f"Port={ports[1 + i]}" for i in range(self.NODES))
        (self.dir / "slurm.conf").write_text(textwrap.dedent(f"""\
            ClusterName=test
            SlurmctldHost={host}(127.0.0.1)
            SlurmctldPort={ports[0]}
            SlurmUser=root
            SlurmdUser=root
            AuthType=auth/munge
            AuthInfo=socket={munge}
            CryptoType=crypto/munge
            MpiDefault=none
            MailProg=/bin/true
            ProctrackType=proctrack/linuxproc
            TaskPlugin=task/none
            SelectType=select/cons_tres
            SelectTypeParameters=CR_Core_Memory
            SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
            ReturnToService=2
            MinJobAge=30
            KillWait=3
            StateSaveLocation={self.dir}/state
            SlurmdSpoolDir={self.dir}/spool/%n
            SlurmctldPidFile={self.dir}/slurmctld.pid
            SlurmdPidFile={self.dir}/slurmd-%n.pid
            SlurmctldLogFile={self.dir}/log/slurmctld
            SlurmdLogFile={self.dir}/log/slurmd-%n
            SlurmdParameters=config_overrides
            NodeName=DEFAULT CPUs=4 RealMemory=2000 State=UNKNOWN
            """) + nodes + "\nPartitionName=main Nodes=ALL Default=YES State=UP\n")
        self.start_controller()
        for i in range(self.NODES):
            self.sandbox.spawn(["/usr/sbin/slurmd", "-D", "-N", f"n{i}"],
                               f"slurmd-{i}.log", env=self.env)
        cluster.until("Slurm's nodes are idle", lambda: self.command(
            "sinfo", "-h", "-t", "idle", "-o", "%D").strip() == str(self.NODES))

    def start_controller(self):
        self.controller = self.sandbox.spawn(["/usr/sbin/slurmctld", "-D"],
                                             "slurmctld.log", env=self.env)

    def kill_controller(self):
        self.controller.kill()
        self.controller.wait()

    def command(self, *argv):
        return subprocess.run(argv, env=self.env, capture_output=True,
                              text=True, check=False).stdout

    def jobs(self):
        return self.command("squeue", "-h", "-o", "%i").split()


class SlurmWatch(cluster.ClusterTest):
    """The provider's watch, beside a squeue of the test's own."""

    def setUp(self):
        super().setUp()
        self.said = self.file("said", "")
        self.calls = self.file("calls", "")
        self.file("squeue", f'#!/bin/sh\necho >>{self.calls}\n'
                  f'exec cat {self.said}\n', 0o755)
        self.watch = subprocess.Popen(
            [cluster.BIN / "cohort-provider-slurm", "watch"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=dict(os.environ, COHORT_CLUSTER="c",
                     COHORT_SLURM_WATCH_SECONDS="0.05",
                     PATH=f"{self.sandbox.dir}:{os.environ['PATH']}"))
        self.addCleanup(self.watch.stdout.close)
        self.addCleanup(self.watch.wait)
        self.addCleanup(self.watch.stdin.close)

    def say(self, *jobs):
        lines = [f"{number}|cohort-i{number}|{state}|{left}|1:00:00|None|"
                 f"{tag} 300\n" for number, state, left, tag in jobs]
        os.rename(self.file("next", "".join(lines)), self.said)

    def asked(self):
        with open(self.calls, encoding="utf-8") as calls:
            return len(calls.read())

    def heard(self):
        return json.loads(self.watch.stdout.readline())

    def test_it_tells_what_ends_and_what_will(self):
        ours, other = "cohort:c", "cohort:d"
        self.say(*((n, "RUNNING", "30:00", ours) for n in (1, 2, 3, 4)),
                 (5, "RUNNING", "30:00", other), (6, "COMPLETED", "0:00", ours),
                 (7, "RUNNING", "30:00", ours),
                 (8, "RUNNING", "30:00", "two\nlines"), (9, "RUNNING", "1", ours + "x"))
        asked = self.asked()
        cluster.until("it was asked", lambda: self.asked() > asked + 1)
        self.say((1, "PREEMPTED", "20:00", ours), (2, "RUNNING", "4:00", ours),
                 (3, "RUNNING", "29:00", ours), (5, "PREEMPTED", "0:00", other),
                 (6, "COMPLETED", "0:00", ours), (7, "TIMEOUT", "0:00", ours))
        heard = sorted((self.heard() for _ in range(4)),
                       key=lambda event: event["id"])
        self.assertEqual(heard, [
            {"event": "gone", "id": "1", "reason": "PREEMPTED"},
            {"event": "notice", "id": "2", "reason": "its time limit",
             "deadline_s": 225},
            {"event": "gone", "id": "4", "reason": "Slurm forgot it"},
            {"event": "gone", "id": "7", "reason": "TIMEOUT"}])
        # Each is told once.
        self.say((2, "NODE_FAIL", "3:00", ours), (3, "RUNNING", "29:00", ours))
        self.assertEqual(self.heard(),
                         {"event": "gone", "id": "2", "reason": "NODE_FAIL"})


class SlurmProvider(cluster.ClusterTest):

    FILE = textwrap.dedent("""\
        provider: slurm
        max_nodes: 3
        idle_timeout: 1s
        node_types:
          cpu:
            resources: {CPU: 4, memory: 1GiB}
            provider_config: {sbatch: [--partition=main], state_dir: %s}
        """)

    def setUp(self):
        super().setUp()
        # As the provider finds it.
        if os.geteuid() != 0 or not shutil.which("sbatch") or not all(
                os.access(f"/usr/sbin/{name}", os.X_OK)
                for name in ("munged", "slurmctld", "slurmd")):
            self.skipTest("Slurm is not installed, or this is not root")
        self.slurm = Slurm(self.sandbox)
        self.slurm.start()
        file = self.file("cluster.yaml", self.FILE % self.sandbox.dir)
        self.head = cluster.Cluster(self.sandbox, "3s")
        self.head.head_flags = ("--cluster-file", file)
        os.environ["SLURM_CONF"] = self.slurm.env["SLURM_CONF"]
        self.addCleanup(os.environ.pop, "SLURM_CONF", None)
        self.addCleanup(self.slurm.command, "scancel", "--user=root")
        self.head.start_head()

    def test_a_gang_runs_on_jobs_that_come_and_go(self):
        gang = self.head.submit("--num-workers", "3", "--cpus", "4", "--",
                                "true")
        self.assertEqual(self.head.await_end(gang)["state"], "SUCCEEDED")
        cluster.until("all jobs of Slurm are gone",
                      lambda: not self.slurm.jobs())
        cluster.until("no instance is left", lambda: not self.head.json(
            "autoscaler", "status")["instances"])

    def test_the_controller_and_the_head_are_killed_in_the_middle(self):
        gang = self.head.submit("--num-workers", "2", "--cpus", "4", "--",
                                "true")
        cluster.until("a job of Slurm is there", self.slurm.jobs)
        self.slurm.kill_controller()
        self.head.kill_head()
        self.slurm.start_controller()
        self.head.start_head()
        self.assertEqual(self.head.await_end(gang)["state"], "SUCCEEDED")
        self.assertLessEqual(len(self.slurm.jobs()), 3)
        cluster.until("all jobs of Slurm are gone",
                      lambda: not self.slurm.jobs())

    def test_what_slurm_takes_away_is_drained_first(self):
        go = self.sandbox.dir / "go"
        job = self.head.submit("--cpus", "4", "--max-failures", "0", "--", "sh",
                               "-c", f"until [ -e {go} ]; do sleep 0.1; done")
        self.head.await_state(job, "RUNNING")
        number, = self.slurm.jobs()
        # As Slurm does before a time limit, with --signal=B:TERM.
        self.slurm.command("scancel", "--batch", "--signal=TERM", number)
        cluster.until("its node is drained", lambda: [
            node for node in self.head.json("nodes")
            if node["state"] == "DRAINING"])
        go.touch()
        self.assertEqual(self.head.await_end(job)["state"], "SUCCEEDED")
        cluster.until("the job of Slurm is gone",
                      lambda: number not in self.slurm.jobs())

    def test_a_job_that_slurm_ends_is_told_and_replaced(self):
        job = self.head.submit("--cpus", "4", "--max-failures", "0", "--",
                               "sleep", "1000")
        self.head.await_state(job, "RUNNING")
        number, = self.slurm.jobs()
        self.slurm.command("scancel", "--signal=KILL", number)
        cluster.until("its watch says how it ended", lambda: (
            "the provider says that it is gone: " in
            self.head.run("events").stdout))
        cluster.until("it runs elsewhere", lambda: (
            lambda job: job["state"] == "RUNNING" and
            job["attempt"] == 2)(self.head.job(job)))
        self.head.run("jobs", "stop", job)

    def test_explain_says_why_slurm_lets_a_node_wait(self):
        for i in range(Slurm.NODES):
            self.slurm.command("scontrol", "update", f"nodename=n{i}",
                               "state=drain", "reason=test")
        waits = self.head.submit("--cpus", "4", "--", "true")
        cluster.until("it says so", lambda: "the provider says: " in
                      self.head.run("explain", waits).stdout)
        for i in range(Slurm.NODES):
            self.slurm.command("scontrol", "update", f"nodename=n{i}",
                               "state=resume")
        self.assertEqual(self.head.await_end(waits)["state"], "SUCCEEDED")


if __name__ == "__main__":
    cluster.main()
