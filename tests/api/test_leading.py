"""REST while the register does not answer: from what is known, with its age, within a second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.api import serving
from tests.api.test_metrics import Manager, manager
from tests.support.memory_storage import MemoryStorage
from understudy.clock import SystemClock
from understudy.ha.backends.embedded import EmbeddedRegister
from understudy.ha.register import Entry
from understudy.ha.services import HighAvailabilityServices, Locations
from understudy.ha.storage import InlineStorage
from understudy.model import ApplicationId, ApplicationStatus, Pointer, RunId, Tombstone

AWAY_S = 8.0
SECOND_S = 1.0
PATHS = ("/ha/status", "/applications/overview", "/overview", "/jobs/overview")


class Away(EmbeddedRegister):
    """A register that does not answer for a while, and then fails, as ZooKeeper's does."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False
        self.asked = 0

    async def load(self, key: str) -> Entry | None:
        """See `Register.load`."""
        if self.is_away:
            self.asked += 1
            await asyncio.sleep(AWAY_S)
            raise TimeoutError
        return await super().load(key)

    def changes(self, key: str) -> AsyncIterator[None]:
        """See `Register.changes`."""
        return super().changes(key)


async def leader(register: Away) -> Manager:
    """Return a JobManager that leads a cluster with one tombstone."""
    storage = InlineStorage(MemoryStorage(), 5.0)
    places = Locations("c", "jobs", "apps")
    services = HighAvailabilityServices(register, storage, "flights", places)
    await services.registry.claim(3, ephemeral=False, anew=True)
    stone = Tombstone(
        application_id=ApplicationId("a"), run_id=RunId("r"), name="flights",
        status=ApplicationStatus.FINISHED, started_at=1, ended_at=2,
        file=Pointer(path="gone", digest="sha256:0", size=0),
    )  # fmt: skip
    await services.registry.bury(3, stone.application_id, stone)
    return manager({}, services, SystemClock())


def lead(one: Manager) -> None:
    one.lead(3)
    assert one.term is not None
    one.term.leadership.addresses = ("http://me", "")


@pytest.mark.parametrize("path", PATHS)
def test_what_is_known_is_told_with_its_age_while_the_register_is_away(path: str) -> None:
    async def story() -> tuple[list[httpx.Response], list[float], int]:
        register = Away()
        one = await leader(register)
        lead(one)
        told, took = [], []
        loop = asyncio.get_running_loop()
        async with (
            serving.endpoint(one=one) as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client,
        ):
            for away in (False, True, True, True, False):
                register.is_away = away
                began = loop.time()
                told.append(await client.get(path))
                took.append(loop.time() - began)
        return told, took, register.asked

    told, took, asked = asyncio.run(story())
    before, *meanwhile, _ = told

    assert [200] * 5 == [one.status_code for one in told]
    assert max(took) < 5 * SECOND_S, took
    assert sorted(took)[1] < SECOND_S, took
    assert asked <= 3, "reads pile up"
    assert "x-understudy-age" not in before.headers
    for one in meanwhile:
        if path == "/ha/status":
            assert before.json()["history"] == one.json()["history"]
            assert one.json()["age_seconds"] > 0
        else:
            assert before.json() == one.json()
            assert float(one.headers["x-understudy-age"]) > 0


def test_a_leader_of_which_nothing_is_known_says_so_within_a_second() -> None:
    async def story() -> tuple[int, float]:
        register = Away()
        one = manager({}, HighAvailabilityServices(
            register, InlineStorage(MemoryStorage(), 5.0), "flights", Locations("c", "j", "a")
        ), SystemClock())  # fmt: skip
        lead(one)
        register.is_away = True
        async with (
            serving.endpoint(one=one) as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client,
        ):
            began = asyncio.get_running_loop().time()
            status = (await client.get("/ha/status")).status_code
            return status, asyncio.get_running_loop().time() - began

    status, took = asyncio.run(story())

    assert 503 == status
    assert took < AWAY_S / 2


@pytest.mark.parametrize(("path", "expected"), [("/overview", 200), ("/jobs/gone", 503)])
def test_a_term_that_ends_within_a_request_answers_what_it_knows_and_refuses_nothing(
    path: str, expected: int
) -> None:
    async def story() -> tuple[int, str]:
        register = Away()
        one = await leader(register)
        lead(one)
        read = one.around.services.registry.read

        async def read_and_lose() -> object:
            one.term = None
            return await read()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(one.around.services.registry, "read", read_and_lose)
            async with (
                serving.endpoint(one=one) as port,
                httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client,
            ):
                answer = await client.get(path)
        assert one.term is None, "the term did not end within the request"
        return answer.status_code, answer.headers.get("x-understudy-term", "")

    status, term = asyncio.run(story())

    assert expected == status
    assert ("3" if expected == 200 else "") == term
