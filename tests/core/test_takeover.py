from __future__ import annotations

import pytest
from msgspec.structs import replace

from understudy.core.recovery import Takeover, TakeoverReport, report, settled
from understudy.model import JobId

A, B, C = (JobId(name) for name in "ABC")
NAMES = {A: "load", B: "count", C: "plot"}
TAKEOVER = Takeover(10.0, frozenset({A, B}), NAMES, skipped=("old",))


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("adopted", replace(TAKEOVER, open=frozenset({B}), adopted=("load",))),
        ("restarted", replace(TAKEOVER, open=frozenset({B}), restarted=("load",))),
        ("skipped", replace(TAKEOVER, open=frozenset({B}), skipped=("old", "load"))),
        ("displaced", replace(TAKEOVER, open=frozenset({B}), displaced=("load",))),
    ],
)
def test_what_became_of_a_job_is_noted_by_its_name(how: str, expected: Takeover) -> None:
    actual = settled(TAKEOVER, A, how)

    assert expected == actual


def test_only_the_first_that_becomes_of_a_job_counts() -> None:
    expected = settled(TAKEOVER, A, "adopted")

    actual = settled(settled(TAKEOVER, A, "adopted"), A, "restarted")

    assert expected == actual


def test_a_job_that_did_not_run_at_the_loss_is_not_waited_for() -> None:
    expected = TAKEOVER

    actual = settled(TAKEOVER, C, "restarted")

    assert expected == actual


def test_a_takeover_is_over_once_no_job_is_open() -> None:
    done = Takeover(
        10.0, frozenset(), NAMES, adopted=("count",), restarted=("load",), skipped=("old",)
    )
    expected = [None, None, TakeoverReport(2.5, done)]

    first = settled(TAKEOVER, A, "restarted")
    second = settled(first, B, "adopted")
    actual = [report(each, 12.5) for each in (TAKEOVER, first, second)]

    assert expected == actual


def test_a_takeover_with_nothing_open_is_over_at_once() -> None:
    takeover = Takeover(10.0, frozenset(), {})
    expected = TakeoverReport(0.25, takeover)

    actual = report(takeover, 10.25)

    assert expected == actual


def test_a_takeover_never_takes_less_than_no_time() -> None:
    takeover = Takeover(10.0, frozenset(), {})
    expected = TakeoverReport(0.0, takeover)

    actual = report(takeover, 9.0)

    assert expected == actual
