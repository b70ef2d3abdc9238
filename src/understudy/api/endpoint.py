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
from dataclasses import dataclass
from types import ModuleType

from understudy.api.authentication import OPEN, RestSecurity
from understudy.config import Configuration, options
from understudy.config.security import Hosts, is_everywhere
from understudy.errors import ConfigurationError
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


# --- where a TaskManager's metrics are scraped ----------------------------------------------------


METRICS_PATH = "/metrics"


@dataclass(frozen=True)
class MetricsEndpoint:
    """A socket that listens, where others find it, and who may ask there."""

    listening: socket.socket
    url: str
    security: RestSecurity
    hosts: Hosts


def bind_metrics(configuration: Configuration, name: str) -> MetricsEndpoint | None:
    """Return where metrics are to be served; None where nowhere, or (with a warning) no port is.

    ``name`` is how this host is called by others. Raises `ConfigurationError` for a bad secret or
    certificate.
    """
    if options.PROMETHEUS not in configuration.get(options.REPORTERS):
        return None
    security = RestSecurity.of(configuration)
    if security.files and security.files.keystore is None:
        _log.warning("no metrics are served: %s is not set", options.REST_KEYSTORE.key)
        return None
    host, ports = (
        configuration.get(options.TASKMANAGER_BIND_HOST),
        configuration.get(options.METRICS_PORT),
    )
    keys = (options.TASKMANAGER_BIND_HOST.key, options.METRICS_PORT.key)
    try:
        listening = addresses.bind(host, ports, keys)
    except ConfigurationError as error:
        _log.warning("no metrics are served: %s", error)
        return None
    called = addresses.bracketed(name if is_everywhere(host) else host)
    port = listening.getsockname()[1]
    url = f"{security.scheme}://{called}:{port}{METRICS_PATH}"
    return MetricsEndpoint(listening, url, security, Hosts.of(configuration, name, host))
