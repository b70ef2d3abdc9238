"""Applications that use more than they may, in a session: each ends named, the others go on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journeys import harness
from tests.journeys.harness import lines
from tests.journeys.sessions import ENDED, Session, leader_of, running
from understudy.api.client import ClusterClient

pytestmark = [pytest.mark.filesystem, pytest.mark.local_storage]

LOG_BYTES = 1 << 20
NAMED = {
    "grows": "jobmanager.application-process.max-memory",
    "forks": "jobmanager.application-process.max-processes",
    "submits": "application.max-jobs",
    "exits": "exited with code 3",
}
"""Who fails, and what the failure names."""

OFTEN = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "999",
    "restart-strategy.fixed-delay.delay": "1 ms",
}

WHOLE_S = 1800.0

Hostile = dict[str, tuple[list[str], dict[str, str]]]
"""Arguments and settings of applications, by name."""

SETTINGS = (
    *("-D", "jobmanager.application-process.max-memory=300 mb"),
    *("-D", "jobmanager.application-process.max-processes=40"),
    *("-D", "application.max-jobs=9"),
    *("-D", f"env.log.max-size={LOG_BYTES} b"),
)


@pytest.fixture
def session(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """Return a session with low limits, and end all its processes afterwards."""
    with running(Session(place, *SETTINGS), monkeypatch) as one:
        yield one


async def submit(session: Session, client: ClusterClient, hostile: Hostile) -> dict[str, str]:
    """Submit hostile applications, one without an end and a good one; return their ids."""
    place, ids = session.place, {}
    scripts = [(name, "hostile.py", *one) for name, one in hostile.items()]
    scripts += [("endless", "hostile.py", ["endless"], {})]
    scripts += [("good", "five.py", [str(place), "1"], {})]
    for name, script, arguments, settings in scripts:
        artifact = await client.upload(harness.put_app(place, script))
        body = {"runId": name, "programArgsList": arguments, "flinkConfiguration": settings}
        ids[name] = await client.run_application(Path(artifact["filename"]).name, body)
    return ids


async def live(
    session: Session, client: ClusterClient, hostile: Hostile
) -> dict[str, dict[str, Any]]:
    """Submit applications; return what each is once it has ended, the endless one by a cancel."""
    ids = await submit(session, client, hostile)
    found: dict[str, dict[str, Any]] = {}
    async with asyncio.timeout(WHOLE_S):
        while len(found) < len(ids):
            for name in ids.keys() - found.keys():
                told = await client.get(f"/applications/{ids[name]}", awaits_leader=True)
                if told["status"] in ENDED:
                    found[name] = told
            if ids.keys() - found.keys() == {"endless"}:
                await client.post(f"/applications/{ids['endless']}/cancel")
            await asyncio.sleep(0.5)
    return found


def judged(session: Session, hostile: Hostile) -> dict[str, dict[str, Any]]:
    """Let them live; check that the leader and the good one do, and return what the others are."""
    before = asyncio.run(session.ask(leader_of))
    found = asyncio.run(session.ask(lambda client: live(session, client, hostile)))
    after = asyncio.run(session.ask(leader_of))
    logs = [path for path in (session.place / "state").rglob("*.log*") if path.is_file()]

    assert before == after
    assert "FINISHED" == found["good"]["status"]
    assert 5 == len(lines(session.place, "jobs.txt"))
    assert "CANCELED" == found["endless"]["status"]
    assert max(path.stat().st_size for path in logs) < 2 * LOG_BYTES
    return found


def test_hostile_applications_end_named_and_the_others_and_the_leader_go_on(
    session: Session,
) -> None:
    hostile: Hostile = {name: ([name], {}) for name in NAMED}
    hostile |= {"prints": (["prints", "1_000_000"], {}), "submits": (["submits", "100"], {})}
    found = judged(session, hostile)

    assert "FINISHED" == found["prints"]["status"]
    for name, option in NAMED.items():
        assert "FAILED" == found[name]["status"], name
        assert option in str(found[name]["failure"]), name


@pytest.mark.long
def test_a_gigabyte_of_output_a_thousand_deaths_and_ten_thousand_jobs_harm_nobody_else(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile: Hostile = {
        "prints": (["prints", "8_000_000"], {}),
        "dies": (["dies"], OFTEN),
        "submits": (["submits", "10_000"], {}),
    }
    with running(Session(place, "-D", f"env.log.max-size={LOG_BYTES} b"), monkeypatch) as session:
        found = judged(session, hostile)

    assert "FINISHED" == found["prints"]["status"]
    assert "FINISHED" == found["submits"]["status"]
    assert 10_000 == len(found["submits"]["jobs"])
    assert "FAILED" == found["dies"]["status"]
    assert "killed by signal 9" in str(found["dies"]["failure"])
