"""The scripts of docs/convert.md, before and after: both do the same."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.house.repository import ROOT
from tests.journeys import harness
from tests.journeys.spark.conftest import SMALL

pytestmark = [pytest.mark.spark, pytest.mark.filesystem, pytest.mark.long]

FEW = ("--jobmanagers", "1", "--slots", "1", "-D", "taskmanager.spare-drivers=0")

DAYS = 20
SHOPS = {"north": 3, "south": 1, "west": 2}
"""The sales of a shop grow by so much a day."""

SCRIPTS = {
    "etl": f"rows: {DAYS * len(SHOPS)}",
    "report": "best: north west",
    "stream": "batch 0",
    "model": "slope: 2.0",
}


def sales(place: Path) -> None:
    rows = [f"{shop},{day},{more * day}" for day in range(DAYS) for shop, more in SHOPS.items()]
    (place / "in").mkdir()
    (place / "in" / "sales.csv").write_text("\n".join(["shop,day,amount", *rows, "east,3,"]) + "\n")


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_converted_script_runs_on_a_cluster(place: Path, script: str) -> None:
    sales(place)
    app = ROOT / "examples" / "converted" / f"{script}.py"

    done = harness.command(place, "run-application", *SMALL, *FEW, str(app), "in", f"out/{script}")

    assert SCRIPTS[script] in done.stderr
    assert f"understudy: job '{_job(app)}' is FINISHED, attempt 1" in done.stderr


@pytest.mark.parametrize("kind", ["plain", "converted"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_runs_with_plain_python(place: Path, script: str, kind: str) -> None:
    sales(place)
    shutil.copytree(ROOT / "examples" / kind, place / kind)

    done = harness.program(place, sys.executable, f"{kind}/{script}.py", "in", f"out/{script}")

    assert SCRIPTS[script] in done.stdout


def _job(app: Path) -> str:
    """Return the first function of a script that gets a context."""
    return app.read_text().partition("(ctx")[0].rpartition("def ")[2]
