"""An endpoint: bound when its process starts, served once the first client comes.

A server and its answers take as long to import as all the rest of a process. A standby that nobody
asks, and a TaskManager that nobody scrapes, do without.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from types import ModuleType

from understudy.api.authentication import OPEN, RestSecurity
from understudy.rpc import addresses

AGAIN_S = 1.0
"""After a failure (no descriptors are left, say) the next attempt waits so long."""

_log = logging.getLogger(__name__)


def bind(address: str, ports: tuple[int, ...]) -> socket.socket:
    """Return a socket that listens at the first free port, or raise `ConfigurationError`."""
    return addresses.bind(address, ports, ("rest.bind-address", "rest.bind-port"))


def url_of(listening: socket.socket, host: str, security: RestSecurity = OPEN) -> str:
    """Return the address that clients use, who reach this host under that name."""
    port = listening.getsockname()[1]
    return f"{security.scheme}://{addresses.bracketed(host)}:{port}"


@contextlib.asynccontextmanager
async def served_once_asked(
    listening: socket.socket,
    module: str,
    serving: Callable[[ModuleType], AbstractAsyncContextManager[None]],
) -> AsyncIterator[None]:
    """Import a module and enter its ``serving`` once a client connects, until the block ends.

    The socket is closed at the end. A failure is logged, and the next client is the next attempt.
    """
    task = asyncio.create_task(_serve(listening, module, serving))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        listening.close()


async def _serve(
    listening: socket.socket,
    module: str,
    serving: Callable[[ModuleType], AbstractAsyncContextManager[None]],
) -> None:
    while True:
        await _asked(listening)
        try:
            # Beside the loop, which has a lease to renew.
            imported = await asyncio.to_thread(importlib.import_module, module)
            async with serving(imported):
                await asyncio.get_running_loop().create_future()  # Until it is cancelled.
        except Exception:
            _log.warning("%s cannot serve; the next attempt follows", module, exc_info=True)
        await asyncio.sleep(AGAIN_S)


async def _asked(listening: socket.socket) -> None:
    """Return once a client has connected."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    loop.add_reader(listening, asked.set)
    try:
        await asked.wait()
    finally:
        loop.remove_reader(listening)
