"""A driver: whether it serves another job after one."""

from __future__ import annotations

import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.driver.ground import HANDOVER
from tests.support.orders import deploy as order_of
from understudy.clock import SystemClock
from understudy.core.handover import Handover
from understudy.driver import driver_process, fork_server
from understudy.driver.attempt import Attempt
from understudy.driver.driver_process import DriverProcess
from understudy.driver.driver_session import NoSession
from understudy.driver.fork_server import Child
from understudy.driver.job_line import Decided, GetReady, GiveUp, line_over
from understudy.ha.storage import open_storage
from understudy.model import ApplicationId, Incarnation, JobId, JobStatus
from understudy.process import channels
from understudy.process.worker import GuardianLink, Pulse
from understudy.rpc import messages
from understudy.rpc.messages import DriverMessage, RunAttempt, StartSession
from understudy.rpc.wire import BlockingLink

LEFT = "it changed the JVM's default time zone"


class Changed(NoSession):
    """A session in which a job has left something."""

    def close(self) -> list[str]:
        return [LEFT]


class Over(Changed):
    """A session that a job has ended: Spark's, by ``spark.stop()``."""

    def is_over(self) -> bool:
        return True


class Unasked(NoSession):
    """A session in which a job has left nothing; the next job would wait for each question."""

    def is_over(self) -> bool:
        raise AssertionError("nothing depends on this answer")


class Broken(NoSession):
    """A session that does not say what a job has left."""

    def close(self) -> list[str]:
        raise OSError("it does not answer")


def reasons(
    session: NoSession, reuse: str, builder: subprocess.Popen[bytes] | None = None
) -> list[str]:
    """Return why a driver serves no other job."""
    mine, theirs = socket.socketpair()
    with mine, theirs:
        driver = driver_over(mine, session, reuse=reuse)
        driver._builder = builder
        return driver._why_not_again()


def driver_over(end: socket.socket, session: NoSession, **settings: Any) -> DriverProcess:
    """Return a driver that speaks with its TaskManager over this end of a socket pair."""
    link: BlockingLink[DriverMessage] = BlockingLink(
        end, channels.driver_codec, Incarnation("driver")
    )
    given = {"storage": "", **settings}
    start = StartSession(
        kind="session-less",
        application_id=ApplicationId("application"),
        conf={},
        python_path=(),
        scratch="",
        **given,
    )
    server: Any = type("Server", (), {"pid": 0, "fork": lambda _: Stuck()})()
    pulse = Pulse(GuardianLink(None), SystemClock(), 30.0)
    return DriverProcess(link, session, server, pulse, start)


@pytest.fixture(autouse=True)
def no_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the tests are nobody's business here."""
    monkeypatch.setattr(driver_process, "left_behind", lambda apart: [])


@pytest.mark.parametrize(
    ("session", "reuse", "expected"),
    [
        (NoSession(), "application", []),
        (NoSession(), "always", []),
        (Unasked(), "application", []),
        (Unasked(), "always", []),
        (NoSession(), "never", [channels.SERVES_ONE]),
        (Changed(), "application", [LEFT]),
        (Changed(), "always", []),
        (Changed(), "never", [channels.SERVES_ONE]),
        (Over(), "always", [LEFT]),
        (Broken(), "always", ["the session could not be cleaned: it does not answer"]),
    ],
)
def test_whether_another_job_may_come(session: NoSession, reuse: str, expected: list[str]) -> None:
    assert expected == reasons(session, reuse)


def test_the_builder_of_an_archive_is_not_left_by_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "600"]) as builder:
        monkeypatch.setattr(driver_process, "left_behind", lambda apart: [*map(str, apart)])
        while_it_runs = reasons(NoSession(), "application", builder)
        builder.kill()
        builder.wait()

        assert str(builder.pid) in while_it_runs
        assert str(builder.pid) not in reasons(NoSession(), "application", builder)


def test_what_a_job_left_is_logged_where_the_driver_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reasons(Changed(), "always")

    assert LEFT in caplog.text


@pytest.mark.parametrize("reuse", ["application", "always"])
def test_processes_that_a_job_has_left_retire_its_driver(
    monkeypatch: pytest.MonkeyPatch, reuse: str
) -> None:
    monkeypatch.setattr(driver_process, "left_behind", lambda apart: ["it left child processes"])

    assert ["it left child processes"] == reasons(NoSession(), reuse)


# --- the process of the next job ------------------------------------------------------------------


class Standing(NoSession):
    """A session whose SparkContext serves all jobs."""

    def standing(self) -> Handover | None:  # type: ignore[override]
        return HANDOVER


@pytest.mark.parametrize(
    ("session", "expected"), [(Standing(), [GetReady(handover=HANDOVER)]), (NoSession(), [])]
)
def test_the_process_of_the_next_job_attaches_while_it_waits(
    session: NoSession, expected: list[GetReady]
) -> None:
    mine, theirs = socket.socketpair()
    child = Stuck()
    with mine, theirs:
        driver = driver_over(mine, session)
        driver._server.fork = lambda: child  # type: ignore[method-assign]
        driver._fork()
        child.line.shutdown(socket.SHUT_WR)
        told = [one.message for one in iter(child.peer.receive, None)]

    assert expected == told


# --- the timeout of a job -------------------------------------------------------------------------


class Stuck(Child):
    """The process of a job that ends only when it is killed."""

    def __init__(self) -> None:
        mine, theirs = socket.socketpair()
        super().__init__(mine)
        self.peer = line_over(theirs, "job")

    def kill(self) -> None:
        self.status = 9
        self.ended.set()
        self.line.shutdown(socket.SHUT_RD)


class LostError(Exception):
    """The driver ends as the process of its job has."""


@pytest.fixture
def ends_like(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(status: int) -> None:
        raise LostError(status)

    monkeypatch.setattr(fork_server, "end_like", lose)


def follow_until_killed(place: Path, child: Stuck) -> messages.AttemptEnded:
    """Have a driver follow an attempt that exceeds its timeout; return what the driver stores."""
    child.peer.send(messages.Entered(job_id=JobId("job"), attempt=1))
    return follow(place, child, timeout_s=0.01)


def follow(
    place: Path, child: Child, session: NoSession | None = None, **given: Any
) -> messages.AttemptEnded:
    """Have a driver follow an attempt; return how that ended."""
    mine, theirs = socket.socketpair()
    with mine, theirs:
        driver = driver_over(mine, session or NoSession(), storage=str(place), cancel_grace_s=0.01)
        driver._running, driver._attempt = "job", 1
        return driver._follow(RunAttempt(deploy=order_of(**given), term=1), None, child)


@pytest.mark.usefixtures("ends_like")
def test_a_driver_stores_the_failure_of_a_job_that_had_to_be_killed(tmp_path: Path) -> None:
    child = Stuck()
    ended = follow_until_killed(tmp_path, child)
    told = [child.peer.receive() for _ in range(2)]

    assert isinstance(told[1] and told[1].message, GiveUp)
    assert (ended.status, ended.retryable) == (JobStatus.FAILED, False)
    assert b"longer than the job's timeout" in open_storage(str(tmp_path)).read("staged")


@pytest.mark.usefixtures("ends_like")
def test_what_a_job_has_stored_just_before_it_was_killed_stays(tmp_path: Path) -> None:
    open_storage(str(tmp_path)).publish("staged", b"it was finished")
    with pytest.raises(LostError):
        follow_until_killed(tmp_path, Stuck())

    assert b"it was finished" == open_storage(str(tmp_path)).read("staged")


@pytest.mark.usefixtures("ends_like")
def test_a_job_that_was_killed_is_not_held_to_be_heard_of_while_its_end_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storage may take longer than the dead job's deadline, and the guardian must not mind."""
    done: list[str] = []

    def looks(attempt: Attempt) -> bool:
        done.append("looks into storage")
        return False

    monkeypatch.setattr(Pulse, "forget", lambda pulse, name: done.append(f"forgets the {name}"))
    monkeypatch.setattr(Attempt, "is_staged", looks)
    follow_until_killed(tmp_path, Stuck())

    assert ["forgets the job", "looks into storage"] == done


@pytest.mark.usefixtures("ends_like")
def test_storing_how_an_attempt_ended_takes_no_time_of_its_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    class Limit:
        exceeded = None

        def __init__(self, *_: object) -> None:
            pass

        def begin(self) -> None:
            done.append("begins")

        def end(self) -> None:
            done.append("ends")

    monkeypatch.setattr(driver_process, "TimeLimit", Limit)
    child = Stuck()
    child.peer.send(messages.Entered(job_id=JobId("job"), attempt=1))
    child.peer.send(Decided())
    child.peer._end.close()
    child.status = 9
    child.ended.set()
    with pytest.raises(LostError):
        follow(tmp_path, child)

    assert ["begins", "ends", "ends"] == done, "by what it said, and by its death"


# --- a script that ends its own process -----------------------------------------------------------


class Gone(Stuck):
    """The process of a job that has ended already, after it has entered its function."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.peer.send(messages.Entered(job_id=JobId("job"), attempt=1))
        self.status = status
        self.ended.set()
        self.line.shutdown(socket.SHUT_RD)


class LostJvm(NoSession):
    """A session whose JVM has ended."""

    def is_lost(self, error: BaseException | None) -> bool:
        return True


@pytest.mark.usefixtures("ends_like")
@pytest.mark.parametrize("code", [0, 3])
def test_a_script_that_ends_its_process_fails_for_good(tmp_path: Path, code: int) -> None:
    """Another attempt would append again what this one has appended."""
    ended = follow(tmp_path, Gone(code << 8), NoSession(), whole=True)
    staged = open_storage(str(tmp_path)).read("staged")

    assert (ended.status, ended.retryable) == (JobStatus.FAILED, False)
    assert f"the script's process exited with {code} before".encode() in staged


@pytest.mark.usefixtures("ends_like")
@pytest.mark.parametrize(
    ("status", "whole", "session"),
    [
        (signal.SIGKILL, True, NoSession()),
        (channels.JVM_LOST << 8, True, NoSession()),
        (1 << 8, True, LostJvm()),
        (1 << 8, False, NoSession()),
    ],
)
def test_a_process_that_is_lost_is_a_loss(
    tmp_path: Path, status: int, whole: bool, session: NoSession
) -> None:
    with pytest.raises(LostError):
        follow(tmp_path, Gone(status), session, whole=whole)

    assert not open_storage(str(tmp_path)).exists("staged")


@pytest.mark.usefixtures("ends_like")
def test_what_a_script_has_stored_before_it_ended_its_process_stays(tmp_path: Path) -> None:
    open_storage(str(tmp_path)).publish("staged", b"it was finished")
    with pytest.raises(LostError):
        follow(tmp_path, Gone(0), NoSession(), whole=True)

    assert b"it was finished" == open_storage(str(tmp_path)).read("staged")
