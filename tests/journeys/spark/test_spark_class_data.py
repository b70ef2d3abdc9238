"""A driver has an archive of classes built; the next one starts from it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.journeys.spark.conftest import Begin

# A builder gets only what nobody else wants: among other tests that may take minutes.
pytestmark = [pytest.mark.spark, pytest.mark.long]

BUILD_S = 900.0
POLL_S = 0.2
ALONE = ("--slots", "1", "-D", "taskmanager.spare-drivers=0")


def test_the_next_driver_starts_from_the_archive_that_the_first_has_had_built(
    begin: Begin, ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(ground / "cache"))
    run = begin("long_in_spark.py", options=ALONE)
    run.running("second job")
    first = run.get("/taskmanagers")["taskmanagers"][0]["slots"][0]
    archive = built(ground / "cache" / "understudy" / "class-data")
    os.kill(first["driver_pid"], signal.SIGKILL)
    run.grown("jobs.txt", 3)
    second = run.get("/taskmanagers")["taskmanagers"][0]["slots"][0]
    mapped = str(archive) in Path(f"/proc/{second['jvm_pid']}/maps").read_text()
    run.release()

    assert 0 == run.finish(), run.story()
    assert first["jvm_pid"] != second["jvm_pid"]
    assert mapped


def built(directory: Path) -> Path:
    """Return the archive once it is published."""
    deadline = time.monotonic() + BUILD_S
    while not (found := list(directory.glob("*.jsa"))):
        failed = [one.read_text() for one in directory.glob("*.failed")]
        assert not failed
        assert time.monotonic() < deadline, list(directory.iterdir())
        time.sleep(POLL_S)
    return found[0]
