"""A command that knows addresses only: whom it asks, what it learns, to whom it sends a token."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.api import serving
from tests.support.virtual_time import run_virtual
from understudy.api import own_headers
from understudy.api.authentication import RestSecurity
from understudy.api.client import QUICK_S
from understudy.api.remote import RemoteClient
from understudy.errors import NoLeaderError, UnreachableError

A, B, C = "http://a.example:8081", "http://b.example:8081", "http://c.example:8081"
NAMES = {A: "aaaaaaaa", B: "bbbbbbbb", C: "cccccccc"}

Act = Callable[[RemoteClient], Awaitable[Any]]


@dataclass(frozen=True)
class JobManagers(RestSecurity):
    """JobManagers by their address; the first one that is up leads, and answers through others."""

    up: list[str] = field(default_factory=lambda: [A, B])
    asked: list[str] = field(default_factory=list)
    electing: list[str] = field(default_factory=list)
    """Paths at which the next answer is that nobody leads."""
    told: dict[str, str] = field(default_factory=dict)
    """Addresses that differ from what the cluster says."""
    dies_at: list[str] = field(default_factory=list)
    """Paths during which whoever is asked dies."""
    holders: dict[str, str] = field(default_factory=lambda: dict(NAMES))

    def client(self, timeout: httpx.Timeout | float) -> httpx.AsyncClient:
        """See `RestSecurity.client`."""
        return httpx.AsyncClient(transport=httpx.MockTransport(self._answer))

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        address = f"{request.url.scheme}://{request.url.host}:{request.url.port}"
        self.asked.append(f"{address}{request.url.path}")
        if address not in self.up:
            raise httpx.ConnectError("Connection refused")
        if request.url.path in self.dies_at:
            self.dies_at.remove(request.url.path)
            self.up.remove(address)
            raise httpx.ReadError("reset")
        if request.url.path in self.electing:
            self.electing.remove(request.url.path)
            return httpx.Response(503, json={"errors": ["an election"]})
        leads, *others = [
            {"rest": self.told.get(one, one), "id": f"jobmanager-{NAMES[one]}"} for one in self.up
        ]
        body = {"leader": leads, "standbys": others, "attention": []}
        holder = self.holders[address] + "0" * 24
        return httpx.Response(200, json=body, headers={own_headers.GIVEN_BY: holder})


def tell(act: Act, world: JobManagers, *addresses: str) -> Any:
    """Act as a client of these addresses; return the answer, or the error."""

    async def story() -> Any:
        services = serving.services()
        client = RemoteClient(services, addresses or (A,), 60.0, world, await_leader_s=30.0)
        try:
            return await act(client)
        except (NoLeaderError, UnreachableError) as error:
            return error
        finally:
            await client.close()

    return run_virtual(story())


async def twice_with_a_death(client: RemoteClient, world: JobManagers, dies: str = A) -> Any:
    await client.get("/one")
    world.up.remove(dies)
    return await client.get("/two")


def test_the_loss_of_the_named_jobmanager_is_survived() -> None:
    world = JobManagers()
    answer = tell(lambda client: twice_with_a_death(client, world), world)

    assert f"{B}/two" == world.asked[-1]
    assert "jobmanager-bbbbbbbb" == answer["leader"]["id"]


@pytest.mark.parametrize("path", ["/x", "/artifacts/upload"])
def test_a_death_in_the_middle_of_a_request_is_survived(path: str) -> None:
    world = JobManagers(dies_at=[path])

    async def act(client: RemoteClient) -> Any:
        await client.get("/one")
        return await client.post(path)

    answer = tell(act, world)

    assert "jobmanager-bbbbbbbb" == answer["leader"]["id"]


def test_several_addresses_are_tried_in_turn() -> None:
    world = JobManagers(up=[C])
    answer = tell(lambda client: client.get("/x"), world, A, B, C)

    assert "jobmanager-cccccccc" == answer["leader"]["id"]


def test_who_learns_from_a_standby_asks_the_others_too() -> None:
    world = JobManagers(up=[A, B, C])

    async def act(client: RemoteClient) -> Any:
        await client.get("/one")
        world.up[:] = [C]
        return await client.get("/two")

    answer = tell(act, world, B)

    assert "jobmanager-cccccccc" == answer["leader"]["id"]


@pytest.mark.parametrize(
    ("named", "told", "asked"),
    [
        (A, "http://127.0.0.1:8082", False),
        (A, "http://localhost:8082", False),
        ("https://a.example:8081", B, False),
        ("https://a.example:8081", "https://b.example:8081", True),
        ("http://127.0.0.1:8081", "http://127.0.0.1:8082", True),
        ("http://localhost:8081", B, True),
    ],
)
def test_a_token_goes_to_no_address_that_is_less_protected(
    named: str, told: str, asked: bool
) -> None:
    world = JobManagers(up=[named, told], holders={named: NAMES[A], told: NAMES[B]})
    NAMES.update({named: NAMES[A], told: NAMES[B]})
    answer = tell(lambda client: twice_with_a_death(client, world, named), world, named)

    assert asked == any(one.startswith(told) for one in world.asked)
    assert asked == isinstance(answer, dict)


def test_a_stranger_at_a_learned_address_is_not_believed() -> None:
    world = JobManagers(up=[A, B, C], holders={**NAMES, B: "dddddddd"})

    async def act(client: RemoteClient) -> Any:
        await client.get("/one")
        world.up.remove(A)
        return await client.get("/two")

    answer = tell(act, world)

    assert f"{C}/two" == world.asked[-1]
    assert isinstance(answer, dict)


def test_an_address_where_nobody_is_is_an_error_soon_and_never_an_empty_answer() -> None:
    async def act(client: RemoteClient) -> Any:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(NoLeaderError):
            await client.get("/x")
        took_s = loop.time() - began
        with pytest.raises(UnreachableError, match=r"no JobManager can be reached at http://a\.e"):
            await client.stored_overview()
        return took_s

    assert tell(act, JobManagers(up=[])) <= QUICK_S + 0.5


def test_a_change_waits_for_a_jobmanager() -> None:
    world = JobManagers(up=[])

    async def act(client: RemoteClient) -> Any:
        asyncio.get_running_loop().call_later(20.0, world.up.append, A)
        return await client.post("/x")

    assert isinstance(tell(act, world), dict)


def test_an_election_is_told_from_an_address_where_nobody_is() -> None:
    """The command that submits waits for a leader then, and gives up otherwise."""

    async def act(client: RemoteClient) -> bool:
        with pytest.raises(NoLeaderError):
            await client.get("/x")
        return await client.is_alive()

    assert tell(act, JobManagers(electing=["/x"] * 1_000))
    assert not tell(act, JobManagers(up=[]))


def test_problems_are_asked_for_where_the_address_is() -> None:
    assert [] == tell(lambda client: client.attention(), JobManagers())
    assert isinstance(tell(lambda client: client.attention(), JobManagers(up=[])), NoLeaderError)
