"""A line of contenders in virtual time, with sessions that expire and messages that are delayed.

`Ensemble` outlives every contender; `FakeLatch` connects one contender to it, over a `Wire` that
may be cut. A session ends ``session_s`` after the ensemble last *heard* of its client, rounded up
to a tick. The ensemble hears of a follower's clients every half tick: the messages since then are
lost if the follower is cut off. Without a quorum no session expires, and the next leader gives
every session its full time.

As with kazoo, an idle client sends a ping in each third of its session and checks regularly whether
it is connected again; a request without an answer fails after a quarter of the session.
"""

from __future__ import annotations

import asyncio
import errno
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tests.support.virtual_time import Machine, VirtualTime
from understudy.errors import LeadershipLost

R = TypeVar("R")

TRAVEL_S = 0.02
"""Travel time of a message, each way."""

ROUNDING_S = 1e-6


@dataclass
class Wire:
    """The faults between a client and the ensemble."""

    cut: bool = False
    """No message arrives in either direction."""
    deaf: bool = False
    """Requests arrive, but no answers."""
    minority: bool = False
    """The server answers pings but is cut off from the quorum."""


@dataclass
class _Session:
    heard_at: float
    expires_at: float


class Ensemble:
    """The sessions and the line of contenders."""

    def __init__(self, world: VirtualTime, session_s: float = 10.0, tick_s: float = 0.5) -> None:
        self.world = world
        self.session_s = session_s
        self.tick_s = tick_s
        self.line: dict[str, int] = {}
        """The nodes in order, each with its session."""
        self.latches: list[FakeLatch] = []
        self.reads = 0
        """How often the line was read."""
        self.writes = 0
        self._sessions: dict[int, _Session] = {}
        self._last_session = self._last_node = 0
        self._quorum = True

    @property
    def has_quorum(self) -> bool:
        """Return whether there is a quorum."""
        return self._quorum

    @has_quorum.setter
    def has_quorum(self, there: bool) -> None:
        if there and not self._quorum:
            self._quorum = True
            for number in self._sessions:
                self._hear(number)
        self._quorum = there

    def open(self) -> int:
        """Open a session and return its number."""
        self._last_session += 1
        self._sessions[self._last_session] = _Session(self.world.now, math.inf)
        self._hear(self._last_session)
        return self._last_session

    def lives(self, number: int) -> bool:
        """Return whether a session has not ended."""
        return number in self._sessions

    def touch(self, number: int, wire: Wire) -> None:
        """Receive a message of a client; the quorum hears of it at the next half tick."""
        half_s = self.tick_s / 2
        at = (math.floor(self.world.now / half_s + ROUNDING_S) + 1) * half_s
        self.world.at(at, lambda: None if wire.minority else self._hear(number))

    def close(self, number: int) -> None:
        """End a session and delete its nodes."""
        if self._sessions.pop(number, None):
            for node in [node for node, owner in self.line.items() if owner == number]:
                self.delete(node)

    def create(self, me: str, number: int) -> str:
        """Append a node to the line."""
        self._last_node += 1
        self.writes += 1
        node = f"{me}-{self._last_node:010d}"
        self.line[node] = number
        return node

    def delete(self, node: str) -> None:
        """Remove a node, and notify its watchers."""
        self.writes += 1
        if self.line.pop(node, None) is not None:
            for latch in self.latches:
                if node in latch.watched:
                    self.world.after(TRAVEL_S, latch.hear)

    def _hear(self, number: int) -> None:
        session = self._sessions.get(number)
        if session is None:
            return
        ticks = math.ceil((self.world.now + self.session_s) / self.tick_s - ROUNDING_S)
        session.heard_at, session.expires_at = self.world.now, ticks * self.tick_s
        self.world.at(session.expires_at, lambda: self._expire(number))

    def _expire(self, number: int) -> None:
        session = self._sessions.get(number)
        if session and self._quorum and session.expires_at <= self.world.now + ROUNDING_S:
            self.close(number)


class FakeLatch:
    """The latch of one contender, on a machine of its own."""

    def __init__(self, ensemble: Ensemble, machine: Machine, me: str, wire: Wire) -> None:
        self.wire = wire
        self.watched: frozenset[str] = frozenset()
        self.creates_without_answer = 0
        """How many of the next nodes are created with a lost answer."""
        self.number = 0
        """The session's number, as known to this client."""
        self.on_stand: Callable[[], None] = lambda: None
        """Called when this contender is found to be first."""
        self._ensemble = ensemble
        self._machine = machine
        self._me = me
        self._node: str | None = None
        self._session = 0
        self._bells: set[asyncio.Event] = set()
        self._connected = True
        self._said_at = -math.inf
        ensemble.latches.append(self)
        ensemble.world.after(0, self._beat)

    @property
    def session_s(self) -> float:
        """Return the ensemble's session timeout."""
        return self._ensemble.session_s

    async def ahead(self) -> str | None:
        """Create our node if it is missing; return the contender before it."""
        while True:
            number, line = self.number, await self._read()
            mine = None
            for node, owner in line.items():
                if self._of(node) == self._me and (mine or owner != number):
                    await self._ask(lambda node=node: self._ensemble.delete(node))  # type: ignore[misc]
                elif self._of(node) == self._me:
                    mine = node
            if mine is None:
                await self._ask(self._create)
                continue
            nodes = list(line)
            place = nodes.index(mine)
            before = nodes[place - 1] if place else None
            self._node, self._session = mine, number
            self.watched = frozenset(filter(None, (mine, before)))
            if before is None:
                self.on_stand()
            return self._of(before) if before else None

    async def moved(self) -> None:
        """Return when our node, our predecessor's node or the connection changes."""
        bell = self._new_bell()
        try:
            there = await self._ask(lambda: self.watched <= set(self._ensemble.line))
            if there and len(self.watched) > 1 and self.number == self._session:
                await bell.wait()
        finally:
            self._bells.discard(bell)

    async def dismiss(self, dead: str) -> None:
        """Delete the nodes of a dead contender."""
        for node in await self._read():
            if self._of(node) == dead:
                await self._ask(lambda node=node: self._ensemble.delete(node))  # type: ignore[misc]

    async def renew(self) -> float:
        """Confirm our node, counted as a write."""
        node, sent_at = self._node, self._machine.clock.now()
        if node is None or self.number != self._session:
            raise LeadershipLost("the session was lost")
        if not await self._ask(lambda: node in self._ensemble.line):
            raise LeadershipLost("our place in line is gone")
        if self.number != self._session:
            raise LeadershipLost("the session was lost")
        self._ensemble.writes += 1
        return sent_at

    async def lost(self) -> str:
        """Return the reason once our node or session is gone."""
        bell = self._new_bell()
        try:
            while True:
                bell.clear()
                node = self._node
                if node is None or self.number != self._session:
                    return "the session was lost"
                try:
                    if self._reachable() and not await self._ask(
                        lambda node=node: node in self._ensemble.line  # type: ignore[misc]
                    ):
                        return "our place in line is gone"
                except OSError:
                    continue
                await bell.wait()
        finally:
            self._bells.discard(bell)

    async def leave(self) -> None:
        """Delete our nodes."""
        self._node = None
        for node in await self._read():
            if self._of(node) == self._me:
                await self._ask(lambda node=node: self._ensemble.delete(node))  # type: ignore[misc]

    def hear(self) -> None:
        """Ring the bells, unless the message is lost."""
        if self._reachable() and not self.wire.deaf:
            self._ring()

    def _ring(self) -> None:
        for bell in self._bells:
            self._machine.call_soon_threadsafe(bell.set)

    def _new_bell(self) -> asyncio.Event:
        bell = asyncio.Event()
        self._bells.add(bell)
        return bell

    async def _read(self) -> dict[str, int]:
        def read() -> dict[str, int]:
            self._ensemble.reads += 1
            return dict(self._ensemble.line)

        return await self._ask(read)

    def _create(self) -> None:
        self._ensemble.create(self._me, self.number)
        if self.creates_without_answer:
            self.creates_without_answer -= 1
            raise ConnectionResetError(errno.ECONNRESET, "the answer was lost")

    async def _ask(self, act: Callable[[], R]) -> R:
        """Perform a request at the ensemble, over the wire."""
        await asyncio.sleep(TRAVEL_S)
        if not self._reachable():
            await self._silence()
        if not self._ensemble.lives(self.number):
            self._look_in()
            raise ConnectionResetError(errno.ECONNRESET, "the session was lost")
        self._touch()
        answer = act()
        await asyncio.sleep(TRAVEL_S)
        if self.wire.deaf or not self._reachable():
            await self._silence()
        return answer

    async def _silence(self) -> None:
        if self._machine.crashed:
            await asyncio.Event().wait()
        await asyncio.sleep(self.session_s / 4)
        raise ConnectionResetError(errno.ECONNRESET, "no answer")

    def _reachable(self) -> bool:
        """Return whether the quorum is reachable."""
        wire = self.wire
        return not (
            wire.cut or wire.minority or self._machine.crashed or not self._ensemble.has_quorum
        )

    def _beat(self) -> None:
        """Do the regular work of kazoo's thread."""
        if self._machine.crashed:
            return
        if not self._machine.paused:
            self._look_in()
        self._ensemble.world.after(self.session_s / 20, self._beat)

    def _look_in(self) -> None:
        connected = self._reachable() and not self.wire.deaf
        if connected != self._connected:
            self._connected = connected
            self._ring()
        if self._reachable() and not self._ensemble.lives(self.number):
            self.number = self._ensemble.open()
            self._ring()
        if not self.wire.cut and self._ensemble.world.now >= self._said_at + self.session_s / 3:
            self._touch()

    def _touch(self) -> None:
        self._said_at = self._ensemble.world.now
        self._ensemble.touch(self.number, self.wire)

    @staticmethod
    def _of(node: str) -> str:
        return node.rpartition("-")[0]
