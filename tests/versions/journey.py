"""The journey: a leader is killed under a job, then a driver within a micro-batch."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.journeys import harness
from tests.journeys.harness import COMMAND, WHOLE_S, Run, stored
from tests.support.spark_cluster import SparkCluster

APP = Path(__file__).with_name("app.py")
SMALL = (
    *("--slots", "1", "--conf", "spark.sql.shuffle.partitions=2"),
    *("-D", "restart-strategy.type=fixed-delay"),
)
ROWS = 1_000

EXPECTED = {
    "squares": {"attempt": 1, "total": sum(number * number for number in range(ROWS))},
    "follow": 2,
    "count": {"rows": ROWS, "different": ROWS},
}
"""What was running when its leader died ran on; what had lost its driver went on in attempt 2."""


def travel(
    place: Path, java_home: Path, overlay: Path | None, *, on_a_cluster: bool = False
) -> dict[str, Any]:
    """Run the application on this Java, and on the PySpark of ``overlay`` (None: the installed).

    With ``on_a_cluster`` a Master and a Worker are of the same PySpark and Java. Returns which
    versions it ran on; raises `AssertionError` where anything is not as it must be.
    """
    chosen = {"JAVA_HOME": str(java_home)}
    if overlay:
        chosen["PYTHONPATH"] = os.pathsep.join([str(overlay), os.environ.get("PYTHONPATH", "")])
    if not on_a_cluster:
        return _travel(place, chosen, "--master", "local[2]")
    with contextlib.ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            for name, text in chosen.items():
                patch.setenv(name, text)
            if overlay:
                patch.setenv("SPARK_HOME", str(overlay / "pyspark"))
            cluster = stack.enter_context(SparkCluster(place / "cluster", workers=1))
        small = ("--conf", "spark.executor.memory=512m")
        found = _travel(place, chosen, "--master", cluster.url, *small)
        state = cluster.await_idle()
    names = {application.name for application in state.completed}
    assert {f"app / {job} #1" for job in ("load", "squares", "follow", "count")} <= names, names
    assert "app / follow #2" in names, names
    return found


def _travel(place: Path, chosen: Mapping[str, str], *options: str) -> dict[str, Any]:
    scratch = ("-D", f"io.tmp.dirs={place / 'tmp'}", *options)
    script = shutil.copy(APP, place / APP.name)
    line = [*COMMAND, "run-application", "--json", *SMALL, *scratch, str(script)]
    run = Run(line, place, place / "stderr.log", chosen)
    try:
        run.running("squares", patience_s=WHOLE_S)
        run.grown("marks.txt", 2, WHOLE_S)
        os.kill(run.standby_is_ready()["leader"]["pid"], signal.SIGKILL)
        takeover = run.wait("takeover")
        seen = len(run.lines("marks.txt"))
        run.grown("marks.txt", seen + 2, WHOLE_S)
        run.release()
        run.until_line("marks.txt", lambda line: line == "batch 2 of 1", WHOLE_S)
        os.kill(run.busy()[1]["driver_pid"], signal.SIGKILL)
        code = run.finish(WHOLE_S)
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
