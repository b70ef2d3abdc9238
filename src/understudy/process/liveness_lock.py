"""Liveness locks: the kernel's proof that a process and all its descendants are dead.

A guardian takes its process's lock (``flock``), and all descendants inherit it. Obtaining the lock
proves that none of them lives: its guardian has left a note that all are reaped, or was killed, and
then the programs that have closed the lock are looked for (`strays`). Waiting for a lock costs
nothing and ends within a millisecond of the last death. Locks work between processes of one host;
an absent lock proves nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from understudy.errors import StorageError
from understudy.ha import own_directory, removal
from understudy.ha.turns import Deaths
from understudy.model import Incarnation, LeaderRecord
from understudy.process import guardian, strays

PROOF = ".proof-"
"""Prefix of the files and directories of self-tests."""

_LOCK = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""A lock is never a link, and opening a foreign pipe must not block."""

PROOF_S = 60.0
"""A self-test takes milliseconds; an older file belongs to a dead process."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeathNote:
    """The time of a death by the guardian's clock; None if unknown."""

    at: float | None


class Locks(Deaths, Protocol):
    """Proves deaths of processes."""

    async def dead(self, incarnation: Incarnation) -> DeathNote:
        """Return once the process is proved dead; wait for ever if that cannot be proved."""
        ...

    async def end_strays(self, incarnation: Incarnation) -> None:
        """Kill what is left of a process whose guardian died with it; nothing if it lives.

        What cannot be looked for, or killed, is logged.
        """
        ...

    async def sweep(self, keep: frozenset[Incarnation]) -> None:
        """Remove the locks of dead processes, except those in ``keep``."""
        ...


class LivenessLocks:
    """The locks of this host's processes."""

    def __init__(self, directory: Path, *further: Path) -> None:
        """``further``: the directories of processes that were started in another environment."""
        self._directory = directory
        self._directories = tuple(dict.fromkeys((directory, *further)))
        self._waits: dict[Incarnation, asyncio.Future[DeathNote]] = {}

    async def dead(self, incarnation: Incarnation) -> DeathNote:
        """Return once the process's lock can be obtained; wait for ever if there is no lock."""
        if incarnation not in self._waits:
            descriptor = self._opened(incarnation)
            if descriptor is None:
                await asyncio.Event().wait()
                raise AssertionError("unreachable")
            self._wait(incarnation, descriptor)
        return await asyncio.shield(self._waits[incarnation])

    def _opened(self, incarnation: Incarnation) -> int | None:
        for directory in self._directories:
            with contextlib.suppress(OSError):
                return os.open(directory / incarnation, _LOCK)
        return None

    def _wait(self, incarnation: Incarnation, descriptor: int) -> None:
        """Start the one wait for a process, which all callers share as it cannot be interrupted.

        The wait ends with the lock's holder, or with this process.
        """
        loop = asyncio.get_running_loop()
        obtained = self._waits[incarnation] = loop.create_future()

        def settle(note: DeathNote | None) -> None:
            del self._waits[incarnation]
            if note and not obtained.done():
                obtained.set_result(note)

        def wait() -> None:
            note = None
            try:
                _end_strays(incarnation, descriptor)
                # A shared lock, so that all waiting processes wake together.
                fcntl.flock(descriptor, fcntl.LOCK_SH)
                found = _read_note(descriptor)
                if found.at is not None or strays.end(incarnation):
                    note = found
            except Exception:  # No proof: the next caller tries again.
                _log.warning("the death of %s is not proved", incarnation[:8], exc_info=True)
            finally:
                os.close(descriptor)
            with contextlib.suppress(RuntimeError):  # The loop may be closed by now.
                loop.call_soon_threadsafe(settle, note)

        threading.Thread(target=wait, name="understudy-lock", daemon=True).start()

    async def proof(self, holder: LeaderRecord) -> float | None:
        """Return once the record's leader is proved dead, with the time of its death."""
        return (await self.dead(holder.holder)).at

    async def end_strays(self, incarnation: Incarnation) -> None:
        """Kill in a thread what is left of a process that lived on this host and is dead."""
        descriptor = self._opened(incarnation)
        if descriptor is None:
            return

        def end() -> None:
            try:
                _end_strays(incarnation, descriptor)
            except OSError:
                _log.warning("what %s left is not looked for", incarnation[:8], exc_info=True)
            finally:
                os.close(descriptor)

        await asyncio.to_thread(end)

    async def sweep(self, keep: frozenset[Incarnation]) -> None:
        """Remove the locks of dead processes in a thread, except those in ``keep``."""
        await asyncio.to_thread(self._sweep, keep)

    async def living(self) -> dict[Incarnation, int]:
        """Return the living processes, by their held locks, each with its pid (0: unknown)."""
        return await asyncio.to_thread(self._living)

    def prove(self) -> None:
        """Raise `StorageError` unless locks exclude each other here."""
        own_directory.make(self._directory, way_out="let the storage be one that is yours")
        path = self._directory / f"{PROOF}{os.getpid()}-{threading.get_ident()}"
        first = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        second = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(second, fcntl.LOCK_SH | fcntl.LOCK_NB)
                raise StorageError(
                    f"{self._directory}: flock does not exclude here, so nobody's death could be "
                    "proved: put high-availability.storageDir on a local file system"
                )
        except OSError as error:
            raise StorageError(f"{self._directory}: flock fails: {error}") from error
        finally:
            os.close(first)
            os.close(second)
            path.unlink(missing_ok=True)

    def clear(self, own: Iterable[str]) -> None:
        """Remove the locks of these dead processes, and the whole directory if no process lives.

        The cluster's next run may have begun while the last process of this run was closing.
        """
        own = [*own]
        for directory in self._directories:
            for incarnation in own:
                (directory / incarnation).unlink(missing_ok=True)
            if not _living(directory):
                removal.remove_tree(directory.parent, directory.name)

    def _living(self) -> dict[Incarnation, int]:
        found: dict[Incarnation, int] = {}
        for directory in self._directories:
            found |= _living(directory)
        return found

    def _sweep(self, keep: frozenset[Incarnation]) -> None:
        for directory in self._directories:
            _sweep(directory, keep)


def _living(directory: Path) -> dict[Incarnation, int]:
    found: dict[Incarnation, int] = {}
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return found
    for name in names:
        if name.startswith("."):
            continue
        try:
            descriptor = os.open(directory / name, _LOCK)
        except FileNotFoundError:
            continue
        try:
            # A shared lock, so that a concurrent look is not taken for the owner.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            found[Incarnation(name)] = _holder(os.fstat(descriptor))
        finally:
            os.close(descriptor)
    return found


def _sweep(directory: Path, keep: frozenset[Incarnation]) -> None:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return
    for name in names:
        path = directory / name
        if name.startswith(PROOF):
            _remove_old_proof(path)
            continue
        if name in keep or name.startswith("."):
            continue
        try:
            descriptor = os.open(path, _LOCK)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another sweep may have removed the lock, and its owner have created a new one.
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                path.unlink()
        except OSError:
            continue
        finally:
            os.close(descriptor)


def _remove_old_proof(path: Path) -> None:
    """Remove the files of a process that was killed during its self-test."""
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime < PROOF_S:
            return
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


class NoLocks:
    """Proves nothing: a process counts as dead only after the adoption grace."""

    async def dead(self, incarnation: Incarnation) -> DeathNote:
        """Wait for ever."""
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def proof(self, holder: LeaderRecord) -> float | None:
        """Wait for ever."""
        await asyncio.Event().wait()
        return None

    async def end_strays(self, incarnation: Incarnation) -> None:
        """Do nothing: there are no locks."""

    async def sweep(self, keep: frozenset[Incarnation]) -> None:
        """Do nothing: there are no locks."""


def _read_note(descriptor: int) -> DeathNote:
    try:
        return DeathNote(float(json.loads(os.pread(descriptor, 4096, 0))["at"]))
    except (ValueError, KeyError, TypeError):
        return DeathNote(None)


def _end_strays(incarnation: Incarnation, descriptor: int) -> None:
    """Kill what a dead worker has left, where its guardian has not said that all are reaped.

    Nothing is known of a worker in another PID namespace.
    """
    try:
        pid, space, start = json.loads(os.pread(descriptor, 4096, 0))["worker"]
        here = guardian.identity(os.getpid())[1]
        dead = space == here and guardian.identity(pid) != [pid, space, start]
    except (ValueError, KeyError, TypeError, OSError):
        return
    if dead:
        strays.end(incarnation)


def _holder(lock: os.stat_result) -> int:
    """Return the pid of a lock's holder as listed by the kernel; 0 if unknown."""
    place = f"{os.major(lock.st_dev):02x}:{os.minor(lock.st_dev):02x}:{lock.st_ino}"
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if words[1] == "FLOCK" and words[5] == place:
                return int(words[4])
    return 0
