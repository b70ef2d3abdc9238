"""How long a cold driver takes to its first count, with and without an archive of classes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import charts
from benchmarks.clusters import APPS, PATIENCE_S
from benchmarks.figures import Chapter, Effort, Series, duration, ratio, table_of

IMAGE = "cold-driver.png"

BUILD_S = 900.0


def run(effort: Effort) -> Chapter:
    """Start each kind in turns, so that other work on the machine meets them alike."""
    plain: list[float] = []
    without: list[float] = []
    shared: list[float] = []
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as place:
        archives = Path(place, "class-data")
        archives.mkdir(mode=0o700)
        start = time.perf_counter()
        _, built = _driver(place, archives)
        built_s = time.perf_counter() - start
        assert built, [one.read_text() for one in archives.glob("*.failed")]
        for _ in range(effort.of(7, 2)):
            plain.append(_first([str(APPS / "plain.py"), "0"])[0])
            without.append(_driver(place, None)[0])
            shared.append(_driver(place, archives)[0])
        size = max(one.stat().st_size for one in archives.glob("*.jsa"))
    series = [
        Series("plain PySpark", tuple(plain)),
        Series("driver without an archive", tuple(without)),
        Series("driver with an archive", tuple(shared)),
    ]
    first, _, last = series
    chart = charts.distributions(
        effort.images / IMAGE, "From the start of the process to the first count", series
    )
    return Chapter(
        "Cold start of a driver",
        "From the start of a Python process to its first `spark.range(1000).count()` on "
        "`local[2]`: a plain PySpark script, and a driver's session without and with an archive "
        "of Spark's classes (`taskmanager.driver.class-data-sharing`), in turns. The first driver "
        f"and the build of the archive ({size >> 20} MB) took {duration(built_s)} before.",
        (table_of(*series),),
        f"A cold driver counts after {duration(last.median)}, {ratio(last.median, first.median)} "
        f"of plain PySpark ({duration(first.median)}).",
        chart,
    )


def _driver(place: str, archives: Path | None) -> tuple[float, bool]:
    with tempfile.TemporaryDirectory(dir=place) as scratch:
        script = str(APPS / "cold_driver.py")
        taken, said = _first([script, scratch, str(archives or "")])
        return taken, bool(json.loads(said[1])["built"])


def _first(arguments: list[str]) -> tuple[float, list[str]]:
    """Return the seconds to the first count, and all lines that the script printed."""
    start = time.time()
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S + BUILD_S,
    )
    lines = done.stdout.splitlines()
    return json.loads(lines[0])["first"] - start, lines
