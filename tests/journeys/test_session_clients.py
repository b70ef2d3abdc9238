"""What clients of a session ask for while its leaders die: it takes effect once, or is an error."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import random
import time
import zipfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.journeys import harness
from tests.journeys.harness import COMMAND, Run, command, lines
from tests.journeys.members import until
from tests.journeys.sessions import ENDED, Session, applications, running, session
from understudy.api.client import ClusterClient
from understudy.errors import (
    AlreadyEndedError,
    NoLeaderError,
    NotFoundError,
    UnderstudyError,
    UnreachableError,
)

__all__ = ["session"]

T = TypeVar("T")

LARGE_BYTES = 60 << 20
"""Nearly as much as an application may bring."""

MIDDLE = range(1 << 20, LARGE_BYTES - (4 << 20))
"""Of an upload in its middle, so much has been received."""

IMPATIENT = ("-D", "rest.await-leader-timeout=1 s")
"""A client that waits for no leader gets errors, and has to ask again."""


def received(pid: int) -> int:
    """Return the size of the largest file without a name that a process has open."""
    sizes = [0]
    with contextlib.suppress(OSError):
        for one in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(one.readlink()).endswith("(deleted)"):
                    sizes.append(one.stat().st_size)
    return max(sizes)


def kill_in_the_middle_of_an_upload(pids: set[int]) -> int:
    """Kill that one of the processes which receives a large file, in the middle; return it."""
    deadline = time.monotonic() + harness.PATIENCE_S
    while True:
        for pid in pids:
            if received(pid) in MIDDLE:
                os.kill(pid, 9)
                return pid
        assert time.monotonic() < deadline
        time.sleep(0.001)


def standbys_are_ready(place: Path) -> bool:
    told = json.loads(command(place, "session", "status", "--json", code=None).stdout)
    return any(one["ready"] for one in told["standbys"])


@pytest.mark.long  # Units: tests/api/test_client.py.
def test_an_upload_in_whose_middle_two_leaders_die_is_one_application(
    session: Session, place: Path
) -> None:
    script, data = harness.put_app(place, "carried.py"), random.Random(7).randbytes(LARGE_BYTES)
    with zipfile.ZipFile(place / "carries.zip", "w") as archive:
        archive.writestr("carries/__init__.py", "")
        archive.writestr("carries/data.bin", data)
    until(lambda: standbys_are_ready(place))
    jobmanagers = session.workers("jobmanager")
    words = ("run", "--json", "--py-files", "carries.zip", str(script))
    follower = Run([*COMMAND, *words], place, place / "followed.log")
    first = kill_in_the_middle_of_an_upload({*jobmanagers})
    second = kill_in_the_middle_of_an_upload({*jobmanagers} - {first})
    asyncio.run(session.replace_the_dead())
    code = follower.finish()
    found = asyncio.run(session.ask(applications))
    result = json.loads(command(place, "result", *found, "--json").stdout)
    uploads = asyncio.run(session.ask(removed))

    assert {first, second} == {*jobmanagers}
    assert 0 == code, follower.story()
    assert ["FINISHED"] == [*found.values()]
    assert ["digest 1"] == lines(place, "jobs.txt")
    (job,) = result["jobs"]
    assert hashlib.sha256(data).hexdigest() == job["job-execution-result"]["value"]
    assert ["carried.py", "carries.zip"] == uploads
    state = [path for path in (place / "state").rglob("*") if path.is_file()]
    assert [] == [path for path in state if path.stat().st_size > 1 << 20], "nothing is left"


async def removed(client: ClusterClient) -> list[str]:
    """Remove all artifacts, once no application needs them; return their names."""
    told = (await client.get("/artifacts", awaits_leader=True))["artifacts"]
    for one in told:
        async with asyncio.timeout(harness.PATIENCE_S):
            while True:
                with contextlib.suppress(UnderstudyError):  # Needed while it is cleaned up.
                    await client.delete(f"/artifacts/{one['id']}")
                    break
                await asyncio.sleep(0.1)
    return sorted(one["name"] for one in told)


class Client:
    """Uploads, submits, cancels or awaits, and removes; asks again what was not answered."""

    def __init__(self, place: Path, client: ClusterClient, number: int) -> None:
        self.name = f"run-{number}"
        self.application = ""
        self.unanswered = 0
        self._is_to_cancel = bool(number % 2)
        self._client = client
        self._place = place
        self._script = place / f"awaits_{number}.py"
        source = (place / "awaits.py").read_text()
        self._script.write_text(f"{source}# {number}\n")

    @property
    def ends_as(self) -> str:
        """Return the status that the application must get."""
        return "CANCELED" if self._is_to_cancel else "FINISHED"

    async def live(self) -> None:
        """Ask for everything, one thing after the other."""
        artifact = (await self._asked(lambda: self._client.upload(self._script)))["id"]
        ids = [await self._asked(lambda: self._submit(artifact)) for _ in range(2)]
        self.application = ids[0]
        assert ids[0] == ids[1], "asked again, it is the same application"
        if self._is_to_cancel:
            while not any(self.name == one.split()[0] for one in lines(self._place, "jobs.txt")):
                assert await self._status() not in ENDED
                await asyncio.sleep(0.2)
            await self._asked(lambda: self._client.post(f"/applications/{self.application}/cancel"))
        while (status := await self._status()) not in ENDED:
            await asyncio.sleep(0.2)
        assert self.ends_as == status
        assert self.application == await self._asked(lambda: self._submit(artifact))
        await self._asked(lambda: self._remove(artifact))

    async def _submit(self, artifact: str) -> str:
        awaited = ["never"] if self._is_to_cancel else []
        body = {"runId": self.name, "programArgsList": [str(self._place), self.name, *awaited]}
        try:
            return await self._client.run_application(artifact, body)
        except AlreadyEndedError as error:
            return error.application_id

    async def _status(self) -> str:
        path = f"/applications/{self.application}"
        return str((await self._asked(lambda: self._client.get(path)))["status"])

    async def _remove(self, artifact: str) -> None:
        with contextlib.suppress(NotFoundError):  # The answer to the first request was lost.
            await self._client.delete(f"/artifacts/{artifact}")

    async def _asked(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer; every other error than that there is none fails."""
        async with asyncio.timeout(harness.WHOLE_S):
            while True:
                try:
                    return await ask()
                except (NoLeaderError, UnreachableError):
                    self.unanswered += 1
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("count", [4, pytest.param(40, marks=pytest.mark.long)])
def test_what_clients_ask_for_takes_effect_once_while_leaders_die(
    place: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    harness.put_app(place, "awaits.py")

    async def story(client: ClusterClient) -> tuple[int, list[Client], dict[str, str], Any]:
        clients = [Client(place, client, number) for number in range(count)]
        killing = asyncio.create_task(impatient.kill_leaders(client))
        async with asyncio.timeout(harness.WHOLE_S), asyncio.TaskGroup() as group:
            for one in clients:
                group.create_task(one.live())
        killing.cancel()
        killed = await killing
        left = await client.get("/artifacts", awaits_leader=True)
        return killed, clients, await applications(client), left["artifacts"]

    with running(Session(place, *IMPATIENT), monkeypatch) as impatient:
        killed, clients, found, artifacts = asyncio.run(impatient.ask(story))
    jobs = lines(place, "jobs.txt")

    assert killed > 0
    assert {one.application: one.ends_as for one in clients} == found
    assert sorted(f"{one.name} 1" for one in clients) == sorted(jobs), "each job once"
    assert [] == artifacts
