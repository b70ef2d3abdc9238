"""The inputs (`Event`) and outputs (`Command`) of a job's state machine in `core.job`."""

from __future__ import annotations

from msgspec import Struct

from understudy.core.backoff import BackoffOver
from understudy.core.slots import Placement
from understudy.model import JobStatus, Pointer, Restarts

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
