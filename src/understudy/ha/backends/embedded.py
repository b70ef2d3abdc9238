"""A register in this process, for ``python app.py`` and for tests with one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

from understudy.config.backends import Backend, Serves
from understudy.ha.register import Conflict, Entry


class EmbeddedRegister:
    """A register in a dictionary; each method is atomic, as none awaits before its end."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._writes = 0
        self._changed: set[asyncio.Event] = set()

    async def load(self, key: str) -> Entry | None:
        """Return the dictionary's entry."""
        return self._entries.get(key)

    async def swap(self, key: str, value: bytes | None, expected: str | None) -> str:
        """Replace the entry; the version is the number of writes so far."""
        current = self._entries.get(key)
        if (current.version if current else None) != expected:
            raise Conflict(f"{key}: expected version {expected}, found {current}")
        self._writes += 1
        version = str(self._writes)
        if value is None:
            self._entries.pop(key, None)
        else:
            self._entries[key] = Entry(value, version)
        for event in self._changed:
            event.set()
        return version

    async def keys(self, prefix: str) -> list[str]:
        """Return the dictionary's keys that begin with the prefix, sorted."""
        return sorted(key for key in self._entries if key.startswith(prefix))

    async def changes(self, key: str) -> AsyncIterator[None]:
        """Wake at each write, to any key."""
        event = asyncio.Event()
        self._changed.add(event)
        try:
            while True:
                event.clear()
                yield
                await event.wait()
        finally:
            self._changed.discard(event)


def open_register(cluster_id: str, settings: Mapping[str, str]) -> EmbeddedRegister:
    """Open a new register that is visible to this process only."""
    return EmbeddedRegister()


BACKEND = Backend(register=open_register, serves=Serves.PROCESS)
"""Two JobManagers, each with a register of its own, would both lead."""
