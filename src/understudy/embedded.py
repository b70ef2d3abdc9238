"""The embedded cluster: a whole cluster in this process, for plain ``python app.py``.

The regular Dispatcher, ResourceManager and JobMasters run in a separate thread, over a register and
a storage in memory; jobs run in threads instead of drivers. Functions, arguments and values pass
through the same pickling and JSON as in a cluster. There is no high availability and no server. A
failed job is not restarted, so that its error is visible at once, unless it has ``retries``: then
each failed attempt is told before the retry.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import ctypes
import importlib
import itertools
import logging
import os
import queue
import random
import sys
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from understudy.application.environment import Environment
from understudy.clock import SystemClock
from understudy.config import Configuration, options
from understudy.core.matching import Assignment
from understudy.driver.attempt import Attempt, Interrupted
from understudy.driver.checkpointing import LinkRecorder
from understudy.driver.time_limit import TimeLimit
from understudy.errors import UnreachableError
from understudy.ha.backends.embedded import EmbeddedRegister
from understudy.ha.election import Leadership
from understudy.ha.format import digest
from understudy.ha.services import HighAvailabilityServices, Locations
from understudy.ha.storage import BlockingStorage, FsspecStorage, InlineStorage
from understudy.jobmanager.dispatcher import Binding, Dispatcher
from understudy.jobmanager.main_process import MainProcess
from understudy.jobmanager.resource_manager import ResourceManager
from understudy.jobmanager.submission import Submission
from understudy.jobmanager.surroundings import RunEnd, Surroundings
from understudy.model import (
    ApplicationStatus,
    Failure,
    Incarnation,
    JobId,
    LeaderRecord,
    Pointer,
)
from understudy.process.attempt_news import failed_attempt
from understudy.process.failures import failure_of, uncaught_job
from understudy.process.forks import Home
from understudy.process.liveness_lock import NoLocks
from understudy.process.processes import Death
from understudy.process.reporter import Silent
from understudy.rpc import messages
from understudy.rpc.local import LocalLink, link_pair
from understudy.rpc.messages import Deploy, DriverReport, LinkMessage, MainMessage

CLUSTER = "embedded"
SLOTS = 8
"""Concurrent jobs; they share one SparkContext, so more would only wait for each other."""

_me = Incarnation(uuid.uuid4().hex)


class _Retries(Silent):
    """Tells each failed attempt that is retried; the last failure is told by ``main``."""

    def event(self, event: str, **fields: Any) -> None:
        """Print what is retried, and drop everything else."""
        if event == "attempt-failed" and not fields["reason"]:
            with contextlib.suppress(Exception):  # ``main`` may have closed or replaced stderr.
                sys.stderr.write(f"understudy: {failed_attempt(fields)}\n")


class ThisProcess:
    """This process in the role of the process of ``main``: it can end, but cannot be killed."""

    guardian_pid = 0

    def __init__(self) -> None:
        self.incarnation = _me
        self.pid = os.getpid()
        self.death: asyncio.Future[Death] = asyncio.get_running_loop().create_future()

    def until(self, deadline: float) -> None:
        """Do nothing: no guardian watches this process."""

    def stop(self, grace_s: float) -> None:
        """End this process's role as ``main`` at once."""
        self.kill("")

    def kill(self, reason: str) -> None:
        """Mark ``main`` as dead; the process itself lives on."""
        if not self.death.done():
            self.death.set_result(Death(0, 0, SystemClock().now(), "ended"))

    async def started(self) -> None:
        """Return at once: this process has started."""


class OneMain:
    """Provides the one process of ``main`` that exists."""

    ready = True

    def __init__(self, main: MainProcess) -> None:
        self._main = main

    def hold(self, deadline: float) -> None:
        """Do nothing: there is no lease to hold."""

    async def take(self, python: str) -> MainProcess:
        """Return this process's ``main``."""
        return self._main


class Threads:
    """A TaskManager whose drivers are threads of this process; its messages are the usual ones."""

    def __init__(self, link: LocalLink[LinkMessage], storage: BlockingStorage) -> None:
        self._link = link
        self._storage = storage
        self._loop = asyncio.get_running_loop()
        self._busy: dict[Incarnation, Deploy] = {}
        self._drivers = [Incarnation(f"thread-{number}") for number in range(1, SLOTS + 1)]
        self._spark = _Spark()
        self._recorders: dict[JobId, LinkRecorder] = {}
        # Started now: Python 3.12 starts no thread once main has ended.
        self._orders: dict[Incarnation, queue.SimpleQueue[tuple[Deploy, int]]] = {}
        self._threads: dict[Incarnation, threading.Thread] = {}
        for driver in self._drivers:
            self._orders[driver] = queue.SimpleQueue()
            self._threads[driver] = threading.Thread(
                target=self._work, args=(driver,), name=f"understudy-{driver}", daemon=True
            )
            self._threads[driver].start()

    def registration(self) -> messages.RegisterTaskManager:
        """Return the first message of a TaskManager."""
        return messages.RegisterTaskManager(
            name=CLUSTER,
            pid=os.getpid(),
            guardian_pid=0,
            host="localhost",
            lock="",
            slots=SLOTS,
            spares=0,
            drivers=self._reports(),
            attempts=(),
        )

    async def serve(self) -> None:
        """Execute the leader's orders until the link is closed."""
        while (envelope := await self._link.receive()) is not None:
            match envelope.message:
                case Deploy() as deploy:
                    self._busy[deploy.driver] = deploy
                    self._link.send(messages.Drivers(drivers=self._reports()))
                    self._orders[deploy.driver].put((deploy, envelope.term))
                case messages.StopAttempt() as stop:
                    self._interrupt(stop)
                case messages.CheckpointsRecorded() | messages.CheckpointsRefused() as answer:
                    self._recorders[answer.job_id].answered(answer)

    def _reports(self) -> tuple[DriverReport, ...]:
        return tuple(
            DriverReport(driver=driver, slot=slot, state="busy" if driver in self._busy else "warm")
            for slot, driver in enumerate(self._drivers, start=1)
        )

    def _work(self, driver: Incarnation) -> None:
        while True:
            self._run(*self._orders[driver].get())

    def _run(self, deploy: Deploy, term: int) -> None:
        clock = SystemClock()
        attempt = Attempt(deploy, term, self._storage, clock)
        recorder = LinkRecorder(self._report, deploy.job_id, deploy.attempt, clock)
        self._recorders[deploy.job_id] = recorder
        self._report(messages.AttemptRunning(job_id=deploy.job_id, attempt=deploy.attempt))
        limit = TimeLimit(deploy, 0.0, lambda _: self._time_out(deploy), lambda: None)
        limit.begin()
        try:
            context = attempt.context(lambda: self._spark.session(attempt, deploy), recorder)
            value = attempt.call(context, lambda value: self._spark.settle(deploy.job_id, value))
            attempt.end()
            if attempt.streams.was_stopped:
                raise Interrupted
            attempt.finished(value)
        except Interrupted:
            _end_queries(attempt)
            if limit.exceeded:
                attempt.failed(limit.exceeded)
            else:
                attempt.interrupted()
        except BaseException as error:
            _end_queries(attempt)
            attempt.failed(error)
        limit.end()
        ended = _staged(attempt)
        self._loop.call_soon_threadsafe(self._ended, deploy.driver, ended)

    def _ended(self, driver: Incarnation, ended: messages.AttemptEnded) -> None:
        del self._busy[driver]
        # A thread leaves nothing to reap, and no other attempt follows here.
        self._link.send(replace(ended, reaped=True))
        self._link.send(messages.Drivers(drivers=self._reports()))

    def _time_out(self, deploy: Deploy) -> None:
        stop = messages.StopAttempt(job_id=deploy.job_id, attempt=deploy.attempt)
        self._loop.call_soon_threadsafe(self._interrupt, stop)

    def _interrupt(self, stop: messages.StopAttempt) -> None:
        for driver, deploy in self._busy.items():
            thread = self._threads[driver]
            if (deploy.job_id, deploy.attempt) == (stop.job_id, stop.attempt):
                self._spark.interrupt(deploy.job_id)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Interrupted)
                )

    def _report(self, message: LinkMessage) -> None:
        self._loop.call_soon_threadsafe(self._link.send, message)


class _Spark:
    """The one SparkContext of this process, started when the first job needs it."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._started: Any = None
        self._sessions: dict[str, Any] = {}
        self._queries: dict[str, Any] = {}

    def session(self, attempt: Attempt, deploy: Deploy) -> Any:
        """Return the job's own session, and watch its streaming queries from now on."""
        job_id = deploy.job_id
        with self._turn:
            if self._started is None:
                self._started = importlib.import_module("understudy.spark.embedded")
            if job_id not in self._sessions:
                session = self._started.open_session(job_id, deploy.name)
                self._queries[job_id] = self._started.queries_of(session)
                self._sessions[job_id] = session
                attempt.streams.watch(self._queries[job_id])
            return self._sessions[job_id]

    def settle(self, job_id: str, value: Any) -> Any:
        """Wait for the streaming queries of a job."""
        return self._queries[job_id].settle(value) if job_id in self._queries else value

    def interrupt(self, job_id: str) -> None:
        """Interrupt the Spark jobs of a job."""
        if job_id in self._sessions:
            self._started.interrupt(self._sessions[job_id], self._queries[job_id], job_id)


def _staged(attempt: Attempt) -> messages.AttemptEnded:
    """Stage an attempt's outcome; a late interrupt changes nothing."""
    while True:
        try:
            return attempt.stage()
        except Interrupted:
            continue


def _end_queries(attempt: Attempt) -> None:
    """End an attempt's streaming queries; one that does not stop ends with this process."""
    try:
        attempt.end()
    except Exception:
        logging.getLogger(__name__).exception("streaming queries cannot be stopped")


class EmbeddedLink:
    """``main``'s requests, from any thread to the cluster's thread."""

    execution = 1

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self._home = Home()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, concurrent.futures.Future[MainMessage]] = {}

    def request(self, message: Callable[[int], MainMessage]) -> MainMessage:
        """Send a numbered request to the cluster's thread, and wait for the answer."""
        self._home.demand("a question of main")
        number = next(self._numbers)
        answer: concurrent.futures.Future[MainMessage] = concurrent.futures.Future()
        self._waiting[number] = answer
        self._cluster.send(message(number))
        return answer.result()

    def send(self, message: MainMessage) -> None:
        """Send a message to the cluster's thread."""
        self._home.demand("a message of main")
        self._cluster.send(message)

    def put_plan(self, job_id: JobId, plan: bytes) -> Pointer:
        """Store a plan in memory."""
        name = digest(plan)
        path = f"{CLUSTER}/applications/plans/{job_id}"
        self._cluster.storage.publish(path, plan)
        return Pointer(path=path, digest=name, size=len(plan))

    def answered(self, message: MainMessage | None) -> None:
        """Pass an answer to its waiting request; None: the cluster has ended, so fail them all."""
        if message is None:
            for answer in self._waiting.values():
                answer.set_exception(UnreachableError("the embedded cluster has ended"))
            self._waiting.clear()
            return
        waiting = self._waiting.pop(getattr(message, "request", 0), None)
        if waiting:
            waiting.set_result(message)


class EmbeddedCluster:
    """The cluster of this process, in a separate thread."""

    def __init__(self) -> None:
        self.storage: BlockingStorage = FsspecStorage(f"memory://understudy-{_me}")
        self.link = EmbeddedLink(self)
        self.application_id = ""
        self._loop = asyncio.new_event_loop()
        self._main: LocalLink[MainMessage] | None = None
        self._process: ThisProcess | None = None
        self._ready: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._ended: concurrent.futures.Future[RunEnd] = concurrent.futures.Future()
        self._failure: Failure | None = None
        self._thread = threading.Thread(target=self._run, name="understudy-cluster", daemon=True)
        self._thread.start()
        self._ready.result()

    def send(self, message: MainMessage) -> None:
        """Send a message of ``main`` to the cluster, from any thread."""
        assert self._main is not None
        self._loop.call_soon_threadsafe(self._main.send, message)

    def end(self, error: BaseException | None) -> ApplicationStatus:
        """Report ``main``'s outcome; wait for all jobs and return the application's status."""
        failure, job_id = (failure_of(error), uncaught_job(error)) if error else (None, None)
        self.send(messages.MainEnded(failure=failure, job_id=job_id))
        self._loop.call_soon_threadsafe(self._leave)
        return self._ended.result().status

    def _leave(self) -> None:
        """Close the link and mark ``main`` as dead, as the end of a real process would."""
        assert self._main is not None
        assert self._process is not None
        self._main.close()
        self._process.kill("")

    @property
    def failure(self) -> Failure | None:
        """Return why the application failed."""
        return self._failure

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._ended.set_result(self._loop.run_until_complete(self._serve()))
        except BaseException as error:
            for waiting in (self._ready, self._ended):
                if not waiting.done():
                    waiting.set_exception(error)
        finally:
            self.link.answered(None)

    async def _serve(self) -> RunEnd:
        ends: tuple[LocalLink[MainMessage], LocalLink[MainMessage]] = link_pair(_me, _me)
        cluster_end, self._main = ends
        self._process = ThisProcess()
        main = MainProcess(self._process, cluster_end)
        dispatcher, resources = self._dispatcher(OneMain(main))
        taskmanager = Incarnation("embedded-taskmanager")
        pair: tuple[LocalLink[LinkMessage], LocalLink[LinkMessage]] = link_pair(_me, taskmanager)
        threads = Threads(pair[1], self.storage)

        async def publish() -> None:
            (self.application_id,) = dispatcher.applications
            tasks.append(
                asyncio.ensure_future(
                    resources.converse(pair[0], taskmanager, threads.registration())
                )
            )
            self._ready.set_result(None)

        tasks: list[asyncio.Future[None]] = [
            asyncio.ensure_future(threads.serve()),
            asyncio.ensure_future(self._hear(self._main)),
        ]
        try:
            ended = await dispatcher.run(publish)
            assert ended is not None, "it was started with an application"
            self._failure = ended.failure
            return ended
        finally:
            resources.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _hear(self, link: LocalLink[MainMessage]) -> None:
        while (envelope := await link.receive()) is not None:
            self.link.answered(envelope.message)

    def _dispatcher(self, mains: OneMain) -> tuple[Dispatcher, ResourceManager]:
        configuration = Configuration({options.RESTART_TYPE.key: "none"})
        locations = Locations(CLUSTER, f"{CLUSTER}/job-results", f"{CLUSTER}/application-results")
        services = HighAvailabilityServices(
            EmbeddedRegister(), InlineStorage(self.storage), CLUSTER, locations
        )
        clock = SystemClock()
        around = Surroundings(
            _me,
            CLUSTER,
            "",
            configuration,
            services,
            mains,
            NoLocks(),
            _Retries(),
            clock,
            random.Random(),  # noqa: S311 -- jitter, not secrets
        )
        nobody = LeaderRecord(holder=Incarnation(""), term=0, session="")
        leadership = Leadership(1, str(uuid.uuid4()), nobody, None, "nobody has led before")
        grace_s = configuration.get(options.ADOPTION_GRACE)
        resources = ResourceManager(1, grace_s, NoLocks(), clock, lambda: None)
        script = Path(sys.argv[0]).stem if sys.argv and sys.argv[0] else "embedded"
        submission = Submission(script, "", "", (), str(Path.cwd()), ())
        binding = Binding(None, ephemeral=True, submission=submission)
        return Dispatcher(around, binding, leadership, resources), resources


def embed() -> Environment:
    """Start the cluster of this process; it ends when the interpreter exits."""
    cluster, home = EmbeddedCluster(), Home()
    atexit.register(lambda: _end(cluster) if home.is_here else None)
    return Environment(cluster.link, Assignment(cluster.application_id))


def _end(cluster: EmbeddedCluster) -> None:
    """Wait for the jobs that ``main`` has left running, and exit as a cluster would."""
    error: BaseException | None = getattr(sys, "last_value", None)
    with contextlib.suppress(KeyboardInterrupt):
        status = cluster.end(error)
        if status is ApplicationStatus.FINISHED:
            return
        if error is not None and status is ApplicationStatus.FAILED:
            return  # Python has printed the error, and exits with its exit code.
        if cluster.failure:
            text = cluster.failure.traceback or cluster.failure.message
            sys.stderr.write(f"understudy: a job that nobody awaited has failed\n{text}\n")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if status is ApplicationStatus.FAILED else 3)
