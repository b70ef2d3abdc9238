"""The line of contenders: one ephemeral node each, ``<incarnation>-<number>``.

The first in line leads. Each of the others watches only its predecessor, so that an end wakes one.
A node goes with its session: when the session expired, when its owner closed it, or when the
owner's guardian did, after the last descendant of a dead worker was reaped.
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
"""How often the line may be removed just when this process wants to stand in it."""

_NODE = re.compile(r"(.+)-([0-9]{10})")


@dataclass(frozen=True)
class Parents:
    """The nodes above the line: made when they are missing, removed when they are empty."""

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
        """``tolerant``: a broken connection is no loss, as long as the session surely lives."""
        self._session = session
        self._path = path
        self._me = me
        self._note = note
        self._parents = parents
        self._tolerant = tolerant
        self._clock = SystemClock()
        self._node: str | None = None
        """Our node's name, while we are in line as far as we know."""
        self._number = 0
        """The session that it belongs to."""
        self._watched: str | None = None

    @property
    def session_s(self) -> float:
        """See `Latch.session_s`."""
        return self._session.session_s

    async def ahead(self) -> str | None:
        """See `Latch.ahead`."""
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
        """See `Latch.moved`."""
        with self._session.bell() as bell:
            bell.wait_for_next()
            if self._watched is None or self._session.number != self._number:
                return
            if await self._watch(self._watched, bell) and await self._watch(self._node or "", bell):
                await bell.rung()

    async def dismiss(self, dead: str) -> None:
        """See `Latch.dismiss`."""
        for node in await self._line():
            if contender(node) == dead:
                await self._remove(node)

    async def renew(self) -> float:
        """See `Latch.renew`: only a write is acknowledged by a quorum, so it is one."""
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
        """See `Latch.lost`."""
        with self._session.bell() as bell:
            while True:
                bell.wait_for_next()
                reason = await self._loss(bell)
                if reason:
                    return reason
                await bell.rung()

    async def leave(self) -> None:
        """See `Latch.leave`."""
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
            return ""  # The bell rings again when the connection does.
        return "" if there else f"znode {self._path}/{self._node}, our place in line, is gone"

    async def _watch(self, node: str, bell: Bell) -> bool:
        """Watch a node of the line; say whether it is there."""
        path = f"{self._path}/{node}"
        found = await self._session.read(methodcaller("exists_async", path, bell.ring))
        return found is not None

    async def _line(self) -> list[str]:
        return await nodes_in_line(self._session, self._path)

    async def _mine(self, line: list[str], session: int) -> str | None:
        """Return our node, if that session of ours holds one; those of a lost one are removed.

        An answer that was lost may have left one that nobody here knows of.
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
    """Return all nodes of the line, the first one first."""
    try:
        names = await session.read(synced("get_children_async", path))
    except exceptions.NoNodeError:
        return []
    return sorted(filter(_NODE.fullmatch, names), key=lambda name: int(name.rpartition("-")[2]))


def contender(node: str) -> str:
    """Return whose node of the line it is."""
    return node.rpartition("-")[0]
