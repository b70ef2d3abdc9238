"""What a JobMaster hears of its job (`Event`), and what it is told to do (`Command`)."""

from __future__ import annotations

from dataclasses import dataclass

from understudy.core.slots import Placement
from understudy.model import JobStatus, Pointer, Restarts

# --- events ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reached:
    """``main`` called execute for this job."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """``main`` is executed again, and has not reached this job yet."""


@dataclass(frozen=True, slots=True)
class Begin:
    """The job was reached and nothing holds it back: run it, if it does not run already."""


@dataclass(frozen=True, slots=True)
class Offered:
    """A slot was given to the job."""

    placement: Placement


@dataclass(frozen=True, slots=True)
class IntentStored:
    """The intent of the attempt is durable."""


@dataclass(frozen=True, slots=True)
class Running:
    """The TaskManager says that it runs the attempt."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The TaskManager did not take the attempt: it never started."""

    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The attempt ended by itself, and its outcome is staged."""

    attempt: int
    status: JobStatus
    retryable: bool
    source: Pointer
    ran_s: float
    start_time: float = 0.0
    end_time: float = 0.0
    dead: bool = False
    """Nothing of the attempt lives any more: neither its process, nor what that has started."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The attempt is known dead, and has reported nothing."""

    attempt: int
    reason: str
    ran_s: float


@dataclass(frozen=True, slots=True)
class Looked:
    """The staged outcome of a dead attempt, or None."""

    found: Ended | None
    advanced: bool = False
    """It had completed a checkpoint that says more than what it began with."""


@dataclass(frozen=True, slots=True)
class BackoffOver:
    """The pause before the next attempt is over."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Somebody wants the job to end as CANCELED."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Somebody wants the job to end like this once a savepoint of it is durable."""

    status: JobStatus


@dataclass(frozen=True, slots=True)
class Saved:
    """The savepoint with which the job was to end is durable, or has failed."""

    durable: bool


@dataclass(frozen=True, slots=True)
class Unrestorable:
    """What the job was to begin with cannot be had."""

    reason: str


@dataclass(frozen=True, slots=True)
class Displace:
    """The job gives way to another one: stop it, keep what it needs to go on."""


@dataclass(frozen=True, slots=True)
class Recorded:
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


@dataclass(frozen=True, slots=True)
class RequestSlot:
    """Ask the ResourceManager for a slot."""


@dataclass(frozen=True, slots=True)
class ReturnSlot:
    """Take back the request, or give back the slot."""


@dataclass(frozen=True, slots=True)
class StoreIntent:
    """Make the attempt's intent durable."""

    attempt: int
    placement: Placement
    restarts: Restarts


@dataclass(frozen=True, slots=True)
class Deploy:
    """Send the attempt to its TaskManager."""

    attempt: int
    placement: Placement


@dataclass(frozen=True, slots=True)
class StopAttempt:
    """End the attempt, and say ``Ended`` or ``Lost`` when it is proved dead."""

    attempt: int


@dataclass(frozen=True, slots=True)
class LookForOutcome:
    """Look in storage for what the dead attempt staged."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait before the next attempt."""

    delay_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class TakeSavepoint:
    """The job stands still: write the savepoint with which it is to end, and say ``Saved``."""


@dataclass(frozen=True, slots=True)
class RecordResult:
    """Commit the result: from a staged outcome, or (source None) as ``status`` with a reason."""

    status: JobStatus
    source: Pointer | None
    reason: str


@dataclass(frozen=True, slots=True)
class RecordDisplaced:
    """Note durably that the attempt was stopped and the job may be resumed."""


Command = (
    RequestSlot
    | ReturnSlot
    | StoreIntent
    | Deploy
    | StopAttempt
    | LookForOutcome
    | Pause
    | TakeSavepoint
    | RecordResult
    | RecordDisplaced
)
