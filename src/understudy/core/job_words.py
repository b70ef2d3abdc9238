"""The inputs (`Event`) and outputs (`Command`) of a job's state machine in `core.job`."""

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
    """The job was reached and nothing holds it back: run it if it does not run already."""


@dataclass(frozen=True, slots=True)
class Offered:
    """A slot was given to the job."""

    placement: Placement


@dataclass(frozen=True, slots=True)
class IntentStored:
    """The intent of the attempt is durable."""


@dataclass(frozen=True, slots=True)
class Running:
    """The TaskManager reports that it runs the attempt."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The TaskManager rejected the attempt, which never started."""

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
    """The attempt's process and all processes that it started are dead."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The attempt is known dead and has reported no outcome."""

    attempt: int
    reason: str
    ran_s: float


@dataclass(frozen=True, slots=True)
class Looked:
    """The search for a dead attempt's staged outcome is over: the outcome, or None."""

    found: Ended | None
    advanced: bool = False
    """The attempt had completed a checkpoint that goes beyond the one it started from."""


@dataclass(frozen=True, slots=True)
class BackoffOver:
    """The pause before the next attempt is over."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Somebody requested that the job end as CANCELED."""

    reason: str = "cancelled"


@dataclass(frozen=True, slots=True)
class Stop:
    """Somebody requested that the job end with this status once a savepoint is durable."""

    status: JobStatus


@dataclass(frozen=True, slots=True)
class Saved:
    """The savepoint with which the job ends is durable, or has failed."""

    durable: bool


@dataclass(frozen=True, slots=True)
class Unrestorable:
    """The job cannot be restored from its checkpoint or savepoint."""

    reason: str


@dataclass(frozen=True, slots=True)
class Displace:
    """The job gives way to another one: stop it, keep what it needs to resume."""


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
    """Withdraw the request, or release the slot."""


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
    """Stop the attempt, and answer ``Ended`` or ``Lost`` when it is proved dead."""

    attempt: int


@dataclass(frozen=True, slots=True)
class LookForOutcome:
    """Look in storage for the dead attempt's staged outcome, and answer ``Looked``."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait before the next attempt, and answer ``BackoffOver``."""

    delay_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class TakeSavepoint:
    """Write the savepoint with which the stopped job ends, and answer ``Saved``."""


@dataclass(frozen=True, slots=True)
class RecordResult:
    """Commit the result: the staged outcome, or without a source ``status`` and a reason."""

    status: JobStatus
    source: Pointer | None
    reason: str


@dataclass(frozen=True, slots=True)
class RecordDisplaced:
    """Store that the attempt was stopped and that the job may be resumed."""


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
