"""Who may lead: the lease over a register entry, as a pure state machine.

The rules are those of client-go's ``leaderelection``, made strict. Only local observations count:
a standby times the moment at which it *saw* the record change, never a time written in the record,
and a leader counts its deadline from the moment at which it *sent* the acknowledged renewal. With
``lease > renew_deadline > retry × 1.2`` a leader stops before a standby may start, if the rates of
their clocks differ by less than the factor ``lease / renew_deadline``.

Safety does not depend on the lease: compare-and-swap creates each term, and every document is
fenced by it. The lease avoids two active leaders; the term stops the older one from writing.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace
from msgspec.structs import replace as change

from understudy.config import Configuration, options
from understudy.errors import ConfigurationError
from understudy.model import Incarnation, LeaderRecord, Term

TICK_SHARE, TICK_MAX_S = 0.25, 1.5
"""By how much a session may be shorter than its timeout: a server reports a client's activity to
the others half a tick late, and a tick is at most half of the shortest session, 2 s by default."""

ACT_SHARE, RENEW_SHARE = 0.9, 0.1
"""Shares of the remaining session: how long a leader acts without an acknowledgement, and how
often it requests one."""

STOP_S, STOP_SHARE = 0.6, 0.3
"""Minimum time for a leader to stop, and its maximum share of a short session."""

JITTER_FACTOR = 1.2
"""A standby's retry period is stretched by up to this factor, so that standbys desynchronise."""


class Timing(Struct, frozen=True):
    """The three periods of an election, in seconds (client-go's defaults)."""

    lease_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        if self.retry_s <= 0:
            raise ConfigurationError(f"retry-period is {self.retry_s:g} s: it must be positive")
        if self.renew_deadline_s <= self.retry_s * JITTER_FACTOR:
            raise ConfigurationError(
                f"renew-deadline ({self.renew_deadline_s:g} s) must be longer than retry-period "
                f"× {JITTER_FACTOR:g} ({self.retry_s * JITTER_FACTOR:g} s), or one missed renewal "
                "ends the leadership"
            )
        if self.lease_s <= self.renew_deadline_s:
            raise ConfigurationError(
                f"lease-duration ({self.lease_s:g} s) must be longer than renew-deadline "
                f"({self.renew_deadline_s:g} s), or a standby may start before the leader stopped"
            )

    @staticmethod
    def of_session(session_s: float) -> Timing:
        """Return the periods of a leader that holds a session with this timeout.

        The leader acts until shortly before the backend can end the session, counted from the
        sending of the last acknowledged request; a shorter loss of the quorum has no effect.
        """
        lease_s = session_s - min(TICK_SHARE * session_s, TICK_MAX_S)
        stop_s = max((1 - ACT_SHARE) * lease_s, min(STOP_S, STOP_SHARE * lease_s))
        return Timing(lease_s, lease_s - stop_s, RENEW_SHARE * session_s)

    @staticmethod
    def of(configuration: Configuration) -> Timing:
        """Return the configured periods; raises `ConfigurationError` if they contradict."""
        if session_s := configuration.backend.session_s:
            return Timing.of_session(session_s(configuration))
        common = (options.LEASE_DURATION, options.RENEW_DEADLINE, options.RETRY_PERIOD)
        periods = [configuration.get(option) for option in common]
        for number, option in enumerate(configuration.backend.lease or ()):
            own = configuration.find(option)
            periods[number] = periods[number] if own is None else own
        return Timing(*periods)


class HeldTerm(Struct, frozen=True):
    """This process holds a term, and may act until a deadline."""

    term: Term
    deadline: float
    """Local time until which this process may act: when it sent the last acknowledged renewal,
    plus the renew deadline."""


class Observed(Struct, frozen=True):
    """The record in the register, and when this process first saw it in this form."""

    record: LeaderRecord
    at: float


class ContenderState(Struct, frozen=True):
    """The state of one contender."""

    me: Incarnation
    timing: Timing
    observed: Observed | None = None
    leading: HeldTerm | None = None
    dead: frozenset[Incarnation] = frozenset()
    """Holders that are proven dead: nobody waits for their leases."""


class Write(Struct, frozen=True):
    """Replace the observed record with this one."""

    record: LeaderRecord
    sent_at: float


class Wait(Struct, frozen=True):
    """Decide again at this local time, or when the record changes."""

    until: float


def observe(
    state: ContenderState, record: LeaderRecord | None, floor: Term, now: float
) -> ContenderState:
    """Apply a record that was read; ``floor`` is the highest term seen anywhere else."""
    if record is None:
        record = LeaderRecord(holder=Incarnation(""), term=floor, session="")
    elif record.term < floor:
        record = change(record, holder=Incarnation(""), term=floor)
    if state.observed is None or state.observed.record != record:
        state = replace(state, observed=Observed(record, now))
    if state.leading and (record.holder != state.me or record.term != state.leading.term):
        state = replace(state, leading=None)
    return state


def proven_dead(state: ContenderState, holder: Incarnation) -> ContenderState:
    """Apply the proof that a holder and all its descendants are dead."""
    return replace(state, dead=state.dead | {holder})


def decide(state: ContenderState, mine: LeaderRecord, now: float) -> Write | Wait:
    """Decide the next action: renew, take over or wait. ``mine`` is the record to publish."""
    assert state.observed is not None, "observe before deciding"
    seen = state.observed.record
    if state.leading:
        renewed = change(
            mine, term=seen.term, session=seen.session, renewals=seen.renewals + 1, since=seen.since
        )
        return Write(renewed, now)
    if seen.holder and seen.holder != state.me and seen.holder not in state.dead:
        expires = state.observed.at + max(state.timing.lease_s, min(seen.lease_s, 3600.0))
        if now < expires:
            return Wait(expires)
    return Write(change(mine, term=seen.term + 1, renewals=0), now)


def written(state: ContenderState, write: Write) -> ContenderState:
    """Apply an acknowledged write: this process leads until its deadline."""
    deadline = write.sent_at + state.timing.renew_deadline_s
    return replace(
        state,
        observed=Observed(write.record, write.sent_at),
        leading=HeldTerm(write.record.term, deadline),
    )


def confirmed(state: ContenderState, sent_at: float) -> ContenderState:
    """Apply the backend's confirmation of a leader's session, requested at ``sent_at``."""
    assert state.leading is not None, "only a leader's session is confirmed"
    deadline = sent_at + state.timing.renew_deadline_s
    return replace(state, leading=HeldTerm(state.leading.term, deadline))


def leads(state: ContenderState, now: float) -> bool:
    """True while this process may act as the leader."""
    return state.leading is not None and now < state.leading.deadline
