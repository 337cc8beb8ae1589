"""Tries every call and every HTTP route as who is not to get in, and holds what
came back against the table in docs/security.md."""

import http.client
import pathlib
import re
import socket
import ssl
import struct

import cluster

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/security.md"
CODES = {"7": "PERMISSION_DENIED", "12": "UNIMPLEMENTED", "16": "UNAUTHENTICATED"}
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS = 1, 4


def frame(kind, flags, stream, body=b""):
    return (len(body).to_bytes(3, "big") + bytes((kind, flags)) +
            stream.to_bytes(4, "big") + body)


class Calls:
    """A connection that makes calls without a message, as no client of ours."""

    def __init__(self, address, secret):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        host, _, port = address.rpartition(":")
        self._peer = context.wrap_socket(
            socket.create_connection((host, int(port)), cluster.DEADLINE))
        self._secret = secret
        self._stream = -1
        self._heard = b""
        # Without a table each answer is written in full.
        self._peer.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" +
                           frame(SETTINGS, 0, 0, struct.pack(">HI", 1, 0)) +
                           frame(SETTINGS, 1, 0))

    def close(self):
        self._peer.close()

    def result(self, path):
        """The name of the code with which the call ends."""
        self._stream += 2
        fields = [(":method", "POST"), (":scheme", "https"), (":path", path),
                  (":authority", "cohort"), ("te", "trailers"),
                  ("content-type", "application/grpc")]
        if self._secret is not None:
            fields.append(("authorization", f"Bearer {self._secret}"))
        # A length of 127 and more goes on in the next byte.
        text = b"".join(
            b"\0" + b"".join((bytes((127, len(each) - 127))
                              if len(each) >= 127 else bytes((len(each),))) +
                             each.encode() for each in field)
            for field in fields)
        self._peer.sendall(frame(HEADERS, END_HEADERS | END_STREAM,
                                 self._stream, text))
        while True:
            kind, flags, stream, body = self._next()
            if (kind, stream) == (HEADERS, self._stream) and flags & END_STREAM:
                code = re.search(rb"grpc-status.(\d+)", body, re.DOTALL)
                return CODES.get(code[1].decode(), code[1].decode())

    def _next(self):
        while True:
            size = 9 + int.from_bytes(self._heard[:3], "big")
            if len(self._heard) >= max(9, size):
                break
            more = self._peer.recv(1 << 16)
            if not more:
                raise ConnectionError("the head hung up")
            self._heard += more
        head, body = self._heard[:9], self._heard[9:size]
        self._heard = self._heard[size:]
        return head[3], head[4], int.from_bytes(head[5:9], "big"), body


class Scanner(cluster.ClusterTest):

    def user(self, c, name, *flags):
        file = self.sandbox.dir / name
        done = c.run("user", "add", name, "--file", file, *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        return cluster.Client(c.address, file).token()

    def strangers(self, c):
        """What each shows who is not to get in."""
        other = cluster.Cluster(self.sandbox)
        other.credential = self.sandbox.dir / "other/credential"
        other.start_head(state="other")
        shown = {"nothing": None, "another cluster's": other.token(),
                 "expired": self.user(c, "old", "--ttl", "1ms"),
                 "revoked": self.user(c, "gone")}
        self.assertEqual(c.run("user", "remove", "gone").returncode, 0)
        shown["cut short"] = c.token()[:-1]
        return shown

    def allowed(self, c):
        """By role, what each shows who has one."""
        join = c.run("token", "create").stdout.strip().split(".")
        node = self.sandbox.dir / "joined/credential"
        rank = c.submit("--", "sh", "-c",
                        'sed -n "s/^secret //p" "$COHORT_CREDENTIAL_FILE"')
        self.assertEqual(c.await_end(rank)["state"], "SUCCEEDED")
        self.sandbox.spawn(
            [cluster.BIN / "cohort-worker", "--address", c.address, "--join",
             ".".join(join), "--state-dir", node.parent, "--num-cpus", "1"],
            "w0.log")
        cluster.until("it joined", node.exists)
        return {"join": join[2] + join[3],
                "rank": c.logs(rank).strip(),
                "worker": cluster.Client(c.address, node).token(),
                "read": self.user(c, "rae", "--role", "read"),
                "submit": self.user(c, "ann"), "admin": c.token()}

    def status_of(self, c, path, secret):
        peer = http.client.HTTPConnection(c.http_address, timeout=30)
        peer.request("GET", path.replace("ID", "0" * 32), headers={} if
                     secret is None else {"Authorization": f"Bearer {secret}"})
        answer = peer.getresponse()
        text = answer.read().decode()
        peer.close()
        return answer.status, text

    def test_what_every_call_and_route_answers_is_in_the_docs(self):
        c = self.cluster()
        strangers, allowed = self.strangers(c), self.allowed(c)
        page = PAGE.read_text(encoding="utf-8")
        # Held against the code by MethodsTest.
        methods = re.findall(r"^\| (\w+Service\.\w+) \|", page, re.MULTILINE)
        self.assertGreater(len(methods), 40)
        results = {}
        for name, secret in strangers.items():
            calls = Calls(c.address, secret)
            self.addCleanup(calls.close)
            results[name] = {calls.result(
                "/cohort.v1." + method.replace(".", "/")) for method in methods}
            self.assertEqual(len(results[name]), 1, name)
        table = ["| | " + " | ".join([*strangers, *allowed]) + " |",
                 "|---|" + "---|" * (len(strangers) + len(allowed)),
                 "| each method above | " +
                 " | ".join(each.pop() for each in results.values()) +
                 " | above" * len(allowed) + " |"]
        # The head says itself which there are.
        _, text = self.status_of(c, "/nowhere", c.token())
        routes = re.findall(r"/[a-z]\w*(?:/\w+)*", text.partition(":")[2])
        routes = [route for route in routes if route != "/nowhere"]
        self.assertGreater(len(routes), 15)
        alike = {}
        for route in [*routes, "/nowhere"]:
            cells = [self.status_of(c, route, secret)[0]
                     for secret in (*strangers.values(), *allowed.values())]
            alike.setdefault(" | ".join(
                str(cell) if cell in (401, 403) else "yes"
                for cell in cells), []).append(f"`{route}`")
        table += [f"| {', '.join(names)} | {cells} |"
                  for cells, names in alike.items()]
        text = "\n".join(table) + "\n"
        self.assertTrue(text in page, f"put this table there:\n{text}")


if __name__ == "__main__":
    cluster.main()
