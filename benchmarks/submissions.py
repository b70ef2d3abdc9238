"""Many applications in a session: how fast they are acknowledged, and what ended ones cost."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.clusters import APPS
from benchmarks.figures import Chapter, Effort, Series, Table, duration, table_of
from tests.journeys import harness
from tests.journeys.sessions import Session
from understudy.api.client import ClusterClient

CLIENTS = 50
TICKS = os.sysconf("SC_CLK_TCK")
ENDED = {"FINISHED", "FAILED", "CANCELED"}
HALF_S = 0.5
WHOLE_S = 3600.0


@dataclass
class Found:
    """What one session has shown."""

    acknowledged: list[float] = field(default_factory=list)
    """How long each submission took until it was acknowledged as durable."""
    whole_s: float = 0.0
    """... and all of them together."""
    costs: list[tuple[int, int, float]] = field(default_factory=list)
    """After so many ended applications: the leader's memory in bytes, its processor time."""
    served_s: float = 0.0
    """From the kill of a leader with applications that wait until another one serves."""
    waiting: int = 0
    """How many waited then."""


def run(effort: Effort) -> Chapter:
    """Submit by fifty clients at once, kill the leader, and let all applications end."""
    count = effort.of(1000, 20)
    with _session() as session:
        found = asyncio.run(session.ask(lambda client: _measure(session, client, count)))
    series = Series("submission, acknowledged as durable", tuple(found.acknowledged))
    (before, memory, cpu), (after, memory_then, cpu_then) = found.costs[0], found.costs[-1]
    thousands = max(after - before, 1) / 1000
    rate = len(series.samples) / found.whole_s
    costs = Table(
        ("applications that have ended", "memory of the leader", "its processor time"),
        tuple((f"{n:,}", f"{size >> 20} MB", duration(cpu)) for n, size, cpu in found.costs),
    )
    return Chapter(
        "Many applications in a session",
        f"{CLIENTS} clients submit {count:,} applications without jobs at once, over REST, to a "
        "session of two JobManagers. Then the leader is killed, while most of them wait.",
        (table_of(series), costs),
        f"{rate:.0f} submissions a second are acknowledged; half of them within "
        f"{duration(series.median)}, 99 of 100 within {duration(series.quantile(0.99))}. With "
        f"{found.waiting:,} applications that wait, another leader serves "
        f"{duration(found.served_s)} after the kill. A thousand ended applications cost the leader "
        f"{(memory_then - memory) / thousands / (1 << 20):+.1f} MB of memory and "
        f"{duration((cpu_then - cpu) / thousands)} of processor time.",
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
    found = Found()
    artifact = str((await client.upload(APPS / "nothing.py"))["filename"]).rpartition("/")[2]
    clients = asyncio.Semaphore(CLIENTS)

    async def submit(number: int) -> None:
        async with clients:
            began = time.monotonic()
            await client.run_application(artifact, {"runId": f"run-{number}"})
            found.acknowledged.append(time.monotonic() - began)

    began = time.monotonic()
    await asyncio.gather(*(submit(number) for number in range(count)))
    found.whole_s = time.monotonic() - began
    await _take_over(client, found)
    await session.replace_the_dead()
    async with asyncio.timeout(WHOLE_S):
        while await _note_cost(client, found) < count:
            await asyncio.sleep(HALF_S)
    return found


async def _take_over(client: ClusterClient, found: Found) -> None:
    """Kill the leader, and wait until another one serves."""
    told = await client.get("/applications/overview", awaits_leader=True)
    found.waiting = sum(one["status"] not in ENDED for one in told["applications"])
    leader = (await client.get("/ha/status", awaits_leader=True))["leader"]["pid"]
    began = time.monotonic()
    os.kill(leader, 9)
    await client.get("/applications/overview", awaits_leader=True)
    found.served_s = time.monotonic() - began


async def _note_cost(client: ClusterClient, found: Found) -> int:
    """Return how many applications have ended; note now and then what the leader has used."""
    told = await client.get("/applications/overview", awaits_leader=True)
    ended = sum(one["status"] in ENDED for one in told["applications"])
    leader = (await client.get("/ha/status", awaits_leader=True))["leader"]["pid"]
    step = max(len(found.acknowledged) // 8, 1)
    if not found.costs or ended >= found.costs[-1][0] + step:
        found.costs.append((ended, _memory(leader), _processor_s(leader)))
    return ended


def _memory(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _processor_s(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICKS
