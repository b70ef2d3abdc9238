"""The one thing that a coordination backend must provide: a versioned register.

A register maps short keys to small values and replaces a value only if nobody else has replaced
it since it was read. Election, retrieval and every store are written once, above this protocol,
and work on any backend that passes ``tests/contract/test_register.py``.

It promises linearizable reads and writes of one key, and nothing across keys. It does not know
what a leader is: fencing is the business of ``ha.documents``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol

from understudy.errors import Conflict

__all__ = ["VALUE_BYTES_MAX", "Conflict", "Entry", "Register"]

VALUE_BYTES_MAX = 1_000_000
"""What the smallest backend holds: a Kubernetes ConfigMap is capped at 1 MiB, keys included."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A value together with the version that a later ``swap`` must name."""

    value: bytes
    version: str
    place: str = field(default="", compare=False)
    """Where people find it, for messages: a path, where it is one."""


class Register(Protocol):
    """Small values that outlive every JobManager, each replaced only by compare-and-swap.

    Every method may raise ``OSError`` or ``TimeoutError``: then the outcome is unknown, and the
    caller reads again before it decides. What is there and cannot be had as it was written is a
    `DataError`: another try would not help. A paused or dead caller never blocks another one.
    """

    async def load(self, key: str) -> Entry | None:
        """Return the latest committed entry, or None where the key is absent."""
        ...

    async def swap(self, key: str, value: bytes | None, expected: str | None) -> str:
        """Replace the value and return its new version, or raise `Conflict`.

        ``expected=None`` demands that the key is absent; ``value=None`` deletes it. A version is
        never used twice, not even after a delete.
        """
        ...

    async def keys(self, prefix: str) -> list[str]:
        """List the keys that begin with ``prefix``, sorted."""
        ...

    def changes(self, prefix: str) -> AsyncIterator[None]:
        """Wake the caller at once, and whenever a key with this prefix may have changed.

        Only a hint: wake-ups can be merged or spurious, so the caller loads again.
        """
        ...
