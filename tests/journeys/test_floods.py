"""Crowds of connections at a real cluster: the leader leads on, and REST answers on."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.journeys import harness
from tests.journeys.conftest import Start
from tests.journeys.harness import Run
from tests.journeys.test_links import given, published, secret_file
from tests.support.sampling import quickly

pytestmark = pytest.mark.filesystem  # Its terms are looked for in files.

DESCRIPTORS = 1024
"""What a process of the cluster may open; many hosts allow no more."""

CROWD = 1100
FLOOD_S = 10.0
"""More than a lease of `harness.IMPATIENT`: a leader that is held up loses the lead within that."""

LOG_BYTES_MAX = 1 << 20
BODY_BYTES = 400 << 20


@pytest.fixture
def few_descriptors() -> Iterator[Callable[[], None]]:
    """Let what is started have few descriptors; returns what lets this process have more again."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, before[1]))

    def many() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))

    yield many
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextlib.contextmanager
def crowd(address: tuple[str, int], said: bytes = b"") -> Iterator[None]:
    """Hold connections to an address that say this and nothing else."""
    with contextlib.ExitStack() as held:
        for _ in range(CROWD):
            one = held.enter_context(socket.create_connection(address, timeout=harness.PATIENCE_S))
            with contextlib.suppress(OSError):
                one.sendall(said)
        yield


def asked(run: Run, seconds: float) -> list[dict[str, Any]]:
    """Ask who leads, again and again for a time; return all answers."""
    told = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        told.append(run.leader())
        time.sleep(0.2)
    return told


def logged(place: Path, run: Run) -> int:
    """Return how much all processes have logged."""
    logs = [path for path in (place / "state").rglob("*.log") if path.is_file()]
    return run.log.stat().st_size + sum(path.stat().st_size for path in logs)


def at(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition("//")[2].rpartition(":")
    return host, int(port)


CROWDS = (
    ("leader", b""),
    ("link", b""),
    ("leader", b"POST /jobs/a/stop HTTP/1.1\r\nHost: localhost\r\n"),
    ("standby", b"nonsense\r\n\r\n"),
    ("link", b"UNDSTDY\x01"),
)
"""Whom a crowd calls, and what each of it says."""


@pytest.mark.parametrize(
    "crowds",
    quickly([(CROWDS[:2],), (CROWDS,)], [(CROWDS[:2],)]),
    ids=lambda crowds: str(len(crowds)),
)
def test_crowds_at_rest_and_at_the_link_port_take_the_lead_from_nobody(
    start: Start,
    place: Path,
    few_descriptors: Callable[[], None],
    nothing_left: Callable[[], None],
    crowds: Sequence[tuple[str, bytes]],
) -> None:
    settings = [f"security.secret-file={secret_file(place)}", "jobmanager.bind-host=127.0.0.1"]
    options = given(*settings)
    run = start("three.py", options=[*harness.impatient(), *options], standbys=1)
    token = harness.command(place, "token", *options).stdout.strip()
    run.shown = {"authorization": f"Bearer {token}"}
    run.at_work()
    run.standby_is_ready()
    few_descriptors()
    before = run.leader()
    (link,) = published(place)
    standby = run.standby_is_ready()["standbys"][0]
    addresses = {"leader": run.rest, "link": link, "standby": standby["rest"]}
    with contextlib.ExitStack() as held:
        for whom, said in crowds:
            held.enter_context(crowd(at(addresses[whom]), said))
        told = asked(run, FLOOD_S)
        os.kill(standby["pid"], signal.SIGKILL)
        run.until(
            "/ha/status",
            lambda answer: any(
                one["ready"] and one["pid"] != standby["pid"] for one in answer["standbys"]
            ),
        )
    after = run.leader()
    size = logged(place, run)
    run.release()

    assert run.finish() == 0
    assert {(one["pid"], one["term"]) for one in told} == {(before["pid"], before["term"])}
    assert (before["pid"], before["term"]) == (after["pid"], after["term"])
    assert run.lines("jobs.txt") == ["first 1", "long 1", "third 1"]
    assert [] == run.of("takeover")
    assert size < LOG_BYTES_MAX
    nothing_left()


@pytest.mark.long  # Units: tests/api/test_bounds.py.
@pytest.mark.parametrize(("forwarded", "chunked"), list(product([False, True], repeat=2)))
def test_a_body_of_400_mb_is_not_taken_in(start: Start, *, chunked: bool, forwarded: bool) -> None:
    run = start("three.py", options=harness.impatient(), standbys=1)
    run.at_work()
    status = run.standby_is_ready()
    one = status["standbys"][0] if forwarded else status["leader"]
    before = memory_of(one["pid"])
    how = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {BODY_BYTES}"
    head = "POST /savepoint-disposal HTTP/1.1\r\nHost: localhost\r\n"
    head += f"Content-Type: application/json\r\n{how}\r\n\r\n"
    piece = b" " * (1 << 20)
    framed = b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece
    highest = taken = 0
    with socket.create_connection(at(one["rest"]), timeout=harness.PATIENCE_S) as end:
        end.sendall(head.encode())
        with contextlib.suppress(ConnectionError):
            while taken < BODY_BYTES:
                end.sendall(framed)
                taken += len(piece)
                highest = max(highest, memory_of(one["pid"]))
        answer = end.recv(65536)
    after = run.leader()
    run.release()

    assert run.finish() == 0
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert taken < BODY_BYTES / 4
    assert highest < before + (32 << 20)
    assert status["leader"]["term"] == after["term"]


def memory_of(pid: int) -> int:
    """Return the bytes of memory that a process has."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) << 10
