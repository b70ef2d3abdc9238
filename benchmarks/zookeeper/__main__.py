"""``python -m benchmarks.zookeeper``: measure all three on one ZooKeeper, and write the report.

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
from benchmarks.zookeeper import failover, flink, writes
from tests.support.zookeeper import Server

ROOT = Path(__file__).parents[2]
PAGE = "benchmarks-zookeeper"
ALL: dict[str, Callable[[Effort, Server, Path], Chapter]] = {
    "failover": failover.run,
    "writes": writes.run,
}


def main() -> int:
    """Run the benchmarks that were asked for, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zookeeper", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few samples: does it run at all?")
    parser.add_argument("--only", action="append", choices=ALL, help="only this one; repeatable")
    parser.add_argument("--out", type=Path, help=f"the directory of {PAGE}.md")
    arguments = parser.parse_args()
    partly = arguments.quick or arguments.only
    out: Path = arguments.out or ROOT / ("out/benchmarks" if partly else "docs")
    out.mkdir(parents=True, exist_ok=True)
    effort = Effort(arguments.quick, out / PAGE)
    words = ["python -m benchmarks.zookeeper", *sys.argv[1:]]
    command = "make bench-zookeeper" if not partly else " ".join(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # Clusters are ended.
    flink.jars()
    began = time.monotonic()
    measured = []
    for name in arguments.only or ALL:
        with (
            tempfile.TemporaryDirectory(prefix="understudy-bench-") as place,
            noise.measured() as foreign,
            Server(Path(place) / "zookeeper", fsync=True) as server,
        ):
            told = beside(server)
            chapter = ALL[name](effort, server, Path(place))
        measured.append((chapter, foreign.cores))
        print(f"{time.monotonic() - began:6.0f} s  {chapter.found}", flush=True)
        minutes = (time.monotonic() - began) / 60
        title = "Benchmarks: beside Flink and Spark on one ZooKeeper"
        page = report.render(measured, command, PAGE, minutes, title, told)
        (out / f"{PAGE}.md").write_text(page)
    print(f"written: {out / PAGE}.md")
    return 0


def beside(server: Server) -> str:
    """Return which versions of the others are measured with."""
    serving = server.serving()
    assert serving is not None, "the server does not serve"
    return f", Flink {flink.version()}, ZooKeeper {serving.version}, Java {flink.java()}"


if __name__ == "__main__":
    sys.exit(main())
