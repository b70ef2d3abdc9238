"""Starting guarded processes, and detecting their end.

A process is dead once it is reaped with all its descendants, not when it was signalled. `Guarded`
reports a death only after the guardian has reported ``reaped``, or, if the guardian itself was
killed, after the guardian above has killed everything that was left.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from understudy.model import Incarnation
from understudy.process import guardian
from understudy.process.limits import Limit
from understudy.process.worker import lock_descriptors

GUARDIAN = str(Path(guardian.__file__))

PATIENCE_S = 3.0
"""A guardian kills and reaps in milliseconds; one that takes longer than this is frozen."""

SECOND_LOOK_S = 1.0

LINE_BYTES_MAX = 1 << 16
"""A longer line of a worker's output is split."""


@dataclass(frozen=True)
class Spec:
    """A process to start, and the settings of its guardian."""

    name: str
    incarnation: Incarnation
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    fds: tuple[int, ...] = ()
    """Descriptors that the worker inherits under the same numbers."""
    lock: str | None = None
    start_s: float | None = None
    """Time limit for the worker's first message."""
    stop_grace_s: float = 10.0
    orphan_grace_s: float = 0.0
    """How long the worker may take to shut down once the parent is gone; 0: killed at once."""
    scratch: tuple[str, ...] = ()
    """Directories to remove once everything is reaped."""
    cwd: str | None = None
    limits: tuple[Limit, ...] = ()
    """What the worker and its descendants may use together; the guardian kills them otherwise."""


@dataclass(frozen=True, slots=True)
class Death:
    """The end of a guarded process; all its descendants are dead too."""

    code: int
    signal: int
    at: float
    """When the guardian saw the end, by the guardian's clock."""
    reason: str
    """``ended`` if the worker ended by itself, else why the guardian killed it."""
    exceeded: str = ""
    """The option whose limit it exceeded, if it was killed for that."""

    def __str__(self) -> str:
        """Return a description for people."""
        if self.reason != "ended":
            return f"was killed: {self.reason}"
        return f"was killed by signal {self.signal}" if self.signal else f"exited with {self.code}"


class Process(Protocol):
    """A guarded process, as its parent sees it."""

    incarnation: Incarnation
    guardian_pid: int
    pid: int
    """The worker's pid; 0 until known."""
    death: asyncio.Future[Death]

    def until(self, deadline: float) -> None:
        """Set a deadline: the guardian kills everything then, unless a newer one arrives."""
        ...

    def stop(self, grace_s: float) -> None:
        """Terminate the worker; kill it after the grace."""
        ...

    def kill(self, reason: str) -> None:
        """Kill the worker and its descendants at once."""
        ...

    async def started(self) -> None:
        """Return once the worker's pid is known, or the worker is dead."""
        ...


Output = Callable[[str], None]
"""Receives each line that the worker prints."""


class Processes(Protocol):
    """Starts guarded processes."""

    async def start(self, spec: Spec, output: Output | None) -> Process:
        """Start a process; with ``output`` None it shares the output of this process."""
        ...


class GuardedProcesses:
    """Starts real guardians; ``settle`` kills the processes that a killed guardian left."""

    def __init__(self, settle: Callable[[], Awaitable[None]]) -> None:
        self._settle = settle

    async def start(self, spec: Spec, output: Output | None) -> Process:
        """Start a guardian. Only for the main thread: the kernel ties death signals to threads."""
        mine, theirs = socket.socketpair()
        with theirs:
            process = _launch(spec, theirs, captured=output is not None)
        guarded = Guarded(spec.incarnation, process, mine, self._settle)
        guarded.follow(output, spec.start_s)
        return guarded


class Guarded:
    """A guarded process of this host, controlled through its guardian."""

    def __init__(
        self,
        incarnation: Incarnation,
        process: subprocess.Popen[bytes],
        line: socket.socket,
        settle: Callable[[], Awaitable[None]],
    ) -> None:
        self.incarnation = incarnation
        self.guardian_pid = process.pid
        self.pid = 0
        self.death: asyncio.Future[Death] = asyncio.get_running_loop().create_future()
        self._process = process
        self._line = line
        self._line.setblocking(False)
        self._settle = settle
        self._started = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._overdue: asyncio.TimerHandle | None = None

    def until(self, deadline: float) -> None:
        """Send the guardian a new deadline."""
        self._send({"until": deadline})

    def stop(self, grace_s: float) -> None:
        """Have the guardian stop the worker; kill a guardian that does not act."""
        self._send({"stop": grace_s})
        self._force_in(grace_s + PATIENCE_S)

    def kill(self, reason: str) -> None:
        """Have the guardian kill everything; kill a guardian that does not act."""
        self._send({"kill": reason})
        self._force_in(PATIENCE_S)

    async def started(self) -> None:
        """Return once the guardian has reported the worker's pid, or its death."""
        await self._started.wait()

    def follow(self, output: Output | None, start_s: float | None) -> None:
        """Begin to read the guardian's messages and the worker's output."""
        if start_s:
            self._force_in(start_s + PATIENCE_S)
        self._spawn(self._listen())
        if output and self._process.stdout:
            self._spawn(_read_lines(self._process.stdout, output))

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _force_in(self, pause_s: float, *, sure: bool = False) -> None:
        """Kill the guardian itself after ``pause_s`` unless it has acted: it must be frozen.

        The kernel then kills its worker (death signal), and the guardian above kills the rest; a
        stopped process cannot delay this.
        """
        if self._overdue:
            self._overdue.cancel()
        loop = asyncio.get_running_loop()
        self._overdue = loop.call_later(pause_s, self._force, sure)

    def _force(self, sure: bool) -> None:
        if not sure:
            # This process itself may have been paused: read the messages of that time first.
            self._force_in(SECOND_LOOK_S, sure=True)
        elif not self.death.done() and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.guardian_pid, signal.SIGKILL)

    def _send(self, message: dict[str, object]) -> None:
        with contextlib.suppress(OSError):
            self._line.send(json.dumps(message).encode() + b"\n")

    async def _listen(self) -> None:
        note: dict[str, Any] | None = None
        reader, writer = await asyncio.open_connection(sock=self._line.dup())
        with contextlib.suppress(OSError):
            while line := await reader.readline():
                message = json.loads(line)
                if "started" in message:
                    self.pid = message["started"]
                    self._started.set()
                if "until" in message:
                    self._force_in(max(0.0, message["until"] - guardian.now()) + PATIENCE_S)
                note = message.get("reaped", note)
        writer.close()
        await _exited(self._process)
        if note is None:
            # The guardian was killed before it could reap: the death counts only once the guardian
            # above has killed everything that was left.
            await self._settle()
            at = guardian.now()
            note = {"code": 137, "signal": 9, "at": at, "reason": "its guardian was killed"}
        if self._overdue:
            self._overdue.cancel()
        self._line.close()
        exceeded = note.get("exceeded", "")
        self.death.set_result(
            Death(note["code"], note["signal"], note["at"], note["reason"], exceeded)
        )
        self._started.set()


def command_of(spec: Spec, up: int | None = None) -> tuple[list[str], dict[str, str]]:
    """Return a guardian's command line and environment; ``up``: its socket to the parent."""
    described = {
        "name": spec.name,
        "incarnation": spec.incarnation,
        "argv": list(spec.argv),
        "fds": list(spec.fds),
        "lock": spec.lock,
        "up": up,
        "start_s": spec.start_s,
        "stop_grace_s": spec.stop_grace_s,
        "orphan_grace_s": spec.orphan_grace_s,
        "scratch": list(spec.scratch),
        "limits": [asdict(one) for one in spec.limits],
    }
    command = [sys.executable, "-I", "-S", GUARDIAN, json.dumps(described)]
    return command, {**os.environ, **spec.env}


def _launch(spec: Spec, line: socket.socket, *, captured: bool) -> subprocess.Popen[bytes]:
    command, environment = command_of(spec, line.fileno())
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if captured else None,
        stderr=subprocess.STDOUT if captured else None,
        pass_fds=(line.fileno(), *spec.fds, *lock_descriptors()),
        start_new_session=True,
        env=environment,
        cwd=spec.cwd,
    )


async def _exited(process: subprocess.Popen[bytes]) -> None:
    """Return once the process has exited, and reap it."""
    loop = asyncio.get_running_loop()
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:  # The process is reaped already.
        process.wait()
        return
    gone = loop.create_future()
    loop.add_reader(handle, lambda: None if gone.done() else gone.set_result(None))
    try:
        await gone
    finally:
        loop.remove_reader(handle)
        os.close(handle)
    process.wait()


async def _read_lines(pipe: Any, output: Output) -> None:
    """Pass output on line by line; hold `LINE_BYTES_MAX` of a line at most."""
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    while True:
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.LimitOverrunError as error:
            line = await reader.readexactly(max(1, error.consumed))
        except asyncio.IncompleteReadError as error:
            if error.partial:
                output(error.partial.decode(errors="replace").rstrip("\r\n"))
            return
        output(line.decode(errors="replace").rstrip("\r\n"))
