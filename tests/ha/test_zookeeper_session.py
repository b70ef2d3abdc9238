"""One session with a real server: silence, absence, expiry, and the end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from kazoo.protocol.states import KeeperState

from tests.support.virtual_time import run_virtual
from tests.support.zookeeper import LOOPBACK, Server, free_port
from tests.support.zookeeper_clients import (
    PATIENCE_S,
    Cluster,
    hands,
    never_blocked,
    until,
)
from understudy.ha.backends.zookeeper import session
from understudy.ha.backends.zookeeper.register import ZooKeeperRegister
from understudy.ha.backends.zookeeper.session import Session, SessionSettings
from understudy.ha.register import Conflict, Release

SESSION_S = 8.0
QUARTER_S = SESSION_S / 4
MARGIN_S = 3.0
"""What a machine that does something else adds; below the time that kazoo itself would need."""


@pytest.fixture(scope="module")
def freezer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a server that may be frozen; it is thawed for the next test."""
    with Server(tmp_path_factory.mktemp("freezer")) as server:
        yield server


@pytest.fixture
def frozen(freezer: Server) -> Iterator[Cluster]:
    """Return a cluster whose server the test freezes."""
    yield Cluster(
        freezer.connect_string, ZK_SESSION_TIMEOUT=f"{SESSION_S} s", ZK_CONNECTION_TIMEOUT="10 s"
    )
    freezer.thaw()


async def at_last(request: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Send a request until it is answered: a thawed server may still end what was given up."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(OSError):
                with contextlib.suppress(Conflict):  # Then an earlier one was done.
                    await request()
                return


def connected(register: ZooKeeperRegister) -> bool:
    return bool(register.status()["connected"])


# --- a server that is silent ----------------------------------------------------------------------


@pytest.mark.parametrize("patience_s", [SESSION_S / 10, 2 * SESSION_S])
def test_a_silent_server_is_noticed_in_a_quarter_of_the_session_however_busy_we_are(
    freezer: Server, frozen: Cluster, patience_s: float
) -> None:
    """kazoo takes each request for a sign of life of the server (see its ping_outstanding)."""

    async def scenario() -> None:
        register = frozen.open()
        version = await register.swap("leader", b"one", None)

        async def busy() -> None:
            while True:
                try:
                    async with asyncio.timeout(patience_s):
                        await register.load("leader")
                except (OSError, TimeoutError):
                    continue
                await asyncio.sleep(0.01)

        async with never_blocked():
            working = [asyncio.ensure_future(busy()) for _ in range(3)]
            await asyncio.sleep(0.05)
            began = time.monotonic()
            await asyncio.to_thread(freezer.freeze)  # It stops once its disk has answered it.
            frozen_s = time.monotonic() - began
            noticed_after = await until(lambda: not connected(register))
            await asyncio.to_thread(freezer.thaw)
            await until(lambda: connected(register))
            for one in working:
                one.cancel()
        assert QUARTER_S / 2 <= frozen_s + noticed_after
        assert noticed_after <= QUARTER_S + MARGIN_S
        await at_last(lambda: register.swap("leader", None, version))

    asyncio.run(scenario())


class SilentWire:
    """A connection to a server that answers nothing; see `_Client`."""

    client_state = KeeperState.CONNECTED

    def __init__(self) -> None:
        self.dropped_at: list[float] = []

    @property
    def wire(self) -> SilentWire:
        """Return what carries it."""
        return self

    def drop(self) -> None:
        """See `_Wire.drop`."""
        self.dropped_at.append(asyncio.get_running_loop().time())

    def rawlink(self, tell: Callable[[object], None]) -> None:
        """Have nobody told, ever."""


@pytest.mark.parametrize("verb", ["read", "write"])
@pytest.mark.parametrize("patience_s", [SESSION_S / 100, SESSION_S])
def test_silence_breaks_the_connection_though_nobody_waits_any_more(
    verb: str, patience_s: float
) -> None:
    """Whoever has no patience asks again and again, and the server is as silent for all of them."""
    wire = SilentWire()

    async def scenario() -> None:
        session = Session(SessionSettings((("nowhere", 2181),), SESSION_S, 10.0))
        session._client = cast("Any", wire)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(patience_s):
                await getattr(session, verb)(lambda client: client)
        await asyncio.sleep(SESSION_S)

    run_virtual(scenario())

    assert [QUARTER_S] == wire.dropped_at


def test_what_is_asked_without_a_connection_is_never_done_later(
    freezer: Server, frozen: Cluster
) -> None:
    async def scenario() -> None:
        register = frozen.open(ZK_CONNECTION_TIMEOUT="1 s")
        await at_last(lambda: register.load("leader"))
        freezer.freeze()
        with pytest.raises(OSError, match="broke"):
            await register.swap("lost", b"sent when nobody knew", None)
        await until(lambda: not connected(register))
        given_up = asyncio.ensure_future(register.swap("impatient", b"value", None))
        began = time.monotonic()
        with pytest.raises(OSError, match="accepts a session"):
            await register.swap("patient", b"value", None)
        waited_s = time.monotonic() - began
        await asyncio.gather(given_up, return_exceptions=True)
        freezer.thaw()
        await until(lambda: connected(register))
        await at_last(lambda: register.swap("after", b"value", None))
        keys = set(await register.keys(""))

        assert 0.8 <= waited_s <= 1 + MARGIN_S
        assert {"after"} <= keys <= {"after", "lost"}

    asyncio.run(scenario())


def test_a_request_is_sent_at_once_or_not_at_all(frozen: Cluster) -> None:
    """Where kazoo would queue it for the next connection."""

    async def scenario() -> None:
        register = frozen.open()
        await register.load("leader")
        client = register._session._client
        assert client is not None
        state, client._state = client._state, "CONNECTING"
        asked = client.set_async("/anything", b"")
        client._state = state

        assert asked.ready()
        assert "ConnectionLoss" == type(asked.exception).__name__

    asyncio.run(scenario())


# --- a quorum that is not there -------------------------------------------------------------------


@pytest.fixture
def nowhere(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return a quorum that does not answer: it refuses, has no address, or says nothing."""
    if request.param == "refuses":
        yield f"{LOOPBACK}:{free_port()}"
    elif request.param == "unknown":
        yield "nowhere.invalid:2181"
    else:
        with socket.create_server((LOOPBACK, 0)) as silent:
            yield f"{LOOPBACK}:{silent.getsockname()[1]}"


@pytest.mark.parametrize("nowhere", ["refuses", "unknown", "silent"], indirect=True)
def test_a_quorum_that_does_not_answer_is_named_in_time(nowhere: str) -> None:
    async def scenario() -> None:
        register = Cluster(nowhere, ZK_CONNECTION_TIMEOUT="0.4 s").open()
        async with never_blocked():
            for verb in (register.load("leader"), register.swap("leader", b"one", None)):
                began = time.monotonic()
                with pytest.raises(OSError, match=nowhere):
                    await verb
                assert time.monotonic() - began < 0.4 + MARGIN_S
            register.release()

    asyncio.run(scenario())


def test_a_silent_member_is_passed_over(zookeeper: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others must be reached long before the session has expired."""
    monkeypatch.setattr(random, "shuffle", lambda hosts: None)  # The silent one is tried first.
    with socket.create_server((LOOPBACK, 0)) as silent:
        port = silent.getsockname()[1]
        cluster = Cluster(f"{LOOPBACK}:{port},{zookeeper.connect_string}")

        async def scenario() -> float:
            began = time.monotonic()
            await cluster.open(ZK_SESSION_TIMEOUT="16 s").load("leader")
            return time.monotonic() - began

        assert asyncio.run(scenario()) < 2 + MARGIN_S  # kazoo itself would wait for 8 s.


# --- the session ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "granted_s"), [("0.3 s", 1.0), ("5 s", 5.0), ("200 s", 60.0)])
def test_the_timeout_that_the_servers_grant_is_what_counts(
    zookeeper: Server, asked: str, granted_s: float
) -> None:
    async def scenario() -> float:
        latch = Cluster(zookeeper.connect_string, ZK_SESSION_TIMEOUT=asked).open().latch("me", b"")
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with contextlib.suppress(OSError):  # So short a session bears no pause.
                    await latch.ahead()
                    return latch.session_s

    assert granted_s == asyncio.run(scenario())


@pytest.mark.parametrize("asked_first", [True, False])
def test_who_wants_to_give_up_a_session_is_told_of_each(
    zookeeper: Server, *, asked_first: bool
) -> None:
    told: list[Release] = []

    async def scenario() -> None:
        register = Cluster(zookeeper.connect_string).open()
        if asked_first:
            register.on_release(told.append)
        await register.load("leader")
        if not asked_first:
            register.on_release(told.append)
        await until(lambda: len(told) == 1)
        first = register.status()["session"]
        give_up(told[0])
        await until(lambda: len(told) == 2)

        assert first != register.status()["session"]
        await register.load("leader")
        assert told[0] != told[1]

    asyncio.run(scenario())


def give_up(release: Release) -> None:
    """Run what a guardian runs."""
    done = subprocess.run(
        release.argv, input=release.input, text=True, capture_output=True, timeout=30, check=False
    )
    assert (0, "") == (done.returncode, done.stderr)


def test_giving_up_a_session_again_does_no_harm(zookeeper: Server) -> None:
    told: list[Release] = []

    async def scenario() -> None:
        register = Cluster(zookeeper.connect_string).open()
        register.on_release(told.append)
        await register.load("leader")
        await until(lambda: bool(told))
        register.release()

    asyncio.run(scenario())
    give_up(told[0])


@pytest.mark.parametrize("watching", [True, False])
def test_a_register_that_nobody_uses_any_more_closes_its_session(
    zookeeper: Server, *, watching: bool
) -> None:
    sessions: list[str] = []

    async def scenario() -> None:
        register = Cluster(zookeeper.connect_string).open()
        await register.swap("leader", b"one", None)
        if watching:
            changes = register.changes("leader")
            await anext(changes)
        sessions.append(str(register.status()["session"]))
        assert _is_connected(zookeeper, sessions[0])

    asyncio.run(scenario())
    gc.collect()
    asyncio.run(until(lambda: not _is_connected(zookeeper, sessions[0])))


def _is_connected(server: Server, session: str) -> bool:
    return f"sid={session}," in server.ask("cons")


def test_an_event_loop_is_not_held_up_by_a_register_that_is_forgotten_in_it(
    freezer: Server, frozen: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector may take it at any time, as when its server does not answer."""
    monkeypatch.setattr(session, "CLOSE_S", PATIENCE_S)

    async def scenario() -> float:
        register = frozen.open()
        await register.load("leader")
        await asyncio.to_thread(freezer.freeze)
        gc.collect()  # What other tests have left.
        began = time.monotonic()
        del register
        gc.collect()
        return time.monotonic() - began

    assert asyncio.run(scenario()) < MARGIN_S


@pytest.mark.parametrize("forgotten", [True, False])
def test_a_process_that_ends_closes_its_session_and_says_nothing(
    zookeeper: Server, *, forgotten: bool
) -> None:
    cluster = Cluster(zookeeper.connect_string, ZK_SESSION_TIMEOUT="60 s")
    script = (
        "import asyncio, json, sys\n"
        "from understudy.ha.backends.zookeeper import session\n"
        "from understudy.ha.backends.zookeeper.register import open_register\n"
        "session.CLOSE_S = 20.0\n"  # A busy server may take its time.
        "register = open_register(sys.argv[1], json.loads(sys.argv[2]))\n"
        "latch = register.latch('me', b'note')\n"
        "async def scenario():\n"
        "    print(await latch.ahead())\n"
        "asyncio.run(scenario())\n" + ("del latch, register\n" if forgotten else "")
    )

    done = subprocess.run(
        [sys.executable, "-c", script, cluster.name, json.dumps(dict(cluster.settings))],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    with hands(zookeeper) as client:
        line = client.get_children(f"{cluster.path}/latch")

    assert (0, "None\n", "") == (done.returncode, done.stdout, done.stderr)
    assert [] == line


def test_it_is_closed_where_no_thread_can_be_started_any_more(
    zookeeper: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at the end of an interpreter (Python 3.12)."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    register = Cluster(zookeeper.connect_string).open()
    asyncio.run(register.keys(""))
    session = str(register.status()["session"])
    connected_before = _is_connected(zookeeper, session)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        register.release()

    assert connected_before
    asyncio.run(until(lambda: not _is_connected(zookeeper, session)))


def test_one_register_serves_many_loops_one_after_the_other_and_at_once(zookeeper: Server) -> None:
    register = Cluster(zookeeper.connect_string).open()

    def count(number: int) -> None:
        asyncio.run(_write(register, f"key-{number}"))

    count(0)
    count(1)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(2, 34)))

    assert 34 == len(asyncio.run(register.keys("key-")))


async def _write(register: ZooKeeperRegister, key: str) -> None:
    version = await register.swap(key, b"0", None)
    for number in range(3):
        version = await register.swap(key, b"%d" % number, version)


@pytest.mark.long
def test_servers_that_have_lost_all_data_are_spoken_to_again(tmp_path: Path) -> None:
    """They refuse who has seen more than they have; a client that remembers would wait for ever."""

    async def scenario(server: Server) -> None:
        cluster = Cluster(server.connect_string)
        writer, register = cluster.open(), cluster.open(ZK_SESSION_TIMEOUT=f"{SESSION_S} s")
        version = await writer.swap("leader", b"0", None)
        for number in range(50):
            version = await writer.swap("leader", b"%d" % number, version)
        await at_last(lambda: register.load("leader"))
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(shutil.rmtree, server.directory / "data")
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    found = await register.load("leader")
                except OSError:
                    continue
                break

        assert found is None

    with Server(tmp_path) as server:
        asyncio.run(scenario(server))
