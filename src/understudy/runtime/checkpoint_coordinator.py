"""CheckpointCoordinator: records what the attempts of one job complete, and what they begin with.

It stands beside the JobMaster, so that a register that is slow for a checkpoint is not slow for the
job. What several messages tell while a write is under way becomes one write. Only the attempt that
the job is in is heard: one that is known dead can add nothing any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from understudy.clock import Clock
from understudy.config import Configuration, options
from understudy.core import checkpoints
from understudy.core.checkpoints import Retention
from understudy.errors import TooLargeError
from understudy.ha.checkpoint_store import CheckpointStore
from understudy.model import Checkpoint, Checkpoints, Incarnation, JobId, Term
from understudy.rpc import messages
from understudy.rpc.messages import CheckpointsTaken
from understudy.runtime.persist import persist
from understudy.runtime.resource_manager import ResourceManager

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CheckpointSettings:
    """What the options say about checkpoints."""

    directory: str = ""
    """Where those of all jobs lie; empty: in our storage."""
    num_retained: int = 1
    retention: Retention = Retention.NO_EXTERNALIZED_CHECKPOINTS
    accept_found: bool = False

    @classmethod
    def of(cls, configuration: Configuration) -> CheckpointSettings:
        """Return what a configuration says."""
        return cls(
            configuration.find(options.CHECKPOINTS_DIR) or "",
            configuration.get(options.NUM_RETAINED),
            Retention(configuration.get(options.EXTERNALIZED)),
            configuration.get(options.ACCEPT_FOUND),
        )


class CheckpointCoordinator:
    """The checkpoints of one job in one term."""

    def __init__(
        self,
        job_id: JobId,
        store: CheckpointStore,
        term: Term,
        settings: CheckpointSettings,
        resources: ResourceManager,
        clock: Clock,
        completed: Callable[[Checkpoint], None],
    ) -> None:
        """``completed`` hears of each checkpoint once it is durable."""
        self._job_id = job_id
        self._store = store
        self._term = term
        self._settings = settings
        self._resources = resources
        self._clock = clock
        self._completed = completed
        self._attempt = 0
        self._inbox: asyncio.Queue[tuple[Incarnation, CheckpointsTaken] | None] = asyncio.Queue()
        self._turn = asyncio.Lock()

    @property
    def body(self) -> Checkpoints:
        """Return what is recorded, as far as this leader has seen it."""
        return self._store.body

    async def recover(self, attempt: int) -> None:
        """Take over what an earlier leader has recorded; the attempt goes on, if it lives."""
        self._attempt = attempt
        await persist("claim a job's checkpoints", lambda: self._store.claim(self._term))

    async def begin(self, attempt: int) -> tuple[Checkpoint, ...]:
        """Hear only this attempt from now on; return what it goes on from."""
        async with self._turn:
            self._attempt = attempt
            await persist("claim a job's checkpoints", lambda: self._store.claim(self._term))
            if self.body.completed:
                now = self._clock.wall()
                await self._update("note a restart", lambda body: checkpoints.restored(body, now))
            return checkpoints.latest(self.body)

    async def change(self, what: str, change: Callable[[Checkpoints], Checkpoints]) -> Checkpoints:
        """Change what is recorded beside checkpoints; raises `LeadershipLost`, `DataError`."""
        async with self._turn:
            await self._update(what, change)
            return self.body

    def taken(self, taskmanager: Incarnation, message: CheckpointsTaken) -> None:
        """Record what an attempt has completed, soon."""
        self._inbox.put_nowait((taskmanager, message))

    def close(self) -> None:
        """Let `run` return once all that was told is dealt with."""
        self._inbox.put_nowait(None)

    async def run(self) -> None:
        """Record until closed. Raises `LeadershipLost`, `DataError`."""
        while (first := await self._inbox.get()) is not None:
            told = [first]
            while not self._inbox.empty():
                if (more := self._inbox.get_nowait()) is None:
                    await self._record(told)
                    return
                told.append(more)
            await self._record(told)

    async def _record(self, told: list[tuple[Incarnation, CheckpointsTaken]]) -> None:
        async with self._turn:
            heard = []
            for taskmanager, message in told:
                if message.attempt == self._attempt:
                    heard.append((taskmanager, message))
                else:
                    self._refuse(taskmanager, message, "another attempt of the job is under way")
            try:
                numbered = await self._add([message for _, message in heard])
            except TooLargeError as error:
                for taskmanager, message in heard:
                    self._refuse(taskmanager, message, str(error))
                return
            for taskmanager, message in heard:
                numbers = tuple(one.number for one in numbered[: len(message.checkpoints)])
                del numbered[: len(message.checkpoints)]
                answer = messages.CheckpointsRecorded(
                    job_id=self._job_id,
                    attempt=message.attempt,
                    sequence=message.sequence,
                    numbers=numbers,
                )
                self._resources.send(taskmanager, answer)

    async def _add(self, told: list[CheckpointsTaken]) -> list[Checkpoint]:
        """Record what several messages tell in one write; return it with its numbers."""
        taken = [one for message in told for one in message.checkpoints]
        failed = sum(message.failed for message in told)
        before = self.body.counter

        def change(body: Checkpoints) -> Checkpoints:
            changed, _ = checkpoints.record(body, taken, self._settings.num_retained)
            return replace(changed, failed_total=changed.failed_total + failed)

        _, numbered = checkpoints.record(self.body, taken, self._settings.num_retained)
        if failed or any(one.number > before for one in numbered):
            await self._update("record a checkpoint", change)
        for one in numbered:
            if one.number > before:
                self._completed(one)
        return list(numbered)

    async def _update(self, what: str, change: Callable[[Checkpoints], Checkpoints]) -> Any:
        return await persist(what, lambda: self._store.update(self._term, change))

    def _refuse(self, taskmanager: Incarnation, message: CheckpointsTaken, reason: str) -> None:
        refusal = messages.CheckpointsRefused(
            job_id=self._job_id,
            attempt=message.attempt,
            sequence=message.sequence,
            reason=reason,
        )
        self._resources.send(taskmanager, refusal)
