"""A TaskManager that is asked to end, as a pod that is evicted: what runs is saved and moves."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.journeys import harness
from tests.journeys.harness import SESSION_LESS
from tests.journeys.members import until


def test_a_taskmanager_that_is_asked_to_end_hands_its_job_over(place: Path) -> None:
    """Without restarts: a job that is handed over is not a job that has failed."""
    script = harness.put_app(place, "drained.py")
    members = {"jm": _begin(place, "jm", "jobmanager", "-D", "restart-strategy.type=none", script)}
    try:
        patient = ("-D", "taskmanager.drain-timeout=120 s")
        members["first"] = _begin(place, "first", "taskmanager", *patient)
        until(lambda: _lines(place) == ["1 None"])
        members["second"] = _begin(place, "second", "taskmanager")
        members["first"].terminate()
        codes = [members[name].wait(harness.PATIENCE_S) for name in ("first", "jm")]
    finally:
        for one in members.values():
            one.terminate()
            one.wait(harness.PATIENCE_S)

    assert [143, 0] == codes, (place / "first.log").read_text()
    assert ["1 None", "2 7"] == _lines(place)
    assert "it has ended, and handed over what it ran" in (place / "jm.log").read_text()
    assert {} == harness.processes_of(place)


def _begin(place: Path, name: str, *words: str | Path) -> subprocess.Popen[bytes]:
    role, *rest = map(str, words)
    with (place / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [*harness.COMMAND, role, *harness.impatient(), *SESSION_LESS, *rest],
            cwd=place,
            env=harness.environment(place),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _lines(place: Path) -> list[str]:
    path = place / "begun.txt"
    return path.read_text().splitlines() if path.exists() else []
