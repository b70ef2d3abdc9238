"""Why a guardian ends its worker, and what it tells of how the worker ended."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.guardian.conftest import StartGuard
from tests.guardian.ground import alive, freeze, lock_is_free, seen, thaw, until
from understudy.process import guardian

SOON_S = 0.3
WHILE_S = 2.0
"""So long this machine may stand still between two steps of a test."""
LATE_S = 60.0


@pytest.mark.parametrize("code", [0, 1, 3, 255])
def test_the_exit_code_is_passed_on(guard: StartGuard, code: int) -> None:
    one = guard(f"end {code}")
    note = one.hear("reaped")

    assert code == one.wait() == note["code"]
    assert (0, "ended") == (note["signal"], note["reason"])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGUSR1])
def test_the_signal_is_passed_on(guard: StartGuard, number: signal.Signals) -> None:
    one = guard(f"die {number.value}")
    note = one.hear("reaped")

    assert 128 + number == one.wait() == note["code"]
    assert (number, "ended") == (note["signal"], note["reason"])


def test_a_program_that_is_not_there_is_named(guard: StartGuard) -> None:
    one = guard(argv=["/nowhere/python"])

    assert 127 == one.wait()
    assert "/nowhere/python: No such file or directory" in one.said()


def test_a_worker_that_is_never_heard_of_is_killed(guard: StartGuard) -> None:
    one = guard(start_s=SOON_S)

    assert "silent for too long" == one.hear("reaped")["reason"]


def test_a_guardian_without_a_parent_says_itself_why_it_killed(guard: StartGuard) -> None:
    one = guard(up=None, start_s=SOON_S)
    one.wait()

    assert "test is killed: silent for too long" in one.said()


@pytest.mark.parametrize("frozen", [False, True])
def test_a_worker_that_falls_silent_is_killed_with_its_descendants(
    guard: StartGuard, *, frozen: bool
) -> None:
    one = guard(start_s=LATE_S)
    worker = one.started()
    descendant = int(one.order("fork", "daemon"))
    if frozen:
        freeze(one.guardian_pid)  # It hears of the beat once the worker stands still.
    one.order("beat", SOON_S)
    if frozen:
        freeze(worker)
        thaw(one.guardian_pid)
    note = one.hear("reaped")

    assert ("silent for too long", signal.SIGKILL) == (note["reason"], note["signal"])
    assert not seen(worker)
    assert not seen(descendant)


def test_a_worker_that_beats_lives_on(guard: StartGuard) -> None:
    one = guard(start_s=WHILE_S)
    worker = one.started()
    deadline = guardian.now() + WHILE_S + SOON_S
    while guardian.now() < deadline:
        one.order("beat", WHILE_S)
        time.sleep(0.01)
    one.order("beat", LATE_S)

    assert alive(worker)


def test_beats_are_passed_on_to_the_parent(guard: StartGuard) -> None:
    one = guard()
    before = guardian.now()
    one.order("beat", LATE_S)

    assert before + LATE_S <= one.hear("until") <= guardian.now() + LATE_S


def test_beats_that_came_while_the_guardian_stood_still_count(guard: StartGuard) -> None:
    one = guard(start_s=LATE_S)
    worker = one.started()
    one.order("beat", WHILE_S)
    one.hear("until")
    freeze(one.guardian_pid)
    over = guardian.now() + WHILE_S
    one.order("beat", LATE_S)
    until(lambda: guardian.now() > over)
    thaw(one.guardian_pid)
    one.hear("until")

    assert alive(worker)
    assert "settled" in one.order("settle", 1)


def test_a_guardian_that_stood_still_too_long_judges_when_it_wakes(guard: StartGuard) -> None:
    one = guard(start_s=LATE_S)
    worker = one.started()
    one.order("beat", WHILE_S)
    one.hear("until")
    freeze(one.guardian_pid, worker)
    over = guardian.now() + WHILE_S
    until(lambda: guardian.now() > over)
    thaw(worker, one.guardian_pid)

    assert "silent for too long" == one.hear("reaped")["reason"]


def test_a_lease_that_the_parent_does_not_renew_ends_the_worker(guard: StartGuard) -> None:
    """However well it is: a main must not outlive the leadership that it runs under."""
    one = guard("beat 60")
    one.answer()
    worker = one.started()
    descendant = int(one.order("fork", "daemon"))
    at = guardian.now() + SOON_S
    one.say(until=at)
    note = one.hear("reaped")

    assert "no leader was heard of for too long" == note["reason"]
    assert at <= note["at"]
    assert not seen(worker)
    assert not seen(descendant)


def test_a_lease_that_the_parent_renews_is_held_to(guard: StartGuard) -> None:
    one = guard("beat 60")
    one.answer()
    worker = one.started()
    over = guardian.now() + WHILE_S
    one.say(until=over)
    one.say(until=over + LATE_S)
    until(lambda: guardian.now() > over)
    answer = one.order("settle", 1)

    assert "settled" in answer
    assert alive(worker)


def test_renewals_that_came_while_the_guardian_stood_still_count(guard: StartGuard) -> None:
    one = guard()
    worker = one.started()
    over = guardian.now() + WHILE_S
    one.say(until=over)
    one.order("settle", 1)
    freeze(one.guardian_pid)
    one.say(until=over + LATE_S)
    until(lambda: guardian.now() > over)
    thaw(one.guardian_pid)
    answer = one.order("settle", 2)

    assert "settled" in answer
    assert alive(worker)


def test_a_worker_that_is_asked_to_stop_may_end_in_order(guard: StartGuard) -> None:
    one = guard("polite 5")
    one.answer()
    one.say(stop=LATE_S)
    note = one.hear("reaped")

    assert (5, "ended") == (one.wait(), note["reason"])


def test_a_frozen_worker_that_is_asked_to_stop_is_woken_for_it(guard: StartGuard) -> None:
    one = guard("polite 5")
    one.answer()
    freeze(one.started())
    one.say(stop=LATE_S)

    assert 5 == one.wait()


@pytest.mark.parametrize("how", ["the parent", "a signal"])
def test_a_worker_that_does_not_stop_in_time_is_killed(guard: StartGuard, how: str) -> None:
    one = guard("deaf", stop_grace_s=SOON_S)
    one.answer()
    if how == "the parent":
        one.say(stop=SOON_S)
    else:
        os.kill(one.guardian_pid, signal.SIGTERM)

    assert "did not stop in time" == one.hear("reaped")["reason"]
    assert 128 + signal.SIGKILL == one.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_to_the_guardian_ask_the_worker_to_stop(
    guard: StartGuard, number: signal.Signals
) -> None:
    one = guard("polite 5", stop_grace_s=LATE_S)
    one.answer()
    os.kill(one.guardian_pid, number)

    assert 5 == one.wait()


def test_all_are_killed_at_once_when_the_parent_is_gone(guard: StartGuard) -> None:
    one = guard("polite 5")
    one.answer()
    worker = one.started()
    one.hang_up()

    assert 128 + signal.SIGKILL == one.wait()
    assert not seen(worker)


def test_a_worker_may_be_granted_to_close_in_order_when_the_parent_is_gone(
    guard: StartGuard,
) -> None:
    one = guard("polite 5", orphan_grace_s=LATE_S)
    one.answer()
    one.hang_up()

    assert 5 == one.wait()


def test_a_guardian_without_a_parent_guards_on(guard: StartGuard) -> None:
    one = guard("end 4", up=None)

    assert 4 == one.wait()


def test_a_descendant_that_forks_and_forks_is_caught(guard: StartGuard) -> None:
    one = guard("run-away 20")
    worker = one.started()
    one.answer()
    began = time.monotonic()
    one.say(kill="enough")
    until(lambda: lock_is_free(one.lock))
    took_s = time.monotonic() - began

    assert "enough" == one.hear("reaped")["reason"]
    assert not seen(worker)
    assert took_s < 15
