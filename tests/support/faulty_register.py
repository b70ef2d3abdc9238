"""What becomes of calls to a register and a storage when things go wrong.

`Durable` is what outlives every process: a register, a storage, and the history of what they have
accepted. `Durable.process` is how one process sees them; `Faults` says which of its calls fail,
are applied without an answer, or are its last.
"""

from __future__ import annotations

import asyncio
import enum
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from tests.support.memory_storage import MemoryStorage
from understudy.ha.backends.embedded import EmbeddedRegister
from understudy.ha.register import Entry, Register
from understudy.ha.storage import InlineStorage

R = TypeVar("R")


class Fault(enum.Enum):
    """What may happen to a call."""

    FAILS = "it fails"
    ANSWER_LOST = "it is applied, and fails"
    DIES_BEFORE = "the process dies before it"
    DIES_AFTER = "the process dies after it"

    @property
    def kills(self) -> bool:
        """Say whether the process does not survive it."""
        return self in {Fault.DIES_BEFORE, Fault.DIES_AFTER}


READ_FAULTS = (Fault.FAILS, Fault.DIES_BEFORE)
"""A read that is applied and fails is one that fails."""


class Died(BaseException):
    """The process is dead: no statement of it has any effect from now on."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a process to the register or the storage."""

    number: int
    verb: str
    subject: str
    writes: bool

    def __str__(self) -> str:
        """Say which call it is, for people."""
        return f"#{self.number} {self.verb} {self.subject}"


@dataclass(frozen=True, slots=True)
class Accepted:
    """A write that took effect; ``value`` None means that something was removed."""

    verb: str
    subject: str
    value: bytes | None


@dataclass
class Faults:
    """What becomes of the calls of one process: by number, from 0."""

    plan: Mapping[int, Fault] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    dead: bool = False
    lasting: Callable[[Call], bool] = lambda _: False
    """Calls that fail whenever they are made."""

    def begin(self, verb: str, subject: str, *, writes: bool) -> Fault | None:
        """Note a call, and say what becomes of it."""
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
        """Say whether the answer arrives, now that the call was applied."""
        if fault is Fault.DIES_AFTER:
            self.dead = True
            raise Died
        return fault is not Fault.ANSWER_LOST


class FaultyRegister:
    """A register as one process sees it."""

    def __init__(
        self, register: Register, faults: Faults, history: list[Accepted] | None = None
    ) -> None:
        self._register = register
        self._faults = faults
        self._history = history if history is not None else []

    async def load(self, key: str) -> Entry | None:
        """See `Register.load`."""
        return await self._read("load", self._register.load, key)

    async def keys(self, prefix: str) -> list[str]:
        """See `Register.keys`."""
        return await self._read("keys", self._register.keys, prefix)

    async def swap(self, key: str, value: bytes | None, expected: str | None) -> str:
        """See `Register.swap`."""
        await asyncio.sleep(0)  # Others have their turn, as on any wire.
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

    def changes(self, key: str) -> AsyncIterator[None]:
        """See `Register.changes`."""
        return self._register.changes(key)

    async def _read(self, verb: str, function: Callable[[str], Awaitable[R]], subject: str) -> R:
        await asyncio.sleep(0)
        if self._faults.begin(verb, subject, writes=False) is Fault.FAILS:
            raise TimeoutError(f"{verb} {subject}: no answer")
        return await function(subject)


class FaultyStorage:
    """A storage as one process sees it; see ``understudy.ha.storage.BlockingStorage``."""

    def __init__(self, storage: MemoryStorage, faults: Faults, history: list[Accepted]) -> None:
        self.url = storage.url
        self._storage = storage
        self._faults = faults
        self._history = history

    def read(self, path: str) -> bytes:
        """See `BlockingStorage.read`."""
        return self._read("read", self._storage.read, path)

    def names(self, path: str) -> list[str]:
        """See `BlockingStorage.names`."""
        return self._read("names", self._storage.names, path)

    def exists(self, path: str) -> bool:
        """See `BlockingStorage.exists`."""
        return self._read("exists", self._storage.exists, path)

    def sizes(self, path: str) -> dict[str, int]:
        """See `BlockingStorage.sizes`."""
        return self._read("sizes", self._storage.sizes, path)

    def publish(self, path: str, data: bytes) -> None:
        """See `BlockingStorage.publish`."""
        self._write("publish", path, data, lambda: self._storage.publish(path, data))

    def delete(self, path: str) -> None:
        """See `BlockingStorage.delete`."""
        self._write("delete", path, None, lambda: self._storage.delete(path))

    def delete_tree(self, path: str) -> None:
        """See `BlockingStorage.delete_tree`."""
        self._write("delete-tree", path, None, lambda: self._storage.delete_tree(path))

    def prune(self, path: str) -> None:
        """See `BlockingStorage.prune`."""
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
    """What outlives every process, and what it has accepted so far."""

    def __init__(self) -> None:
        self.register = EmbeddedRegister()
        self.storage = MemoryStorage()
        self.history: list[Accepted] = []

    def process(self, faults: Faults | None = None) -> tuple[FaultyRegister, InlineStorage]:
        """Return register and storage as a new process sees them."""
        faults = faults or Faults()
        register = FaultyRegister(self.register, faults, self.history)
        return register, InlineStorage(FaultyStorage(self.storage, faults, self.history))
