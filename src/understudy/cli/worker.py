"""A worker process: the JobManager or TaskManager, put together from its parts.

Run as ``python -m understudy.cli.worker`` under a guardian. SIGTERM, SIGINT and SIGHUP close it in
order: what it started is ended and reaped, what it holds is given up, no data is deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from understudy.api import metrics, metrics_taskmanager, rest
from understudy.api.authentication import rest_security
from understudy.cli.compose import EXIT_CODES, open_services, prove_storage
from understudy.cli.joining import shared_settings
from understudy.cli.notify import NoNotifier, Notifier, notifier
from understudy.cli.securing import network_of, rest_host, warn_of_open_token
from understudy.cli.spec import WorkerSpec, received, telling_ready
from understudy.cli.standalone import rest_ports, standing_alone
from understudy.cli.story import Event, Story, reason_of
from understudy.cli.submitting import submission_of
from understudy.clock import SystemClock
from understudy.config import Configuration, options
from understudy.core.lease import Timing
from understudy.errors import DataError, NotFoundError, UnderstudyError
from understudy.ha.register import Releasable
from understudy.ha.retrieval import retrieve
from understudy.ha.services import HighAvailabilityServices
from understudy.model import LeaderRecord, RunId
from understudy.rpc.gateway import Network
from understudy.rpc.messages import LinkMessage
from understudy.runtime import channels
from understudy.runtime.dispatcher import Binding, Ended, Surroundings
from understudy.runtime.driver_pool import PoolSettings
from understudy.runtime.job_manager import JobManager
from understudy.runtime.liveness_lock import LivenessLocks, NoLocks
from understudy.runtime.main_process import WarmMainProcesses
from understudy.runtime.processes import GuardedProcesses
from understudy.runtime.reporter import LogFiles, Reporter, ThreadedReporter, to_console, to_pipe
from understudy.runtime.retention import read_tombstone
from understudy.runtime.task_manager import Identity, TaskManager, TaskManagerSettings
from understudy.runtime.worker import GuardianLink

CLOSED = 143
"""Exit code of a worker that was told to close."""

_log = logging.getLogger(__name__)


@dataclass
class Parts:
    """What both kinds of workers are made of."""

    spec: WorkerSpec
    configuration: Configuration
    services: HighAvailabilityServices
    locks: LivenessLocks | NoLocks
    guardian: GuardianLink
    processes: GuardedProcesses
    reporter: Reporter
    posts: Notifier | NoNotifier
    clock: SystemClock


def assemble(spec: WorkerSpec) -> Parts:
    """Open everything, and refuse what does not keep its promises."""
    configuration = Configuration(spec.settings)
    services = open_services(
        configuration, spec.cluster_id, as_jobmanager=spec.role == "jobmanager"
    )
    prove_storage(configuration, services)
    locks: LivenessLocks | NoLocks = NoLocks()
    if spec.lock:
        proven = LivenessLocks(Path(spec.lock).parent)
        proven.prove()
        locks = proven
    guardian = GuardianLink.from_environment()
    if isinstance(services.backend, Releasable):
        services.backend.on_release(lambda what: guardian.release_by(what.argv, what.told))
    logs = LogFiles(configuration.log_dir, configuration.get(options.LOG_MAX))
    # What happens in a cluster of run-application is posted by the launcher, who hears of all.
    posts: Notifier | NoNotifier = NoNotifier()
    if spec.events is not None:
        tell = to_pipe(spec.events)
    else:
        # At the end the guardian hears nothing of this process any more, for a lease at most.
        posts = notifier(configuration, _log.warning, Timing.of(configuration).lease_s / 3)
        tell = _to_console_and(posts)
        if spec.ready is not None:
            tell = telling_ready(spec.ready, tell)
    return Parts(
        spec,
        configuration,
        services,
        locks,
        guardian,
        GuardedProcesses(guardian.settle),
        ThreadedReporter(tell, logs),
        posts,
        SystemClock(),
    )


def _to_console_and(posts: Notifier | NoNotifier) -> Callable[[Event], None]:
    """Return a teller of events to the console, and to whom they are to be posted."""
    story = Story(time.time)

    def tell(event: Event) -> None:
        to_console(event)
        told = story.hear(event)
        if told:
            posts.tell(told)

    return tell


async def run_jobmanager(parts: Parts) -> int:
    """Be a JobManager until the run has ended; return the exit code."""
    async with standing_alone(parts.configuration, parts.services):
        return await _run_jobmanager(parts)


async def _run_jobmanager(parts: Parts) -> int:
    spec, configuration = parts.spec, parts.configuration
    listening = rest.bind(configuration.get(options.REST_BIND_ADDRESS), rest_ports(configuration))
    security = rest_security(configuration)
    warn_of_open_token(configuration, security)
    network: Network[LinkMessage] = network_of(
        configuration, spec.cluster_id, channels.link_codec, is_jobmanager=True
    )
    url = rest.url_of(listening, rest_host(configuration), security)
    me = _leader_record(parts, url, network.address_of(spec.incarnation))
    identity = {
        "id": spec.name,
        "pid": me.pid,
        "guardian_pid": me.guardian_pid,
        "rest": me.rest,
    }
    told = False

    def main_changed() -> None:
        nonlocal told
        manager.main_changed()
        if mains.ready and not told:
            told = True
            parts.reporter.event("jobmanager-ready", **identity)

    mains = WarmMainProcesses(
        parts.processes,
        configuration.get(options.MAIN_HEARTBEAT),
        Path(spec.scratch),
        main_changed,
    )
    manager = _job_manager(parts, me, mains, network)
    try:
        async with rest.serving(manager, listening, security), _running(mains.run()):
            parts.reporter.event("jobmanager-started", **identity)
            ended = await manager.run()
            await _tell_end(parts, ended)
            if not configuration.get(options.SHUTDOWN_ON_FINISH):
                # Its guardian goes on hearing of it, or would take it for one that hangs.
                await parts.guardian.beat(parts.clock, Timing.of(configuration).lease_s)
    except asyncio.CancelledError:
        parts.guardian.released()
        raise
    parts.guardian.released()
    return EXIT_CODES[ended.status]


def _leader_record(parts: Parts, rest_url: str, rpc_address: str) -> LeaderRecord:
    """Return what this JobManager publishes of itself when it leads."""
    return LeaderRecord(
        holder=parts.spec.incarnation,
        term=0,
        session="",
        lease_s=Timing.of(parts.configuration).lease_s,
        name=parts.spec.name,
        pid=os.getpid(),
        guardian_pid=os.getppid(),
        host=socket.gethostname(),
        lock=parts.spec.lock,
        rest=rest_url,
        rpc=rpc_address,
        settings=shared_settings(parts.configuration),
    )


def _job_manager(
    parts: Parts, me: LeaderRecord, mains: WarmMainProcesses, network: Network[LinkMessage]
) -> JobManager:
    spec, configuration = parts.spec, parts.configuration
    around = Surroundings(
        me.holder,
        me.name,
        me.rest,
        configuration,
        parts.services,
        mains,
        parts.locks,
        parts.reporter,
        parts.clock,
        random.Random(),  # noqa: S311 -- jitter, not secrets
    )
    binding = Binding(
        RunId(spec.run_id) if spec.run_id else None,
        spec.ephemeral,
        submission_of(spec.application, configuration) if spec.application else None,
        spec.changes,
    )
    return JobManager(
        me,
        around,
        binding,
        Timing.of(configuration),
        configuration.get(options.ADOPTION_GRACE),
        network,
        parts.locks,
        parts.guardian,
    )


async def run_taskmanager(parts: Parts) -> int:
    """Be a TaskManager until told to close."""
    spec, configuration = parts.spec, parts.configuration
    lease_s = Timing.of(configuration).lease_s
    host = configuration.find(options.TASKMANAGER_HOST) or socket.gethostname()
    endpoint = metrics_taskmanager.bind(configuration, host)
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
        PoolSettings(
            configuration.get(options.DRIVER_KIND),
            configuration.get(options.SLOTS),
            configuration.get(options.SPARES),
            configuration.get(options.DRIVER_HEARTBEAT),
            configuration.get(options.DRIVER_START),
            configuration.get(options.CANCEL_GRACE),
            parts.services.storage.url,
            Path(spec.scratch),
        ),
        parts.services.locations.cluster,
        configuration.get(options.ORPHAN_TIMEOUT),
        configuration.get(options.HEARTBEAT_INTERVAL),
    )
    network: Network[LinkMessage] = network_of(
        configuration, spec.cluster_id, channels.link_codec, is_jobmanager=False
    )

    def leaders() -> AsyncIterator[LeaderRecord | None]:
        return retrieve(parts.services.register, parts.clock, lease_s)

    manager = TaskManager(
        me,
        settings,
        parts.processes,
        network,
        parts.services.storage.blocking,
        parts.clock,
        parts.guardian,
        parts.reporter,
        leaders,
    )
    registry = metrics.registry_of(
        "taskmanager",
        spec.name,
        parts.services,
        metrics_taskmanager.TaskManagerMetrics(manager),
    )
    parts.reporter.event(
        "taskmanager-started",
        id=spec.name,
        pid=me.pid,
        guardian_pid=me.guardian_pid,
        rest=None,
        metrics=me.metrics or None,
    )
    async with metrics_taskmanager.serving(registry, endpoint):
        try:
            await manager.run()
        finally:
            if not manager.held_attempts:
                parts.guardian.released()


async def _tell_end(parts: Parts, ended: Ended) -> None:
    """Tell how the run ended, with each of its jobs."""
    jobs: list[dict[str, object]] = []
    reason = None
    with contextlib.suppress(OSError, TimeoutError, DataError, NotFoundError):
        registry = await parts.services.registry.read()
        stone = registry.tombstones.get(ended.run_id) if registry else None
        if stone:
            file = await read_tombstone(parts.services, stone)
            reason = reason_of(file.result.failure)
            jobs = [
                {
                    "job_id": job.job_id,
                    "name": job.name,
                    "status": job.status.value,
                    "attempt": job.attempt,
                }
                for job in file.jobs
            ]
    parts.reporter.event(
        "application-finished",
        run_id=ended.run_id,
        status=ended.status.value,
        failure=reason,
        jobs=jobs,
    )


@contextlib.asynccontextmanager
async def _running(work: Awaitable[None]) -> AsyncIterator[None]:
    """Run something beside the block, and end it with the block."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def run(spec: WorkerSpec) -> int:
    """Run the worker until its end or a signal; return its exit code."""
    parts = assemble(spec)
    role = {"jobmanager": run_jobmanager, "taskmanager": run_taskmanager}[spec.role]
    with parts.posts:
        work = asyncio.ensure_future(role(parts))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, work.cancel)
        try:
            return await work
        except asyncio.CancelledError:
            return CLOSED
        finally:
            if isinstance(parts.services.backend, Releasable):
                await asyncio.to_thread(parts.services.backend.release)
            parts.reporter.close()


def main() -> None:
    """Run the worker that the environment describes."""
    spec = received()
    level = Configuration(spec.settings).get(options.LOG_LEVEL).upper()
    logging.basicConfig(
        level={"WARN": "WARNING"}.get(level, level),
        format=f"%(asctime)s {spec.name} %(levelname)s %(message)s",
        stream=sys.stderr,
    )
    for noisy in ("asyncio", "httpx", "httpcore", "uvicorn.error"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        code = asyncio.run(run(spec))
    except UnderstudyError as error:
        _log.error("%s", error)
        code = 70
    sys.stderr.flush()
    os._exit(code)  # Threads that wait for locks of the living must not keep this process.


if __name__ == "__main__":
    main()
