"""Many applications in a session: how fast they are acknowledged, and what ended ones cost."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import submissions_flink
from benchmarks.clusters import APPS
from benchmarks.figures import Chapter, Effort, Table, duration, ratio
from benchmarks.submitting import CLIENTS, ENDED, WATCHED_S, Found
from tests.journeys import harness
from tests.journeys.sessions import Session
from understudy.api.client import ClusterClient

OURS = "Understudy"


def run(effort: Effort) -> Chapter:
    """Submit by fifty clients at once, kill the leader, let all end; then the same to Flink."""
    count = effort.of(1000, 20)
    with _session() as session:
        ours = asyncio.run(session.ask(lambda client: _measure(session, client, count)))
    print(f"         {_found(ours)}", flush=True)
    theirs = submissions_flink.run(count)
    both = [ours] if isinstance(theirs, str) else [ours, theirs]
    return Chapter(
        "Many applications in a session",
        _told(count),
        (_submissions(both), _takeovers(both), *map(_costs, both)),
        " ".join([_found(ours), theirs if isinstance(theirs, str) else _beside(ours, theirs)]),
    )


def _told(count: int) -> str:
    return (
        f"{CLIENTS} clients submit {count:,} applications at once, over REST, each the next one "
        "when the last is acknowledged. Then the leader is killed, while applications wait; "
        "*serves* means that another JobManager shows all of them. Afterwards they run to their "
        f"end, or for {WATCHED_S:.0f} s; memory (resident) and processor time of the new leader "
        "are noted meanwhile.\n\n"
        "Here: `POST /artifacts/:id/run-application` to a session of two JobManagers and a "
        "TaskManager with its data in files. An application is a script that does nothing: one "
        "process of `main`, one job in a driver process of its own. They begin at once, so some "
        "have ended before the kill; the standby learns of the death at once, as it is on the same "
        "host. Flink: `POST /jars/:id/run` to a session cluster of two JobManagers (1 GiB of "
        "heap), high availability by one ZooKeeper with fsync and a session timeout of 10 s, which "
        "a takeover has to wait for. There `main` runs in the JobManager before the answer, and "
        "submits one batch job of one record, whose tasks are threads; the TaskManager, with four "
        "slots as here, is started after the takeover: until then all wait."
    )


def _submissions(found: list[Found]) -> Table:
    rows = []
    for one in found:
        series = one.series
        told = (series.median, series.quantile(0.99), max(series.samples))
        rows.append((one.system, str(len(series.samples)), f"{one.rate:.1f}", *map(duration, told)))
    header = ("acknowledged as durable", "n", "in a second", "p50", "p99", "max")
    return Table(header, tuple(rows))


def _takeovers(found: list[Found]) -> Table:
    header = ("takeover", "applications that wait", "until another JobManager serves")
    rows = ((one.system, f"{one.waiting:,}", duration(one.served_s)) for one in found)
    return Table(header, tuple(rows))


def _costs(one: Found) -> Table:
    header = (f"{one.system}: applications that have ended", "memory", "processor time")
    rows = (
        (f"{cost.ended:,}", f"{cost.memory >> 20} MB", duration(cost.processor_s))
        for cost in one.costs
    )
    return Table(header, tuple(rows))


def _found(one: Found) -> str:
    series = one.series
    memory, processor_s = one.per_thousand()
    return (
        f"{one.system} acknowledges {one.rate:.0f} submissions a second, half of them within "
        f"{duration(series.median)}, 99 of 100 within {duration(series.quantile(0.99))}; with "
        f"{one.waiting:,} applications that wait another leader serves {duration(one.served_s)} "
        f"after the kill; a thousand ended applications cost the leader {memory:+.1f} MB of memory "
        f"and {duration(processor_s)} of processor time."
    )


def _beside(ours: Found, theirs: Found) -> str:
    return (
        f"{_found(theirs)} {OURS} acknowledges {ratio(ours.rate, theirs.rate)} as many in a second."
    )


@contextmanager
def _session() -> Iterator[Session]:
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as name:
        place = Path(name)
        os.environ["XDG_STATE_HOME"] = str(place / "state")
        session = Session(place)
        try:
            session.start()
            yield session
        finally:
            harness.kill(harness.processes_of(place))
            del os.environ["XDG_STATE_HOME"]


async def _measure(session: Session, client: ClusterClient, count: int) -> Found:
    found = Found(OURS)
    artifact = str((await client.upload(APPS / "nothing.py"))["filename"]).rpartition("/")[2]
    await found.submit_all(
        count, lambda number: client.run_application(artifact, {"runId": f"run-{number}"})
    )
    await _take_over(client, found)
    await session.replace_the_dead()

    async def look() -> tuple[int, int]:
        return sum(await _ended(client)), await _leader(client)

    await found.note_costs(count, look)
    return found


async def _take_over(client: ClusterClient, found: Found) -> None:
    """Kill the leader, and wait until another one serves."""
    before = await _ended(client)
    leader = await _leader(client)
    began = time.monotonic()
    os.kill(leader, 9)
    after = await _ended(client)
    found.served_s = time.monotonic() - began
    assert len(before) == len(after), "the next leader does not show all"
    found.waiting = before.count(False)


async def _ended(client: ClusterClient) -> list[bool]:
    """Return of each application whether it has ended."""
    told = await client.get("/applications/overview", awaits_leader=True)
    return [one["status"] in ENDED for one in told["applications"]]


async def _leader(client: ClusterClient) -> int:
    return int((await client.get("/ha/status", awaits_leader=True))["leader"]["pid"])
