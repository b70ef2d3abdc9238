"""A filesystem register that notes each swap, for ``high-availability.type=module:factory``."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from understudy.ha.backends import filesystem
from understudy.ha.register import Entry, Pushed, Register

SWAPS = "BENCHMARK_SWAPS"
"""The environment variable that names the file of notes."""

REGISTER = ".register"
"""What the directory of the register has behind the name of the notes."""


def open_register(cluster_id: str, settings: Mapping[str, str]) -> Register:
    """Open the register that ships, with a note taken of what is written.

    It lies beside the notes: a register in the cluster's own storage is taken for another type's.
    """
    notes = os.environ[SWAPS]
    elsewhere = {**settings, "high-availability.storageDir": f"{notes}{REGISTER}"}
    return CountingRegister(filesystem.open_register(cluster_id, elsewhere), Path(notes))


class CountingRegister:
    """Passes everything on; a swap that was done is noted with its key and size."""

    def __init__(self, register: Register, notes: Path) -> None:
        self._register = register
        self._notes = notes

    async def load(self, key: str) -> Entry | None:
        """See `Register.load`."""
        return await self._register.load(key)

    async def swap(self, key: str, value: bytes | None, expected: str | None) -> str:
        """See `Register.swap`."""
        version = await self._register.swap(key, value, expected)
        with self._notes.open("a") as file:
            file.write(json.dumps({"key": key, "bytes": len(value or b"")}) + "\n")
        return version

    async def keys(self, prefix: str) -> list[str]:
        """See `Register.keys`."""
        return await self._register.keys(prefix)

    def changes(self, key: str) -> AsyncIterator[Pushed | None]:
        """See `Register.changes`."""
        return self._register.changes(key)
