"""What a new leader learns of attempts from a TaskManager, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tests.ha.test_checkpoint_store import JOB, begun, taken
from tests.jobmanager.test_checkpoint_coordinator import Audience
from tests.jobmanager.test_resource_manager import Graves, Tenant, resource_manager
from tests.support.faulty_register import Durable
from tests.support.virtual_time import run_virtual, virtual_clock
from tests.taskmanager.test_task_manager import ME, Scene
from understudy.core import job
from understudy.jobmanager.checkpoint_coordinator import CheckpointCoordinator, CheckpointSettings
from understudy.jobmanager.resource_manager import JobInbox
from understudy.model import Incarnation, JobId, JobStatus, Pointer, Term
from understudy.rpc import messages
from understudy.rpc.local import LocalLink
from understudy.rpc.messages import AttemptMessage, LinkMessage, RegisterTaskManager

TERM: Term = 1
"""The term of the leader that continues the job: the store of its checkpoints is of this term."""


class Master:
    """The inbox of one job, which ends with the first end of its attempt, as in a `JobMaster`."""

    def __init__(self, coordinator: CheckpointCoordinator) -> None:
        self.coordinator = coordinator
        self.heard: list[str] = []
        self.result: asyncio.Task[None] | None = None
        self.recording = asyncio.ensure_future(coordinator.run())

    def enqueue(self, event: job.Event) -> None:
        """See `JobInbox.enqueue`."""

    def receive(self, taskmanager: Incarnation, message: AttemptMessage) -> None:
        """See `JobInbox.receive`."""
        self.heard.append(type(message).__name__)
        if isinstance(message, messages.CheckpointsTaken):
            self.coordinator.taken(taskmanager, message)
        elif isinstance(message, messages.AttemptEnded):
            self.result = asyncio.ensure_future(self.coordinator.finish())

    @property
    def batches(self) -> list[int]:
        """Return the recorded batches."""
        return [one.batch_id for one in self.coordinator.body.completed]


class Jobs(Tenant):
    """The tenant that has the one job."""

    master: Master

    @property
    def inboxes(self) -> Mapping[JobId, JobInbox]:
        """See `Tenant.inboxes`."""
        return {JOB.job_id: self.master}


class Takeover:
    """A TaskManager that has lost its leader, and the `ResourceManager` of the next one."""

    def __init__(self) -> None:
        self.workers = Scene()
        self.jobs = Jobs()
        self.resources = resource_manager(TERM, Graves())
        self._serving: set[asyncio.Task[None]] = set()

    async def lead(self) -> None:
        """Continue the job, whose first attempt is under way."""
        coordinator = CheckpointCoordinator(
            await begun(Durable()),
            TERM,
            CheckpointSettings(),
            self.resources,
            virtual_clock(),
            Audience(),
        )
        self.jobs.master = Master(coordinator)
        await coordinator.begin(1)
        self.resources.serve(self.jobs)
        self.resources.open()

    def report(self, *reported: LinkMessage) -> None:
        """Let the drivers of the TaskManager report."""
        for message in reported:
            self.workers.manager._outbox.send(message)

    async def registration(self) -> tuple[LocalLink[LinkMessage], RegisterTaskManager]:
        """Let the TaskManager find the leader; return its registration, which nobody has read."""
        await self.workers.leader(TERM)
        link = self.workers.network.links[-1][1]
        envelope = await link.receive()
        assert envelope is not None
        assert isinstance(envelope.message, RegisterTaskManager)
        return link, envelope.message

    async def accept(
        self, link: LocalLink[LinkMessage], registration: RegisterTaskManager
    ) -> Master:
        """Let the leader read the registration, and all that follows."""
        serving = asyncio.ensure_future(self.resources.converse(link, ME, registration))
        self._serving.add(serving)
        await asyncio.sleep(0.1)
        return self.jobs.master

    async def end(self) -> None:
        """End the TaskManager and the leader."""
        await self.workers.end()
        self.resources.close()
        tasks = {*self._serving, self.jobs.master.recording}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def batch(number: int) -> messages.CheckpointsTaken:
    """Return the report of a batch."""
    return messages.CheckpointsTaken(
        job_id=JOB.job_id, attempt=1, sequence=number, checkpoints=(taken(number),)
    )


def ended() -> messages.AttemptEnded:
    """Return the end of the attempt."""
    return messages.AttemptEnded(
        job_id=JOB.job_id,
        attempt=1,
        status=JobStatus.FINISHED,
        retryable=False,
        source=Pointer(path="staged", digest="", size=0),
        ran_s=1.0,
        start_time=1.0,
        end_time=2.0,
    )


def test_the_last_checkpoints_of_an_attempt_come_before_its_end() -> None:
    async def main() -> None:
        change = Takeover()
        await change.lead()
        change.report(batch(1), batch(2), ended())
        master = await change.accept(*await change.registration())

        assert ["CheckpointsTaken", "CheckpointsTaken", "AttemptEnded"] == master.heard
        assert master.result is not None
        await master.result
        assert [2] == master.batches, "the result has all that was taken before"
        await change.end()

    run_virtual(main())


def test_what_ends_while_its_taskmanager_registers_has_its_last_checkpoints_too() -> None:
    async def main() -> None:
        change = Takeover()
        await change.lead()
        registration = await change.registration()
        change.report(batch(1), ended())
        master = await change.accept(*registration)

        assert ["CheckpointsTaken", "AttemptEnded"] == master.heard
        assert [1] == master.batches
        await change.end()

    run_virtual(main())


def test_an_end_whose_connection_breaks_before_it_is_read_comes_with_the_next() -> None:
    async def main() -> None:
        change = Takeover()
        await change.lead()
        change.report(batch(1), ended())
        link, registration = await change.registration()
        link.close()
        assert [] == (await change.accept(link, registration)).heard

        master = await change.accept(*await change.registration())

        assert ["CheckpointsTaken", "AttemptEnded"] == master.heard
        await change.end()

    run_virtual(main())


def test_an_end_that_no_leader_has_recorded_comes_with_each_connection() -> None:
    async def main() -> None:
        change = Takeover()
        await change.lead()
        change.report(ended())
        link, registration = await change.registration()
        master = await change.accept(link, registration)
        link.close()
        await change.accept(*await change.registration())
        assert ["AttemptEnded"] * 2 == master.heard

        change.jobs.settled = True
        change.workers.network.links[-1][1].close()
        await change.accept(*await change.registration())
        assert {} == change.workers.manager._outbox.ended, "it is recorded, and kept no longer"
        await change.end()

    run_virtual(main())
