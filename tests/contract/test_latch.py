"""The suite of ``understudy.ha.register.Latch``: the promises of every line of contenders.

The suite runs over the line in ZooKeeper, and over the fake of the election tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import pytest

from tests.contract.conftest import PATIENCE_S
from tests.support.fake_latch import Ensemble, FakeLatch, Wire
from tests.support.virtual_time import Machine, run_virtual, virtual_clock
from tests.support.zookeeper import Server
from tests.support.zookeeper_clients import Cluster
from understudy.clock import SystemClock
from understudy.errors import LeadershipLost
from understudy.ha.backends.zookeeper.register import ZooKeeperRegister
from understudy.ha.backends.zookeeper.release import close
from understudy.ha.register import Latch

MOMENT_S = 0.25
"""After this time without an event, none is expected."""


class Place(Protocol):
    """An implementation of a line."""

    def latch(self, me: str) -> Latch:
        """Open the line for a contender with its own session."""
        ...

    async def end_session(self, latch: Latch) -> None:
        """End a contender's session, as the contender's guardian would."""
        ...

    def writes(self) -> int:
        """Return the number of writes so far."""
        ...

    def now(self) -> float:
        """Return the time of the clock for renewals."""
        ...


class Fake:
    """A line in virtual time; all contenders are on the test's machine."""

    def __init__(self) -> None:
        self.ensemble: Ensemble | None = None

    def latch(self, me: str) -> Latch:
        machine = asyncio.get_running_loop()
        assert isinstance(machine, Machine)
        self.ensemble = self.ensemble or Ensemble(machine.world)
        return FakeLatch(self.ensemble, machine, me, Wire())

    async def end_session(self, latch: Latch) -> None:
        assert isinstance(latch, FakeLatch)
        assert self.ensemble is not None
        self.ensemble.close(latch.number)

    def writes(self) -> int:
        assert self.ensemble is not None
        return self.ensemble.writes

    def now(self) -> float:
        return virtual_clock().now()


class Real:
    """A line in ZooKeeper."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.cluster = Cluster(server.connect_string)
        self.registers: dict[str, ZooKeeperRegister] = {}

    def latch(self, me: str) -> Latch:
        self.registers[me] = self.cluster.open()
        return self.registers[me].latch(me, b"note")

    async def end_session(self, latch: Latch) -> None:
        session = latch._session  # type: ignore[attr-defined]
        number, password = session._client.client_id
        what = {"session": number, "password": password.hex(), "timeout_ms": 10_000}
        await asyncio.to_thread(close, what, self.server.host, self.server.port)

    def writes(self) -> int:
        return self.server.transactions()

    def now(self) -> float:
        return SystemClock().now()


Scenario = Callable[[Place], Coroutine[Any, Any, None]]


@pytest.fixture(params=["fake", "zookeeper"])
def hold(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    """Return a function that runs a scenario over a line."""
    if request.param == "fake":
        return lambda scenario: run_virtual(scenario(Fake()))
    real = Real(request.getfixturevalue("zookeeper"))

    async def patiently(scenario: Scenario) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await scenario(real)

    def run(scenario: Scenario) -> None:
        try:
            asyncio.run(patiently(scenario))
        finally:
            for register in real.registers.values():
                register.release()

    return run


Hold = Callable[[Scenario], None]


async def in_line(place: Place, *names: str) -> list[Latch]:
    """Let contenders join the line one after the other."""
    latches = [place.latch(name) for name in names]
    for latch in latches:
        await latch.ahead()
    return latches


async def holds(task: asyncio.Future[Any], seconds: float = MOMENT_S) -> bool:
    """Return whether a task still waits after a moment."""
    await asyncio.wait({task}, timeout=seconds)
    return not task.done()


async def ended(latch: Latch) -> None:
    """Return once the latch has noticed the loss of its place."""
    async with asyncio.timeout(5):
        await latch.lost()


def test_each_sees_who_is_just_ahead(hold: Hold) -> None:
    async def scenario(place: Place) -> None:
        latches = await in_line(place, "a", "b-1", "c")

        assert [None, "a", "b-1"] == [await latch.ahead() for latch in latches]
        assert [None, "a", "b-1"] == [await latch.ahead() for latch in latches], "asked again"
        assert all(latch.session_s > 0 for latch in latches)

    hold(scenario)


def test_an_end_moves_the_one_behind_and_nobody_else(hold: Hold) -> None:
    async def scenario(place: Place) -> None:
        first, second, third = await in_line(place, "first", "second", "third")
        moved = [asyncio.ensure_future(one.moved()) for one in (second, third)]
        assert all([await holds(one) for one in moved])
        await first.leave()
        async with asyncio.timeout(5):
            await moved[0]

        assert await second.ahead() is None
        assert await holds(moved[1])
        assert "second" == await third.ahead()
        moved[1].cancel()

    hold(scenario)


def test_who_went_before_the_look_is_noticed_at_once(hold: Hold) -> None:
    async def scenario(place: Place) -> None:
        first, second = await in_line(place, "first", "second")
        await second.ahead()
        await first.leave()
        async with asyncio.timeout(5):
            await second.moved()

        assert await second.ahead() is None

    hold(scenario)


def test_the_dead_are_dismissed_and_the_living_behind_them_move_up(hold: Hold) -> None:
    async def scenario(place: Place) -> None:
        first, second, third = await in_line(place, "first", "second", "third")
        await third.dismiss("second")
        await third.dismiss("second")
        await third.dismiss("who was never here")

        assert "first" == await third.ahead()
        await ended(second)
        with pytest.raises(LeadershipLost):
            await second.renew()
        assert await first.ahead() is None

    hold(scenario)


def test_a_renewal_is_a_write_and_counts_from_its_sending(hold: Hold) -> None:
    """An answer of one server alone proves nothing."""

    async def scenario(place: Place) -> None:
        (first,) = await in_line(place, "first")
        writes, waited_s, counted_s = place.writes(), 0.0, 0.0
        for _ in range(10):
            before = place.now()
            sent_at = await first.renew()
            after = place.now()
            waited_s, counted_s = waited_s + after - before, counted_s + after - sent_at

            assert before <= sent_at <= after
        assert 10 <= place.writes() - writes
        assert counted_s > waited_s / 2, "of what it took, the answer is no less than half"

    hold(scenario)


def test_a_session_that_ends_takes_the_place_with_it(hold: Hold) -> None:
    async def scenario(place: Place) -> None:
        first, second = await in_line(place, "first", "second")
        moved = asyncio.ensure_future(second.moved())
        lost = asyncio.ensure_future(first.lost())
        assert await holds(moved)
        assert await holds(lost)
        await place.end_session(first)
        async with asyncio.timeout(5):
            await moved
            await lost

        assert await second.ahead() is None
        with pytest.raises((LeadershipLost, OSError)):
            await first.renew()
        with contextlib.suppress(OSError):
            await first.ahead()
        assert "second" == await first.ahead(), "it stands in line anew, at its end"
        await first.renew()

    hold(scenario)


def test_who_has_left_leads_no_more_and_may_come_again(hold: Hold) -> None:
    async def scenario(place: Place) -> None:
        (only,) = await in_line(place, uuid.uuid4().hex)
        await only.leave()

        with pytest.raises(LeadershipLost):
            await only.renew()
        await ended(only)
        await only.leave()
        assert await only.ahead() is None
        await only.renew()

    hold(scenario)


def test_of_many_who_come_at_once_each_has_a_place_of_its_own(hold: Hold) -> None:
    async def scenario(place: Place) -> None:
        latches = {f"contender-{number}": place.latch(f"contender-{number}") for number in range(6)}
        await asyncio.gather(*(latch.ahead() for latch in latches.values()))
        ahead = {name: await latch.ahead() for name, latch in latches.items()}

        assert 6 == len(set(ahead.values()))
        assert {None, *latches} > set(ahead.values())

    hold(scenario)
