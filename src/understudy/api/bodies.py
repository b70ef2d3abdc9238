"""The types of what REST takes and answers, from which its OpenAPI document is generated.

`views` and its neighbours build the answers as JSON; a test converts each answer to its type and
back. Key names are Flink's where Flink has the endpoint. Times are milliseconds since 1970, and -1
where there is none yet.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType, field

ApplicationState = Literal[
    "CREATED",
    "RUNNING",
    "FAILING",
    "CANCELING",
    "FINISHED",
    "FAILED",
    "CANCELED",
    "UNREADABLE",
]
JobState = Literal[
    "CREATED",
    "RECONCILING",
    "RUNNING",
    "RESTARTING",
    "CANCELING",
    "SUSPENDED",
    "FINISHED",
    "FAILED",
    "CANCELED",
]
TriggerId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
CleanupState = Literal["dirty", "clean"]


class Body(msgspec.Struct, frozen=True, rename="kebab"):
    """Base class of all bodies; ``start_time`` stands for the key ``start-time``."""


class OwnBody(Body, frozen=True, rename=None):
    """A body whose keys are written as its fields are."""


class Nothing(Body, frozen=True):
    """An empty object."""


class Error(Body, frozen=True):
    """Every refusal."""

    errors: list[str]
    """Why, for people."""
    code: str
    """Why, for programs: does not change with the wording."""
    applicationid: str | UnsetType = UNSET
    """Of a submission under an id that is used: the application that has ended."""
    status: str | UnsetType = UNSET
    """The state of that application."""
    register: dict[str, Any] | UnsetType = UNSET
    """Of ``/ha/status`` without a leader: the state of the coordination system."""


class Setting(Body, frozen=True):
    """One setting; secrets are hidden."""

    key: str
    value: str


class FailureCause(Body, frozen=True):
    """Why something failed."""

    class_: str = field(name="class")
    message: str
    stack_trace: str


class FailureEntry(OwnBody, frozen=True):
    """One failure of a history."""

    exceptionName: str  # noqa: N815 -- Flink's key
    stacktrace: str
    timestamp: int
    attempt: int | UnsetType = UNSET
    jobId: str | UnsetType = UNSET  # noqa: N815


class ExceptionHistory(Body, frozen=True):
    """Failures, the latest first."""

    entries: list[FailureEntry]
    truncated: bool
    """There are more than were asked for."""


class ApplicationExceptions(OwnBody, frozen=True):
    """The cause of an application's failure."""

    exceptionHistory: ExceptionHistory  # noqa: N815


class JobExceptions(Body, frozen=True):
    """Why attempts of a job failed."""

    root_exception: str | None
    timestamp: int | None
    all_exceptions: list[Any]
    truncated: bool
    exception_history: ExceptionHistory = field(name="exceptionHistory")


# --- jobs -----------------------------------------------------------------------------------------


class SparkLinks(Body, frozen=True):
    """Where to find the Spark application of a job."""

    id: str | None
    ui: str | None
    event_log: str | None


class CheckpointSummary(OwnBody, frozen=True):
    """The newest checkpoint of a job."""

    id: int
    kind: str
    name: str
    batch_id: int | None
    rows: int
    timestamp: int
    goes_on_from: int


class JobCommon(Body, frozen=True):
    """What lists and details of jobs have in common."""

    jid: str
    name: str
    application_id: str
    state: JobState
    start_time: int
    end_time: int
    duration: int
    last_modification: int
    tasks: dict[str, int]
    """Number of Spark tasks in each state."""
    pending_operators: int
    job_type: str = field(name="jobType")
    attempt: int
    cleanup: CleanupState | None
    reason: str
    waits: str | None
    """What the job waits for."""
    spark: SparkLinks | None
    savepoint: str | None
    reached: bool | None
    adopted: bool | None
    skipped: bool | None
    displaced: bool | None


class JobDetails(JobCommon, frozen=True):
    """A job in lists."""

    checkpoint: str | None


class JobPlan(Body, frozen=True):
    """A job's plan, without nodes."""

    jid: str
    name: str
    type: str
    nodes: list[Any]


class RestartCounts(Body, frozen=True):
    """How often a job was started again, by reason."""

    failures: int
    losses: int


class JobDetail(JobCommon, frozen=True):
    """One job."""

    checkpoint: str | CheckpointSummary | None
    is_stoppable: bool = field(name="isStoppable")
    max_parallelism: int = field(name="maxParallelism")
    now: int
    timestamps: dict[JobState, int]
    vertices: list[Any]
    status_counts: dict[str, int]
    plan: JobPlan
    occurrence: int | UnsetType = UNSET
    restarts: RestartCounts | UnsetType = UNSET
    taskmanager: str | UnsetType | None = UNSET
    driver: str | UnsetType | None = UNSET


class JobIdWithStatus(Body, frozen=True):
    """A job and its state."""

    id: str
    status: JobState


class JobList(Body, frozen=True):
    """The ids of all jobs."""

    jobs: list[JobIdWithStatus]


class JobOverview(Body, frozen=True):
    """All jobs."""

    jobs: list[JobDetails]


class ResultStatus(Body, frozen=True):
    """Whether what was asked for is there."""

    id: Literal["IN_PROGRESS", "COMPLETED"]


class JobOutcome(Body, frozen=True):
    """How a job ended."""

    id: str
    application_status: Literal["SUCCEEDED", "FAILED", "CANCELED"]
    accumulator_results: dict[str, Any]
    net_runtime: int
    name: str
    attempt: int
    checkpoint: str | None
    savepoint: str | None
    value: Any | UnsetType = UNSET
    """What the job's function returned."""
    failure_cause: FailureCause | UnsetType = UNSET
    missing: str | UnsetType = UNSET
    """Why the value is missing."""


class ExecutionResult(Body, frozen=True):
    """The result of a job."""

    status: ResultStatus
    cleanup: CleanupState | None
    job_execution_result: JobOutcome | UnsetType = UNSET


# --- applications ---------------------------------------------------------------------------------


class ApplicationCommon(Body, frozen=True, kw_only=True):
    """What lists and details of applications have in common."""

    id: str
    name: str
    status: ApplicationState
    start_time: int
    end_time: int
    duration: int
    run_id: str
    executions: int | UnsetType = UNSET
    """Executions of ``main`` so far."""
    deployment: int | UnsetType = UNSET
    left_behind: list[str] | UnsetType = UNSET
    """Paths in storage that could not be cleaned up."""
    problem: str | UnsetType = UNSET
    """Why the application cannot be read."""
    waits: str | UnsetType = UNSET
    """Why ``main`` waits to be executed, and its place in the queue."""


class ApplicationOverview(ApplicationCommon, frozen=True, kw_only=True):
    """An application in lists."""

    jobs: dict[JobState, int]
    """Number of jobs in each state."""


class ApplicationList(Body, frozen=True):
    """All applications."""

    applications: list[ApplicationOverview]


class ApplicationDetail(ApplicationCommon, frozen=True, kw_only=True):
    """One application."""

    jobs: list[JobDetails]
    timestamps: dict[ApplicationState, int] | UnsetType = UNSET
    failure: FailureCause | UnsetType | None = UNSET


# --- checkpoints ----------------------------------------------------------------------------------

CheckpointStatus = Literal["IN_PROGRESS", "COMPLETED", "FAILED"]


class CheckpointEntry(OwnBody, frozen=True, kw_only=True):
    """A checkpoint or a savepoint."""

    className: Literal["in_progress", "completed", "failed"]  # noqa: N815
    id: int
    status: CheckpointStatus
    is_savepoint: bool
    checkpoint_type: str | UnsetType = UNSET
    trigger_timestamp: int | UnsetType = UNSET
    latest_ack_timestamp: int | UnsetType = UNSET
    checkpointed_size: int | UnsetType = UNSET
    state_size: int | UnsetType = UNSET
    end_to_end_duration: int | UnsetType = UNSET
    external_path: str | UnsetType | None = UNSET
    discarded: bool | UnsetType = UNSET
    kind: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    batch_id: int | UnsetType | None = UNSET
    query_id: str | UnsetType | None = UNSET
    offsets: Any | UnsetType = UNSET
    rows: int | UnsetType = UNSET
    attempt: int | UnsetType = UNSET
    trigger_id: str | UnsetType = UNSET
    failure_timestamp: int | UnsetType = UNSET
    failure_message: str | UnsetType = UNSET


class CheckpointDetail(CheckpointEntry, frozen=True, kw_only=True):
    """One checkpoint."""

    tasks: dict[str, Any]


class CheckpointCounts(OwnBody, frozen=True):
    """How many checkpoints there were."""

    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


class RestoredCheckpoint(OwnBody, frozen=True):
    """The checkpoint that the running attempt began from."""

    id: int
    restore_timestamp: int
    is_savepoint: bool
    external_path: str | None
    kind: str
    name: str


class LatestCheckpoints(Body, frozen=True):
    """The newest checkpoint of each sort."""

    completed: CheckpointEntry | None
    savepoint: CheckpointEntry | None
    failed: CheckpointEntry | None
    restored: RestoredCheckpoint | None


class CheckpointStatistics(OwnBody, frozen=True):
    """All that is known of a job's checkpoints."""

    counts: CheckpointCounts
    summary: dict[str, dict[str, int]]
    latest: LatestCheckpoints
    history: list[CheckpointEntry]
    started_from: str | None


class Externalization(OwnBody, frozen=True):
    """Whether checkpoints stay after their job."""

    enabled: bool
    delete_on_cancellation: bool


class CheckpointConfig(OwnBody, frozen=True):
    """A job's checkpoint settings."""

    mode: str
    interval: int
    timeout: int
    min_pause: int
    max_concurrent: int
    externalization: Externalization
    checkpoint_storage: str
    retention: str
    num_retained: int
    dir: str
    accept_found: bool


class SavepointTrigger(OwnBody, frozen=True):
    """The request of a savepoint."""

    target_directory: str | None = field(name="target-directory", default=None)
    cancel_job: bool = field(name="cancel-job", default=False)
    triggerId: TriggerId | None = None  # noqa: N815
    """32 hexadecimal digits: the same id again is the same savepoint."""


class StopWithSavepoint(OwnBody, frozen=True):
    """The request to end a job with a savepoint."""

    targetDirectory: str | None = None  # noqa: N815
    drain: Literal[False] = False
    triggerId: TriggerId | None = None  # noqa: N815


class SavepointDisposal(OwnBody, frozen=True):
    """The request to remove a savepoint."""

    savepoint_path: Annotated[str, msgspec.Meta(min_length=1)] = field(name="savepoint-path")
    triggerId: TriggerId | None = None  # noqa: N815


class Triggered(Body, frozen=True):
    """What was asked for has begun."""

    request_id: str
    location: str | UnsetType = UNSET


class Completion(Body, frozen=True):
    """What became of what was asked for."""

    location: str | UnsetType = UNSET
    failure_cause: FailureCause | UnsetType = UNSET


class OperationStatus(Body, frozen=True):
    """Whether what was asked for is done."""

    status: ResultStatus
    operation: Completion | UnsetType = UNSET


# --- the cluster ----------------------------------------------------------------------------------


class Features(Body, frozen=True):
    """What Flink's pages may offer."""

    web_submit: bool
    web_cancel: bool
    web_rescale: bool
    web_history: bool


class PageSettings(Body, frozen=True):
    """What Flink's pages ask for first."""

    refresh_interval: int
    timezone_name: str
    timezone_offset: int
    flink_version: str
    """Our version."""
    flink_revision: str
    features: Features


class LogFact(Body, frozen=True):
    """A log file."""

    name: str
    size: int
    mtime: int


class LogList(Body, frozen=True):
    """Log files, the latest first."""

    logs: list[LogFact]


class Overview(Body, frozen=True):
    """The cluster in numbers."""

    taskmanagers: int
    slots_total: int
    slots_available: int
    jobs_running: int
    jobs_finished: int
    jobs_cancelled: int
    jobs_failed: int
    applications_running: int
    applications_finished: int
    applications_cancelled: int
    applications_failed: int
    understudy_version: str
    flink_version: str
    """Ours, for Flink's clients."""
    flink_commit: str


class DriverDetail(OwnBody, frozen=True):
    """A Spark driver, in a slot or spare."""

    slot: int | None
    state: str
    driver_pid: int | None
    jvm_pid: int | None
    job_id: str | None
    attempt: int | None
    id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    guardian_pid: int | UnsetType | None = UNSET
    application_id: str | UnsetType | None = UNSET
    ui: str | UnsetType | None = UNSET
    spark: SparkLinks | UnsetType | None = UNSET
    waits: str | UnsetType | None = UNSET
    note: str | UnsetType | None = UNSET
    """Why the last driver of this slot ended."""


class TaskManagerDetail(OwnBody, frozen=True):
    """A TaskManagerDetail."""

    id: str
    incarnation: str
    pid: int
    guardian_pid: int
    slotsNumber: int  # noqa: N815
    freeSlots: int  # noqa: N815
    slots: list[DriverDetail]
    spare_drivers: list[DriverDetail]
    connected: bool
    host: str
    metrics: str | None


class TaskManagerList(Body, frozen=True):
    """All TaskManagerList."""

    taskmanagers: list[TaskManagerDetail]


class LeaderDetail(OwnBody, frozen=True):
    """The JobManager that leads."""

    id: str
    pid: int
    guardian_pid: int
    rest: str
    term: int
    session: str
    since: float | None


class StandbyDetail(OwnBody, frozen=True):
    """A JobManager that stands by."""

    id: str
    pid: int
    guardian_pid: int
    rest: str
    ready: bool


class LeadershipTerm(OwnBody, frozen=True):
    """One term of a leader."""

    term: int
    holder: str
    rest: str
    granted_at: float
    lost_at: float | None
    reason: str | None
    takeover_seconds: float | None


class Attention(Body, frozen=True):
    """A problem that a person must solve."""

    id: str
    problem: str


class HaStatus(OwnBody, frozen=True):
    """Who leads, who stands by, and what needs a person."""

    cluster_id: str
    leader: LeaderDetail
    standbys: list[StandbyDetail]
    history: list[LeadershipTerm]
    attention: list[Attention]
    register: dict[str, Any]
    age_seconds: float


class OpenCleanup(OwnBody, frozen=True):
    """Something that is still to be cleaned up."""

    application_id: str
    task: str
    failures: int
    error: str | None
    given_up: bool
    next_try_seconds: float | None


class OpenCleanupList(Body, frozen=True):
    """All that is still to be cleaned up."""

    open: list[OpenCleanup]


class CleanupChoice(OwnBody, frozen=True):
    """What a person's choice was about."""

    application_id: str
    tasks: list[str]
    left_behind: list[str] = field(name="left-behind")
