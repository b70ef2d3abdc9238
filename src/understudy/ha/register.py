"""The one thing that a coordination backend must provide: a versioned register.

A register maps short keys to small values and replaces a value only if nobody else has replaced
it since it was read. Election, retrieval and every store are written once, above this protocol,
and work on any backend that passes ``tests/contract/test_register.py``.

It promises linearizable reads and writes of one key, and nothing across keys. It does not know
what a leader is: fencing is the business of ``ha.documents``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, runtime_checkable

from understudy.errors import Conflict

__all__ = [
    "VALUE_BYTES_MAX",
    "Conflict",
    "Entry",
    "Informative",
    "ListsClusters",
    "Register",
    "Releasable",
    "Release",
    "SelfProving",
    "is_of_one_process",
    "of_one_process",
    "status_of",
]

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

    def changes(self, key: str) -> AsyncIterator[None]:
        """Wake the caller at once, and whenever this key may have changed, come or gone.

        Only a hint: wake-ups can be merged or spurious, so the caller loads again.
        """
        ...


F = TypeVar("F")


def of_one_process(factory: F) -> F:
    """Declare that only the process sees a register that opens it: no cluster can be of it.

    Two JobManagers, each with a register of its own, would both lead.
    """
    setattr(factory, _OF_ONE_PROCESS, True)
    return factory


def is_of_one_process(factory: object) -> bool:
    """Say whether a factory of registers has declared that."""
    return getattr(factory, _OF_ONE_PROCESS, False) is True


_OF_ONE_PROCESS = "of_one_process"


@runtime_checkable
class Informative(Protocol):
    """What a backend may offer beside `Register`: what people should know of its connection."""

    def status(self) -> Mapping[str, object]:
        """Return what is known without asking anybody, as JSON: it must neither wait nor raise.

        ``/ha/status`` shows all of it. What is a number is a metric too: of ``session_age_seconds``
        it makes ``understudy_register_session_age_seconds``, a counter where it ends in ``_total``.
        """
        ...


def status_of(register: Register) -> Mapping[str, object]:
    """Return what a register tells of itself; nothing where it does not."""
    return register.status() if isinstance(register, Informative) else {}


@dataclass(frozen=True, slots=True)
class Release:
    """A program that gives up what a dead process held in the backend, and what it is told."""

    argv: tuple[str, ...]
    told: str = field(repr=False)


@runtime_checkable
class Releasable(Protocol):
    """A register whose backend would wait for a dead process: it can be told of the death."""

    def on_release(self, tell: Callable[[Release], None]) -> None:
        """Have what gives up the present holdings told, and again whenever it changes.

        ``tell`` is called from another thread.
        """
        ...

    def release(self) -> None:
        """Give them up, at the end of this process; takes a second at most."""
        ...


@runtime_checkable
class ListsClusters(Protocol):
    """A register whose backend knows which clusters it holds."""

    async def clusters(self) -> list[str]:
        """Return the directory names of all clusters, sorted; they serve as ids."""
        ...


@runtime_checkable
class SelfProving(Protocol):
    """A register that need not be tried out, as its servers are what it relies on."""

    async def prove(self) -> None:
        """Raise ``OSError`` unless it can be reached and written to; leave nothing behind."""
        ...
