"""Leaders that write, while the API server fails at random: the history of all they were told.

Each leader appends to one document, fenced by its term. In the end each acknowledged write is there
once, terms never fall along the document, a term has one holder, and no two may act at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.ha.test_kubernetes_election import Contender, Contenders, contending
from tests.kubernetes.fake import FakeApi
from tests.support.kubernetes import register_on, run, until
from understudy.core.lease import Timing
from understudy.errors import LeadershipLost, NotFoundError
from understudy.ha.backends.kubernetes import options as k8s
from understudy.ha.documents import Document
from understudy.ha.election import Leadership
from understudy.ha.register import Conflict
from understudy.ha.registry import Registry

TIMING = Timing(lease_s=1.5, renew_deadline_s=1.0, retry_s=0.2)
LEADERS = 3
"""After so many terms at least, a history is long enough."""


class Log(msgspec.Struct, frozen=True):
    """What leaders have written: term and number of each write."""

    writes: tuple[tuple[int, int], ...] = ()


Fault = Callable[[FakeApi, Contenders, random.Random], float]
"""Does something, and returns how long that should last."""


def _freeze(api: FakeApi, them: Contenders, draw: random.Random) -> float:
    api.freeze()
    return draw.choice([0.2, 0.5, 1.6])


def _stop(api: FakeApi, them: Contenders, draw: random.Random) -> float:
    api.stop()
    return draw.choice([0.0, 0.3, 1.6])


def _fail(api: FakeApi, them: Contenders, draw: random.Random) -> float:
    how: dict[str, Any] = draw.choice(
        [
            {"lose_answer": True},
            {"lose_request": True},
            {"status": 500},
            {"status": 409, "reason": "Conflict"},
            {"body": b"<html>log in</html>"},
            {"delay_s": 0.4},
        ]
    )
    api.fail(method=draw.choice(["GET", "PATCH"]), times=draw.randint(1, 4), **how)
    return 0.2


def _silence(api: FakeApi, them: Contenders, draw: random.Random) -> float:
    api.silent = True
    return 0.3


def _forget(api: FakeApi, them: Contenders, draw: random.Random) -> float:
    api.compact()
    api.end_watches()
    return 0.1


def _close(api: FakeApi, them: Contenders, draw: random.Random) -> float:
    """Have the leader step down, as at SIGTERM, and contend again."""
    if leader := them.leader:
        leader.closes.set()
    return 0.2


FAULTS: tuple[Fault, ...] = (_freeze, _stop, _fail, _fail, _fail, _silence, _forget, _close)


class Writer(Contender):
    """A contender whose leader writes without end."""

    async def _body(self, leadership: Leadership) -> None:
        term = leadership.term
        self.terms.append(term)
        await Registry(self.register, "flights").claim(term, ephemeral=False, anew=True)
        document = Document(self.register, "log", "log", Log)
        try:
            await document.claim(term)
        except NotFoundError:
            try:
                await document.create(term, Log())
            except Conflict:
                await document.claim(term)
        await leadership.publish(f"http://{self.name}", f"@{self.name}")
        number = 0
        self.closes.clear()
        while not self.closes.is_set():
            number += 1
            write = (term, number)
            await document.update(term, lambda log: Log((*log.writes, write)))  # noqa: B023
            self.acknowledged.append(write)
            await asyncio.sleep(0.01)
        raise LeadershipLost("closes")


async def _break_things(api: FakeApi, them: Contenders, draw: random.Random) -> None:
    while True:
        lasts_s = await asyncio.to_thread(draw.choice(FAULTS), api, them, draw)
        await asyncio.sleep(lasts_s)
        api.silent = False
        api.thaw()
        if api._server is None:
            await asyncio.to_thread(api.start)
        await asyncio.sleep(draw.uniform(0.05, 0.4))


@pytest.mark.parametrize(
    ("seed", "lock"),
    [
        (1, k8s.LEASE),
        *(
            pytest.param(seed, lock, marks=pytest.mark.long)
            for seed in range(2, 12)
            for lock in (k8s.LEASE, k8s.CONFIG_MAP)
        ),
    ],
)
def test_no_acknowledged_write_is_lost_and_none_of_an_older_term_accepted(
    fake_api: FakeApi, seed: int, lock: str
) -> None:
    async def main() -> None:
        draw = random.Random(seed)
        async with contending(fake_api, TIMING, lock, kind=Writer) as them:
            breaking = asyncio.ensure_future(_break_things(fake_api, them, draw))
            await until(lambda: len(them.terms) > LEADERS)
            breaking.cancel()
            await asyncio.gather(breaking, return_exceptions=True)
            fake_api.silent = False
            fake_api.thaw()
            if fake_api._server is None:
                await asyncio.to_thread(fake_api.start)
            fake_api.faults.clear()
        acknowledged = [write for one in them.all for write in one.acknowledged]
        log = await Document(register_on(fake_api, lock=lock), "log", "log", Log).read()

        assert log is not None
        assert len(log.writes) == len(set(log.writes))
        assert set(acknowledged) <= set(log.writes)
        assert list(log.writes) == sorted(log.writes)

    run(main())
