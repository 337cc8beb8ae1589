"""A cluster of real programs for one test, and what tests ask of it.

Programs come from $COHORT_BIN.  Everything lies in one directory under
/var/tmp.  The test's process is the reaper of all that it started, at any
depth, so `Sandbox.close` finds and kills whatever is left.  Nothing sleeps for
a fixed time: `until` polls, with a deadline that only a broken product meets.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("COHORT_BIN", SOURCE / "build/release/bin"))
MNIST_DATA = SOURCE / "data/mnist"
# Generous: the machine may run other things.
DEADLINE = 60.0
SKIPPED = 77  # what ctest takes for skipped

_PR_SET_CHILD_SUBREAPER = 36
_ENDED = ("SUCCEEDED", "FAILED", "STOPPED")


class Gone(Exception):
    """A command of ours ended otherwise than it should."""


def until(what, condition, deadline=DEADLINE):
    """Polls `condition` until it is true; gives its value."""
    end = time.monotonic() + deadline
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline:g} s: {what}")
        time.sleep(0.02)


def alive(pid):
    """Whether the process runs (a zombie does not)."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def _processes():
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            yield int(entry)


def parent(pid):
    """The pid of its parent; 0 when there is no such process."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])


def descendants():
    """All live processes that come from this one."""
    parents = {pid: parent(pid) for pid in _processes()}
    found = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found}
        if more <= found:
            found.discard(os.getpid())
            return {pid for pid in found if alive(pid)}
        found |= more


def environment_of(pid):
    try:
        raw = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in raw.split(b"\0") if item)
    return {key.decode(): value.decode() for key, _, value in pairs}


def program_of(pid):
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""


def _remove_cgroups(runtime):
    """Those that killed keepers of that runtime directory left empty."""
    # Other tests' groups come and go meanwhile, which os.walk passes over.
    for top, _, _ in os.walk("/sys/fs/cgroup", topdown=False):
        if f"-{runtime}" in top:
            with contextlib.suppress(OSError):
                os.rmdir(top)


class Sandbox:
    """A directory, and the processes that were started in it."""

    def __init__(self):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.dir = pathlib.Path(
            tempfile.mkdtemp(prefix="cohort-itest-", dir="/var/tmp"))
        # Where the command keeps what `last` means.
        os.environ["XDG_STATE_HOME"] = str(self.dir / "user")
        self._started = []
        self._mounts = []

    def close(self):
        while True:
            left = descendants()
            if not left:
                break
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self._reap()
            time.sleep(0.02)
        self._reap()
        nodes = [each.read_text().strip() for each in self.dir.rglob("node_id")]
        for mount in self._mounts:
            subprocess.run(["umount", "--lazy", str(mount)], check=False)
        for node in filter(None, nodes):
            for runtime in pathlib.Path("/dev/shm").glob(f"cohort-{node[:12]}*"):
                shutil.rmtree(runtime, ignore_errors=True)
                _remove_cgroups(runtime.name)
        shutil.rmtree(self.dir, ignore_errors=True)

    def _reap(self):
        for process in self._started:
            process.poll()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def spawn(self, argv, log, env=None):
        """Starts a process whose output goes to `log` in the directory."""
        with open(self.dir / log, "ab") as out:
            process = subprocess.Popen(
                [str(arg) for arg in argv], stdin=subprocess.DEVNULL,
                stdout=out, stderr=out, env=env, cwd=self.dir)
        self._started.append(process)
        return process

    def show_logs(self):
        """The end of each daemon's log, for a test that failed."""
        for log in sorted([*self.dir.glob("*.log"),
                           *self.dir.glob("up*/*.log")]):
            text = log.read_text(errors="replace")
            print(f"==== {log.relative_to(self.dir)}\n{text[-4000:]}",
                  file=sys.stderr)

    def tmpfs(self, name, size):
        """Mounts a small tmpfs; None where this process may not."""
        path = self.dir / name
        path.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path],
            capture_output=True, check=False)
        if done.returncode:
            return None
        self.mounted(path)
        return path

    def ext4(self, name, megabytes):
        """As tmpfs, but a disk: a head takes it for its state."""
        image = self.dir / f"{name}.image"
        with image.open("wb") as out:
            out.truncate(megabytes << 20)
        path = self.dir / name
        path.mkdir()
        for command in (["mkfs.ext4", "-q", image],
                        ["mount", "-o", "loop", image, path]):
            try:
                if subprocess.run(command, capture_output=True,
                                  check=False).returncode:
                    return None
            except FileNotFoundError:
                return None
        self.mounted(path)
        return path

    def mounted(self, path):
        """To be unmounted at the end."""
        self._mounts.append(path)

    def unmount(self, path):
        subprocess.run(["umount", path], check=True)
        self._mounts.remove(path)


def secret_of(credential):
    return credential.read_text().splitlines()[0].removeprefix("secret ")


class Client:
    """The `cohort` command with one cluster's address and credential."""

    def __init__(self, address, credential):
        self.address = address
        self.credential = pathlib.Path(credential)

    def token(self):
        """The secret, as HTTP's Authorization has it."""
        return secret_of(self.credential)

    def environment(self):
        # Jobs do not use the venv in which the tests run.
        own = {name: value for name, value in os.environ.items()
               if name not in ("VIRTUAL_ENV", "CONDA_PREFIX")}
        return {**own, "COHORT_ADDRESS": self.address,
                "COHORT_CREDENTIAL_FILE": str(self.credential)}

    def run(self, *args, timeout=DEADLINE * 3, cwd=None):
        """Runs `cohort ARGS`; gives the ended process, whatever its status."""
        return subprocess.run(
            [str(BIN / "cohort"), *(str(arg) for arg in args)],
            env=self.environment(), capture_output=True, text=True,
            timeout=timeout, check=False, stdin=subprocess.DEVNULL, cwd=cwd)

    def popen(self, *args, **kwargs):
        return subprocess.Popen(
            [str(BIN / "cohort"), *(str(arg) for arg in args)],
            env=self.environment(), stdin=subprocess.DEVNULL, **kwargs)

    def json(self, *args):
        done = self.run(*args, "--json")
        if done.returncode:
            raise Gone(f"cohort {args}: {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)

    def metrics(self):
        """What Prometheus reads."""
        request = urllib.request.Request(
            f"http://{self.json('status')['http_address']}/metrics",
            headers={"Authorization": "Bearer " + self.token()})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.read().decode()

    def submit(self, *args):
        done = self.run("submit", *args)
        if done.returncode:
            raise Gone(f"submit {args}: {done.returncode}: {done.stderr}")
        return done.stdout.splitlines()[0]

    def job(self, job):
        return self.json("jobs", "get", job)

    def await_state(self, job, *states, deadline=DEADLINE):
        """The job as it is when it is in one of `states`."""
        def reached():
            with contextlib.suppress(Gone):
                now = self.job(job)
                if now["state"] in states:
                    return now
                if now["state"] in _ENDED:
                    raise AssertionError(
                        f"job ended otherwise than {states}: {now}\n"
                        + self.logs(job, "--stderr"))
            return None
        return until(f"job {job} in {states}", reached, deadline)

    def await_end(self, job, deadline=DEADLINE * 3):
        return self.await_state(job, *_ENDED, deadline=deadline)

    def logs(self, job, *flags):
        """What `cohort logs` prints: without --stderr, standard output only."""
        if "--stderr" not in flags:
            flags = ("--stdout", *flags)
        return self.run("logs", job, *flags).stdout


class Cluster(Client):
    """A head and workers as daemons of the test, each may be killed."""

    def __init__(self, sandbox, node_timeout="1s", disk=None):
        # Where the daemons have their directories.
        self.disk = disk or sandbox.dir
        super().__init__("", self.disk / "head/credential")
        self.sandbox = sandbox
        self.node_timeout = node_timeout
        self.http_address = ""
        self.head = None
        self.head_flags = ()
        # What starts the daemons, such as prlimit.
        self.head_program = []
        self.worker_program = []
        self.workers = {}
        self._worker_flags = {}

    def start_head(self, state="head", wait=True):
        """On the addresses that it had, once it had some."""
        ready = self.sandbox.dir / f"{state}.ready"
        ready.unlink(missing_ok=True)
        self.head = self.sandbox.spawn(
            [*self.head_program, BIN / "cohort-head", "--address", self.address or "127.0.0.1:0",
             "--http-address", self.http_address or "127.0.0.1:0",
             "--state-dir", self.disk / state, "--ready-file", ready,
             "--node-timeout", self.node_timeout, *self.head_flags],
            "head.log")
        if wait:
            self._await_ready("head", self.head, ready)
            self.address = ready.read_text().strip()
            self.http_address = (
                self.disk / state / "http_address").read_text().strip()

    def start_worker(self, name, *flags, wait=True):
        """With the flags that it had, when none are given."""
        flags = flags or self._worker_flags.get(name, ())
        self._worker_flags[name] = flags
        ready = self.sandbox.dir / f"{name}.ready"
        ready.unlink(missing_ok=True)
        self.workers[name] = self.sandbox.spawn(
            [*self.worker_program, BIN / "cohort-worker", "--address",
             self.address,
             "--credential-file", self.credential, "--name", name,
             "--state-dir", self.disk / name, "--ready-file", ready,
             *flags], f"{name}.log")
        if wait:
            self._await_ready(name, self.workers[name], ready)

    def _await_ready(self, name, process, ready):
        def reached():
            if process.poll() is not None:
                log = (self.sandbox.dir / f"{name}.log").read_text()
                raise AssertionError(f"{name} ended: {log[-2000:]}")
            return ready.exists()
        until(f"{name} is ready", reached)

    def kill_head(self):
        self.head.kill()
        self.head.wait()

    def kill_worker(self, name):
        self.workers[name].kill()
        self.workers[name].wait()

    def keepers(self):
        return {pid for pid in descendants()
                if program_of(pid) == "cohort-keeper"}

    def rank_pids(self, job):
        """The pids of its ranks by rank, of those that have one."""
        return {rank["rank"]: rank["pid"] for rank in self.job(job)["ranks"]
                if rank["state"] == "RUNNING" and rank["pid"]}


class Up(Client):
    """`cohort up`, and the client of its cluster."""

    def __init__(self, sandbox, *flags, state="up"):
        super().__init__("", sandbox.dir / state / "credential")
        self.sandbox = sandbox
        self.state = sandbox.dir / state
        self.flags = flags
        self.process = None

    def start(self):
        ready = self.sandbox.dir / "up.ready"
        ready.unlink(missing_ok=True)
        self.process = self.sandbox.spawn(
            [BIN / "cohort", "up", "--port", "0", "--state-dir", self.state,
             "--ready-file", ready, *self.flags], "up.log")

        def reached():
            if self.process.poll() is not None:
                log = (self.sandbox.dir / "up.log").read_text()
                raise AssertionError(f"up ended: {log[-3000:]}")
            return ready.exists()
        until("up is ready", reached)
        self.address = ready.read_text().strip()

    def end(self, sign=signal.SIGINT):
        """Ctrl-C; gives how long it took."""
        begin = time.monotonic()
        self.process.send_signal(sign)
        self.process.wait(DEADLINE)
        return time.monotonic() - begin


class ClusterTest(unittest.TestCase):
    """A sandbox for each test, and its logs printed when the test fails."""

    def setUp(self):
        self.sandbox = Sandbox()
        self.addCleanup(self.sandbox.close)
        self.addCleanup(self._show_logs)

    def _show_logs(self):
        result = self._outcome.result
        if any(test is self for test, _ in result.failures + result.errors):
            self.sandbox.show_logs()

    def cluster(self, *worker_flags, workers=1, node_timeout="10s"):
        """A head and workers `w0`, `w1`, ... that have joined."""
        cluster = Cluster(self.sandbox, node_timeout)
        cluster.start_head()
        for index in range(workers):
            cluster.start_worker(f"w{index}", *(worker_flags or
                                                ("--num-cpus", "2")))
        return cluster

    def up(self, *flags, state="up"):
        up = Up(self.sandbox, *flags, state=state)
        up.start()
        return up

    def file(self, name, text, mode=0o644):
        path = self.sandbox.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def assert_fails(self, done, code, *words):
        """`done` ended with `code`, and stderr has all of `words`."""
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        for word in words:
            self.assertIn(str(word), done.stderr)

    def assert_nothing_left(self):
        until("no process is left", lambda: not descendants(), 5)
        for pid in _processes():
            state = environment_of(pid).get("COHORT_CREDENTIAL_FILE", "")
            self.assertFalse(state.startswith(str(self.sandbox.dir)), pid)


def main():
    """unittest.main, with 77 when all that was asked for was skipped."""
    program = unittest.main(module="__main__", exit=False, verbosity=2)
    result = program.result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIPPED if result.testsRun and
             len(result.skipped) == result.testsRun else 0)
