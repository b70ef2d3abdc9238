"""CheckpointCoordinator: records what the attempts of one job complete, and what they begin with.

It stands beside the JobMaster, so that a register that is slow for a checkpoint is not slow for the
job. What several messages tell while a write is under way becomes one write. Only the attempt that
the job is in is heard: one that is known dead can add nothing any more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from understudy.clock import Clock
from understudy.config import Configuration, options
from understudy.core import checkpoints
from understudy.core.checkpoints import Retention, Telling
from understudy.core.writes import has_only_begun
from understudy.errors import CheckpointError, DataError, NotFoundError, TooLargeError
from understudy.ha.checkpoint_store import CheckpointStore
from understudy.jobmanager.attention import REPAIR_LOOK_S
from understudy.jobmanager.resource_manager import ResourceManager
from understudy.model import (
    NULL,
    Checkpoint,
    Checkpoints,
    Failure,
    Incarnation,
    JobId,
    Term,
)
from understudy.process.persist import persist
from understudy.rpc import messages
from understudy.rpc.messages import CheckpointsTaken

RECENT_MAX = 10
"""Checkpoints of this term that are shown though they may not be retained (Flink shows as many)."""

ENDED = "the job has ended, or is cancelled"
ANOTHER = "another attempt of the job is under way"


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


class Audience(Protocol):
    """Who hears of a job's checkpoints."""

    def completed(self, checkpoint: Checkpoint) -> None:
        """It is durable."""
        ...

    def failed(self, last: Checkpoint, count: int) -> None:
        """So many came to nothing; the last one says why."""
        ...

    def restored(self, attempt: int, given: tuple[Checkpoint, ...], savepoint: str) -> None:
        """An attempt goes on from these, or from what the savepoint here holds."""
        ...

    def full(self, problem: str) -> None:
        """The register has no room for more of them."""
        ...

    def unreadable(self, problem: str) -> None:
        """A person is needed, or is not needed any more (empty)."""
        ...

    def over(self) -> None:
        """Nothing more will come."""
        ...


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
        audience: Audience,
    ) -> None:
        self._job_id = job_id
        self._store = store
        self._term = term
        self._settings = settings
        self._resources = resources
        self._clock = clock
        self._audience = audience
        self.recent: deque[Checkpoint] = deque(maxlen=RECENT_MAX)
        """The newest that this leader has recorded."""
        self._failed: tuple[int, Checkpoint | None] = (0, None)
        """How many came to nothing since the last write, and the last: the next write tells it."""
        self._attempt = 0
        self.given: tuple[Checkpoint, ...] = ()
        """What the attempt goes on from, if it began under this leader."""
        self._inbox: asyncio.Queue[tuple[Incarnation, CheckpointsTaken] | None] = asyncio.Queue()
        self._turn = asyncio.Lock()
        self._unneeded = asyncio.Event()
        """Nobody will go on from what is recorded."""
        self._over = asyncio.Event()

    @property
    def body(self) -> Checkpoints:
        """Return what is recorded, as far as this leader has seen it."""
        return checkpoints.failed(self._store.body, *self._failed)

    async def recover(self, attempt: int) -> None:
        """Take over what an earlier leader has recorded; hear the attempt that it left, if any.

        What cannot be read holds up nobody here: `run` waits for its repair.
        """
        async with self._turn:
            self._attempt = attempt
            with contextlib.suppress(DataError, NotFoundError):
                await persist("claim a job's checkpoints", lambda: self._store.claim(self._term))

    async def begin(self, attempt: int) -> tuple[Checkpoint, ...]:
        """Hear only this attempt from now on; return what it goes on from."""
        async with self._turn:
            self._attempt, self.given = attempt, ()
            if not await self._claim():
                return ()
            if self.body.completed:
                now = self._clock.wall()
                # The note is for people: a document without room for it is no reason to fail.
                with contextlib.suppress(TooLargeError):
                    await self._update(
                        "note a restart", lambda body: checkpoints.restored(body, now)
                    )
            self.given = checkpoints.latest(self.body)
        if self.given:
            self._audience.restored(attempt, self.given, self.body.restored_from)
        return self.given

    def has_advanced(self, attempt: int) -> bool:
        """Say whether an attempt has brought the job further, as far as it is recorded."""
        return checkpoints.has_advanced(self.body, attempt, self.given)

    async def change(self, what: str, change: Callable[[Checkpoints], Checkpoints]) -> Checkpoints:
        """Change what is recorded beside checkpoints.

        Raises `CheckpointError` where the job ends just now, `TooLargeError`, `LeadershipLost`.
        """
        async with self._turn:
            while True:
                if not await self._claim():
                    raise CheckpointError(ENDED)
                if await self._update(what, change):
                    return self.body

    async def known(self) -> bool:
        """Return once what is recorded is known here; False where nobody needs it any more."""
        async with self._turn:
            return await self._claim()

    def taken(self, taskmanager: Incarnation, message: CheckpointsTaken) -> None:
        """Record what an attempt has completed, soon."""
        if self._over.is_set():
            self._refuse(taskmanager, message, ENDED)
        else:
            self._inbox.put_nowait((taskmanager, message))

    def give_up(self) -> None:
        """Wait for nobody who would repair what is recorded: the job is about to end."""
        self._unneeded.set()

    async def finish(self) -> None:
        """Record what was told so far, and hear nothing more: the job's result is next.

        What would be recorded after that would be left behind, as it is cleaned up by then.
        """
        self.give_up()
        self.close()
        await self._over.wait()

    def close(self) -> None:
        """Let `run` return once all that was told is dealt with."""
        self._inbox.put_nowait(None)

    async def run(self) -> None:
        """Take over what an earlier leader has recorded, and record until closed.

        Raises `LeadershipLost`.
        """
        async with self._turn:
            await self._claim()
        ends = False
        while not ends:
            told = [await self._inbox.get()]
            while not self._inbox.empty():
                told.append(self._inbox.get_nowait())
            ends = None in told
            await self._record([one for one in told if one is not None])
        self._audience.over()
        self._over.set()

    async def _claim(self) -> bool:
        """Read what is recorded, and shut out older terms; False where nobody needs it any more.

        What cannot be read stays as it is until a person has put it right: without it, the job
        would begin anew what it has done already.
        """
        told = False
        while not self._store.is_claimed:
            try:
                await persist("claim a job's checkpoints", lambda: self._store.claim(self._term))
            except (DataError, NotFoundError) as error:
                if self._unneeded.is_set():
                    return False
                if not told:
                    self._audience.unreadable(str(error))
                told = True
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(REPAIR_LOOK_S):
                        await self._unneeded.wait()
        if told:
            self._audience.unreadable("")
        return True

    async def _record(self, told: list[tuple[Incarnation, CheckpointsTaken]]) -> None:
        async with self._turn:
            heard = []
            for taskmanager, message in told:
                if message.attempt == self._attempt:
                    heard.append((taskmanager, message))
                else:
                    self._refuse(taskmanager, message, ANOTHER)
            try:
                numbered = await self._add([message for _, message in heard])
            except (TooLargeError, CheckpointError) as error:
                if isinstance(error, TooLargeError):
                    self._no_room(error, [message for _, message in heard])
                for taskmanager, message in heard:
                    self._refuse(taskmanager, message, str(error))
                return
            for (taskmanager, message), taken in zip(heard, numbered, strict=True):
                answer = messages.CheckpointsRecorded(
                    job_id=self._job_id,
                    attempt=message.attempt,
                    sequence=message.sequence,
                    numbers=tuple(one.number for one in taken),
                )
                self._resources.send(taskmanager, answer)

    async def _add(self, heard: list[CheckpointsTaken]) -> list[tuple[Checkpoint, ...]]:
        """Record what several messages tell in one write; return of each what it told, numbered."""
        if not self._store.is_claimed:
            raise CheckpointError(ENDED)
        news = [one for one in heard if (one.attempt, one.sequence) > self._store.body.heard]
        for message in news:
            self._count_failed(message.failed, message.last_failed)
        told = [Telling(one.attempt, one.sequence, one.checkpoints) for one in heard]
        before, numbered = self._store.body.counter, list[tuple[Checkpoint, ...]]()

        def change(body: Checkpoints) -> Checkpoints:
            nonlocal numbered
            body, numbered = checkpoints.hear(body, told, self._settings.num_retained)
            return body

        while news and not await self._update("record a checkpoint", change):
            if not self._store.is_claimed:
                raise CheckpointError(ENDED)
        if not news:
            change(self._store.body)
        for taken in numbered:
            for one in taken:
                if one.number > before:
                    self.recent.append(one)
                    self._audience.completed(one)
        return numbered

    def _no_room(self, error: TooLargeError, heard: list[CheckpointsTaken]) -> None:
        """Count what the document has no room for, without a write: a job may try for ever."""
        self._audience.full(str(error))
        told = [one for message in heard for one in message.checkpoints]
        refused = [one for one in told if not has_only_begun(one)]
        if refused:
            failure = Failure(type="TooLargeError", message=str(error), time=self._clock.wall())
            last = replace(refused[-1], offsets=NULL, note=NULL, failure=failure)
            self._count_failed(len(refused), last)

    def _count_failed(self, count: int, last: Checkpoint | None) -> None:
        self._failed = (self._failed[0] + count, last or self._failed[1])
        if count and self.body.failed:
            self._audience.failed(self.body.failed, count)

    async def _update(self, what: str, change: Callable[[Checkpoints], Checkpoints]) -> bool:
        """Write; False where the document had to be claimed anew, since somebody had spoilt it."""
        try:
            await self._write(what, change)
        except (DataError, NotFoundError):
            if not self._store.forget():
                raise
            await self._claim()
            return False
        return True

    async def _write(self, what: str, change: Callable[[Checkpoints], Checkpoints]) -> None:
        """Write, and what has failed with it; where that has no room, it waits for the next."""
        store, failed = self._store, self._failed
        counted = store.body.failed_total

        def both(body: Checkpoints) -> Checkpoints:
            is_told = body.failed_total > counted  # A write whose outcome was unknown.
            return change(body if is_told else checkpoints.failed(body, *failed))

        if failed[0]:
            with contextlib.suppress(TooLargeError):
                await persist(what, lambda: store.update(self._term, both))
                self._failed = (0, None)
                return
        await persist(what, lambda: store.update(self._term, change))

    def _refuse(self, taskmanager: Incarnation, message: CheckpointsTaken, reason: str) -> None:
        refusal = messages.CheckpointsRefused(
            job_id=self._job_id,
            attempt=message.attempt,
            sequence=message.sequence,
            reason=reason,
        )
        self._resources.send(taskmanager, refusal)
