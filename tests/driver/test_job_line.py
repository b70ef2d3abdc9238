"""The line between a driver and the process of its job: what is said arrives as it was."""

from __future__ import annotations

import os
import socket

import msgspec
import pytest

from tests.driver.ground import HANDOVER
from understudy.driver.job_line import (
    Attach,
    Beat,
    Decided,
    GetReady,
    GiveUp,
    LineMessage,
    line_over,
)
from understudy.errors import UsageError
from understudy.model import (
    ApplicationId,
    Checkpoint,
    CheckpointKind,
    Incarnation,
    JobId,
    JobStatus,
    Pointer,
    RunId,
)
from understudy.rpc import messages

JOB = JobId("job")
POINTER = Pointer(path="plan", digest="d", size=1)
KEPT = Checkpoint(
    kind=CheckpointKind.BATCH,
    name="query",
    attempt=1,
    offsets=msgspec.Raw(b'{"0": {"a": 1}}'),
    note=msgspec.Raw(b"[1, 2]"),
)
DEPLOY = messages.Deploy(
    application_id=ApplicationId("application"),
    run_id=RunId("run"),
    job_id=JOB,
    name="job",
    attempt=2,
    driver=Incarnation("driver"),
    plan=POINTER,
    staged="staged",
    writer="",
    result_size_max=1,
    restored=(KEPT,),
)

SAID: tuple[LineMessage, ...] = (
    Attach(handover=HANDOVER),
    GetReady(handover=HANDOVER),
    messages.RunAttempt(deploy=DEPLOY, term=3),
    messages.Interrupt(job_id=JOB, attempt=2),
    GiveUp(job_id=JOB, attempt=2, reason="no executors"),
    GiveUp(job_id=JOB, attempt=2, reason="too long", timed_out=True),
    Beat(until=1.5),
    Decided(),
    messages.Entered(job_id=JOB, attempt=2),
    messages.CheckpointsTaken(job_id=JOB, attempt=2, sequence=1, checkpoints=(KEPT,)),
    messages.CheckpointsRecorded(job_id=JOB, attempt=2, sequence=1, numbers=(1,)),
    messages.CheckpointsRefused(job_id=JOB, attempt=2, sequence=1, reason="another one runs"),
    messages.AttemptEnded(
        job_id=JOB,
        attempt=2,
        status=JobStatus.FINISHED,
        retryable=False,
        source=POINTER,
        ran_s=1.0,
        start_time=1.0,
        end_time=2.0,
    ),
)


@pytest.mark.parametrize("message", SAID, ids=lambda message: type(message).__name__)
def test_what_is_said_arrives_as_it_was(message: LineMessage) -> None:
    mine, theirs = socket.socketpair()
    with mine, theirs:
        line_over(mine, "driver").send(message)
        envelope = line_over(theirs, "job").receive()

    assert envelope is not None
    assert type(message) is type(envelope.message)
    assert msgspec.json.encode(message) == msgspec.json.encode(envelope.message)


def test_a_line_whose_other_end_is_gone_has_ended() -> None:
    mine, theirs = socket.socketpair()
    with mine:
        theirs.close()

        assert line_over(mine, "driver").receive() is None


def test_a_child_of_the_job_may_not_speak_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, theirs = socket.socketpair()
    with mine, theirs:
        line = line_over(mine, "job")
        monkeypatch.setattr(os, "getpid", lambda: -1)

        with pytest.raises(UsageError):
            line.send(Beat(until=1.0))
