"""What the pages say to type is typed, and comes out as they say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.house.repository import ROOT
from tests.journeys import harness
from tests.support.pages import execute, is_executed, needs_spark, pages

LONG = ("docs/cron-and-airflow.md",)
"""Pages whose commands those of other pages resemble."""


def marks(page: Path, name: str) -> list[pytest.MarkDecorator]:
    """Return what marks the test of a page."""
    found = [pytest.mark.filesystem]
    found += [pytest.mark.spark] if needs_spark(page) else []
    return found + ([pytest.mark.long] if name in LONG else [])


EXECUTED = [
    pytest.param(page, id=name, marks=marks(page, name))
    for page in pages()
    if is_executed(page)
    for name in [str(page.relative_to(ROOT))]
]


@pytest.mark.parametrize("page", EXECUTED)
def test_a_page_does_what_it_says(
    page: Path, place: Path, nothing_left: Callable[[], None]
) -> None:
    try:
        execute(page, place)
    except BaseException:  # A session of the page would stay.
        harness.kill(harness.processes_of(place))
        raise

    nothing_left()
