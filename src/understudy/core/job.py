"""The life cycle of one job in its JobMaster: from submission, or recovery, to its result.

``step(state, event, …) -> (state, commands)``: `Event` is what happens to the job, `Command` what
the JobMaster has to do. The main rules:

- an intent is stored before an attempt is deployed, so that a later leader knows where to look; the
  first one together with the job, if a slot is free;
- a new attempt starts only when the last one is known dead *and* has left no staged outcome;
- an outcome proves that the function has ended, not that the attempt is dead: processes that the
  function started may still write. Only FINISHED needs no proof, as nothing of the job follows;
- a recovered attempt continues whether or not ``main`` has reached the job again, but a new
  attempt starts only for a job that was reached;
- cancelling, displacing and stopping with a savepoint wait for proof of death before anything else
  happens to the job: after the savepoint nothing is committed any more.
"""

from __future__ import annotations

import enum

from msgspec import Struct
from msgspec.structs import replace

from understudy.core import restart
from understudy.core.backoff import BackoffOver
from understudy.core.restart import Again, NoRestart, Strategy
from understudy.core.slots import Placement
from understudy.model import JobEntry, JobId, JobStatus, Pointer, Restarts

# --- events ---------------------------------------------------------------------------------------


class Reached(Struct, frozen=True):
    """``main`` called execute for this job."""


class Forgotten(Struct, frozen=True):
    """``main`` is executed again, and has not reached this job yet."""


class Begin(Struct, frozen=True):
    """The job was reached and nothing holds it back: run it if it does not run already."""


class Offered(Struct, frozen=True):
    """A slot was given to the job."""

    placement: Placement


class IntentStored(Struct, frozen=True):
    """The intent of the attempt is durable."""


class Running(Struct, frozen=True):
    """The TaskManager reports that it runs the attempt."""

    attempt: int


class Refused(Struct, frozen=True):
    """The TaskManager rejected the attempt, which never started."""

    attempt: int
    reason: str


class Ended(Struct, frozen=True):
    """The attempt ended by itself, and its outcome is staged."""

    attempt: int
    status: JobStatus
    retryable: bool
    source: Pointer
    ran_s: float
    start_time: float = 0.0
    end_time: float = 0.0
    dead: bool = False
    """The attempt's process and all processes that it started are dead."""


class Lost(Struct, frozen=True):
    """The attempt is known dead and has reported no outcome."""

    attempt: int
    reason: str
    ran_s: float
    handed_over: bool = False
    """Its TaskManager has ended it, to end itself: the restart is immediate and does not count."""


class Looked(Struct, frozen=True):
    """The search for a dead attempt's staged outcome is over: the outcome, or None."""

    found: Ended | None
    advanced: bool = False
    """The attempt had completed a checkpoint that goes beyond the one it started from."""


class Cancel(Struct, frozen=True):
    """Somebody requested that the job end as CANCELED."""

    reason: str = "cancelled"


class Stop(Struct, frozen=True):
    """Somebody requested that the job end with this status once a savepoint is durable."""

    status: JobStatus


class Saved(Struct, frozen=True):
    """The savepoint with which the job ends is durable, or has failed."""

    durable: bool


class Unrestorable(Struct, frozen=True):
    """The job cannot be restored from its checkpoint or savepoint."""

    reason: str


class Displace(Struct, frozen=True):
    """The job gives way to another one: stop it, keep what it needs to resume."""


class Recorded(Struct, frozen=True):
    """The result (or the displacement) is durable."""


Event = (
    Reached
    | Forgotten
    | Begin
    | Offered
    | IntentStored
    | Running
    | Refused
    | Ended
    | Lost
    | Looked
    | BackoffOver
    | Cancel
    | Stop
    | Saved
    | Unrestorable
    | Displace
    | Recorded
)


# --- commands -------------------------------------------------------------------------------------


class RequestSlot(Struct, frozen=True):
    """Ask the ResourceManager for a slot."""


class ReturnSlot(Struct, frozen=True):
    """Withdraw the request, or release the slot."""


class StoreIntent(Struct, frozen=True):
    """Make the attempt's intent durable."""

    attempt: int
    placement: Placement
    restarts: Restarts


class DeployAttempt(Struct, frozen=True):
    """Send the attempt to its TaskManager."""

    attempt: int
    placement: Placement


class EndAttempt(Struct, frozen=True):
    """Stop the attempt, and answer ``Ended`` or ``Lost`` when it is proved dead."""

    attempt: int


class LookForOutcome(Struct, frozen=True):
    """Look in storage for the dead attempt's staged outcome, and answer ``Looked``."""

    attempt: int


class Pause(Struct, frozen=True):
    """Wait before the next attempt, and answer ``BackoffOver``."""

    delay_s: float
    reason: str


class TakeSavepoint(Struct, frozen=True):
    """Write the savepoint with which the stopped job ends, and answer ``Saved``."""


class RecordResult(Struct, frozen=True):
    """Commit the result: the staged outcome, or without a source ``status`` and a reason."""

    status: JobStatus
    source: Pointer | None
    reason: str


class RecordDisplaced(Struct, frozen=True):
    """Store that the attempt was stopped and that the job may be resumed."""


Command = (
    RequestSlot
    | ReturnSlot
    | StoreIntent
    | DeployAttempt
    | EndAttempt
    | LookForOutcome
    | Pause
    | TakeSavepoint
    | RecordResult
    | RecordDisplaced
)


__all__ = [
    "BackoffOver",
    "Begin",
    "Cancel",
    "Command",
    "DeployAttempt",
    "Displace",
    "Ended",
    "Event",
    "Forgotten",
    "IntentStored",
    "JobState",
    "LookForOutcome",
    "Looked",
    "Lost",
    "Offered",
    "Pause",
    "Phase",
    "Reached",
    "RecordDisplaced",
    "RecordResult",
    "Recorded",
    "Refused",
    "RequestSlot",
    "ReturnSlot",
    "Running",
    "Saved",
    "Step",
    "Stop",
    "EndAttempt",
    "StoreIntent",
    "TakeSavepoint",
    "Unrestorable",
    "holds_slot",
    "recovered",
    "status_of",
    "step",
    "submitted",
]


class Phase(enum.Enum):
    """The internal state of a job, finer than the status that users see."""

    IDLE = enum.auto()
    WAITING = enum.auto()
    PLACING = enum.auto()
    DEPLOYING = enum.auto()
    RUNNING = enum.auto()
    RECONCILING = enum.auto()
    CHECKING = enum.auto()
    BACKING_OFF = enum.auto()
    STOPPING = enum.auto()
    SAVING = enum.auto()
    RECORDING = enum.auto()
    SUSPENDED = enum.auto()
    DONE = enum.auto()


class JobState(Struct, frozen=True):
    """The complete state of one job's JobMaster."""

    job_id: JobId
    phase: Phase = Phase.IDLE
    attempt: int = 0
    placement: Placement | None = None
    restarts: Restarts = Restarts()
    reached: bool = False
    recovered: bool = False
    """An earlier leader started the current attempt."""
    adopted: bool = False
    """... the attempt continues under this leader, and ``main`` has reached the job."""
    cancelled: bool = False
    why_cancelled: str = "cancelled"
    displaced: bool = False
    ends_as: JobStatus | None = None
    """Final status once the requested savepoint is durable; None without such a request."""
    source: Pointer | None = None
    """Outcome of an attempt that finished by itself before it was stopped for the savepoint."""
    ran_s: float = 0.0
    """Run time of the ended attempt; needed until the search for its outcome ends."""
    lost: str = ""
    """Why the attempt counts as dead; needed until the search for its outcome ends."""
    handed_over: bool = False
    """The attempt was handed over; needed until the search for its outcome ends."""
    status: JobStatus | None = None
    """The final status, from the moment when its recording begins."""


Step = tuple[JobState, list[Command]]


def submitted(job_id: JobId, placement: Placement | None = None) -> JobState:
    """Return the initial state of a newly submitted job.

    ``placement``: the slot of its first attempt, whose intent is stored together with the job.
    """
    state = JobState(job_id, reached=True)
    return _place(state, placement)[0] if placement else state


def recovered(entry: JobEntry) -> JobState:
    """Return the state of a job that an earlier leader left, from its stored entry."""
    state = JobState(entry.job_id, attempt=entry.attempt, restarts=entry.restarts, recovered=True)
    if entry.result:
        return replace(state, phase=Phase.DONE, status=entry.result.status)
    if entry.displaced:
        return replace(state, phase=Phase.SUSPENDED)
    if entry.intent:
        placement = Placement(entry.intent.taskmanager, entry.intent.driver)
        return replace(state, phase=Phase.RECONCILING, placement=placement)
    return state


def status_of(state: JobState) -> JobStatus:
    """Return the status that users see."""
    if state.phase is Phase.DONE and state.status:
        return state.status
    if state.cancelled:
        return JobStatus.CANCELING
    if state.ends_as:
        return JobStatus.RUNNING
    known = _STATUS.get(state.phase)
    if known:
        return known
    begun = state.phase in {Phase.PLACING, Phase.DEPLOYING}
    first = state.attempt == (1 if begun else 0)
    return JobStatus.CREATED if first else JobStatus.RESTARTING


_STATUS = {
    Phase.RECORDING: JobStatus.RUNNING,
    Phase.RECONCILING: JobStatus.RECONCILING,
    Phase.RUNNING: JobStatus.RUNNING,
    Phase.CHECKING: JobStatus.RESTARTING,
    Phase.BACKING_OFF: JobStatus.RESTARTING,
    Phase.STOPPING: JobStatus.SUSPENDED,
    Phase.SUSPENDED: JobStatus.SUSPENDED,
}


def holds_slot(state: JobState) -> bool:
    """True while the job's attempt occupies a driver."""
    return state.placement is not None and state.phase in {
        Phase.PLACING,
        Phase.DEPLOYING,
        Phase.RUNNING,
        Phase.RECONCILING,
        Phase.STOPPING,
    }


def step(state: JobState, event: Event, strategy: Strategy, chance: float) -> Step:
    """Apply one event; ``chance`` in [0, 1) determines the jitter of a backoff."""
    match event:
        case Reached():
            adopted = state.recovered and state.phase is Phase.RUNNING
            return replace(state, reached=True, adopted=adopted), []
        case Forgotten():
            return _forgotten(state)
        case Begin() if state.phase in {Phase.IDLE, Phase.SUSPENDED} and state.reached:
            return replace(state, phase=Phase.WAITING, displaced=False), [RequestSlot()]
        case Offered() if state.phase is Phase.WAITING:
            return _place(state, event.placement)
        case Offered():
            return state, [ReturnSlot()]
        case IntentStored() if state.phase is Phase.PLACING:
            return _deploy(state)
        case Running() if event.attempt == state.attempt:
            return _running(state)
        case Refused() if event.attempt == state.attempt and holds_slot(state):
            return _look(state, event.reason, 0.0)
        case Ended() if event.attempt == state.attempt and _awaits_end(state):
            if not event.dead and _needs_proof(state, event):
                return state, [EndAttempt(state.attempt)]  # Answered once everything is dead.
            return _ended(state, event, strategy, chance)
        case Lost() if event.attempt == state.attempt and state.phase is Phase.PLACING:
            # Handled once the intent is stored.
            return replace(state, lost=event.reason, handed_over=event.handed_over), []
        case Lost() if event.attempt == state.attempt and _awaits_end(state):
            state, commands = _look(state, event.reason, event.ran_s)
            return replace(state, handed_over=event.handed_over), commands
        case Looked() if state.phase is Phase.CHECKING:
            if event.found:
                return _ended(state, event.found, strategy, chance)
            return _restart_after_loss(state, strategy, chance, event.advanced)
        case BackoffOver() if state.phase is Phase.BACKING_OFF:
            return replace(state, phase=Phase.WAITING), [RequestSlot()]
        case Cancel() if not state.cancelled:
            return _stop(replace(state, cancelled=True, why_cancelled=event.reason))
        case Stop() if not state.cancelled and not state.ends_as:
            return _stop(replace(state, ends_as=event.status))
        case Saved() if state.phase is Phase.SAVING:
            return _saved(state, durable=event.durable)
        case Unrestorable() if state.phase in {Phase.IDLE, Phase.SUSPENDED}:
            return _record(state, JobStatus.FAILED, None, event.reason)
        case Displace() if not state.displaced and not state.reached:
            return _stop(replace(state, displaced=True))
        case Recorded():
            return _recorded(state)
    return state, []


def _forgotten(state: JobState) -> Step:
    state = replace(state, reached=False, adopted=False)
    if state.phase in {Phase.WAITING, Phase.BACKING_OFF}:
        return replace(state, phase=Phase.IDLE), [ReturnSlot()]
    return state, []


def _awaits_end(state: JobState) -> bool:
    return state.phase in {Phase.DEPLOYING, Phase.RUNNING, Phase.RECONCILING, Phase.STOPPING}


def _needs_proof(state: JobState, ended: Ended) -> bool:
    """Return whether the next step requires that the attempt is dead."""
    saved = state.ends_as is not None and not state.cancelled
    return saved or ended.status is not JobStatus.FINISHED


def _place(state: JobState, placement: Placement) -> Step:
    state = replace(
        state,
        phase=Phase.PLACING,
        attempt=state.attempt + 1,
        placement=placement,
        recovered=False,
        adopted=False,
        lost="",
        handed_over=False,
    )
    return state, [StoreIntent(state.attempt, placement, state.restarts)]


def _deploy(state: JobState) -> Step:
    if state.cancelled:  # The intent is durable, but was never sent: the attempt is dead.
        return _record(state, JobStatus.CANCELED, None, f"{state.why_cancelled} before it started")
    if state.ends_as:
        return _save(replace(state, placement=None))
    if state.displaced:
        state = replace(state, phase=Phase.SUSPENDED, placement=None)
        return state, [ReturnSlot(), RecordDisplaced()]
    if state.lost:  # The target is dead: nobody would ever answer.
        return _look(state, state.lost, 0.0)
    assert state.placement is not None
    return replace(state, phase=Phase.DEPLOYING), [DeployAttempt(state.attempt, state.placement)]


def _running(state: JobState) -> Step:
    if state.phase in {Phase.DEPLOYING, Phase.RECONCILING}:
        adopted = state.recovered and state.reached
        return replace(state, phase=Phase.RUNNING, adopted=adopted), []
    if state.phase is Phase.STOPPING:
        return state, [EndAttempt(state.attempt)]
    return state, []


def _look(state: JobState, reason: str, ran_s: float) -> Step:
    state = replace(state, phase=Phase.CHECKING, placement=None, lost=reason, ran_s=ran_s)
    return state, [ReturnSlot(), LookForOutcome(state.attempt)]


def _ended(state: JobState, ended: Ended, strategy: Strategy, chance: float) -> Step:
    state = replace(state, placement=None)
    if ended.status is JobStatus.FINISHED and state.ends_as and not state.cancelled:
        return _save(replace(state, source=ended.source))
    if ended.status is JobStatus.FINISHED:
        return _record(state, ended.status, ended.source, "")
    if state.cancelled:
        return _record(state, JobStatus.CANCELED, None, state.why_cancelled)
    if state.ends_as:
        return _save(state)
    # Nobody has cancelled the job: the leader before was about to displace it.
    given_way = state.recovered and ended.status is JobStatus.CANCELED
    if state.displaced or given_way:
        return replace(state, phase=Phase.SUSPENDED), [ReturnSlot(), RecordDisplaced()]
    if not ended.retryable:
        return _record(state, ended.status, ended.source, "")
    decision = restart.after_exception(strategy, state.restarts, ended.ran_s, chance)
    if isinstance(decision, Again):
        return _pause(state, decision, "its function raised an exception")
    return _record(state, ended.status, ended.source, f"not restarted: {decision.reason}")


def _restart_after_loss(state: JobState, strategy: Strategy, chance: float, advanced: bool) -> Step:
    if state.cancelled:
        return _record(state, JobStatus.CANCELED, None, state.why_cancelled)
    if state.ends_as:
        return _save(state)
    if state.displaced:
        return replace(state, phase=Phase.SUSPENDED), [RecordDisplaced()]
    decision: Again | NoRestart = Again(0.0, state.restarts)
    if not state.handed_over:
        decision = restart.after_loss(strategy, state.restarts, state.ran_s, chance, advanced)
    if isinstance(decision, Again):
        return _pause(state, decision, state.lost)
    reason = f"{state.lost}; not restarted: {decision.reason}"
    return _record(state, JobStatus.FAILED, None, reason)


def _pause(state: JobState, decision: Again, reason: str) -> Step:
    state = replace(state, restarts=decision.restarts)
    if not state.reached:
        return replace(state, phase=Phase.IDLE), [ReturnSlot()]
    state = replace(state, phase=Phase.BACKING_OFF)
    return state, [ReturnSlot(), Pause(decision.delay_s, reason)]


def _stop(state: JobState) -> Step:
    """Stop the attempt, with proof of death, on the way to the requested state."""
    match state.phase:
        case Phase.DEPLOYING | Phase.RUNNING | Phase.RECONCILING:
            return replace(state, phase=Phase.STOPPING), [EndAttempt(state.attempt)]
        case Phase.IDLE | Phase.WAITING | Phase.BACKING_OFF | Phase.SUSPENDED:
            if state.cancelled:
                return _record(state, JobStatus.CANCELED, None, state.why_cancelled)
            if state.ends_as:
                return _save(state)
            return replace(state, phase=Phase.SUSPENDED), [ReturnSlot(), RecordDisplaced()]
    # PLACING, CHECKING, SAVING: the next event handles the request. RECORDING, DONE: too late.
    return state, []


def _save(state: JobState) -> Step:
    """Take the savepoint with which the job ends: its attempt is dead."""
    return replace(state, phase=Phase.SAVING), [ReturnSlot(), TakeSavepoint()]


def _saved(state: JobState, *, durable: bool) -> Step:
    """End the job with its savepoint; if that failed, continue as if nobody had requested it."""
    if state.source:
        return _record(state, JobStatus.FINISHED, state.source, "")
    if state.cancelled:
        return _record(state, JobStatus.CANCELED, None, state.why_cancelled)
    if durable and state.ends_as:
        return _record(state, state.ends_as, None, "stopped with a savepoint")
    state = replace(state, ends_as=None)
    if state.displaced:
        return replace(state, phase=Phase.SUSPENDED), [RecordDisplaced()]
    if not state.reached:
        return replace(state, phase=Phase.IDLE), []
    return replace(state, phase=Phase.WAITING), [RequestSlot()]


def _record(state: JobState, status: JobStatus, source: Pointer | None, reason: str) -> Step:
    state = replace(state, phase=Phase.RECORDING, status=status, placement=None)
    return state, [ReturnSlot(), RecordResult(status, source, reason)]


def _recorded(state: JobState) -> Step:
    if state.phase is Phase.RECORDING:
        return replace(state, phase=Phase.DONE), []
    if state.phase is Phase.SUSPENDED and state.reached:  # Reached while the attempt stopped.
        return replace(state, phase=Phase.WAITING, displaced=False), [RequestSlot()]
    return state, []
