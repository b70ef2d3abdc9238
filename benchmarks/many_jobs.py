"""Applications with many jobs, each run once for all chapters that tell of them."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from benchmarks import clusters
from benchmarks.clusters import Takeover, cluster, kill_leader, take_over
from benchmarks.figures import Effort

NUMBERS = (0, 200, 1_000, 5_000)


@dataclass(frozen=True)
class ManyJobs:
    """One application: what each job has cost, then takeovers with all of them finished."""

    seconds: tuple[float, ...]
    takeovers: tuple[Takeover, ...]


@functools.cache
def applications(effort: Effort) -> dict[int, ManyJobs]:
    """Return applications by their number of finished jobs."""
    numbers = (0, 300) if effort.quick else NUMBERS
    return {number: _run(number, effort.of(7, 2)) for number in numbers}


def _run(jobs: int, often: int) -> ManyJobs:
    with cluster("jobs.py", jobs) as one:
        seconds = clusters.next_note(one, "reached.jsonl", 0)["seconds"]
        one.running("last")
        takeovers = tuple(take_over(one, kill_leader) for _ in range(often))
        clusters.end(one)
    return ManyJobs(tuple(seconds), takeovers)
