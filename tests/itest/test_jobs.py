"""Jobs from the command line: exit codes, environment, limited credentials."""

import json
import pathlib
import sys

import cluster


class Jobs(cluster.ClusterTest):

    def test_ends_as_its_rank_does(self):
        c = self.cluster()
        for script, status in (("exit 0", 0), ("exit 7", 7),
                               ("kill -KILL $$", 137), ("kill -TERM $$", 143)):
            done = c.run("submit", "--wait", "--", "sh", "-c", script)
            self.assertEqual(done.returncode, status, script + done.stderr)
        done = c.run("submit", "--wait", "--", "no-such-program")
        self.assert_fails(done, 127)
        job = c.submit("--num-workers", "2", "--", "sh", "-c",
                       'test $RANK = 0 && exec sleep 600; exit 9')
        self.assertEqual(c.run("jobs", "wait", job).returncode, 9)
        self.assertEqual(c.job(job)["exit_code"], 9)

    def test_stopped_is_130_and_late_is_124(self):
        c = self.cluster()
        job = c.submit("--", "sleep", "600")
        c.await_state(job, "RUNNING")
        self.assert_fails(c.run("jobs", "wait", job, "--timeout", "100ms"),
                          124, job, "RUNNING")
        self.assertEqual(c.run("jobs", "stop", job).returncode, 0)
        self.assertEqual(c.run("jobs", "wait", job).returncode, 130)
        ended = c.job(job)
        self.assertEqual(ended["state"], "STOPPED")
        self.assertEqual(ended["failures"], 0)

    def test_prints_its_id_alone_first(self):
        c = self.cluster()
        done = c.run("submit", "-f", "--", "echo", "hello")
        lines = done.stdout.splitlines()
        self.assertRegex(lines[0], r"^[0-9a-f]{32}$")
        self.assertEqual(lines[1:], ["hello"])
        same = ("submit", "--request-id", "r", "--json", "--", "true")
        first, second = c.run(*same), c.run(*same)
        self.assertEqual(set(json.loads(first.stdout)), {"id"})
        self.assertEqual(first.stdout, second.stdout)
        again = c.run("submit", "--request-id", "r", "--json", "--", "false")
        self.assertEqual(again.returncode, 125)
        self.assertEqual(json.loads(again.stderr)["code"], "ALREADY_EXISTS")

    def test_logs_of_what_never_started_say_so(self):
        c = self.cluster()
        job = c.submit("--hold", "--", "true")
        done = c.run("logs", job)
        self.assertEqual((done.returncode, done.stdout), (125, ""))
        told = json.loads(c.run("logs", job, "--json").stderr)
        self.assertEqual(told["reason"], "not_started")
        self.assertIn(f"job {job} is PENDING and has never started: held by",
                      done.stderr)

    def test_json_has_every_key(self):
        c = self.cluster("--num-cpus", "2", "--simulate-gpus", "1")
        job = c.submit("--gpus", "1", "--", "true")
        self.assertEqual(c.await_end(job)["state"], "SUCCEEDED")
        got = c.job(job)
        details = set(
            "epoch num_workers restart causes failures_by_class array never_fits stderr_tail "
            "time_limit grace retry_delay selectors tolerations "
            "accelerator_type topology after begin comment array_spec preflight "
            "keep_work isolate_gpus infra_restarts failed_rank metrics_count "
            "held_by command environment secrets package_hash working_directory "
            "resources_per_worker placement_strategy workers_per_node "
            "storage_path max_failures num_to_keep actor "
            "best_checkpoints warnings".split())
        self.assertEqual(
            set(got),
            set("id name state reason attempt failures exit_code signal "
                "submitted_at started_at ended_at ran metrics checkpoint "
                "labels namespace submitted_by priority held class "
                "ranks".split()) | details)
        self.assertEqual(
            set(got["ranks"][0]),
            set("rank local_rank node pid state exit_code signal "
                "incarnation failures gpu_ids node_name exit_detail "
                "oom_killed".split()))
        listed = c.json("jobs", "list")[0]
        self.assertEqual(set(listed), set(got) - {"ranks"} - details)
        node = c.json("nodes")[0]
        self.assertEqual(
            set(node), set("id name state incarnation pid resources available "
                           "labels devices since taints drain not_ready unenforced host "
                           "build type instance".split()))
        self.assertEqual(set(node["devices"][0]),
                         set("id kind model simulated memory_bytes state "
                             "reason since pci_bus_id numa_node nvlink_peers "
                             "parent sample holders".split()))
        gpu = c.json("gpus")[0]
        self.assertEqual(set(gpu), set(node["devices"][0]) |
                         {"node", "node_id", "node_state"})
        self.assertEqual(c.json("gpus", "get", gpu["id"])["id"], gpu["id"])
        self.assertIs(node["devices"][0]["simulated"], True)
        self.assertEqual(
            set(c.json("status")),
            set("cluster_id address http_address head_pid term nodes jobs "
                "later_store read_only read_only_why settling orphans "
                "orphan_count".split()))
        self.assertEqual(set(c.json("resources")), {"total", "available"})

    def test_shows_what_a_job_runs(self):
        c = self.cluster()
        script = self.file("a.sh", "exit 0")
        job = c.submit("--file", script, "--env", "MODE=a b", "--hold",
                       "--comment", "once", "--", "sh", "a.sh")
        got = c.job(job)
        self.assertEqual(got["command"], ["sh", "a.sh"])
        self.assertEqual(got["environment"]["MODE"], "a b")
        self.assertRegex(got["package_hash"], "^[0-9a-f]{64}$")
        self.assertIsNone(got["working_directory"])
        self.assertIsNone(got["failed_rank"])
        text = c.run("jobs", "get", job).stdout
        for words in ("sh a.sh", "MODE=a b", got["package_hash"], "once"):
            self.assertIn(words, text)
        there = c.submit("--cwd", self.sandbox.dir, "--hold", "--", "true")
        self.assertEqual(c.job(there)["working_directory"],
                         str(self.sandbox.dir))

    def test_rank_may_read_its_job_and_nothing_else(self):
        c = self.cluster()
        other = c.submit("--", "true")
        script = self.file("ask.sh", f"""
set -u
cohort={cluster.BIN}/cohort
$cohort jobs get $COHORT_JOB_ID --json >own.json || exit 1
grep -q $COHORT_JOB_ID own.json || exit 2
$cohort submit -- true && exit 3
$cohort jobs get {other} && exit 4
$cohort jobs stop $COHORT_JOB_ID && exit 5
$cohort jobs stop {other} && exit 6
$cohort jobs list && exit 7
$cohort jobs logs {other} && exit 8
exit 0
""")
        done = c.run("submit", "-f", "--file", script, "--", "sh", "ask.sh")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(len(c.json("jobs", "list")), 2)

    def test_environment_is_torchruns(self):
        c = self.cluster(workers=2)
        job = c.submit("--num-workers", "2", "--strategy", "STRICT_SPREAD",
                       "--env", "COLOUR=blue", "--name", "paint", "--",
                       sys.executable, "-c",
                       "import os,json; print(json.dumps(dict(os.environ)))")
        self.assertEqual(c.await_end(job)["state"], "SUCCEEDED")
        ranks = [json.loads(c.logs(job, "--rank", rank).partition("] ")[2])
                 for rank in (0, 1)]
        for rank, env in enumerate(ranks):
            self.assertEqual(env["RANK"], str(rank))
            self.assertEqual(env["WORLD_SIZE"], "2")
            self.assertEqual(env["LOCAL_RANK"], "0")
            self.assertEqual(env["LOCAL_WORLD_SIZE"], "1")
            self.assertEqual(env["GROUP_RANK"], str(rank))
            self.assertEqual(env["TORCHELASTIC_USE_AGENT_STORE"], "False")
            self.assertEqual(env["CUDA_VISIBLE_DEVICES"], "")
            self.assertEqual(env["COLOUR"], "blue")
            self.assertEqual(env["COHORT_ADDRESS"], c.address)
            self.assertNotEqual(env["COHORT_CREDENTIAL_FILE"],
                                str(c.credential))
        for key in ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"):
            self.assertEqual(ranks[0][key], ranks[1][key])

    def test_files_sent_along_are_where_the_rank_starts(self):
        c = self.cluster()
        self.file("tree/deep/er.txt", "deep\n")
        self.file("tree/run.sh", "#!/bin/sh\ncat deep/er.txt\n", 0o755)
        done = c.run("submit", "-f", "--working-dir", self.sandbox.dir / "tree",
                     "--", "./run.sh")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines()[1:], ["deep"])

    def test_says_how_to_run_a_file_sent_along(self):
        c = self.cluster()
        script = self.file("here.sh", "#!/bin/sh\nexit 0\n", 0o755)
        done = c.run("submit", "--wait", "--file", script, "--", "here.sh")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("write ./here.sh\n", done.stderr)
        done = c.run("submit", "--wait", "--working-dir", script.parent, "--",
                     "here.sh")
        self.assertIn("write ./here.sh\n", done.stderr)
        done = c.run("submit", "--wait", "--file", script, "--", "./here.sh")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("write ./here.sh", done.stderr)

    def test_how_it_ended_begins_a_line(self):
        c = self.cluster()
        done = c.run("submit", "-f", "--", "sh", "-c", "printf err >&2")
        said, last = done.stderr.splitlines()
        self.assertEqual(said, "err")
        self.assertRegex(last, "^job [0-9a-f]{32} SUCCEEDED")
        done = c.run("submit", "-f", "--", "sh", "-c", "printf out")
        self.assertTrue(done.stdout.endswith("out"), done.stdout)
        self.assertRegex(done.stderr, "^job ")

    def test_trains_with_pythons_torch(self):
        python = "/usr/bin/python3"
        probe = cluster.subprocess.run(
            [python, "-c", "import torch.distributed as d; "
             "assert d.is_gloo_available() if hasattr(d, 'is_gloo_available') "
             "else d.is_available()"],
            capture_output=True, check=False)
        if probe.returncode:
            self.skipTest("python3-torch with gloo is not installed")
        script = pathlib.Path(__file__).parents[2] / "examples/ddp/train.py"
        c = self.cluster("--num-cpus", "1", workers=2)
        job = c.submit("--num-workers", "2", "--file", script, "--", python,
                       "train.py", "--steps", "5")
        ended = c.await_end(job)
        self.assertEqual(ended["state"], "SUCCEEDED",
                         c.logs(job, "--stderr"))
        # Which it says once all ranks have the same parameters.
        self.assertIn("2 ranks over gloo on cpu", c.logs(job))


if __name__ == "__main__":
    cluster.main()
