"""The registry: what it links is real, and nothing else remains."""

from __future__ import annotations

import functools

import msgspec
import pytest
from msgspec.structs import replace

from tests.ha import ground
from tests.support.faulty_register import Durable, Fault, Faults
from tests.support.virtual_time import run_virtual
from understudy.core.ids import RUN_ID_MAX
from understudy.errors import CorruptDataError, ForeignDataError, LeadershipLost
from understudy.ha.registry import (
    APPLICATION_PREFIX,
    APPLICATIONS_MAX,
    ENDED_BYTES_MAX,
    HISTORY_MAX,
    SEGMENT_PREFIX,
    TOMBSTONES_BYTES_MAX,
    Registry,
    application_document,
    nonce,
    segment_document,
)
from understudy.model import (
    ApplicationId,
    ApplicationStatus,
    LeadershipSpan,
    Pointer,
    RegistryLink,
    RunId,
    Segment,
    Tombstone,
)

LINK = RegistryLink(document="application-1", run_id=ground.RUN)
STONE = Tombstone(
    application_id=ground.APPLICATION,
    run_id=ground.RUN,
    name="flights",
    status=ApplicationStatus.FINISHED,
    started_at=1.0,
    ended_at=2.0,
    file=Pointer(path="tombstones/run-1~1.json", digest="sha256:0", size=1),
)


def test_the_first_claim_creates_the_registry_and_later_ones_keep_it() -> None:
    async def main() -> None:
        durable = Durable()
        assert await ground.services(durable).registry.read() is None
        first = await ground.services(durable).registry.claim(1, ephemeral=True)
        second = await ground.services(durable).registry.claim(2, ephemeral=False)

        assert (ground.CLUSTER, True) == (first.cluster_id, first.ephemeral)
        assert first == second, "its incarnation is that of the cluster, not of the leader"
        assert 2 == await ground.services(durable).registry.highest_term()

    run_virtual(main())


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.FAILS])
def test_a_first_claim_without_an_answer_creates_one_registry(fault: Fault) -> None:
    async def main() -> None:
        durable = Durable()
        body = await ground.services(durable, Faults({2: fault})).registry.claim(1, ephemeral=False)

        assert body == await ground.services(durable).registry.read()

    run_virtual(main())


def test_two_first_leaders_make_one_registry_and_the_newer_term_keeps_it() -> None:
    async def main() -> None:
        durable = Durable()
        old, new = ground.services(durable).registry, ground.services(durable).registry
        await new.claim(2, ephemeral=False)
        with pytest.raises(LeadershipLost):
            await old.claim(1, ephemeral=False)

    run_virtual(main())


def test_a_deposed_leader_links_buries_and_forgets_nothing() -> None:
    async def main() -> None:
        durable = Durable()
        old, new = ground.services(durable).registry, ground.services(durable).registry
        await old.claim(1, ephemeral=False)
        before = await new.claim(2, ephemeral=False)
        for write in (
            old.link(1, ground.APPLICATION, LINK),
            old.bury(1, ground.APPLICATION, STONE),
            old.forget(1, [ground.RUN]),
            old.record(1, lambda _: []),
            old.sweep(1),
            old.remove(1),
        ):
            with pytest.raises(LeadershipLost):
                await write

        assert before == await new.read()

    run_virtual(main())


def test_burying_unlinks_and_leaves_the_tombstone_in_one_write() -> None:
    async def main() -> None:
        durable = Durable()
        registry = ground.services(durable).registry
        await registry.claim(1, ephemeral=False)
        await registry.link(1, ground.APPLICATION, LINK)
        await registry.link(1, ApplicationId("b"), LINK)
        writes = len(durable.history)
        body = await registry.bury(1, ground.APPLICATION, STONE)

        assert {ApplicationId("b"): LINK} == body.applications
        assert {ground.RUN: STONE} == body.tombstones
        assert writes + 1 == len(durable.history)

        without = await registry.bury(1, ApplicationId("b"), None)

        assert ({}, {ground.RUN: STONE}) == (without.applications, without.tombstones)

    run_virtual(main())


def test_forgotten_tombstones_go_and_the_others_stay() -> None:
    async def main() -> None:
        registry = ground.services(Durable()).registry
        await registry.claim(1, ephemeral=False)
        await registry.bury(1, ground.APPLICATION, STONE)
        body = await registry.forget(1, [RunId("another")])

        assert {ground.RUN: STONE} == body.tombstones

        body = await registry.forget(1, [ground.RUN])

        assert {} == body.tombstones
        assert {ground.RUN: STONE.status} == body.ended, "that it ended stays known"

    run_virtual(main())


def appended(span: LeadershipSpan, history: tuple[LeadershipSpan, ...]) -> list[LeadershipSpan]:
    return [*history, span]


def test_of_the_history_the_oldest_spans_fall_out() -> None:
    async def main() -> None:
        registry = ground.services(Durable()).registry
        await registry.claim(1, ephemeral=False)
        for term in range(HISTORY_MAX + 5):
            span = LeadershipSpan(term=term, holder="me", granted_at=0.0)
            body = await registry.record(1, functools.partial(appended, span))

        assert list(range(5, HISTORY_MAX + 5)) == [span.term for span in body.history]

    run_virtual(main())


def test_a_registry_of_another_cluster_is_foreign_and_left_alone() -> None:
    async def main() -> None:
        durable = Durable()
        await ground.services(durable).registry.claim(1, ephemeral=False)
        other = Registry(durable.register, "trains")
        for attempt in (other.read(), other.claim(2, ephemeral=False)):
            with pytest.raises(ForeignDataError, match="'flights', not to 'trains'"):
                await attempt

    run_virtual(main())


def test_a_damaged_registry_is_named_and_not_created_anew() -> None:
    async def main() -> None:
        durable = Durable()
        await durable.register.swap("registry", b"garbage", None)
        registry = ground.services(durable).registry
        for attempt in (registry.read(), registry.claim(1, ephemeral=False)):
            with pytest.raises(CorruptDataError, match="registry"):
                await attempt
        entry = await durable.register.load("registry")

        assert entry is not None
        assert b"garbage" == entry.value

    run_virtual(main())


# --- the sweep ------------------------------------------------------------------------------------


def test_the_sweep_removes_what_nothing_links_and_nothing_else() -> None:
    async def main() -> None:
        durable = Durable()
        stores = ground.services(durable)
        plans = await ground.opened(stores)
        await plans.add(1, ground.job(1))
        before = await stores.register.keys("")
        body = Segment(application_id=ground.APPLICATION)
        orphan = f"{SEGMENT_PREFIX}{nonce()}"
        await segment_document(stores.register, orphan).create(1, body)
        swept = await ground.services(durable).registry.sweep(2)

        assert [orphan] == swept
        assert before == await stores.register.keys("")

        await ground.services(durable).registry.bury(2, ground.APPLICATION, STONE)
        swept = await ground.services(durable).registry.sweep(2)

        assert sorted(set(before) - {"registry"}) == sorted(swept)
        assert ["registry"] == await stores.register.keys("")

    run_virtual(main())


def test_the_sweep_of_a_deposed_leader_removes_nothing() -> None:
    async def main() -> None:
        durable = Durable()
        stores = ground.services(durable)
        await stores.registry.claim(1, ephemeral=False)
        await ground.services(durable).registry.claim(2, ephemeral=False)
        key = f"{SEGMENT_PREFIX}{nonce()}"
        await segment_document(stores.register, key).create(
            2, Segment(application_id=ground.APPLICATION)
        )
        with pytest.raises(LeadershipLost):
            await stores.registry.sweep(1)

        assert key in await stores.register.keys("")

    run_virtual(main())


def test_the_sweep_leaves_damaged_documents_in_place_and_removes_the_sound_ones() -> None:
    async def main() -> None:
        durable = Durable()
        stores = ground.services(durable)
        await stores.registry.claim(1, ephemeral=False)
        await durable.register.swap(f"{APPLICATION_PREFIX}0", b"garbage", None)
        key = f"{SEGMENT_PREFIX}1"
        await segment_document(stores.register, key).create(
            1, Segment(application_id=ground.APPLICATION)
        )

        assert [key] == await stores.registry.sweep(2)
        assert [f"{APPLICATION_PREFIX}0", "registry"] == await stores.register.keys("")

    run_virtual(main())


def test_the_sweep_keeps_every_segment_while_a_linked_application_cannot_be_read() -> None:
    """Nobody can tell which segments are its own: a person may still repair it."""

    async def main() -> None:
        durable = Durable()
        stores = ground.services(durable)
        plans = await ground.opened(stores)
        await plans.add(1, ground.job(1))
        (key,) = await stores.register.keys(APPLICATION_PREFIX)
        entry = await durable.register.load(key)
        assert entry is not None
        await durable.register.swap(key, b"garbage", entry.version)
        before = await stores.register.keys("")
        orphan = f"{APPLICATION_PREFIX}0"
        sound = ground.decoded(key, entry.value)[1]
        await application_document(stores.register, orphan).create(1, sound)  # type: ignore[arg-type]

        assert [orphan] == await ground.services(durable).registry.sweep(2)
        assert before == await stores.register.keys("")

    run_virtual(main())


def test_when_tombstones_fill_the_registry_the_oldest_go_and_it_can_still_be_written() -> None:
    async def main() -> None:
        stores = ground.services(Durable())
        await stores.registry.claim(1, ephemeral=False)
        for number in range(12):
            stone = replace(
                STONE,
                run_id=RunId(f"run-{number}"),
                ended_at=float(number),
                left_behind=("x" * (TOMBSTONES_BYTES_MAX // 10),),
            )
            body = await stores.registry.bury(1, ground.APPLICATION, stone)
        await stores.registry.claim(2, ephemeral=False)
        linked = await stores.registry.link(2, ground.APPLICATION, LINK)

        assert [f"run-{number}" for number in range(3, 12)] == list(body.tombstones)
        assert body.tombstones == linked.tombstones

    run_virtual(main())


def test_a_single_tombstone_is_kept_however_large() -> None:
    async def main() -> None:
        stores = ground.services(Durable())
        await stores.registry.claim(1, ephemeral=False)
        stone = replace(STONE, left_behind=("x" * TOMBSTONES_BYTES_MAX,))
        body = await stores.registry.bury(1, ground.APPLICATION, stone)

        assert [ground.RUN] == list(body.tombstones)

    run_virtual(main())


def test_of_ended_runs_the_oldest_are_forgotten_once_there_is_no_room() -> None:
    async def main() -> None:
        registry = ground.services(Durable()).registry
        await registry.claim(1, ephemeral=False)
        runs = [RunId(f"run-{number:0200d}") for number in range(1000)]
        stones = {
            run: replace(STONE, run_id=run, ended_at=float(at)) for at, run in enumerate(runs)
        }
        await registry._document.update(1, lambda body: replace(body, tombstones=stones))
        body = await registry.forget(1, runs)
        kept = list(body.ended)

        assert kept == runs[-len(kept) :]
        assert ENDED_BYTES_MAX * 0.9 < len(msgspec.json.encode(body.ended)) <= ENDED_BYTES_MAX

    run_virtual(main())


def test_with_as_many_applications_as_a_leader_takes_the_registry_can_still_be_written() -> None:
    async def main() -> None:
        registry = ground.services(Durable()).registry
        await registry.claim(1, ephemeral=False)
        links = {
            ApplicationId(f"{number:032x}"): RegistryLink(
                document=f"{APPLICATION_PREFIX}{number:016x}",
                run_id=RunId(f"{number:0{RUN_ID_MAX}d}"),
                request=f"{number:016x}",
            )
            for number in range(APPLICATIONS_MAX)
        }
        stones = {
            RunId(f"stone-{number}"): replace(
                STONE, run_id=RunId(f"stone-{number}"), left_behind=("x" * 10_000,)
            )
            for number in range(TOMBSTONES_BYTES_MAX // 10_000 - 5)
        }
        ended = {
            RunId(f"{number:0{RUN_ID_MAX}d}"): STONE.status
            for number in range(ENDED_BYTES_MAX // (RUN_ID_MAX + 14))
        }
        await registry._document.update(
            1, lambda body: replace(body, tombstones=stones, ended=ended)
        )
        for number in range(39, APPLICATIONS_MAX, 40):  # Each one is a write of a megabyte.
            few = dict(list(links.items())[:number])
            await registry._document.update(1, functools.partial(replace, applications=few))
            last_link = list(links.items())[number]
            await registry.link(1, *last_link)
        span = LeadershipSpan(term=1, holder="h" * 100, granted_at=1e9, rest="r" * 100)
        await registry.record(2, lambda _: [span] * HISTORY_MAX)
        for number in range(20):
            last = replace(
                STONE,
                run_id=RunId(f"last-{number}"),
                ended_at=2e9 + number,
                left_behind=("x" * 10_000,),
            )
            body = await registry.bury(2, ApplicationId(f"{number:032x}"), last)

        assert APPLICATIONS_MAX - 20 == len(body.applications)
        assert {RunId(f"last-{number}") for number in range(20)} <= body.tombstones.keys()
        assert len(body.tombstones) < len(stones)

    run_virtual(main())
