"""Who takes more than a share: is refused, and others do not notice."""

import contextlib
import os
import pathlib
import socket
import ssl
import urllib.request

import cluster
import limits

# Of this machine, as another host would be.
STRANGER = "127.0.0.2"
# The first bytes of a TLS 1.3 handshake that never goes on.
HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(16)


def connect(port, first=b""):
    """A connection of the stranger's, or None when it is closed at once."""
    peer = socket.create_connection(("127.0.0.1", port), timeout=1,
                                    source_address=(STRANGER, 0))
    with contextlib.suppress(OSError):
        peer.sendall(first)
    return peer


def closed(peer):
    """Whether the other end has hung up, or does so within the timeout."""
    try:
        return peer.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


class Abuse(cluster.ClusterTest):

    def hold(self, port, count, first):
        """So many connections, of which each has sent `first`."""
        peers = []
        for _ in range(count):
            peers.append(connect(port, first))
            self.addCleanup(peers[-1].close)
        return peers

    def well(self, c):
        """A command and a job go through."""
        self.assertEqual(c.run("status").returncode, 0)
        self.assertEqual(c.run("submit", "--wait", "--", "true").returncode, 0)

    def head_with(self, files):
        c = cluster.Cluster(self.sandbox)
        c.head_program = ["prlimit", f"--nofile={files}:{files}"]
        c.start_head()
        c.start_worker("w0", "--num-cpus", "1")
        return c

    def test_handshakes_that_never_end_take_one_hosts_share(self):
        c = self.head_with(512)
        port = limits.host_port(c.address)[1]
        peers = self.hold(port, 400, HELLO)
        self.assertTrue(closed(peers[-1]))
        self.assertFalse(closed(peers[0]))
        self.well(c)
        said = (self.sandbox.dir / "head.log").read_text()
        self.assertEqual(said.count("connections_of_a_host_refused"), 1)
        # Those that it has are closed by and by.
        peers[0].settimeout(cluster.DEADLINE)
        self.assertTrue(closed(peers[0]))

    def test_connections_that_say_nothing_take_one_hosts_share(self):
        c = self.head_with(512)
        port = limits.host_port(c.address)[1]
        peers = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        for _ in range(400):
            try:
                peer = context.wrap_socket(connect(port))
            except (OSError, ssl.SSLError):
                break
            self.addCleanup(peer.close)
            peers.append(peer)
        self.assertLess(len(peers), 300)
        self.well(c)

    def test_http_requests_that_never_end_keep_nobody_out(self):
        c = self.head_with(4096)
        host, port = limits.host_port(c.http_address)
        for _ in range(600):
            peer = socket.create_connection((host, port), timeout=5)
            self.addCleanup(peer.close)
            with contextlib.suppress(OSError):
                peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: ")
        with urllib.request.urlopen(f"http://{host}:{port}/healthz",
                                    timeout=10) as answer:
            self.assertEqual(answer.status, 200)
        self.well(c)

    def test_a_flood_of_output_costs_its_own_log_alone(self):
        c = self.cluster("--num-cpus", "2")
        flood = c.submit("--", "timeout", "8", "yes", "x" * 1000)
        c.await_state(flood, "RUNNING")
        self.well(c)
        follower = c.popen("logs", "-f", flood, stdout=-3)
        self.addCleanup(follower.wait)
        self.addCleanup(follower.kill)
        self.well(c)
        c.await_end(flood)
        kept = sum(each.stat().st_size for each in
                   pathlib.Path(self.sandbox.dir / "w0/logs").rglob("*")
                   if each.is_file())
        # 256 MiB of a stream, a segment more, and the other logs.
        self.assertLess(kept, (256 + 32) << 20)
        cluster.until("its working directory is gone", lambda: not os.listdir(
            self.sandbox.dir / "w0/work"))


if __name__ == "__main__":
    cluster.main()
