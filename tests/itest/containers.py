"""Container engines of a test's own, and images for them, without a registry.

An engine runs in network and mount namespaces that end with the test, and its
containers in control groups that the test removes.
"""

import ctypes
import fcntl
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import tarfile

import cluster

_CLONE_NEWNS = 0x00020000
_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
# Where engines' programs lie; the tests' own PATH is shorter.
PATH = "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"


class _Namespaces:
    """A network with nothing but loopback, and mounts of its own, for this
    process and all that it starts, until it leaves."""

    def __init__(self):
        self._before = [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY)
                        for kind in ("mnt", "net")]
        self._directory = os.getcwd()
        self._call("unshare", _CLONE_NEWNS | _CLONE_NEWNET)
        # Shared among themselves, as a kubelet wants them, with nobody else.
        for kind in ("--make-rprivate", "--make-rshared"):
            subprocess.run(["mount", kind, "/"], check=True)
        with socket.socket() as any_socket:
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS,
                        struct.pack("16sH14x", b"lo", _IFF_UP))

    def leave(self):
        for namespace in self._before:
            self._call("setns", namespace, 0)
            os.close(namespace)
        os.chdir(self._directory)

    def _call(self, name, *args):
        libc = ctypes.CDLL(None, use_errno=True)
        if getattr(libc, name)(*args) != 0:
            raise OSError(ctypes.get_errno(), name)


def _remove_control_groups(name):
    """Those named so, at the top of each hierarchy, once they are empty."""
    def removed():
        try:
            for group in pathlib.Path("/sys/fs/cgroup").glob(f"*/{name}"):
                for directory, _, _ in os.walk(group, topdown=False):
                    os.rmdir(directory)
        except OSError:
            return False
        return True
    cluster.until(f"the control groups {name} are removed", removed)


class EngineTest(cluster.ClusterTest):
    """A test whose containers have control groups below `self.group`."""

    PROGRAMS = ()  # without which it is skipped

    def setUp(self):
        super().setUp()
        missing = [path for path in map(str, self.PROGRAMS)
                   if not os.access(path, os.X_OK)]
        if missing or os.geteuid() != 0:
            self.skipTest(f"not installed: {', '.join(missing)}" if missing
                          else "needs root")
        self._namespaces = _Namespaces()
        self.group = self.sandbox.dir.name
        self.addCleanup(self._clean)
        self.addCleanup(self._show_logs)

    def _clean(self):
        self.sandbox.close()
        self._namespaces.leave()
        shutil.rmtree(self.sandbox.dir, ignore_errors=True)
        _remove_control_groups(self.group)
        self.assertFalse(self.sandbox.dir.exists())

    def set_variables(self, variables):
        """Of the environment, until the test has ended."""
        for name, value in variables.items():
            before = os.environ.get(name)
            os.environ[name] = value
            if before is None:
                self.addCleanup(os.environ.pop, name, None)
            else:
                self.addCleanup(os.environ.__setitem__, name, before)


def _libraries(program):
    done = subprocess.run(["ldd", program], capture_output=True, text=True,
                          check=False)
    return re.findall(r"(/\S+) \(0x", done.stdout)


def _add(tar, name, content=None, mode=0o755, kind=tarfile.REGTYPE):
    member = tarfile.TarInfo(name.lstrip("/"))
    member.mode, member.type = mode, kind
    member.size = len(content or b"")
    tar.addfile(member, io.BytesIO(content or b""))


def write_image(path, name, programs, scripts=(), command=()):
    """An archive for `docker load` and `ctr images import`: `programs` (from,
    to), with the libraries that they load, and `scripts` (to, text); without a
    command it runs `command`."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        _add(tar, "tmp", mode=0o1777, kind=tarfile.DIRTYPE)
        files = dict((to, source) for source, to in programs)
        for source, _ in programs:
            files |= {library: library for library in _libraries(source)}
        for to, source in sorted(files.items()):
            _add(tar, to, pathlib.Path(source).read_bytes())
        for to, text in scripts:
            _add(tar, to, text.encode())
    content = layer.getvalue()
    config = {"architecture": "amd64", "os": "linux",
              "config": {"Entrypoint": list(command)},
              "rootfs": {"type": "layers", "diff_ids": [
                  "sha256:" + hashlib.sha256(content).hexdigest()]}}
    manifest = [{"Config": "config.json", "RepoTags": [name],
                 "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as archive:
        _add(archive, "layer.tar", content)
        _add(archive, "config.json", json.dumps(config).encode())
        _add(archive, "manifest.json", json.dumps(manifest).encode())


def write_worker_image(path, name):
    """A worker, what ranks of tests run, and in place of a worker `hungry`, which
    takes memory until it is killed, and `idle`."""
    programs = [(cluster.BIN / program, f"/bin/{program}")
                for program in ("cohort-worker", "cohort-keeper",
                                "cohort-preflight")]
    programs += [(f"/bin/{tool}", f"/bin/{tool}")
                 for tool in ("sh", "cp", "true", "sleep", "tail")]
    write_image(path, name, programs,
                [("/bin/hungry", "#!/bin/sh\nexec tail /dev/zero\n"),
                 ("/bin/idle", "#!/bin/sh\ntrap exit TERM\nsleep 1000 & wait\n")])
