"""Writers of entries that share ConfigMaps, while everything fails at random: nothing is lost.

Each writer appends its own numbers to lists in the register, by load and swap alone. Whatever
happened to an answer, the writer settles it by reading. In the end each number is there once.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable

import pytest

from tests.kubernetes.fake import FakeApi
from tests.support.kubernetes import register_on, run
from understudy.core.backoff import Backoff
from understudy.ha.backends.kubernetes.register import KubernetesRegister
from understudy.ha.register import Conflict
from understudy.kubernetes import pauses
from understudy.kubernetes.client import RequestLimits

KEYS = ("leader", "registry", "artifacts", "jobs-0123456789abcdef-1", "jobs-0123456789abcdef-2")
LARGE = {"registry": 600_000, "artifacts": 600_000}
"""Values so large that only one of them fits into their ConfigMap."""

WRITERS, NUMBERS = 3, 3
WAITING_MAX = 4
"""Faults that wait for their request."""

LIMITS = RequestLimits(common_s=0.5, renewal_s=0.5)

Fault = Callable[[FakeApi, random.Random], None]

FAULTS: tuple[Fault, ...] = (
    lambda api, draw: _fail(api, draw, lose_answer=True),
    lambda api, draw: _fail(api, draw, lose_request=True),
    lambda api, draw: _fail(api, draw, status=500, reason="InternalError"),
    lambda api, draw: _fail(api, draw, status=429, reason="TooManyRequests"),
    lambda api, draw: _fail(api, draw, status=409, reason="Conflict"),
    lambda api, draw: _fail(api, draw, status=404, body=b"<html>no such page</html>"),
    lambda api, draw: _fail(api, draw, body=b"<html>log in</html>"),
    lambda api, draw: _fail(api, draw, delay_s=draw.uniform(0.0, 0.7)),
    lambda api, _: api.end_watches(),
    lambda api, _: _restart(api),
)


def _fail(api: FakeApi, draw: random.Random, **how: object) -> None:
    api.fail(method=draw.choice(["GET", "POST", "PATCH", "PATCH", "DELETE"]), **how)


def _restart(api: FakeApi) -> None:
    api.stop()
    api.start()


def _listed(value: bytes | None) -> list[int]:
    numbers: list[int] = json.loads(value)["numbers"] if value else []
    return numbers


def _valued(key: str, numbers: list[int]) -> bytes:
    return json.dumps({"numbers": numbers, "padding": "x" * LARGE.get(key, 0)}).encode()


async def append(register: KubernetesRegister, key: str, number: int) -> None:
    """Append a number to a key's list; however often that takes."""
    while True:
        try:
            entry = await register.load(key)
            numbers = _listed(entry.value if entry else None)
            if number in numbers:
                return  # A write with an unknown outcome was done.
            version = entry.version if entry else None
            await register.swap(key, _valued(key, [*numbers, number]), version)
        except (Conflict, OSError, TimeoutError):
            continue
        return


async def break_things(api: FakeApi, draw: random.Random) -> None:
    """Have faults happen, one after the other, until cancelled."""
    while True:
        if len(api.faults) < WAITING_MAX:
            await asyncio.to_thread(draw.choice(FAULTS), api, draw)
        await asyncio.sleep(draw.uniform(0.0, 0.06))


@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(n, marks=pytest.mark.long) for n in range(3, 40))]
)
def test_each_acknowledged_write_is_there_once(
    fake_api: FakeApi, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        monkeypatch.setattr(pauses, "REQUEST", Backoff(0.001, 2.0))
        draw = random.Random(seed)
        registers = [register_on(fake_api, limits=LIMITS) for _ in range(WRITERS)]
        breaking = asyncio.ensure_future(break_things(fake_api, draw))

        async def write(writer: int) -> None:
            for number in range(writer * NUMBERS, (writer + 1) * NUMBERS):
                for key in KEYS:
                    await append(registers[writer], key, number)

        await asyncio.gather(*(write(writer) for writer in range(WRITERS)))
        breaking.cancel()
        await asyncio.gather(breaking, return_exceptions=True)
        with fake_api._lock:
            fake_api.faults.clear()

        register = register_on(fake_api)
        entries = {key: await register.load(key) for key in KEYS}
        found = {key: _listed(entry.value) for key, entry in entries.items() if entry}
        assert sorted(KEYS) == await register.keys("")
        for key in KEYS:
            assert list(range(WRITERS * NUMBERS)) == sorted(found[key]), key

        for key, entry in entries.items():
            assert entry is not None
            await register.swap(key, None, entry.version)
        assert [] == await register.keys("")
        left = [name for name in fake_api.names("configmaps") if "-part-" not in name]
        assert [] == left + fake_api.names("leases")

    run(main())
