"""Many applications in a session of real processes, while somebody kills its leader on and on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.harness import lines
from tests.journeys.sessions import Session
from understudy.api.client import ClusterClient
from understudy.errors import UnderstudyError

pytestmark = [pytest.mark.filesystem, pytest.mark.local_storage]

JOBS = 5
ASKING = 8
"""Submissions at once."""

KILL_S = 5.0
"""How long a leader leads, at least, before it is killed."""

WHOLE_S = 1800.0


@pytest.fixture
def session(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """Return a session that runs, and end all its processes afterwards."""
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "state"))
    one = Session(place)
    try:
        one.start()
        yield one
    finally:
        harness.kill(harness.processes_of(place))


async def submit(client: ClusterClient, script: Path, place: Path, count: int) -> None:
    """Upload the script, and submit it so many times; each is asked for until acknowledged."""
    artifact = await client.upload(script)
    turn = asyncio.Semaphore(ASKING)

    async def one(number: int) -> None:
        async with turn:
            body = {"runId": f"run-{number}", "programArgsList": [str(place), str(number)]}
            await client.run_application(Path(artifact["filename"]).name, body)

    await asyncio.gather(*(one(number) for number in range(count)))


async def applications(client: ClusterClient) -> dict[str, str]:
    """Return the status of each application, as whoever leads tells."""
    told = await client.get("/applications/overview", awaits_leader=True)
    return {one["id"]: one["status"] for one in told["applications"]}


async def kill_leaders(session: Session, client: ClusterClient) -> int:
    """Kill the leader's worker again and again until cancelled; return how often."""
    killed = 0
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            await asyncio.sleep(KILL_S)
            with contextlib.suppress(UnderstudyError, OSError):
                told = await client.get("/ha/status", awaits_leader=True)
                os.kill(told["leader"]["pid"], 9)
                killed += 1
                await session.replace_the_dead()
    return killed


async def live(session: Session, client: ClusterClient, count: int) -> tuple[int, dict[str, str]]:
    """Submit, kill and wait until all have ended; return how often was killed, and how they did."""
    script = harness.put_app(session.place, "five.py")
    killing = asyncio.create_task(kill_leaders(session, client))
    async with asyncio.timeout(WHOLE_S):
        await submit(client, script, session.place, count)
        while len(found := await applications(client)) < count or not all(
            one in {"FINISHED", "FAILED", "CANCELED"} for one in found.values()
        ):
            await asyncio.sleep(0.5)
    killing.cancel()
    return await killing, found


def values(session: Session) -> Counter[str]:
    """Return the values of all jobs, as REST tells them."""

    async def asked(client: ClusterClient) -> Counter[str]:
        told = await client.get("/jobs/overview", awaits_leader=True)
        found: Counter[str] = Counter()
        for one in told["jobs"]:
            result = await client.get(f"/jobs/{one['jid']}/execution-result", awaits_leader=True)
            found[json.dumps(result)] += 1
        return found

    return asyncio.run(session.ask(asked))


@pytest.mark.parametrize("count", [6, pytest.param(100, marks=pytest.mark.long)])
def test_each_job_of_many_applications_runs_once_whoever_leads(
    session: Session, place: Path, count: int
) -> None:
    killed, found = asyncio.run(session.ask(lambda client: live(session, client, count)))
    jobs = lines(place, "jobs.txt")
    results = values(session)
    names = {f"{number}.{job}" for number in range(count) for job in range(JOBS)}

    assert killed > 0
    assert {"FINISHED"} == set(found.values())
    assert names == {line.split()[0] for line in jobs}
    assert len(names) == len(jobs), "each job once"
    assert all(sum(name in text for text in results) >= 1 for name in names)
    left = [path.name for path in (place / "state").rglob("applications/*")]
    assert [] == left
