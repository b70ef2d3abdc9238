"""The versioned register: the one thing that a coordination backend must provide.

A register maps short keys to small values. A value is replaced only if nobody else has replaced
it since the caller read it. Election, retrieval and every store are written once, above this
protocol, and work on any backend that passes ``tests/contract/test_register.py``.

A register promises linearizable reads and writes of one key, and nothing across keys. It has no
notion of a leader: ``ha.documents`` does the fencing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable
from urllib.parse import quote, unquote

from understudy.errors import Conflict

__all__ = [
    "VALUE_BYTES_MAX",
    "Announcing",
    "Conflict",
    "Entry",
    "Informative",
    "ListsClusters",
    "Notice",
    "Pushed",
    "Register",
    "Releasable",
    "Release",
    "SelfProving",
    "status_of",
]

VALUE_BYTES_MAX = 1_000_000
"""The smallest backend's limit: a Kubernetes ConfigMap is capped at 1 MiB, keys included."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A value, and the version that a later ``swap`` must name."""

    value: bytes
    version: str
    place: str = field(default="", compare=False)
    """Where people find the value, for messages: a path, if there is one."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """A wake-up with the entry that the backend has sent along."""

    entry: Entry | None
    """None: the key was absent."""


class Register(Protocol):
    """Small values that outlive every JobManager, each replaced only by compare-and-swap.

    Every method may raise ``OSError`` or ``TimeoutError``: then the outcome is unknown, and the
    caller reads again before it decides. `DataError` means that the value exists and is damaged,
    so a retry would not help. A paused or dead caller never blocks another one.
    """

    async def load(self, key: str) -> Entry | None:
        """Return the latest committed entry; None if the key is absent."""
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

    def changes(self, key: str) -> AsyncIterator[Pushed | None]:
        """Wake the caller at once, and whenever this key may have been created, changed or deleted.

        A wake-up is only a hint: wake-ups can be merged or spurious, so the caller loads again. A
        backend that sends entries may yield `Pushed`, which spares the caller the load: never an
        older state than one that this register has loaded or yielded before, and another wake-up
        follows each later change.
        """
        ...


@runtime_checkable
class Informative(Protocol):
    """A register that reports the state of its connection to people; optional."""

    def status(self) -> Mapping[str, object]:
        """Return the state as known here, as JSON; must neither wait nor raise.

        ``/ha/status`` shows all fields. A number is also a metric: ``session_age_seconds`` becomes
        ``understudy_register_session_age_seconds``; a name that ends in ``_total`` is a counter.
        """
        ...


def status_of(register: Register) -> Mapping[str, object]:
    """Return a register's status; empty if the register does not report one."""
    return register.status() if isinstance(register, Informative) else {}


@dataclass(frozen=True, slots=True)
class Release:
    """A program that releases a dead process's holdings in the backend, and the program's input."""

    argv: tuple[str, ...]
    input: str = field(repr=False)


@runtime_checkable
class Releasable(Protocol):
    """A register whose backend waits for a dead process until notified of the death."""

    def on_release(self, notify: Callable[[Release], None]) -> None:
        """Call ``notify`` with the program that releases the holdings, now and after each change.

        ``notify`` runs in another thread.
        """
        ...

    def release(self) -> None:
        """Release the holdings at the end of this process; takes a second at most."""
        ...


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that happened to the cluster, and that its people want to see."""

    reason: str
    """One word, the same for all notices of this kind: ``LeaderElected``."""
    message: str
    warning: bool = False


@runtime_checkable
class Announcing(Protocol):
    """A register whose backend shows people what happens to the cluster; optional."""

    def announce(self, notice: Notice) -> None:
        """Have a notice shown; called in the event loop, must neither wait nor raise."""
        ...


@runtime_checkable
class ListsClusters(Protocol):
    """A register whose backend can list its clusters."""

    async def clusters(self) -> list[str]:
        """Return the directory names of all clusters, sorted; usable as cluster ids."""
        ...


@runtime_checkable
class SelfProving(Protocol):
    """A register with its own check at start-up, which replaces the trial of compare-and-swap."""

    async def prove(self) -> None:
        """Raise ``OSError`` unless the register is reachable and writable; leave nothing behind."""
        ...


# --- names of files and nodes for keys: never a path, never hidden --------------------------------


def quoted(key: str) -> str:
    """Return the name of a key, without slashes and dots: ``..`` would leave the directory."""
    return quote(key, safe="").replace(".", "%2E")


def unquoted(name: str) -> str:
    """Return the key of a name."""
    return unquote(name)


# --- a line of contenders, which a backend may keep by its sessions -------------------------------


class Latch(Protocol):
    """One contender's view of a line: the first may lead; one that left is dead or has stopped.

    A contender's place in line lasts as long as its session. The backend ends a session that is
    silent for ``session_s``. Methods may raise ``OSError`` or ``TimeoutError``.
    """

    @property
    def session_s(self) -> float:
        """Return the session timeout that the backend granted."""
        ...

    async def ahead(self) -> str | None:
        """Join the line if not in it yet; return the contender just ahead, None for the first."""
        ...

    async def moved(self) -> None:
        """Return once the contender ahead may have changed since the last `ahead`."""
        ...

    async def dismiss(self, dead: str) -> None:
        """Remove a contender whose death is proved."""
        ...

    async def renew(self) -> float:
        """Have the backend confirm this contender's place; return when the request was sent.

        Raises `LeadershipLost` if the contender is not in line.
        """
        ...

    async def lost(self) -> str:
        """Return the reason once this contender is no longer in line."""
        ...

    async def leave(self) -> None:
        """Give up the place in line."""
        ...


@runtime_checkable
class HasLatch(Protocol):
    """A register whose backend keeps a line of contenders."""

    def latch(self, me: str, note: bytes) -> Latch:
        """Open the line for one contender; ``note`` is shown to people."""
        ...

    async def line(self) -> list[str]:
        """Return the contenders in order, without joining the line."""
        ...
