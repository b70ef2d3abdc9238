"""Retrieval without a register: the one JobManager is where the configuration says.

This is what TaskManagers and clients of a cluster with ``high-availability.type: NONE`` see: one
leader, always at the same address, whether it is there or not; they try the same address again.
All else is in the JobManager's memory, and only it can say what that is.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator

from understudy.ha.register import Entry
from understudy.ha.retrieval import LEADER_KEY, encode_leader
from understudy.model import Incarnation, LeaderRecord

VERSION = "configured"

WHOEVER = Incarnation("configured")
"""Whoever serves at the configured address leads."""


class ConfiguredLeader:
    """A register that holds one thing, which nobody can change; see `Register`."""

    def __init__(self, rpc: str, rest: str) -> None:
        record = LeaderRecord(
            holder=WHOEVER,
            term=1,
            session="",
            name="jobmanager",
            rpc=rpc,
            rest=rest,
        )
        self._entry = Entry(encode_leader(record), VERSION)

    async def load(self, key: str) -> Entry | None:
        """See `Register.load`."""
        return self._entry if key == LEADER_KEY else None

    async def swap(self, key: str, value: bytes | None, expected: str | None) -> str:
        """Refuse: what a cluster without high availability knows is in its JobManager's memory."""
        raise OSError(errno.EROFS, "high-availability.type is NONE: there is no shared register")

    async def keys(self, prefix: str) -> list[str]:
        """See `Register.keys`."""
        return [LEADER_KEY] if LEADER_KEY.startswith(prefix) else []

    async def changes(self, key: str) -> AsyncIterator[None]:
        """See `Register.changes`: there are none."""
        yield
        await asyncio.Event().wait()
