"""Retrieval without a register: the configuration gives the one JobManager's address.

TaskManagers and clients of a cluster with ``high-availability.type: NONE`` see one leader at a
fixed address, running or not, and retry that address. All other state is in the JobManager's
memory.
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
"""The process at the configured address leads, whichever it is."""


class ConfiguredLeader:
    """A read-only register with one entry: the leader record with the configured addresses."""

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
        """Return the leader's entry; None for any other key."""
        return self._entry if key == LEADER_KEY else None

    async def swap(self, key: str, value: bytes | None, expected: str | None) -> str:
        """Raise ``OSError``: there is no shared register to write to."""
        raise OSError(errno.EROFS, "high-availability.type is NONE: there is no shared register")

    async def keys(self, prefix: str) -> list[str]:
        """Return the leader's key if it has the prefix."""
        return [LEADER_KEY] if LEADER_KEY.startswith(prefix) else []

    async def changes(self, key: str) -> AsyncIterator[None]:
        """Wake once: the entry never changes."""
        yield
        await asyncio.Event().wait()
