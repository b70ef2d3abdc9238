"""A proxy for an S3 server that loses, repeats and refuses requests, and cuts answers short."""

from __future__ import annotations

import enum
import http.client
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.zookeeper import LOOPBACK

_SLOW_DOWN = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code>'
    b"<Message>Please reduce your request rate.</Message></Error>"
)
_INTERNAL = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>InternalError</Code>'
    b"<Message>We encountered an internal error. Please try again.</Message></Error>"
)


class Fault(enum.Enum):
    """A fault of one request."""

    LOST = "the request never arrives, its connection is reset"
    ANSWER_LOST = "it is done, and its connection is reset"
    SLOW_DOWN = "503, not done"
    ERROR = "500, not done"
    ERROR_AFTER = "500, and done all the same"
    CUT = "it is done, and its answer ends in the middle"
    TWICE = "it arrives twice"
    SILENT = "it is done, and nothing is ever answered"


@dataclass(frozen=True)
class Request:
    """A received request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class FaultyS3:
    """Forwards requests, and injects planned faults."""

    def __init__(self, server: str) -> None:
        self._server = server.removeprefix("http://")
        self.seen: list[Request] = []
        self.plan: dict[int, Fault] = {}
        """The faults of requests, by number from 0."""
        self.always: Fault | None = None
        self.released = threading.Event()
        self._turn = threading.Lock()
        self.endpoint = ""

    def repeat(self, request: Request) -> None:
        """Send a request once more, late."""
        self.forward(request)

    def forward(self, request: Request) -> tuple[int, list[tuple[str, str]], bytes]:
        """Send a request to the server and return the answer."""
        connection = http.client.HTTPConnection(self._server, timeout=20)
        try:
            connection.request(request.method, request.path, request.body, request.headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def take(self, request: Request) -> Fault | None:
        """Note a request; return its fault."""
        with self._turn:
            self.seen.append(request)
            return self.plan.get(len(self.seen) - 1, self.always)


class _Handler(BaseHTTPRequestHandler):
    proxy: FaultyS3

    protocol_version = "HTTP/1.1"

    def handle_any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else _chunks(self)
        dropped = {"transfer-encoding", "content-length", "expect", "connection"}
        headers = {k: v for k, v in self.headers.items() if k.lower() not in dropped}
        request = Request(self.command, self.path, headers, body)
        match self.proxy.take(request):
            case Fault.LOST:
                self.reset()
            case Fault.SLOW_DOWN:
                self.answer(503, [], _SLOW_DOWN)
            case Fault.ERROR:
                self.answer(500, [], _INTERNAL)
            case Fault.TWICE:
                self.proxy.forward(request)
                self.answer(*self.proxy.forward(request))
            case fault:
                self.done(fault, *self.proxy.forward(request))

    def done(
        self, fault: Fault | None, status: int, headers: list[tuple[str, str]], body: bytes
    ) -> None:
        match fault:
            case Fault.ANSWER_LOST:
                self.reset()
            case Fault.ERROR_AFTER:
                self.answer(500, [], _INTERNAL)
            case Fault.SILENT:
                self.proxy.released.wait()
                self.reset()
            case Fault.CUT:
                self.answer(status, headers, body, cut=True)
            case _:
                self.answer(status, headers, body)

    def answer(
        self, status: int, headers: list[tuple[str, str]], body: bytes, cut: bool = False
    ) -> None:
        self.send_response_only(status)
        dropped = {"transfer-encoding", "content-length", "connection"}
        length = str(len(body))
        for name, text in headers:
            if name.lower() not in dropped:
                self.send_header(name, text)
            elif self.command == "HEAD" and name.lower() == "content-length":
                length = text
        self.send_header("Content-Length", length)
        self.end_headers()
        if cut:
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self.reset()
        elif self.command != "HEAD":
            self.wfile.write(body)

    def reset(self) -> None:
        self.close_connection = True
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.connection.close()

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def handle(self) -> None:
        try:
            super().handle()
        except (OSError, ValueError):
            return  # The proxy or the client cut the connection.

    def finish(self) -> None:
        try:
            super().finish()
        except (OSError, ValueError):
            return

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


@contextmanager
def faulty_s3(server: str) -> Iterator[FaultyS3]:
    """Start a proxy for a server; it ends with the block."""
    proxy = FaultyS3(server)

    handler = type("Handler", (_Handler,), {"proxy": proxy})
    serving = _Server((LOOPBACK, 0), handler)
    proxy.endpoint = f"http://{LOOPBACK}:{serving.server_address[1]}"
    thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield proxy
    finally:
        proxy.released.set()
        serving.shutdown()
        serving.server_close()
        thread.join()


def _chunks(handler: BaseHTTPRequestHandler) -> bytes:
    if handler.headers.get("Transfer-Encoding", "").lower() != "chunked":
        return b""
    body = b""
    while size := int(handler.rfile.readline().split(b";")[0], 16):
        body += handler.rfile.read(size)
        handler.rfile.readline()
    while handler.rfile.readline().strip():
        pass
    return body
