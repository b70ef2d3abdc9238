"""The processes of ``main``, as a JobManager sees them: one in use, one warm.

A process is started ahead of time and imports the slow modules, so that a takeover need not wait
for it. Each process serves one execution.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from understudy.core.executors import OWN_PYTHON
from understudy.errors import EnvironmentFailed, UnderstudyError, UnreachableError
from understudy.ha import own_directory
from understudy.model import Incarnation
from understudy.process import channels
from understudy.process.limits import Limit
from understudy.process.processes import Process, Processes, Spec
from understudy.rpc import messages, wire
from understudy.rpc.gateway import Link
from understudy.rpc.messages import MainMessage

START_S = 60.0
"""Time for a start. Importing PySpark takes under a second, minutes on an overloaded machine."""

REFILL_S = 5.0
"""Pause before the next process starts: a takeover needs the cores first."""

FAILED_START_MAX_S = 30.0
"""Longest pause after a failed start; the first pause is a second."""

_log = logging.getLogger(__name__)


class MainProcess:
    """One process that will execute, or executes, ``main``."""

    def __init__(self, process: Process, link: Link[MainMessage]) -> None:
        self.process = process
        self.link = link
        self.output: Callable[[str], None] | None = None
        self._unheard: list[str] = []

    def printed(self, text: str) -> None:
        """Take a line that the process printed; lines are kept until `listen` is called."""
        if self.output:
            self.output(text)
        else:
            self._unheard.append(text)

    def listen(self, output: Callable[[str], None]) -> None:
        """Pass every line to ``output``, the kept ones first."""
        self.output = output
        for text in self._unheard:
            output(text)
        self._unheard.clear()


class MainProcesses(Protocol):
    """Source of processes for ``main``."""

    async def take(self, python: str) -> MainProcess:
        """Return a process that waits for its application; the caller owns the process.

        ``python`` is its interpreter. Raises `EnvironmentFailed` for one with which no process can
        be started, unless it is that of this process.
        """
        ...

    @property
    def ready(self) -> bool:
        """Return whether `take` would return at once."""
        ...

    def hold(self, deadline: float) -> None:
        """Let the guardians of taken processes kill them at ``deadline``.

        Every renewal of the lease moves the deadline: a JobManager that is frozen together with its
        own guardian cannot leave ``main`` running beside its successor's.
        """
        ...


class WarmMainProcesses:
    """Source of processes that keeps one process warm."""

    def __init__(
        self,
        processes: Processes,
        heartbeat_s: float,
        scratch: Path,
        changed: Callable[[], None],
        limits: tuple[Limit, ...] = (),
    ) -> None:
        """``limits``: what each process may use."""
        self._limits = limits
        self._processes = processes
        self._scratch = scratch
        self._heartbeat_s = heartbeat_s
        self._changed = changed
        self._waiting: MainProcess | None = None
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._available = asyncio.Condition()
        self._hurry = asyncio.Event()
        self._takers = 0
        self._failures = 0
        self._taken: list[MainProcess] = []
        self._held_until: float | None = None

    @property
    def ready(self) -> bool:
        """Return whether a warm process waits."""
        return self._waiting is not None

    def hold(self, deadline: float) -> None:
        """Store the deadline, and pass it to the guardians of taken processes."""
        self._held_until = deadline
        for main in self._taken:
            main.process.until(deadline)

    async def take(self, python: str) -> MainProcess:
        """Return the warm process, or wait for the next one.

        A process with another interpreter is started now: none is kept warm for the environment of
        a single application.
        """
        if python != sys.executable:
            return self._hand_out(await self._started_with(python))
        self._takers += 1
        self._hurry.set()
        try:
            async with self._available:
                await self._available.wait_for(lambda: self._waiting is not None)
                taken, self._waiting = self._waiting, None
                assert taken is not None
        finally:
            self._takers -= 1
            if not self._takers:
                self._hurry.clear()
        self._hand_out(taken)
        self._wanted.set()
        self._changed()
        return taken

    async def _started_with(self, python: str) -> MainProcess:
        try:
            main = await self._launch(python)
        except (OSError, UnderstudyError) as error:
            raise EnvironmentFailed(
                f"a process for main cannot be started with {python}: {error}"
            ) from error
        self._attend(main)
        return main

    def _hand_out(self, taken: MainProcess) -> MainProcess:
        self._taken.append(taken)
        if self._held_until is not None:
            taken.process.until(self._held_until)
        return taken

    async def run(self) -> None:
        """Keep one process warm until cancelled; then end it."""
        first = True
        try:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                if not first:
                    await self._pause()
                first = False
                try:
                    await self._start()
                except (OSError, UnderstudyError) as error:
                    await self._start_failed(f"a process for main cannot be started: {error}")
        finally:
            if self._waiting:
                self._waiting.process.kill("the JobManager ends")
                await asyncio.shield(self._waiting.process.death)

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(REFILL_S):
                await self._hurry.wait()
        except TimeoutError:
            return

    async def _start(self) -> None:
        main = await self._launch(sys.executable)
        self._failures = 0
        async with self._available:
            self._waiting = main
            self._available.notify_all()
        self._attend(main)
        self._changed()

    def _attend(self, main: MainProcess) -> None:
        asyncio.ensure_future(self._watch(main))  # noqa: RUF006 -- ends with the process

    async def _launch(self, python: str) -> MainProcess:
        """Start a process, and return it once it is ready. Raises `UnderstudyError`, ``OSError``.

        Its guardian kills it where it takes too long.
        """
        incarnation = Incarnation(uuid.uuid4().hex)
        scratch = own_directory.make(self._scratch) / incarnation
        holder: list[MainProcess] = []
        with channels.pair() as (mine, theirs):
            spec = Spec(
                name=f"main-{incarnation[:8]}",
                incarnation=incarnation,
                argv=(python, "-P", "-m", "understudy.application.application_process"),
                env={
                    **channels.child_environment(theirs, incarnation),
                    channels.HEARTBEAT_S: str(self._heartbeat_s),
                    channels.SCRATCH: str(scratch),
                    "PYTHONUNBUFFERED": "1",
                    **({OWN_PYTHON: "1"} if python != sys.executable else {}),
                },
                fds=(theirs.fileno(),),
                start_s=START_S,
                scratch=(str(scratch),),
                limits=self._limits,
            )
            process = await self._processes.start(
                spec, lambda text: holder[0].printed(text) if holder else None
            )
        try:
            link = await wire.over_socket(mine, channels.main_codec, incarnation)
            main = MainProcess(process, link)
            holder.append(main)
            hello = await link.receive()
        except asyncio.CancelledError:
            process.kill("nobody waits for it any more")
            await asyncio.shield(process.death)
            raise
        if hello is None or not isinstance(hello.message, messages.Ready):
            death = await asyncio.shield(process.death)
            raise UnreachableError(f"it {death} before it was ready")
        return main

    async def _start_failed(self, what: str) -> None:
        """Pause, longer each time, then let another process start."""
        _log.error("%s", what)
        self._failures += 1
        await asyncio.sleep(min(2.0 ** (self._failures - 1), FAILED_START_MAX_S))
        self._wanted.set()

    async def _watch(self, main: MainProcess) -> None:
        await asyncio.shield(main.process.death)
        if main in self._taken:
            self._taken.remove(main)
        if self._waiting is main:
            self._waiting = None
            self._wanted.set()
            self._changed()
