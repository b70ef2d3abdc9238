"""Assembly and shutdown of a worker process (JobManager or TaskManager).

A worker runs under a guardian. SIGTERM, SIGINT and SIGHUP close the worker in order: its child
processes are ended and reaped, its locks and leases released, and no data is deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from understudy.cli.launch.compose import (
    locks_directories,
    open_services,
    prove_locks,
    prove_storage,
    scratch_base,
)
from understudy.cli.launch.notify import NoNotifier, Notifier, notifier
from understudy.cli.launch.sentences import describe_own
from understudy.cli.launch.spec import WorkerSpec, received, telling_ready
from understudy.cli.launch.story import Event, Story
from understudy.clock import SystemClock
from understudy.config import Configuration, options
from understudy.config.configuration import learn_secrets
from understudy.config.secrets import log_without_secrets
from understudy.core.lease import Timing
from understudy.errors import UnderstudyError
from understudy.ha.register import Releasable
from understudy.ha.services import HighAvailabilityServices
from understudy.process.closing import Closing
from understudy.process.environments import Environments, EnvironmentSettings
from understudy.process.liveness_lock import LivenessLocks, NoLocks
from understudy.process.printed import is_terminal
from understudy.process.processes import GuardedProcesses
from understudy.process.reporter import LogFiles, Reporter, ThreadedReporter, to_console, to_pipe
from understudy.process.worker import GuardianLink

CLOSED = 143
"""Exit code of a worker that was asked to close (128 + SIGTERM)."""

SHUT_DOWN = 0
"""Exit code of a worker whose cluster a request has shut down: nothing starts the worker again."""

THREADS_MAX = 32
"""Threads that may wait for storage at a time: savepoint copies, a store that hangs."""

_log = logging.getLogger(__name__)


@dataclass
class Parts:
    """The parts that both kinds of worker share."""

    spec: WorkerSpec
    configuration: Configuration
    services: HighAvailabilityServices
    locks: LivenessLocks | NoLocks
    guardian: GuardianLink
    processes: GuardedProcesses
    reporter: Reporter
    posts: Notifier | NoNotifier
    clock: SystemClock
    drain: Callable[[], Awaitable[None]] | None = None
    """What is done before the work is cancelled, once the worker is asked to end."""


@contextlib.asynccontextmanager
async def running(work: Awaitable[None]) -> AsyncIterator[None]:
    """Run a task during the block, and cancel it at the end."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def environments_of(parts: Parts) -> Environments:
    """Return the Python environments of applications on this host."""
    configuration = parts.configuration
    settings = EnvironmentSettings(
        Path(scratch_base(configuration)) / "environments",
        configuration.find(options.FIND_LINKS) or (),
        configuration.get(options.NO_INDEX),
        configuration.get(options.ENVIRONMENT_TIMEOUT),
    )
    return Environments(settings, parts.processes, parts.clock)


Role = Callable[[Parts], Awaitable[int]]
"""A worker's work until it is cancelled; returns the exit code."""


def assemble(spec: WorkerSpec) -> Parts:
    """Open all parts; raise if storage or locks do not keep their promises."""
    configuration = Configuration(spec.settings)
    services = open_services(
        configuration, spec.cluster_id, as_jobmanager=spec.role == "jobmanager"
    )
    prove_storage(configuration, services)
    locks: LivenessLocks | NoLocks = NoLocks()
    if spec.lock:
        prove_locks(configuration, spec.cluster_id)
        others = locks_directories(configuration, spec.cluster_id)
        locks = LivenessLocks(Path(spec.lock).parent, *others)
    guardian = GuardianLink.from_environment()
    if isinstance(services.backend, Releasable):
        services.backend.on_release(lambda what: guardian.release_by(what.argv, what.input))
    logs = LogFiles.of(configuration)
    # In a cluster of run-application, the launcher hears and posts all events.
    posts: Notifier | NoNotifier = NoNotifier()
    if spec.events is not None:
        tell = to_pipe(spec.events)
    else:
        # Closing stops the heartbeats to the guardian, which tolerates that for a lease at most.
        posts = notifier(configuration, _log.warning, Timing.of(configuration).lease_s / 3)
        # The log of a session's process would grow with what all applications print.
        tell = _to_console_and(posts, prints=not configuration.get(options.SESSION))
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


def _to_console_and(
    posts: Notifier | NoNotifier, *, prints: bool = True
) -> Callable[[Event], None]:
    """Return an event sink that prints to the console and posts to ``notify.url``.

    ``prints``: also what applications print, which is in their own logs in any case.

    A terminal shows what `understudy run-application` shows; a log file has each event's fields.
    """
    story = Story(time.time)

    in_terminal = is_terminal(sys.stderr)

    def tell(event: Event) -> None:
        if event["event"] == "output" and not prints:
            return
        if not in_terminal:
            to_console(event)
        elif words := describe_own(event):
            print(words, file=sys.stderr, flush=True)
        told = story.hear(event)
        if told:
            posts.tell(told)

    return tell


async def run(spec: WorkerSpec, role: Role) -> int:
    """Run the worker until its end or a signal; return its exit code."""
    parts = assemble(spec)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(THREADS_MAX, "understudy-storage"))
    with parts.posts:
        work = asyncio.ensure_future(role(parts))
        ending: list[asyncio.Future[None]] = []

        def end(number: int) -> None:
            if parts.drain is None or (ending and number == signal.SIGINT):  # A second Ctrl-C.
                work.cancel()
            elif not ending:
                ending.append(asyncio.ensure_future(parts.drain()))
                ending[0].add_done_callback(lambda _: work.cancel())

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, end, number)
        try:
            return await work
        except asyncio.CancelledError:
            return CLOSED
        finally:
            with Closing(spec.name) as closing:
                with closing.step("what it holds in the register"):
                    if isinstance(parts.services.backend, Releasable):
                        await asyncio.to_thread(parts.services.backend.release)
                with closing.step("its events and logs"):
                    parts.reporter.close()


def _learn_secrets(spec: WorkerSpec, configuration: Configuration) -> None:
    conf = spec.application.conf if spec.application else {}
    learn_secrets({**spec.settings, **conf}, configuration.get(options.REDACTED_KEYS))


def main(role: Role) -> None:
    """Run the worker described in the environment; does not return."""
    spec = received()
    configuration = Configuration(spec.settings)
    _learn_secrets(spec, configuration)
    level = configuration.get(options.LOG_LEVEL).upper()
    is_read = spec.events is None and is_terminal(sys.stderr)
    if is_read and options.LOG_LEVEL.key not in spec.settings:
        level = "WARNING"  # A person reads the events.
    logging.basicConfig(
        level={"WARN": "WARNING"}.get(level, level),
        stream=sys.stderr,
    )
    log_without_secrets(f"%(asctime)s {spec.name} %(levelname)s %(message)s")
    for noisy in ("asyncio", "httpx", "httpcore", "uvicorn.error"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        code = asyncio.run(run(spec, role))
    except UnderstudyError as error:
        _log.error("%s", error)
        code = 70
    sys.stderr.flush()
    os._exit(code)  # Threads waiting for locks must not delay the exit.
