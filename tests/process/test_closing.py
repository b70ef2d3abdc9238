"""A process that closes goes on past an error of one step, and reports all of them."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from understudy.cli.launch import worker
from understudy.process.closing import Closing


def test_each_step_is_taken_whatever_the_one_before_has_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    taken = []
    with Closing("a thing") as closing:
        for name in ("one", "two", "three"):
            with closing.step(name):
                taken.append(name)
                if name != "three":
                    raise OSError(f"{name} is broken")

    assert taken == ["one", "two", "three"]
    assert "one is broken" in caplog.text
    assert "two is broken" in caplog.text
    assert "while closing a thing: two" in caplog.text


def test_nothing_is_said_of_a_close_without_errors(caplog: pytest.LogCaptureFixture) -> None:
    with Closing("a thing") as closing, closing.step("one"):
        pass

    assert caplog.text == ""


def test_a_cancellation_is_no_error_of_a_step() -> None:
    with (
        pytest.raises(asyncio.CancelledError),
        Closing("a thing") as closing,
        closing.step("one"),
    ):
        raise asyncio.CancelledError


class Backend:
    """A register that cannot be released."""

    def on_release(self, notify: Any) -> None:
        """See `Releasable`."""

    def release(self) -> None:
        raise OSError("the quorum is away")


class Reporter:
    closed = False

    def close(self) -> None:
        self.closed = True


class Posts:
    def __enter__(self) -> Posts:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_a_worker_whose_register_is_not_released_writes_its_events_and_keeps_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reporter = Reporter()
    services = SimpleNamespace(backend=Backend())
    parts = SimpleNamespace(posts=Posts(), services=services, reporter=reporter)
    monkeypatch.setattr(worker, "assemble", lambda _: parts)

    async def role(_: Any) -> int:
        return 7

    with caplog.at_level(logging.ERROR):
        code = asyncio.run(worker.run(SimpleNamespace(name="jobmanager-1"), role))  # type: ignore[arg-type]

    assert 7 == code
    assert reporter.closed
    assert "the quorum is away" in caplog.text
