"""What a simulated job keeps: states and micro-batches, told as `driver.checkpointing` does."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING

import msgspec

from tests.sim.effects import SimStorage
from tests.sim.hosts import SimProcess
from tests.sim.program import Job
from understudy.driver.checkpointing import LinkRecorder
from understudy.driver.kept_state import KeptState, states
from understudy.errors import CheckpointError
from understudy.ha.format import digest
from understudy.model import Checkpoint, CheckpointKind
from understudy.process.persist import persist
from understudy.rpc import messages
from understudy.rpc.messages import CheckpointsRecorded, Deploy

if TYPE_CHECKING:
    from tests.sim.world import World

QUERY = "query"


class SimKeeper(LinkRecorder):
    """The shipped recorder, awaited instead of blocking a thread, and what a job does with it."""

    def __init__(
        self,
        world: World,
        process: SimProcess,
        storage: SimStorage,
        send: functools.partial[None],
        deploy: Deploy,
    ) -> None:
        super().__init__(send, deploy.job_id, deploy.attempt, process.machine.clock)
        self._world = world
        self._process = process
        self._storage = storage
        self._deploy = deploy
        self._news = asyncio.Event()
        self._told: dict[int, tuple[Checkpoint, ...]] = {}
        self._restored = {one.kind: one for one in deploy.restored}

    def answered(self, answer: messages.CheckpointsRecorded | messages.CheckpointsRefused) -> None:
        """See `LinkRecorder.answered`."""
        super().answered(answer)
        taken = self._told.pop(answer.sequence, ())
        if isinstance(answer, CheckpointsRecorded):
            for one, number in zip(taken, answer.numbers if taken else (), strict=True):
                self._world.watch.kept.acknowledged(self._deploy, one, number)
        elif taken:
            self._world.watch.kept.refused(self._process, self._deploy, answer.reason)
        self._news.set()

    async def work(self, job: Job) -> None:
        """Do what the job's function does, from where it had come to."""
        if not job.steps:
            await asyncio.sleep(job.runs_s)
            return
        state = self._restored.get(CheckpointKind.STATE)
        batch = self._restored.get(CheckpointKind.BATCH)
        step = state.rows if state else 0
        number = batch.batch_id + 1 if batch else 0
        while max(step, number) < job.steps:
            await asyncio.sleep(job.runs_s / job.steps)
            if self._deploy.attempt <= job.kills and self._process.chance.random() < 0.2:
                self._process.crash_now(f"by job {job.name} itself, in step {max(step, number)}")
                await asyncio.Event().wait()
            if job.streams:
                self._complete(number)
                number += 1
            if job.saves:
                step += 1
                state = await self._save(step, state)
        if self.refusal:
            raise CheckpointError(self.refusal)

    def _complete(self, number: int) -> None:
        """Tell of a micro-batch, and go on at once."""
        taken = Checkpoint(
            kind=CheckpointKind.BATCH,
            name=QUERY,
            attempt=self._deploy.attempt,
            batch_id=number,
            digest=f"batch {number}",
        )
        self._told[self._sequence + 1] = (taken,)
        self.report(taken)

    async def _save(self, step: int, before: Checkpoint | None) -> Checkpoint:
        """Keep a state, wait until it is durable, and remove the one before."""
        data = states.dump(KeptState(value=msgspec.Raw(msgspec.json.encode({"step": step}))))
        path = f"{self._deploy.checkpoints}/state/{self._deploy.attempt}-{step}.json"
        await persist("save a state", functools.partial(self._storage.publish, path, data))
        taken = Checkpoint(
            kind=CheckpointKind.STATE,
            name="",
            attempt=self._deploy.attempt,
            location=path,
            digest=digest(data),
            rows=step,
        )
        sequence = self._sequence + 1
        self._told[sequence] = (taken,)
        pending = self._post((taken,))
        while not pending.answered.is_set():
            self._news.clear()
            await self._news.wait()
        if not isinstance(pending.answer, CheckpointsRecorded):
            raise CheckpointError(f"the checkpoint was not recorded: {self.refusal}")
        if before:
            remove = functools.partial(self._storage.delete, before.location)
            await persist("remove a state", remove)
        return taken
