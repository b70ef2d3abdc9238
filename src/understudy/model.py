"""The nouns: frozen records that cross rooms, processes and failovers, JSON both ways.

Times are seconds since 1970 (wall clock, for people only); no decision is taken from them.
Digests are ``sha256:`` and 64 hexadecimal digits; ids of applications and jobs 32, as in Flink.
"""

from __future__ import annotations

import enum
import hashlib
from typing import NewType

import msgspec

ApplicationId = NewType("ApplicationId", str)
JobId = NewType("JobId", str)
RunId = NewType("RunId", str)
Incarnation = NewType("Incarnation", str)
"""One start of one process: 32 hexadecimal digits, never used twice."""

Term = int
"""The fencing token: grows with every grant of leadership, one holder each."""

NULL = msgspec.Raw(b"null")


class JobStatus(enum.Enum):
    """The states of a job, in Flink's words."""

    CREATED = "CREATED"
    RECONCILING = "RECONCILING"
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    CANCELLING = "CANCELLING"
    SUSPENDED = "SUSPENDED"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"

    @property
    def is_terminal(self) -> bool:
        """True for the three states that a job never leaves."""
        return self in _TERMINAL_JOB


_TERMINAL_JOB = {JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED}


class ApplicationStatus(enum.Enum):
    """The states of an application, in Flink's words (FLIP-549)."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    FAILING = "FAILING"
    CANCELING = "CANCELING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"

    @property
    def is_terminal(self) -> bool:
        """True for the three states that an application never leaves."""
        return self in _TERMINAL_APPLICATION


_TERMINAL_APPLICATION = {ApplicationStatus(status.value) for status in _TERMINAL_JOB}


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The base of all nouns: immutable, compared by value, fields named at the call."""


class Pointer(Record, frozen=True):
    """Where bytes lie in storage, and what they must hash to."""

    path: str
    digest: str
    size: int


class Failure(Record, frozen=True):
    """Why something ended badly: the exception's class, its message, its traceback, its job."""

    type: str
    message: str
    traceback: str = ""
    time: float = 0.0
    job_id: str = ""
    attempt: int = 0
    """Of the job, where it is known."""


class Artifact(Record, frozen=True):
    """A file that an application needs, kept in its BlobStore.

    ``name`` is its path below the code directory; ``on_path`` says that the file itself (a zip of
    modules) must be put on Python's path.
    """

    name: str
    digest: str
    size: int
    on_path: bool = False


class SessionProfile(Record, frozen=True):
    """All that a driver must be started with; a driver serves one profile only."""

    conf: dict[str, str] = {}
    code: str = ""
    """Digest of the artifact list that is on the driver's Python path."""
    cwd: str = ""

    @property
    def digest(self) -> str:
        """Return the name of the profile: equal for equal settings."""
        encoded = msgspec.json.encode(self, order="sorted")
        return hashlib.sha256(encoded).hexdigest()[:16]


class SparkApplication(Record, frozen=True):
    """What a running SparkContext is found by; all empty without one."""

    ui: str = ""
    application_id: str = ""
    """As the cluster manager knows it."""
    event_log: str = ""


class StartFrom(Record, frozen=True):
    """A savepoint that an application is started from; it is matched to a job by name."""

    path: str
    """The savepoint's directory: an absolute path or a URL."""
    digest: str
    """Of its manifest."""
    job_name: str
    claim: bool = False
    """The job owns it: it is removed once the job has taken it over."""
    may_be_left: bool = False
    """``main`` need not submit a job of that name."""


class ApplicationRecord(Record, frozen=True):
    """How to execute an application again: the ApplicationStore's entry (FLIP-560)."""

    application_id: ApplicationId
    run_id: RunId
    name: str
    target: str
    """``module:function``, or the script's name below the code directory."""
    script: str
    """Where the script lay when it was submitted (for ``__file__``); empty for a function."""
    args: tuple[str, ...] = ()
    cwd: str = ""
    artifacts: tuple[Artifact, ...] = ()
    configuration: dict[str, str] = {}
    profile: SessionProfile = SessionProfile()
    first_job_id: str = ""
    savepoints: tuple[StartFrom, ...] = ()
    python: str = ""
    submitted_at: float = 0.0


class CheckpointKind(enum.Enum):
    """What a checkpoint is a point of."""

    BATCH = "batch"
    """A micro-batch that a streaming query has committed to its own Spark checkpoint."""
    TABLE = "table"
    """A DataFrame that was written whole."""
    HANDLE = "handle"
    """Another one, which later jobs of the application read."""
    STATE = "state"
    """A small JSON value."""
    WRITE = "write"
    """Rows that are about to be published, or were, outside of what is ours."""


class Checkpoint(Record, frozen=True):
    """A point that a job can resume from; it counts once the register holds it.

    Of each (kind, name) the latest is what a restarted job goes on from.
    """

    kind: CheckpointKind
    name: str
    """The query's, the DataFrame's, the table's; empty for what needs none."""
    attempt: int
    number: int = 0
    """From the job's counter, which starts at 1; 0 until it is recorded."""
    location: str = ""
    """Where its bytes lie: a path of our storage, or a URL or path of the user's."""
    digest: str = ""
    """What its manifest, its value or its batch's log must hash to."""
    batch_id: int = -1
    query_id: str = ""
    offsets: msgspec.Raw = NULL
    """Where each source of the query had come to, as Spark writes it: JSON."""
    rows: int = 0
    size: int = 0
    """Bytes."""
    duration_s: float = 0.0
    completed_at: float = 0.0
    note: msgspec.Raw = NULL
    """What its kind needs besides, as JSON."""
    failure: Failure | None = None
    """Why it came to nothing; such a one is never among those that are completed."""


class Savepoint(Record, frozen=True):
    """A self-contained copy of what a job can resume from; it outlives job and cluster."""

    trigger: str
    """The id under which it was asked for, 32 hexadecimal digits."""
    location: str
    """Its directory; it is there, and whole, once ``completed_at`` says so."""
    directory: str = ""
    """Below which it was wanted."""
    then: JobStatus | None = None
    """How the job is to end once it is durable; None where the job goes on."""
    number: int = 0
    digest: str = ""
    """Of its manifest."""
    size: int = 0
    duration_s: float = 0.0
    completed_at: float = 0.0
    failure: Failure | None = None

    @property
    def is_pending(self) -> bool:
        """True until it is durable, or has failed."""
        return not self.completed_at and self.failure is None


class Checkpoints(Record, frozen=True):
    """All that the register holds of one job's checkpoints; see ``core.checkpoints``."""

    application_id: ApplicationId
    job_id: JobId
    counter: int = 0
    """The last number that was given."""
    heard: tuple[int, int] = (0, 0)
    """The attempt that was heard last, and the number of the last that it told."""
    completed: tuple[Checkpoint, ...] = ()
    """Those that are retained, in the order of their numbers."""
    completed_total: int = 0
    failed_total: int = 0
    failed: Checkpoint | None = None
    """The last that failed."""
    restored_total: int = 0
    restored: Checkpoint | None = None
    """The latest that an attempt began with, when, and the savepoint where it is of one."""
    restored_at: float = 0.0
    restored_from: str = ""
    savepoints: tuple[Savepoint, ...] = ()
    started_from: str = ""
    """The savepoint that the job began with."""
    directory: str = ""
    """Where the files of a job lie that began with a savepoint."""


class Intent(Record, frozen=True):
    """What an attempt will do and where, durable before it starts."""

    attempt: int
    taskmanager: Incarnation
    driver: Incarnation
    term: Term
    staged: str
    """Storage path at which the attempt stages its outcome before it reports it."""
    placed_at: float = 0.0
    deployment: int = 1
    """Whose code it runs."""
    checkpoints: str = ""
    """Where its checkpoints lie, if a person has said that; else ``layout`` says it."""


class Restarts(Record, frozen=True):
    """What the restart strategy has counted for one job or one ``main``."""

    failures: int = 0
    losses: int = 0
    ages: tuple[float, ...] = ()
    """With ``failure-rate``: how long before the start of the next attempt each counted failure
    was, in seconds in which the job ran or waited for its delay; the oldest first."""


class JobResultEntry(Record, frozen=True):
    """The commit of a job's result: one fenced register write decides it."""

    status: JobStatus
    attempt: int
    source: Pointer
    """The staged bytes from which the result file is published."""
    clean: bool = False
    cleaned: bool = False
    """The job's own things (plan, staged outcomes) are gone."""
    reason: str = ""
    start_time: float = 0.0
    end_time: float = 0.0
    checkpoint: str = ""
    """Where its last completed checkpoint lies, if that is retained."""
    savepoint: str = ""
    counts: tuple[int, ...] = ()
    """Of its checkpoints, see ``core.checkpoints.Counts``; empty where it took none."""


class JobEntry(Record, frozen=True):
    """A job as the ExecutionPlanStore keeps it: the assignment, the plan, the intent, the end."""

    job_id: JobId
    name: str
    occurrence: int
    plan: Pointer
    submitted_at: float
    deployment: int = 1
    """Whose code the plan is of; 0 where there is none, since its result was discarded."""
    kind: str = "batch"
    attempt: int = 0
    intent: Intent | None = None
    restarts: Restarts = Restarts()
    displaced: bool = False
    """It gave way to another job that ``main`` reached first after a failover."""
    cancel_requested: bool = False
    stop_requested: JobStatus | None = None
    """As what it is to end once the savepoint is taken that was asked for with it."""
    checkpoints: str = ""
    """Register key of the document that holds its checkpoints; empty before the first."""
    begun_after: int = 0
    """The last attempt before a person discarded the result: the next one began from nothing."""
    result: JobResultEntry | None = None


class Outcome(Record, frozen=True):
    """How one attempt ended; staged durably before it is reported, then the job's result."""

    job_id: JobId
    job_name: str
    application_id: ApplicationId
    run_id: RunId
    status: JobStatus
    attempt: int
    start_time: float
    end_time: float
    value: msgspec.Raw = NULL
    """What the function returned, as JSON text: integers beyond 64 bits survive."""
    failure: Failure | None = None
    retryable: bool = False
    """The restart strategy may try again: an exception of the function, or a lost driver."""


class ApplicationResultEntry(Record, frozen=True):
    """The commit of an application's result."""

    status: ApplicationStatus
    source: Pointer
    end_time: float
    clean: bool = False


class ApplicationResult(Record, frozen=True):
    """How an application ended."""

    application_id: ApplicationId
    application_name: str
    run_id: RunId
    status: ApplicationStatus
    start_time: float
    end_time: float
    failure: Failure | None = None
    timestamps: dict[str, float] = {}
    unreached: tuple[JobId, ...] = ()


class ApplicationDocument(Record, frozen=True):
    """An unfinished or not yet cleaned application, as the register holds it."""

    application_id: ApplicationId
    run_id: RunId
    name: str
    directory: str
    """Where its things lie in storage; named by a nonce, never used twice."""
    record: Pointer
    status: ApplicationStatus
    created_at: float
    executions: int = 0
    """How often ``main`` was started."""
    timestamps: dict[str, float] = {}
    deployment: int = 1
    """Whose code is executed: grows when a person deploys other code over the unfinished run."""
    restarts: Restarts = Restarts()
    segments: tuple[str, ...] = ()
    """Register keys of the documents that hold its jobs, 200 to a segment."""
    cancel_requested: bool = False
    cleanup_abandoned: bool = False
    """A person wants what cannot be cleaned up to be left behind."""
    left_behind: tuple[str, ...] = ()
    """The storage paths of what was."""
    result: ApplicationResultEntry | None = None
    tombstone: Pointer | None = None
    """Its tombstone's file; without a digest where a person has accepted that there is none."""


class Segment(Record, frozen=True):
    """Some of an application's jobs, in the order of their submission."""

    application_id: ApplicationId
    jobs: dict[JobId, JobEntry] = {}


class Link(Record, frozen=True):
    """What makes a document real: the registry names its key."""

    document: str
    run_id: RunId


class Tombstone(Record, frozen=True):
    """What remains of a cleaned application for a time."""

    application_id: ApplicationId
    run_id: RunId
    name: str
    status: ApplicationStatus
    started_at: float
    ended_at: float
    file: Pointer
    left_behind: tuple[str, ...] = ()
    """Storage paths of what a person abandoned when it could not be cleaned up."""
    jobs: dict[str, int] = {}


class LeadershipSpan(Record, frozen=True):
    """One term: who held it, from when to when, and why it ended."""

    term: Term
    holder: str
    granted_at: float
    rest: str = ""
    lost_at: float | None = None
    reason: str = ""
    takeover_seconds: float | None = None


class RegistryBody(Record, frozen=True):
    """The one document of a cluster that lives as long as its id: what is real, what was."""

    cluster_id: str
    incarnation: str
    ephemeral: bool = False
    """The id was minted for one run: nothing at all is to remain."""
    applications: dict[ApplicationId, Link] = {}
    tombstones: dict[RunId, Tombstone] = {}
    ended: dict[RunId, ApplicationStatus] = {}
    """How runs ended whose tombstones are gone, oldest first: no clock lets them run again."""
    history: tuple[LeadershipSpan, ...] = ()


class JobRecord(Record, frozen=True):
    """A job in a tombstone's file: what a person may still ask about it."""

    job_id: JobId
    name: str
    status: JobStatus
    attempt: int
    start_time: float
    end_time: float
    value: msgspec.Raw = NULL
    failure: Failure | None = None
    note: str = ""
    checkpoint: str = ""
    """Where its last completed checkpoint lies, if that was retained."""
    savepoint: str = ""
    counts: tuple[int, ...] = ()
    kind: str = "batch"
    submitted_at: float = 0.0
    reached: bool | None = None
    displaced: bool = False
    failures: tuple[Failure, ...] = ()
    """Why its attempts failed, the last ones, oldest first."""


class TombstoneFile(Record, frozen=True):
    """The file that goes with a tombstone."""

    result: ApplicationResult
    jobs: tuple[JobRecord, ...] = ()
    configuration: dict[str, str] = {}
    """With which it was submitted, secrets hidden."""


class LeaderRecord(Record, frozen=True):
    """Who leads: the lease, and under which addresses the leader serves once it has recovered."""

    holder: Incarnation
    """Empty after a release: nobody leads, and the next may take over at once."""
    term: Term
    session: str
    """Flink's leader session id, a UUID: new with every grant."""
    renewals: int = 0
    """Changes with every renewal; standbys time the change, not what a clock said."""
    lease_s: float = 15.0
    name: str = ""
    pid: int = 0
    guardian_pid: int = 0
    host: str = ""
    lock: str = ""
    """The holder's liveness lock: a path on ``host``."""
    rest: str = ""
    rpc: str = ""
    """Empty until the leader has recovered and serves."""
    settings: dict[str, str] = {}
    """What all processes of the cluster must share."""
    since: float = 0.0
