"""``python -m benchmarks``: measure, and write the report.

A run that measures less than everything writes below ``out`` unless it is told where to.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import (
    cold_driver,
    driver_start,
    empty_job,
    first_stage,
    many_finished,
    noise,
    nth_job,
    report,
    starts,
    streaming,
    submissions,
    takeover,
    writes,
)
from benchmarks.figures import Chapter, Effort

ROOT = Path(__file__).parents[1]
ALL: dict[str, Callable[[Effort], Chapter]] = {
    "empty-job": empty_job.run,
    "takeover": takeover.run,
    "starts": starts.run,
    "driver-start": driver_start.run,
    "cold-driver": cold_driver.run,
    "first-stage": first_stage.run,
    "writes": writes.run,
    "nth-job": nth_job.run,
    "many-finished": many_finished.run,
    "streaming": streaming.run,
    "submissions": submissions.run,
}


def main() -> int:
    """Run the benchmarks that were asked for, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few samples: does it run at all?")
    parser.add_argument("--only", action="append", choices=ALL, help="only this one; repeatable")
    parser.add_argument("--out", type=Path, help="the directory of benchmarks.md")
    arguments = parser.parse_args()
    partly = arguments.quick or arguments.only
    out: Path = arguments.out or ROOT / ("out/benchmarks" if partly else "docs")
    effort = Effort(arguments.quick, out / "benchmarks")
    began = time.monotonic()
    command = "make bench" if not partly else " ".join(["python -m benchmarks", *sys.argv[1:]])
    out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # Clusters are ended.
    measured = []
    for name in arguments.only or ALL:
        with noise.measured() as foreign:
            chapter = ALL[name](effort)
        measured.append((chapter, foreign.cores))
        told = f"{chapter.found} (Other work: {foreign.cores:.2f} cores.)"
        print(f"{time.monotonic() - began:6.0f} s  {told}", flush=True)
        minutes = (time.monotonic() - began) / 60
        (out / "benchmarks.md").write_text(report.render(measured, command, "benchmarks", minutes))
    print(f"written: {out / 'benchmarks.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
