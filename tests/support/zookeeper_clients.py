"""Access to ZooKeeper for tests: registers, and clients that change nodes by hand."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

from kazoo.client import KazooClient

from tests.support.zookeeper import Server
from understudy.config import options
from understudy.ha.backends.zookeeper import options as zk
from understudy.ha.backends.zookeeper.register import ZooKeeperRegister, open_register

PATIENCE_S = 30.0
"""How long a test waits for anything; the machine may be busy."""

TICK_S = 0.01

ROOT = "/understudy"


class Cluster:
    """The nodes of one cluster, used by one test only."""

    def __init__(self, quorum: str, **settings: str) -> None:
        self.name = f"cluster-{uuid.uuid4().hex[:8]}"
        self.path = f"{ROOT}/{self.name}"
        self.settings: Mapping[str, str] = {
            options.HA_TYPE.key: "zookeeper",
            zk.ZK_QUORUM.key: quorum,
            zk.ZK_SESSION_TIMEOUT.key: "10 s",
            **{getattr(zk, name).key: value for name, value in settings.items()},
        }

    def open(self, **settings: str) -> ZooKeeperRegister:
        """Open the register again, as another process would; ``settings`` by option names."""
        more = {getattr(zk, name).key: value for name, value in settings.items()}
        return open_register(self.name, {**self.settings, **more})

    def entry(self, key: str) -> str:
        """Return the node of a key."""
        return f"{self.path}/register/{key}"


@contextlib.contextmanager
def hands(server: Server, **arguments: Any) -> Iterator[KazooClient]:
    """Yield a client for changing nodes by hand."""
    client = KazooClient(server.connect_string, timeout=10.0, **arguments)
    client.start(PATIENCE_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


async def until(holds: Callable[[], bool], limit_s: float = PATIENCE_S) -> float:
    """Return as soon as a condition holds, with the seconds waited."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() < began + limit_s, "it never came to hold"
        await asyncio.sleep(TICK_S)
    return time.monotonic() - began


@contextlib.asynccontextmanager
async def never_blocked(limit_s: float = 0.4) -> AsyncIterator[None]:
    """Fail if the event loop was blocked for ``limit_s`` at once while other threads ran."""
    gaps: list[tuple[float, float]] = []
    beats: list[float] = []
    over = threading.Event()

    async def tick() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(TICK_S)
            gaps.append((before, time.monotonic()))

    def beat() -> None:
        while not over.wait(TICK_S):
            beats.append(time.monotonic())

    threading.Thread(target=beat, daemon=True).start()
    ticking = asyncio.ensure_future(tick())
    try:
        yield
    finally:
        ticking.cancel()
        over.set()
    for began, ended in gaps:
        others = sum(began < beat < ended for beat in beats)
        blocked = ended - began >= limit_s and others >= limit_s / TICK_S / 2
        assert not blocked, f"the loop stood still for {ended - began:.3f} s"
