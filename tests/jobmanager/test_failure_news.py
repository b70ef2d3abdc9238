"""News of failed attempts: bounded, printable and without secrets."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from understudy.cli.launch.story import PUBLIC
from understudy.config.secrets import HIDDEN
from understudy.core.failing import NEVER, Failed
from understudy.jobmanager import failure_news
from understudy.jobmanager.failure_history import MESSAGE_CHARS_MAX, TRACEBACK_CHARS_MAX
from understudy.model import Failure, JobEntry, JobId, Limits, Pointer
from understudy.process.reporter import LOG_ONLY


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


JOB = JobEntry(
    job_id=JobId("j"),
    name="lo\x1bad",
    occurrence=0,
    plan=Pointer(path="plan", digest="", size=0),
    submitted_at=0.0,
)


def told(failure: Failure, end: Failed, job: JobEntry = JOB) -> Heard:
    heard = Heard()
    failure_news.report(heard, "run-app", job, end, failure)
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
    whole = replace(JOB, limits=Limits(whole=True))
    again = told(lost, Failed(1, "killed", 1, 30, 0.0), whole)
    never = told(lost, Failed(1, "killed", reason="no more retries"), whole)
    consequences = [heard.events[0]["consequence"] for heard in (again, never)]

    assert [failure_news.FROM_THE_TOP, ""] == consequences
    raised = told(Failure(type="ValueError", message="x"), Failed(1, reason=NEVER), whole)
    assert "not restarted: another attempt would repeat" in raised.events[0]["reason"]
    assert again.lines[0][2].endswith(f"killed\n{failure_news.FROM_THE_TOP}")


def test_what_is_told_is_bounded_and_without_secrets() -> None:
    long = "password=hunter22 " + "x" * 100_000
    heard = told(Failure(type="E", message=long, traceback=long), Failed(1))
    failure = heard.events[0]["failure"]

    assert len(failure["message"]) < MESSAGE_CHARS_MAX + 100
    assert len(failure["traceback"]) < TRACEBACK_CHARS_MAX + 100
    assert len(heard.lines[0][2]) < TRACEBACK_CHARS_MAX + 100
    assert "hunter22" not in f"{heard.events}{heard.lines}"
    assert HIDDEN in failure["message"]
