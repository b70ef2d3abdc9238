"""The suite of ``understudy.ha.register.Register``: the promises of every backend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.contract.actors import increment_once
from tests.contract.conftest import Backend
from understudy.ha.register import VALUE_BYTES_MAX, Conflict, Entry, Register

KEYS = [
    "leader",
    "jobs/a/b",
    "/absolute/",
    "a.b..c",
    ".",
    "..",
    "../up",
    ".draft.1",
    "cur.1",
    "val.1",
    "with space",
    "100%",
    "%2E",
    "plus+and&=?#*[]{}",
    "back\\slash",
    "new\nline",
    "-rf",
    "~",
    "Groß-größer-ΑΩ-日本-🎭",
    "e\N{COMBINING ACUTE ACCENT}",
    "UPPER",
    "upper",
    "k" * 200,
]
"""Possible names of documents, and names that a careless backend cannot store."""


@asynccontextmanager
async def following(register: Register, key: str) -> AsyncIterator[Follower]:
    """Follow a key during the block."""
    follower = Follower()
    task = asyncio.create_task(follower.run(register, key))
    try:
        yield follower
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Follower:
    """Keeps the value of a key at each wake-up: the one that came with it, or the loaded one."""

    def __init__(self) -> None:
        self._seen: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def run(self, register: Register, key: str) -> None:
        """Follow for ever."""
        async for pushed in register.changes(key):
            entry = pushed.entry if pushed else await register.load(key)
            self._seen.put_nowait(entry.value if entry else None)

    async def sees(self, value: bytes | None) -> None:
        """Return once a value was seen; the suite's patience limits the wait."""
        while await self._seen.get() != value:
            continue


def test_an_absent_key_loads_as_none(backend: Backend) -> None:
    async def main() -> None:
        assert await backend.open().load("leader") is None

    backend.run(main())


def test_an_unused_register_has_no_keys(backend: Backend) -> None:
    async def main() -> None:
        assert await backend.open().keys("") == []

    backend.run(main())


def test_what_one_process_created_another_loads_with_the_version_it_was_told(
    backend: Backend,
) -> None:
    async def main() -> None:
        one, other = backend.open(), backend.open()

        version = await one.swap("leader", b"value", None)

        assert Entry(b"value", version) == await other.load("leader")

    backend.run(main())


def test_a_replaced_value_loads_with_its_new_version(backend: Backend) -> None:
    async def main() -> None:
        one, other = backend.open(), backend.open()
        first = await one.swap("leader", b"first", None)

        second = await other.swap("leader", b"second", first)

        assert first != second
        assert Entry(b"second", second) == await one.load("leader")

    backend.run(main())


@pytest.mark.parametrize(
    "value",
    [b"", b"\0", bytes(range(256)), b"\n" * 3, b"x" * VALUE_BYTES_MAX],
    ids=["empty", "zero", "every byte", "newlines", "the largest"],
)
def test_a_value_is_kept_to_the_byte(backend: Backend, value: bytes) -> None:
    async def main() -> None:
        register = backend.open()
        created = await register.swap("leader", value, None)
        version = await register.swap("leader", value, created)

        assert Entry(value, version) == await register.load("leader")

    backend.run(main())


def test_creating_what_exists_conflicts_and_changes_nothing(backend: Backend) -> None:
    async def main() -> None:
        one, other = backend.open(), backend.open()
        version = await one.swap("leader", b"first", None)

        with pytest.raises(Conflict):
            await other.swap("leader", b"second", None)

        assert Entry(b"first", version) == await one.load("leader")

    backend.run(main())


def test_a_stale_version_conflicts_and_changes_nothing(backend: Backend) -> None:
    async def main() -> None:
        one, other = backend.open(), backend.open()
        first = await one.swap("leader", b"first", None)
        second = await other.swap("leader", b"second", first)

        for value in (b"third", None):
            with pytest.raises(Conflict):
                await one.swap("leader", value, first)

        assert Entry(b"second", second) == await one.load("leader")

    backend.run(main())


def test_a_deleted_key_is_absent_and_not_listed(backend: Backend) -> None:
    async def main() -> None:
        one, other = backend.open(), backend.open()
        version = await one.swap("leader", b"value", None)

        await other.swap("leader", None, version)

        assert await one.load("leader") is None
        assert [] == await one.keys("")

    backend.run(main())


@pytest.mark.parametrize("value", [b"late", None], ids=["replace", "delete"])
def test_swapping_a_deleted_key_conflicts(backend: Backend, value: bytes | None) -> None:
    async def main() -> None:
        one, other = backend.open(), backend.open()
        version = await one.swap("leader", b"value", None)
        await other.swap("leader", None, version)

        with pytest.raises(Conflict):
            await one.swap("leader", value, version)

        assert await one.load("leader") is None

    backend.run(main())


def test_a_version_that_never_was_conflicts(backend: Backend) -> None:
    async def main() -> None:
        register, elsewhere = backend.open(), backend.open()
        version = await elsewhere.swap("elsewhere", b"value", None)

        with pytest.raises(Conflict):
            await register.swap("leader", b"value", version)

        assert ["elsewhere"] == await register.keys("")

    backend.run(main())


def test_deleting_what_is_absent_on_purpose_is_done_and_conflicts_where_it_exists(
    backend: Backend,
) -> None:
    async def main() -> None:
        register = backend.open()
        await register.swap("leader", None, None)
        version = await register.swap("leader", b"value", None)

        with pytest.raises(Conflict):
            await register.swap("leader", None, None)

        assert Entry(b"value", version) == await register.load("leader")

    backend.run(main())


def test_no_version_is_used_twice_through_deletes_and_new_creations(backend: Backend) -> None:
    async def main() -> None:
        one, other = backend.open(), backend.open()
        versions = []
        for register in (one, other) * 5:
            versions.append(await register.swap("leader", b"same", None))
            versions.append(await register.swap("leader", b"same", versions[-1]))
            versions.append(await register.swap("leader", None, versions[-1]))

        assert len(versions) == len(set(versions))

    backend.run(main())


def test_a_version_of_an_earlier_life_of_the_key_conflicts(backend: Backend) -> None:
    async def main() -> None:
        one, paused = backend.open(), backend.open()
        old = await one.swap("leader", b"same", None)
        await one.swap("leader", None, old)
        new = await one.swap("leader", b"same", None)

        for value in (b"stale", None):
            with pytest.raises(Conflict):
                await paused.swap("leader", value, old)

        assert Entry(b"same", new) == await one.load("leader")

    backend.run(main())


def test_keys_are_listed_by_prefix_and_sorted(backend: Backend) -> None:
    async def main() -> None:
        one, other = backend.open(), backend.open()
        for key in ("jobs-b", "jobs-a", "leader", "jobs", "job"):
            await one.swap(key, b"", None)

        assert ["jobs-a", "jobs-b"] == await other.keys("jobs-")
        assert ["jobs", "jobs-a", "jobs-b"] == await other.keys("jobs")
        assert ["job", "jobs", "jobs-a", "jobs-b", "leader"] == await other.keys("")
        assert [] == await other.keys("none")

    backend.run(main())


@pytest.mark.parametrize("key", KEYS, ids=[f"{key[:20]!a}" for key in KEYS])
def test_any_name_is_a_key(backend: Backend, key: str) -> None:
    async def main() -> None:
        one, other = backend.open(), backend.open()

        first = await one.swap(key, b"first", None)
        second = await other.swap(key, b"second", first)

        assert [key] == await one.keys("")
        assert [key] == await one.keys(key[:1])
        assert Entry(b"second", second) == await one.load(key)

        await one.swap(key, None, second)

        assert [] == await other.keys("")

    backend.run(main())


def test_odd_names_are_different_keys(backend: Backend) -> None:
    async def main() -> None:
        register = backend.open()
        for number, key in enumerate(KEYS):
            await register.swap(key, b"%d" % number, None)

        entries = [await register.load(key) for key in KEYS]

        assert sorted(KEYS) == await register.keys("")
        assert [b"%d" % n for n in range(len(KEYS))] == [entry.value for entry in entries if entry]

    backend.run(main())


def test_a_reader_is_woken_at_once(backend: Backend) -> None:
    async def main() -> None:
        async with following(backend.open(), "leader") as follower:
            await follower.sees(None)

    backend.run(main())


def test_changes_wake_a_reader(backend: Backend) -> None:
    async def main() -> None:
        writer = backend.open()
        async with following(backend.open(), "leader") as follower:
            await follower.sees(None)
            for _ in range(3):
                first = await writer.swap("leader", b"created", None)
                await follower.sees(b"created")
                second = await writer.swap("leader", b"replaced", first)
                await follower.sees(b"replaced")
                await writer.swap("leader", None, second)
                await follower.sees(None)

    backend.run(main())


def test_a_key_is_followed_among_others_that_come_and_go(backend: Backend) -> None:
    async def main() -> None:
        writer = backend.open()
        async with following(backend.open(), "jobs-b") as follower:
            await follower.sees(None)
            await writer.swap("leader", b"1", None)
            other = await writer.swap("jobs-a", b"1", None)
            first = await writer.swap("jobs-b", b"2", None)
            await follower.sees(b"2")
            await writer.swap("jobs-a", None, other)
            await writer.swap("jobs-b", b"3", first)
            await follower.sees(b"3")

    backend.run(main())


def test_every_reader_is_woken(backend: Backend) -> None:
    async def main() -> None:
        writer = backend.open()
        async with (
            following(backend.open(), "leader") as one,
            following(backend.open(), "leader") as other,
        ):
            await one.sees(None)
            await other.sees(None)
            await writer.swap("leader", b"value", None)
            await one.sees(b"value")
            await other.sees(b"value")

    backend.run(main())


def test_a_reader_sees_the_last_of_many_changes(backend: Backend) -> None:
    async def main() -> None:
        writer = backend.open()
        async with following(backend.open(), "leader") as follower:
            await follower.sees(None)
            version = await writer.swap("leader", b"0", None)
            for number in range(1, 100):
                version = await writer.swap("leader", b"%d" % number, version)
            await follower.sees(b"99")

    backend.run(main())


def test_a_change_between_two_hints_is_not_missed(backend: Backend) -> None:
    async def main() -> None:
        writer = backend.open()
        version = await writer.swap("leader", b"first", None)
        hints = aiter(backend.open().changes("leader"))

        await anext(hints)
        await writer.swap("leader", b"second", version)  # The reader is busy now.

        await anext(hints)

    backend.run(main())


def test_a_reader_that_leaves_hinders_nobody(backend: Backend) -> None:
    async def main() -> None:
        register = backend.open()
        for _ in range(200):  # More than a user has inotify instances.
            async for _ in register.changes("leader"):
                break

        await register.swap("leader", b"value", None)

    backend.run(main())


def test_racing_increments_of_tasks_lose_nothing(backend: Backend) -> None:
    async def main() -> None:
        async def work(register: Register) -> None:
            for _ in range(10):
                await increment_once(register, "counter")

        await asyncio.gather(*(work(backend.open()) for _ in range(5)))
        entry = await backend.open().load("counter")

        assert entry is not None
        assert b"50" == entry.value

    backend.run(main())


def test_racing_creators_have_one_winner(backend: Backend) -> None:
    async def main() -> None:
        async def create(number: int) -> int | None:
            try:
                await backend.open().swap("leader", b"%d" % number, None)
            except Conflict:
                return None
            return number

        for _ in range(20):
            outcomes = await asyncio.gather(*(create(number) for number in range(5)))
            winners = [number for number in outcomes if number is not None]
            entry = await backend.open().load("leader")

            assert entry is not None
            assert [int(entry.value)] == winners

            await backend.open().swap("leader", None, entry.version)

    backend.run(main())


def test_creating_and_deleting_race_without_harm(backend: Backend) -> None:
    async def main() -> None:
        async def work(register: Register, number: int) -> int:
            owned = 0
            while owned < 10:
                try:
                    version = await register.swap("leader", b"%d" % number, None)
                except Conflict:
                    continue
                entry = await register.load("leader")
                assert Entry(b"%d" % number, version) == entry
                await register.swap("leader", None, version)
                owned += 1
            return owned

        owned = await asyncio.gather(*(work(backend.open(), number) for number in range(3)))

        assert [10, 10, 10] == owned
        assert await backend.open().load("leader") is None

    backend.run(main())
