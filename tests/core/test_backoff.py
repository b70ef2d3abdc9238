"""The pauses between tries."""

from __future__ import annotations

import pytest

from understudy.core.backoff import Backoff


@pytest.mark.parametrize(
    ("failures", "expected"), [(0, 0.0), (1, 0.1), (2, 0.2), (3, 0.4), (6, 3.2), (7, 5.0)]
)
def test_a_pause_doubles_up_to_the_limit(failures: int, expected: float) -> None:
    assert expected == Backoff(0.1, 5.0).pause_s(failures)


def test_any_number_of_failures_has_a_pause() -> None:
    assert 30.0 == Backoff(0.5, 30.0).pause_s(10_000)
    assert Backoff(0.5).pause_s(10_000) < float("inf")
