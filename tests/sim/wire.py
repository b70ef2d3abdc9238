"""Links between processes: in order, late, held up while a host is cut off, broken by a death."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tests.sim.hosts import Host, SimProcess
from understudy.errors import UnreachableError
from understudy.model import Incarnation, Term
from understudy.rpc.gateway import Envelope, Serve

if TYPE_CHECKING:
    from tests.sim.world import World

M = TypeVar("M")

Listening = tuple[SimProcess, Serve[Any]]

_numbers = itertools.count()

CONNECT_S = 1.0
"""After which a host that is cut off counts as unreachable."""


class SimLink(Generic[M]):
    """One end; see `Link`."""

    def __init__(self, world: World, owner: SimProcess) -> None:
        self.number = next(_numbers)
        self._world = world
        self._owner = owner
        self._inbox: asyncio.Queue[Envelope[M] | None] = asyncio.Queue()
        self._peer: SimLink[M]
        self._arrives = 0.0
        self._closed = False
        self._over = False
        owner.on_reaped.append(self.close)

    def send(self, message: M, term: Term = 0) -> None:
        """See `Link.send`."""
        if self._closed or self._owner.machine.paused:
            return  # The latter has just crashed: what it does until it waits has no effect.
        strikes, owner = self._world.strikes, self._owner
        if not strikes or owner.chance.random() >= strikes:
            self._deliver(Envelope(owner.incarnation, term, message))
            return
        what = type(message).__name__
        if owner.chance.random() < 0.5:
            owner.crash_now(f"before it would send {what}")
        else:
            self._deliver(Envelope(owner.incarnation, term, message))
            owner.crash_now(f"when it has sent {what}")

    async def receive(self) -> Envelope[M] | None:
        """See `Link.receive`."""
        if self._closed or self._over:
            return None
        envelope = await self._inbox.get()
        self._over = envelope is None
        return envelope

    def close(self) -> None:
        """See `Link.close`."""
        if not self._closed:
            self._closed = True
            if self.close in self._owner.on_reaped:
                self._owner.on_reaped.remove(self.close)
            self._world.links.discard(self)
            self._inbox.put_nowait(None)
            self._deliver(None)

    def touches(self, host: Host) -> bool:
        """Say whether one of its ends is on that host."""
        return host in (self._owner.host, self._peer._owner.host)

    def reset(self) -> None:
        """Break, for both ends, with all that is on its way."""
        for end in (self, self._peer):
            if not end._closed:
                end._closed = True
                self._world.links.discard(end)
                if end._owner.alive:
                    end._inbox.put_nowait(None)

    def _deliver(self, envelope: Envelope[M] | None) -> None:
        world, peer = self._world, self._peer
        held = max(self._owner.host.cut_until, peer._owner.host.cut_until)
        now = world.time.now
        delay_s = world.wire_s * self._owner.chance.uniform(0.1, 1.9)
        self._arrives = max(self._arrives, now + delay_s, held if held > now else 0.0)

        def arrive() -> None:
            if peer._owner.alive and not peer._closed:
                peer._inbox.put_nowait(envelope)

        world.time.at(self._arrives, arrive)


def link_pair(world: World, one: SimProcess, other: SimProcess) -> tuple[SimLink[M], SimLink[M]]:
    """Return the two ends of a link."""
    first: SimLink[M] = SimLink(world, one)
    second: SimLink[M] = SimLink(world, other)
    first._peer, second._peer = second, first
    return first, second


class SimNetwork(Generic[M]):
    """All that listens, as one process reaches it; see `Network`."""

    def __init__(self, world: World, process: SimProcess) -> None:
        self._world = world
        self._process = process

    def address_of(self, incarnation: Incarnation) -> str:
        """See `Network.address_of`."""
        return f"sim:{incarnation}"

    async def connect(self, address: str, sender: Incarnation) -> SimLink[M]:
        """See `Network.connect`."""
        await asyncio.sleep(self._world.wire_s)
        listening = self._world.listening.get(address)
        if listening is None or not listening[0].alive:
            raise UnreachableError(f"{address}: nobody listens")
        server, serve = listening
        if max(self._process.host.cut_until, server.host.cut_until) > self._world.time.now:
            await asyncio.sleep(CONNECT_S)
            raise UnreachableError(f"{address}: no answer")
        ends: tuple[SimLink[M], SimLink[M]] = link_pair(self._world, self._process, server)
        mine, theirs = ends
        self._world.links.add(mine)
        server.machine.create_task(_serve(serve, theirs))
        return mine

    @contextlib.asynccontextmanager
    async def listen(self, incarnation: Incarnation, serve: Serve[M]) -> AsyncIterator[None]:
        """See `Network.listen`."""
        address = self.address_of(incarnation)
        self._world.listening[address] = (self._process, serve)
        try:
            yield
        finally:
            self._world.listening.pop(address, None)


async def _serve(serve: Serve[M], link: SimLink[M]) -> None:
    try:
        await serve(link)
    finally:
        link.close()
