"""Election on virtual time: who leads, since when, and that nobody else does."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.ha.electorate import TIMING, Electorate, lost, two
from tests.support.virtual_time import Machine
from understudy.core.lease import Timing
from understudy.ha.election import LEAP, Leadership
from understudy.ha.format import Format
from understudy.ha.registry import Registry
from understudy.ha.retrieval import LEADER_KEY, serving_leader
from understudy.model import Incarnation, LeaderRecord

LEASE_S, DEADLINE_S, RETRY_S = TIMING.lease_s, TIMING.renew_deadline_s, TIMING.retry_s


# --- grants ---------------------------------------------------------------------------------------


def test_the_first_contender_leads_at_once_with_term_1(them: Electorate) -> None:
    leader = them.contender("leader")

    assert them.until_led() < 1
    assert (1, "nobody has led before", None) == (
        leader.term,
        leader.tenures[0].leadership.reason,
        leader.tenures[0].leadership.lost_at,
    )


def test_of_many_contenders_one_leads_and_goes_on_leading(them: Electorate) -> None:
    for number in range(5):
        them.contender(f"jobmanager-{number}")
    them.until_led()
    them.later(300)

    assert 1 == sum(len(contender.tenures) for contender in them.contenders)


def test_a_grant_has_a_session_of_its_own_and_keeps_it(them: Electorate) -> None:
    leader, standby = two(them)
    session = leader.tenures[0].leadership.session
    them.later(20)
    record = them.record()

    assert record is not None
    assert (session, 1, "leader") == (record.session, record.term, record.holder)

    leader.crash(proof=False)
    them.until_led(standby)

    assert session != standby.tenures[0].leadership.session


def test_a_leader_is_found_only_once_it_serves(them: Electorate) -> None:
    leader = them.contender("leader")
    leader.publishes = False
    them.until_led()
    at_once = leader.machine.spawn(serving_leader(them.register))
    them.later(10)
    found = leader.machine.spawn(serving_leader(them.register))
    them.later(1)

    assert at_once.result() is None
    assert found.result() is None

    publishing = leader.machine.spawn(leader.tenures[0].leadership.publish("http://a", "tcp://a"))
    them.world.run(publishing.done, 3)
    record = them.record()

    assert record is not None
    assert ("http://a", "tcp://a") == (record.rest, record.rpc)


def test_a_leader_may_act_until_its_deadline_which_grows_with_each_renewal(
    them: Electorate,
) -> None:
    leader = them.contender("leader")
    them.until_led()
    them.later(30)
    deadlines = [deadline for deadline in leader.holds if deadline is not None]

    assert deadlines == leader.holds
    assert sorted(set(deadlines)) == deadlines
    assert 15 <= len(deadlines) <= 18, "one a retry period"
    assert deadlines[-1] <= leader.machine.time() + DEADLINE_S


def test_a_leader_knows_that_its_deadline_has_passed_before_its_body_is_ended(
    them: Electorate,
) -> None:
    leader = them.contender("leader")
    them.until_led()
    leadership = leader.tenures[0].leadership
    acted = leadership.acts()
    leader.machine.pause()
    them.later(DEADLINE_S + 1)

    assert acted
    assert leader.tenures[0].ended_at is None
    assert not leadership.acts()

    leader.machine.resume()
    them.later(1)


# --- losses ---------------------------------------------------------------------------------------


def test_a_standby_waits_for_the_lease_of_a_leader_that_crashed(them: Electorate) -> None:
    leader, standby = two(them)
    leader.crash(proof=False)
    crashed_at = them.world.now
    waited = them.until_led(standby) - crashed_at

    assert LEASE_S - RETRY_S <= waited <= LEASE_S + 1
    assert (2, "its lease ran out") == (standby.term, standby.tenures[0].leadership.reason)


def test_a_standby_takes_over_at_once_from_a_leader_that_is_proved_dead(them: Electorate) -> None:
    leader, standby = two(them)
    leader.crash(proof=True)
    crashed_at = them.world.now
    waited = them.until_led(standby) - crashed_at
    leadership = standby.tenures[0].leadership

    assert waited < 0.5
    assert (2, "it died", "leader") == (
        leadership.term,
        leadership.reason,
        leadership.predecessor.holder,
    )
    assert leadership.lost_at is not None
    assert crashed_at == pytest.approx(
        leadership.lost_at - standby.machine.time() + them.world.now, abs=0.1
    )


def test_a_leader_that_steps_down_is_followed_at_once(them: Electorate) -> None:
    leader, standby = two(them)
    leader.task.cancel()
    began = them.world.now
    waited = them.until_led(standby) - began

    assert waited < 0.5
    assert (2, "it stepped down") == (standby.term, standby.tenures[0].leadership.reason)
    assert leader.holds[-1] is None


def test_a_leader_is_not_followed_before_all_its_work_has_ended(them: Electorate) -> None:
    leader = them.contender("leader")

    async def slow(_: Leadership) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(3)

    leader.ends = slow
    them.until_led()
    standby = them.contender("standby")
    them.later(5)
    leader.task.cancel()
    began = them.world.now

    assert 3 <= them.until_led(standby) - began <= 4


def test_work_that_is_done_removes_the_record_and_the_next_term_still_grows(
    them: Electorate,
) -> None:
    leader = them.contender("leader")

    async def work(_: Leadership) -> None:
        """Be done."""

    leader.ends = work
    them.world.run(leader.task.done, 10)

    assert them.record() is None
    assert leader.task.result() is None

    after = them.contender("after")
    them.until_led(after)

    assert (2, "its work was done") == (after.term, after.tenures[0].leadership.reason)


def test_a_leader_that_is_cut_off_has_stopped_before_a_standby_leads(them: Electorate) -> None:
    leader, standby = two(them)
    leader.line.cut = True
    cut_at = them.world.now
    them.until_led(standby)
    ended_at = leader.tenures[0].ended_at

    assert ended_at is not None
    assert cut_at + DEADLINE_S - RETRY_S - 0.5 <= ended_at <= cut_at + DEADLINE_S + 0.1
    assert standby.tenures[0].granted_at >= ended_at + (LEASE_S - DEADLINE_S) - 0.1


@pytest.mark.parametrize("timing", [Timing(15, 10, 4), Timing(15, 14, 6), Timing(3, 2, 1)], ids=str)
def test_no_wait_for_an_answer_outlasts_the_deadline(them: Electorate, timing: Timing) -> None:
    them.timing = timing
    leader, standby = two(them)
    leader.line.cut = True
    held_until = leader.held_until
    them.until_led(standby)
    ended_at = leader.tenures[0].ended_at

    assert held_until is not None
    assert ended_at is not None
    assert ended_at <= held_until + 0.1


def test_a_short_outage_costs_no_leadership(them: Electorate) -> None:
    leader, standby = two(them)
    for _ in range(5):
        leader.line.cut = True
        them.later(DEADLINE_S / 2 - RETRY_S)
        leader.line.cut = False
        them.later(20)

    assert (1, 0) == (len(leader.tenures), len(standby.tenures))
    assert leader.leads


def test_losing_the_backend_is_a_loss_and_not_an_exit(them: Electorate) -> None:
    leader, standby = two(them)
    leader.line.cut = standby.line.cut = True
    them.later(120)

    assert not leader.leads
    assert not leader.task.done()

    leader.line.cut = standby.line.cut = False
    them.until_led()

    assert 2 == max(them.terms)


@pytest.mark.parametrize(
    "error", [lost(), TimeoutError("no answer"), OSError(5, "the disk is gone")], ids=repr
)
def test_a_body_that_loses_contends_again_with_a_new_term(
    them: Electorate, error: Exception
) -> None:
    leader = them.contender("leader")

    async def fail(leadership: Leadership) -> None:
        if leadership.term < 3:
            raise error
        await asyncio.Event().wait()

    leader.ends = fail
    them.world.run(lambda: len(leader.tenures) == 3, 60)
    them.later(60)

    assert [1, 2, 3] == [tenure.leadership.term for tenure in leader.tenures]
    assert not leader.task.done()


def test_an_error_of_the_body_is_raised_and_the_leadership_given_up(them: Electorate) -> None:
    leader, standby = two(them)
    them.until_led(leader)
    failing = them.contender("failing")

    async def fail(_: Leadership) -> None:
        raise ValueError("a bug")

    failing.ends = fail
    leader.crash(proof=True)
    standby.crash(proof=True)
    them.world.run(failing.task.done, 60)

    assert "a bug" == str(failing.task.exception())

    after = them.contender("after")
    began = them.world.now

    assert them.until_led(after) - began < 1


# --- answers that do not arrive -------------------------------------------------------------------


def test_a_leader_whose_renewals_are_not_answered_stops_in_time(them: Electorate) -> None:
    leader, standby = two(them)
    leader.line.deaf = True
    deaf_at = them.world.now
    them.until_led(standby)
    ended_at = leader.tenures[0].ended_at

    assert ended_at is not None
    assert ended_at - deaf_at <= DEADLINE_S + 0.1


def test_one_lost_answer_costs_no_leadership(them: Electorate) -> None:
    leader, standby = two(them)
    for _ in range(3):
        leader.line.deaf, writes = True, leader.line.writes
        them.world.run(lambda writes=writes: leader.line.writes > writes, 5)  # type: ignore[misc]
        leader.line.deaf = False
        them.later(20)

    assert (1, 0) == (len(leader.tenures), len(standby.tenures))
    assert leader.leads


def test_a_grant_without_an_answer_is_followed_by_one_of_a_newer_term(them: Electorate) -> None:
    leader = them.contender("leader")
    leader.line.deaf = True
    them.world.run(lambda: leader.line.writes == 1, 5)
    leader.line.deaf = False
    them.until_led()

    assert [2] == [tenure.leadership.term for tenure in leader.tenures]


# --- pauses and clocks ----------------------------------------------------------------------------


def test_a_paused_leader_is_followed_and_writes_nothing_when_it_wakes(them: Electorate) -> None:
    leader, standby = two(them)
    leader.machine.pause()
    them.later(LEASE_S + 3)

    assert standby.leads

    writes = leader.line.writes
    leader.machine.resume()
    them.later(30)

    assert (writes, 1) == (leader.line.writes, len(leader.tenures))
    assert leader.tenures[0].ended_at is not None
    assert standby.leads


def test_a_leader_that_was_paused_past_its_deadline_alone_begins_a_new_term(
    them: Electorate,
) -> None:
    leader = them.contender("leader")
    them.until_led()
    leader.machine.pause()
    them.later(DEADLINE_S + 1)
    leader.machine.resume()
    them.later(30)

    assert [1, 2] == [tenure.leadership.term for tenure in leader.tenures]


def test_a_machine_that_slept_leads_no_longer(them: Electorate) -> None:
    leader, standby = two(them)
    leader.machine.jump(60)
    them.later(1)

    assert leader.tenures[0].ended_at is not None

    them.until_led()

    assert 2 == max(them.terms)
    assert standby.task is not None


def test_wall_clocks_decide_nothing(them: Electorate) -> None:
    leader, standby = two(them)
    leader.machine.clock.wall_offset = 0.0
    standby.machine.clock.wall_offset = 4e9
    them.later(120)

    assert (1, 0) == (len(leader.tenures), len(standby.tenures))


@pytest.mark.parametrize(("fast", "slow"), [(1.2, 0.9), (0.9, 1.2)])
def test_clocks_that_drift_within_the_margin_never_let_two_lead(
    them: Electorate, fast: float, slow: float
) -> None:
    leader = them.contender("leader", rate=slow)
    them.until_led()
    standby = them.contender("standby", rate=fast)
    them.later(5)
    leader.line.cut = True
    them.until_led(standby)  # The world checks the leases.

    assert 2 == standby.term


# --- terms and damage -----------------------------------------------------------------------------


def test_a_lost_record_does_not_let_the_term_fall(them: Electorate) -> None:
    world = them.world.machine("elsewhere")
    claiming = world.spawn(Registry(them.register, "flights").claim(41, ephemeral=False))
    them.world.run(claiming.done)
    leader = them.contender("leader")
    them.until_led()

    assert 42 == leader.term


def test_a_record_that_a_third_party_removes_ends_the_term(them: Electorate) -> None:
    leader, _ = two(them)
    del them.register._entries[LEADER_KEY]
    them.world.run(lambda: leader.tenures[0].ended_at is not None, 60)
    them.until_led()

    assert 2 == max(them.terms)


def damaged(them: Electorate, value: bytes) -> tuple[Machine, str]:
    """Put something in place of the leader's record."""
    person = them.world.machine("person")
    entry = them.register._entries.get(LEADER_KEY)
    writing = person.spawn(them.register.swap(LEADER_KEY, value, entry.version if entry else None))
    them.world.run(writing.done)
    return person, writing.result()


def test_a_damaged_record_is_replaced_once_its_lease_must_have_run_out(them: Electorate) -> None:
    world = them.world.machine("elsewhere")
    claiming = world.spawn(Registry(them.register, "flights").claim(41, ephemeral=False))
    them.world.run(claiming.done)
    damaged(them, b"garbage")
    began = them.world.now
    leader = them.contender("leader")
    led_at = them.until_led()

    assert led_at - began >= LEASE_S, "whoever wrote it may still lead"
    assert 42 + LEAP == leader.term, "somebody may have been granted 42, and died"


def test_a_record_that_is_damaged_under_a_living_leader_ends_its_term_and_no_term_falls(
    them: Electorate,
) -> None:
    leader, _ = two(them)
    damaged(them, b"")
    them.world.run(lambda: leader.tenures[0].ended_at is not None, 60)
    them.until_led()

    assert 2 + LEAP == max(them.terms)


def test_a_record_of_a_later_version_is_left_in_place_until_it_is_removed(
    them: Electorate,
) -> None:
    later: Format[LeaderRecord] = Format("leader", LeaderRecord, version=2)
    newer = later.dump(LeaderRecord(Incarnation("new"), 7, "session"))
    machine, version = damaged(them, newer)
    contender = them.contender("leader")
    them.later(60)

    assert [] == contender.tenures
    assert newer == them.register._entries[LEADER_KEY].value
    assert not contender.task.done()

    removing = machine.spawn(them.register.swap(LEADER_KEY, None, version))
    them.world.run(removing.done)

    assert them.until_led() > 0


# --- random worlds --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_in_a_random_world_no_two_lead_at_once_and_somebody_does_at_the_end(seed: int) -> None:
    chance = random.Random(seed)
    them = Electorate()
    names = iter(f"jobmanager-{number}" for number in range(1000))
    for _ in range(3):
        them.contender(next(names), rate=chance.uniform(0.9, 1.1))
    for _ in range(40):
        them.later(chance.uniform(0, 20))
        living = [one for one in them.contenders if not one.machine.crashed]
        victim = chance.choice(living)
        match chance.randrange(5):
            case 0:
                victim.crash(proof=chance.random() < 0.5)
                them.contender(next(names), rate=chance.uniform(0.9, 1.1))
            case 1:
                victim.machine.pause()
            case 2:
                victim.line.cut = True
            case 3:
                victim.line.deaf = True
            case _:
                pass
        if chance.random() < 0.5:
            healed = chance.choice(living)
            healed.line.cut = healed.line.deaf = False
            healed.machine.resume()
    for one in them.contenders:
        one.line.cut = one.line.deaf = False
        one.machine.resume()
    them.later(60)

    assert them.leader() is not None
    assert sorted(them.terms) == list(them.terms)

    them.end()
