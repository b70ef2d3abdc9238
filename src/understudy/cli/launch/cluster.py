"""A cluster on this machine for one application: its processes start, get replaced, and end here.

The launcher is the parent of all guardians and the last subreaper. Each process sends its events
over a pipe; if the launcher dies, the guardians close the cluster and keep the data.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import shutil
import signal
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import msgspec

from understudy.api.authentication import RestSecurity
from understudy.cli.launch import past_runs
from understudy.cli.launch.compose import (
    EXIT_CODES,
    directory_of,
    locks_directories,
    open_services,
    scratch_base,
)
from understudy.cli.launch.past_runs import PastRun
from understudy.cli.launch.shared_storage import lives_elsewhere
from understudy.cli.launch.spec import ApplicationSpec, WorkerSpec, guarded, new_worker
from understudy.cli.launch.standalone import remove_leftovers
from understudy.cli.launch.story import Event, Story
from understudy.config import Configuration, options
from understudy.config.secrets import masked
from understudy.core.ids import application_id
from understudy.errors import Conflict, DataError, UnderstudyError
from understudy.ha.register import Entry, HasLatch
from understudy.ha.retrieval import LEADER_KEY, decode_leader
from understudy.ha.storage import open_storage
from understudy.jobmanager.redeployment import Changes
from understudy.jobmanager.retention import read_tombstone
from understudy.process import guardian
from understudy.process.closing import Closing
from understudy.process.liveness_lock import LivenessLocks
from understudy.process.processes import GuardedProcesses, Process
from understudy.process.reporter import CLUSTER, LogFiles, log_name

ORPHAN_GRACE_S = 10.0
"""How long workers may take to close in order after the launcher was killed."""

EARLY_DEATHS = 3
"""Deaths in a row, before readiness or by an error exit, that are replaced at once; later ones wait
a growing pause."""

SIGNALLED = 128
"""Exit codes from here on mean a signal: someone asked the process to close."""

RESTART_MAX_S = 30.0
CANCEL_RETRY_S = 0.5
CLOSE_GRACE_S = 15.0
"""How long a process may take to close in order."""

EVENT_BYTES_MAX = 16 << 20
"""Large, because a takeover event names every job that did not run again."""

REFUSED = 70
"""Exit code of a worker that refuses to start: its storage or an option is unusable."""

_log = logging.getLogger(__name__)

_ROUTINE = re.compile(r"\S+ \S+ \w+-[0-9a-f]{8} (DEBUG|INFO) ")
"""Log lines that workers write in normal operation."""

Show = Callable[[Event], None]


@dataclass
class ClusterProcess:
    """A process of the cluster, across its replacements."""

    role: str
    worker: WorkerSpec | None = None
    process: Process | None = None
    ready: bool = False
    early_deaths: int = 0


@dataclass(frozen=True)
class ClusterPlan:
    """The cluster to start."""

    configuration: Configuration
    cluster_id: str
    ephemeral: bool
    run_id: str
    application: ApplicationSpec | None
    """None: the unfinished run, as it is stored."""
    jobmanagers: int
    taskmanagers: int
    changes: Changes
    """Changes that this start makes to the unfinished run."""


@dataclass
class Ending:
    """Requests to end the cluster before the application has ended."""

    signals: list[int] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)


class LocalCluster:
    """The processes of one run; `run` returns once all have ended."""

    def __init__(self, plan: ClusterPlan, story: Story, show: Show) -> None:
        self._plan = plan
        self._story = story
        self._show = show
        self._processes = GuardedProcesses(self._settle)
        self._members: list[ClusterProcess] = []
        self._started: set[str] = set()
        """The incarnations of all current and former members."""
        self._closing = False
        self._finished = asyncio.Event()
        self._over = asyncio.Event()
        """Set when the application has ended and the cluster must end with it."""
        self._ending = Ending()
        self._scratch = scratch_base(plan.configuration)
        self._tasks: set[asyncio.Task[None]] = set()
        self._logs = LogFiles.of(plan.configuration)
        self._log_name = log_name(plan.run_id, application_id(plan.cluster_id, plan.run_id))
        self._rests: dict[tuple[str, int], str] = {}
        self._held: list[Event] = []
        self._told_start = False
        self._broken = False

    @property
    def interrupts(self) -> int:
        """Return how often Ctrl-C was pressed."""
        return self._ending.signals.count(signal.SIGINT)

    @property
    def is_broken(self) -> bool:
        """Return whether the processes cannot be started or the only JobManager is lost."""
        return self._broken

    @property
    def closed_by(self) -> int:
        """Return the signal that closed the cluster and kept its data; 0 if none did."""
        for number in self._ending.signals:
            if number in {signal.SIGTERM, signal.SIGHUP}:
                return number
        return signal.SIGINT if self.interrupts > 1 else 0

    async def run(self) -> None:
        """Start all processes, replace those that die, and return once all have ended."""
        guardian.prctl(guardian.PR_SET_CHILD_SUBREAPER, 1)
        self._watch_signals()
        try:
            await self._start_all()
            await self._until_over()
        finally:
            await self._end()

    async def _start_all(self) -> None:
        plan = self._plan
        self._members = [ClusterProcess("jobmanager") for _ in range(plan.jobmanagers)]
        self._members += [ClusterProcess("taskmanager") for _ in range(plan.taskmanagers)]
        for member in self._members:
            await self._start(member)

    async def _start(self, member: ClusterProcess) -> None:
        """Start a member's process and watch it."""
        plan = self._plan
        reader, writer = os.pipe()
        is_jobmanager = member.role == "jobmanager"
        member.ready = False
        member.worker = msgspec.structs.replace(
            new_worker(member.role, plan.configuration, plan.cluster_id, self._scratch),
            run_id=self._story.run_id or plan.run_id,
            ephemeral=plan.ephemeral,
            application=plan.application if is_jobmanager else None,
            changes=plan.changes,
            events=writer,
        )
        self._started.add(member.worker.incarnation)
        try:
            spec = guarded(member.worker, orphan_grace_s=ORPHAN_GRACE_S)
            member.process = await self._processes.start(spec, self.log)
        finally:
            os.close(writer)
        self._spawn(self._listen(member, reader))
        self._spawn(self._replace(member, member.process))

    async def _listen(self, member: ClusterProcess, descriptor: int) -> None:
        """Read a process's events until its end of the pipe is closed."""
        reader = asyncio.StreamReader(limit=EVENT_BYTES_MAX)
        pipe = os.fdopen(descriptor, "rb")
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        while line := await reader.readline():
            with contextlib.suppress(json.JSONDecodeError):
                self._hear(member, json.loads(line))

    def _hear(self, member: ClusterProcess, event: Event) -> None:
        kind = event["event"]
        if kind == "jobmanager-started":
            self._rests[member.role, id(member)] = event["rest"]
        if kind in {"jobmanager-ready", "taskmanager-started"}:
            member.ready = True
        if kind == "cluster-shut-down" and not self._ending.asked.is_set():
            self.log("a request has shut the cluster down")
            self._on_signal(signal.SIGTERM)  # Ends as that does: the data is kept.
        self._held.append(event)
        if not self._told_start:
            addresses_known = len(self._rests) >= self._plan.jobmanagers
            if not addresses_known and kind != "application-finished":
                return
            self._tell_start()
        held, self._held = self._held, []
        for one in held:
            self._tell(one)

    def _tell_start(self) -> None:
        """Report the start of the cluster, once every JobManager has its address."""
        self._told_start = True
        self._tell(
            {
                "event": "cluster-started",
                "rest": list(self._rests.values()),
                "cluster_id": self._plan.cluster_id,
                "storage_dir": self._plan.configuration.storage_dir,
                "run_id": self._plan.run_id,
            }
        )

    def _tell(self, event: Event) -> None:
        if self._over.is_set():
            return  # A standby may win the leadership before it closes: not part of the story.
        told = self._story.hear(event)
        if told:
            self._show(told)
        if self._story.finished and not self._finished.is_set():
            self._finished.set()
            if self.interrupts or self._plan.configuration.get(options.SHUTDOWN_ON_FINISH):
                self._over.set()

    def log(self, text: str) -> None:
        """Write a process's log line to the application's log; show it unless it is routine."""
        text = masked(text)
        with contextlib.suppress(OSError):  # The disk is full: the cluster continues.
            self._logs.append(self._log_name, CLUSTER, text)
        if not _ROUTINE.match(text):
            self._show({"event": "log", "line": text})

    async def _replace(self, member: ClusterProcess, process: Process) -> None:
        """Replace a process when it dies, unless the cluster is ending."""
        death = await asyncio.shield(process.death)
        failed = death.reason == "ended" and 0 < death.code < SIGNALLED
        if failed or not member.ready:
            member.early_deaths += 1
        else:
            member.early_deaths = 0
        if member.worker and member.worker.scratch:
            # The guardian removes it, unless the guardian was killed.
            await asyncio.to_thread(shutil.rmtree, member.worker.scratch, ignore_errors=True)
        if self._closing or self._over.is_set():
            return
        self.log(f"{member.worker.name if member.worker else member.role} {death}")
        if death.code == REFUSED and member.early_deaths >= EARLY_DEATHS:
            self.log("the cluster cannot be started")
            self._broken = True
            self._ending.asked.set()
            return
        if self._plan.configuration.is_standalone and member.role == "jobmanager":
            self.log("the JobManager was lost, and with it the application: nobody follows it")
            self._broken = True
            self._ending.asked.set()
            return
        late = member.early_deaths - EARLY_DEATHS
        if late >= 0:
            await asyncio.sleep(min(2.0**late, RESTART_MAX_S))
        if not self._closing and not self._over.is_set():
            await self._start(member)

    # --- ending -----------------------------------------------------------------------------------

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: int) -> None:
        self._ending.signals.append(number)
        if self.closed_by or self._finished.is_set():
            self._ending.asked.set()
        else:
            self._spawn(self._interrupt())

    async def continues_elsewhere(self) -> bool:
        """Return whether a JobManager that this command did not start lives."""
        plan = self._plan
        if plan.configuration.is_standalone:
            return False
        return await lives_elsewhere(plan.configuration, plan.cluster_id, self._started)

    async def _interrupt(self) -> None:
        """End this start only, if other JobManagers continue the run; otherwise end the run."""
        if await self.continues_elsewhere():
            self.log("ending this start only: other JobManagers of this cluster live")
            self._ending.asked.set()
            return
        self.log("ending the run; press Ctrl-C again to stop at once and keep the data")
        await self._cancel()

    async def _cancel(self) -> None:
        """Cancel the application, or close the cluster if the application has recorded checkpoints.

        The leader decides, since only it knows of every checkpoint. Repeats until one answers.
        """
        without_ha = self._plan.configuration.is_standalone  # Nothing can be resumed there.
        query = "" if without_ha else "?unless=recorded"
        async with RestSecurity.of(self._plan.configuration).client(5.0) as client:
            while not self._finished.is_set():
                if self._story.rest and self._story.application_id:
                    url = f"{self._story.rest}/applications/{self._story.application_id}/cancel"
                    with contextlib.suppress(httpx.HTTPError, ValueError):
                        answer = await client.post(url + query)
                        if answer.status_code == HTTPStatus.PRECONDITION_FAILED:
                            self.log("its checkpoints are kept: the run can be resumed")
                            self._ending.asked.set()
                            return
                        if answer.status_code == HTTPStatus.CONFLICT:
                            await self._keep_unless_ended(client, answer)
                        if answer.status_code in {202, 404, 409}:
                            return
                await asyncio.sleep(CANCEL_RETRY_S)

    async def _keep_unless_ended(self, client: httpx.AsyncClient, refusal: httpx.Response) -> None:
        """Close the cluster if the leader cannot cancel an application that has not ended."""
        one = f"{self._story.rest}/applications/{self._story.application_id}"
        status = (await client.get(one)).json().get("status")
        if status not in {ended.value for ended in EXIT_CODES}:
            self.log(
                f"the run is not cancelled, and its data is kept: {refusal.json()['errors'][0]}"
            )
            self._ending.asked.set()

    async def _until_over(self) -> None:
        waits = [
            asyncio.ensure_future(self._over.wait()),
            asyncio.ensure_future(self._ending.asked.wait()),
        ]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _end(self) -> None:
        """End every process, and remove everything that is not data."""
        self._closing = True
        at_once = self.interrupts > 1
        living = [member.process for member in self._members if member.process]
        with Closing("the cluster") as closing:
            for process in living:
                with closing.step("a process"):
                    if at_once:
                        process.kill("interrupted twice")
                    else:
                        process.stop(CLOSE_GRACE_S)
            await asyncio.gather(*(asyncio.shield(process.death) for process in living))
            with closing.step("processes of killed guardians"):
                await self._settle()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            with closing.step("its summary"):
                if self._finished.is_set() and self._plan.ephemeral:
                    await self._keep_summary()
            with closing.step("its register"):
                if self._finished.is_set():
                    await self._clear_register()
            for name, remove in self._rest():
                with closing.step(name):
                    await asyncio.to_thread(remove)

    async def _keep_summary(self) -> None:
        """Keep for `understudy list` how the run ended: its own data goes."""
        plan = self._plan
        if plan.configuration.is_standalone:
            return  # It was in the memory of the JobManager.
        services = open_services(plan.configuration, plan.cluster_id)
        try:
            registry = await services.registry.read()
            for stone in registry.tombstones.values() if registry else ():
                file = await read_tombstone(services, stone)
                past = PastRun(
                    cluster_id=plan.cluster_id,
                    storage=plan.configuration.storage_dir,
                    tombstone=stone,
                    file=file,
                )
                await asyncio.to_thread(past_runs.keep, plan.configuration, past)
        except (OSError, TimeoutError, UnderstudyError) as error:
            self.log(f"no summary of the run is kept: {error}")

    async def _clear_register(self) -> None:
        """Remove the leader record of a standby that won the leadership while it closed.

        Also removes a dead member's place in line, which would stay until its session expires, and
        everything of a nameless cluster.
        """
        services = open_services(self._plan.configuration, self._plan.cluster_id)
        register, backend = services.register, services.backend
        with contextlib.suppress(OSError, TimeoutError, Conflict, DataError):
            if isinstance(backend, HasLatch):
                async with asyncio.timeout(CLOSE_GRACE_S):
                    await self._dismiss(backend)
            for key in await register.keys("" if self._plan.ephemeral else LEADER_KEY):
                entry = await register.load(key)
                if entry and (self._plan.ephemeral or self._is_of_a_member(entry)):
                    await register.swap(key, None, entry.version)

    def _is_of_a_member(self, leader: Entry) -> bool:
        """Return whether a leader record is ours: the next run may have started by now."""
        return decode_leader(leader).holder in {"", *self._started}

    async def _dismiss(self, backend: HasLatch) -> None:
        """Remove former members, which are all dead, from the line of contenders."""
        latch = backend.latch("", b"")
        for contender in self._started.intersection(await backend.line()):
            await latch.dismiss(contender)
        await latch.leave()

    def _rest(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield what to remove: files that are not data, and everything of a nameless cluster."""
        yield "its scratch", self._remove_scratch
        if self._finished.is_set():
            yield "its locks", self._remove_locks
        if self._plan.configuration.is_standalone:
            yield "its leftovers", self._remove_what_nobody_remembers
        if self._finished.is_set() and self._plan.ephemeral:
            yield "its data", self._remove_data

    def _remove_scratch(self) -> None:
        for member in self._members:
            if member.worker and member.worker.scratch:
                shutil.rmtree(member.worker.scratch, ignore_errors=True)
        with contextlib.suppress(OSError):
            Path(self._scratch).rmdir()

    def _remove_locks(self) -> None:
        """Remove the locks of processes that were killed."""
        if locks := locks_directories(self._plan.configuration, self._plan.cluster_id):
            LivenessLocks(*locks).clear(self._started)
            for directory in locks:
                with contextlib.suppress(OSError):
                    directory.parent.rmdir()

    def _remove_data(self) -> None:
        storage = open_storage(self._plan.configuration.storage_dir)
        cluster = directory_of(self._plan.configuration, self._plan.cluster_id)
        try:
            storage.delete_tree(cluster)
        except OSError as error:
            self.log(f"left behind {storage.url}/{cluster}: {error}")

    def _remove_what_nobody_remembers(self) -> None:
        """Remove what the only JobManager stored: nobody else knows its meaning."""
        try:
            left_behind = remove_leftovers(self._plan.configuration, self._plan.cluster_id)
        except (OSError, UnderstudyError) as error:
            self.log(f"left behind, until the next start or `understudy destroy`: {error}")
        else:
            for one in left_behind:
                self.log(f"removed {one}")

    async def _settle(self) -> None:
        """Kill processes that lost their guardian: all our children that are not guardians."""
        while strays := self._strays():
            for pid in strays:
                guardian.kill(pid)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 -- it does not block
            await asyncio.sleep(guardian.KILL_POLL_S)

    def _strays(self) -> list[int]:
        """Return our children that are not guardians of the current members."""
        ours = {
            member.process.guardian_pid
            for member in self._members
            if member.process and not member.process.death.done()
        }
        return [
            pid
            for pid in guardian.descendants()
            if guardian.parent_of(pid) == os.getpid() and pid not in ours
        ]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
