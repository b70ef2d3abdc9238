"""What the n-th job of an application costs."""

from __future__ import annotations

from benchmarks import charts
from benchmarks.figures import Chapter, Effort, Series, Table, duration, ratio
from benchmarks.many_jobs import applications

IMAGE = "nth-job.png"
PARTS = 10


def run(effort: Effort) -> Chapter:
    """Run thousands of empty jobs in one application."""
    many = applications(effort)
    jobs = max(many)
    seconds = many[jobs].seconds
    length = jobs // PARTS
    deciles = [
        Series(f"{first + 1:,} to {first + length:,}", seconds[first : first + length])
        for first in range(0, jobs, length)
    ]
    hundreds = [Series("", part) for part in (seconds[:100], seconds[-100:])]
    chart = charts.curve(
        effort.images / IMAGE,
        "An empty job, by how many there were before it (median of each tenth)",
        ("jobs before", "milliseconds"),
        [index * length for index in range(len(deciles))],
        {"median": [part.median * 1e3 for part in deciles]},
    )
    rows = tuple(
        (part.name, duration(part.median), duration(_mean(part)), duration(part.quantile(0.9)))
        for part in deciles
    )
    return Chapter(
        f"The n-th job, up to {jobs:,}",
        f"{jobs:,} empty jobs one after the other in one application, session-less driver, two "
        "JobManagers; the time of each from `env.execute` to its return.",
        (Table(("jobs", "median", "mean", "p90"), rows),),
        f"The last tenth costs {ratio(_mean(deciles[-1]), _mean(deciles[0]))} of the first "
        f"(means); the last hundred {ratio(hundreds[1].median, hundreds[0].median)} of the first "
        "hundred (medians).",
        chart,
    )


def _mean(series: Series) -> float:
    return sum(series.samples) / len(series.samples)
