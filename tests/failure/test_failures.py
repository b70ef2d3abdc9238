"""Each kind of failure once, against a real ensemble of three; `make failure` is the long form.

Without network namespaces the ensemble is on loopback, and what is done to the network is left out.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from tests.failure import faults
from tests.failure.many import spread
from tests.failure.quorum import lost_for_most_of_a_session
from tests.failure.run import Plan, run, told
from tests.failure.windows import windows
from tests.support import namespaces

SEED = 4
SESSION_S, LONG_SESSION_S = 6.0, 40.0
"""Longer than where faults are tried by the hundred: a machine that does something else for a
second or two is no fault, and a quorum that is back must have time to agree."""
FOLLOWERS, LEADERS = 1, 1
RETRIEVALS, SESSIONS = 1000, 100
SPREAD_S = 15.0
"""A quiet machine needs a tenth of it; here it tells an order of magnitude from a lost change."""


@pytest.mark.parametrize("half", [0, 1])
def test_nothing_is_violated_by_any_kind_of_failure(half: int, tmp_path: Path) -> None:
    """Each half of the kinds on an ensemble of its own: they mostly wait, and do so at once."""
    for sentence in faults.left_out():  # What was not tried is no proof: pytest's summary says so.
        warnings.warn(sentence, stacklevel=1)
    kinds = faults.kinds()[half::2]
    plan = Plan(SEED + half, len(kinds), pairs=True, session_s=SESSION_S, kinds=kinds)
    verdict = run(plan, tmp_path)
    print(told(verdict))

    assert [] == verdict.violations, f"{verdict.story}, see {tmp_path}"
    assert len(kinds) - 1 <= verdict.counts["faults"], "one may not have found a quorum"
    assert verdict.counts["writes"]["done"] > 100


def test_an_old_leader_stops_by_itself_before_the_next_one_starts(tmp_path: Path) -> None:
    if why := namespaces.unavailable():
        pytest.skip(why)

    cuts, violated = windows(tmp_path, FOLLOWERS, LEADERS)

    assert [] == violated, f"see {tmp_path}"
    assert [0] * (FOLLOWERS + LEADERS) == [cut.accepted for cut in cuts]
    assert all(cut.gap_s > 0 for cut in cuts), cuts


@pytest.mark.long
def test_a_quorum_that_is_lost_for_most_of_a_session_ends_no_leadership(tmp_path: Path) -> None:
    loss, violated = lost_for_most_of_a_session(tmp_path, LONG_SESSION_S)
    print(f"nothing was written for {loss.outage_s:.1f} s of a session of {LONG_SESSION_S:g} s")

    assert [] == violated, f"see {tmp_path}"
    assert loss.borne
    assert LONG_SESSION_S / 2 < loss.outage_s < LONG_SESSION_S


def test_a_thousand_retrievals_see_each_change_of_leader(tmp_path: Path) -> None:
    took, violated = spread(tmp_path, RETRIEVALS, SESSIONS)
    print(f"{RETRIEVALS} retrievals on {SESSIONS} sessions: {took} s")

    assert [] == violated, f"see {tmp_path}"
    assert max(took) < SPREAD_S
