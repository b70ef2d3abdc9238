"""The process of a job: how an attempt ends, apart from whether anybody knows that it is stored."""

from __future__ import annotations

import gc
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.driver.ground import HANDOVER
from tests.support.memory_storage import MemoryStorage
from tests.support.orders import deploy as order_of
from understudy.clock import SystemClock
from understudy.core.handover import Handover
from understudy.driver.attempt import Attempt, is_retryable
from understudy.driver.driver import JobProcess
from understudy.driver.job_line import Attach, Beat, GetReady, GiveUp, LineMessage, line_over
from understudy.driver.job_session import NoJobSession
from understudy.driver.rehearsal import Rehearsal
from understudy.errors import (
    CheckpointError,
    CorruptDataError,
    NotFoundError,
    StorageError,
    UnreachableError,
    UsageError,
)
from understudy.ha.format import digest
from understudy.ha.result_store import outcomes
from understudy.model import JobId, JobStatus, Outcome, Pointer
from understudy.process import persist, plans
from understudy.process.forks import Home
from understudy.rpc import messages
from understudy.rpc.messages import Deploy, Interrupt, RunAttempt

STAGED = "staged/job-1.json"
EVER_S = 100 * persist.PATIENCE_S


class Hours:
    """Time as `persist` sees it: waiting costs nothing."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Forgetful(MemoryStorage):
    """Does what it is asked for, and for a long time says nothing about it."""

    def __init__(self, hours: Hours, silent_s: float) -> None:
        super().__init__()
        self._hours = hours
        self._silent_s = silent_s
        self.staged: list[bytes] = []

    def publish(self, path: str, data: bytes) -> None:
        super().publish(path, data)
        if path == STAGED:
            self.staged.append(data)
        if self._hours.now < self._silent_s:
            raise TimeoutError

    def outcome(self) -> Outcome:
        """Return what is staged; all that was ever staged is the same."""
        assert len(set(self.staged)) == 1
        return outcomes.load(self.staged[0], STAGED)


class Scene:
    """The process of a job without a process, and who is at the other end of its line."""

    def __init__(self, storage: MemoryStorage, session: NoJobSession | None = None) -> None:
        self.storage = storage
        mine, theirs = socket.socketpair()
        self.peer = line_over(theirs, "driver")
        line = line_over(mine, "job")
        self.process = JobProcess(line, session or NoJobSession(), storage, SystemClock())

    def run(
        self,
        function: Callable[..., Any],
        *args: object,
        configured: tuple[str, ...] = (),
        no_retry: tuple[str, ...] | None = None,
    ) -> messages.AttemptEnded:
        """Run an attempt to its end; return what was told of that."""
        self.process.run(
            RunAttempt(
                deploy=self.deploy(function, *args, configured=configured, no_retry=no_retry),
                term=1,
            )
        )
        return self.told()

    def deploy(
        self,
        function: Callable[..., Any],
        *args: object,
        configured: tuple[str, ...] = (),
        no_retry: tuple[str, ...] | None = None,
    ) -> Deploy:
        """Store what an attempt calls; return what it is begun with."""
        plan = plans.encode_plan("job", function, args, {}, no_retry)
        self.storage.files["plan"] = plan
        return order_of(
            plan=Pointer(path="plan", digest=digest(plan), size=len(plan)),
            staged=STAGED,
            no_retry=configured,
        )

    def told(self) -> messages.AttemptEnded:
        """Return what was told of the end of an attempt."""
        while True:
            envelope = self.peer.receive()
            assert envelope is not None
            if isinstance(envelope.message, messages.AttemptEnded):
                return envelope.message


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> Hours:
    """Let no retry wait in this test."""
    found = Hours()
    monkeypatch.setattr(persist, "time", found)
    return found


def failing(error: BaseException) -> Callable[..., Any]:
    def function(_: object) -> None:
        raise error

    return function


def test_what_has_finished_stays_finished_however_long_nobody_knows_whether_it_is_stored(
    hours: Hours,
) -> None:
    storage = Forgetful(hours, EVER_S)
    ended = Scene(storage).run(lambda _: 7)

    assert hours.now > EVER_S
    assert ended.status is JobStatus.FINISHED
    assert storage.outcome().status is JobStatus.FINISHED


def test_what_has_failed_is_told_once_it_is_stored(hours: Hours) -> None:
    storage = Forgetful(hours, EVER_S)
    ended = Scene(storage).run(failing(ValueError("wrong")))

    assert (ended.status, ended.retryable) == (JobStatus.FAILED, True)
    assert storage.outcome().failure is not None


def test_an_attempt_has_one_end_whatever_is_decided_later() -> None:
    scene = Scene(MemoryStorage())
    scene.run(lambda _: 7)
    deploy: Any = SimpleNamespace(no_retry=())
    attempt = Attempt(deploy, 1, scene.storage, SystemClock())
    attempt._outcome = outcome = outcomes.load(scene.storage.files[STAGED], STAGED)
    attempt.failed(TimeoutError())
    attempt.interrupted()

    assert outcome is attempt._outcome


def test_an_interrupt_that_comes_before_its_attempt_is_begun_is_not_forgotten() -> None:
    called: list[int] = []
    scene = Scene(MemoryStorage())
    scene.process._interrupt(Interrupt(job_id=JobId("job"), attempt=1))
    ended = scene.run(lambda _: called.append(1))

    assert ended.status is JobStatus.CANCELED
    assert called == []


def test_an_attempt_that_is_given_up_before_it_is_begun_has_failed_for_that() -> None:
    """Nobody has cancelled its job."""
    scene = Scene(MemoryStorage())
    scene.peer.send(GiveUp(job_id=JobId("job"), attempt=1, reason="no executors after 7 s"))
    scene.peer.send(RunAttempt(deploy=scene.deploy(lambda _: 7), term=1))
    scene.process.run(scene.process.await_order())
    ended = scene.told()

    assert (ended.status, ended.retryable) == (JobStatus.FAILED, False)
    assert b"no executors after 7 s" in scene.storage.files[STAGED]


def test_an_attempt_that_exceeds_its_timeout_has_failed_for_good() -> None:
    scene = Scene(MemoryStorage())
    late = GiveUp(job_id=JobId("job"), attempt=1, reason="longer than 2 s", timed_out=True)
    scene.process._interrupt(late)
    ended = scene.run(lambda _: 7)

    assert (ended.status, ended.retryable) == (JobStatus.FAILED, False)
    assert b"understudy.errors.JobTimedOut" in scene.storage.files[STAGED]
    assert b"longer than 2 s" in scene.storage.files[STAGED]


def test_an_interrupt_of_an_earlier_attempt_ends_no_later_one() -> None:
    scene = Scene(MemoryStorage())
    scene.process._interrupt(Interrupt(job_id=JobId("job"), attempt=0))
    ended = scene.run(lambda _: 7)

    assert ended.status is JobStatus.FINISHED


def test_a_peer_of_the_user_that_is_away_is_not_taken_for_the_taskmanager() -> None:
    ended = Scene(MemoryStorage()).run(failing(UnreachableError("the user's own service")))

    assert (ended.status, ended.retryable) == (JobStatus.FAILED, True)


def _chained(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("of the user"), True),
        (SystemExit(3), True),
        (OSError(5, "of a disk"), True),
        (TimeoutError(), True),
        (StorageError("it lies"), True),
        (NotFoundError("not now"), True),
        (_chained(CheckpointError("its state"), StorageError("is away")), True),
        (_chained(CheckpointError("its state"), NotFoundError("is gone")), False),
        (_chained(CheckpointError("its state"), CorruptDataError("is altered")), False),
        (CheckpointError("another attempt is under way"), False),
        (UsageError("cannot be meant"), False),
    ],
)
def test_what_a_store_did_not_give_may_be_had_by_another_attempt(
    error: BaseException, expected: bool
) -> None:
    assert expected is is_retryable(error)


@pytest.mark.parametrize(
    ("configured", "no_retry", "expected"),
    [
        ((), None, True),
        (("ValueError",), None, False),
        (("KeyError",), None, True),
        (("ValueError",), (), True),
        ((), ("builtins.ValueError",), False),
    ],
)
def test_the_list_of_the_job_says_what_is_not_retried_else_the_configured_one(
    configured: tuple[str, ...], no_retry: tuple[str, ...] | None, expected: bool
) -> None:
    scene = Scene(MemoryStorage())
    ended = scene.run(failing(UnicodeError("wrong")), configured=configured, no_retry=no_retry)

    assert (ended.status, ended.retryable) == (JobStatus.FAILED, expected)


def test_a_call_with_wrong_arguments_is_not_retried() -> None:
    ended = Scene(MemoryStorage()).run(lambda _, path: path, "a", "b")

    assert (ended.status, ended.retryable) == (JobStatus.FAILED, False)


def test_a_type_error_within_the_function_is_retried() -> None:
    def inner(one: object) -> object:
        return one

    def function(_: object) -> object:
        return inner()  # type: ignore[call-arg]

    ended = Scene(MemoryStorage()).run(function)

    assert (ended.status, ended.retryable) == (JobStatus.FAILED, True)


def test_a_child_may_neither_stage_nor_speak() -> None:
    scene = Scene(MemoryStorage())
    deploy: Any = SimpleNamespace(no_retry=())
    attempt, home = Attempt(deploy, 1, scene.storage, SystemClock()), Home()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = []
        for act in (
            attempt.stage,
            lambda: scene.process._report(Beat(until=1.0)),
            lambda: home.demand("ctx.save"),
        ):
            try:
                act()
            except UsageError as error:
                said.append(str(error))
        os.write(writer, "\n".join(said).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as file:
        said = file.read().splitlines()

    assert len(said) == 3
    assert said[2].startswith(f"ctx.save was called in process {child}, which process ")


def test_what_an_attempt_has_decided_it_says_before_it_stores_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its timeout is that of the function, not of the storage."""
    done: list[str] = []

    class Noted(MemoryStorage):
        def publish(self, path: str, data: bytes) -> None:
            super().publish(path, data)
            done.append(path)

    scene = Scene(Noted())
    report = scene.process._report

    def noted(message: LineMessage) -> None:
        done.append(type(message).__name__)
        report(message)

    monkeypatch.setattr(scene.process, "_report", noted)
    scene.run(lambda _: 7)

    assert ["Entered", "Decided", STAGED, "AttemptEnded"] == done


# --- before the job comes -------------------------------------------------------------------------


class Noting(NoJobSession):
    """Notes what a process attaches by, and when."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.done: list[object] = []
        self._fault = fault

    def get_ready(self, handover: Handover) -> None:
        self.done.append(("ready", handover))
        if self._fault:
            raise self._fault

    def open(self, handover: Handover | None) -> None:
        self.done.append(("open", handover))


@pytest.mark.parametrize("fault", [None, OSError("the JVM does not answer")])
def test_a_process_attaches_before_its_job_comes_or_with_it(fault: Exception | None) -> None:
    session = Noting(fault)
    scene = Scene(MemoryStorage(), session)
    whose = replace(HANDOVER, group="job")
    scene.peer.send(GetReady(handover=HANDOVER))
    scene.peer.send(Attach(handover=whose))
    scene.peer.send(RunAttempt(deploy=scene.deploy(lambda _: 7), term=1))
    scene.process.run(scene.process.await_order())

    assert [("ready", HANDOVER), ("open", whose)] == session.done
    assert JobStatus.FINISHED is scene.told().status


def test_a_rehearsal_is_an_attempt_that_finishes_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ended: list[messages.AttemptEnded] = []
    stage = Attempt.stage

    def noted(attempt: Attempt) -> messages.AttemptEnded:
        ended.append(stage(attempt))
        return ended[-1]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Attempt, "stage", noted)
    gc.collect()  # What earlier tests have left open may be closed at any time, but never opened.
    threads, files = set(threading.enumerate()), len(os.listdir("/proc/self/fd"))
    Rehearsal().run()

    assert {JobStatus.FINISHED} == {one.status for one in ended}
    assert [] == os.listdir(tmp_path)
    assert {*threading.enumerate()} <= threads
    assert len(os.listdir("/proc/self/fd")) <= files
