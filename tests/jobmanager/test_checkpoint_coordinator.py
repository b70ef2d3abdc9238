"""CheckpointCoordinator: whom it hears, what it answers, and how much it writes."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tests.ha.test_checkpoint_store import JOB, begun, taken, taken_over
from tests.support.faulty_register import Durable, Faults
from tests.support.virtual_time import run_virtual, virtual_clock
from understudy.core.checkpoints import slot
from understudy.ha.checkpoint_store import CheckpointStore
from understudy.ha.register import VALUE_BYTES_MAX
from understudy.ha.registry import CHECKPOINTS_PREFIX
from understudy.jobmanager.checkpoint_coordinator import CheckpointCoordinator, CheckpointSettings
from understudy.model import Checkpoint, CheckpointKind, Failure, Incarnation
from understudy.rpc.messages import CheckpointsRecorded, CheckpointsRefused, CheckpointsTaken

WHY = "no room " * 60

TASKMANAGER = Incarnation("taskmanager")

Answer = CheckpointsRecorded | CheckpointsRefused


class Audience:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.given: list[tuple[int, list[int]]] = []
        self.problems: list[str] = []
        self.failures: list[tuple[int, int, str]] = []
        self.savepoints: list[str] = []
        self.is_over = False

    def completed(self, checkpoint: Checkpoint) -> None:
        """See `Audience.completed`."""
        self.numbers.append(checkpoint.number)

    def failed(self, last: Checkpoint, count: int) -> None:
        """See `Audience.failed`."""
        assert last.failure
        self.failures.append((last.number, count, last.failure.message))

    def full(self, problem: str) -> None:
        """See `Audience.full`."""
        self.problems.append(problem)

    def restored(self, attempt: int, given: tuple[Checkpoint, ...], savepoint: str) -> None:
        """See `Audience.restored`."""
        self.savepoints.append(savepoint)
        self.given.append((attempt, [one.number for one in given]))

    def unreadable(self, problem: str) -> None:
        """See `Audience.unreadable`."""
        self.problems.append(problem)

    def over(self) -> None:
        """See `Audience.over`."""
        self.is_over = True


class Scene:
    """One leader's coordinator, and what it answers."""

    def __init__(self, store: CheckpointStore, term: int = 1, retained: int = 1) -> None:
        self.answers: asyncio.Queue[Answer] = asyncio.Queue()
        self.audience = Audience()
        resources: Any = self
        self.coordinator = CheckpointCoordinator(
            store,
            term,
            CheckpointSettings(num_retained=retained),
            resources,
            virtual_clock(),
            self.audience,
        )
        self.task = asyncio.ensure_future(self.coordinator.run())

    def send(self, taskmanager: Incarnation, message: Answer) -> bool:
        """See `ResourceManager.send`."""
        assert taskmanager == TASKMANAGER
        self.answers.put_nowait(message)
        return True

    def tell(
        self, sequence: int, *checkpoints: Checkpoint, attempt: int = 1, failed: int = 0
    ) -> None:
        """Tell what an attempt has completed."""
        message = CheckpointsTaken(
            job_id=JOB.job_id,
            attempt=attempt,
            sequence=sequence,
            checkpoints=checkpoints,
            failed=failed,
            last_failed=broken() if failed else None,
        )
        self.coordinator.taken(TASKMANAGER, message)

    async def told(
        self, sequence: int, *checkpoints: Checkpoint, attempt: int = 1, failed: int = 0
    ) -> Answer:
        """Tell it, and return the answer."""
        self.tell(sequence, *checkpoints, attempt=attempt, failed=failed)
        answer = await self.answers.get()
        assert (answer.attempt, answer.sequence) == (attempt, sequence)
        return answer

    async def numbers(self, sequence: int, *checkpoints: Checkpoint, attempt: int = 1) -> list[int]:
        """Tell it, and return the numbers that it got."""
        answer = await self.told(sequence, *checkpoints, attempt=attempt)
        assert isinstance(answer, CheckpointsRecorded), answer
        return list(answer.numbers)


def broken() -> Checkpoint:
    """Return a checkpoint that came to nothing."""
    why = Failure(type="OSError", message=WHY, time=1.0)
    return Checkpoint(kind=CheckpointKind.TABLE, name="flights", attempt=1, failure=why)


async def scene(durable: Durable, attempt: int = 1) -> Scene:
    """Return the coordinator of the first leader, with an attempt under way."""
    one = Scene(await begun(durable))
    await one.coordinator.begin(attempt)
    return one


def written(durable: Durable) -> int:
    """Return how many writes the documents of checkpoints have seen."""
    return sum(one.subject.startswith(CHECKPOINTS_PREFIX) for one in durable.history)


def test_what_is_told_again_after_it_was_superseded_changes_nothing() -> None:
    async def main() -> None:
        durable = Durable()
        one = await scene(durable)
        await one.numbers(1, taken(0))
        await one.numbers(2, taken(1))
        before = written(durable)
        again = [await one.numbers(1, taken(0)), await one.numbers(2, taken(1))]

        assert [[0], [2]] == again, "of the first, nobody knows the number any more"
        assert before == written(durable)
        assert [1] == [kept.batch_id for kept in one.coordinator.body.completed]
        assert [1, 2] == one.audience.numbers

    run_virtual(main())


def test_the_next_leader_does_not_take_it_for_new_either() -> None:
    async def main() -> None:
        durable = Durable()
        one = await scene(durable)
        for sequence in (1, 2, 3):
            await one.numbers(sequence, taken(sequence))
        successor = Scene(await taken_over(durable, 2), 2)
        await successor.coordinator.recover(1)
        answers = [await successor.numbers(sequence, taken(sequence)) for sequence in (2, 3, 4)]

        assert [[0], [3], [4]] == answers
        assert [4] == [kept.batch_id for kept in successor.coordinator.body.completed]

    run_virtual(main())


def test_failures_that_are_told_again_are_counted_once() -> None:
    async def main() -> None:
        one = await scene(Durable())
        for _ in range(2):
            await one.told(1, failed=3)

        assert [(3, 3, WHY)] == one.audience.failures
        assert 3 == one.coordinator.body.failed_total

    run_virtual(main())


def test_an_attempt_that_is_known_dead_is_not_heard_any_more() -> None:
    async def main() -> None:
        durable = Durable()
        one = await scene(durable)
        await one.numbers(1, taken(0))
        given = await one.coordinator.begin(2)
        before = written(durable)
        refused = await one.told(2, taken(1), attempt=1)

        assert isinstance(refused, CheckpointsRefused)
        assert "another attempt" in refused.reason
        assert before == written(durable)
        assert [0] == [kept.batch_id for kept in given]
        assert [(2, [1])] == one.audience.given
        assert [2] == await one.numbers(1, taken(1, attempt=2), attempt=2)

    run_virtual(main())


def test_an_attempt_is_given_the_latest_of_everything_however_much_is_retained() -> None:
    async def main() -> None:
        one = Scene(await begun(Durable()), retained=10)
        await one.coordinator.begin(1)
        state = Checkpoint(kind=CheckpointKind.STATE, name="", attempt=1, location="s")
        table = Checkpoint(kind=CheckpointKind.TABLE, name="flights", attempt=1, location="t")
        for sequence, each in enumerate((state, table, taken(0), taken(1), taken(2)), start=1):
            await one.numbers(sequence, each)
        given = await one.coordinator.begin(2)

        assert {slot(state), slot(table), slot(taken(2))} == {slot(kept) for kept in given}
        assert 2 == given[-1].batch_id

    run_virtual(main())


def test_an_attempt_has_advanced_once_it_has_told_more_than_it_was_given() -> None:
    async def main() -> None:
        one = await scene(Durable())
        seen = [one.coordinator.has_advanced(1)]
        await one.numbers(1, taken(0))
        seen.append(one.coordinator.has_advanced(1))
        await one.coordinator.begin(2)
        seen.append(one.coordinator.has_advanced(2))
        await one.numbers(1, taken(1, attempt=2), attempt=2)
        seen.append(one.coordinator.has_advanced(2))

        assert [False, True, False, True] == seen

    run_virtual(main())


def test_what_is_told_during_a_write_becomes_one_more_write() -> None:
    async def main() -> None:
        durable = Durable()
        one = await scene(durable)
        await one.numbers(1, taken(0))
        before = written(durable)
        for sequence in range(2, 12):
            one.tell(sequence, taken(sequence))
        answers = [await one.answers.get() for _ in range(10)]
        numbers = [answer.numbers for answer in answers if isinstance(answer, CheckpointsRecorded)]

        assert [(number,) for number in range(2, 12)] == numbers
        assert written(durable) - before <= 2

    run_virtual(main())


def test_a_restart_is_noted_in_one_write() -> None:
    async def main() -> None:
        durable = Durable()
        one = await scene(durable)
        await one.numbers(1, taken(0))
        before = written(durable)
        await one.coordinator.begin(2)
        body = one.coordinator.body

        assert 1 == written(durable) - before
        assert 1 == body.restored_total
        assert body.restored is not None
        assert 1 == body.restored.number

    run_virtual(main())


def test_a_result_waits_for_what_was_told_before_and_nothing_is_recorded_after() -> None:
    async def main() -> None:
        durable = Durable()
        one = await scene(durable)
        one.tell(1, taken(0))
        one.tell(2, taken(1))
        await one.coordinator.finish()
        before = written(durable)
        recorded = [await one.answers.get() for _ in range(2)]
        late = await one.told(3, taken(2))

        assert [CheckpointsRecorded] * 2 == [type(answer) for answer in recorded]
        assert [1, 2] == one.audience.numbers
        assert one.audience.is_over
        assert isinstance(late, CheckpointsRefused)
        assert before == written(durable)
        await one.task

    run_virtual(main())


def test_draining_waits_for_what_was_received_before() -> None:
    async def main() -> None:
        one = await scene(Durable())
        one.tell(1, taken(0))
        await asyncio.sleep(0)  # Its write is under way.
        one.tell(2, taken(1))
        await one.coordinator.drain()

        assert (1, 2) == one.coordinator.body.heard
        assert [1, 2] == one.audience.numbers

    run_virtual(main())


def test_draining_ends_with_the_job_at_the_latest() -> None:
    async def main() -> None:
        one = await scene(Durable())
        one.tell(1, taken(0))
        one.coordinator.close()
        while not one.coordinator._inbox.empty():
            await asyncio.sleep(0)
        one.tell(2, taken(1))  # The last write is under way.
        before = virtual_clock().now()
        await one.coordinator.drain()
        await one.coordinator.finish()
        await one.coordinator.drain()

        assert before == virtual_clock().now(), "nobody waits for a coordinator that has ended"
        assert (1, 2) == one.coordinator.body.heard

    run_virtual(main())


def test_draining_has_a_deadline_and_loses_nothing() -> None:
    async def main() -> None:
        faults = Faults()
        one = Scene(await begun(Durable(), faults))
        await one.coordinator.begin(1)
        await one.numbers(1, taken(0))
        faults.lasting = lambda call: call.writes
        one.tell(2, taken(1))
        with pytest.raises(TimeoutError, match="not recorded yet"):
            await one.coordinator.drain()
        faults.lasting = lambda _: False
        await one.coordinator.drain()

        assert (1, 2) == one.coordinator.body.heard

    run_virtual(main(), limit_s=3600.0)


def test_what_the_document_has_no_room_for_is_refused_and_the_next_is_recorded() -> None:
    async def main() -> None:
        one = await scene(Durable())
        offsets = msgspec.Raw(msgspec.json.encode("x" * VALUE_BYTES_MAX))
        huge = msgspec.structs.replace(taken(0), offsets=offsets)
        refused = await one.told(1, huge)

        assert isinstance(refused, CheckpointsRefused)
        assert "limit" in refused.reason
        assert [refused.reason] == one.audience.problems
        assert [2] == await one.numbers(2, taken(1))

    run_virtual(main())


def test_what_is_refused_is_counted_at_once_and_written_with_the_next() -> None:
    async def main() -> None:
        durable = Durable()
        one = await scene(durable)
        await one.numbers(1, taken(0))
        before = written(durable)
        large = msgspec.Raw(msgspec.json.encode("x" * VALUE_BYTES_MAX))
        for sequence in range(2, 52):
            await one.told(sequence, msgspec.structs.replace(taken(9), offsets=large))
        counted = one.coordinator.body

        assert before == written(durable), "a job that goes on trying does not flood the register"
        assert 50 == counted.failed_total
        assert counted.failed is not None
        assert counted.failed.failure is not None
        assert (51, "TooLargeError") == (counted.failed.number, counted.failed.failure.type)
        await one.coordinator.begin(2)
        assert before + 1 == written(durable)
        successor = Scene(await taken_over(durable, 2), 2)
        await successor.coordinator.recover(2)
        assert counted.failed == successor.coordinator.body.failed

    run_virtual(main())


def test_a_failure_costs_no_checkpoint_its_room() -> None:
    async def main() -> None:
        one = await scene(Durable())
        room = VALUE_BYTES_MAX - 700
        filler = Checkpoint(kind=CheckpointKind.TABLE, name="x" * room, attempt=1)
        await one.numbers(1, filler)
        answer = await one.told(2, failed=1)

        assert isinstance(answer, CheckpointsRecorded)
        small = Checkpoint(kind=CheckpointKind.STATE, name="", attempt=1)
        assert isinstance(await one.told(3, small, failed=1), CheckpointsRecorded)
        assert 2 == one.coordinator.body.failed_total

    run_virtual(main())


async def spoil(durable: Durable) -> Any:
    """Overwrite the document; return what puts it right."""
    (key,) = await durable.register.keys(CHECKPOINTS_PREFIX)
    entry = await durable.register.load(key)
    assert entry is not None
    version = await durable.register.swap(key, b"not yours", entry.version)

    async def repair() -> None:
        await durable.register.swap(key, entry.value, version)

    return repair


def test_what_cannot_be_read_waits_for_a_person_and_then_nothing_is_lost() -> None:
    async def main() -> None:
        durable = Durable()
        one = await scene(durable)
        await one.numbers(1, taken(0))
        repair = await spoil(durable)
        successor = Scene(await taken_over(durable, 2), 2)
        await successor.coordinator.recover(1)
        beginning = asyncio.ensure_future(successor.coordinator.begin(2))
        await asyncio.sleep(60)

        assert not beginning.done()
        (problem,) = successor.audience.problems
        assert CHECKPOINTS_PREFIX in problem

        await repair()
        assert [1] == [kept.number for kept in await beginning]
        assert [problem, ""] == successor.audience.problems

    run_virtual(main())


def test_what_is_spoilt_while_a_leader_writes_is_not_written_over() -> None:
    async def main() -> None:
        durable = Durable()
        one = await scene(durable)
        await one.numbers(1, taken(0))
        repair = await spoil(durable)
        one.tell(2, taken(1))
        await asyncio.sleep(60)

        assert 1 == len(one.audience.problems)
        assert one.answers.empty()

        await repair()
        answer = await one.answers.get()
        assert isinstance(answer, CheckpointsRecorded)
        assert (2,) == answer.numbers

    run_virtual(main())


def test_a_cancelled_job_waits_for_no_repair() -> None:
    async def main() -> None:
        durable = Durable()
        one = await scene(durable)
        await one.numbers(1, taken(0))
        await spoil(durable)
        successor = Scene(await taken_over(durable, 2), 2)
        beginning = asyncio.ensure_future(successor.coordinator.begin(2))
        await asyncio.sleep(60)
        successor.coordinator.give_up()

        assert () == await beginning
        refused = await successor.told(1, taken(1, attempt=2), attempt=2)
        assert isinstance(refused, CheckpointsRefused)
        await successor.coordinator.finish()

    run_virtual(main(), limit_s=3600.0)


def test_a_result_does_not_wait_for_the_repair_of_what_nobody_needs_any_more() -> None:
    async def main() -> None:
        durable = Durable()
        one = await scene(durable)
        await one.numbers(1, taken(0))
        await spoil(durable)
        successor = Scene(await taken_over(durable, 2), 2)
        await successor.coordinator.recover(1)
        await asyncio.sleep(10)
        await successor.coordinator.finish()

    run_virtual(main(), limit_s=3600.0)
