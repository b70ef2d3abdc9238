"""How long it takes after each kind of death until all goes on."""

from __future__ import annotations

import contextlib

from benchmarks import charts, clusters
from benchmarks.clusters import Kill, Takeover, cluster, series
from benchmarks.figures import Chapter, Effort, Series, Table, duration, table_of
from tests.journeys.harness import Run

IMAGE = "takeover.png"
IN_TURN = 3
KINDS: dict[str, Kill] = {
    "SIGKILL": clusters.kill_leader,
    "SIGTERM": clusters.stop_leader,
    "guardian too": clusters.kill_guardian_too,
}


def run(effort: Effort) -> Chapter:
    """Measure each kind of death many times over, with and without Spark."""
    found: dict[str, list[Takeover]] = {}
    for label, spark, often in (
        ("session-less", False, effort.of(50, 2)),
        ("Spark", True, effort.of(10, 1)),
    ):
        with cluster("jobs.py", 3, "spark" if spark else "", spark=spark) as one:
            one.running("last", patience_s=clusters.PATIENCE_S)
            for kind, kill in KINDS.items():
                found[f"leader, {kind}, {label}"] = _often(one, kill, often)
            if spark:
                found[f"application process, {label}"] = [
                    clusters.kill_main(one) for _ in range(often)
                ]
            clusters.end(one)
        if not spark:
            found[f"application process, {label}"] = _mains_in_turn(often)
    leaders = {name: takeovers for name, takeovers in found.items() if takeovers[0].over}
    over = [series(takeovers, name, "over") for name, takeovers in leaders.items()]
    elected = [series(takeovers, name, "elected") for name, takeovers in leaders.items()]
    reached = [series(takeovers, name, "reached") for name, takeovers in found.items()]
    chart = charts.distributions(
        effort.images / IMAGE,
        "From the kill until main is again where it was",
        reached,
    )
    return Chapter(
        "Takeover after each kind of death",
        "A job runs while the leader, or the process of `main`, dies; three jobs have finished "
        "before. Two JobManagers; each kill waits until a standby is ready. Three moments after "
        "the kill, as seen from outside: another JobManager leads; it has adopted the running job "
        "and knows the finished ones (the takeover is over); `main`, executed again, has come to "
        "where it was. The job itself is not interrupted in any of them.",
        (
            _table("another leads", elected),
            _table("the takeover is over", over),
            _table("main is where it was", reached),
        ),
        f"After `kill -9` of the leader all is adopted within {duration(over[0].median)} (median; "
        f"the slowest of {len(over[0].samples)}: {duration(max(over[0].samples))}), and `main` is "
        f"where it was after {duration(reached[0].median)}.",
        chart,
    )


def _often(one: Run, kill: Kill, often: int) -> list[Takeover]:
    return [clusters.take_over(one, kill) for _ in range(often)]


def _mains_in_turn(often: int) -> list[Takeover]:
    """Kill mains of several clusters in turn: each has its next warm process after some seconds."""
    with contextlib.ExitStack() as stack:
        ones = [stack.enter_context(cluster("jobs.py", 3)) for _ in range(min(IN_TURN, often))]
        for one in ones:
            one.running("last", patience_s=clusters.PATIENCE_S)
        found = [clusters.kill_main(ones[number % len(ones)]) for number in range(often)]
        for one in ones:
            clusters.end(one)
    return found


def _table(title: str, rows: list[Series]) -> Table:
    table = table_of(*rows)
    return Table((title, *table.header[1:]), table.rows)
