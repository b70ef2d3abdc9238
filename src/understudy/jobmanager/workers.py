"""Workers: has TaskManagers provided as jobs need them, and lets idle ones go (`core.workers`).

Flink's active ResourceManager. Who provides them is a `WorkerProvider`, Flink's
ResourceManagerDriver.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from understudy.clock import Clock
from understudy.core import workers
from understudy.core.backoff import Backoff
from understudy.core.workers import (
    Create,
    Demand,
    Event,
    Pool,
    PoolLimits,
    WorkerId,
    WorkersListed,
    WorkersUnseen,
)
from understudy.model import Incarnation, Term

REQUESTS_MAX = 8
"""Requests to the provider at the same time; more queue."""

REMOVAL = Backoff(1.0, 60.0)
"""The pauses before a worker is removed again that was not."""

_log = logging.getLogger(__name__)


class WorkerProvider(Protocol):
    """Who provides places for TaskManagers, for instance as pods."""

    async def follow(self, tell: Callable[[WorkersListed | WorkersUnseen], None]) -> None:
        """Tell of all workers of the cluster, now and after each change; runs for ever.

        Workers of earlier leaders are among them. One that is proved dead is told of as dead once,
        before it is told of no more.
        """
        ...

    async def create(self, worker: WorkerId) -> None:
        """Ask for a worker; one that is there already is left as it is.

        Raises ``OSError`` if there is none, as far as is known.
        """
        ...

    async def remove(self, worker: WorkerId) -> None:
        """Have a worker end in order, or remove what is left of it; nothing if it is gone.

        Raises ``OSError`` if it may still be there.
        """
        ...


class Workers:
    """The workers of one term."""

    def __init__(
        self, provider: WorkerProvider, limits: PoolLimits, term: Term, clock: Clock
    ) -> None:
        self._provider = provider
        self._pool = Pool(term, limits)
        self._clock = clock
        self._events: list[Event] = []
        self._woken = asyncio.Event()
        self._requests = asyncio.Semaphore(REQUESTS_MAX)

    def need(self, demand: Demand) -> None:
        """Say what jobs need now."""
        if demand != Demand(self._pool.waiting, self._pool.taskmanagers):
            self._tell(demand)

    def why_none(self) -> str:
        """Return why no further TaskManager is there; empty if nothing is known to be wrong."""
        return workers.why_none(self._pool)

    async def run(
        self, note: Callable[[frozenset[Incarnation], frozenset[Incarnation]], None]
    ) -> None:
        """Ask for workers and let them go; runs for ever.

        ``note`` is called with the TaskManagers that get no further job, and with those that are
        proved dead, before anything is done with them.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._provider.follow(self._tell))
            while True:
                self._woken.clear()
                events, self._events = [*self._events, workers.TimePassed()], []
                commands: list[workers.Command] = []
                for event in events:
                    self._pool, more = workers.step(self._pool, event, self._clock.now())
                    note(workers.going(self._pool), workers.dead(self._pool))
                    commands += more
                for command in commands:
                    tasks.create_task(self._execute(command))
                await self._wait()

    async def _wait(self) -> None:
        """Return when something has happened, or is to be decided."""
        now = self._clock.now()
        look = workers.next_look(self._pool, now)
        try:
            async with asyncio.timeout(None if look is None else look - now):
                await self._woken.wait()
        except TimeoutError:
            pass

    def _tell(self, event: Event) -> None:
        self._events.append(event)
        self._woken.set()

    async def _execute(self, command: workers.Command) -> None:
        async with self._requests:
            if isinstance(command, Create):
                await self._create(command.worker)
            else:
                await self._remove(command)

    async def _create(self, worker: WorkerId) -> None:
        _log.info("asks for TaskManager %s", worker)
        try:
            await self._provider.create(worker)
        except OSError as error:
            _log.warning("TaskManager %s is not provided: %s", worker, error)
            self._tell(workers.WorkerRefused(worker, str(error)))

    async def _remove(self, command: workers.Remove) -> None:
        _log.info("lets TaskManager %s go: %s", command.worker, command.why)
        failures = 0
        while True:
            try:
                await self._provider.remove(command.worker)
            except OSError as error:
                failures += 1
                _log.warning("TaskManager %s is not removed: %s", command.worker, error)
                await asyncio.sleep(REMOVAL.pause_s(failures))
            else:
                return
