"""Elections by a Lease, while the API server fails in every way that the fake knows.

Each `Contender` notes until when it may act (what the guardian enforces). No two may act at the
same time, and nobody acts longer than the renew deadline after the last renewal that was sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.kubernetes.fake import FakeApi
from tests.support.kubernetes import register_on, run, until
from understudy.clock import SystemClock
from understudy.core.lease import Timing
from understudy.ha.backends.kubernetes import options as k8s
from understudy.ha.election import Election, Leadership
from understudy.ha.register import Release
from understudy.ha.registry import Registry
from understudy.ha.retrieval import retrieve
from understudy.ha.turns import LeaseTurns, NoProofs
from understudy.kubernetes.client import RequestLimits
from understudy.model import Incarnation, LeaderRecord

TIMING = Timing(lease_s=1.5, renew_deadline_s=1.0, retry_s=0.3)
LONG = Timing(lease_s=60.0, renew_deadline_s=50.0, retry_s=0.5)
LEASE = "flights-leader"


class Contender:
    """One process that contends, in this loop."""

    def __init__(self, api: FakeApi, name: str, timing: Timing, lock: str) -> None:
        self.name = name
        self.terms: list[int] = []
        self.until: float | None = None
        self.serves = False
        self.closes = asyncio.Event()
        self.acknowledged: list[tuple[int, int]] = []
        self.release: Release | None = None
        limit_s = timing.renew_deadline_s / 2
        self.register = register_on(api, lock=lock, limits=RequestLimits(limit_s, limit_s))
        self.register.on_release(self._released_by)
        clock = SystemClock()
        me = LeaderRecord(
            holder=Incarnation(name * 32),
            term=0,
            session="",
            name=name,
            lease_s=timing.lease_s,
            rest=f"http://{name}",
            rpc=f"@{name}",
        )
        turns = LeaseTurns(self.register, timing, clock, NoProofs(), random.Random(name))
        floor = Registry(self.register, "flights").highest_term
        self.election = Election(self.register, me, turns, clock, floor, self._hold)
        self.task = asyncio.ensure_future(self.election.run(self._body))

    @property
    def leads(self) -> bool:
        return self.until is not None and self.until > SystemClock().now()

    def kill(self) -> None:
        """Die as by SIGKILL: nothing is released."""
        self.until = None
        self.election._release = _nothing  # type: ignore[method-assign]
        self.task.cancel()

    def _hold(self, until: float | None) -> None:
        self.until = until

    def _released_by(self, release: Release) -> None:
        self.release = release

    async def _body(self, leadership: Leadership) -> None:
        self.terms.append(leadership.term)
        await Registry(self.register, "flights").claim(leadership.term, ephemeral=False, anew=True)
        await leadership.publish(f"http://{self.name}", f"@{self.name}")
        self.serves = True
        await asyncio.Event().wait()


async def _nothing(*_: object, **__: object) -> None:
    return


class Contenders:
    """All contenders of one cluster, watched: no two lead at the same time."""

    def __init__(self, api: FakeApi, timing: Timing, lock: str, kind: type[Contender]) -> None:
        self.api = api
        self.broken: list[str] = []
        self.all = [kind(api, name, timing, lock) for name in "abc"]

    @property
    def leader(self) -> Contender | None:
        return next((one for one in self.all if one.leads), None)

    @property
    def terms(self) -> list[int]:
        return sorted(term for one in self.all for term in one.terms)

    async def led(self, than: int = 0) -> Contender:
        """Return the leader once a term higher than this is held."""
        await until(lambda: self.leader is not None and max(self.terms, default=0) > than)
        leader = self.leader
        assert leader is not None
        return leader

    async def watch(self) -> None:
        while True:
            leaders = [one.name for one in self.all if one.leads]
            if len(leaders) > 1:
                self.broken.append(f"{leaders} lead at once")
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def contending(
    api: FakeApi,
    timing: Timing = TIMING,
    lock: str = k8s.LEASE,
    *,
    apart: bool = True,
    kind: type[Contender] = Contender,
) -> AsyncIterator[Contenders]:
    """Have three contend; at the end hold them to what elections promise.

    ``apart``: whether two may never act at once. Where a person deletes the record, the next leader
    cannot know of the last one: then the term alone keeps them apart.
    """
    them = Contenders(api, timing, lock, kind)
    watching = asyncio.ensure_future(them.watch())
    try:
        yield them
    finally:
        tasks = [watching, *(one.task for one in them.all)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert not apart or [] == them.broken
    assert len(them.terms) == len(set(them.terms))


@pytest.mark.parametrize("lock", [k8s.LEASE, k8s.CONFIG_MAP])
def test_one_leads_and_the_next_follows_at_once_when_it_closes(
    fake_api: FakeApi, lock: str
) -> None:
    async def main() -> None:
        async with contending(fake_api, LONG, lock) as them:
            first = await them.led()
            began = time.monotonic()
            first.task.cancel()

            second = await them.led(1)

            assert first is not second
            assert time.monotonic() - began < 5.0
            assert [1, 2] == them.terms

    run(main())


def test_the_next_follows_at_once_when_the_guardian_empties_the_lease(fake_api: FakeApi) -> None:
    async def main() -> None:
        async with contending(fake_api, LONG) as them:
            first = await them.led()
            first.kill()
            assert first.release is not None
            release = first.release

            def execute() -> None:
                subprocess.run(release.argv, input=release.input, text=True, check=True, timeout=20)

            await asyncio.to_thread(execute)
            second = await them.led(1)

            assert first is not second

    run(main())


def test_a_dead_leader_is_followed_when_its_lease_is_over(fake_api: FakeApi) -> None:
    async def main() -> None:
        async with contending(fake_api) as them:
            first = await them.led()
            began = time.monotonic()
            first.kill()

            await them.led(1)

            assert time.monotonic() - began > TIMING.renew_deadline_s

    run(main())


@pytest.mark.parametrize("away", ["freeze", "stop"])
def test_nobody_leads_longer_than_the_deadline_while_the_server_is_away(
    fake_api: FakeApi, away: str
) -> None:
    async def main() -> None:
        async with contending(fake_api) as them:
            await them.led()
            before = max(them.terms)
            getattr(fake_api, away)()
            began = time.monotonic()

            await until(lambda: them.leader is None)

            assert time.monotonic() - began < TIMING.renew_deadline_s + 0.5
            await asyncio.sleep(TIMING.lease_s)
            assert them.leader is None

            getattr(fake_api, {"freeze": "thaw", "stop": "start"}[away])()
            await them.led(before)

    run(main())


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 429, "headers": {"retry-after": "1"}, "times": 1},
        {"status": 500, "reason": "InternalError", "times": 3},
        {"status": 503, "times": 3},
        {"body": b"<html>busy</html>", "times": 3},
        {"lose_answer": True, "times": 3},
        {"lose_request": True, "times": 3},
        {"delay_s": 0.3, "times": 5},
    ],
    ids=["429", "500", "503", "html", "answers lost", "requests lost", "slow"],
)
def test_a_leader_outlives_errors_that_are_shorter_than_its_deadline(
    fake_api: FakeApi, fault: dict[str, Any]
) -> None:
    async def main() -> None:
        async with contending(fake_api, Timing(6.0, 5.0, 0.5)) as them:
            leader = await them.led()
            terms = them.terms
            met = fake_api.fail(method="PATCH", path="leases", **fault)

            await until(lambda: met not in fake_api.faults)
            before = fake_api.object("leases", LEASE)["metadata"]["resourceVersion"]
            await until(
                lambda: fake_api.object("leases", LEASE)["metadata"]["resourceVersion"] != before
            )

            assert leader.leads
            assert terms == them.terms

    run(main())


@pytest.mark.parametrize("scale", [0.2, pytest.param(1.0, marks=pytest.mark.long)])
def test_a_server_that_takes_a_second_for_each_request_has_one_lasting_leader(
    fake_api: FakeApi, scale: float
) -> None:
    default = Timing()
    slow = Timing(
        default.lease_s * scale, default.renew_deadline_s * scale, default.retry_s * scale
    )

    async def main() -> None:
        fake_api.fail(delay_s=1.0 * scale, times=10_000)
        async with contending(fake_api, slow) as them:
            first = await them.led()
            await until(lambda: first.serves)
            terms, renewed_at = them.terms, fake_api.count("PATCH", LEASE)

            await until(lambda: fake_api.count("PATCH", LEASE) > renewed_at + 2)

            assert first.leads
            assert terms == them.terms

            first.task.cancel()

            assert await them.led(terms[-1]) is not first

    run(main())


def test_a_lease_that_a_person_deleted_is_made_again_by_one_leader(fake_api: FakeApi) -> None:
    async def main() -> None:
        async with contending(fake_api, apart=False) as them:
            first = await them.led()
            await until(lambda: first.serves)

            fake_api.remove("leases", LEASE)

            await until(lambda: LEASE in fake_api.names("leases"))
            await them.led(1)

    run(main())


def test_a_holder_that_a_person_wrote_is_put_right_by_the_next_renewal(fake_api: FakeApi) -> None:
    async def main() -> None:
        async with contending(fake_api) as them:
            leader = await them.led()
            terms = them.terms
            right = fake_api.object("leases", LEASE)["spec"]["holderIdentity"]

            fake_api.change("leases", LEASE, lambda one: one["spec"].update(holderIdentity="me"))

            await until(lambda: right == fake_api.object("leases", LEASE)["spec"]["holderIdentity"])
            assert leader.leads
            assert terms == them.terms

    run(main())


def test_rights_that_are_revoked_end_a_term_and_returned_ones_begin_one(
    fake_api: FakeApi,
) -> None:
    async def main() -> None:
        async with contending(fake_api) as them:
            await them.led()
            fake_api.denied = {("patch", "leases"), ("get", "leases")}

            await until(lambda: them.leader is None)
            fake_api.denied = set()

            await them.led(1)

    run(main())


def test_a_follower_sees_each_leader_though_its_watch_is_silent(fake_api: FakeApi) -> None:
    async def main() -> None:
        async with contending(fake_api) as them:
            seen: list[str] = []

            async def follow() -> None:
                register = register_on(fake_api, limits=RequestLimits(leader_silence_s=0.3))
                async for leader in retrieve(register, SystemClock(), LONG.lease_s):
                    seen.append(leader.name if leader else "")

            following = asyncio.ensure_future(follow())
            first = await them.led()
            await until(lambda: seen[-1:] == [first.name])
            fake_api.silent = True
            first.task.cancel()
            second = await them.led(1)

            await until(lambda: seen[-1:] == [second.name])
            following.cancel()

    run(main())


@pytest.mark.parametrize("lock", [k8s.LEASE, k8s.CONFIG_MAP])
def test_an_idle_cluster_writes_once_a_renewal_and_reads_nothing(
    fake_api: FakeApi, lock: str
) -> None:
    async def main() -> None:
        seen: list[str] = []

        async def follow() -> None:
            async for leader in retrieve(
                register_on(fake_api, lock=lock), SystemClock(), LONG.lease_s
            ):
                seen.append(leader.name if leader else "")

        async with contending(fake_api, LONG, lock) as them:
            followers = [asyncio.ensure_future(follow()) for _ in range(5)]
            leader = await them.led()
            await until(lambda: seen.count(leader.name) == len(followers))
            await until(lambda: fake_api.count("GET", "'watch': 'true'") == 8)

            before = len(fake_api.asked)
            await until(lambda: len(fake_api.asked) >= before + 5)

            assert {"PATCH"} == {one.method for one in fake_api.asked[before:]}
            for follower in followers:
                follower.cancel()
            await asyncio.gather(*followers, return_exceptions=True)

    run(main())
