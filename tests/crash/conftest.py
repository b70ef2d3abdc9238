"""How many crashes, and which: ``pytest tests/crash --writes all``, ``… --pairs all``, ``… --point
1-failed-kept:7/…``.

All pairs are some 400,000 runs: two hours of one core.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.crash.points import Manner, Strike, Victim
from tests.crash.quiet import COMBINATIONS, Combination

HERE = Path(__file__).parent

PAIRS = 900
"""Every so-manieth pair is tried unless asked otherwise: as many as fit into a few seconds."""

WRITES = 8
"""Every so-manieth write is crashed at unless asked otherwise, others with each combination."""

COUNTED = {
    "crash_points": "crash points",
    "crash_pairs": "pairs of crash points",
    "system_calls": "system calls",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the enumeration."""
    group = parser.getgroup("crash", "crashes at every write")
    group.addoption("--point", default=None, help="strike only so, and tell the story")
    group.addoption("--writes", default=str(WRITES), help=f"every N-th write, or all ({WRITES})")
    group.addoption("--pairs", default=str(PAIRS), help=f"every so-manieth pair, or all ({PAIRS})")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how much was enumerated, by all workers together."""
    totals: dict[str, int] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") != "call":
                continue
            for name, value in report.user_properties:
                if name in COUNTED:
                    totals[name] = totals.get(name, 0) + value
    if totals:
        told = ", ".join(f"{totals[name]} {COUNTED[name]}" for name in COUNTED if name in totals)
        terminalreporter.write_line(f"struck at {told}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run either the one point that was asked for, or all else."""
    asked = config.getoption("--point", None) is not None
    left = [
        item
        for item in items
        if item.path.parent == HERE and ("point" in getattr(item, "fixturenames", ())) is not asked
    ]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


@pytest.fixture
def point(request: pytest.FixtureRequest) -> str:
    """Return the point that was asked for."""
    return str(request.config.getoption("--point"))


def parse(point: str) -> tuple[Combination, dict[int, Strike]]:
    """Read what `judging.name_of` wrote."""
    first, *rest = point.split(":")
    combination = next(one for one in COMBINATIONS if str(one) == first)
    strikes = {}
    for told in rest:
        number, manner, victim = told.upper().split("/")
        strikes[int(number)] = Strike(Manner[manner], Victim[victim])
    return combination, strikes
