"""JobManagers of one cluster that were given different places for the leader's record."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from tests.kubernetes.fake import FakeApi
from tests.support.kubernetes import RECORD, register_on, run
from understudy.errors import ConfigurationError
from understudy.ha.backends.kubernetes import options as k8s
from understudy.ha.backends.kubernetes.register import KubernetesRegister
from understudy.ha.retrieval import encode_leader
from understudy.kubernetes.client import RequestLimits

LOCKS = (k8s.LEASE, k8s.CONFIG_MAP)


def opened(api: FakeApi, lock: str) -> KubernetesRegister:
    return register_on(api, lock=lock, limits=RequestLimits(20.0, 20.0))


def other(lock: str) -> str:
    return LOCKS[1 - LOCKS.index(lock)]


@pytest.mark.parametrize("lock", LOCKS)
def test_nobody_leads_by_the_other_place_while_somebody_leads(fake_api: FakeApi, lock: str) -> None:
    async def main() -> None:
        leader, stranger = opened(fake_api, lock), opened(fake_api, other(lock))
        data = encode_leader(RECORD)
        version = await leader.swap("leader", data, None)
        with pytest.raises(OSError, match="jobmanager-1 leads this cluster by"):
            await stranger.swap("leader", data, None)
        start = asyncio.ensure_future(stranger.prove())
        while not start.done():
            version = await leader.swap("leader", data, version)
            await asyncio.sleep(0.05)

        with pytest.raises(ConfigurationError, match="give all JobManagers of the cluster"):
            start.result()
        assert await stranger.load("leader") is None

    run(main())


def test_a_record_that_nobody_renews_is_no_obstacle(fake_api: FakeApi) -> None:
    async def main() -> None:
        dead = encode_leader(
            type(RECORD)(holder=RECORD.holder, term=7, session="", name="dead", lease_s=1.0)
        )
        await register_on(fake_api).swap("leader", dead, None)
        began = time.monotonic()
        register = register_on(fake_api, lock=k8s.CONFIG_MAP)

        await register.prove()
        await register.swap("leader", encode_leader(RECORD), None)

        assert time.monotonic() - began >= 1.0

    run(main())


def test_of_two_that_write_at_once_the_later_one_withdraws(fake_api: FakeApi) -> None:
    async def main() -> None:
        for _ in range(5):
            both = [opened(fake_api, lock) for lock in LOCKS]
            data = encode_leader(RECORD)
            written = await asyncio.gather(
                *(one.swap("leader", data, None) for one in both), return_exceptions=True
            )
            led = [one for one in written if isinstance(one, str)]
            kept = [await _held(one) for one in both]

            assert len(led) == sum(kept) <= 1
            for one in both:
                with contextlib.suppress(OSError):
                    if entry := await one.load("leader"):
                        await one.swap("leader", None, entry.version)

    run(main())


async def _held(register: KubernetesRegister) -> bool:
    return await register.load("leader") is not None
