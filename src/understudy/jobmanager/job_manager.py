"""A JobManager: contends for leadership; as leader, it runs Dispatcher and ResourceManager.

As a standby, it keeps a process of ``main`` warm, connects to the leader (which lists it), and
records which run is unfinished (so that it does not begin another one).

A JobManager that was started without an application executes the one that is stored, also on a host
that never had the script. Until there is a run, it does not contend: as a leader without a run, it
would keep the JobManager with the application from leading.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from understudy.config import Configuration, options
from understudy.core import liveness
from understudy.core.backoff import Backoff
from understudy.core.lease import Timing
from understudy.core.recovery import SubmitRun, bootstrap, bound
from understudy.core.workers import PoolLimits
from understudy.errors import DataError, UnreachableError
from understudy.ha.election import Election, Leadership
from understudy.ha.metered import Durations
from understudy.ha.register import Notice
from understudy.ha.registry import REGISTRY_KEY, Shutdown
from understudy.ha.retrieval import retrieve
from understudy.ha.services import HighAvailabilityServices
from understudy.ha.turns import open_turns
from understudy.jobmanager import attention, notices
from understudy.jobmanager.dispatcher import Binding, Dispatcher
from understudy.jobmanager.resource_manager import ResourceManager
from understudy.jobmanager.surroundings import RunEnd, Surroundings
from understudy.jobmanager.workers import Workers
from understudy.model import Incarnation, LeaderRecord, RegistryBody, RunId, Term
from understudy.process.closing import Closing
from understudy.process.reporter import Reporter
from understudy.process.worker import GuardianLink, Holder
from understudy.rpc import messages
from understudy.rpc.gateway import Link, Network
from understudy.rpc.messages import Attend, LinkMessage

RECONNECT_S = 0.5
"""Pause before a standby reconnects to the same leader."""

_log = logging.getLogger(__name__)

BACKOFF = Backoff(0.5, 30.0)
"""The pauses while the register does not answer; the standby asks for ever."""

TAKEOVERS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""From a leader whose death is proved at once, to a host whose lease must run out."""


@dataclass
class LeaderCounts:
    """Terms and takeovers of a JobManager since its process started; they only grow."""

    leaderships: int = 0
    """Terms in which this JobManager has published its addresses."""
    takeovers: Durations = field(default_factory=lambda: Durations(TAKEOVERS_S))
    jobs: Counter[str] = field(default_factory=Counter)
    """Jobs in takeovers, by fate."""


class CountingReporter:
    """Reporter that counts terms and takeovers, and passes every event on."""

    def __init__(
        self, reporter: Reporter, counts: LeaderCounts, announce: Callable[[Notice], None]
    ) -> None:
        self._reporter = reporter
        self._counts = counts
        self._announce = announce

    def event(self, event: str, **fields: Any) -> None:
        """Count a leader or takeover event, then pass the event on."""
        if event == "leader":
            self._counts.leaderships += 1
        elif event == "takeover":
            self._counts.takeovers.note(fields["seconds"])
            self._counts.jobs.update({fate: len(fields[fate]) for fate in notices.FATES})
            self._announce(notices.taken_over(fields))
        self._reporter.event(event, **fields)

    def line(self, log: str, source: str, text: str) -> None:
        """Pass the line on."""
        self._reporter.line(log, source, text)

    def close(self) -> None:
        """Close the wrapped reporter."""
        self._reporter.close()


@dataclass(frozen=True)
class StandbyView:
    """A standby, as the leader knows it."""

    incarnation: Incarnation
    attend: Attend


@dataclass(frozen=True, slots=True)
class LeadingTerm:
    """One term of this JobManager, and its components.

    A request keeps the term in which it arrived. A write in a term that has ended meanwhile raises
    `LeadershipLost`.
    """

    leadership: Leadership
    resources: ResourceManager
    dispatcher: Dispatcher

    @property
    def number(self) -> Term:
        """Return the fencing token."""
        return self.leadership.term

    @property
    def serves(self) -> bool:
        """Return whether this leader has published its address, and may act at this moment."""
        return bool(self.leadership.addresses[0]) and self.leadership.acts()


@dataclass(frozen=True)
class JobManagerSettings:
    """The options of a JobManager, except those of its Dispatcher."""

    timing: Timing
    adoption_grace_s: float

    @classmethod
    def of(cls, configuration: Configuration) -> JobManagerSettings:
        """Return the settings of a configuration."""
        return cls(Timing.of(configuration), configuration.get(options.ADOPTION_GRACE))


class JobManager:
    """One JobManager process."""

    def __init__(
        self,
        me: LeaderRecord,
        around: Surroundings,
        binding: Binding,
        settings: JobManagerSettings,
        network: Network[LinkMessage],
        guardian: GuardianLink,
    ) -> None:
        """``me`` is the record to publish: holder, names and addresses of this process."""
        self.me = me
        self.counts = LeaderCounts()
        reporter = CountingReporter(around.reporter, self.counts, around.services.announce)
        self.around = replace(around, reporter=reporter)
        self.leader: LeaderRecord | None = None
        """The serving leader, as last retrieved."""
        self.term: LeadingTerm | None = None
        """The term in which this process leads; None while it stands by."""
        self.standbys: dict[Incarnation, StandbyView] = {}
        self.ended: RunEnd | None = None
        self.waits_for_run = False
        """True while it does not contend: started without an application, before any run exists."""
        self._binding = binding
        self._timing = timing = settings.timing
        self._adoption_grace_s = settings.adoption_grace_s
        self._network = network
        self._guardian = guardian
        self._holder = Holder()
        self._changed = asyncio.Event()
        services = around.services
        turns = open_turns(
            services.latch(me), services.register, timing, around.clock, around.locks, around.chance
        )
        self._election = Election(
            services.register,
            me,
            turns,
            around.clock,
            services.registry.highest_term,
            self._hold,
        )

    async def run(self) -> RunEnd | None:
        """Contend and lead until the run this process is here for has ended.

        None: a request has shut the cluster down, and all data is kept.
        """
        await self._look_at_registry(first=True)
        async with self._network.listen(self.me.holder, self._serve):
            background = [
                asyncio.create_task(self._follow_leader()),
                asyncio.create_task(
                    self._guardian.beat(self.around.clock, self._timing.lease_s, self._holder)
                ),
            ]
            try:
                await self._until_ended_or_shut_down()
            finally:
                for task in background:
                    task.cancel()
                await asyncio.gather(*background, return_exceptions=True)
        return self.ended

    @property
    def shutdown(self) -> Shutdown:
        """Return what this process knows of requests to shut the cluster down."""
        return self._binding.shutdown

    async def _until_ended_or_shut_down(self) -> None:
        """Contend and lead; a shutdown closes a term as a signal does, and releases it."""
        contending = asyncio.ensure_future(self._until_ended())
        asked = asyncio.ensure_future(self.shutdown.asked.wait())
        try:
            await asyncio.wait({contending, asked}, return_when=asyncio.FIRST_COMPLETED)
            if not contending.done():
                _log.warning("a request has shut the cluster down: this JobManager ends")
                self.around.reporter.event("cluster-shut-down", id=self.me.name)
        finally:
            asked.cancel()
            contending.cancel()
            await asyncio.wait({contending})
        if not contending.cancelled():
            contending.result()

    async def _until_ended(self) -> None:
        """Contend and lead; without an application of its own, only while there is a run."""
        while self.ended is None:
            if self._binding.submission is None and not self._binding.session:
                self.waits_for_run = True
                await until_there_is_a_run(self.around.services, self._binding)
                self.waits_for_run = False
            await self._election.run(self._lead)

    def main_changed(self) -> None:
        """Report to the leader that the warm process of ``main`` is ready or gone."""
        self._changed.set()

    # --- leading ----------------------------------------------------------------------------------

    def _hold(self, deadline: float | None) -> None:
        """Pass this leader's deadline to the guardian, which kills the process at that time."""
        if deadline is None:
            self._holder.deadline = None
            # At once: the next beat may come after the guardian's present deadline.
            self._guardian.until(self.around.clock.now() + self._timing.lease_s)
            return
        timing = self._election.timing
        self._holder.deadline = liveness.leader_hold(
            deadline, timing.lease_s, timing.renew_deadline_s
        )
        self._guardian.until(self._holder.deadline)
        self.around.mains.hold(self._holder.deadline)

    async def _lead(self, leadership: Leadership) -> None:
        """Lead for one term; returns once the run has ended. Raises `LeadershipLost`."""
        _log.info("granted term %d (the last leader: %s)", leadership.term, leadership.reason)
        announce, name = self.around.services.announce, self.me.name
        announce(notices.granted(name, leadership))
        resources = ResourceManager(
            leadership.term,
            self._adoption_grace_s,
            self.around.locks,
            self.around.clock,
            self._changed.set,
            _workers(self.around, leadership.term),
        )
        dispatcher = Dispatcher(self.around, self._binding, leadership, resources)
        self.term = LeadingTerm(leadership, resources, dispatcher)

        async def publish() -> None:
            await leadership.publish(self.me.rest, self.me.rpc)
            self.around.reporter.event(
                "leader",
                id=self.me.name,
                pid=self.me.pid,
                rest=self.me.rest,
                term=leadership.term,
            )

        try:
            async with asyncio.TaskGroup() as tasks:
                background = [
                    tasks.create_task(resources.give_up_the_silent()),
                    tasks.create_task(resources.provide_workers()),
                ]
                self.ended = await dispatcher.run(publish)
                for task in background:
                    task.cancel()
        except BaseExceptionGroup as group:
            raise attention.first_of(group) from group
        finally:
            with Closing("this term") as closing, closing.step("its links"):
                resources.close()
            self.term = None
            self.standbys.clear()
            announce(notices.ended(name, leadership, sys.exception()))

    async def _serve(self, link: Link[LinkMessage]) -> None:
        """Serve one connection of a TaskManager or standby, while leading."""
        hello = await link.receive()
        if hello is None or self.term is None:
            return
        if isinstance(hello.message, messages.RegisterTaskManager):
            await self.term.resources.converse(link, hello.sender, hello.message)
        elif isinstance(hello.message, Attend):
            await self._attended(link, hello.sender, hello.message)

    async def _attended(self, link: Link[LinkMessage], sender: Incarnation, attend: Attend) -> None:
        self.standbys[sender] = StandbyView(sender, attend)
        try:
            while (envelope := await link.receive()) is not None:
                if isinstance(envelope.message, Attend):
                    self.standbys[sender] = StandbyView(sender, envelope.message)
        finally:
            self.standbys.pop(sender, None)

    # --- standing by ------------------------------------------------------------------------------

    async def _follow_leader(self) -> None:
        """Stay connected to the current leader, and record which run is unfinished."""
        attending: asyncio.Task[None] | None = None
        register, clock = self.around.services.register, self.around.clock
        async for leader in retrieve(register, clock, self._timing.lease_s):
            self.leader = leader
            if attending:
                attending.cancel()
                attending = None
            if leader is None or leader.holder == self.me.holder:
                continue
            await self._look_at_registry(first=False)
            attending = asyncio.create_task(self._attend(leader))

    async def _attend(self, leader: LeaderRecord) -> None:
        while True:
            try:
                link = await self._network.connect(leader.rpc, self.me.holder)
            except UnreachableError:
                await asyncio.sleep(RECONNECT_S)
                continue
            reading = asyncio.ensure_future(link.receive())
            try:
                while not reading.done():
                    self._changed.clear()
                    link.send(self._attendance())
                    changed = asyncio.ensure_future(self._changed.wait())
                    await asyncio.wait({reading, changed}, return_when=asyncio.FIRST_COMPLETED)
                    changed.cancel()
            finally:
                reading.cancel()
                link.close()
            await asyncio.sleep(RECONNECT_S)

    def _attendance(self) -> Attend:
        return Attend(
            name=self.me.name,
            pid=self.me.pid,
            guardian_pid=self.me.guardian_pid,
            rest=self.me.rest,
            ready=self.around.mains.ready,
        )

    async def _look_at_registry(self, *, first: bool) -> None:
        """Record the runs that ended before this process started, and the unfinished run.

        If the register does not answer at the start, those runs stay unknown: an ended run is then
        taken for this process's own run and answered, not executed a second time.
        """
        with contextlib.suppress(OSError, TimeoutError, DataError):
            registry = await self.around.services.registry.read()
            self._binding.shutdown.look(registry)
            if registry is None:
                return
            if first:
                ended = {*registry.tombstones, *registry.ended}
                self._binding.known_at_start = frozenset(ended)
            self._binding.bound = bound(registry, self._binding.bound)


async def until_there_is_a_run(services: HighAvailabilityServices, binding: Binding) -> None:
    """Return once a leader would have work: a run to continue, or an ended run to answer with.

    Also return for a damaged registry: the leader reports the damage.
    """
    failures, reported = 0, False
    while True:
        try:
            async for _ in services.register.changes(REGISTRY_KEY):
                if _has_run(await services.registry.read(), binding):
                    return
                failures = 0
                if not reported:
                    _log.info("stands by without an application: waits until there is a run")
                    reported = True
        except DataError as error:
            _log.warning("the registry cannot be read: %s", error)
            return
        except (OSError, TimeoutError) as error:
            _log.warning("looking for a run is interrupted: %s", str(error) or "timeout")
        failures += 1
        await asyncio.sleep(BACKOFF.pause_s(failures))


def _has_run(registry: RegistryBody | None, binding: Binding) -> bool:
    if registry is None:
        return False
    found = bootstrap(
        registry, binding.wanted, binding.bound, binding.known_at_start, RunId("to-be-minted")
    )
    return not isinstance(found, SubmitRun)


def _workers(around: Surroundings, term: Term) -> Workers | None:
    """Return who has TaskManagers provided in a term; None if people start them."""
    if around.workers is None:
        return None
    return Workers(around.workers, PoolLimits.of(around.configuration), term, around.clock)
