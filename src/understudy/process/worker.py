"""The worker's end of the socket to its guardian."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket

from understudy.clock import Clock
from understudy.process import forks, guardian


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

        The program releases what this process held elsewhere; ``told`` is its standard input. A
        later call replaces an earlier one. May be called from any thread.
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
