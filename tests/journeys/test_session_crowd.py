"""Many applications in a session of real processes, while somebody kills its leader on and on."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.harness import lines
from tests.journeys.sessions import ENDED, Session, applications, running, session
from understudy.api.client import ClusterClient
from understudy.api.ended import LISTED_MAX

__all__ = ["session"]

pytestmark = pytest.mark.local_storage

JOBS = 5
ASKING = 8
"""Submissions at once."""

SPARK = 25
"""Of so many applications, one has a job that computes with Spark, where any has."""

FIRST = LISTED_MAX + 20
"""So many applications fill what a leader keeps of those that ended last."""

GROWTH_BYTES_MAX = 4 << 20
"""How much a JobManager may grow by 40 more: before the bound, they take 7 MB."""

WHOLE_S = 1800.0


async def submit(
    client: ClusterClient, script: Path, place: Path, numbers: range, spark: int = 0
) -> None:
    """Upload the script, and submit it once a number; each is asked for until acknowledged."""
    artifact = await client.upload(script)
    turn = asyncio.Semaphore(ASKING)

    async def one(number: int) -> None:
        async with turn:
            more = ["spark"] if spark and number % spark == 0 else []
            body = {
                "runId": f"run-{number}",
                "programArgsList": [str(place), str(number), *more],
            }
            await client.run_application(Path(artifact["filename"]).name, body)

    await asyncio.gather(*(one(number) for number in numbers))


async def ended(client: ClusterClient, count: int) -> dict[str, str]:
    """Wait until so many applications have ended; return how."""
    async with asyncio.timeout(WHOLE_S):
        while len(found := await applications(client)) < count or not ENDED.issuperset(
            found.values()
        ):
            await asyncio.sleep(0.5)
    return found


async def live(
    session: Session, client: ClusterClient, count: int, taskmanagers: int, spark: int
) -> tuple[int, dict[str, str]]:
    """Submit, kill and wait until all have ended; return how often was killed, and how they did."""
    script = harness.put_app(session.place, "five.py")
    killing = asyncio.create_task(session.kill_leaders(client, taskmanagers=taskmanagers))
    await submit(client, script, session.place, range(count), spark)
    found = await ended(client, count)
    killing.cancel()
    return await killing, found


def values(session: Session) -> Counter[str]:
    """Return the values of all jobs, as REST tells them."""

    async def asked(client: ClusterClient) -> Counter[str]:
        told = await client.get("/jobs/overview", awaits_leader=True)
        found: Counter[str] = Counter()
        for one in told["jobs"]:
            result = await client.get(f"/jobs/{one['jid']}/execution-result", awaits_leader=True)
            found[json.dumps(result["job-execution-result"]["value"])] += 1
        return found

    return asyncio.run(session.ask(asked))


@pytest.mark.parametrize(
    ("count", "taskmanagers", "spark"),
    [
        (6, 0, 0),
        pytest.param(100, 0, SPARK, marks=[pytest.mark.long, pytest.mark.spark], id="leaders"),
        pytest.param(100, 3, 0, marks=pytest.mark.long, id="leaders-and-taskmanagers"),
    ],
)
def test_each_job_of_many_applications_runs_once_whoever_leads(
    place: Path, monkeypatch: pytest.MonkeyPatch, count: int, taskmanagers: int, spark: int
) -> None:
    """A TaskManager's death ends the attempts there: each is followed by another attempt."""
    with running(Session(place, taskmanagers=2 if taskmanagers else 1), monkeypatch) as session:
        killed, found = asyncio.run(
            session.ask(lambda client: live(session, client, count, taskmanagers, spark))
        )
        results = values(session)
    jobs = lines(place, "jobs.txt")
    names = {f"{number}.{job}" for number in range(count) for job in range(JOBS)}

    assert killed > 0
    assert {"FINISHED"} == set(found.values())
    assert names == {line.split()[0] for line in jobs}
    assert len(set(jobs)) == len(jobs), "each attempt once"
    assert taskmanagers or len(names) == len(jobs), "each job once"
    assert {json.dumps(name): 1 for name in names} == results
    left = [path.name for path in (place / "state").rglob("applications/*")]
    assert [] == left


@pytest.mark.long
def test_jobmanagers_do_not_grow_with_the_applications_that_have_ended(session: Session) -> None:
    place, script = session.place, harness.put_app(session.place, "five.py")

    async def grown(client: ClusterClient) -> dict[int, int]:
        await submit(client, script, place, range(FIRST))
        await ended(client, FIRST)
        before = sizes(session)
        await submit(client, script, place, range(FIRST, FIRST + 40))
        await ended(client, FIRST + 40)
        return {pid: size - before[pid] for pid, size in sizes(session).items()}

    found = asyncio.run(session.ask(grown))

    assert 2 == len(found)
    assert max(found.values()) < GROWTH_BYTES_MAX, found


def sizes(session: Session) -> dict[int, int]:
    """Return the memory of each JobManager in bytes, shared pages left out."""
    found = {}
    for pid in session.workers("jobmanager"):
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        kept = [line.split() for line in rollup if line.startswith("Private_")]
        found[pid] = sum(int(words[1]) for words in kept) << 10
    return found
