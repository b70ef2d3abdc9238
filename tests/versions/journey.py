"""The journey: a leader is killed under a job, then a driver within a micro-batch."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

from tests.journeys import harness
from tests.journeys.harness import COMMAND, Run, stored

APP = Path(__file__).with_name("app.py")
SMALL = (
    *("--master", "local[2]", "--slots", "1", "--conf", "spark.sql.shuffle.partitions=2"),
    *("-D", "restart-strategy.type=fixed-delay"),
)
ROWS = 1_000

EXPECTED = {
    "squares": {"attempt": 1, "total": sum(number * number for number in range(ROWS))},
    "follow": 2,
    "count": {"rows": ROWS, "different": ROWS},
}
"""What was running when its leader died ran on; what had lost its driver went on in attempt 2."""


def travel(place: Path, java_home: Path, overlay: Path | None) -> dict[str, Any]:
    """Run the application on this Java, and on the PySpark of ``overlay`` (None: the installed).

    Returns which versions it ran on; raises `AssertionError` where anything is not as it must be.
    """
    chosen = {"JAVA_HOME": str(java_home)}
    if overlay:
        chosen["PYTHONPATH"] = os.pathsep.join([str(overlay), os.environ.get("PYTHONPATH", "")])
    scratch = ("-D", f"io.tmp.dirs={place / 'tmp'}")
    script = shutil.copy(APP, place / APP.name)
    line = [*COMMAND, "run-application", "--json", *SMALL, *scratch, str(script)]
    run = Run(line, place, place / "stderr.log", chosen)
    try:
        run.running("squares")
        run.grown("marks.txt", 2)
        os.kill(run.standby_is_ready()["leader"]["pid"], signal.SIGKILL)
        takeover = run.wait("takeover")
        seen = len(run.lines("marks.txt"))
        run.grown("marks.txt", seen + 2)
        run.release()
        run.until_line("marks.txt", lambda line: line == "batch 2 of 1")
        os.kill(run.busy()[1]["driver_pid"], signal.SIGKILL)
        code = run.finish()
    finally:
        harness.end(run)
    assert code == 0, run.story()
    found: dict[str, Any] = json.loads((place / "found.json").read_text())
    assert ["squares"] == takeover["adopted"], run.story()
    assert {name: found[name] for name in EXPECTED} == EXPECTED, run.story()
    assert found["imported"] == found["load"]["spark"]
    assert "batch 1 of 2" not in run.lines("marks.txt"), "a committed batch was not run again"
    assert stored(place) == []
    versions: dict[str, Any] = found["load"]
    return versions
