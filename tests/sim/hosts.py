"""Hosts with a clock each, and guarded processes on them, as the kernel and a guardian treat them.

A process is a `SimMachine`; its guardian is an event of the world that looks at deadlines. Whoever
is killed has no effect from that moment on, but counts as dead only once it is reaped with all its
children: that takes a while, as a JVM outlives its Python.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Protocol

from tests.sim.clockwork import SimTime
from understudy.model import Incarnation
from understudy.process.processes import Death
from understudy.process.worker import GuardianLink

REAP_S_MAX = 1.9
"""Less than the kill margin that the options reckon with."""


GUARDIAN_S = (0.01, 0.2, 5.0, 5.0)
"""How long a guardian that was stopped takes to look at the clock again: what it guards goes on."""


STANDING_S_MAX = 4.5
"""How long a guardian that stands still keeps alive what it should end: then it is killed itself,
and the one above it ends that (`PATIENCE_S` and `SECOND_LOOK_S` of `process.processes`)."""

SLOW_WAKE = 0.7
SLOW_WAKE_S = 3.0
"""So often, and for so long, calls are slow for a process that wakes: it pages, it reconnects."""


class Host:
    """A machine with one clock for all its processes."""

    def __init__(self, time: SimTime, name: str, rate: float, offset: float) -> None:
        self.time = time
        self.name = name
        self.rate = rate
        self.offset = offset
        self.cut_until = 0.0
        self.wall_offset = 0.0

    def now(self) -> float:
        """Return what its clock shows."""
        return self.offset + self.time.now * self.rate

    def true(self, local: float) -> float:
        """Return at which true time its clock shows ``local``."""
        return (local - self.offset) / self.rate

    def jump(self, seconds: float) -> None:
        """Put its clock forward."""
        self.offset += seconds

    def drift(self, rate: float) -> None:
        """Let its clock run at another rate from now on."""
        self.offset += self.time.now * (self.rate - rate)
        self.rate = rate


class Told(Protocol):
    """Who hears of what happens to processes."""

    def tell(self, text: str) -> None:
        """Take in a sentence of the story."""
        ...

    def reaped(self, process: SimProcess) -> None:
        """A process is dead, with all its children."""
        ...


class SimProcess:
    """One guarded process; see `understudy.process.processes.Process`."""

    guardian_pid = 0
    pid = 0

    def __init__(
        self, kind: str, name: str, host: Host, world: Told, parent: SimProcess | None = None
    ) -> None:
        self.kind = kind
        self.name = name
        self.incarnation = Incarnation(name)
        self.host = host
        self.parent = parent
        self.children: list[SimProcess] = []
        self.alive = True
        self.reaped = False
        self.zombie = False
        """It was frozen, with its guardian, beyond its time."""
        self.slow_until = 0.0
        self.all_slow = False
        """Else only calls that concern the leader's record are slow."""
        self._guardian_wakes = 0.0
        self._holds = 0
        self._freezes = 0
        self.stands_s = 0.0
        """Its guardian stands still for so long when an attempt has ended there."""
        self.on_reaped: list[Callable[[], None]] = []
        self.died_at = 0.0
        self.machine = host.time.add(name, host.rate, host.now())
        self.machine.clock.wall_offset += host.wall_offset
        self.chance = random.Random(f"{name}:{host.offset}")
        self._world = world
        self._worker_until: float | None = None
        self._parent_until: float | None = None
        self._looking_at: float | None = None
        self._end: tuple[int, str] | None = None
        self.death: asyncio.Future[Death]
        if parent:
            parent.children.append(self)
            self.death = parent.machine.create_future()
        else:
            self.death = self.machine.create_future()

    # --- what a parent does (Process) -------------------------------------------------------------

    def until(self, deadline: float) -> None:
        """See `Process.until`."""
        self._parent_until = deadline
        self._look_at(deadline)

    def stop(self, grace_s: float) -> None:
        """See `Process.stop`: nothing here minds the wish, so the force counts."""
        self.host.time.after(min(grace_s, 0.1), lambda: self.end("did not stop in time"))

    def kill(self, reason: str) -> None:
        """See `Process.kill`."""
        self.host.time.after(0, lambda: self.end(reason))

    async def started(self) -> None:
        """See `Process.started`."""

    # --- what its worker does ---------------------------------------------------------------------

    def announce(self, deadline: float) -> None:
        """Take in until when the worker will have been heard of again."""
        self._worker_until = deadline
        self._look_at(deadline)

    def exit(self, code: int) -> None:
        """End by itself, with all its children."""
        self.machine.pause()
        self.host.time.after(0, lambda: self._ends(code, "ended"))

    # --- what befalls it --------------------------------------------------------------------------

    def crash_now(self, why: str) -> None:
        """Die by SIGKILL, from within; no further statement of it has any effect."""
        self.machine.pause()
        self._world.tell(f"{self.name} crashes {why}")
        self.host.time.after(0, lambda: self._ends(-9, "ended"))

    def end(self, reason: str) -> None:
        """Be killed by its guardian."""
        if self.alive:
            self._world.tell(f"{self.name} is killed: {reason}")
        self._ends(-9, reason)

    def hold(self) -> Callable[[], bool]:
        """Pause the worker; return what lets it go on, unless somebody else holds it, too."""
        self._holds += 1
        if self.alive:
            self.machine.pause()

        def release() -> bool:
            self._holds -= 1
            if self.alive and not self._holds:
                if self.chance.random() < SLOW_WAKE:
                    self.slow_until = self.host.time.now + SLOW_WAKE_S
                    self.all_slow = self.chance.random() < 0.3
                self.machine.resume()
            return self.alive and not self._holds

        return release

    def freeze(self, *, children: bool) -> Callable[[], bool]:
        """Stop together with its guardian, as under SIGSTOP; return what lets them go on."""
        release = self.hold()
        self._freezes += 1
        frozen = [child.freeze(children=True) for child in self.children if children]

        def thaw() -> bool:
            self._freezes -= 1
            if not self._freezes:
                self.zombie = self.zombie or self.overdue is not None
                slow_s = self.chance.uniform(0, self.chance.choice(GUARDIAN_S))
                self._guardian_wakes = self.host.time.now + slow_s
                self.host.time.at(self._guardian_wakes, self._look)
            for one in frozen:
                one()
            return release()

        return thaw

    def clock_changed(self) -> None:
        """Let its guardian look at its host's clock."""
        self._looking_at = None
        self._look()

    @property
    def frozen(self) -> bool:
        """Say whether its guardian is stopped, too."""
        return self._freezes > 0

    def _ends(self, code: int, reason: str) -> None:
        if not self.alive:
            return
        self.alive = False
        self._end = (code, reason)
        self.machine.crash()
        self.host.time.remove(self.machine)
        for child in self.children:
            child.end("its parent is dead")
        slow = self.kind == "driver" and reason != "ended"
        reaped_s = self.chance.uniform(0, REAP_S_MAX if slow else 0.01)
        if reason == "ended" or reason.startswith("its job"):
            reaped_s += self.stands_s
        self.host.time.after(reaped_s, self._reap_if_childless)

    def _reap_if_childless(self) -> None:
        if self.alive or self.reaped or any(not child.reaped for child in self.children):
            return
        if self.frozen:  # It will reap when it wakes.
            self.host.time.after(0.1, self._reap_if_childless)
            return
        self.reaped = True
        self.died_at = self.host.now()
        self._world.reaped(self)
        for action in self.on_reaped:
            action()
        if self.parent:
            self.parent._child_reaped(self)

    def _child_reaped(self, child: SimProcess) -> None:
        self.children.remove(child)
        if self.alive and child._end:
            code, reason = child._end
            death = Death(max(code, 0), -min(code, 0), child.died_at, reason)
            self.machine.call_soon(_settle, child.death, death)
        elif not self.alive:
            self._reap_if_childless()

    # --- its guardian -----------------------------------------------------------------------------

    def _look_at(self, deadline: float) -> None:
        at = self.host.true(deadline)
        if self._looking_at is None or at < self._looking_at:
            self._looking_at = at
            self.host.time.at(at + 1e-6, self._look)

    def _look(self) -> None:
        self._looking_at = None
        if not self.alive or self.frozen or self.host.time.now < self._guardian_wakes:
            return
        if reason := self.overdue:
            self.end(reason)
            return
        due = [one for one in (self._worker_until, self._parent_until) if one is not None]
        if due:
            self._look_at(min(due))

    @property
    def overdue(self) -> str | None:
        """Return why its guardian would end it now."""
        now = self.host.now()
        if self._worker_until is not None and now >= self._worker_until:
            return "silent for too long"
        if self._parent_until is not None and now >= self._parent_until:
            return "no leader was heard of for too long"
        return None


class SimGuardianLink(GuardianLink):
    """The worker's end of the line to a guardian that is simulated."""

    def __init__(self, process: SimProcess) -> None:
        super().__init__(None)
        self._process = process

    def until(self, deadline: float) -> None:
        """See `GuardianLink.until`."""
        self._process.announce(deadline)


def _settle(future: asyncio.Future[Death], death: Death) -> None:
    if not future.done():
        future.set_result(death)
