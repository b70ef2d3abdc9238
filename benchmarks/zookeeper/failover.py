"""How long it takes until the next leader answers and the job runs, and how the work goes on."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

from benchmarks import charts
from benchmarks.figures import Chapter, Effort, Table, duration, ratio, table_of
from benchmarks.zookeeper import flink, moments, ours, spark_master
from benchmarks.zookeeper.moments import Failover
from tests.support.zookeeper import Server

IMAGE = "failover.png"
TWO_SECONDS = {"high-availability.zookeeper.client.session-timeout": "2 s"}
KILL, TERM = signal.SIGKILL, signal.SIGTERM

WORK = (
    "Work in flight",
    "failovers",
    "executed anew",
    "steps done again (median)",
    "pause between steps (median)",
    "longest",
)


@dataclass(frozen=True)
class Row:
    """One kind of death in one system."""

    system: str
    death: str
    failovers: list[Failover]

    @property
    def name(self) -> str:
        """Return how tables and charts call it."""
        return f"{self.system}, {self.death}"


def run(effort: Effort, server: Server, place: Path) -> Chapter:
    """Measure all of it on one server, the systems one after the other."""
    rows = [*_ours(effort, server, place), *_others(effort, server, place)]
    for row in rows:
        median = moments.series(row.name, row.failovers, "runs").median
        print(f"         {row.name}: {duration(median)}", flush=True)
    runs = [moments.series(row.name, row.failovers, "runs") for row in rows]
    answers = [moments.series(row.name, row.failovers, "answers") for row in rows]
    title = "From the signal until the job is adopted, or runs again"
    chart = charts.distributions(effort.images / IMAGE, title, runs, logarithmic=True)
    return Chapter(
        "Failover, side by side",
        _told(server),
        (
            _named("the job runs: adopted, or deployed again", table_of(*runs)),
            _named("the new leader answers", table_of(*answers)),
            _compared(rows),
            Table(WORK, tuple(map(_work, rows))),
        ),
        _found(rows),
        chart,
    )


def _ours(effort: Effort, server: Server, place: Path) -> list[Row]:
    often, quorum = effort.of(20, 2), server.connect_string

    def failovers(
        name: str, kinds: dict[signal.Signals | str, int], options: dict[str, str], how: str = ""
    ) -> dict[signal.Signals | str, list[Failover]]:
        there = ours.on_zookeeper(place / name, quorum)
        return ours.failovers(place / name, kinds, {**there, **options}, how)

    by_default = failovers("ours", {KILL: often, TERM: often}, ours.SESSION_LESS)
    quick = {**ours.SESSION_LESS, **TWO_SECONDS}
    at_two = failovers("ours-2s", {KILL: often, TERM: often, ours.HOST: often}, quick)
    on_spark = failovers("ours-spark", {KILL: effort.of(5, 1)}, ours.ON_SPARK, "spark")
    return [
        Row("Understudy", "SIGKILL, defaults (20 s)", by_default[KILL]),
        Row("Understudy on Spark", "SIGKILL, defaults (20 s)", on_spark[KILL]),
        Row("Understudy", "SIGKILL, session 2 s", at_two[KILL]),
        Row("Understudy", "SIGTERM, defaults (20 s)", by_default[TERM]),
        Row("Understudy", "SIGTERM, session 2 s", at_two[TERM]),
        Row("Understudy", "loss of host, session 2 s", at_two[ours.HOST]),
    ]


def _others(effort: Effort, server: Server, place: Path) -> list[Row]:
    quorum, often, seldom = server.connect_string, effort.of(10, 2), effort.of(3, 1)
    at_two = flink.failovers(place / "flink-2s", quorum, {KILL: often, TERM: often}, **TWO_SECONDS)
    by_default = flink.failovers(place / "flink", quorum, {KILL: seldom})
    masters = spark_master.failovers(place / "spark", quorum, effort.of(2, 1))
    return [
        Row("Flink", "SIGKILL, session 2 s", at_two[KILL]),
        Row("Flink", "SIGTERM, session 2 s", at_two[TERM]),
        Row("Flink", "SIGKILL, defaults (60 s)", by_default[KILL]),
        Row("Spark's Master", "SIGKILL, defaults (60 s)", masters),
    ]


PAIRS = (
    ("SIGKILL, defaults", ("Understudy", "SIGKILL, defaults (20 s)"), "SIGKILL, defaults (60 s)"),
    ("SIGKILL, session 2 s", ("Understudy", "SIGKILL, session 2 s"), "SIGKILL, session 2 s"),
    ("SIGTERM, session 2 s", ("Understudy", "SIGTERM, session 2 s"), "SIGTERM, session 2 s"),
    ("loss of host, session 2 s", ("Understudy", "loss of host, session 2 s"), None),
)
"""Which of our rows stands against which of theirs; to Flink a lost host is a killed leader."""


def _compared(rows: list[Row]) -> Table:
    lines = []
    for title, (system, death), theirs in PAIRS:
        mine = _median(rows, system, death)
        other = _median(rows, "Flink", theirs or "SIGKILL, session 2 s")
        lines.append((title, duration(mine), duration(other), ratio(other, mine)))
    mine = _median(rows, "Understudy", "SIGKILL, defaults (20 s)")
    master = _median(rows, "Spark's Master", "SIGKILL, defaults (60 s)")
    against = "SIGKILL, defaults, against Spark's Master"
    lines.append((against, duration(mine), duration(master), ratio(master, mine)))
    return Table(("medians until the job runs", "Understudy", "the other", "that is"), tuple(lines))


def _median(rows: list[Row], system: str, death: str) -> float:
    [row] = [one for one in rows if (one.system, one.death) == (system, death)]
    return moments.series("", row.failovers, "runs").median


def _work(row: Row) -> tuple[str, ...]:
    again = moments.series("", row.failovers, "again")
    pause = moments.series("", row.failovers, "pause")
    anew = sum(one.anew for one in row.failovers)
    return (
        row.name,
        str(len(row.failovers)),
        str(anew),
        f"{again.median:.0f}",
        duration(pause.median),
        duration(max(pause.samples)),
    )


def _named(title: str, table: Table) -> Table:
    return Table((title, *table.header[1:]), table.rows)


def _found(rows: list[Row]) -> str:
    default = _median(rows, "Understudy", "SIGKILL, defaults (20 s)")
    theirs = _median(rows, "Flink", "SIGKILL, defaults (60 s)")
    two = _median(rows, "Understudy", "SIGKILL, session 2 s")
    graceful = _median(rows, "Understudy", "SIGTERM, session 2 s")
    host = _median(rows, "Understudy", "loss of host, session 2 s")
    flink_two = _median(rows, "Flink", "SIGKILL, session 2 s")
    flink_graceful = _median(rows, "Flink", "SIGTERM, session 2 s")
    again = sum(one.anew for row in rows if "Under" in row.system for one in row.failovers)
    often = sum(len(row.failovers) for row in rows if "Under" in row.system)
    return (
        f"After `kill -9` of the leader the job is adopted within {duration(default)} with "
        f"defaults (Flink: {duration(theirs)} until it runs again) and {duration(two)} at a "
        f"session timeout of 2 s (Flink: {duration(flink_two)}); after SIGTERM within "
        f"{duration(graceful)} (Flink: {duration(flink_graceful)}); after the loss of a host at "
        f"2 s within {duration(host)}. Of {often} failovers here {again or 'none'} executed the "
        "job anew."
    )


def _told(server: Server) -> str:
    version = server.serving()
    assert version is not None, "the server does not serve"
    return (
        f"One ZooKeeper {version.version} server on loopback (tickTime 500 ms, sessions from 1 s "
        "to 60 s, fsync on) serves all. Each system has two JobManagers (Masters) and one "
        "TaskManager (Worker), and one job in flight that notes numbered steps: here a Python "
        "function, a step each 20 ms, once with real Spark; in Flink a keyed count of 1000 records "
        "a second in checkpointed state (1 s, to local disk), each twentieth a step; at Spark's "
        "Master a PySpark driver in client mode, each small job a step. The leader is ended as "
        "soon as the standby is ready (Flink: after three more checkpoints), then started again as "
        "the standby. The standby is asked over REST every 10 ms (Spark: its web page's JSON); "
        "what it hands on from the old leader does not count. *Runs* means: the new leader says "
        "RUNNING, of the adopted job (here), of all tasks deployed again (Flink), or that it and "
        "the Worker are ALIVE (Spark).\n\n"
        "*Loss of host*: guardian and worker are killed together, so that nobody is left to end "
        "the session; to Flink and Spark that is no other thing than SIGKILL of the leader. Each "
        "of our processes has an `io.tmp.dirs` of its own in all rows: the liveness lock, which "
        "tells a standby on the same host of a death at once, is out of reach, as on other hosts. "
        "*Executed anew* counts the failovers after which another execution of the job did the "
        "steps (here another attempt number, in Flink a task that was opened again from a "
        "checkpoint); *steps done again* had been done before the death, or, in Flink, by the old "
        "task that went on until the new leader came. "
        "A driver at Spark's Master goes on as ours does: the Master is not on its way; but it is "
        "restarted by nobody when it dies itself."
    )
