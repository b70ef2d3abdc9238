"""The data model: immutable records that processes exchange and store as JSON.

Times are seconds since 1970 (wall clock, for people only); no decision depends on them.
A digest is ``sha256:`` and 64 hexadecimal digits; an application or job id has 32, as in Flink.
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
"""Identifies one start of one process: 32 hexadecimal digits, never reused."""

Term = int
"""The fencing token: grows with each grant of leadership; each term has one holder."""

NULL = msgspec.Raw(b"null")


class JobStatus(enum.Enum):
    """The states of a job, in Flink's words."""

    CREATED = "CREATED"
    RECONCILING = "RECONCILING"
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    CANCELING = "CANCELING"
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
    """Base class of all records: immutable, compared by value, built with keyword arguments."""


class Pointer(Record, frozen=True):
    """A reference to bytes in storage: their path, digest and size."""

    path: str
    digest: str
    size: int


class Failure(Record, frozen=True):
    """Why something failed: the exception's class, message and traceback, and the job."""

    type: str
    message: str
    traceback: str = ""
    time: float = 0.0
    job_id: str = ""
    attempt: int = 0
    """Of the job, where it is known."""


class Artifact(Record, frozen=True):
    """A file that an application needs, stored in its BlobStore.

    ``name`` is the path below the code directory; ``on_path`` says that the file itself (a zip of
    modules) goes on Python's path.
    """

    name: str
    digest: str
    size: int
    on_path: bool = False
    path: str = ""
    """Storage path of an uploaded artifact, which applications share; empty for a blob of the
    application's own."""
    unpacked: bool = False
    """An archive whose members lie in ``name``, a directory then."""


class UploadedArtifact(Record, frozen=True):
    """A file that a person has uploaded, and that applications of the cluster may share."""

    artifact_id: str
    """Follows from content and name, so that the same upload again is the same artifact."""
    name: str
    digest: str
    size: int
    path: str
    """Storage path of the bytes; artifacts of the same content have the same."""
    uploaded_at: float
    used_at: float
    """The last use; up to an hour old."""


class ArtifactCatalog(Record, frozen=True):
    """All uploaded artifacts of a cluster, by id."""

    artifacts: dict[str, UploadedArtifact] = {}


class SessionProfile(Record, frozen=True):
    """The settings that a driver is started with; a driver serves one profile only."""

    conf: dict[str, str] = {}
    code: str = ""
    """Digest of the artifact list on the driver's Python path."""
    cwd: str = ""

    @property
    def digest(self) -> str:
        """Return the profile's identifier, equal for equal settings."""
        encoded = msgspec.json.encode(self, order="sorted")
        return hashlib.sha256(encoded).hexdigest()[:16]


class SparkApplication(Record, frozen=True):
    """Where to find a running SparkContext; all fields are empty without one."""

    ui: str = ""
    application_id: str = ""
    """The id that the cluster manager gave."""
    event_log: str = ""


class StartFrom(Record, frozen=True):
    """A savepoint that an application starts from; the job is matched by name."""

    path: str
    """The savepoint's directory: an absolute path or a URL."""
    digest: str
    """Digest of the manifest."""
    job_name: str
    claim: bool = False
    """The job owns the savepoint: it is removed once the job has taken it over."""
    may_be_left: bool = False
    """``main`` need not submit a job of that name."""


MODULE = "-m "
"""What the target of a module begins with, as no script's and no function's does."""


class ApplicationRecord(Record, frozen=True):
    """What is needed to execute an application again: the ApplicationStore's entry (FLIP-560)."""

    application_id: ApplicationId
    run_id: RunId
    name: str
    target: str
    """``module:function``, ``-m module``, or the script's name below the code directory."""
    script: str
    """The script's path or URL at submission (for ``__file__``); empty for the others."""
    args: tuple[str, ...] = ()
    cwd: str = ""
    artifacts: tuple[Artifact, ...] = ()
    configuration: dict[str, str] = {}
    profile: SessionProfile = SessionProfile()
    first_job_id: str = ""
    savepoints: tuple[StartFrom, ...] = ()
    python: str = ""
    submitted_at: float = 0.0
    as_job: bool = False
    """The application was not converted: it runs whole as one job."""
    single_job: bool = False
    """``main`` has to submit exactly one job."""
    plan: Pointer | None = None
    """The plan of the one job of an application without ``main``; that job's id is the same."""
    job_name: str = ""
    """The name of that job."""
    uploads: tuple[str, ...] = ()
    """Ids of the uploaded artifacts that it was submitted with."""
    request: str = ""
    """Digest of the request that it was submitted with; empty for one that a process brought."""


class CheckpointKind(enum.Enum):
    """What a checkpoint covers."""

    BATCH = "batch"
    """A micro-batch that a streaming query has committed to its own Spark checkpoint."""
    TABLE = "table"
    """A DataFrame that is completely written."""
    HANDLE = "handle"
    """A DataFrame that is completely written and that later jobs of the application read."""
    STATE = "state"
    """A small JSON value."""
    WRITE = "write"
    """A safe write: rows that are published, or about to be, to a target of the user's."""


class Checkpoint(Record, frozen=True):
    """A point that a job can resume from; it is valid once the register holds it.

    A restarted job resumes from the latest checkpoint of each (kind, name).
    """

    kind: CheckpointKind
    name: str
    """Name of the query, DataFrame or table; empty where the kind needs none."""
    attempt: int
    number: int = 0
    """The number from the job's counter, which starts at 1; 0 until the checkpoint is recorded."""
    location: str = ""
    """Location of the bytes: a path in our storage, or a URL or path of the user's."""
    digest: str = ""
    """Digest of the manifest, the value or the batch's log."""
    batch_id: int = -1
    query_id: str = ""
    offsets: msgspec.Raw = NULL
    """The position of each source of the query, in Spark's JSON."""
    rows: int = 0
    size: int = 0
    """Bytes."""
    duration_s: float = 0.0
    completed_at: float = 0.0
    note: msgspec.Raw = NULL
    """Further data of this kind, as JSON."""
    failure: Failure | None = None
    """Why the checkpoint failed; a failed one is never among the completed ones."""


class Savepoint(Record, frozen=True):
    """A self-contained copy of what a job can resume from; it outlives job and cluster."""

    trigger: str
    """Id of the request, 32 hexadecimal digits."""
    location: str
    """The savepoint's directory, complete once ``completed_at`` is set."""
    directory: str = ""
    """The requested parent directory."""
    then: JobStatus | None = None
    """Final status of the job once the savepoint is durable; None if the job keeps running."""
    number: int = 0
    digest: str = ""
    """Digest of the manifest."""
    size: int = 0
    duration_s: float = 0.0
    completed_at: float = 0.0
    failure: Failure | None = None

    @property
    def is_pending(self) -> bool:
        """True until the savepoint is durable or has failed."""
        return not self.completed_at and self.failure is None


class Checkpoints(Record, frozen=True):
    """The register's record of one job's checkpoints; ``core.checkpoints`` maintains it."""

    application_id: ApplicationId
    job_id: JobId
    counter: int = 0
    """The last assigned number."""
    heard: tuple[int, int] = (0, 0)
    """The last report received: its attempt and its sequence number."""
    completed: tuple[Checkpoint, ...] = ()
    """The retained checkpoints, ordered by number."""
    completed_total: int = 0
    failed_total: int = 0
    failed: Checkpoint | None = None
    """The last failed checkpoint."""
    restored_total: int = 0
    restored: Checkpoint | None = None
    """The latest restored checkpoint; the next fields say when, and from which savepoint."""
    restored_at: float = 0.0
    restored_from: str = ""
    savepoints: tuple[Savepoint, ...] = ()
    started_from: str = ""
    """The savepoint that the job started from."""
    directory: str = ""
    """The checkpoint directory of a job that started from a savepoint."""


class Intent(Record, frozen=True):
    """What an attempt will do and where; durable before the attempt starts."""

    attempt: int
    taskmanager: Incarnation
    driver: Incarnation
    term: Term
    staged: str
    """Storage path at which the attempt stages its outcome before reporting."""
    placed_at: float = 0.0
    deployment: int = 1
    """The deployment whose code the attempt runs."""
    checkpoints: str = ""
    """The checkpoint directory that a person configured; empty for the default in ``layout``."""


class Limits(Record, frozen=True):
    """A job's own limits, which replace those of the configuration."""

    retries: int | None = None
    """Most retries after exceptions of the function; None: the restart strategy decides."""
    timeout_s: float | None = None
    """Longest run of the function in one attempt; None: no limit."""
    whole: bool = False
    """The function was not written as a job: another attempt starts from the top, and repeats what
    the last one has written."""


class Restarts(Record, frozen=True):
    """The restart strategy's counters for one job or one ``main``."""

    failures: int = 0
    losses: int = 0
    ages: tuple[float, ...] = ()
    """With ``failure-rate``: the age of each counted failure when the next attempt starts, oldest
    first, in seconds in which the job ran or waited for its delay."""


class JobResultEntry(Record, frozen=True):
    """The commit of a job's result, made by one fenced register write."""

    status: JobStatus
    attempt: int
    source: Pointer
    """The staged bytes that become the result file."""
    clean: bool = False
    cleaned: bool = False
    """The job's own files (plan, staged outcomes) are removed."""
    reason: str = ""
    start_time: float = 0.0
    end_time: float = 0.0
    checkpoint: str = ""
    """Location of the last completed checkpoint, if it is retained."""
    savepoint: str = ""
    counts: tuple[int, ...] = ()
    """Checkpoint totals (``core.checkpoints.Counts``); empty if the job took none."""


class JobEntry(Record, frozen=True):
    """A job in the ExecutionPlanStore: its assignment, plan, intent and result."""

    job_id: JobId
    name: str
    occurrence: int
    plan: Pointer
    submitted_at: float
    deployment: int = 1
    """The deployment whose code the plan holds; 0 if the plan is gone with a discarded result."""
    kind: str = "batch"
    attempt: int = 0
    intent: Intent | None = None
    restarts: Restarts = Restarts()
    limits: Limits = Limits()
    """The limits that the job was submitted with, as its plan was."""
    arguments: dict[str, str] = {}
    """Short digests of the plan's arguments by name (``core.arguments``)."""
    displaced: bool = False
    """The job gave way to another one that ``main`` reached first after a failover."""
    cancel_requested: bool = False
    stop_requested: JobStatus | None = None
    """Final status to set once the savepoint is durable."""
    checkpoints: str = ""
    """Register key of the job's checkpoint document; empty before the first checkpoint."""
    begun_after: int = 0
    """The last attempt before a person discarded the result; the next one started from scratch."""
    timestamps: dict[str, float] = {}
    """When the job entered each of its states that no other field times, up to the last write."""
    result: JobResultEntry | None = None


class Outcome(Record, frozen=True):
    """How one attempt ended: staged in storage before it is reported, then the job's result."""

    job_id: JobId
    job_name: str
    application_id: ApplicationId
    run_id: RunId
    status: JobStatus
    attempt: int
    start_time: float
    end_time: float
    value: msgspec.Raw = NULL
    """The function's return value as the JSON text of ``core.values``."""
    stopped: bool = False
    """The job was stopped with a savepoint before its function returned: there is no value."""
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
    """An application in the register, unfinished or not yet cleaned."""

    application_id: ApplicationId
    run_id: RunId
    name: str
    directory: str
    """The application's directory in storage; its name is a nonce, never reused."""
    record: Pointer
    status: ApplicationStatus
    created_at: float
    executions: int = 0
    """Number of executions of ``main`` so far."""
    timestamps: dict[str, float] = {}
    deployment: int = 1
    """Number of the deployed code; grows when a person deploys other code for an unfinished run."""
    restarts: Restarts = Restarts()
    segments: tuple[str, ...] = ()
    """Register keys of the documents that hold the jobs, 200 jobs to a segment."""
    uploads: tuple[str, ...] = ()
    """Ids of the uploaded artifacts that must stay while the application is unfinished."""
    once: dict[str, str] = {}
    """What ``main`` has computed once for this run: JSON texts by name."""
    cancel_requested: bool = False
    cleanup_abandoned: bool = False
    """A person asked to leave behind whatever cannot be cleaned up."""
    left_behind: tuple[str, ...] = ()
    """Storage paths that were left behind."""
    result: ApplicationResultEntry | None = None
    tombstone: Pointer | None = None
    """The tombstone's file; without a digest if a person accepted its loss."""


class Segment(Record, frozen=True):
    """Some of an application's jobs, in the order of their submission."""

    application_id: ApplicationId
    jobs: dict[JobId, JobEntry] = {}


class RegistryLink(Record, frozen=True):
    """The registry's entry for a document: a document without one does not count."""

    document: str
    run_id: RunId
    request: str = ""
    """Of an application: see `ApplicationRecord.request`."""


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
    """Storage paths that a person abandoned because cleanup failed."""
    jobs: dict[str, int] = {}


class LeadershipSpan(Record, frozen=True):
    """One term: its holder, its start and end, and why it ended."""

    term: Term
    holder: str
    granted_at: float
    rest: str = ""
    lost_at: float | None = None
    reason: str = ""
    takeover_seconds: float | None = None


class RegistryBody(Record, frozen=True):
    """The cluster's root document: its current applications and its ended runs."""

    cluster_id: str
    incarnation: str
    ephemeral: bool = False
    """The cluster id was generated for one run: nothing remains afterwards."""
    applications: dict[ApplicationId, RegistryLink] = {}
    tombstones: dict[RunId, Tombstone] = {}
    ended: dict[RunId, ApplicationStatus] = {}
    """Final status of runs whose tombstones are removed, oldest first; they never run again."""
    history: tuple[LeadershipSpan, ...] = ()
    shutdown: str = ""
    """Identifies the last request that shut the cluster down (`ha.shutdown`)."""


class JobRecord(Record, frozen=True):
    """A job in a tombstone's file: what people can still query."""

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
    """Location of the last completed checkpoint, if it was retained."""
    savepoint: str = ""
    counts: tuple[int, ...] = ()
    kind: str = "batch"
    submitted_at: float = 0.0
    reached: bool | None = None
    displaced: bool = False
    failures: tuple[Failure, ...] = ()
    """Why its attempts failed, the last ones, oldest first."""
    timestamps: dict[str, float] = {}
    """As those of `JobEntry`."""


class TombstoneFile(Record, frozen=True):
    """The content of a tombstone's file."""

    result: ApplicationResult
    jobs: tuple[JobRecord, ...] = ()
    configuration: dict[str, str] = {}
    """The configuration at submission, with secrets hidden."""


class LeaderRecord(Record, frozen=True):
    """Who leads: the lease, and the addresses at which the leader serves after its recovery."""

    holder: Incarnation
    """Empty after a release: nobody leads, and a standby may take over at once."""
    term: Term
    session: str
    """Flink's leader session id, a UUID: new with every grant."""
    renewals: int = 0
    """Changes with every renewal; standbys time the change, never a clock value in the record."""
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
    """Settings that all processes of the cluster must share."""
    since: float = 0.0
