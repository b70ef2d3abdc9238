"""Values that ``main`` computes once for a run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from understudy.application.environment import Elsewhere, Environment
from understudy.core.matching import Assignment
from understudy.core.values import ONCE_BYTES_MAX
from understudy.errors import InvalidValueError, JobNameError, SubmissionError
from understudy.process.user_code import inside_job
from understudy.rpc import messages
from understudy.rpc.messages import MainMessage


class Recording:
    """A link to a JobManager that records values; see `MainLink`."""

    execution = 1

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def request(self, message: Callable[[int], MainMessage]) -> MainMessage:
        """See `MainLink.request`."""
        asked = message(7)
        assert isinstance(asked, messages.Once)
        if asked.value:
            self.values.setdefault(asked.name, asked.value)
        return messages.OnceIs(request=7, value=self.values.get(asked.name, ""))

    def tell(self, message: MainMessage) -> None:
        """See `MainLink.tell`."""

    def put_plan(self, *_: object) -> None:
        """See `MainLink.put_plan`."""


def environment(link: Recording) -> Environment:
    return Environment(link, Assignment("a" * 32))  # type: ignore[arg-type]


def test_a_value_is_computed_once_and_comes_back_with_its_types() -> None:
    link, calls = Recording(), []

    def listing() -> tuple[str, ...]:
        calls.append(1)
        return ("a.csv", "b.csv")

    first = environment(link).once("files", listing)
    again = environment(link).once("files", listing)

    assert (("a.csv", "b.csv"), ("a.csv", "b.csv"), 1) == (first, again, len(calls))


def test_none_is_a_value_too() -> None:
    link = Recording()
    assert environment(link).once("none", lambda: None) is None

    assert environment(link).once("none", lambda: 1) is None


def test_the_value_that_is_recorded_counts_where_another_one_was_faster() -> None:
    link = Recording()

    def slow() -> int:
        link.values["number"] = "1"
        return 2

    assert 1 == environment(link).once("number", slow)


def test_now_is_the_same_in_each_execution() -> None:
    link = Recording()
    before = datetime.now(UTC)
    first, again = environment(link).now(), environment(link).now()

    assert first == again
    assert before - timedelta(seconds=1) <= first <= datetime.now(UTC) + timedelta(seconds=1)
    assert timedelta(0) == first.utcoffset()


def test_what_cannot_be_recorded_is_refused_and_nothing_is_recorded() -> None:
    link = Recording()
    with pytest.raises(InvalidValueError):
        environment(link).once("large", lambda: "x" * ONCE_BYTES_MAX)
    with pytest.raises(InvalidValueError):
        environment(link).once("odd", object)
    with pytest.raises(JobNameError):
        environment(link).once(" ", lambda: 1)

    assert {} == link.values


def test_only_main_records() -> None:
    with pytest.raises(SubmissionError), inside_job("load"):
        environment(Recording()).once("x", lambda: 1)
    with pytest.raises(SubmissionError):
        Elsewhere().once("x", lambda: 1)
