"""``python -m tests.delta [--keep]``: lose drivers between Delta's commit and our record, and more.

The other journey runs a job anew that has written already. Fetches a PySpark for which Delta is
there and, by Maven, Delta's jars; ``--keep`` keeps them in ``out``. Prints ``2 passed, 0 failed``,
or why not.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.journeys import harness
from tests.journeys.harness import COMMAND, Run
from tests.versions import ground

PYSPARK = "4.1"
ARTIFACTS = ("io.delta:delta-spark_4.1_2.13:4.1.0", "io.delta:delta-storage:4.1.0")
JARS = ground.ROOT / "out" / "delta"
CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.shuffle.partitions": "2",
}
LOST = {"attempts": [3, 3], "appended": [500, 500], "batched": [500, 500]}
ANEW = {"attempt": 2, "again": [200, 100], "again-batched": [200, 100]}

Found = dict[str, Any]


def jars() -> list[Path]:
    """Return Delta's jars, fetched once."""
    for artifact in ARTIFACTS:
        _, name, version = artifact.split(":")
        if not (JARS / f"{name}-{version}.jar").exists():
            line = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}"]
            subprocess.run([*line, f"-DoutputDirectory={JARS}"], check=True)
    return sorted(JARS.glob("*.jar"))


def lose_drivers(place: Path, overlay: Path | None) -> Found:
    """Run to the end; return how many rows there are, and how many different ones."""
    with _started(place, overlay, "app.py") as run:
        assert run.finish(900) == 0, run.story()
    return _read(place / "counted.json")


def run_anew(place: Path, overlay: Path | None) -> Found:
    """Close a run once its first job has a result, and discard that; return what is there then."""
    named = ("-D", "high-availability.cluster-id=again", "--run-id", "monday")
    with _started(place, overlay, "again.py", *named) as run:
        run.wait("job-status", 900, name="appends", status="FINISHED")
        run.process.terminate()
        run.finish()
    (place / "go").touch()
    with _started(place, overlay, "again.py", *named, "--rerun", "appends") as run:
        assert run.finish(900) == 0, run.story()
    return _read(place / "again.json")


@contextmanager
def _started(place: Path, overlay: Path | None, app: str, *more: str) -> Iterator[Run]:
    conf = {**CONF, "spark.jars": ",".join(map(str, jars()))}
    options = [part for item in conf.items() for part in ("--conf", "=".join(item))]
    script = shutil.copy(Path(__file__).with_name(app), place / app)
    scratch = ("-D", f"io.tmp.dirs={place / 'tmp'}", "--slots", "1", "--master", "local[2]")
    line = [*COMMAND, "run-application", "--json", *scratch, *options, *more, str(script)]
    paths = [str(overlay or ""), os.environ.get("PYTHONPATH", "")]
    run = Run(line, place, place / "stderr.log", {"PYTHONPATH": os.pathsep.join(paths)})
    try:
        yield run
    finally:
        harness.end(run)


def _read(path: Path) -> Found:
    found: Found = json.loads(path.read_text())
    return found


def main(arguments: list[str]) -> int:
    """Travel; return 1 if a row is there more often than it should, or missing."""
    keep = "--keep" in arguments
    wrong = 0
    with ground.overlay(PYSPARK, keep=keep) as overlay:
        for journey, expected in ((lose_drivers, LOST), (run_anew, ANEW)):
            with tempfile.TemporaryDirectory(prefix="understudy-delta-") as place:
                found = journey(Path(place), overlay)
            if found != expected:
                print(f"{journey.__name__}: expected {expected}, found {found}", file=sys.stderr)
                wrong += 1
    print(f"{2 - wrong} passed, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
