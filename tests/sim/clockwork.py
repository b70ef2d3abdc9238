"""Virtual time for many worlds: what `tests.support.virtual_time` does, in fewer steps.

A machine runs until nothing of it is ready before the next one gets its turn, and machines with
nothing to do are passed over. Everything else is as there.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import sys
from collections.abc import Callable
from typing import TypeVarTuple

from tests.support.virtual_time import (
    INSTANT_STEPS_MAX,
    LIMIT_S,
    ROUNDING_S,
    Machine,
    OvertimeError,
    RunawayError,
    StuckError,
    VirtualTime,
)

Ts = TypeVarTuple("Ts")

PAUSE_S_MIN = 1e-6

STEPS_AT_ONCE = 1_000
"""So many callbacks take a microsecond: who spins until a clock has moved on gets there."""


class SimMachine(Machine):
    """A machine on which even the shortest pause lets time pass, as on any real one."""

    ending = False

    def end(self) -> None:
        """See `Machine.end`: step by step, as tasks may have to be told more than once."""
        self.ending = True
        super().end()

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """See `Machine.call_later`."""
        when = self.time() + (delay if delay > PAUSE_S_MIN else PAUSE_S_MIN)
        return self.call_at(when, callback, *args, context=context)

    def run_timers(self) -> int:
        """Run what is due now; return how many callbacks."""
        timers = self._timers
        if self.paused or self._closed:
            return 0
        if timers:
            now = self._local + (self.world.now - self._true) * self._rate + ROUNDING_S
            while timers and timers[0][0] <= now:
                timer = heapq.heappop(timers)[2]
                if not timer._cancelled:
                    self._ready.append(timer)
        return self.run_ready() if self._ready else 0

    def run_ready(self) -> int:
        """Run until nothing is ready; return how many callbacks."""
        ready = self._ready
        if self.paused or self._closed or not ready:
            return 0
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(self._generators.add, self._finalize)
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        count, limit = 0, len(ready) if self.ending else STEPS_AT_ONCE
        try:
            while ready and not self.paused and count < limit:
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
                count += 1
        finally:
            asyncio._set_running_loop(before)
            sys.set_asyncgen_hooks(*hooks)
        return count

    def next_due(self, before: float) -> float:
        """Return the true time of the next timer, if it is sooner."""
        timers = self._timers
        if self.paused or self._closed:
            return before
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers:
            return before
        when = self._true + (timers[0][0] - self._local) / self._rate
        return when if when < before else before


class SimTime(VirtualTime):
    """A world's true time."""

    def __init__(self) -> None:
        super().__init__()
        self.running: list[SimMachine] = []
        """The machines, but for those that have ended."""

    def add(self, name: str, rate: float, offset: float) -> SimMachine:
        """Add a machine whose clock shows ``offset`` now, and runs at ``rate``."""
        machine = SimMachine(self, name, rate, offset)  # type: ignore[abstract]
        self.running.append(machine)
        self.machines.append(machine)
        return machine

    def remove(self, machine: SimMachine) -> None:
        """Forget a machine that has ended."""
        self.running.remove(machine)
        self.machines.remove(machine)

    def run(self, until: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
        """See `VirtualTime.run`; ``until`` is asked whenever time is about to pass."""
        end = self.now + limit_s
        while True:
            steps = ran = sum(machine.run_timers() for machine in self.running)
            # No pause is so short that another timer could be due at this moment.
            while ran:
                ran = sum(machine.run_ready() for machine in self.running if machine._ready)
                steps += ran
                if ran >= STEPS_AT_ONCE:
                    self.now += PAUSE_S_MIN
                if steps > INSTANT_STEPS_MAX:
                    raise RunawayError(f"{steps} callbacks\n{self._waiting()}")
            if until():
                return
            self._pass(end)

    def _pass(self, end: float) -> None:
        """Go to the next moment at which something is due, and let the world's events happen."""
        events = self._events
        when = never = float("inf")
        if events:
            when = events[0][0]
        for machine in self.running:
            when = machine.next_due(when)
        if when == never:
            raise StuckError(f"nothing is left to do at {self.now:.3f} s\n{self._waiting()}")
        if when > end:
            raise OvertimeError(f"still waiting at {self.now:.3f} s\n{self._waiting()}")
        self.now = max(self.now, when)
        while events and events[0][0] <= self.now:
            heapq.heappop(events)[2]()
