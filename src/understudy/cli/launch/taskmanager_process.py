"""The entry point of a TaskManager process.

Run as ``python -m understudy.cli.launch.taskmanager_process`` under a guardian.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from understudy.api.endpoint import MetricsEndpoint, bind_metrics, served_once_asked
from understudy.cli.launch.securing import network_of
from understudy.cli.launch.worker import SHUT_DOWN, Parts, environments_of, main, running
from understudy.config import Configuration, options
from understudy.config.configuration import cache_home
from understudy.core.lease import Timing
from understudy.errors import ConfigurationError
from understudy.ha import own_directory
from understudy.ha.retrieval import retrieve
from understudy.model import LeaderRecord
from understudy.process import channels
from understudy.process.limits import Limit
from understudy.rpc.gateway import Network
from understudy.rpc.messages import LinkMessage
from understudy.taskmanager.driver_pool import PoolSettings
from understudy.taskmanager.task_manager import (
    Identity,
    TaskManager,
    TaskManagerContext,
    TaskManagerSettings,
)

_log = logging.getLogger(__name__)


async def run(parts: Parts) -> int:
    """Run a TaskManager until it is asked to close, or the cluster is shut down."""
    spec, configuration = parts.spec, parts.configuration
    lease_s = Timing.of(configuration).lease_s
    host = configuration.find(options.TASKMANAGER_HOST) or socket.gethostname()
    endpoint = bind_metrics(configuration, host)
    if endpoint:
        endpoint.security.server()  # Bad certificates are refused at the start.
    me = Identity(
        spec.incarnation,
        spec.name,
        os.getpid(),
        os.getppid(),
        host,
        spec.lock,
        endpoint.url if endpoint else "",
    )
    settings = TaskManagerSettings(
        _pool(configuration, parts.services.storage.url, Path(spec.scratch), spec.name),
        parts.services.locations.cluster,
        configuration.get(options.ORPHAN_TIMEOUT),
        configuration.get(options.HEARTBEAT_INTERVAL),
    )
    network: Network[LinkMessage] = network_of(
        configuration, spec.cluster_id, channels.link_codec, is_jobmanager=False
    )

    environments = environments_of(parts)

    def leaders() -> AsyncIterator[LeaderRecord | None]:
        return retrieve(parts.services.register, parts.clock, lease_s)

    manager = TaskManager(
        me,
        settings,
        TaskManagerContext(
            parts.processes,
            network,
            parts.services.storage.blocking,
            parts.clock,
            parts.guardian,
            parts.reporter,
            leaders,
            environments,
            parts.services.registry.read,
        ),
    )
    drain_s = configuration.get(options.DRAIN_TIMEOUT)
    if drain_s and spec.events is None:  # Else the whole cluster ends.
        parts.drain = functools.partial(manager.drain, drain_s)
    parts.reporter.event(
        "taskmanager-started",
        id=spec.name,
        pid=me.pid,
        guardian_pid=me.guardian_pid,
        rest=None,
        metrics=me.metrics or None,
    )
    async with _scraped(manager, parts, endpoint), running(environments.sweep()):
        try:
            await manager.run()
        finally:
            if not manager.held_attempts:
                parts.guardian.released()
    return SHUT_DOWN


def _pool(configuration: Configuration, storage: str, scratch: Path, name: str) -> PoolSettings:
    return PoolSettings(
        configuration.get(options.DRIVER_KIND),
        configuration.get(options.SLOTS),
        configuration.get(options.SPARES),
        configuration.get(options.DRIVER_HEARTBEAT),
        configuration.get(options.DRIVER_START),
        configuration.get(options.CANCEL_GRACE),
        storage,
        scratch,
        configuration.get(options.EXECUTORS_KEEP_IDLE),
        configuration.find(options.EXECUTORS_WAIT),
        configuration.get(options.DRIVER_REUSE),
        configuration.get(options.REDACTED_KEYS),
        _class_data(configuration),
        name,
        Limit.of(configuration, options.DRIVER_MEMORY, options.DRIVER_PROCESSES),
    )


def _class_data(configuration: Configuration) -> str:
    """Return the private directory of archives of classes; empty where there is none."""
    option = options.DRIVER_CLASS_DATA_SHARING
    if not configuration.get(option) or configuration.get(options.DRIVER_KIND) != "spark":
        return ""
    try:
        directory = cache_home() / "class-data"
        own_directory.make(directory, levels=2, way_out=f"set {option.key} to false")
    except (OSError, RuntimeError, ConfigurationError) as error:  # Without a home, say.
        _log.info("drivers start without archives of classes: %s", error)
        return ""
    return str(directory)


def _scraped(
    manager: TaskManager, parts: Parts, endpoint: MetricsEndpoint | None
) -> AbstractAsyncContextManager[None]:
    """Serve metrics from the first scrape on, where they are to be served."""
    if endpoint is None:
        return contextlib.nullcontext()
    return served_once_asked(
        endpoint.listening,
        "understudy.api.metrics_taskmanager",
        lambda found: found.serving_manager(manager, parts.spec.name, parts.services, endpoint),
    )


if __name__ == "__main__":
    main(run)
