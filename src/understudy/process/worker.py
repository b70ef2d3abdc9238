"""The worker's end of the line to its guardian."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket

from understudy.clock import Clock
from understudy.process import forks, guardian


class GuardianLink:
    """Tells the guardian until when this process will have been heard of again.

    Works without a guardian too (in tests, and under plain ``python app.py``): then it does
    nothing, and nothing is guarded.
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
        """Take over the line that the guardian left in the environment."""
        text = os.environ.pop(guardian.GUARDIAN_FD, "")
        return GuardianLink(int(text) if text else None)

    def until(self, deadline: float) -> None:
        """Let the guardian kill this process if it hears nothing new by ``deadline``."""
        self._send({"until": deadline})

    def released(self) -> None:
        """Say that this process holds nothing any more: nobody will need proof of its death."""
        self._send({"released": True})

    def release_by(self, argv: tuple[str, ...], told: str) -> None:
        """Have a program run once this process and all it started are dead, unless `released`.

        It gives up what this process held elsewhere; ``told`` is its standard input. A later one
        takes the place of an earlier one. May be called from any thread.
        """
        self._send({"release": {"argv": argv, "input": told}})

    async def beat(self, clock: Clock, timeout_s: float, hold: Holder | None = None) -> None:
        """Announce again and again, for ever; ``hold`` may name an earlier deadline."""
        while True:
            deadline = clock.now() + timeout_s
            if hold and hold.deadline is not None:
                deadline = min(deadline, hold.deadline)
            self.until(deadline)
            await asyncio.sleep(min(timeout_s / 4, 1.0))

    async def settle(self) -> None:
        """Return once no process is left below the guardian that lost its own guardian."""
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
        # A swamped line means that the guardian is paused: it will find what was sent before.
        with contextlib.suppress(OSError):
            self._socket.send(json.dumps(message).encode() + b"\n")


class Holder:
    """Until when this process may hold what it holds; None while it holds nothing."""

    def __init__(self) -> None:
        self.deadline: float | None = None


def lock_descriptors() -> tuple[int, ...]:
    """Return the liveness locks that this process must hand on to what it starts."""
    text = os.environ.get(guardian.LOCK_FDS, "")
    return tuple(int(fd) for fd in text.split(",") if fd)
