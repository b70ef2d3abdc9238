"""``python -m benchmarks.kubernetes``: measure on a real API server, and write the report.

A run that measures less than everything writes below ``out`` unless it is told where to.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import noise, report
from benchmarks.figures import Chapter, Effort
from benchmarks.kubernetes import failover, load
from tests.kubernetes import build
from tests.kubernetes.control_plane import ControlPlane

ROOT = Path(__file__).parents[2]
PAGE = "benchmarks-kubernetes"
ALL: dict[str, Callable[[Effort, ControlPlane, Path], Chapter]] = {
    "failover": failover.run,
    "load": load.run,
}


def main() -> int:
    """Run the benchmarks that were asked for, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kubernetes", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few samples: does it run at all?")
    parser.add_argument("--only", action="append", choices=ALL, help="only this one; repeatable")
    parser.add_argument("--out", type=Path, help=f"the directory of {PAGE}.md")
    arguments = parser.parse_args()
    partly = arguments.quick or arguments.only
    out: Path = arguments.out or ROOT / ("out/benchmarks" if partly else "docs")
    out.mkdir(parents=True, exist_ok=True)
    effort = Effort(arguments.quick, out / PAGE)
    words = ["python -m benchmarks.kubernetes", *sys.argv[1:]]
    command = "make bench-kubernetes" if not partly else " ".join(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # Clusters are ended.
    if why := build.why_not():
        sys.exit(why)
    build.build()
    began = time.monotonic()
    measured = []
    for name in arguments.only or ALL:
        with (
            tempfile.TemporaryDirectory(prefix="understudy-bench-") as place,
            noise.measured() as foreign,
            ControlPlane(Path(place), controllers=False) as plane,
        ):
            told = f", Kubernetes {_version(plane)}"
            chapter = ALL[name](effort, plane, Path(place))
        measured.append((chapter, foreign.cores))
        print(f"{time.monotonic() - began:6.0f} s  {chapter.found}", flush=True)
        minutes = (time.monotonic() - began) / 60
        title = "Benchmarks: on Kubernetes"
        page = report.render(measured, command, PAGE, minutes, title, told)
        (out / f"{PAGE}.md").write_text(page)
    print(f"written: {out / PAGE}.md")
    return 0


def _version(plane: ControlPlane) -> str:
    found = plane.admin.find("/version")
    assert found is not None, "the API server does not serve"
    return str(found["gitVersion"])


if __name__ == "__main__":
    sys.exit(main())
