"""CheckpointCoordinator: records the checkpoints of one job, and which of them an attempt restores.

It runs beside the JobMaster, so that a slow checkpoint write does not delay the job. Messages that
arrive during a write are combined in the next write. Only the current attempt can add checkpoints:
messages of an attempt that is known dead are refused.
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
from understudy.core.checkpoints import CheckpointReport, Retention, has_only_begun
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
    Term,
)
from understudy.process.persist import persist
from understudy.rpc import messages
from understudy.rpc.messages import CheckpointsTaken

RECENT_MAX = 10
"""Checkpoints of this term that are shown though they may not be retained (Flink shows as many)."""

DRAIN_S = 10.0
"""Longest wait for received checkpoints to be recorded: a write takes milliseconds, and whoever
waits tries again."""

ENDED = "the job has ended, or is cancelled"
ANOTHER = "another attempt of the job is under way"


@dataclass(frozen=True)
class CheckpointSettings:
    """The options about checkpoints."""

    directory: str = ""
    """Directory of all jobs' checkpoints; empty: the HA storage."""
    num_retained: int = 1
    retention: Retention = Retention.NO_EXTERNALIZED_CHECKPOINTS
    accept_found: bool = False

    @classmethod
    def of(cls, configuration: Configuration) -> CheckpointSettings:
        """Return the settings of a configuration."""
        return cls(
            configuration.find(options.CHECKPOINTS_DIR) or "",
            configuration.get(options.NUM_RETAINED),
            Retention(configuration.get(options.EXTERNALIZED)),
            configuration.get(options.ACCEPT_FOUND),
        )


Received = tuple[Incarnation, CheckpointsTaken]
"""A report of checkpoints, with the TaskManager that it came from."""


class Audience(Protocol):
    """Receiver of the news about a job's checkpoints."""

    def completed(self, checkpoint: Checkpoint) -> None:
        """A checkpoint is durable."""
        ...

    def failed(self, last: Checkpoint, count: int) -> None:
        """``count`` checkpoints failed; ``last`` has the reason."""
        ...

    def restored(self, attempt: int, given: tuple[Checkpoint, ...], savepoint: str) -> None:
        """An attempt resumes from these checkpoints, or from the savepoint at this path."""
        ...

    def full(self, problem: str) -> None:
        """The register has no room for more checkpoints."""
        ...

    def unreadable(self, problem: str) -> None:
        """The document needs a person's repair; an empty ``problem`` withdraws that."""
        ...

    def over(self) -> None:
        """No more news will come."""
        ...


class CheckpointCoordinator:
    """The checkpoints of one job in one term."""

    def __init__(
        self,
        store: CheckpointStore,
        term: Term,
        settings: CheckpointSettings,
        resources: ResourceManager,
        clock: Clock,
        audience: Audience,
    ) -> None:
        self._job_id = store.job_id
        self._store = store
        self._term = term
        self._settings = settings
        self._resources = resources
        self._clock = clock
        self._audience = audience
        self.recent: deque[Checkpoint] = deque(maxlen=RECENT_MAX)
        """The newest checkpoints that this leader has recorded."""
        self._failed: tuple[int, Checkpoint | None] = (0, None)
        """Failed checkpoints since the last write, and the last: the next write records them."""
        self._attempt = 0
        self.given: tuple[Checkpoint, ...] = ()
        """Checkpoints that the attempt resumes from, if it began under this leader."""
        self._inbox: asyncio.Queue[Received | asyncio.Event | None] = asyncio.Queue()
        """Checkpoints; events to set once all before them is processed; None: the last."""
        self._turn = asyncio.Lock()
        self._unneeded = asyncio.Event()
        """Set once no attempt will resume from the recorded checkpoints."""
        self._over = asyncio.Event()

    @property
    def body(self) -> Checkpoints:
        """Return the recorded checkpoints, as last seen by this leader."""
        return checkpoints.failed(self._store.body, *self._failed)

    async def recover(self, attempt: int) -> None:
        """Take over the record of an earlier leader, and accept messages of its attempt.

        An unreadable document is no error here: `run` waits for its repair.
        """
        async with self._turn:
            self._attempt = attempt
            with contextlib.suppress(DataError, NotFoundError):
                await persist("claim a job's checkpoints", lambda: self._store.claim(self._term))

    async def begin(self, attempt: int) -> tuple[Checkpoint, ...]:
        """Accept only this attempt from now on; return the checkpoints that it resumes from."""
        async with self._turn:
            self._attempt, self.given = attempt, ()
            if not await self._claim():
                return ()
            if self.body.completed:
                now = self._clock.wall()
                # The note is for display: a full document does not fail the attempt.
                with contextlib.suppress(TooLargeError):
                    await self._update(
                        "note a restart", lambda body: checkpoints.restored(body, now)
                    )
            self.given = checkpoints.latest(self.body)
        if self.given:
            self._audience.restored(attempt, self.given, self.body.restored_from)
        return self.given

    def has_advanced(self, attempt: int) -> bool:
        """Return whether an attempt has recorded progress beyond what it began with."""
        return checkpoints.has_advanced(self.body, attempt, self.given)

    async def change(self, what: str, change: Callable[[Checkpoints], Checkpoints]) -> Checkpoints:
        """Change the job's checkpoint document, durably.

        Raises `CheckpointError` while the job is ending, `TooLargeError`, `LeadershipLost`.
        """
        async with self._turn:
            while True:
                if not await self._claim():
                    raise CheckpointError(ENDED)
                if await self._update(what, change):
                    return self.body

    async def known(self) -> bool:
        """Return True once the document is read; False where it is needed no more."""
        async with self._turn:
            return await self._claim()

    def taken(self, taskmanager: Incarnation, message: CheckpointsTaken) -> None:
        """Enqueue the checkpoints that an attempt has completed, to be recorded."""
        if self._over.is_set():
            self._refuse(taskmanager, message, ENDED)
        else:
            self._inbox.put_nowait((taskmanager, message))

    def give_up(self) -> None:
        """Stop waiting for the repair of the document: the job is about to end."""
        self._unneeded.set()

    async def drain(self) -> None:
        """Return once the enqueued checkpoints are recorded or refused; at once after the end.

        Raises `TimeoutError` after ``DRAIN_S``; what is enqueued stays so.
        """
        if self._over.is_set():
            return
        drained = asyncio.Event()
        self._inbox.put_nowait(drained)
        try:
            async with asyncio.timeout(DRAIN_S):
                await drained.wait()
        except TimeoutError:
            raise TimeoutError("the last checkpoints of the job are not recorded yet") from None

    async def finish(self) -> None:
        """Record the enqueued checkpoints, and refuse all later ones: the job's result is next.

        A checkpoint recorded later would be left behind by the cleanup.
        """
        self.give_up()
        self.close()
        await self._over.wait()

    def close(self) -> None:
        """Let `run` return once the enqueued messages are processed."""
        self._inbox.put_nowait(None)

    async def run(self) -> None:
        """Take over the record of an earlier leader, and record until closed.

        Raises `LeadershipLost`.
        """
        async with self._turn:
            await self._claim()
        ends = False
        while not (ends and self._inbox.empty()):  # What comes during the last write counts too.
            received = [await self._inbox.get()]
            while not self._inbox.empty():
                received.append(self._inbox.get_nowait())
            ends = ends or None in received
            await self._record([one for one in received if isinstance(one, tuple)])
            for one in received:
                if isinstance(one, asyncio.Event):
                    one.set()
        self._audience.over()
        self._over.set()

    async def _claim(self) -> bool:
        """Read the document and shut out older terms; False where it is needed no more.

        An unreadable document waits for a person's repair: without it, the job would repeat work
        that is done already.
        """
        reported = False
        while not self._store.is_claimed:
            try:
                await persist("claim a job's checkpoints", lambda: self._store.claim(self._term))
            except (DataError, NotFoundError) as error:
                if self._unneeded.is_set():
                    return False
                if not reported:
                    self._audience.unreadable(str(error))
                reported = True
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(REPAIR_LOOK_S):
                        await self._unneeded.wait()
        if reported:
            self._audience.unreadable("")
        return True

    async def _record(self, received: list[tuple[Incarnation, CheckpointsTaken]]) -> None:
        async with self._turn:
            heard = []
            for taskmanager, message in received:
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
        """Record several messages in one write; return the numbered checkpoints of each."""
        if not self._store.is_claimed:
            raise CheckpointError(ENDED)
        news = [one for one in heard if (one.attempt, one.sequence) > self._store.body.heard]
        for message in news:
            self._count_failed(message.failed, message.last_failed)
        received = [CheckpointReport(one.attempt, one.sequence, one.checkpoints) for one in heard]
        before, numbered = self._store.body.counter, list[tuple[Checkpoint, ...]]()

        def change(body: Checkpoints) -> Checkpoints:
            nonlocal numbered
            body, numbered = checkpoints.hear(body, received, self._settings.num_retained)
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
        """Count refused checkpoints without a write: a job may retry for ever."""
        self._audience.full(str(error))
        received = [one for message in heard for one in message.checkpoints]
        refused = [one for one in received if not has_only_begun(one)]
        if refused:
            failure = Failure(type="TooLargeError", message=str(error), time=self._clock.wall())
            last = replace(refused[-1], offsets=NULL, note=NULL, failure=failure)
            self._count_failed(len(refused), last)

    def _count_failed(self, count: int, last: Checkpoint | None) -> None:
        self._failed = (self._failed[0] + count, last or self._failed[1])
        if count and self.body.failed:
            self._audience.failed(self.body.failed, count)

    async def _update(self, what: str, change: Callable[[Checkpoints], Checkpoints]) -> bool:
        """Write; False where the document was damaged meanwhile and had to be claimed again."""
        try:
            await self._write(what, change)
        except (DataError, NotFoundError):
            if not self._store.forget():
                raise
            await self._claim()
            return False
        return True

    async def _write(self, what: str, change: Callable[[Checkpoints], Checkpoints]) -> None:
        """Write the change and the failure count; a count without room waits for the next write."""
        store, failed = self._store, self._failed
        counted = store.body.failed_total

        def both(body: Checkpoints) -> Checkpoints:
            is_written = body.failed_total > counted  # A write whose outcome was unknown.
            return change(body if is_written else checkpoints.failed(body, *failed))

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
