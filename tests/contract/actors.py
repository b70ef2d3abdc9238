"""The functions of the processes that the contract suites start; each returns an exit code."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

from understudy.ha.backends.filesystem import FilesystemRegister
from understudy.ha.register import Conflict, Register
from understudy.ha.storage import LocalStorage

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

DONE, REFUSED, UNKNOWN = 0, 3, 4
"""The three outcomes, as exit codes."""


class OneThread(asyncio.SelectorEventLoop):
    """An event loop that calls blocking functions itself, so that a process has one thread."""

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Call the function now."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def _prepare(work: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], int]:
    runner = asyncio.Runner(loop_factory=OneThread)
    runner.get_loop()

    def run() -> int:
        try:
            runner.run(work())
        except Conflict:
            return REFUSED
        except OSError:
            return UNKNOWN
        return DONE

    return run


def swap(directory: str, key: str, value: str | None, expected: str | None) -> Callable[[], int]:
    """Swap once."""
    register = FilesystemRegister(Path(directory))

    async def work() -> None:
        await register.swap(key, None if value is None else value.encode(), expected)

    return _prepare(work)


FILE_EVENTS = {"open", "os.listdir", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "fsync"}
"""Python's audit events of file system calls; ``fsync`` is added below."""


def swap_and_stop(
    directory: str, key: str, value: str | None, expected: str | None, moment: int
) -> Callable[[], int]:
    """Swap once, but stop just before the file system call with number ``moment``."""
    run, fsync = swap(directory, key, value, expected), os.fsync
    touches = itertools.count(1)

    def watch(event: str, _: tuple[Any, ...]) -> None:
        if event in FILE_EVENTS and next(touches) == moment:
            os.kill(os.getpid(), signal.SIGSTOP)

    def audited_fsync(descriptor: int) -> None:
        sys.audit("fsync", descriptor)
        fsync(descriptor)

    def watched() -> int:
        os.fsync = audited_fsync  # type: ignore[assignment]
        sys.addaudithook(watch)
        return run()

    return watched


def increment(directory: str, key: str, times: int) -> Callable[[], int]:
    """Increment a number several times."""
    register = FilesystemRegister(Path(directory))

    async def work() -> None:
        for _ in range(times):
            await increment_once(register, key)

    return _prepare(work)


async def increment_once(register: Register, key: str) -> None:
    """Add 1 to a number, even if others do so concurrently."""
    while True:
        entry = await register.load(key)
        number = int(entry.value) if entry else 0
        try:
            await register.swap(key, b"%d" % (number + 1), entry.version if entry else None)
        except Conflict:
            continue
        return


def publish(root: str, path: str, text: str) -> Callable[[], int]:
    """Publish one file."""
    storage = LocalStorage(Path(root))

    def run() -> int:
        try:
            storage.publish(path, text.encode())
        except OSError:
            return UNKNOWN
        return DONE

    return run
