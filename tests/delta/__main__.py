"""``python -m tests.delta [--keep]``: lose drivers between Delta's commit and our record.

Fetches a PySpark for which Delta is there and, by Maven, Delta's jars; ``--keep`` keeps them in
``out``. Prints ``1 passed, 0 failed``, or why not.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

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
EXPECTED = {"attempts": [3, 3], "appended": [500, 500], "batched": [500, 500]}


def jars() -> list[Path]:
    """Return Delta's jars, fetched once."""
    for artifact in ARTIFACTS:
        _, name, version = artifact.split(":")
        if not (JARS / f"{name}-{version}.jar").exists():
            line = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}"]
            subprocess.run([*line, f"-DoutputDirectory={JARS}"], check=True)
    return sorted(JARS.glob("*.jar"))


def travel(place: Path, overlay: Path | None) -> dict[str, list[int]]:
    """Run the application; return how many rows there are, and how many different ones."""
    conf = {**CONF, "spark.jars": ",".join(map(str, jars()))}
    options = [part for item in conf.items() for part in ("--conf", "=".join(item))]
    script = shutil.copy(Path(__file__).with_name("app.py"), place / "app.py")
    scratch = ("-D", f"io.tmp.dirs={place / 'tmp'}", "--slots", "1", "--master", "local[2]")
    line = [*COMMAND, "run-application", "--json", *scratch, *options, str(script)]
    paths = [str(overlay or ""), os.environ.get("PYTHONPATH", "")]
    run = Run(line, place, place / "stderr.log", {"PYTHONPATH": os.pathsep.join(paths)})
    try:
        assert run.finish(900) == 0, run.story()
    finally:
        harness.end(run)
    found: dict[str, list[int]] = json.loads((place / "counted.json").read_text())
    return found


def main(arguments: list[str]) -> int:
    """Travel; return 1 if a row is there twice, or missing."""
    keep = "--keep" in arguments
    with (
        ground.overlay(PYSPARK, keep=keep) as overlay,
        tempfile.TemporaryDirectory(prefix="understudy-delta-") as place,
    ):
        found = travel(Path(place), overlay)
    right = found == EXPECTED
    if not right:
        print(f"expected {EXPECTED}, found {found}", file=sys.stderr)
    print("1 passed, 0 failed" if right else "0 passed, 1 failed")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
