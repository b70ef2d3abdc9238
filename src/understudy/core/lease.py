"""Who may lead: the lease over a register entry, as a pure state machine.

The rules are those of client-go's ``leaderelection``, made tight. Only what was observed locally
counts: a standby times the moment at which it *saw* the record change, never the time written in
it, and a leader counts its deadline from the moment at which it *sent* the renewal that was
acknowledged. With ``lease > renew_deadline > retry × 1.2`` a leader has stopped before a standby
may start, as long as their clocks run at the same rate within ``lease / renew_deadline``.

Safety does not rest on this: a term is minted by compare-and-swap, and every document is fenced
by it. The lease keeps two leaders from working at once; the term keeps the older one from writing.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace
from msgspec.structs import replace as change

from understudy.config import Configuration, options, zookeeper
from understudy.errors import ConfigurationError
from understudy.model import Incarnation, LeaderRecord, Term

TICK_SHARE, TICK_MAX_S = 0.25, 1.5
"""What a session is shorter than it seems: a server tells the others that it has heard of a client
half a tick later, and a tick is at most half of the shortest session, 2 s by default."""

ACT_SHARE, RENEW_SHARE = 0.9, 0.1
"""Of what is left of a session, how much a leader acts without an acknowledgement, and how often
it asks for one."""

STOP_S, STOP_SHARE = 0.6, 0.3
"""How long a leader may take to stop, at least; of a short session not more than this share."""

JITTER_FACTOR = 1.2
"""A standby's retry period is stretched by up to this, so that standbys do not run in step."""


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
        """Return the periods of a leader who is known by a session with that timeout.

        It acts until shortly before the backend can have ended the session, counted from the
        sending of what was acknowledged last; so a quorum that is lost for less costs nothing.
        """
        lease_s = session_s - min(TICK_SHARE * session_s, TICK_MAX_S)
        stop_s = max((1 - ACT_SHARE) * lease_s, min(STOP_S, STOP_SHARE * lease_s))
        return Timing(lease_s, lease_s - stop_s, RENEW_SHARE * session_s)

    @staticmethod
    def of(configuration: Configuration) -> Timing:
        """Return the configured periods; raises `ConfigurationError` where they contradict."""
        if zookeeper.is_chosen(configuration):
            return Timing.of_session(configuration.get(options.ZK_SESSION_TIMEOUT))
        return Timing(
            configuration.get(options.LEASE_DURATION),
            configuration.get(options.RENEW_DEADLINE),
            configuration.get(options.RETRY_PERIOD),
        )


class Leading(Struct, frozen=True):
    """This process holds a term: until when it may act, and what it has written."""

    term: Term
    deadline: float
    """Local time up to which this process may act: sending of the last acknowledged renewal,
    plus the renew deadline."""


class Observed(Struct, frozen=True):
    """The record of somebody else (or of nobody), and when it was first seen like this."""

    record: LeaderRecord
    at: float


class State(Struct, frozen=True):
    """What one contender knows."""

    me: Incarnation
    timing: Timing
    observed: Observed | None = None
    leading: Leading | None = None
    dead: frozenset[Incarnation] = frozenset()
    """Holders of whose death there is proof: they need not be waited for."""


class Write(Struct, frozen=True):
    """Put this record in place of the one that was seen."""

    record: LeaderRecord
    sent_at: float


class Wait(Struct, frozen=True):
    """Look again at this local time, or when the record changes."""

    until: float


def observe(state: State, record: LeaderRecord | None, floor: Term, now: float) -> State:
    """Take in the record that was read; ``floor`` is the highest term seen anywhere else."""
    if record is None:
        record = LeaderRecord(holder=Incarnation(""), term=floor, session="")
    elif record.term < floor:
        record = change(record, holder=Incarnation(""), term=floor)
    if state.observed is None or state.observed.record != record:
        state = replace(state, observed=Observed(record, now))
    if state.leading and (record.holder != state.me or record.term != state.leading.term):
        state = replace(state, leading=None)
    return state


def proven_dead(state: State, holder: Incarnation) -> State:
    """Take in the proof that a holder and all its descendants are dead."""
    return replace(state, dead=state.dead | {holder})


def decide(state: State, mine: LeaderRecord, now: float) -> Write | Wait:
    """Say what to do next: renew, take over, or wait. ``mine`` is the record to publish."""
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


def written(state: State, write: Write) -> State:
    """Take in that a write was acknowledged: lead, until its deadline."""
    deadline = write.sent_at + state.timing.renew_deadline_s
    return replace(
        state,
        observed=Observed(write.record, write.sent_at),
        leading=Leading(write.record.term, deadline),
    )


def leads(state: State, now: float) -> bool:
    """True while this process may act as the leader."""
    return state.leading is not None and now < state.leading.deadline
