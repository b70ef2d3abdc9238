"""Posting events to ``notify.url``: a real receiver on loopback, in every mood."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from understudy.cli.launch import notify
from understudy.cli.launch.notify import HELD_MAX, TRIES_MAX, NoNotifier, Notifier, notifier
from understudy.config import Configuration
from understudy.core.backoff import Backoff

EVENT = {"event": "takeover", "seq": 1, "seconds": 0.1}
PATIENCE_S = 20.0


class Receiver:
    """What the other side sees, and how it answers: by status, or not at all."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.statuses: list[int] = []
        """Answers in this order, the last one again and again; 200 where there is none."""
        self.hangs = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                hangs = receiver.hangs.is_set()
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.bodies.append(json.loads(body))
                receiver.headers.append({key.lower(): text for key, text in self.headers.items()})
                if hangs:
                    time.sleep(PATIENCE_S)
                    return
                statuses = receiver.statuses
                status = statuses.pop(0) if len(statuses) > 1 else (statuses or [200])[0]
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.block_on_close = False
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"

    def seqs(self) -> list[int]:
        """Return which events have come, in their order."""
        return [body["seq"] for body in self.bodies]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    thread = threading.Thread(target=found.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "BACKOFF", Backoff(0.01))


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def closed_port() -> str:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}/hook"


def test_events_come_as_json_in_their_order(receiver: Receiver) -> None:
    said: list[str] = []
    sent = [{**EVENT, "seq": number, "name": "[é]\n"} for number in range(50)]
    with Notifier(receiver.url, 5.0, 5.0, said.append) as posts:
        for event in sent:
            posts.tell(event)

    assert sent == receiver.bodies
    assert [] == said
    assert "application/json" == receiver.headers[0]["content-type"]
    assert receiver.headers[0]["user-agent"].startswith("understudy/")


@pytest.mark.parametrize("kind", ["output", "log", "job-progress"])
def test_what_json_does_not_print_is_not_posted(receiver: Receiver, kind: str) -> None:
    with Notifier(receiver.url, 5.0, 5.0, print) as posts:
        posts.tell({"event": kind, "line": "a secret"})
        posts.tell(EVENT)

    assert [EVENT] == receiver.bodies


@pytest.mark.parametrize("statuses", [[500, 200], [503, 502, 429, 200]])
def test_an_event_that_was_refused_for_now_is_posted_again(
    receiver: Receiver, statuses: list[int]
) -> None:
    receiver.statuses = [*statuses]
    said: list[str] = []
    with Notifier(receiver.url, 5.0, 5.0, said.append) as posts:
        posts.tell(EVENT)
        until(lambda: len(receiver.bodies) == len(statuses))
        posts.tell({**EVENT, "seq": 2})

    assert [1] * len(statuses) + [2] == receiver.seqs()
    assert [] == said


def test_an_event_is_posted_a_few_times_and_then_dropped(receiver: Receiver) -> None:
    receiver.statuses = [500]
    said: list[str] = []
    with Notifier(receiver.url, 5.0, 5.0, said.append) as posts:
        for number in (1, 2):
            posts.tell({**EVENT, "seq": number})
        until(lambda: len(receiver.bodies) == 2 * TRIES_MAX)

    assert [1] * TRIES_MAX + [2] * TRIES_MAX == receiver.seqs()
    assert [
        "notify.url: an event was not delivered, the run continues: HTTP 500",
        "notify.url: 2 events were not delivered",
    ] == said


@pytest.mark.parametrize("status", [301, 400, 403, 404])
def test_an_event_that_was_refused_for_good_is_not_posted_again(
    receiver: Receiver, status: int
) -> None:
    receiver.statuses = [status, 200]
    said: list[str] = []
    with Notifier(receiver.url, 5.0, 5.0, said.append) as posts:
        for number in (1, 2):
            posts.tell({**EVENT, "seq": number})

    assert [1, 2] == receiver.seqs()
    assert said[0].endswith(f"HTTP {status}")


def test_nobody_listening_holds_up_neither_the_run_nor_its_end() -> None:
    said: list[str] = []
    with Notifier(closed_port(), 5.0, 5.0, said.append) as posts:
        began = time.monotonic()
        for number in range(20):
            posts.tell({**EVENT, "seq": number})
        told = time.monotonic() - began

    assert told < 3.0
    assert time.monotonic() - began < 5.0
    assert "ConnectError" in said[0]
    assert "notify.url: 20 events were not delivered" == said[1]
    assert 2 == len(said)


def test_a_receiver_that_hangs_holds_up_the_end_no_longer_than_it_may(receiver: Receiver) -> None:
    receiver.hangs.set()
    said: list[str] = []
    with Notifier(receiver.url, 30.0, 0.5, said.append) as posts:
        began = time.monotonic()
        for number in range(3):
            posts.tell({**EVENT, "seq": number})
        told = time.monotonic() - began

    assert told < 3.0
    assert 0.4 < time.monotonic() - began < 5.0
    assert ["notify.url: 3 events were not delivered"] == said


def test_a_receiver_that_hangs_is_left_after_the_timeout(receiver: Receiver) -> None:
    receiver.hangs.set()
    with Notifier(receiver.url, 1.0, PATIENCE_S, print) as posts:
        posts.tell(EVENT)
        until(lambda: len(receiver.bodies) == 1)
        receiver.hangs.clear()
        posts.tell({**EVENT, "seq": 2})

    assert [1, 1, 2] == receiver.seqs()


def test_no_more_events_are_held_than_there_is_place_for(receiver: Receiver) -> None:
    receiver.hangs.set()
    said: list[str] = []
    with Notifier(receiver.url, 30.0, 0.1, said.append) as posts:
        posts.tell(EVENT)
        until(lambda: len(receiver.bodies) == 1)
        for _ in range(HELD_MAX + 500):
            posts.tell(EVENT)

    assert [
        "notify.url: an event was not delivered, the run continues: 1,000 events wait already",
        f"notify.url: {1 + HELD_MAX + 500} events were not delivered",
    ] == said


def test_without_the_option_nothing_is_posted() -> None:
    found = notifier(Configuration(), print)

    with found as posts:
        posts.tell(EVENT)

    assert isinstance(found, NoNotifier)


def test_the_environments_proxy_is_not_asked_for_a_receiver_on_this_host(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", closed_port())
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with notifier(Configuration({"notify.url": receiver.url}), print) as posts:
        posts.tell(EVENT)

    assert [EVENT] == receiver.bodies
