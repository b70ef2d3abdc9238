"""The same code in a cluster and in one process: modules, archives, settings; plain scripts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.journeys import harness
from tests.journeys.harness import stored
from tests.journeys.spark.conftest import Begin, left_behind, put

pytestmark = pytest.mark.spark

MODULES = ("with_modules.py", "neighbour.py", "parts")
EXPECTED = [13, 26, "A!", "brought along", 3, "knots"]
UNIT = "from pathlib import Path\nUNIT = Path(__file__).with_name('unit.txt').read_text()\n"
WHEEL = "gauge-1.0-py3-none-any.whl"
FEW = ("--slots", "1", "-D", "taskmanager.spare-drivers=0")


@pytest.fixture(scope="module")
def script(ground: Path) -> Path:
    """Lay out the script with what it needs; the archives lie elsewhere."""
    given = ground / "given"
    given.mkdir()
    (given / "brought.py").write_text('WORD = "brought along"\n')
    (given / "data.txt").write_text("data\n")
    (given / "spark.conf").write_text("spark.sql.session.timeZone  Asia/Tokyo\n")
    with zipfile.ZipFile(given / "library.zip", "w") as archive:
        archive.writestr("archived/__init__.py", "def third(number): return number // 3\n")
    with zipfile.ZipFile(given / WHEEL, "w") as wheel:
        wheel.writestr("gauge/__init__.py", UNIT)
        wheel.writestr("gauge/unit.txt", "knots")
    with zipfile.ZipFile(given / "model.zip", "w") as model:
        model.writestr("weights.txt", "1 2 3")
    return put(ground, *MODULES)


def test_modules_beside_the_script_and_given_ones_are_there_in_every_process(
    begin: Begin, ground: Path, script: Path
) -> None:
    run = begin(
        script.name,
        options=(
            *("--jobmanagers", "1", *FEW),
            *("--py-files", f"given/brought.py,given/library.zip,given/{WHEEL}"),
            *("--archives", "given/model.zip#model"),
            *("--files", "given/data.txt"),
            *("--properties-file", "given/spark.conf"),
        ),
    )
    run.running("compute")
    given = ("brought.py", "library.zip", WHEEL, "model.zip", "data.txt")
    for name in (*MODULES[:2], *(f"given/{one}" for one in given)):
        (ground / name).unlink()  # They are stored: nobody needs them any more.
    code = run.finish()
    left = left_behind(ground)
    assert 0 == code, run.story()
    found = _printed(run.log.read_text(), "[main] ")

    assert EXPECTED == found["driver"]
    assert [EXPECTED, [23, 46, *EXPECTED[2:]]] == found["tasks"]
    assert ("2", ["data.txt"], "Asia/Tokyo") == (found["partitions"], found["files"], found["own"])
    assert ["1 2 3"] * 3 == found["archives"]
    assert ([2, 4], 4) == (found["elsewhere"], found["nameless"])
    assert ({}, []) == (left, stored(ground))


@pytest.mark.long
def test_the_same_script_runs_in_one_process(tmp_path: Path) -> None:
    script = put(tmp_path, *MODULES)
    (tmp_path / "brought.py").write_text('WORD = "brought along"\n')
    (tmp_path / "archived.py").write_text("def third(number): return number // 3\n")
    (tmp_path / "gauge").mkdir()
    (tmp_path / "gauge" / "__init__.py").write_text(UNIT)
    (tmp_path / "gauge" / "unit.txt").write_text("knots")
    environment = harness.environment(tmp_path)
    done = subprocess.run(
        [sys.executable, script.name],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=harness.PATIENCE_S,
        check=False,
    )
    left = left_behind(tmp_path)
    assert 0 == done.returncode, done.stderr[-4000:]
    found = _printed(done.stdout, "")

    assert EXPECTED == found["driver"]
    assert [EXPECTED, [23, 46, *EXPECTED[2:]]] == found["tasks"]
    assert ([2, 4], 4) == (found["elsewhere"], found["nameless"])
    assert {} == left
    assert not (tmp_path / "state").exists()


@pytest.mark.long  # Without Spark: tests/journeys/test_main.py.
def test_a_plain_script_as_main_runs_again_from_the_start_and_never_twice_at_once(
    begin: Begin, ground: Path
) -> None:
    run = begin("plain_spark.py", options=[*FEW, "--as", "main"])
    run.grown("marks.txt", 5)
    os.kill(run.standby_is_ready()["leader"]["pid"], signal.SIGKILL)
    first = run.lines("marks.txt")[0].split()[1]
    run.until_line("marks.txt", lambda mark: mark[:4] == "tick" and mark != f"tick {first}")
    run.release()
    code = run.finish()
    left = left_behind(ground)
    marks = run.lines("marks.txt")
    begun = [number for number, mark in enumerate(marks) if mark.startswith("begin")]
    assert 0 == code, run.story()

    assert [0] == begun[:1]
    assert 2 == len(begun)
    assert f"tick {first}" in marks
    assert f"tick {first}" not in marks[begun[1] :]
    assert 1 == sum(mark.startswith("end") for mark in marks)
    assert "[main] total 1 local[2] 2" in run.log.read_text()
    assert "[main] memory 600m" in run.log.read_text()
    assert 1 == run.log.read_text().count("main opens Spark itself (plain_spark.py, line ")
    assert ({}, []) == (left, stored(ground))


def _printed(text: str, mark: str) -> dict[str, Any]:
    """Return the JSON object that main has printed."""
    [line] = [line for line in text.splitlines() if line.startswith(f"{mark}{{")]
    found: dict[str, Any] = json.loads(line.removeprefix(mark))
    return found
