"""Virtual time: event loops whose time jumps to the next timer when nothing is ready.

`run_virtual` runs one coroutine like ``asyncio.run``, but without waiting: an hour of sleep takes
microseconds, and the same program takes the same steps every time. `VirtualTime` is a whole world:
several `Machine` objects, each an event loop with its own clock, and events of the world itself
(`VirtualTime.at`), such as the arrival of a message. A machine's clock may run too fast or too
slow; a machine may be paused like a process under SIGSTOP, or crash like one under SIGKILL.

Threads and I/O raise an error. A world in which nothing is left to do fails with `StuckError`, one
that exceeds its time limit with `OvertimeError`, and one that spins without time passing with
`RunawayError`; each error names the waiting tasks.

A pause between two statements of one callback is not modelled, nor are several cores.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
import logging
import sys
import threading
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, NoReturn, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

LIMIT_S = 30 * 86_400.0
"""A run of more than a month does not end by itself."""

INSTANT_STEPS_MAX = 200_000
"""After so many callbacks without time passing, a loop never waits."""

ROUNDING_S = 1e-7
"""Tolerance for timers: drifting clocks are subject to rounding."""

WALL_AT_START = 1_750_000_000.0

_log = logging.getLogger(__name__)


class StuckError(AssertionError):
    """Nothing is left to do, and the awaited condition does not hold."""


class OvertimeError(AssertionError):
    """The limit of virtual time has passed."""


class RunawayError(AssertionError):
    """Callbacks follow each other without time passing."""


class VirtualTime:
    """A world with its true time, machines and future events."""

    def __init__(self) -> None:
        self.now = 0.0
        self.machines: list[Machine] = []
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._steps = 0

    def machine(self, name: str, *, rate: float = 1.0, offset: float = 0.0) -> Machine:
        """Add a machine whose clock shows ``offset`` now and runs at ``rate``."""
        machine = Machine(self, name, rate, offset)  # type: ignore[abstract]
        self.machines.append(machine)
        return machine

    def at(self, when: float, action: Callable[[], object]) -> None:
        """Run an action at a true time; actions at the same time keep their order."""
        heapq.heappush(self._events, (when, next(self._numbers), action))

    def after(self, delay_s: float, action: Callable[[], object]) -> None:
        """Run an action after a delay."""
        self.at(self.now + delay_s, action)

    def run(self, until: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
        """Run the world until a condition holds."""
        end = self.now + limit_s
        while not until():
            if not self._run_ready():
                self._advance(end)

    def _run_ready(self) -> bool:
        ran = 0
        for machine in self.machines:
            ran += machine.run_ready()
        self._steps += ran
        if self._steps > INSTANT_STEPS_MAX:
            raise RunawayError(f"{self._steps} callbacks at {self.now:.3f} s\n{self._waiting()}")
        return ran > 0

    def _advance(self, end: float) -> None:
        """Advance to the next timer or event, and run the world's due events."""
        when = self._events[0][0] if self._events else None
        for machine in self.machines:
            due = machine.due()
            if due is not None and (when is None or due < when):
                when = due
        if when is None:
            raise StuckError(f"nothing is left to do at {self.now:.3f} s\n{self._waiting()}")
        if when > end:
            raise OvertimeError(f"still waiting at {self.now:.3f} s\n{self._waiting()}")
        self.now = max(self.now, when)
        self._steps = 0
        while self._events and self._events[0][0] <= self.now:
            heapq.heappop(self._events)[2]()

    def _waiting(self) -> str:
        lines = []
        for machine in self.machines:
            state = "crashed" if machine.crashed else "paused" if machine.paused else "running"
            lines.append(f"{machine.name} ({state}, its clock shows {machine.time():.3f}):")
            lines += [f"  {_where(task)}" for task in machine.tasks()]
        return "\n".join(lines)


class MachineClock:
    """The clock of one machine (``understudy.clock.Clock``)."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.wall_offset = WALL_AT_START

    def now(self) -> float:
        """Return the time of the machine's timers."""
        return self._machine.time()

    def wall(self) -> float:
        """Return the true time plus ``wall_offset``, which tests may set."""
        return self.wall_offset + self._machine.world.now


class Machine(asyncio.AbstractEventLoop):
    """One machine of a world: an event loop run by `VirtualTime.run`."""

    def __init__(self, world: VirtualTime, name: str, rate: float, offset: float) -> None:
        self.world = world
        self.name = name
        self.paused = False
        self.crashed = False
        self.clock = MachineClock(self)
        self.unhandled: list[dict[str, Any]] = []
        """Contexts passed to `call_exception_handler`."""
        self._thread = threading.get_ident()
        self._rate = rate
        self._local, self._true = offset, world.now
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        self._generators: weakref.WeakSet[AsyncGenerator[Any, Any]] = weakref.WeakSet()
        self._closed = False

    # --- control by the world ---------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task on this machine, from outside."""
        return self.create_task(work)

    def pause(self) -> None:
        """Stop the machine as SIGSTOP does: the clock continues, and messages wait."""
        self.paused = True

    def resume(self) -> None:
        """Continue after `pause`."""
        self.paused = False

    def drift(self, rate: float) -> None:
        """Change the clock's rate from now on."""
        self._local, self._true, self._rate = self.time(), self.world.now, rate

    def jump(self, seconds: float) -> None:
        """Put the clock forward, as after a sleep of the whole machine."""
        self._local, self._true = self.time() + seconds, self.world.now

    def crash(self) -> None:
        """End the machine as SIGKILL does: its tasks have no effect from now on.

        The tasks are cancelled, so that none is left over. Fakes that connect a machine to the
        world must ignore a crashed one: ``crashed`` is set before the first cancellation.
        """
        self.crashed, self.paused = True, False
        self.end()

    def end(self) -> None:
        """Cancel all tasks, and run their cleanup as far as that needs no time."""
        for _ in range(100):
            tasks = self.tasks()
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            if not self.run_ready():
                break
        for generator in list(self._generators):
            self._begin(generator.aclose())
        self.run_ready()
        self._ready.clear()
        self._timers.clear()
        self._closed = True

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that are not done, sorted by name."""
        return sorted(
            asyncio.all_tasks(self), key=lambda task: (len(task.get_name()), task.get_name())
        )

    def due(self) -> float | None:
        """Return the true time of the next timer; None if there is none."""
        if self.paused or self._closed:
            return None
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if not self._timers:
            return None
        return self._true + (self._timers[0][0] - self._local) / self._rate

    def run_ready(self) -> int:
        """Run the callbacks that are ready now, not those that they add; return their number."""
        if self.paused or self._closed:
            return 0
        timers, ready = self._timers, self._ready
        if timers:
            now = self.time() + ROUNDING_S
            while timers and timers[0][0] <= now:
                timer = heapq.heappop(timers)[2]
                if not timer.cancelled():
                    ready.append(timer)
        if not ready:
            return 0
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(self._generators.add, self._finalize)
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        count = len(ready)
        try:
            for _ in range(count):
                if not ready or self.paused:
                    break
                handle = ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            asyncio._set_running_loop(before)
            sys.set_asyncgen_hooks(*hooks)
        return count

    def _begin(self, work: Coroutine[Any, Any, Any]) -> None:
        self._closed = False
        self.create_task(work)

    def _finalize(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._generators.discard(generator)
        if not self._closed:
            self.create_task(generator.aclose())

    # --- asyncio's interface of a loop ------------------------------------------------------------

    def time(self) -> float:
        """Return the time of the machine's clock."""
        return self._local + (self.world.now - self._true) * self._rate

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Append a callback to the ready ones."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Do the same as `call_soon`; only the garbage collector and this thread may call it."""
        if threading.get_ident() != self._thread:
            raise RuntimeError("virtual time knows no threads")
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback after ``delay`` seconds of this machine's clock."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback when this machine's clock shows ``when``."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this machine."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        """Start a task on this machine; a number names it, so that names repeat in every run."""
        name = name or f"{self.name}-{next(self._numbers)}"
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def get_debug(self) -> bool:
        """Return False: asyncio's debug mode measures real time."""
        return False

    def is_running(self) -> bool:
        """Return whether a callback of this machine is running."""
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        """Return whether the machine has ended."""
        return self._closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep and log an error that no caller receives."""
        self.unhandled.append(context)
        if not self.crashed:
            _log.error("%s: %s", self.name, context["message"], exc_info=context.get("exception"))

    async def shutdown_asyncgens(self) -> None:
        """Close the asynchronous generators that are still open."""
        for generator in list(self._generators):
            await generator.aclose()

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> NoReturn:  # type: ignore[override]
        """Raise: with a thread a run would depend on the real machine."""
        name = getattr(func, "__qualname__", repr(func))
        raise RuntimeError(f"virtual time knows no threads ({name}): use an InlineStorage")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: cancelled timers are dropped when they are due."""


def run_virtual(
    work: Coroutine[Any, Any, T], *, limit_s: float = LIMIT_S, world: VirtualTime | None = None
) -> T:
    """Run a coroutine to its end on a new machine; then end all machines of the world."""
    world = world or VirtualTime()
    machine = world.machine("main")
    main = machine.spawn(work)
    try:
        world.run(main.done, limit_s)
    finally:
        for other in world.machines:
            other.end()
    return main.result()


def virtual_clock() -> MachineClock:
    """Return the clock of the calling machine."""
    machine = asyncio.get_running_loop()
    assert isinstance(machine, Machine)
    return machine.clock


def _where(task: asyncio.Task[Any]) -> str:
    """Describe where a task waits: its coroutines, the outermost first."""
    frames: list[str] = []
    waiting: Any = task.get_coro()
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "ag_frame", None)
        if frame:
            frames.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "ag_await", None)
    return f"{task.get_name()}: {' > '.join(frames) or repr(task)}"
