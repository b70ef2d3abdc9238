"""``python -m tests.versions [--keep] [--cluster] [4.0/17 …]``: travel on each version.

Writes the table. With names of combinations only those are tried, and nothing is written; nor with
``--cluster``, which travels on a standalone cluster of each version. ``--keep`` keeps what was
fetched, in ``out/versions``.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.versions import ground
from tests.versions.ground import Combination
from tests.versions.journey import travel, travel_on_a_cluster

PAGE = ground.ROOT / "docs" / "versions.md"

HEAD = """# Versions

Each line is one journey on a PySpark and a Java: SQL, a Python function in tasks, micro-batches.
The leader is killed under the second, a driver within the third. The figures must be right, what
was running must run on, committed batches must not run again, nothing may be left.

`make versions` runs the journeys again and writes this page. The oldest PySpark, and the installed
one on another Java than the rest of the tests, are part of `make test`. Python was {python}.
Seconds hold every start of Spark, and depend on what else the machine does: they are no benchmark.

| PySpark | Java | passed | seconds | date |
|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Row:
    """How one journey went."""

    combination: Combination
    pyspark: str
    java: str
    fault: str
    seconds: float

    def line(self, date: str) -> str:
        """Return it as a line of the table."""
        passed = f"no: {self.fault}" if self.fault else "yes"
        return f"| {self.pyspark} | {self.java} | {passed} | {self.seconds:.0f} | {date} |\n"


def main(arguments: list[str]) -> int:
    """Travel; return 1 if anything is not as it must be."""
    named = [word for word in arguments if not word.startswith("-")]
    known = ground.all_combinations()
    unknown = set(named) - set(map(str, known))
    if unknown:
        print(f"{min(unknown)}: not one of {', '.join(map(str, known))}", file=sys.stderr)
        return 2
    wanted = [one for one in known if not named or str(one) in named]
    on_cluster = "--cluster" in arguments
    rows = []
    for minor, group in itertools.groupby(wanted, lambda one: one.pyspark):
        with ground.overlay(minor, keep="--keep" in arguments) as overlay:
            for combination in group:
                rows.append(_row(combination, overlay, on_cluster=on_cluster))
                print(rows[-1].line("").rstrip("| \n"), flush=True)
    if not named and not on_cluster:
        date = f"{datetime.now(UTC):%Y-%m-%d}"
        python = ".".join(map(str, sys.version_info[:3]))
        PAGE.write_text(HEAD.format(python=python) + "".join(row.line(date) for row in rows))
    return 1 if any(row.fault for row in rows) else 0


def _row(combination: Combination, overlay: Path | None, *, on_cluster: bool) -> Row:
    home = ground.java_home(combination.java)
    began = time.monotonic()
    fault, pyspark, java = "", combination.pyspark, str(combination.java)
    with tempfile.TemporaryDirectory(prefix="understudy-versions-") as place:
        try:
            if on_cluster:
                travel_on_a_cluster(Path(place), home, overlay)
            else:
                found = travel(Path(place), home, overlay)
                pyspark, java = found["spark"], found["java"]
        except AssertionError as error:
            print(error, file=sys.stderr)
            fault = (str(error).splitlines() or ["it failed"])[0].replace("|", "/")
    return Row(combination, pyspark, java, fault, time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
