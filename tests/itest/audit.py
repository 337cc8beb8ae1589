#!/usr/bin/env python3
"""Kills the head at random moments under load, then audits from outside.

Clients submit with request ids of their own and write down what they asked
for, before they ask, and what they were told, once they are; they ask again,
with the same id, until they have an answer, and now and then after it.  They
stop some jobs.  Meanwhile the head is killed (-9) --count times, also while it
starts, workers are killed and restarted or stopped for a while (longer than
their lease), keepers and ranks are killed.  Ranks note each of their starts and
ends, and take a kernel lock on every GPU that they were given.

Then, and at quiet moments before, the books are compared:

  lost     a job that was acknowledged and is not there, or did not run
  doubled  one request with two jobs, a rank started twice in one attempt, two
           attempts that ran to their end, two processes on one GPU
  leaked   a process or a directory of a job that has ended, a resource that
           nobody has and that is not offered, a GPU that a process has and the
           head does not know of

  audit.py [--count N] [--seed S] [--clients N] [--workers N]

The seed chooses what is done; when things happen is up to the machine.
"""

import argparse
import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import cluster

LEASE = 1.0  # --node-timeout
BACKLOG = 12  # jobs: so many wait on when a rest ends
GPUS = 2
CPUS = 4
# What a client waits for an answer: `cohort` itself goes on trying for long.
TIMEOUT = 120
RANK = r"""
d=$AUDIT/attempts/$COHORT_JOB_ID
mkdir -p "$d"
mkdir "$d/start.$COHORT_ATTEMPT.$COHORT_ATTEMPT_ID.$RANK" 2>/dev/null ||
  echo "rank $RANK of $COHORT_JOB_ID started twice in attempt" \
    "$COHORT_ATTEMPT" >>"$AUDIT/violations"
fd=5
for gpu in $(echo "$COHORT_GPU_IDS" | tr , ' '); do
  eval "exec $fd>\"\$AUDIT/locks/\$gpu\""
  flock -n "$fd" ||
    echo "$gpu was given to rank $RANK of $COHORT_JOB_ID and is in use" \
      >>"$AUDIT/violations"
  fd=$((fd + 1))
done
sleep "$1"
[ "$COHORT_ATTEMPT" -gt "$2" ] || exit 7
mkdir "$d/end.$COHORT_ATTEMPT.$RANK"
"""


class Client(threading.Thread):
    """Submits, asks again, stops; its ledger is a file."""

    def __init__(self, c, name, seed, books):
        super().__init__(name=name, daemon=True)
        self.cluster = c
        self.rng = random.Random(seed)
        self.books = books
        self.ledger = c.sandbox.dir / f"{name}.ledger"
        self.asked = {}    # request id -> what was asked for
        self.told = {}     # request id -> job
        self.stopped = set()
        self.error = None
        self.calm = threading.Event()   # set: nothing new, please
        self.idle = threading.Event()   # set: nothing is under way
        self.ended = threading.Event()

    def note(self, *words):
        with open(self.ledger, "a", encoding="utf-8") as out:
            out.write(" ".join(map(str, words)) + "\n")
            out.flush()
            os.fsync(out.fileno())

    def run(self):
        try:
            number = 0
            while not self.ended.is_set():
                if self.calm.is_set():
                    self.idle.set()
                    time.sleep(0.02)
                    continue
                self.idle.clear()
                number += 1
                self.one(f"{self.name}-{number}")
                time.sleep(self.rng.uniform(0.05, 0.6))
        except Exception as error:  # pylint: disable=broad-except
            self.error = error
        self.idle.set()

    def one(self, request):
        """A job, or a second look at an earlier one."""
        dice = self.rng.random()
        if self.told and dice < 0.12:
            self.submit(self.rng.choice(sorted(self.told)))
        elif self.told and dice < 0.27:
            self.stop(self.rng.choice(sorted(self.told)[-4:]))
        else:
            self.asked[request] = self.random_job()
            self.submit(request)

    def random_job(self):
        ranks = self.rng.randint(1, 3)
        fails = self.rng.choice([0, 0, 0, 0, 1])
        flags = ["--num-workers", ranks, "--cpus", self.rng.choice([0.5, 1]),
                 "--gpus", self.rng.choice([0, 1, 1]), "--max-failures", -1,
                 "--strategy", self.rng.choice(["PACK", "SPREAD"])]
        command = ["sh", "-c", RANK, "rank",
                   f"{self.rng.uniform(0.05, 2.5):.2f}", fails]
        if self.books.mnist and self.rng.random() < 0.1:
            flags = ["--num-workers", 2, "--max-failures", -1,
                     "--storage-path", self.cluster.sandbox.dir / "results"]
            command = [cluster.BIN / "mnist", "--data", cluster.MNIST_DATA,
                       "--epochs", 1, "--train-samples", 2560,
                       "--test-samples", 64, "--checkpoint-every", 5]
            ranks = 0  # it writes no notes
        return {"ranks": ranks, "argv": [*flags, "--", *command]}

    def submit(self, request):
        self.note("ask", request)
        job = self.insist("submit", "--request-id", request, "--name", request,
                          "--env", f"AUDIT={self.books.dir}",
                          *self.asked[request]["argv"])
        self.note("told", request, job)
        if self.told.setdefault(request, job) != job:
            self.books.wrong("doubled", f"{request} is {self.told[request]} "
                             f"and {job}")

    def stop(self, request):
        self.stopped.add(request)
        self.note("stop", request, self.told[request])
        self.insist("jobs", "stop", self.told[request])

    def insist(self, *args):
        """Runs a command until it succeeds; gives its first line."""
        end = time.monotonic() + TIMEOUT
        while True:
            done = self.cluster.run(*args)
            if done.returncode == 0:
                return (done.stdout.splitlines() or [""])[0]
            if time.monotonic() > end:
                raise cluster.Gone(f"{args[:4]}: {done.returncode}: "
                                   f"{done.stderr}")
            time.sleep(0.05)


class Books:
    """What is held against what, and what was found wrong."""

    def __init__(self, sandbox):
        self.dir = sandbox.dir / "audit"
        self.mnist = (cluster.BIN / "mnist").exists()
        self.found = []
        for part in ("attempts", "locks"):
            (self.dir / part).mkdir(parents=True)

    def wrong(self, kind, what):
        print(f"{kind}: {what}", flush=True)
        self.found.append(kind)

    def read_violations(self):
        path = self.dir / "violations"
        if path.exists():
            for line in path.read_text().splitlines():
                self.wrong("doubled", line)
            path.unlink()

    def rank_processes(self):
        """pid -> environment, of all that live."""
        found = {}
        for pid in cluster.descendants():
            env = cluster.environment_of(pid)
            if "COHORT_ATTEMPT_ID" in env and "RANK" in env:
                found[pid] = env
        return found

    def devices_in_use(self, processes):
        """GPU -> the ranks whose processes have it."""
        users = {}
        for env in processes.values():
            for gpu in env.get("COHORT_GPU_IDS", "").split(","):
                if gpu:
                    users.setdefault(gpu, set()).add(
                        (env["COHORT_ATTEMPT_ID"], env["RANK"]))
        return users


class Audit:
    """The cluster, those who break it, and those who use it."""

    def __init__(self, options, sandbox):
        self.rng = random.Random(options.seed)
        self.options = options
        self.sandbox = sandbox
        self.books = Books(sandbox)
        self.cluster = cluster.Cluster(sandbox, node_timeout=f"{LEASE:g}s")
        self.cluster.start_head()
        for index in range(options.workers):
            self.cluster.start_worker(
                f"w{index}", "--num-cpus", CPUS, "--simulate-gpus", GPUS)
        self.clients = [
            Client(self.cluster, f"client-{index}", self.rng.random(),
                   self.books) for index in range(options.clients)]
        self.back_at = {}    # worker -> when it is to be started again
        self.resume_at = {}  # worker -> when it is to be continued
        self.counts = {}

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    # ---- faults ----

    def round(self):
        """The head lives for a while, under churn, and dies."""
        end = time.monotonic() + self.rng.choice(
            [self.rng.uniform(0, 0.1), self.rng.uniform(0.1, 1.8)])
        while time.monotonic() < end:
            self.tend_workers()
            if self.rng.random() < 0.04:
                self.churn()
            time.sleep(0.02)
        self.cluster.kill_head()
        self.count("head kills")
        if self.rng.random() < 0.25:
            # Dead again before it serves.
            self.cluster.start_head(wait=False)
            time.sleep(self.rng.uniform(0, 0.15))
            self.cluster.kill_head()
            self.count("head kills at its start")
        self.cluster.start_head()

    def churn(self):
        name = self.rng.choice(sorted(self.cluster.workers))
        dice = self.rng.random()
        if name in self.back_at or name in self.resume_at:
            return
        if dice < 0.35:
            self.cluster.kill_worker(name)
            self.back_at[name] = time.monotonic() + self.rng.choice(
                [0, self.rng.uniform(0, 3 * LEASE)])
            self.count("worker kills")
        elif dice < 0.55:
            self.cluster.workers[name].send_signal(signal.SIGSTOP)
            self.resume_at[name] = (time.monotonic() +
                                    self.rng.uniform(0.2, 3 * LEASE))
            self.count("worker pauses")
        elif dice < 0.7:
            self.kill_one("keeper kills", sorted(self.cluster.keepers()))
        else:
            self.kill_one("rank kills", sorted(self.books.rank_processes()))

    def kill_one(self, what, pids):
        if pids:
            with contextlib.suppress(OSError):
                os.kill(self.rng.choice(pids), signal.SIGKILL)
                self.count(what)

    def tend_workers(self, all_of_them=False):
        now = time.monotonic()
        for name, when in sorted(self.back_at.items()):
            if all_of_them or when <= now:
                del self.back_at[name]
                self.cluster.start_worker(name, wait=all_of_them)
        for name, when in sorted(self.resume_at.items()):
            if all_of_them or when <= now:
                del self.resume_at[name]
                self.cluster.workers[name].send_signal(signal.SIGCONT)

    # ---- audits ----

    def rest(self):
        """Nobody asks for anything new, and all daemons are there."""
        for client in self.clients:
            client.calm.set()
        self.tend_workers(all_of_them=True)
        for client in self.clients:
            cluster.until(f"{client.name} has its answer", client.idle.is_set,
                          2 * TIMEOUT)
            if client.error:
                raise client.error
        cluster.until("all nodes are alive", lambda: all(
            node["state"] == "ALIVE" for node in self.cluster.json("nodes")))

    def go_on(self):
        for client in self.clients:
            client.idle.clear()
            client.calm.clear()

    def audit_devices(self):
        """Processes and what they hold against what the head knows."""
        self.books.read_violations()
        mismatch = []

        def agree():
            mismatch[:] = self.compare_devices()
            return not mismatch
        with contextlib.suppress(AssertionError):
            cluster.until("the books agree", agree, 30)
        for what in mismatch:
            self.books.wrong("leaked", what)

    def compare_devices(self):
        processes = self.books.rank_processes()
        for gpu, users in self.books.devices_in_use(processes).items():
            if len(users) > 1:
                return [f"{gpu} is used by {sorted(users)}"]
        found = []
        jobs = {}
        for job in {env["COHORT_JOB_ID"] for env in processes.values()}:
            with contextlib.suppress(cluster.Gone):
                jobs[job] = self.cluster.job(job)
        still = self.books.rank_processes()
        for pid, env in processes.items():
            if pid not in still:
                continue  # it ended meanwhile
            job = jobs.get(env["COHORT_JOB_ID"])
            rank = int(env["RANK"])
            if job is None or job["state"] in ("SUCCEEDED", "FAILED",
                                               "STOPPED", "PENDING"):
                found.append(f"process {pid} is of rank {rank} of "
                             f"{env['COHORT_JOB_ID']}, which is "
                             f"{job and job['state']}")
            elif str(job["attempt"]) != env["COHORT_ATTEMPT"]:
                found.append(f"process {pid} is of attempt "
                             f"{env['COHORT_ATTEMPT']}, not {job['attempt']}")
            elif ",".join(job["ranks"][rank]["gpu_ids"]) != env[
                    "COHORT_GPU_IDS"]:
                found.append(f"process {pid} has {env['COHORT_GPU_IDS']}"
                             f", said to hold {job['ranks'][rank]}")
        return found

    def await_ends(self, left):
        """Until no more than `left` jobs have not ended, while some end."""
        def open_jobs():
            return sum(job["state"] not in ("SUCCEEDED", "FAILED", "STOPPED")
                       for job in self.cluster.json("jobs", "list"))
        now = open_jobs()
        while now > left:
            try:
                cluster.until("a job ends", lambda: open_jobs() < now,
                              TIMEOUT)
            except AssertionError:
                self.books.wrong("lost", f"none of {now} jobs ends")
                return
            now = open_jobs()

    def audit_jobs(self):
        """The clients' ledgers against the head's list."""
        listed = self.cluster.json("jobs", "list")
        by_name = {}
        for job in listed:
            by_name.setdefault(job["name"], []).append(job)
        asked = {}
        for client in self.clients:
            asked.update(client.asked)
            for request, job in client.told.items():
                there = [each["id"] for each in by_name.get(request, [])]
                if job not in there:
                    self.books.wrong("lost", f"{request}, which is {job}")
        for name, jobs in by_name.items():
            if len(jobs) > 1:
                self.books.wrong("doubled", f"{name}: {jobs}")
            if name not in asked:
                self.books.wrong("doubled", f"nobody asked for {name}")
        stopped = set().union(*(client.stopped for client in self.clients))
        for job in listed:
            self.audit_job(job, asked.get(job["name"]), job["name"] in stopped)
        return len(listed)

    def audit_job(self, job, asked, was_stopped):
        self.count(job["state"])
        if job["state"] not in ("SUCCEEDED", "STOPPED"):
            return self.books.wrong("lost", f"it did not run: {job}")
        if job["state"] == "STOPPED" and not was_stopped:
            return self.books.wrong("lost", f"nobody stopped it: {job}")
        if not asked or not asked["ranks"]:
            return None
        notes = self.books.dir / "attempts" / job["id"]
        ends = [path.name.split(".")[1:] for path in notes.glob("end.*")]
        whole = {attempt for attempt, _ in ends
                 if sum(each == attempt for each, _ in ends) == asked["ranks"]}
        if job["state"] == "SUCCEEDED" and str(job["attempt"]) not in whole:
            self.books.wrong("lost", f"it says that it ran: {job}, {ends}")
        if len(whole) > 1:
            # A rank that finished and could not say so any more (its machine's
            # daemon was gone for a lease) runs again; twice it cannot finish
            # in an attempt that the head took for finished.
            self.count("ran again after they had ended unheard")
            if str(job["attempt"]) != max(whole, key=int):
                self.books.wrong("doubled", f"{job} ran on after its success")
        return None

    def audit_leaks(self):
        """Nothing is left of jobs that have ended."""
        def nothing_held():
            resources = self.cluster.json("resources")
            return resources["available"] == resources["total"]

        def no_attempts():
            return not [path for worker in self.cluster.workers
                        for path in (self.sandbox.dir / worker / "keepers")
                        .glob("*")]

        def no_runtime():
            return not [path for path in self.runtime_directories()
                        if any(each.is_dir() for each in path.iterdir())]
        for what, condition in [
                ("a resource is not offered", nothing_held),
                ("a process lives", lambda: not self.books.rank_processes()
                 and not self.cluster.keepers()),
                ("a worker keeps an attempt", no_attempts),
                ("a runtime directory is left", no_runtime)]:
            try:
                cluster.until(what, condition, 30)
            except AssertionError:
                self.books.wrong("leaked", what)

    def runtime_directories(self):
        for node in self.sandbox.dir.glob("*/node_id"):
            yield from pathlib.Path("/dev/shm").glob(
                f"cohort-{node.read_text().strip()[:12]}*")

    def run(self):
        for client in self.clients:
            client.start()
        for number in range(self.options.count):
            self.round()
            if number % 20 == 19:
                print(f"{number + 1} kills", flush=True)
                self.rest()
                self.audit_devices()
                self.await_ends(left=BACKLOG)
                self.go_on()
        self.rest()
        for client in self.clients:
            client.ended.set()
            client.join()

        self.audit_devices()
        self.await_ends(left=0)
        self.books.read_violations()
        jobs = self.audit_jobs()
        self.audit_leaks()
        self.report(jobs)

    def report(self, jobs):
        told = sum(len(client.told) for client in self.clients)
        print(f"{told} jobs acknowledged, {jobs} there: " + ", ".join(
            f"{times} {what}" for what, times in sorted(self.counts.items())))
        kinds = {kind: self.books.found.count(kind)
                 for kind in ("lost", "doubled", "leaked")}
        print(f"audit: {'FAILED' if self.books.found else 'ok'}, "
              + ", ".join(f"{n} {kind}" for kind, n in kinds.items()))
        if self.books.found:
            raise AssertionError("the books do not agree")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int,
                        default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    sandbox = cluster.Sandbox()
    failed = True
    try:
        Audit(options, sandbox).run()
        failed = False
    except subprocess.TimeoutExpired as error:
        print(f"audit: FAILED: {error}")
        sys.exit(1)
    finally:
        if failed:
            sandbox.show_logs()
        sandbox.close()


if __name__ == "__main__":
    main()
