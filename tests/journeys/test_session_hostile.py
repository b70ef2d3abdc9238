"""Applications that use more than they may, in a session: each ends named, the others go on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journeys import harness
from tests.journeys.harness import lines
from tests.journeys.sessions import Session
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

SETTINGS = (
    *("-D", "jobmanager.application-process.max-memory=300 mb"),
    *("-D", "jobmanager.application-process.max-processes=40"),
    *("-D", "application.max-jobs=9"),
    *("-D", f"env.log.max-size={LOG_BYTES} b"),
)


@pytest.fixture
def session(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """Return a session with low limits, and end all its processes afterwards."""
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "state"))
    one = Session(place, *SETTINGS)
    try:
        one.start()
        yield one
    finally:
        harness.kill(harness.processes_of(place))


async def live(session: Session, client: ClusterClient) -> dict[str, dict[str, Any]]:
    """Submit hostile applications and a good one; return what each is once all have ended."""
    place, ids = session.place, {}
    for script, arguments in (
        *(("hostile.py", [how]) for how in ("prints", *NAMED)),
        ("five.py", [str(place), "1"]),
    ):
        artifact = await client.upload(harness.put_app(place, script))
        name = arguments[0] if script == "hostile.py" else "good"
        body = {"runId": name, "programArgsList": arguments}
        ids[name] = await client.run_application(Path(artifact["filename"]).name, body)
    found: dict[str, dict[str, Any]] = {}
    async with asyncio.timeout(harness.WHOLE_S):
        while len(found) < len(ids):
            for name in ids.keys() - found.keys():
                told = await client.get(f"/applications/{ids[name]}", awaits_leader=True)
                if told["status"] in {"FINISHED", "FAILED", "CANCELED"}:
                    found[name] = told
            await asyncio.sleep(0.5)
    return found


def test_hostile_applications_end_named_and_the_others_and_the_leader_go_on(
    session: Session, place: Path
) -> None:
    async def leader(client: ClusterClient) -> int:
        told = await client.get("/ha/status", awaits_leader=True)
        return int(told["leader"]["pid"])

    before = asyncio.run(session.ask(leader))
    found = asyncio.run(session.ask(lambda client: live(session, client)))
    after = asyncio.run(session.ask(leader))
    logs = [path for path in (place / "state").rglob("*.log*") if path.is_file()]

    assert before == after
    assert "FINISHED" == found["good"]["status"]
    assert 5 == len(lines(place, "jobs.txt"))
    assert "FINISHED" == found["prints"]["status"]
    assert max(path.stat().st_size for path in logs) < 2 * LOG_BYTES
    for name, option in NAMED.items():
        assert "FAILED" == found[name]["status"], name
        assert option in str(found[name]["failure"]), name
