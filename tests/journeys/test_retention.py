"""What is kept of ended runs, and for how long: tombstones with their files, and logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.harness import SESSION_LESS, command, stored

SETTINGS = (
    "high-availability.cluster-id=kept",
    "application-result-store.tombstone-ttl=0s",
    "env.log.max=1",
    "taskmanager.numberOfTaskSlots=1",
)


@pytest.mark.long  # Units: tests/api/test_retention.py.
def test_an_expired_tombstone_goes_with_its_file_and_an_old_log_when_the_next_run_begins(
    place: Path,
) -> None:
    script = harness.put_app(place, "mains.py")
    options = [word for setting in SETTINGS for word in ("-D", setting)]
    logs = place / "state" / "understudy" / "logs"
    seen = []
    for run in ("first", "second"):
        command(
            place,
            "run-application",
            "--run-id",
            run,
            *options,
            *SESSION_LESS,
            str(script),
            "exit-0",
        )
        below = "kept/tombstones/"
        files = [path.removeprefix(below) for path in stored(place) if path.startswith(below)]
        tombstones = [path.partition("~")[0] for path in files]
        seen.append((tombstones, [path.name.partition("-")[0] for path in logs.iterdir()]))
    answered = command(
        place, "run-application", "--run-id", "second", *options, str(script), "exit-0"
    )

    assert [
        (["first"], ["first"]),
        (["second"], ["second"]),
    ] == seen
    bygone = command(place, "run-application", "--run-id", "first", *options, str(script), "exit-0")

    assert "run second has ended: FINISHED" in answered.stderr
    assert "run first has ended" in bygone.stderr, "a clock that jumps lets no run run again"
    assert ["one 1", "one 1"] == (place / "jobs.txt").read_text().splitlines()
