"""The leader's record: written by who leads, put right where others have touched it."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from tests.ha.electorate import TIMING, Contender, Electorate, two
from understudy.ha.election import Leadership
from understudy.ha.retrieval import LEADER_KEY, encode_leader
from understudy.model import Incarnation, LeaderRecord

LEASE_S, DEADLINE_S, RETRY_S = TIMING.lease_s, TIMING.renew_deadline_s, TIMING.retry_s


def put(them: Electorate, record: LeaderRecord) -> None:
    """Let a third party write the record, whatever stands there."""
    person = them.world.machine("person")

    async def write() -> None:
        entry = await them.register.load(LEADER_KEY)
        await them.register.swap(
            LEADER_KEY, encode_leader(record), entry.version if entry else None
        )

    writing = person.spawn(write())
    them.world.run(writing.done)
    writing.result()


def served(them: Electorate, contender: Contender) -> LeaderRecord:
    """Return the record once a leader serves, well before its next renewal."""
    them.until_led(contender)
    them.world.run(lambda: bool((record := them.record()) and record.rpc), 5)
    record = them.record()
    assert record is not None
    return record


def test_an_address_that_somebody_altered_is_put_right_within_two_renewals(
    them: Electorate,
) -> None:
    leader = them.contender("leader")
    right = served(them, leader)
    put(them, replace(right, rest="http://elsewhere", rpc="tcp://elsewhere"))
    them.later(2 * RETRY_S + 1)
    record = them.record()

    assert record is not None
    assert (right.term, right.session, right.rest, right.rpc) == (
        record.term,
        record.session,
        record.rest,
        record.rpc,
    )
    assert 1 == len(leader.tenures)


@pytest.mark.parametrize(("term", "holder"), [(1, "stranger"), (7, "stranger"), (7, "leader")])
def test_a_leader_in_whose_place_somebody_wrote_another_stops_at_once(
    them: Electorate, term: int, holder: str
) -> None:
    leader = them.contender("leader")
    right = served(them, leader)
    put(them, replace(right, term=term, holder=Incarnation(holder)))
    them.world.run(lambda: leader.tenures[0].ended_at is not None, 2 * RETRY_S + 1)
    them.terms[term] = holder
    leader.task.cancel()
    them.later(RETRY_S)
    record = them.record()

    assert record is not None
    assert (term, holder) == (record.term, record.holder)


def test_a_standby_writes_nothing_while_somebody_leads_whatever_others_write(
    them: Electorate,
) -> None:
    leader, standby = two(them)
    record = them.record()
    assert record is not None
    put(them, replace(record, rest="http://elsewhere"))
    them.later(60)

    assert 0 == standby.line.writes
    assert leader.leads


def test_an_old_grant_publishes_nothing_in_the_term_of_another(them: Electorate) -> None:
    leader, standby = two(them)
    old = leader.tenures[0].leadership
    leader.machine.pause()
    them.later(LEASE_S + 3)
    assert standby.leads

    leader.machine.resume()
    late = leader.machine.spawn(old.publish("http://late", "tcp://late"))
    them.later(60)
    record = them.record()

    assert record is not None
    assert (2, "http://standby", "tcp://standby") == (record.term, record.rest, record.rpc)
    assert not late.done()


def test_a_grant_that_is_over_publishes_nothing_where_nobody_leads(them: Electorate) -> None:
    leader = them.contender("leader")
    served(them, leader)
    old = leader.tenures[0].leadership
    leader.task.cancel()
    them.world.run(leader.task.done, 5)
    leader.machine.spawn(old.publish("http://late", "tcp://late"))
    them.later(60)
    record = them.record()

    assert record is not None
    assert ("", "", "") == (record.holder, record.rest, record.rpc)


def test_addresses_are_written_once_and_no_renewal_changes_them(them: Electorate) -> None:
    leader = them.contender("leader")
    first = served(them, leader)
    published = leader.line.writes
    them.later(60)
    record = them.record()

    assert record is not None
    assert 3 == published, "the grant, the claim of the registry, and the addresses"
    assert (first.rest, first.rpc, first.session) == (record.rest, record.rpc, record.session)


def test_a_leader_that_recovers_for_longer_than_a_lease_goes_on_leading(them: Electorate) -> None:
    leader = them.contender("leader")
    leader.publishes = False
    recovered: list[float] = []

    async def recover(_: Leadership) -> None:
        await asyncio.sleep(3 * LEASE_S)
        recovered.append(them.world.now)
        await asyncio.Event().wait()

    leader.ends = recover
    them.until_led(leader)
    standby = them.contender("standby")
    them.later(4 * LEASE_S)

    assert (1, 1, 0) == (len(recovered), len(leader.tenures), len(standby.tenures))
