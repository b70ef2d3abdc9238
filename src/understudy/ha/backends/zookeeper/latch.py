"""The line of contenders: one ephemeral node each, ``<incarnation>-<number>``.

The first in line leads. Each of the others watches only its predecessor, so one departure wakes one
contender. A node disappears with its session: when the session expires, when its owner closes it,
or when the owner's guardian closes it after reaping the last descendant of a dead worker.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from operator import methodcaller

from kazoo import exceptions

from understudy.clock import SystemClock
from understudy.errors import LeadershipLost
from understudy.ha.backends.zookeeper.session import Bell, Session, synced

RACES_MAX = 1_000
"""How often the line's node may be removed just when this process joins the line."""

_NODE = re.compile(r"(.+)-([0-9]{10})")


@dataclass(frozen=True)
class Parents:
    """Functions that create missing nodes above the line, and remove empty ones."""

    make: Callable[[str], Awaitable[None]]
    prune: Callable[[str], Awaitable[None]]


class ZooKeeperLatch:
    """One contender's view of the line; see `Latch`."""

    def __init__(
        self,
        session: Session,
        path: str,
        me: str,
        note: bytes,
        parents: Parents,
        *,
        tolerant: bool,
    ) -> None:
        """``tolerant``: a broken connection is no loss while the session certainly lives."""
        self._session = session
        self._path = path
        self._me = me
        self._note = note
        self._parents = parents
        self._tolerant = tolerant
        self._clock = SystemClock()
        self._node: str | None = None
        """Name of our node, while we believe that we are in line."""
        self._number = 0
        """The session that owns our node."""
        self._watched: str | None = None

    @property
    def session_s(self) -> float:
        """Return the session timeout that the ensemble granted."""
        return self._session.session_s

    async def ahead(self) -> str | None:
        """Create our node if it is missing; return the contender of the node before it."""
        for _ in range(RACES_MAX):
            number, line = self._session.number, await self._line()
            mine = await self._mine(line, number)
            if mine is None:
                await self._stand()
                continue
            place = line.index(mine)
            self._node, self._number = mine, number
            self._watched = line[place - 1] if place else None
            return contender(self._watched) if self._watched else None
        raise OSError(f"{self._path} was removed {RACES_MAX} times meanwhile")

    async def moved(self) -> None:
        """Return when our node, our predecessor's node or the connection changes."""
        with self._session.bell() as bell:
            bell.wait_for_next()
            if self._watched is None or self._session.number != self._number:
                return
            if await self._watch(self._watched, bell) and await self._watch(self._node or "", bell):
                await bell.rung()

    async def dismiss(self, dead: str) -> None:
        """Delete the nodes of a dead contender."""
        for node in await self._line():
            if contender(node) == dead:
                await self._remove(node)

    async def renew(self) -> float:
        """Write our node: only a write is acknowledged by a quorum."""
        node, sent_at = self._node, self._clock.now()
        if node is None or self._session.number != self._number:
            raise LeadershipLost("the ZooKeeper session was lost")
        path = f"{self._path}/{node}"
        try:
            await self._session.write(methodcaller("set_async", path, self._note))
        except exceptions.NoNodeError:
            raise LeadershipLost(f"znode {path}, our place in line, is gone") from None
        if self._session.number != self._number:
            raise LeadershipLost("the ZooKeeper session was lost")
        return sent_at

    async def lost(self) -> str:
        """Return the reason once our node or its session is gone."""
        with self._session.bell() as bell:
            while True:
                bell.wait_for_next()
                reason = await self._loss(bell)
                if reason:
                    return reason
                await bell.rung()

    async def leave(self) -> None:
        """Delete our nodes, and the nodes above them if they are empty."""
        self._node = None
        for node in await self._line():
            if contender(node) == self._me:
                await self._remove(node)
        await self._parents.prune(self._path)

    async def _loss(self, bell: Bell) -> str:
        if self._node is None or self._session.number != self._number:
            return "the ZooKeeper session was lost"
        if not self._session.connected:
            return "" if self._tolerant else "the connection to ZooKeeper is suspended"
        try:
            there = await self._watch(self._node, bell)
        except OSError:
            return ""  # The bell rings again when the connection returns.
        return "" if there else f"znode {self._path}/{self._node}, our place in line, is gone"

    async def _watch(self, node: str, bell: Bell) -> bool:
        """Watch a node of the line; return whether it exists."""
        path = f"{self._path}/{node}"
        found = await self._session.read(methodcaller("exists_async", path, bell.ring))
        return found is not None

    async def _line(self) -> list[str]:
        return await nodes_in_line(self._session, self._path)

    async def _mine(self, line: list[str], session: int) -> str | None:
        """Return our node if this session owns one; remove our nodes of lost sessions.

        A request with a lost answer may have created a node that this process does not know.
        """
        mine = None
        for node in line:
            if contender(node) != self._me:
                continue
            stat = await self._session.read(methodcaller("exists_async", f"{self._path}/{node}"))
            if stat is None:
                continue
            if mine is None and stat.ephemeralOwner == session:
                mine = node
            else:
                await self._remove(node)
        return mine

    async def _stand(self) -> None:
        path = f"{self._path}/{self._me}-"
        try:
            await self._session.write(
                methodcaller("create_async", path, self._note, ephemeral=True, sequence=True)
            )
        except exceptions.NoNodeError:
            await self._parents.make(self._path)

    async def _remove(self, node: str) -> None:
        try:
            await self._session.write(methodcaller("delete_async", f"{self._path}/{node}"))
        except exceptions.NoNodeError:
            return


async def nodes_in_line(session: Session, path: str) -> list[str]:
    """Return all nodes of the line in order."""
    try:
        names = await session.read(synced("get_children_async", path))
    except exceptions.NoNodeError:
        return []
    return sorted(filter(_NODE.fullmatch, names), key=lambda name: int(name.rpartition("-")[2]))


def contender(node: str) -> str:
    """Return the contender that a node of the line belongs to."""
    return node.rpartition("-")[0]
