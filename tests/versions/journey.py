"""Two journeys: on this machine alone, and on a standalone cluster of the same PySpark.

A leader is killed under a job; then a driver within a micro-batch, or within a safe write.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.journeys import harness
from tests.journeys.harness import COMMAND, WHOLE_S, Run, stored
from tests.support.spark_cluster import SparkCluster, State

APP = Path(__file__).with_name("app.py")
HELD = Path(harness.__file__).parent / "spark" / "apps" / "held_on_a_cluster.py"
JOB = "writes"
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
    chosen = _chosen(java_home, overlay)
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


ON_CLUSTER = (
    *("--name", "held", "--slots", "1", "--conf", "spark.sql.shuffle.partitions=2"),
    *("--conf", "spark.executor.memory=512m"),
)
WRITTEN = {"rows": 140, "distinct": 140, "shuffled": 1000}
"""40 keys, and 100 rows of an earlier write; each key was shuffled 25 times."""


def travel_on_a_cluster(place: Path, java_home: Path, overlay: Path | None) -> None:
    """Run a safe write of what was shuffled on a cluster of this Java and this PySpark.

    Raises `AssertionError` where anything is not as it must be.
    """
    chosen = _chosen(java_home, overlay)
    home = place / "home"
    home.mkdir()
    spark = {"SPARK_HOME": str(overlay / "pyspark")} if overlay else {}
    with _environment({**chosen, **spark}), SparkCluster(place / "cluster") as cluster:
        scratch = ("-D", f"io.tmp.dirs={home / 'tmp'}", "--master", cluster.url)
        script = shutil.copy(HELD, home / HELD.name)
        line = [*COMMAND, "run-application", "--json", *ON_CLUSTER, *scratch, str(script), JOB]
        run = Run(line, home, home / "stderr.log", chosen)
        try:
            run.until_line("marks.txt", f"tick {JOB} 1".__eq__, WHOLE_S)
            os.kill(run.standby_is_ready()["leader"]["pid"], signal.SIGKILL)
            takeover = run.wait("takeover")
            os.kill(run.busy()[1]["jvm_pid"], signal.SIGKILL)
            run.until_line("marks.txt", f"tick {JOB} 2".__eq__, WHOLE_S)
            seen = cluster.state()
            (home / f"go-{JOB}").touch()
            code = run.finish(WHOLE_S)
        finally:
            harness.end(run)
        after: State = cluster.await_idle()
    assert code == 0, run.story()
    assert ([JOB], []) == (takeover["adopted"], takeover["restarted"]), run.story()
    assert [f"held / {JOB} #2"] == seen.names
    assert {JOB: {}, "count": WRITTEN} == json.loads((home / "values.json").read_text())
    assert {f"held / {JOB} #1", f"held / {JOB} #2"} <= {one.name for one in after.completed}
    assert stored(home) == []


def _chosen(java_home: Path, overlay: Path | None) -> dict[str, str]:
    """Return the variables by which processes find this Java and this PySpark."""
    chosen = {"JAVA_HOME": str(java_home)}
    if overlay:
        chosen["PYTHONPATH"] = os.pathsep.join([str(overlay), os.environ.get("PYTHONPATH", "")])
    return chosen


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Have variables in this process, too, whose children Master and Workers are."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
