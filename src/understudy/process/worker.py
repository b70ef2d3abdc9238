"""The worker's end of the socket to its guardian, and the pulse of a worker without event loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable

from understudy.clock import Clock
from understudy.process import forks, guardian

BEATS = 4
"""Heartbeats per timeout; two may be late."""


class GuardianLink:
    """Reports deadlines to the guardian, which kills this process after a missed one.

    Without a guardian (in tests, and under plain ``python app.py``) all methods do nothing.
    """

    def __init__(self, descriptor: int | None) -> None:
        self._socket = socket.socket(fileno=descriptor) if descriptor is not None else None
        if self._socket:
            self._socket.setblocking(False)
            self._socket.set_inheritable(False)
            forks.keep_from_children(self._socket)
        self._home = forks.Home()
        self._pending = b""
        self._settled: dict[int, asyncio.Future[None]] = {}
        self._asked = 0

    @staticmethod
    def from_environment() -> GuardianLink:
        """Open the socket that the guardian has named in the environment."""
        text = os.environ.pop(guardian.GUARDIAN_FD, "")
        return GuardianLink(int(text) if text else None)

    def until(self, deadline: float) -> None:
        """Set a deadline: the guardian kills this process then, unless a newer one arrives."""
        self._send({"until": deadline})

    def released(self) -> None:
        """Report that this process holds nothing any more, so its death needs no proof."""
        self._send({"released": True})

    def release_by(self, argv: tuple[str, ...], standard_input: str) -> None:
        """Have a program run once this process and its descendants are dead, unless `released`.

        The program releases what this process held elsewhere, and reads ``standard_input``. A later
        call replaces an earlier one. May be called from any thread.
        """
        self._send({"release": {"argv": argv, "input": standard_input}})

    async def beat(self, clock: Clock, timeout_s: float, hold: Holder | None = None) -> None:
        """Send new deadlines for ever; ``hold`` may set an earlier one."""
        while True:
            deadline = clock.now() + timeout_s
            if hold and hold.deadline is not None:
                deadline = min(deadline, hold.deadline)
            self.until(deadline)
            await asyncio.sleep(min(timeout_s / 4, 1.0))

    async def settle(self) -> None:
        """Return once the guardian has killed all descendants that lost their own guardian."""
        if self._socket is None:
            return
        loop = asyncio.get_running_loop()
        self._asked += 1
        number = self._asked
        self._settled[number] = loop.create_future()
        loop.add_reader(self._socket.fileno(), self._receive)
        self._send({"settle": number})
        try:
            await self._settled[number]
        finally:
            del self._settled[number]

    def _receive(self) -> None:
        assert self._socket is not None
        with contextlib.suppress(BlockingIOError):
            data = self._socket.recv(65536)
            if not data:
                asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._pending += data
        *lines, self._pending = self._pending.split(b"\n")
        for line in lines:
            future = self._settled.get(json.loads(line).get("settled"))
            if future and not future.done():
                future.set_result(None)

    def _send(self, message: dict[str, object]) -> None:
        if self._socket is None or not self._home.is_here:
            return
        # A full socket means that the guardian is paused: it will read the earlier messages.
        with contextlib.suppress(OSError):
            self._socket.send(json.dumps(message).encode() + b"\n")


class Holder:
    """The deadline until which this process may lead; None while it does not lead."""

    def __init__(self) -> None:
        self.deadline: float | None = None


def lock_descriptors() -> tuple[int, ...]:
    """Return the descriptors of the liveness locks that child processes must inherit."""
    text = os.environ.get(guardian.LOCK_FDS, "")
    return tuple(int(fd) for fd in text.split(",") if fd)


class Pulse:
    """The pulse of a process whose main thread belongs to others: it reports to the guardian.

    What hangs below it is held to the same: a process that is announced with `expect` must be heard
    of too, or the guardian ends them all.
    """

    def __init__(self, link: GuardianLink, clock: Clock, timeout_s: float) -> None:
        self._link = link
        self._clock = clock
        self.timeout_s = timeout_s
        self._turn = threading.Lock()
        self._deadlines: dict[str, float] = {}

    def expect(self, name: str, until: float | None = None) -> None:
        """Hold one of them to be heard of by a time: within the timeout, if none is given."""
        with self._turn:
            self._deadlines[name] = until or self._clock.now() + self.timeout_s
            self._link.until(min(self._deadlines.values()))

    def forget(self, name: str) -> None:
        """Do not wait for one of them any more."""
        with self._turn:
            self._deadlines.pop(name, None)
            if self._deadlines:
                self._link.until(min(self._deadlines.values()))

    def start(self, check: Callable[[], None]) -> None:
        """Beat in a daemon thread from now on; ``check`` must return before each beat.

        Where ``check`` hangs (a JVM that does not answer) or raises (one that is gone), the beats
        stop, and the guardian ends the process when its time is over.
        """

        def beat() -> None:
            while True:
                started = self._clock.now()
                try:
                    check()
                except Exception:
                    return
                self.expect("driver", started + self.timeout_s)
                time.sleep(self.timeout_s / BEATS)

        self.expect("driver")
        threading.Thread(target=beat, name="understudy-pulse", daemon=True).start()


def start_pulse(
    link: GuardianLink, clock: Clock, timeout_s: float, check: Callable[[], None] | None = None
) -> None:
    """Beat in a daemon thread from now on; see `Pulse.start`."""
    Pulse(link, clock, timeout_s).start(check or (lambda: None))
