"""Seconds of each part of the suite, and of its slowest tests.

Each pytest session whose environment names a ``PART`` adds one file to ``out/durations``; ``python
-m tests.support.durations`` prints them as a table. ``--clear`` removes those of the last run.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

PLACE = Path("out/durations")
SLOWEST = 20


class Durations:
    """Adds up what each test takes, with its fixtures; the session writes the sum down."""

    def __init__(self, part: str) -> None:
        """Begin to count, for the part of this name."""
        self._part = part
        self._began = time.monotonic()
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add set-up, call or tear-down of one test."""
        self._seconds[report.nodeid] += report.duration  # type: ignore[assignment]

    def pytest_sessionfinish(self) -> None:
        """Write one file for this session."""
        whole = time.monotonic() - self._began
        PLACE.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"part": self._part, "seconds": whole, "tests": self._seconds})
        (PLACE / f"{time.time_ns()}.json").write_text(text)


def register(config: pytest.Config) -> None:
    """Count in the session that collects the reports, where the environment names a part."""
    part = os.environ.get("PART")
    if part and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations(part))


def table(place: Path) -> str:
    """Return the seconds of each part, in the order in which they ran, and the slowest tests."""
    found = [json.loads(path.read_text()) for path in sorted(place.glob("*.json"))]
    parts: Counter[str] = Counter()
    for one in found:
        parts[one["part"]] += one["seconds"]
    tests = Counter({name: s for one in found for name, s in one["tests"].items()})
    counted = Counter(one["part"] for one in found for _ in one["tests"])
    lines = [f"{s:7.0f} s  {part} ({counted[part]} tests)" for part, s in parts.items()]
    lines.append(f"{sum(parts.values()):7.0f} s  in all; the slowest {SLOWEST}:")
    lines += [f"{s:7.1f} s  {name}" for name, s in tests.most_common(SLOWEST)]
    return "\n".join(lines)


if __name__ == "__main__":
    if "--clear" in sys.argv:
        shutil.rmtree(PLACE, ignore_errors=True)
    else:
        print(table(PLACE))
