"""The last failures of a job, of whichever attempt and leader."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from tests.ha import ground
from tests.support.memory_storage import MemoryStorage
from understudy.cli.launch.story import PUBLIC
from understudy.config.secrets import HIDDEN
from understudy.core.failing import NEVER, Failed
from understudy.ha import layout
from understudy.ha.result_store import outcomes
from understudy.ha.storage import InlineStorage
from understudy.jobmanager.failure_history import (
    FROM_THE_TOP,
    LOST,
    MESSAGE_CHARS_MAX,
    TRACEBACK_CHARS_MAX,
    FailureHistory,
    merged,
    report_failure,
)
from understudy.model import (
    Failure,
    JobEntry,
    JobId,
    JobResultEntry,
    JobStatus,
    Limits,
    Outcome,
    Pointer,
)
from understudy.process.reporter import LOG_ONLY

JOB = ground.job(1)


def lost(attempt: int) -> Failure:
    return Failure(type=LOST, message=f"loss {attempt}", time=float(attempt), attempt=attempt)


def raised(attempt: int, text: str = "no luck") -> Outcome:
    return Outcome(
        job_id=JOB.job_id,
        job_name=JOB.name,
        application_id=ground.APPLICATION,
        run_id=ground.RUN,
        status=JobStatus.FAILED,
        attempt=attempt,
        start_time=0.0,
        end_time=float(attempt),
        failure=Failure(type="ValueError", message=text, traceback=text, time=float(attempt)),
    )


class Ground:
    """A storage with what attempts have staged and leaders have noted."""

    def __init__(self) -> None:
        self.memory = MemoryStorage()
        self.storage = InlineStorage(self.memory, 5.0)

    def history(self, size: int = 16) -> FailureHistory:
        return FailureHistory(self.storage, "c", "x", size)

    def stage(self, outcome: Outcome) -> None:
        path = layout.staged_path("c", "x", JOB.job_id, outcome.attempt)
        self.memory.publish(path, outcomes.dump(outcome))

    def told(self, attempt: int, status: JobStatus = JobStatus.RUNNING) -> list[Failure]:
        return asyncio.run(self.history().read(replace(JOB, attempt=attempt), status))


def test_losses_and_exceptions_are_told_by_the_next_leader_with_their_attempts() -> None:
    ground_ = Ground()
    asyncio.run(ground_.history().keep(JOB.job_id, lost(1)))
    ground_.stage(raised(2))
    told = ground_.told(3)

    assert [(LOST, "loss 1", 1), ("ValueError", "no luck", 2)] == [
        (one.type, one.message, one.attempt) for one in told
    ]


def test_only_the_last_are_kept() -> None:
    ground_ = Ground()

    async def story() -> list[Failure]:
        for attempt in range(1, 41):
            await ground_.history().keep(JOB.job_id, lost(attempt))
        return await ground_.history().read(replace(JOB, attempt=40), JobStatus.FAILED)

    assert list(range(25, 41)) == [one.attempt for one in asyncio.run(story())]
    assert 16 == len(ground_.memory.files)


def test_a_failure_that_another_followed_is_bounded() -> None:
    ground_ = Ground()
    ground_.stage(raised(1, "x" * 100_000))
    (told,) = ground_.told(2)

    assert len(told.message) < MESSAGE_CHARS_MAX + 100
    assert len(told.traceback) < TRACEBACK_CHARS_MAX + 100
    assert "characters are left out" in told.message


def test_what_a_cancelled_attempt_raised_is_no_failure() -> None:
    ground_ = Ground()
    ground_.stage(raised(1))
    ground_.stage(raised(2))

    assert [1] == [one.attempt for one in ground_.told(2, JobStatus.CANCELED)]


def test_what_is_damaged_hides_nothing_else() -> None:
    ground_ = Ground()
    ground_.memory.publish(layout.staged_path("c", "x", JOB.job_id, 1), b"{")
    ground_.stage(raised(2))

    assert [2] == [one.attempt for one in ground_.told(2)]


def test_each_attempt_has_one_failure_and_the_result_has_the_last_word() -> None:
    final = Failure(type=LOST, message="loss 2; not restarted", time=3.0)
    told = merged([lost(1), lost(2)], final, 2, 16)

    assert ["loss 1", "loss 2; not restarted"] == [one.message for one in told]
    assert [1, 2] == [one.attempt for one in told]
    assert ["loss 2; not restarted"] == [one.message for one in merged([lost(1)], final, 2, 1)]


def test_what_is_collected_outlives_what_was_staged() -> None:
    ground_ = Ground()
    ground_.stage(raised(1))
    asyncio.run(ground_.history().keep(JOB.job_id, lost(2)))
    result = JobResultEntry(
        status=JobStatus.FINISHED, attempt=3, source=Pointer(path="x", digest="", size=0)
    )
    ended = replace(JOB, attempt=3, result=result)

    async def story() -> list[Failure]:
        await ground_.history().collect(ended)
        ground_.memory.delete(layout.staged_path("c", "x", JOB.job_id, 1))
        await ground_.history().collect(ended)
        return await ground_.history().read(ended, JobStatus.FINISHED)

    assert [1, 2] == [one.attempt for one in asyncio.run(story())]


class Heard:
    """Remembers what it is told; see `Reporter`."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.lines: list[tuple[str, str, str]] = []

    def event(self, event: str, **fields: Any) -> None:
        """See `Reporter.event`."""
        self.events.append({"event": event, **fields})

    def line(self, log: str, source: str, text: str) -> None:
        """See `Reporter.line`."""
        self.lines.append((log, source, text))

    def close(self) -> None:
        """See `Reporter.close`."""


REPORTED = JobEntry(
    job_id=JobId("j"),
    name="lo\x1bad",
    occurrence=0,
    plan=Pointer(path="plan", digest="", size=0),
    submitted_at=0.0,
)


def told(failure: Failure, end: Failed, job: JobEntry = REPORTED) -> Heard:
    heard = Heard()
    report_failure(heard, "run-app", job, end, failure)
    return heard


def test_a_failure_is_one_event_and_its_traceback_stands_in_the_log() -> None:
    failure = Failure(type="ValueError", message="wrong", traceback="Traceback\n  x\n\x1b[2J\n")
    heard = told(failure, Failed(1, retry=1, retries=3, delay_s=1.23456))
    (event,) = heard.events

    assert event["event"] in PUBLIC
    assert {"retry": 1, "retries": 3, "delay_s": 1.235, "reason": ""}.items() <= event.items()
    assert event["failure"]["traceback"] == failure.traceback
    assert heard.lines == [
        ("run-app", "lo·ad", f"{LOG_ONLY}attempt 1 failed: Traceback\n  x\n·[2J"),
    ]


def test_a_loss_has_no_traceback_and_its_reason_stands_in_the_log() -> None:
    heard = told(Failure(type="AttemptLost", message="killed"), Failed(1, "killed", 1, 30, 0.0))

    assert heard.lines[0][2] == f"{LOG_ONLY}attempt 1 failed: AttemptLost: killed"


def test_a_job_that_starts_from_the_top_says_so_where_a_retry_follows() -> None:
    lost = Failure(type="AttemptLost", message="killed")
    whole = replace(REPORTED, limits=Limits(whole=True))
    again = told(lost, Failed(1, "killed", 1, 30, 0.0), whole)
    never = told(lost, Failed(1, "killed", reason="no more retries"), whole)
    consequences = [heard.events[0]["consequence"] for heard in (again, never)]

    assert [FROM_THE_TOP, ""] == consequences
    raised = told(Failure(type="ValueError", message="x"), Failed(1, reason=NEVER), whole)
    assert "not restarted: another attempt would repeat" in raised.events[0]["reason"]
    assert again.lines[0][2].endswith(f"killed\n{FROM_THE_TOP}")


def test_what_is_told_is_bounded_and_without_secrets() -> None:
    long = "password=hunter22 " + "x" * 100_000
    heard = told(Failure(type="E", message=long, traceback=long), Failed(1))
    failure = heard.events[0]["failure"]

    assert len(failure["message"]) < MESSAGE_CHARS_MAX + 100
    assert len(failure["traceback"]) < TRACEBACK_CHARS_MAX + 100
    assert len(heard.lines[0][2]) < TRACEBACK_CHARS_MAX + 100
    assert "hunter22" not in f"{heard.events}{heard.lines}"
    assert HIDDEN in failure["message"]
