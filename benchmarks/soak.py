"""``python -m benchmarks.soak [TAKEOVERS]``: many takeovers of one cluster, which must not grow.

Kills the leader again and again while a job runs. Of each role (the launcher, the TaskManager, its
driver, whoever leads) it notes resident memory and open files, and of storage its files and bytes.
The launcher, the TaskManager and the driver live through all of it; the leader is a new process
each time, and shows what it inherits. Fails where the last tenth holds more than the second (in
the first, caches fill), or where a takeover takes longer.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import clusters
from benchmarks.clusters import cluster, kill_leader, take_over
from tests.journeys.harness import Run

TAKEOVERS = 1_000
PAGE = 4096
TENTHS = 10
GROWN = 1.10
"""Resident memory may be so much more: the allocator keeps what a busy moment has needed."""

FILES_GROWN = 2.0
"""A connection that is just being served is an open file."""

SLOWER = 1.5

Sample = dict[str, float]


@dataclass(frozen=True)
class Limit:
    """How much of a figure is too much, beside its earlier median."""

    factor: float
    plus: float

    def holds(self, early: float, late: float) -> bool:
        """Say whether the late median is none too large."""
        return late <= early * self.factor + self.plus


def limit_of(name: str) -> Limit:
    """Return the limit of a figure by its name."""
    if name.endswith("MB"):
        return Limit(GROWN, 1.0)
    if name.endswith("seconds"):
        return Limit(SLOWER, 0.05)
    return Limit(1.0, FILES_GROWN)


def main() -> int:
    """Kill leaders; print what grew; return 1 if something did that must not."""
    takeovers = int(sys.argv[1]) if len(sys.argv) > 1 else TAKEOVERS
    began = time.monotonic()
    samples: list[Sample] = []
    with cluster("jobs.py", 3) as run:
        run.running("last")
        for number in range(1, takeovers + 1):
            samples.append(_after_a_takeover(run))
            # What is kept of each event is the harness's own; a thousand takeovers are many.
            if number % max(1, takeovers // TENTHS) == 0:
                told = ", ".join(f"{name} {value:.1f}" for name, value in samples[-1].items())
                print(f"{time.monotonic() - began:6.0f} s  takeover {number}: {told}", flush=True)
        clusters.end(run)
    return _conclude(samples)


def _after_a_takeover(run: Run) -> Sample:
    """Kill the leader, and measure everybody once the next standby is ready."""
    takeover = take_over(run, kill_leader)
    assert takeover.over is not None
    run.standby_is_ready()
    taskmanager, slot = run.busy()
    who = {
        "launcher": run.process.pid,
        "leader": run.leader()["pid"],
        "TaskManager": taskmanager["pid"],
        "driver": slot["driver_pid"],
    }
    sample: Sample = {"takeover seconds": takeover.over}
    for role, pid in who.items():
        sample[f"{role} MB"] = _resident(pid) / 1e6
        sample[f"{role} files"] = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    sizes = list(_sizes(run.place / "state" / "understudy" / "ha"))
    sample |= {"storage files": len(sizes), "storage kB": sum(sizes) / 1e3}
    return sample


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


def _sizes(storage: Path) -> Iterator[int]:
    for path in storage.rglob("*"):
        try:
            if path.is_file():
                yield path.stat().st_size
        except FileNotFoundError:
            continue  # Replaced just now.


def _conclude(samples: list[Sample]) -> int:
    tenth = max(1, len(samples) // TENTHS)
    early, late = samples[tenth : 2 * tenth] or samples[:tenth], samples[-tenth:]
    failed = []
    print(f"{'':24}{'first':>10}{'2nd tenth':>12}{'last tenth':>12}{'last':>10}")
    for name in samples[0]:
        before, after = (statistics.median(one[name] for one in part) for part in (early, late))
        ok = limit_of(name).holds(before, after) or name == "storage kB"
        if not ok:
            failed.append(name)
        first, last = samples[0][name], samples[-1][name]
        mark = "" if ok else "  GROWS"
        print(f"{name:24}{first:10.2f}{before:12.2f}{after:12.2f}{last:10.2f}{mark}")
    print(f"{len(samples)} takeovers: {'flat' if not failed else 'grows: ' + ', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
