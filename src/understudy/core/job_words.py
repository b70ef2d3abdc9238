"""What a JobMaster hears of its job (`Event`), and what it is told to do (`Command`)."""

from __future__ import annotations

from msgspec import Struct

from understudy.core.slots import Placement
from understudy.model import JobStatus, Pointer, Restarts

# --- events ---------------------------------------------------------------------------------------


class Reached(Struct, frozen=True):
    """``main`` called execute for this job."""


class Forgotten(Struct, frozen=True):
    """``main`` is executed again, and has not reached this job yet."""


class Begin(Struct, frozen=True):
    """The job was reached and nothing holds it back: run it, if it does not run already."""


class Offered(Struct, frozen=True):
    """A slot was given to the job."""

    placement: Placement


class IntentStored(Struct, frozen=True):
    """The intent of the attempt is durable."""


class Running(Struct, frozen=True):
    """The TaskManager says that it runs the attempt."""

    attempt: int


class Refused(Struct, frozen=True):
    """The TaskManager did not take the attempt: it never started."""

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
    """Nothing of the attempt lives any more: neither its process, nor what that has started."""


class Lost(Struct, frozen=True):
    """The attempt is known dead, and has reported nothing."""

    attempt: int
    reason: str
    ran_s: float


class Looked(Struct, frozen=True):
    """The staged outcome of a dead attempt, or None."""

    found: Ended | None
    advanced: bool = False
    """It had completed a checkpoint that says more than what it began with."""


class BackoffOver(Struct, frozen=True):
    """The pause before the next attempt is over."""


class Cancel(Struct, frozen=True):
    """Somebody wants the job to end as CANCELED."""

    reason: str = "cancelled"


class Stop(Struct, frozen=True):
    """Somebody wants the job to end like this once a savepoint of it is durable."""

    status: JobStatus


class Saved(Struct, frozen=True):
    """The savepoint with which the job was to end is durable, or has failed."""

    durable: bool


class Unrestorable(Struct, frozen=True):
    """What the job was to begin with cannot be had."""

    reason: str


class Displace(Struct, frozen=True):
    """The job gives way to another one: stop it, keep what it needs to go on."""


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
    """Take back the request, or give back the slot."""


class StoreIntent(Struct, frozen=True):
    """Make the attempt's intent durable."""

    attempt: int
    placement: Placement
    restarts: Restarts


class Deploy(Struct, frozen=True):
    """Send the attempt to its TaskManager."""

    attempt: int
    placement: Placement


class StopAttempt(Struct, frozen=True):
    """End the attempt, and say ``Ended`` or ``Lost`` when it is proved dead."""

    attempt: int


class LookForOutcome(Struct, frozen=True):
    """Look in storage for what the dead attempt staged."""

    attempt: int


class Pause(Struct, frozen=True):
    """Wait before the next attempt."""

    delay_s: float
    reason: str


class TakeSavepoint(Struct, frozen=True):
    """The job stands still: write the savepoint with which it is to end, and say ``Saved``."""


class RecordResult(Struct, frozen=True):
    """Commit the result: from a staged outcome, or (source None) as ``status`` with a reason."""

    status: JobStatus
    source: Pointer | None
    reason: str


class RecordDisplaced(Struct, frozen=True):
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
