"""Injected faults in calls to a register and a storage.

`Durable` outlives every process: a register, a storage, and the history of accepted writes.
`Durable.process` is one process's view of them. `Faults` decides which of its calls fail, are
applied without an answer, or are the process's last.
"""

from __future__ import annotations

import asyncio
import enum
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, TypeVar

from tests.support.memory_storage import MemoryStorage
from understudy.ha.backends.embedded import EmbeddedRegister
from understudy.ha.register import Entry, Pushed, Register
from understudy.ha.storage import InlineStorage

R = TypeVar("R")


class Fault(enum.Enum):
    """A fault of a call."""

    FAILS = "it fails"
    ANSWER_LOST = "it is applied, and fails"
    DIES_BEFORE = "the process dies before it"
    DIES_AFTER = "the process dies after it"

    @property
    def kills(self) -> bool:
        """Return whether the process dies."""
        return self in {Fault.DIES_BEFORE, Fault.DIES_AFTER}


READ_FAULTS = (Fault.FAILS, Fault.DIES_BEFORE)
"""The faults of a read: losing its answer is the same as a failure."""


class Died(BaseException):
    """The process is dead: no later statement has any effect."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a process to the register or the storage."""

    number: int
    verb: str
    subject: str
    writes: bool

    def __str__(self) -> str:
        """Return a description for people."""
        return f"#{self.number} {self.verb} {self.subject}"


@dataclass(frozen=True, slots=True)
class Accepted:
    """A write that took effect; ``value`` None means a removal."""

    verb: str
    subject: str
    value: bytes | None


@dataclass
class Faults:
    """The faults of one process's calls, by number from 0."""

    plan: Mapping[int, Fault] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    dead: bool = False
    lasting: Callable[[Call], bool] = lambda _: False
    """Selects calls that always fail."""

    def begin(self, verb: str, subject: str, *, writes: bool) -> Fault | None:
        """Note a call; return its fault."""
        if self.dead:
            raise Died
        call = Call(len(self.calls), verb, subject, writes)
        self.calls.append(call)
        fault = Fault.FAILS if self.lasting(call) else self.plan.get(call.number)
        if fault is Fault.DIES_BEFORE:
            self.dead = True
            raise Died
        return fault

    def end(self, fault: Fault | None) -> bool:
        """Return whether the answer of an applied call arrives."""
        if fault is Fault.DIES_AFTER:
            self.dead = True
            raise Died
        return fault is not Fault.ANSWER_LOST


class FaultyRegister:
    """One process's view of a register."""

    def __init__(
        self, register: Register, faults: Faults, history: list[Accepted] | None = None
    ) -> None:
        self._register = register
        self._faults = faults
        self._history = history if history is not None else []

    async def load(self, key: str) -> Entry | None:
        """Load, or fail as planned."""
        return await self._read("load", self._register.load, key)

    async def keys(self, prefix: str) -> list[str]:
        """List keys, or fail as planned."""
        return await self._read("keys", self._register.keys, prefix)

    async def swap(self, key: str, value: bytes | None, expected: str | None) -> str:
        """Swap with the planned fault; accepted writes enter the history."""
        await asyncio.sleep(0)  # Other tasks run now, as with any network.
        verb = "remove" if value is None else "create" if expected is None else "swap"
        fault = self._faults.begin(verb, key, writes=True)
        if fault is Fault.FAILS:
            raise TimeoutError(f"{verb} {key}: the request was lost")
        version = await self._register.swap(key, value, expected)
        self._history.append(Accepted(verb, key, value))
        await asyncio.sleep(0)
        if not self._faults.end(fault):
            raise TimeoutError(f"{verb} {key}: the answer was lost")
        return version

    def changes(self, key: str) -> AsyncIterator[Pushed | None]:
        """Follow a key, without faults."""
        return self._register.changes(key)

    async def _read(self, verb: str, function: Callable[[str], Awaitable[R]], subject: str) -> R:
        await asyncio.sleep(0)
        if self._faults.begin(verb, subject, writes=False) is Fault.FAILS:
            raise TimeoutError(f"{verb} {subject}: no answer")
        return await function(subject)


class FaultyStorage:
    """One process's view of a storage (``understudy.ha.storage.BlockingStorage``)."""

    def __init__(self, storage: MemoryStorage, faults: Faults, history: list[Accepted]) -> None:
        self.url = storage.url
        self._storage = storage
        self._faults = faults
        self._history = history

    def read(self, path: str) -> bytes:
        """Read a file, or fail as planned."""
        return self._read("read", self._storage.read, path)

    def names(self, path: str) -> list[str]:
        """List a directory, or fail as planned."""
        return self._read("names", self._storage.names, path)

    def exists(self, path: str) -> bool:
        """Look for a path, or fail as planned."""
        return self._read("exists", self._storage.exists, path)

    def sizes(self, path: str) -> dict[str, int]:
        """List sizes, or fail as planned."""
        return self._read("sizes", self._storage.sizes, path)

    def publish(self, path: str, data: bytes) -> None:
        """Publish a file with the planned fault."""
        self._write("publish", path, data, lambda: self._storage.publish(path, data))

    def publish_file(self, path: str, source: BinaryIO) -> None:
        """Publish an open file with the planned fault."""
        source.seek(0)
        self.publish(path, source.read())

    def delete(self, path: str) -> None:
        """Remove a file with the planned fault."""
        self._write("delete", path, None, lambda: self._storage.delete(path))

    def delete_tree(self, path: str) -> None:
        """Remove a tree with the planned fault."""
        self._write("delete-tree", path, None, lambda: self._storage.delete_tree(path))

    def prune(self, path: str) -> None:
        """Prune directories with the planned fault."""
        self._write("prune", path, None, lambda: self._storage.prune(path))

    def _read(self, verb: str, function: Callable[[str], R], path: str) -> R:
        if self._faults.begin(verb, path, writes=False) is Fault.FAILS:
            raise OSError(errno.EIO, f"injected into {verb}", path)
        return function(path)

    def _write(
        self, verb: str, path: str, data: bytes | None, function: Callable[[], None]
    ) -> None:
        fault = self._faults.begin(verb, path, writes=True)
        if fault is Fault.FAILS:
            raise OSError(errno.EIO, f"injected into {verb}", path)
        function()
        self._history.append(Accepted(verb, path, data))
        if not self._faults.end(fault):
            raise OSError(errno.EIO, f"injected after {verb}", path)


class Durable:
    """The register and storage that outlive every process, and their accepted writes."""

    def __init__(self) -> None:
        self.register = EmbeddedRegister()
        self.storage = MemoryStorage()
        self.history: list[Accepted] = []

    def process(self, faults: Faults | None = None) -> tuple[FaultyRegister, InlineStorage]:
        """Return a new process's view of register and storage."""
        faults = faults or Faults()
        register = FaultyRegister(self.register, faults, self.history)
        return register, InlineStorage(FaultyStorage(self.storage, faults, self.history))
