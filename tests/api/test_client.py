"""How a command finds the leader, in virtual time: whom it waits for, and how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, cast

import httpx
import pytest
from msgspec.structs import replace

from tests.support.memory_storage import MemoryStorage
from tests.support.virtual_time import run_virtual
from understudy.api import answers, own_headers
from understudy.api.authentication import RestSecurity
from understudy.api.client import QUICK_S, ClusterClient
from understudy.errors import (
    AlreadyEndedError,
    DifferentRequestError,
    NoLeaderError,
    NotFoundError,
    UsageError,
)
from understudy.ha.backends.embedded import EmbeddedRegister
from understudy.ha.register import Entry, Latch, Register
from understudy.ha.retrieval import LEADER_KEY, encode_leader
from understudy.ha.services import HighAvailabilityServices, Locations
from understudy.ha.storage import InlineStorage
from understudy.model import ApplicationId, Incarnation, LeaderRecord, RegistryLink, RunId

AWAIT_S = 30.0
FAILOVER_S = 20.0
"""As long as a session may live on whose owner is dead."""

TICK_S = 0.5
"""More than a pause between two looks."""

APPLICATION = ApplicationId("a" * 32)


@dataclass(frozen=True)
class Network(RestSecurity):
    """JobManagers by their address: those that are up answer, the others refuse."""

    up: dict[str, str] = field(default_factory=dict)
    """Address and incarnation."""
    electing: set[str] = field(default_factory=set)
    """Addresses at which somebody answers that nobody leads."""

    def client(self, timeout: httpx.Timeout | float) -> httpx.AsyncClient:
        """See `RestSecurity.client`."""
        return httpx.AsyncClient(transport=httpx.MockTransport(self._answer))

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        holder = self.up.get(f"{request.url.scheme}://{request.url.host}")
        if holder is None:
            raise httpx.ConnectError("Connection refused")
        code = 503 if holder in self.electing else 200
        body = {"errors": [answers.ELECTION]} if code == 503 else {"by": holder}
        return httpx.Response(code, json=body, headers={own_headers.GIVEN_BY: holder})


@dataclass
class Lined:
    """A register whose backend keeps a line; see `HasLatch`."""

    inner: EmbeddedRegister
    standing: list[str]

    async def load(self, key: str) -> Entry | None:
        """See `Register.load`."""
        return await self.inner.load(key)

    async def swap(self, key: str, value: bytes | None, expected: str | None) -> str:
        """See `Register.swap`."""
        return await self.inner.swap(key, value, expected)

    async def keys(self, prefix: str) -> list[str]:
        """See `Register.keys`."""
        return await self.inner.keys(prefix)

    def changes(self, key: str) -> AsyncIterator[None]:
        """See `Register.changes`."""
        return self.inner.changes(key)

    def latch(self, me: str, note: bytes) -> Latch:
        """See `HasLatch.latch`: nobody stands in it here."""
        raise NotImplementedError

    async def line(self) -> list[str]:
        """See `HasLatch.line`."""
        return list(self.standing)


class World:
    """One cluster, and a command that asks it."""

    def __init__(self, standing: list[str] | None = None) -> None:
        inner = EmbeddedRegister()
        register: Register = inner if standing is None else Lined(inner, standing)
        storage = InlineStorage(MemoryStorage(), 5.0)
        locations = Locations("c", "jobs", "apps")
        self.services = HighAvailabilityServices(register, storage, "flights", locations)
        self.network = Network()
        self.told: list[str] = []
        self.client = ClusterClient(
            self.services, 60.0, self.network, await_leader_s=AWAIT_S, notify=self.told.append
        )

    async def begin(self, *, unfinished: bool = True) -> None:
        """Let there be a registry, of a run that goes on."""
        await self.services.registry.claim(1, ephemeral=False, anew=True)
        if unfinished:
            link = RegistryLink(document="application-1", run_id=RunId("run-1"))
            await self.services.registry.link(1, APPLICATION, link)

    async def publish(self, record: LeaderRecord) -> None:
        """Write the leader's record."""
        entry = await self.services.register.load(LEADER_KEY)
        version = entry.version if entry else None
        await self.services.register.swap(LEADER_KEY, encode_leader(record), version)

    def later(self, act: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Do something when a failover is over."""

        async def work() -> None:
            await asyncio.sleep(FAILOVER_S)
            await act()

        return asyncio.create_task(work())


def leader(name: str, term: int) -> LeaderRecord:
    """Return the record of who leads, at an address of its own."""
    at = f"http://{name}.example"
    return LeaderRecord(
        holder=Incarnation(name), term=term, session="", name=name, rest=at, rpc="unix:x"
    )


DEAD, NEXT = leader("dead", 1), leader("next", 2)
VACANT = replace(DEAD, holder=Incarnation(""), rest="", rpc="")

Act = Callable[[ClusterClient], Awaitable[Any]]

MUST_REACH: dict[str, Act] = {
    "POST": lambda client: client.post("/applications/a/cancel"),
    "PATCH": lambda client: client.patch("/jobs/a"),
    "a GET that nothing else answers": lambda client: client.get("/jobs/a", awaits_leader=True),
}


async def timed(work: Awaitable[Any]) -> tuple[float, Any]:
    """Return how long something took, and its answer or the error."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        answer = await work
    except NoLeaderError as error:
        answer = error
    return loop.time() - began, answer


@pytest.mark.parametrize("act", MUST_REACH.values(), ids=MUST_REACH)
@pytest.mark.parametrize("left", [DEAD, VACANT], ids=["killed", "released"])
@pytest.mark.parametrize("standing", [None, ["dead", "next"]], ids=["lease", "line"])
def test_what_must_reach_a_leader_waits_for_the_next_one(
    act: Act, left: LeaderRecord, standing: list[str] | None
) -> None:
    async def story() -> tuple[float, Any, list[str]]:
        world = World(standing)
        await world.begin()
        await world.publish(left)

        async def take_over() -> None:
            world.network.up["http://next.example"] = "next"
            await world.publish(NEXT)

        following = world.later(take_over)
        took, answer = await timed(act(world.client))
        await following
        return took, answer, world.told

    took, answer, told = run_virtual(story())

    assert {"by": "next"} == answer
    assert FAILOVER_S <= took <= FAILOVER_S + TICK_S
    (line,) = told
    assert "rest.await-leader-timeout" in line


def test_a_leader_that_is_not_elected_yet_is_waited_for() -> None:
    async def story() -> tuple[float, Any]:
        world = World()
        await world.begin()
        await world.publish(NEXT)
        world.network.up["http://next.example"] = "next"
        world.network.electing.add("next")

        async def lead() -> None:
            world.network.electing.clear()

        following = world.later(lead)
        told = await timed(world.client.post("/x"))
        await following
        return told

    took, answer = run_virtual(story())

    assert {"by": "next"} == answer
    assert FAILOVER_S <= took <= FAILOVER_S + TICK_S


@pytest.mark.parametrize("left", [DEAD, VACANT], ids=["killed", "released"])
def test_the_wait_ends_and_names_the_option(left: LeaderRecord) -> None:
    async def story() -> tuple[float, Any]:
        world = World()
        await world.begin()
        await world.publish(left)
        return await timed(world.client.post("/x"))

    took, error = run_virtual(story())

    assert isinstance(error, NoLeaderError)
    assert "rest.await-leader-timeout (30 s)" in str(error)
    assert AWAIT_S <= took <= AWAIT_S + 2 * QUICK_S


@pytest.mark.parametrize("left", [DEAD, VACANT], ids=["killed", "released"])
def test_nobody_waits_for_a_cluster_of_which_all_runs_have_ended(left: LeaderRecord) -> None:
    async def story() -> tuple[float, Any, list[str]]:
        world = World()
        await world.begin(unfinished=False)
        await world.publish(left)
        return *await timed(world.client.post("/x")), world.told

    took, error, told = run_virtual(story())

    assert isinstance(error, NoLeaderError)
    assert took <= QUICK_S + TICK_S
    assert [] == told


@pytest.mark.parametrize(
    ("left", "standing", "seconds"),
    [
        (VACANT, None, 0.0),
        (VACANT, [], 0.0),
        (VACANT, ["next"], QUICK_S),
        (DEAD, None, QUICK_S),
        (DEAD, [], 0.0),
        (DEAD, ["dead", "next"], QUICK_S),
    ],
)
def test_a_read_that_storage_answers_too_waits_for_a_moment_at_most(
    left: LeaderRecord, standing: list[str] | None, seconds: float
) -> None:
    async def story() -> tuple[float, Any, list[str]]:
        world = World(standing)
        await world.begin()
        await world.publish(left)
        return *await timed(world.client.get("/x")), world.told

    took, error, told = run_virtual(story())

    assert isinstance(error, NoLeaderError)
    assert seconds == pytest.approx(took, abs=TICK_S)
    assert [] == told


def test_a_read_follows_the_leader_that_stands_in_line() -> None:
    async def story() -> tuple[float, Any]:
        world = World(["next"])
        await world.begin()
        await world.publish(VACANT)
        world.network.up["http://next.example"] = "next"

        async def follow() -> None:
            await asyncio.sleep(TICK_S)
            await world.publish(NEXT)

        following = asyncio.create_task(follow())
        told = await timed(world.client.get("/x"))
        await following
        return told

    took, answer = run_virtual(story())

    assert {"by": "next"} == answer
    assert TICK_S <= took < QUICK_S


def test_a_register_that_fails_holds_up_no_read_and_is_asked_again_for_a_leader() -> None:
    class Failing(Lined):
        asked = 0
        fails = True

        async def load(self, key: str) -> Entry | None:
            self.asked += 1
            if self.fails:
                raise ConnectionResetError("no quorum")
            return await super().load(key)

    async def story() -> tuple[int, Any, Any]:
        world = World()
        await world.begin()
        await world.publish(NEXT)
        world.network.up["http://next.example"] = "next"
        failing = Failing(cast("EmbeddedRegister", world.services.backend), ["next"])
        services = HighAvailabilityServices(
            failing, world.services.storage, "flights", world.services.locations
        )
        client = ClusterClient(services, 60.0, world.network, await_leader_s=AWAIT_S)
        _, refused = await timed(client.get("/x"))
        asked = failing.asked

        async def mend() -> None:
            failing.fails = False

        mending = world.later(mend)
        _, answer = await timed(client.post("/x"))
        await mending
        return asked, refused, answer

    asked, refused, answer = run_virtual(story())

    assert (1, {"by": "next"}) == (asked, answer)
    assert "nobody can tell who leads: no quorum" in str(refused)


def test_a_refusal_of_the_leader_is_no_reason_to_wait() -> None:
    class Refusing(Network):
        async def _answer(self, request: httpx.Request) -> httpx.Response:
            given = {own_headers.GIVEN_BY: "next"}
            return httpx.Response(404, json={"errors": ["Not found"]}, headers=given)

    async def story() -> float:
        world = World()
        await world.begin()
        await world.publish(NEXT)
        client = ClusterClient(world.services, 60.0, Refusing(), await_leader_s=AWAIT_S)
        began = asyncio.get_running_loop().time()
        with pytest.raises(NotFoundError):
            await client.post("/x")
        return asyncio.get_running_loop().time() - began

    assert 0.0 == run_virtual(story())


def test_an_upload_that_a_failover_breaks_off_is_repeated_as_a_whole(tmp_path: Path) -> None:
    """Also in a cluster without an unfinished run, which has nobody else to wait for."""
    file = tmp_path / "etl.py"
    file.write_bytes(b"x = 1\n" * 1_000)

    class Breaking(Network):
        bodies: ClassVar[list[bytes]] = []

        async def _answer(self, request: httpx.Request) -> httpx.Response:
            self.bodies.append(await request.aread())
            by = f"{request.url.host}".partition(".")[0]
            if by == "dead":
                died = httpx.ReadError if len(self.bodies) == 1 else httpx.ConnectError
                raise died("it died")
            return httpx.Response(200, json={"id": "1"}, headers={own_headers.GIVEN_BY: by})

    async def story() -> Any:
        world, network = World(), Breaking()
        await world.begin(unfinished=False)
        await world.publish(DEAD)
        client = ClusterClient(world.services, 60.0, network, await_leader_s=AWAIT_S)

        async def take_over() -> None:
            await world.publish(NEXT)

        takeover = world.later(take_over)
        answer = await client.upload(file)
        await takeover
        return answer, network.bodies

    answer, bodies = run_virtual(story())

    assert {"id": "1"} == answer
    assert len(bodies) > 1
    assert all(file.read_bytes() in one and b'filename="etl.py"' in one for one in bodies)


@pytest.mark.parametrize(
    ("code", "kind"),
    [("different-request", DifferentRequestError), ("already-ended", AlreadyEndedError)],
)
def test_a_submission_under_a_used_id_raises_what_the_leader_has_met(
    code: str, kind: type[Exception]
) -> None:
    class Refusing(Network):
        async def _answer(self, request: httpx.Request) -> httpx.Response:
            by = f"{request.url.host}".partition(".")[0]
            said = {"errors": ["no"], "code": code, "applicationid": "a", "status": "FINISHED"}
            return httpx.Response(409, json=said, headers={own_headers.GIVEN_BY: by})

    async def story() -> None:
        world = World()
        await world.begin(unfinished=False)
        await world.publish(NEXT)
        client = ClusterClient(world.services, 60.0, Refusing(), await_leader_s=AWAIT_S)
        with pytest.raises(kind):
            await client.run_application("0_etl.py", {"runId": "tuesday"})
        with pytest.raises(UsageError):
            await client.run_application("0_etl.py", {})

    run_virtual(story())
