"""A driver: whether it serves another job after one."""

from __future__ import annotations

import socket
import subprocess
from typing import Any

import pytest

from understudy.clock import SystemClock
from understudy.driver import driver_process
from understudy.driver.driver_process import DriverProcess
from understudy.driver.driver_session import NoSession
from understudy.model import ApplicationId, Incarnation
from understudy.process import channels
from understudy.process.pulse import Pulse
from understudy.process.worker import GuardianLink
from understudy.rpc.messages import DriverMessage, StartSession
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
        link: BlockingLink[DriverMessage] = BlockingLink(
            mine, channels.driver_codec, Incarnation("driver")
        )
        start = StartSession(
            kind="session-less",
            application_id=ApplicationId("application"),
            conf={},
            python_path=(),
            scratch="",
            storage="",
            reuse=reuse,
        )
        server: Any = type("Server", (), {"pid": 0})()
        pulse = Pulse(GuardianLink(None), SystemClock(), 30.0)
        driver = DriverProcess(link, session, server, pulse, start)
        driver._builder = builder
        return driver._why_not_again()


@pytest.fixture(autouse=True)
def no_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the tests are nobody's business here."""
    monkeypatch.setattr(driver_process, "left_behind", lambda apart: [])


@pytest.mark.parametrize(
    ("session", "reuse", "expected"),
    [
        (NoSession(), "application", []),
        (NoSession(), "always", []),
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
