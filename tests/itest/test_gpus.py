"""GPUs by NVML: found, watched, fenced, and offered again when they are free.

The worker opens a library that is NVML to it and does as a file says
(worker/testing/fake_nvml.cc); everything else is as on a machine with GPUs.
"""

import os
import pathlib
import re
import signal

import cluster

LIBRARY = cluster.BIN.parent / "lib" / "libcohort_fake_nvml.so"

TWO = """\
0 uuid aa
0 name NVIDIA H100 80GB HBM3
0 pci 00000000:3B:00.0
0 memory 85899345920
0 used 1048576
0 reserved 524288000
0 temperature 40
0 power 100500
0 utilization 3
0 peer 00000000:5E:00.0
1 uuid bb
1 name NVIDIA H100 80GB HBM3
1 pci 00000000:5E:00.0
1 memory 85899345920
"""


class Gpus(cluster.ClusterTest):

    def script(self, more=""):
        """What the GPUs are from now on."""
        path = self.sandbox.dir / "nvml"
        new = self.sandbox.dir / "nvml.new"
        new.write_text(TWO + more)
        new.rename(path)
        return path

    def gpu_cluster(self, *flags, more=""):
        if not LIBRARY.exists():
            self.skipTest(f"no {LIBRARY}: built with the tests")
        os.environ["COHORT_FAKE_NVML"] = str(self.script(more))
        self.addCleanup(os.environ.pop, "COHORT_FAKE_NVML")
        c = cluster.Cluster(self.sandbox)
        c.start_head()
        self.start(c, *flags)
        return c

    def start(self, c, *flags):
        c.start_worker("w0", "--num-cpus", "4", "--nvml-library", str(LIBRARY),
                       *flags)

    def gpu(self, c, index):
        return c.json("gpus", "list")[index]

    def await_gpu(self, c, index, state, *words):
        def reached():
            now = self.gpu(c, index)
            ok = now["state"] == state and all(
                word in (now["reason"] or "") for word in words)
            return now if ok else None
        return cluster.until(f"GPU {index} is {state}: {words}", reached)

    def kinds(self, c):
        return [event["kind"] for event in
                c.json("nodes", "get", "w0")["history"]]

    def gpu_job(self, c, *command, gpus="1", flags=()):
        return c.submit("--gpus", gpus, *flags, "--", *command)

    def test_gpus_are_shown_with_what_they_say_and_who_holds_them(self):
        c = self.gpu_cluster()
        first = self.gpu(c, 0)
        self.assertEqual(
            (first["id"], first["node"], first["model"], first["state"],
             first["pci_bus_id"], first["nvlink_peers"]),
            ("GPU-aa", "w0", "NVIDIA H100 80GB HBM3", "HEALTHY",
             "00000000:3b:00.0", ["GPU-bb"]))
        sampled = cluster.until("a sample", lambda: self.gpu(c, 0)["sample"])
        self.assertEqual((sampled["temperature_celsius"],
                          sampled["power_milliwatts"],
                          sampled["memory_used_bytes"],
                          sampled["memory_reserved_bytes"],
                          sampled["ecc_volatile"]),
                         (40, 100500, 1 << 20, 500 << 20, None))
        job = self.gpu_job(c, "sleep", "1000", gpus="0.5")
        c.await_state(job, "RUNNING")
        held = [gpu for gpu in c.json("gpus") if gpu["holders"]]
        self.assertEqual(len(held), 1)
        holder = held[0]["holders"][0]
        self.assertEqual((holder["job"], holder["share"], holder["ranks"]),
                         (job, 0.5, [0]))
        table = c.run("gpus").stdout
        for words in ("GPU-aa", "GPU-bb", "HEALTHY", "40C", "100W", job):
            self.assertIn(words, table)
        one = c.run("gpus", "get", "GPU-a")
        self.assertEqual(one.returncode, 0)
        self.assertIn("NVLink to:    GPU-bb\n", one.stdout)
        self.assertEqual(c.json("gpus", "get", "GPU-aa")["id"], "GPU-aa")
        self.assert_fails(c.run("gpus", "get", "GPU-"), 2, "2 GPUs")
        self.assert_fails(c.run("gpus", "get", "GPU-x"), 125, "no GPU GPU-x")
        node = c.run("nodes", "get", "w0").stdout
        self.assertIn("HEALTHY; held by " + job, node)

    def test_a_sick_gpu_is_fenced_with_its_reason_and_used_again(self):
        c = self.gpu_cluster()
        self.script("0 ecc_volatile 2\n")
        fenced = self.await_gpu(c, 0, "FENCED", "GPU-aa", "2 uncorrectable")
        running = self.gpu_job(c, "sleep", "1000")
        c.await_state(running, "RUNNING")
        self.assertEqual(c.job(running)["ranks"][0]["gpu_ids"], ["GPU-bb"])
        waiting = self.gpu_job(c, "true")
        self.assertEqual(c.job(waiting)["state"], "PENDING")
        explained = c.run("explain", waiting).stdout
        self.assertIn("FENCED: GPU GPU-aa: 2 uncorrectable", explained)
        self.assertIn(fenced["reason"], c.run("gpus").stdout)
        self.assertIn(fenced["reason"], c.run("nodes", "get", "w0").stdout)
        # A head that starts again knows it, and does not tell it again.
        c.kill_head()
        c.start_head()
        self.await_gpu(c, 0, "FENCED", "2 uncorrectable")
        cluster.until("the node is back", lambda: c.json(
            "nodes", "get", "w0")["state"] == "ALIVE")
        self.assertEqual(c.job(waiting)["state"], "PENDING")
        self.assertEqual(self.kinds(c).count("device_fenced"), 1)
        self.script()
        self.assertEqual(c.await_end(waiting)["state"], "SUCCEEDED")
        self.assertIn("device_healthy", self.kinds(c))

    def test_a_gpu_that_falls_off_the_bus_ends_its_rank_as_infra(self):
        c = self.gpu_cluster()
        job = self.gpu_job(c, "sleep", "1000", flags=("--max-failures", "0"))
        other = self.gpu_job(c, "sleep", "1000")
        c.await_state(job, "RUNNING")
        c.await_state(other, "RUNNING")
        gpu = c.job(job)["ranks"][0]["gpu_ids"][0]
        index = 0 if gpu == "GPU-aa" else 1
        self.script(f"xid {index} 79\n")
        self.await_gpu(c, index, "FENCED", "Xid 79")
        def again():
            now = c.job(job)
            return now if now["state"] == "PENDING" else None
        ended = cluster.until("it waits again", again)
        self.assertEqual((ended["failures"], ended["class"]), (0, "infra"))
        self.assertIn(f"GPU {gpu}: Xid 79 (GPU has fallen off the bus)",
                      ended["causes"][0])
        self.assertEqual(c.job(other)["state"], "RUNNING")
        metrics = c.metrics()
        self.assertRegex(metrics, r'DCGM_FI_DEV_XID_ERRORS\{[^}]*UUID="'
                         + gpu + r'"[^}]*\} 79')
        self.assertRegex(metrics, r'DCGM_FI_DEV_GPU_UTIL\{gpu="0",'
                         r'UUID="GPU-aa",pci_bus_id="00000000:3B:00.0",'
                         r'device="nvidia0",modelName="NVIDIA H100 80GB HBM3",'
                         r'Hostname="w0"[^}]*\} 3')
        self.assertIn('cohort_gpus{state="fenced"} 1\n', metrics)

    def test_a_gpu_is_offered_again_once_its_memory_is_free(self):
        c = self.gpu_cluster("--num-gpus", "1")
        job = self.gpu_job(c, "sleep", "1000")
        c.await_state(job, "RUNNING")
        # Beyond the reach of what ends the job.
        stale = self.sandbox.spawn(["sleep", "1000"], "stale.log")
        self.script(f"0 pid {stale.pid}:4096\n")
        self.assertEqual(c.run("jobs", "stop", job).returncode, 0)
        waiting = self.gpu_job(c, "true")
        c.await_state(job, "STOPPED", deadline=60)
        now = self.await_gpu(c, 0, "FENCED",
                             f"process {stale.pid} (sleep) with 4KiB")
        self.assertEqual(now["holders"], [])
        self.assertEqual(c.job(waiting)["state"], "PENDING")
        stale.send_signal(signal.SIGKILL)
        stale.wait()
        self.script()
        self.assertEqual(c.await_end(waiting)["state"], "SUCCEEDED")

    def test_a_worker_that_starts_looks_for_what_ended_attempts_left(self):
        c = self.gpu_cluster()
        stale = self.sandbox.spawn(
            ["env", "COHORT_KEEPER_PROCESS=" + "ab" * 16 + ".0.1", "sleep", "1000"],
            "stale.log")
        c.kill_worker("w0")
        self.script(f"0 pid {stale.pid}:4096\n")
        self.start(c)
        self.await_gpu(c, 0, "FENCED", f"process {stale.pid} (sleep)",
                       "after the end of process " + "ab" * 16 + ".0.1")
        self.script()
        self.await_gpu(c, 0, "HEALTHY")

    def test_a_worker_that_starts_sees_the_dying_who_say_nothing(self):
        c = self.gpu_cluster()
        c.kill_worker("w0")
        # As one that hangs in the driver on its way out: no environment is left.
        dying = self.sandbox.spawn(["true"], "stale.log")
        cluster.until("it is dead", lambda: not cluster.alive(dying.pid))
        self.script(f"0 pid {dying.pid}:4096\n")
        self.start(c)
        self.await_gpu(c, 0, "FENCED", f"process {dying.pid} (true) with 4KiB")
        dying.wait()
        self.script()
        self.await_gpu(c, 0, "HEALTHY")

    def test_a_gpu_that_is_gone_when_its_worker_starts_ends_its_rank(self):
        c = self.gpu_cluster("--num-gpus", "2")
        job = self.gpu_job(c, "sleep", "1000", flags=("--max-failures", "0"))
        c.await_state(job, "RUNNING")
        gpu = c.job(job)["ranks"][0]["gpu_ids"][0]
        index = 0 if gpu == "GPU-aa" else 1
        c.kill_worker("w0")
        self.script(f"{index} no_handle 1\n")
        self.start(c, "--num-gpus", "2")
        def again():
            now = c.job(job)
            there = [rank["gpu_ids"] for rank in now["ranks"]]
            return now if (now["state"] == "RUNNING"
                           and there not in ([], [[gpu]])) else None
        moved = cluster.until("it runs on the other", again)
        self.assertIn(f"GPU {gpu}: it is not there any more",
                      moved["causes"][0])
        self.assertEqual((moved["failures"], moved["class"]), (0, "infra"))
        self.assertEqual([each["id"] for each in c.json("gpus")
                          if each["id"] == gpu], [])

    def test_a_driver_that_hangs_keeps_nobody_waiting(self):
        c = self.gpu_cluster()
        fifo = self.sandbox.dir / "fifo"
        os.mkfifo(fifo)
        self.script(f"hang {fifo}\n")
        self.await_gpu(c, 0, "SUSPECT", "has not answered")
        c.await_end(c.submit("--", "true"))
        # The daemon ends all the same, and goes on with the next one.
        c.workers["w0"].send_signal(signal.SIGTERM)
        self.assertEqual(c.workers["w0"].wait(timeout=20), 0)

    def test_a_driver_that_hangs_from_the_beginning_is_said(self):
        fifo = self.sandbox.dir / "fifo"
        os.mkfifo(fifo)
        c = self.gpu_cluster()
        c.kill_worker("w0")
        self.script(f"hang {fifo}\n")
        worker = self.sandbox.spawn(
            [cluster.BIN / "cohort-worker", "--address", c.address,
             "--credential-file", c.credential, "--nvml-library", LIBRARY,
             "--state-dir", self.sandbox.dir / "w0"], "w.log")
        self.assertEqual(worker.wait(timeout=60), 125)
        said = (self.sandbox.dir / "w.log").read_text()
        self.assertIn("has not answered for 30s", said)
        self.assertIn("--num-gpus 0", said)

    def test_ranks_run_near_their_gpus(self):
        node = pathlib.Path("/sys/devices/system/node/node0/cpulist")
        if not node.exists():
            self.skipTest("no NUMA node 0")
        near = self.numbers(node.read_text()) & os.sched_getaffinity(0)
        show = ("sh", "-c", "grep Cpus_allowed_list /proc/self/status")
        c = self.gpu_cluster(more="0 numa 0\n1 numa 0\n")
        self.assertEqual(self.gpu(c, 0)["numa_node"], 0)
        job = self.gpu_job(c, *show)
        c.await_end(job)
        shown = re.search(r"list:\s*(\S+)", c.logs(job)).group(1)
        self.assertEqual(self.numbers(shown), near or os.sched_getaffinity(0))

    @staticmethod
    def numbers(cpus):
        """Of "0-3,8"."""
        ends = [part.split("-") for part in cpus.strip().split(",")]
        return {cpu for part in ends
                for cpu in range(int(part[0]), int(part[-1]) + 1)}

    def test_a_preflight_fails_where_the_granted_gpus_cannot_be_used(self):
        # NVML shows them, and the driver has no such GPUs or is not there.
        c = self.gpu_cluster()
        for workers in (1, 2):
            job = c.submit("--preflight", "--gpus", "1", "--max-failures", "0",
                           "--num-workers", str(workers), "--",
                           "sh", "-c", "echo the command ran")
            ended = c.await_end(job)
            self.assertEqual((ended["state"], ended["class"]),
                             ("FAILED", "infra"), ended)
            self.assertEqual(c.logs(job), "")
            told = ended["preflight"]
            self.assertEqual(told["verdict"], "failed")
            self.assertIn("rank 0 on ", told["summary"])
            self.assertIn("cannot use its GPU: ", told["summary"])
            self.assertIn("driver", told["summary"])
            self.assertEqual(told["report"]["failed_ranks"],
                             list(range(workers)))

    def test_a_library_that_is_not_there_is_said(self):
        c = cluster.Cluster(self.sandbox)
        c.start_head()
        worker = self.sandbox.spawn(
            [cluster.BIN / "cohort-worker", "--address", c.address,
             "--credential-file", c.credential, "--nvml-library",
             "/no/such/nvml.so"], "w.log")
        self.assertEqual(worker.wait(timeout=20), 125)
        self.assertIn("/no/such/nvml.so",
                      (self.sandbox.dir / "w.log").read_text())


class DebiansFakeLibrary(cluster.ClusterTest):
    """Another hand's NVML, of the package pcp-testsuite."""

    INSTALLED = pathlib.Path("/var/lib/pcp/testsuite/src/libnvidia-ml.so")
    TAKEN = cluster.SOURCE / "build/pcp-testsuite"  # by tools/setup.sh

    def test_its_gpus_are_offered_watched_and_given(self):
        library = self.INSTALLED
        if not library.exists():
            library = self.TAKEN / "libnvidia-ml.so"
            os.environ["LD_LIBRARY_PATH"] = str(self.TAKEN)
            self.addCleanup(os.environ.pop, "LD_LIBRARY_PATH")
        if not library.exists():
            self.skipTest(f"no {library}: see tools/setup.sh")
        c = cluster.Cluster(self.sandbox)
        c.start_head()
        c.start_worker("w0", "--num-cpus", "4", "--nvml-library", str(library))
        gpus = c.json("gpus", "list")
        self.assertEqual([(gpu["id"], gpu["state"]) for gpu in gpus],
                         [("0", "HEALTHY"), ("1", "HEALTHY")])
        sampled = cluster.until(
            "a sample", lambda: c.json("gpus", "list")[0]["sample"])
        self.assertGreater(sampled["temperature_celsius"], 0)
        job = c.submit("--gpus", "2", "--", "sh", "-c",
                       "echo sees $CUDA_VISIBLE_DEVICES")
        self.assertEqual(c.await_end(job)["state"], "SUCCEEDED")
        self.assertIn("sees 0,1", c.logs(job))
        self.assertEqual({gpu["state"] for gpu in c.json("gpus", "list")},
                         {"HEALTHY"})


if __name__ == "__main__":
    cluster.main()
