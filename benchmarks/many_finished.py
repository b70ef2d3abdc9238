"""How a takeover's time grows with the number of jobs that have finished."""

from __future__ import annotations

from benchmarks import charts
from benchmarks.clusters import series
from benchmarks.figures import Chapter, Effort, Table, duration, ratio
from benchmarks.many_jobs import applications

IMAGE = "takeover-by-jobs.png"


def run(effort: Effort) -> Chapter:
    """Kill leaders of applications with more and more finished jobs."""
    found = {number: list(one.takeovers) for number, one in applications(effort).items()}
    rows = []
    medians: dict[str, list[float]] = {"elected": [], "over": [], "reached": []}
    for number, takeovers in found.items():
        of = {what: series(takeovers, "", what) for what in medians}
        for what, one in of.items():
            medians[what].append(one.median)
        slowest = duration(max(of["over"].samples))
        told = (duration(of[what].median) for what in medians)
        rows.append((f"{number:,}", str(len(takeovers)), *told, slowest))
    chart = charts.curve(
        effort.images / IMAGE,
        "From the kill -9 of the leader, by the number of finished jobs (medians)",
        ("finished jobs", "seconds"),
        list(found),
        {"takeover over": medians["over"], "main where it was": medians["reached"]},
    )
    over, most = medians["over"], max(found)
    return Chapter(
        "Takeover by number of finished jobs",
        "As above, `kill -9` of the leader, session-less driver. No finished job runs again: the "
        "re-executed `main` asks for each of them and gets its stored result.",
        (
            Table(
                (
                    *("finished jobs", "n", "another leads", "takeover over", "main where it was"),
                    "slowest takeover",
                ),
                tuple(rows),
            ),
        ),
        f"With {most:,} finished jobs the takeover is over {duration(over[-1])} after the kill, "
        f"{ratio(over[-1], over[0])} of that with none; `main` has passed all of them after "
        f"{duration(medians['reached'][-1])}.",
        chart,
    )
