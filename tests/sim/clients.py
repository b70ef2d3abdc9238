"""Clients that ask over REST: the shipped routes of every JobManager, over wires that may lose.

What a leader has told once stays told: jobs do not vanish, and what has ended stays as it ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
from starlette.applications import Starlette

from tests.sim.hosts import Host, SimProcess
from understudy.api.authentication import RestSecurity
from understudy.api.forwarder import FORWARD_S, Forwarder
from understudy.api.leading import Leading
from understudy.api.rest import Rest
from understudy.jobmanager.job_manager import JobManager
from understudy.model import JobId, JobStatus

if TYPE_CHECKING:
    from tests.sim.world import World

PATIENCE_S = 20.0
PAUSE_S = 6.0
LOST = 0.05
"""So many requests, and so many answers, do not arrive while there are faults."""

CANCELS = 0.01

EXPECTED = {200, 202, 404, 409, 503}

ENDED = {"FINISHED", "FAILED", "CANCELED"}


@dataclass(frozen=True)
class Answer:
    """What came back; the parts of an `httpx.Response` that are looked at."""

    status_code: int
    headers: dict[str, str]
    content: bytes

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Yield the body."""
        yield self.content


class Endpoint(Rest):
    """The shipped endpoint; what it hands on goes over simulated wires."""

    def __init__(self, world: World, process: SimProcess, manager: JobManager) -> None:
        self._manager = manager
        self._leading = Leading(manager)
        self._security = RestSecurity()
        self._forwarder = Forwarder(Wire(world, process.host))  # type: ignore[arg-type]


class Wire:
    """What `httpx.AsyncClient` is to an endpoint."""

    def __init__(self, world: World, host: Host) -> None:
        self._world = world
        self._host = host

    @contextlib.asynccontextmanager
    async def stream(
        self, method: str, url: str, *, headers: dict[str, str] | None = None, **_: object
    ) -> AsyncIterator[Answer]:
        """Ask; raises `httpx.HTTPError`."""
        name, slash, path = url.removeprefix("http://").partition("/")
        answer = await ask(self._world, self._host, name, (method, slash + path), headers or {})
        if answer is None:
            raise httpx.ConnectError(f"{name} does not answer")
        yield answer


async def ask(
    world: World, host: Host, name: str, what: tuple[str, str], headers: dict[str, str]
) -> Answer | None:
    """Ask the JobManager of that name; None where nothing comes back in time."""
    asking = asyncio.get_running_loop()
    answer: asyncio.Future[Answer | None] = asking.create_future()
    chance, latency_s = world.rest_chance, world.wire_s + 0.001

    def come_back(found: Answer) -> None:
        def arrive() -> None:
            if not answer.done():
                answer.set_result(found)

        if not (world.faulty and chance.random() < LOST):
            world.time.after(latency_s, arrive)

    def go() -> None:
        found = [one for one in world.roots if one.name == name and one.alive]
        cut = max((one.host.cut_until for one in found), default=0.0)
        lost = world.faulty and chance.random() < LOST
        if found and not lost and max(cut, host.cut_until) <= world.time.now:
            serving = _serve(world, found[0], what, headers)
            task = found[0].machine.spawn(serving)
            task.add_done_callback(
                lambda done: None if done.cancelled() else come_back(done.result())
            )

    world.time.after(latency_s, go)
    try:
        async with asyncio.timeout(FORWARD_S):
            return await answer
    except TimeoutError:
        return None


async def _serve(
    world: World, process: SimProcess, what: tuple[str, str], headers: dict[str, str]
) -> Answer:
    status, body = 500, b""
    fields: dict[str, str] = {}

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status, fields, body
        if message["type"] == "http.response.start":
            status = message["status"]
            fields = {key.decode(): value.decode() for key, value in message["headers"]}
        else:
            body += message.get("body", b"")

    method, path = what
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [
            (key.encode(), value.encode())
            for key, value in {"host": "localhost", **headers}.items()
        ],
    }
    try:
        await _application(world, process)(scope, receive, send)
    except Exception as error:  # As a server answers what a route lets through.
        world.tell(f"{process.name} answers {path} with {error!r}")
        return Answer(500, {}, repr(error).encode())
    return Answer(status, fields, body)


def _application(world: World, process: SimProcess) -> Starlette:
    found = world.rests.get(process.incarnation)
    if found is None:
        manager = world.managers[process.incarnation]
        found = world.rests[process.incarnation] = Endpoint(world, process, manager).application()
    return found


@dataclass
class Client:
    """One client: it asks anybody, again and again, and remembers what it was told."""

    world: World
    number: int
    term: int = 0
    statuses: dict[str, str] = field(default_factory=dict)
    values: dict[str, object] = field(default_factory=dict)
    completed: dict[str, int] = field(default_factory=dict)
    """How many checkpoints of each job it was told of."""

    def begin(self) -> None:
        """Start it, on a host of its own."""
        name = f"client-{self.number}"
        self.chance = random.Random(f"{name} {self.world.profile.seed}")
        self.asks = random.Random(f"{name} asks {self.world.profile.seed}")
        host = Host(self.world.time, name, 1.0, 0.0)
        self.process = SimProcess("client", name, host, self.world)
        self.world.live(self.process, self._live())

    async def _live(self) -> None:
        while True:
            await asyncio.sleep(self.chance.uniform(0, PAUSE_S))
            names = [one.name for one in self.world.roots if one.kind == "jm" and one.alive]
            if names:
                await self._ask(self.chance.choice(names))

    async def _ask(self, name: str) -> None:
        known = sorted(self.statuses)
        if known and self.chance.random() < 0.5:
            job = self.chance.choice(known)
            if self.world.faulty and self.chance.random() < CANCELS:
                self.world.tell(f"client-{self.number} cancels a job by {name}")
                self.world.watch.cancelled = True
                await self._get(name, f"/jobs/{job}", "PATCH")
            elif self.world.watch.kept.jobs and self.asks.random() < 0.5:
                await self._checkpoints(name, job)
            elif answer := await self._get(name, f"/jobs/{job}/execution-result"):
                self._result(job, answer)
        elif answer := await self._get(name, "/jobs/overview"):
            self._jobs(msgspec.json.decode(answer.content)["jobs"])

    async def _get(self, name: str, path: str, method: str = "GET") -> Answer | None:
        """Return an answer of the newest leader that was heard of."""
        world = self.world
        answer = await ask(world, self.process.host, name, (method, path), {})
        if answer is None or answer.status_code == 503:
            return None
        fine = answer.status_code in EXPECTED or world.person.spoilt
        self._demand(
            bool(fine), f"{path} is answered with {answer.status_code}: {answer.content!r}"
        )
        term = int(answer.headers.get("x-understudy-term", 0))
        if term < self.term or answer.status_code not in {200, 404}:
            return None
        self.term = term
        if answer.status_code == 404:
            self._demand(bool(world.person.spoilt), f"{path} is not found any more by {name}")
            return None
        return answer

    def _jobs(self, jobs: list[dict[str, Any]]) -> None:
        for job in jobs:
            before, now = self.statuses.get(job["jid"], ""), str(job["state"])
            self.statuses[job["jid"]] = now
            kept = before not in ENDED or before == now
            discarded = bool(self.world.profile.deployments)
            self._demand(kept or discarded, f"{job['name']} was {before}, and is {now}")

    async def _checkpoints(self, name: str, job: str) -> None:
        """Ask for a job's checkpoints: a newer leader knows of as many, until the job has ended."""
        watch, path = self.world.watch, f"/jobs/{job}/checkpoints"
        answer = await ask(self.world, self.process.host, name, ("GET", path), {})
        term = int(answer.headers.get("x-understudy-term", 0)) if answer else 0
        if answer is None or answer.status_code == 503 or self.world.person.spoilt:
            return
        if answer.status_code == 404:
            over = watch.jobs[JobId(job)].result or self.world.profile.deployments
            self._demand(bool(over), f"{path}: {answer.content!r}, and it goes on")
            return
        self._demand(answer.status_code == 200, f"{path}: {answer.status_code} {answer.content!r}")
        told = msgspec.json.decode(answer.content)
        completed = told["counts"]["completed"]
        self._demand(completed <= watch.kept.of(JobId(job)).counter, f"{path}: {completed}")
        last = told["latest"]["completed"]
        self._demand(bool(last) == (completed > 0), f"{path}: {completed}, and the last is {last}")
        if term >= self.term and not self.world.profile.deployments:
            before = self.completed.get(job, 0)
            self._demand(completed >= before, f"{path}: {completed} after {before}")
            self.term, self.completed[job] = term, completed
            watch.kept.counts["asked"] += 1

    def _result(self, job_id: str, answer: Answer) -> None:
        told = msgspec.json.decode(answer.content)
        if told["status"]["id"] != "COMPLETED" or self.world.profile.deployments:
            return
        result = told["job-execution-result"]
        stored = self.world.watch.jobs[JobId(job_id)].result
        if stored and stored.status is JobStatus.FINISHED and not self.world.person.spoilt:
            expected = {result["name"]: result["attempt"]}
            self._demand(result.get("value") == expected, f"{result['name']}: {result} is told")

    def _demand(self, holds: bool, text: str) -> None:
        self.world.watch.demand(holds, f"client-{self.number}: {text}")
