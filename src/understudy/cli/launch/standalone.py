"""A JobManager without standbys (high-availability.type NONE): uniqueness and cleanup."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
from collections.abc import AsyncIterator, Iterator, Sequence

from understudy.api import endpoint
from understudy.cli.launch.compose import locks_directory, open_services, standalone_rest
from understudy.cli.launch.securing import bind_links, listens_on_tcp
from understudy.config import Configuration, options
from understudy.errors import ConfigurationError
from understudy.ha import layout
from understudy.ha.services import HighAvailabilityServices
from understudy.process.closing import Closing
from understudy.process.liveness_lock import LivenessLocks

_log = logging.getLogger(__name__)


def bind_rest(configuration: Configuration) -> socket.socket:
    """Return a JobManager's listening REST socket. Raises `ConfigurationError`."""
    return endpoint.bind(configuration.get(options.REST_BIND_ADDRESS), _rest_ports(configuration))


def check_places(configurations: Sequence[Configuration]) -> None:
    """Raise `ConfigurationError` unless all these JobManagers find free addresses here.

    The check binds every address at the same time, then releases all.
    """
    with contextlib.ExitStack() as held:
        for number, configuration in enumerate(configurations):
            if configuration.is_standalone:
                held.enter_context(_claimed(configuration))
            try:
                held.enter_context(bind_rest(configuration))
                if listens_on_tcp(configuration):
                    held.enter_context(bind_links(configuration))
            except ConfigurationError as error:
                if not number:
                    raise
                raise ConfigurationError(
                    f"{error}; {len(configurations)} JobManagers are to be started, and {number} "
                    f"found a place"
                ) from error


def _rest_ports(configuration: Configuration) -> tuple[int, ...]:
    """Return the allowed REST ports; standalone, the one that clients know by default."""
    if configuration.is_standalone and options.REST_BIND_PORT.key not in configuration.settings:
        return (configuration.get(options.REST_PORT),)
    return configuration.get(options.REST_BIND_PORT)


@contextlib.asynccontextmanager
async def standing_alone(
    configuration: Configuration, services: HighAvailabilityServices
) -> AsyncIterator[None]:
    """Ensure that this JobManager is the only one during the block; no-op with high availability.

    Raises `ConfigurationError` if another one runs. The data in storage is useless without this
    process's memory, so the data is removed before and after.
    """
    if not configuration.is_standalone:
        yield
        return
    with _claimed(configuration):
        _log.warning(
            "%s is NONE: nobody follows this JobManager, its loss is the loss of its application",
            options.HA_TYPE.key,
        )
        await _clear(services)
        try:
            yield
        finally:
            with Closing("the one JobManager") as closing, closing.step("what it has stored"):
                await _clear(services)


@contextlib.contextmanager
def _claimed(configuration: Configuration) -> Iterator[None]:
    """Hold an abstract socket name, which the kernel grants to one process until its death."""
    name = f"\0understudy-{os.getuid()}-{configuration.get(options.RPC_PORT)}-claim"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as claim:
        try:
            claim.bind(name)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            place = (
                f"{configuration.get(options.RPC_ADDRESS)}:{configuration.get(options.RPC_PORT)}"
            )
            raise ConfigurationError(
                f"a JobManager serves at {place} already ({standalone_rest(configuration)}): with "
                f"{options.HA_TYPE.key} NONE there is one; set {options.RPC_PORT.key} and "
                f"{options.REST_PORT.key} for another cluster, or another type for a standby"
            ) from error
        yield


def remove_leftovers(configuration: Configuration, cluster_id: str) -> list[str]:
    """Remove everything that a killed JobManager left; return the removed directories.

    Raises `ConfigurationError` while a JobManager serves: the data belongs to it.
    """
    services = open_services(configuration, cluster_id, as_jobmanager=True)
    storage, cluster = services.storage.blocking, services.locations.cluster
    with _claimed(configuration):
        directories = (cluster, *layout.result_directories(cluster))
        found = [one for one in directories if storage.names(one)]
        for name in storage.names(cluster):
            if name != layout.LOCKS:
                storage.delete_tree(f"{cluster}/{name}")
        for directory in layout.result_directories(cluster):
            storage.delete_tree(directory)
            storage.prune(directory.rpartition("/")[0])
        if locks := locks_directory(configuration, cluster_id):
            LivenessLocks(locks).clear(())
        storage.prune(cluster)
    return [f"{storage.url}/{one}" for one in found]


async def _clear(services: HighAvailabilityServices) -> None:
    """Remove everything except the locks of live processes."""
    storage, cluster = services.storage, services.locations.cluster
    for name in await storage.names(cluster):
        if name != layout.LOCKS:
            await storage.delete_tree(f"{cluster}/{name}")
    for directory in layout.result_directories(cluster):
        await storage.delete_tree(directory)
        await storage.prune(directory.rpartition("/")[0])
