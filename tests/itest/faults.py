#!/usr/bin/env python3
"""Kills parts of a cluster under a small training, at random moments.

Each training must still end SUCCEEDED with the very bytes of model.safetensors
that an undisturbed one with the same seed writes.  A round is one fault:

  head      kill -9, started again on its port and state: nobody notices
  worker    kill -9 of the daemon, started again: the ranks go on, as they were
  keeper    kill -9: a new attempt that is charged to nobody (infra)
  rank      kill -9: a new attempt, charged once
  pause     SIGSTOP of the head for three leases: no node dies
  stranger  a head on an empty state directory at the same port, with the
            cluster's credential or its own: nothing is killed, and the right
            head finds all as it was

  faults.py [--count N] [--seed S] [--full] [--only KIND,...]

--full: one training of 3 epochs on all of MNIST through each fault, to 98 %.
The seed is printed; it gives the same faults at the same steps again.
"""

import argparse
import contextlib
import hashlib
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import time

import cluster

EPOCHS = 2
STEPS = 120
SAMPLES = STEPS // EPOCHS * 2 * 64
FAULTS_A_TRAINING = 5
# --node-timeout: longer than a worker takes to try again behind a stranger, which
# is a second, and its channel about another.
LEASE = 3.0
FREE_INFRA_RESTARTS = 3


class Wrong(AssertionError):
    """The product did what it must not."""


class Ended(Exception):
    """The training was done before the fault: its end is checked as any."""


def send(pid, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def check(condition, what):
    if not condition:
        raise Wrong(what)


class Training:
    """One job, and what should have become of it by now."""

    def __init__(self, c, results, flags, steps):
        self.cluster = c
        self.steps = steps
        self.attempt = 1
        self.failures = 0
        self.infra = 0
        self.id = c.submit(
            "--num-workers", "2", "--max-failures", "100", "--storage-path",
            results, "--", cluster.BIN / "mnist", "--data", cluster.MNIST_DATA,
            *flags)

    def now(self):
        return self.cluster.job(self.id)

    def reaches(self, step):
        """Waits until it is at `step`; False when it has ended before."""
        def there():
            job = self.now()
            if job["state"] in ("SUCCEEDED", "FAILED", "STOPPED"):
                return "ended"
            at = (job["metrics"] or {}).get("step", 0)
            return job["state"] == "RUNNING" and at >= step and "there"
        return cluster.until(f"step {step}", there, 300) == "there"

    @contextlib.contextmanager
    def held(self):
        """Gives the pids of both ranks, which are stopped meanwhile: the
        training cannot end by itself.  Raises Ended when it has before."""
        pids = self.cluster.rank_pids(self.id)
        try:
            for pid in pids.values():
                send(pid, signal.SIGSTOP)
            if len(pids) < 2 or not all(map(cluster.alive, pids.values())):
                raise Ended
            yield pids
        finally:
            for pid in pids.values():
                send(pid, signal.SIGCONT)

    def goes_on(self, pids):
        """The same attempt, the same processes, and news of it arrives."""
        job = self.now()
        check(job["attempt"] == self.attempt, f"the same attempt: {job}")
        check(job["failures"] == self.failures, f"no charge: {job}")
        if job["state"] == "SUCCEEDED":
            return
        check(job["state"] == "RUNNING", f"it runs: {job}")
        for rank in job["ranks"]:
            check(rank["pid"] == pids[rank["rank"]], f"same pids: {job}")

    def starts_again(self, charged):
        self.attempt += 1
        if not charged:
            self.infra += 1
            charged = self.infra > FREE_INFRA_RESTARTS
        self.failures += charged
        job = cluster.until(
            f"attempt {self.attempt} runs",
            lambda: (lambda job: job["attempt"] >= self.attempt and
                     job["state"] in ("RUNNING", "SUCCEEDED", "FAILED") and
                     job)(self.now()))
        check(job["attempt"] == self.attempt, f"one new attempt: {job}")
        check(job["failures"] == self.failures,
              f"charged {self.failures} times: {job}")

    def finish(self):
        job = self.cluster.await_end(self.id, deadline=1800)
        check(job["state"] == "SUCCEEDED", f"it succeeds: {job}\n" +
              self.cluster.logs(self.id, "--stderr"))
        check(job["attempt"] == self.attempt, f"attempt: {job}")
        check(job["failures"] == self.failures, f"failures: {job}")
        check(job["checkpoint"]["step"] == self.steps, f"all steps: {job}")
        return pathlib.Path(job["checkpoint"]["path"])


class Faults:
    """Each breaks something, heals it and checks what came of it."""

    def __init__(self, c, rng):
        self.cluster = c
        self.rng = rng

    def kinds(self):
        return ["head", "worker", "keeper", "rank", "pause", "stranger"]

    def head(self, training):
        before = self._incarnations()
        with training.held() as pids:
            self.cluster.kill_head()
            check(all(map(cluster.alive, pids.values())),
                  "ranks outlive the head")
        self.cluster.start_head()
        self._all_nodes_back(before)
        training.goes_on(pids)

    def worker(self, training):
        name = self.rng.choice(sorted(self.cluster.workers))
        with training.held() as pids:
            self.cluster.kill_worker(name)
            check(all(map(cluster.alive, pids.values())),
                  "ranks outlive workers")
        self.cluster.start_worker(name)
        self._all_nodes_back()
        training.goes_on(pids)

    def keeper(self, training):
        with training.held() as pids:
            keeper = cluster.parent(pids[self.rng.choice([0, 1])])
            check(cluster.program_of(keeper) == "cohort-keeper",
                  "a keeper is the parent of each rank")
            os.kill(keeper, signal.SIGKILL)
        training.starts_again(charged=False)

    def rank(self, training):
        with training.held() as pids:
            os.kill(pids[self.rng.choice([0, 1])], signal.SIGKILL)
        training.starts_again(charged=True)

    def pause(self, training):
        with training.held() as pids:
            self.cluster.head.send_signal(signal.SIGSTOP)
        time.sleep(3 * LEASE)  # this is the fault
        self.cluster.head.send_signal(signal.SIGCONT)
        self._all_nodes_back()
        training.goes_on(pids)

    def stranger(self, training):
        before = self._incarnations()
        with training.held() as pids:
            self.cluster.kill_head()
        sandbox = self.cluster.sandbox.dir
        shutil.rmtree(sandbox / "stranger", ignore_errors=True)
        (sandbox / "stranger").mkdir(mode=0o700)
        if self.rng.random() < 0.5:
            for name in ("credential", "ca.key"):
                shutil.copy(self.cluster.credential.with_name(name),
                            sandbox / "stranger")
        logs = [sandbox / f"{name}.log" for name in self.cluster.workers]
        sizes = [log.stat().st_size for log in logs]
        self.cluster.start_head(state="stranger")
        cluster.until("workers met the stranger", lambda: all(
            log.stat().st_size > size for log, size in zip(logs, sizes)))
        time.sleep(2 * LEASE)  # as long as it may take to do harm
        self.cluster.kill_head()
        self.cluster.start_head()
        self._all_nodes_back(before)
        training.goes_on(pids)

    def _incarnations(self):
        return {node["id"]: node["incarnation"]
                for node in self.cluster.json("nodes")}

    def _all_nodes_back(self, before=None):
        """Both are alive and, if `before` is given, registered again since."""
        def back():
            nodes = self.cluster.json("nodes")
            dead = [node for node in nodes if node["state"] == "DEAD"]
            check(not dead, f"no node dies: {dead}")
            return len(nodes) == 2 and all(
                node["state"] == "ALIVE"
                and node["incarnation"] > (before or {}).get(node["id"], 0)
                for node in nodes)
        cluster.until("both nodes are back", back)


def digest(directory):
    return hashlib.sha256(
        (directory / "model.safetensors").read_bytes()).hexdigest()


def run(options, sandbox):
    rng = random.Random(options.seed)
    c = cluster.Cluster(sandbox, node_timeout=f"{LEASE:g}s")
    c.start_head()
    for name in ("w0", "w1"):
        c.start_worker(name, "--num-cpus", "1")
    faults = Faults(c, rng)
    results = sandbox.dir / "results"
    kinds = options.only or faults.kinds()
    count, steps = options.count, STEPS
    flags = ["--epochs", EPOCHS, "--train-samples", SAMPLES, "--test-samples",
             "256", "--checkpoint-every", "8", "--seed", "3"]
    expected = None
    if options.full:
        count, steps, flags = len(kinds), 3 * 469, ["--checkpoint-every", "50"]
    else:
        expected = digest(Training(c, results, flags, steps).finish())
    waiting, done = [], 0
    while done < count:
        training = Training(c, results, flags, steps)
        some = min(count - done, len(kinds) if options.full
                   else FAULTS_A_TRAINING)
        moments = sorted(rng.randrange(1, int(steps * 0.75))
                         for _ in range(some))
        for moment in moments:
            if not training.reaches(moment):
                break
            if not waiting:
                waiting = rng.sample(kinds, len(kinds))
            kind = waiting.pop()
            print(f"round {done + 1}: {kind} at step {moment} of job "
                  f"{training.id}", flush=True)
            try:
                getattr(faults, kind)(training)
            except Ended:
                waiting.append(kind)
                break
            done += 1
        checkpoint = training.finish()
        if expected:
            check(digest(checkpoint) == expected,
                  f"the same bytes in {checkpoint}")
        else:
            said = re.search(r"test accuracy: ([0-9.]+) %",
                             c.logs(training.id, "--rank", "0"))
            check(said and float(said[1]) >= 98, f"98 %: {said}")
            print(said[0])
        cluster.until("its keepers are gone", lambda: not c.keepers())
    print(f"faults: ok, {done} rounds")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=6)
    parser.add_argument("--seed", type=int,
                        default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", type=lambda text: text.split(","))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    if not (cluster.BIN / "mnist").exists():
        print("skipped: built without LibTorch, no mnist")
        sys.exit(cluster.SKIPPED)
    sandbox = cluster.Sandbox()
    failed = True
    try:
        run(options, sandbox)
        failed = False
    finally:
        if failed:
            sandbox.show_logs()
        sandbox.close()


if __name__ == "__main__":
    main()
