"""A page of benchmarks that need a server: the command line that measures and writes them."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from benchmarks import noise, report
from benchmarks.figures import Chapter, Effort

ROOT = Path(__file__).parents[1]

S = TypeVar("S")


@dataclass(frozen=True)
class Page(Generic[S]):
    """What is measured on one kind of server, a new one for each benchmark."""

    server: str
    """The last part of the module's name, of the page's and of the target's in the Makefile."""
    title: str
    benchmarks: Mapping[str, Callable[[Effort, S, Path], Chapter]]
    start: Callable[[Path], AbstractContextManager[S]]
    """Starts a server below a directory."""
    versions: Callable[[S], str]
    """Which versions of others are measured with."""

    def main(self, description: str | None) -> int:
        """Run the benchmarks that were asked for, one after the other."""
        name, module = f"benchmarks-{self.server}", f"python -m benchmarks.{self.server}"
        parser = argparse.ArgumentParser(prog=module, description=description)
        parser.add_argument("--quick", action="store_true", help="few samples: does it run at all?")
        parser.add_argument(
            "--only", action="append", choices=self.benchmarks, help="only this one; repeatable"
        )
        parser.add_argument("--out", type=Path, help=f"the directory of {name}.md")
        arguments = parser.parse_args()
        partly = arguments.quick or arguments.only
        out: Path = arguments.out or ROOT / ("out/benchmarks" if partly else "docs")
        out.mkdir(parents=True, exist_ok=True)
        effort = Effort(arguments.quick, out / name)
        command = " ".join([module, *sys.argv[1:]]) if partly else f"make bench-{self.server}"
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # Ends clusters.
        began = time.monotonic()
        measured = []
        for one in arguments.only or self.benchmarks:
            with (
                tempfile.TemporaryDirectory(prefix="understudy-bench-") as place,
                noise.measured() as foreign,
                self.start(Path(place)) as server,
            ):
                told = self.versions(server)
                chapter = self.benchmarks[one](effort, server, Path(place))
            measured.append((chapter, foreign.cores))
            print(f"{time.monotonic() - began:6.0f} s  {chapter.found}", flush=True)
            minutes = (time.monotonic() - began) / 60
            page = report.render(measured, command, name, minutes, self.title, told)
            (out / f"{name}.md").write_text(page)
        print(f"written: {out / name}.md")
        return 0
