"""A TaskManager: a worker process that offers slots and keeps drivers warm in them.

The TaskManager owns the drivers, so the loss of a leader does not affect them: it finds the next
leader, registers, and reports running and ended attempts. It refuses a leader whose term is below
the highest that it has seen. Every death that it reports of an attempt is reported by the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from understudy.clock import Clock
from understudy.core import liveness
from understudy.core.drivers import DriverState
from understudy.errors import DataError, UnreachableError
from understudy.ha.registry import Shutdown
from understudy.ha.storage import BlockingStorage
from understudy.model import Incarnation, JobId, LeaderRecord, RegistryBody, Term
from understudy.process.closing import Closing
from understudy.process.environments import ONE_INTERPRETER, Interpreters
from understudy.process.processes import Processes
from understudy.process.reporter import Reporter
from understudy.process.worker import GuardianLink
from understudy.rpc import messages
from understudy.rpc.gateway import Link, Network
from understudy.rpc.messages import AttemptReport, Deploy, LinkMessage
from understudy.taskmanager.driver import DriverCounts, Grounds
from understudy.taskmanager.driver_pool import CLOSING, HANDED_OVER, DriverPool, PoolSettings
from understudy.taskmanager.outbox import Outbox

LEAVE_S = 10.0
"""How long the end of drivers, and the leader's record of it, may take beyond the drain."""

RECONNECT_S = 0.5
"""Pause before another connection to the same leader."""

LOOK_AGAIN_S = 5.0
"""Pause before another look at a registry that cannot be read."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Identity:
    """The names and addresses of this TaskManager."""

    incarnation: Incarnation
    name: str
    pid: int
    guardian_pid: int
    host: str
    lock: str
    metrics: str = ""
    """URL of its metrics; empty where they are not served."""


@dataclass(frozen=True)
class TaskManagerSettings:
    """The configuration of a TaskManager."""

    pool: PoolSettings
    cluster: str
    orphan_s: float
    heartbeat_s: float


@dataclass(frozen=True)
class TaskManagerFacts:
    """The present state of a TaskManager, for metrics."""

    leader: LeaderRecord | None
    """Who serves, as last retrieved."""
    term: Term
    """The highest term that it has obeyed."""
    registered: bool
    silent_s: float | None
    """Age of the last request that a leader answered; None before the first answer."""
    slots: int
    drivers: tuple[messages.DriverReport, ...]
    unrecorded: int
    """Ended attempts whose recording no leader has confirmed yet."""
    counts: DriverCounts


async def _no_registry() -> None:
    """Return no registry: the cluster has none that a TaskManager can read."""


@dataclass(frozen=True)
class TaskManagerContext:
    """The dependencies of a TaskManager."""

    processes: Processes
    network: Network[LinkMessage]
    storage: BlockingStorage
    clock: Clock
    guardian: GuardianLink
    reporter: Reporter
    leaders: Callable[[], AsyncIterator[LeaderRecord | None]]
    """Yields each change of the leader."""
    interpreters: Interpreters = ONE_INTERPRETER
    """Where the Python of applications comes from."""
    registry: Callable[[], Awaitable[RegistryBody | None]] = _no_registry
    """Reads the registry of the cluster, where a request to shut it down is marked."""


class TaskManager:
    """One TaskManager process; `run` lives until it is cancelled, or the cluster is shut down."""

    def __init__(
        self, me: Identity, settings: TaskManagerSettings, context: TaskManagerContext
    ) -> None:
        self._me = me
        self._settings = settings
        self._network = context.network
        self._clock = context.clock
        self._guardian = context.guardian
        self._leaders = context.leaders
        self._registry = context.registry
        self._reporter = context.reporter
        self._shutdown = Shutdown()
        self._leader_changed = asyncio.Event()
        self.leader: LeaderRecord | None = None
        """Who serves, as last retrieved."""
        self._outbox = Outbox()
        self._grounds = Grounds(context.storage, settings.cluster, context.interpreters)
        self._pool = DriverPool(
            settings.pool,
            context.processes,
            context.clock,
            self._outbox,
            context.reporter,
            self._grounds,
        )
        self._sent_at: dict[int, float] = {}
        self._heard_at: float | None = None
        """Time at which the last answered request was sent."""
        self._drains = False
        self._parted = asyncio.Event()
        """Set whenever the link to a leader is lost."""
        self.held_attempts = False
        """Set at the end, if there were attempts whose death a leader may want proved."""

    @property
    def facts(self) -> TaskManagerFacts:
        """Return the present state of this TaskManager."""
        heard_at = self._heard_at
        return TaskManagerFacts(
            leader=self.leader,
            term=self._outbox.term,
            registered=self._outbox.link is not None,
            silent_s=None if heard_at is None else self._clock.now() - heard_at,
            slots=self._settings.pool.slots,
            drivers=self._pool.reports(),
            unrecorded=len(self._outbox.ended),
            counts=self._pool.counts,
        )

    async def run(self) -> None:
        """Serve the current leader until a request shuts the cluster down; then end all drivers.

        On cancellation, end all drivers too.
        """
        try:
            async with asyncio.TaskGroup() as group:
                works = [
                    group.create_task(self._pool.run()),
                    group.create_task(self._follow_leaders()),
                    group.create_task(self._look_for_shutdown()),
                    group.create_task(self._give_up_orphans()),
                    group.create_task(self._guardian.beat(self._clock, self._settings.orphan_s)),
                ]
                await self._shutdown.asked.wait()
                _log.warning("a request has shut the cluster down: this TaskManager ends")
                self._reporter.event("cluster-shut-down", id=self._me.name)
                for work in works:
                    work.cancel()
        finally:
            self.held_attempts = bool(self._outbox.ended) or any(
                one.deploy for one in self._pool.drivers()
            )
            with Closing("the TaskManager") as closing:
                with closing.step("its drivers"):
                    self._pool.kill_all(CLOSING)
                with closing.step("the death of its drivers"):
                    await self._pool.emptied()
                with closing.step("its Python environments"):
                    await self._grounds.close()

    async def drain(self, timeout_s: float) -> None:
        """Take no more work, and hand over what runs; return once the leader knows.

        Each attempt continues to its end or its next checkpoint, at most for ``timeout_s``.
        """
        _log.warning("asked to end: attempts have up to %g s to save", timeout_s)
        self._drains = True
        self._outbox.send(messages.Draining())
        self._pool.drain()
        try:
            async with asyncio.timeout(timeout_s):
                await self._pool.left()
        except TimeoutError:
            _log.warning("an attempt has saved nothing within %g s, and is ended", timeout_s)
        self._pool.hand_over()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self._pool.left()
                await self._outbox.recorded()
                if self._outbox.link:
                    self._parted.clear()
                    self._outbox.send(messages.Leaving())
                    await self._parted.wait()

    # --- the leader -------------------------------------------------------------------------------

    async def _follow_leaders(self) -> None:
        serving: asyncio.Task[None] | None = None
        served: LeaderRecord | None = None
        try:
            async for leader in self._leaders():
                self.leader = leader
                self._leader_changed.set()
                # A leader without a record may still lead, if only the register is unreachable: a
                # live link is kept until another leader appears. Terms fence its messages.
                if serving and not serving.done() and (leader is None or _is_same(leader, served)):
                    continue
                if serving:
                    serving.cancel()
                    await asyncio.gather(serving, return_exceptions=True)
                    serving = None
                if leader and leader.term >= self._outbox.term:
                    serving, served = asyncio.create_task(self._serve(leader)), leader
                elif leader:
                    _log.warning(
                        "the leader's term is %d, but there was one of term %d: it is not followed "
                        "(where the cluster was destroyed meanwhile, start this TaskManager again)",
                        leader.term,
                        self._outbox.term,
                    )
        finally:
            if serving:
                serving.cancel()

    async def _serve(self, leader: LeaderRecord) -> None:
        """Stay connected to one leader, until no leader is retrieved and the link is lost."""
        while self.leader:
            try:
                link = await self._network.connect(leader.rpc, self._me.incarnation)
            except UnreachableError as error:
                _log.info("the leader of term %d does not answer: %s", leader.term, error)
            else:
                await self._converse(link, leader)
                self._leader_changed.set()
            await asyncio.sleep(RECONNECT_S)

    async def _look_for_shutdown(self) -> None:
        """Look for a shutdown at the start, and whenever the leader changes or is lost."""
        while True:
            self._leader_changed.clear()
            try:
                self._shutdown.look(await self._registry())
            except (OSError, TimeoutError, DataError) as error:
                _log.info("the registry cannot be read: %s", str(error) or "timeout")
                await asyncio.sleep(LOOK_AGAIN_S)
            else:
                await self._leader_changed.wait()

    async def _converse(self, link: Link[LinkMessage], leader: LeaderRecord) -> None:
        beating: asyncio.Task[None] | None = None
        self._sent_at = {0: self._clock.now()}
        registration = self._registration()
        link.send(registration, leader.term)
        try:
            while (envelope := await link.receive()) is not None:
                if envelope.term < self._outbox.term:
                    _log.warning("a leader of term %d is out of date: refused", envelope.term)
                    return
                self._outbox.term = envelope.term
                if isinstance(envelope.message, messages.Welcome):
                    _log.info("registered with %s, term %d", leader.name, leader.term)
                    self._outbox.link = link
                    self._heard(0)
                    self._pool.report_drivers()
                    self._outbox.repeat()
                    self._report_lost(registration)
                    beating = asyncio.create_task(self._beat(link))
                elif self._outbox.link is link:
                    self._obey(envelope.message, envelope.term)
        finally:
            self._outbox.link = None
            self._parted.set()
            link.close()
            if beating:
                beating.cancel()

    async def _beat(self, link: Link[LinkMessage]) -> None:
        number = 0
        while True:
            number += 1
            self._sent_at[number] = self._clock.now()
            link.send(messages.Heartbeat(number=number), self._outbox.term)
            await asyncio.sleep(self._settings.heartbeat_s)

    def _heard(self, number: int) -> None:
        """Extend the drivers' deadline: a leader has answered the request with this number."""
        sent_at = self._sent_at.pop(number, None)
        if sent_at is None:
            return
        self._heard_at = sent_at
        deadline = liveness.orphan_deadline(sent_at, self._settings.orphan_s)
        self._pool.until(deadline)

    async def _give_up_orphans(self) -> None:
        """End all drivers after too long without an answer of a leader, then start over."""
        while True:
            if self._heard_at is None:
                await asyncio.sleep(1.0)
                continue
            deadline = liveness.orphan_deadline(self._heard_at, self._settings.orphan_s)
            pause_s = deadline - self._clock.now()
            if pause_s > 0:
                await asyncio.sleep(min(pause_s, 1.0))
                continue
            _log.warning(
                "no leader was heard of for %g s: ending all drivers", self._settings.orphan_s
            )
            self._heard_at = None
            self._pool.kill_all("no leader was heard of for too long")
            await self._pool.emptied()
            if self._outbox.link:
                # The connection was only slow: the prepared application was given up with the
                # drivers, and the leader sends it again after a new registration.
                self._outbox.link.close()

    def _registration(self) -> messages.RegisterTaskManager:
        running = [
            AttemptReport(
                job_id=one.deploy.job_id,
                attempt=one.deploy.attempt,
                driver=one.incarnation,
                ran_s=self._clock.now() - one.began,
                application_id=one.prepare.application_id,
            )
            for one in self._pool.drivers()
            if one.deploy
        ]
        ended = [
            AttemptReport(
                job_id=job_id,
                attempt=attempt,
                driver=Incarnation(""),
                ran_s=message.ran_s,
                running=False,
            )
            for (job_id, attempt), message in self._outbox.ended.items()
        ]
        return messages.RegisterTaskManager(
            name=self._me.name,
            pid=self._me.pid,
            guardian_pid=self._me.guardian_pid,
            host=self._me.host,
            lock=self._me.lock,
            metrics=self._me.metrics,
            slots=0 if self._drains else self._settings.pool.slots,
            spares=0 if self._drains else self._settings.pool.spares,
            drivers=self._pool.reports(),
            attempts=(*running, *ended),
        )

    def _report_lost(self, registration: messages.RegisterTaskManager) -> None:
        """Report the attempts that were lost between a registration and its answer."""
        running = {
            (one.deploy.job_id, one.deploy.attempt) for one in self._pool.drivers() if one.deploy
        }
        for attempt in registration.attempts:
            key = (attempt.job_id, attempt.attempt)
            if attempt.running and key not in running and key not in self._outbox.ended:
                self._outbox.send(
                    messages.AttemptLost(
                        job_id=attempt.job_id,
                        attempt=attempt.attempt,
                        reason="its driver died while its TaskManager registered",
                        ran_s=attempt.ran_s,
                    )
                )

    # --- requests of the leader -------------------------------------------------------------------

    def _obey(self, message: LinkMessage, term: Term) -> None:
        match message:
            case messages.HeartbeatAnswer():
                self._heard(message.number)
            case messages.KeepDrivers():
                self._pool.keep([message.applications[position] for position in message.wanted])
            case Deploy():
                self._deploy(message, term)
            case messages.StopAttempt():
                self._stop_attempt(message.job_id, message.attempt)
            case messages.Forget():
                self._outbox.forget((message.job_id, message.attempt))
            case messages.CheckpointsRecorded() | messages.CheckpointsRefused():
                self._outbox.answered(message)
                self._pool.answer(message)

    def _deploy(self, deploy: Deploy, term: Term) -> None:
        one = self._pool.find(deploy.driver)
        if self._drains:  # It was sent before the leader knew.
            self._outbox.send(
                messages.AttemptLost(
                    job_id=deploy.job_id,
                    attempt=deploy.attempt,
                    reason=HANDED_OVER,
                    ran_s=0.0,
                    handed_over=True,
                )
            )
        elif one is None or one.state is not DriverState.WARM:
            self._refuse(deploy, one.state.value if one else "gone")
        elif not self._pool.has_slot(one):
            self._refuse(deploy, "a spare, and all slots are busy")
        else:
            self._pool.run_attempt(one, deploy, term)

    def _refuse(self, deploy: Deploy, state: str) -> None:
        reason = f"driver {deploy.driver[:8]} is {state}"
        self._outbox.send(
            messages.AttemptRefused(job_id=deploy.job_id, attempt=deploy.attempt, reason=reason)
        )

    def _stop_attempt(self, job_id: JobId, attempt: int) -> None:
        for one in self._pool.drivers():
            if one.deploy and (one.deploy.job_id, one.deploy.attempt) == (job_id, attempt):
                self._pool.stop_attempt(one)
                return
        if ended := self._outbox.ended.get((job_id, attempt)):
            if ended.reaped:
                self._outbox.send(ended)
            else:  # The leader knows the attempt's end, and asks for the proof of its death.
                self._outbox.want_dead(ended)
                self._pool.prove(ended)
            return
        self._outbox.send(
            messages.AttemptLost(
                job_id=job_id, attempt=attempt, reason="it does not run here", ran_s=0.0
            )
        )


def _is_same(leader: LeaderRecord, other: LeaderRecord | None) -> bool:
    return other is not None and (leader.holder, leader.term, leader.rpc) == (
        other.holder,
        other.term,
        other.rpc,
    )
