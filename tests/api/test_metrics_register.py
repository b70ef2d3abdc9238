"""What is asked of the register, counted and timed; and what a backend tells of itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from starlette.requests import Request

from tests.api.test_metrics import Manager, manager, scrape
from tests.support.memory_storage import MemoryStorage
from tests.support.virtual_time import run_virtual
from understudy.api import answers
from understudy.api.leading import Leading
from understudy.api.metrics import ProcessMetrics
from understudy.api.rest import HANDED_ON, Rest
from understudy.api.rest_cluster import ClusterRoutes
from understudy.errors import CorruptDataError
from understudy.ha.backends.embedded import EmbeddedRegister
from understudy.ha.metered import LATENCIES_S, MeteredRegister, OperationOutcome
from understudy.ha.register import Conflict, Entry, Register, status_of
from understudy.ha.services import HighAvailabilityServices, Locations
from understudy.ha.storage import InlineStorage
from understudy.jobmanager.job_manager import JobManager
from understudy.model import Incarnation, LeaderRecord

STATUS: Mapping[str, object] = {
    "ensemble": "a:2181,b:2181",
    "session": "0x1",
    "session_age_seconds": 12.5,
    "reconnects_total": 3,
    "suspended": False,
    "Not a Name": 1,
    "type": "a lie",
}


@dataclass
class Slow:
    """A register that takes its time and may fail; see `Register`."""

    takes_s: float = 0.0
    failure: Exception | None = None
    inner: EmbeddedRegister = field(default_factory=EmbeddedRegister)

    async def _serve(self) -> None:
        await asyncio.sleep(self.takes_s)
        if self.failure:
            raise self.failure

    async def load(self, key: str) -> Entry | None:
        """See `Register.load`."""
        await self._serve()
        return await self.inner.load(key)

    async def swap(self, key: str, value: bytes | None, expected: str | None) -> str:
        """See `Register.swap`."""
        await self._serve()
        return await self.inner.swap(key, value, expected)

    async def keys(self, prefix: str) -> list[str]:
        """See `Register.keys`."""
        await self._serve()
        return await self.inner.keys(prefix)

    def changes(self, key: str) -> AsyncIterator[None]:
        """See `Register.changes`."""
        return self.inner.changes(key)


class Telling(Slow):
    """A register that tells of itself; see `Informative`."""

    def status(self) -> Mapping[str, object]:
        """See `Informative.status`."""
        return STATUS


def services(register: Register) -> HighAvailabilityServices:
    """Open a cluster's stores over this register."""
    storage = InlineStorage(MemoryStorage(), 5.0)
    return HighAvailabilityServices(register, storage, "flights", Locations("c", "jobs", "apps"))


SHOWN = {**STATUS, "type": "embedded"}
"""In ``/ha/status``."""


def standby(leader: LeaderRecord | None = None) -> Callable[[], Manager]:
    """Return what makes a JobManager that stands by; its clock is that of who makes it."""

    def make() -> Manager:
        one = manager({"high-availability.type": "embedded"}, services(Telling()))
        one.leader = leader
        return one

    return make


def asked(make: Callable[[], Manager], path: str, **headers: str) -> tuple[int, Any]:
    """Return status and body of what a JobManager answers."""

    async def story() -> tuple[int, Any]:
        return await _ask(make(), path, headers)

    return run_virtual(story())


async def _ask(one: Manager, path: str, headers: Mapping[str, str]) -> tuple[int, Any]:
    routes = cast("Any", Rest(cast("JobManager", one)).application()).routes
    (route,) = (route for route in routes if getattr(route, "path", "") == path)
    lines = [(name.encode(), text.encode()) for name, text in headers.items()]
    request = Request(
        {
            "type": "http",
            "method": "GET",
            "path": path,
            "query_string": b"",
            "headers": lines,
            "server": ("x", 80),
        }
    )
    answer = await route.endpoint(request)
    return answer.status_code, msgspec.json.decode(answer.body)


def test_each_operation_is_counted_by_verb_and_outcome_and_timed() -> None:
    async def story() -> MeteredRegister:
        slow = Slow(takes_s=0.004)
        metered = MeteredRegister(slow)
        await metered.load("k")
        version = await metered.swap("k", b"1", None)
        slow.takes_s = 0.2
        await metered.swap("k", b"2", version)
        with pytest.raises(Conflict):
            await metered.swap("k", b"3", version)
        assert ["k"] == await metered.keys("")
        return metered

    operations = run_virtual(story()).operations

    assert {
        ("load", OperationOutcome.OK): 1,
        ("swap", OperationOutcome.OK): 2,
        ("swap", OperationOutcome.CONFLICT): 1,
        ("keys", OperationOutcome.OK): 1,
    } == {key: took.count for key, took in operations.items()}
    swaps = operations["swap", OperationOutcome.OK]
    assert 0.204 == pytest.approx(swaps.sum_s)
    assert {0.005: 1, 0.25: 1} == {
        bound: count for bound, count in zip(LATENCIES_S, swaps.counts, strict=False) if count
    }


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (OSError("no route to host"), OperationOutcome.UNKNOWN),
        (TimeoutError(), OperationOutcome.UNKNOWN),
        (CorruptDataError("half of it"), OperationOutcome.DATA_ERROR),
    ],
)
def test_what_fails_is_told_apart_and_raised_as_it_is(
    failure: Exception, outcome: OperationOutcome
) -> None:
    async def story() -> tuple[MeteredRegister, BaseException]:
        metered = MeteredRegister(Slow(failure=failure))
        with pytest.raises(type(failure)) as caught:
            await metered.load("k")
        return metered, caught.value

    metered, raised = run_virtual(story())

    assert raised is failure
    assert [("load", outcome)] == list(metered.operations)


def test_an_operation_past_its_deadline_is_unknown_and_one_that_nobody_awaits_given_up() -> None:
    async def story() -> HighAvailabilityServices:
        stores = services(Slow(takes_s=60.0))
        with pytest.raises(TimeoutError):
            await stores.register.load("k")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                await stores.register.load("k")
        return stores

    operations = run_virtual(story()).register.operations

    assert {("load", OperationOutcome.UNKNOWN): 5.0, ("load", OperationOutcome.GIVEN_UP): 2.0} == {
        key: pytest.approx(took.sum_s) for key, took in operations.items()
    }


def test_changes_pass_through_uncounted() -> None:
    async def story() -> MeteredRegister:
        metered = MeteredRegister(Slow())
        async with contextlib.aclosing(cast("Any", metered.changes(""))) as changes:
            await anext(changes)
        return metered

    assert {} == run_virtual(story()).operations


def test_all_that_goes_through_a_clusters_stores_is_in_its_metrics() -> None:
    async def story() -> dict[str, float]:
        stores = services(Slow(takes_s=0.03))
        await stores.registry.claim(1, ephemeral=False, anew=True)
        registry = CollectorRegistry()
        registry.register(ProcessMetrics("taskmanager", "tm-1", stores))
        return scrape(registry)

    actual = run_virtual(story())
    name = "understudy_register_operation_seconds"

    assert actual[f"{name}_count{{outcome=ok,verb=swap}}"] == 1
    assert 0.03 == pytest.approx(actual[f"{name}_sum{{outcome=ok,verb=swap}}"])
    assert [0, 1, 1] == [
        actual[f"{name}_bucket{{le={bound},outcome=ok,verb=swap}}"]
        for bound in ("0.025", "0.05", "+Inf")
    ]


def test_what_a_backend_tells_of_itself_passes_through_all_wrappers() -> None:
    stores = services(Telling())

    assert STATUS == stores.register.status()


def test_a_backend_that_tells_nothing_is_no_error() -> None:
    stores = services(Slow())

    assert {} == stores.register.status()
    assert {} == status_of(EmbeddedRegister())


def test_numbers_that_a_backend_tells_are_metrics() -> None:
    registry = CollectorRegistry()
    registry.register(ProcessMetrics("jobmanager", "jm-1", services(Telling())))

    actual = {
        name: value
        for name, value in scrape(registry).items()
        if name.startswith("understudy_register_") and "operation" not in name
    }

    assert {
        "understudy_register_session_age_seconds{}": 12.5,
        "understudy_register_reconnects_total{}": 3.0,
        "understudy_register_suspended{}": 0.0,
    } == actual


def test_ha_status_shows_the_backend_and_all_that_it_tells() -> None:
    async def story() -> Any:
        stores = services(Telling())
        await stores.registry.claim(1, ephemeral=False, anew=True)
        one = manager({"high-availability.type": "embedded"}, stores)
        one.lead(1)
        leading = Leading(cast("Any", one))
        routes = ClusterRoutes(leading).routes()
        (handler,) = (one.handler for one in routes if one.path == "/ha/status")
        request = Request({"type": "http", "method": "GET", "path": "/ha/status", "headers": []})
        assert one.term is not None
        with leading.answering(one.term):
            return msgspec.json.decode((await handler(request)).body)

    assert SHOWN == run_virtual(story())["register"]


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_ha_status_shows_this_backend_also_while_nobody_leads(prefix: str) -> None:
    one = standby()

    status, body = asked(one, f"{prefix}/ha/status")
    _, other = asked(one, f"{prefix}/overview")

    assert (503, [answers.ELECTION]) == (status, body["errors"])
    assert SHOWN == body["register"]
    assert ["errors", "code"] == list(other)


def test_ha_status_shows_this_backend_where_the_leaders_answer_is_not_to_be_had() -> None:
    leader = LeaderRecord(holder=Incarnation("other"), term=7, session="", rest="http://x")

    status, body = asked(standby(leader), "/ha/status", **{HANDED_ON: "jm-2"})

    assert (503, SHOWN) == (status, body["register"])


def test_ha_status_shows_the_leaders_backend_also_while_the_stores_do_not_answer() -> None:
    async def story() -> Any:
        register = Telling()
        stores = services(register)
        await stores.registry.claim(1, ephemeral=False, anew=True)
        one = manager({"high-availability.type": "embedded"}, stores)
        one.lead(1)
        assert one.term is not None
        one.term.leadership.addresses = ("http://me", "")
        register.failure = ConnectionResetError("the quorum is lost")
        return await _ask(one, "/ha/status", {})

    status, body = run_virtual(story())

    assert 200 == status
    assert SHOWN == body["register"]
    assert 0 <= body["age_seconds"] < 60
