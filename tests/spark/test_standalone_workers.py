"""A standalone Master lists dead workers like others: those that answer count."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from understudy.core.executors import Capacity, WorkerSize
from understudy.spark.managers import standalone
from understudy.spark.managers.standalone import Standalone

MIB = 1024


@dataclass
class Worker:
    """What the Master says of a worker; on this host the port of its pages is its own."""

    at: int
    size: int

    def host(self) -> str:
        return "127.0.0.1"

    def port(self) -> int:
        return self.at

    def cores(self) -> int:
        return self.size

    def memory(self) -> int:
        return MIB

    def webUiAddress(self) -> str:  # noqa: N802 -- Spark's name
        return f"http://127.0.0.1:{self.at}"


class Cluster(Standalone):
    """A cluster whose Master lists these workers."""

    def __init__(self, *workers: Worker) -> None:
        super().__init__(None, {"spark.master": "spark://127.0.0.1:1"})
        self._workers = list(workers)

    def _ask(self) -> tuple[Any, Any]:
        workers = self._workers
        return None, type("State", (), {"workers": lambda _: workers})()


class Pages(BaseHTTPRequestHandler):
    """The pages of a worker, and of the Master that it names."""

    def do_GET(self) -> None:
        here = f"http://127.0.0.1:{self.server.server_port}"  # type: ignore[attr-defined]
        master = {
            "status": "ALIVE",
            "cores": 8,
            "coresused": 2,
            "activeapps": [],
            "workers": [
                {"state": "ALIVE", "cores": 8, "memory": MIB},
                {"state": "DEAD", "cores": 16, "memory": MIB},
            ],
        }
        answer = master if "/master/" in self.path else {"masterwebuiurl": f"{here}/master"}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


LIVING = Capacity(8, 6, workers=(WorkerSize(8, MIB),))


@pytest.fixture
def pages() -> Iterator[int]:
    """Serve pages; return their port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@contextlib.contextmanager
def listening() -> Iterator[int]:
    """Accept connections, and answer nothing; return the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def nobody() -> Iterator[int]:
    """Return a port at which connections are refused."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_the_masters_page_is_found_however_many_workers_are_dead(nobody: int, pages: int) -> None:
    cluster = Cluster(*[Worker(nobody, 4)] * 100, Worker(pages, 4))

    assert LIVING == cluster.capacity()


def test_workers_that_do_not_answer_are_not_waited_for(pages: int) -> None:
    with listening() as hung:
        begun = time.monotonic()

        assert LIVING == Cluster(*[Worker(hung, 4)] * 20, Worker(pages, 4)).capacity()
        assert standalone.WORKERS_S > time.monotonic() - begun


def test_without_pages_a_dead_worker_has_no_cores(nobody: int) -> None:
    with listening() as alive:
        expected = Capacity(4, None, workers=(WorkerSize(4, MIB),))

        assert expected == Cluster(Worker(nobody, 16), Worker(alive, 4)).capacity()


def test_without_any_answer_all_workers_count(nobody: int) -> None:
    expected = Capacity(16, None, workers=(WorkerSize(16, MIB),))

    assert expected == Cluster(Worker(nobody, 16)).capacity()
