"""What the processes of a cluster say to a leading JobManager, and it to them.

Every message travels in an `Envelope` with the sender's incarnation and term: a TaskManager
refuses a leader whose term is below the highest it has seen.
"""

from __future__ import annotations

import msgspec

from understudy.model import (
    ApplicationId,
    Artifact,
    Checkpoint,
    Failure,
    Incarnation,
    JobId,
    JobStatus,
    Pointer,
    RunId,
    SessionProfile,
    SparkApplication,
    Term,
)


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The base of all messages; the class's name is its tag on the wire."""


# --- TaskManager to JobManager --------------------------------------------------------------------


class DriverReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One driver of a TaskManager, as REST shows it."""

    driver: Incarnation
    slot: int | None
    """The number of its slot, from 1; None for a spare."""
    state: str
    """``starting``, ``warm`` or ``busy``."""
    application_id: str = ""
    profile: str = ""
    """Digest of all that it was started with."""
    driver_pid: int = 0
    guardian_pid: int = 0
    jvm_pid: int = 0
    spark: SparkApplication = SparkApplication()
    job_id: str = ""
    attempt: int = 0
    waits: str = ""
    """Why its job has no executors."""
    carries: int | None = None
    """How many jobs the Spark cluster can carry at once; None where that is not known."""
    note: str = ""
    """Why it is being retired, or why the driver before it in its slot was retired or lost."""


class AttemptReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt that a TaskManager runs, or that ended and was not acknowledged yet."""

    job_id: JobId
    attempt: int
    driver: Incarnation
    ran_s: float
    ended: AttemptEnded | None = None


class AttemptEnded(Message, frozen=True, kw_only=True):
    """The attempt ended by itself; its outcome is staged in storage."""

    job_id: JobId
    attempt: int
    status: JobStatus
    retryable: bool
    source: Pointer
    ran_s: float
    start_time: float
    end_time: float
    reaped: bool = False
    """Nothing of the attempt lives any more; told of every end but FINISHED only when it is so."""


class Register(Message, frozen=True, kw_only=True):
    """A TaskManager offers itself to a leader, with all that it runs."""

    name: str
    pid: int
    guardian_pid: int
    host: str
    lock: str
    slots: int
    spares: int
    drivers: tuple[DriverReport, ...]
    attempts: tuple[AttemptReport, ...]
    metrics: str = ""
    """Where its metrics are; empty where they are not served."""


class Heartbeat(Message, frozen=True, kw_only=True):
    """The sender is there; the answer names the same number."""

    number: int


class Drivers(Message, frozen=True, kw_only=True):
    """The drivers of a TaskManager, after something about them changed."""

    drivers: tuple[DriverReport, ...]


class AttemptRunning(Message, frozen=True, kw_only=True):
    """The attempt's function has been entered."""

    job_id: JobId
    attempt: int


class AttemptLost(Message, frozen=True, kw_only=True):
    """The attempt's driver is dead, reaped with all its children, without staging an outcome."""

    job_id: JobId
    attempt: int
    reason: str
    ran_s: float


class AttemptRefused(Message, frozen=True, kw_only=True):
    """The attempt was not taken: it never started."""

    job_id: JobId
    attempt: int
    reason: str


class Progress(Message, frozen=True, kw_only=True):
    """How far an attempt is, in Spark's tasks."""

    job_id: JobId
    attempt: int
    tasks_done: int
    tasks_total: int
    stage: str = ""


class CheckpointsTaken(Message, frozen=True, kw_only=True):
    """The attempt has completed these checkpoints: they count once this is answered.

    Told again to the next leader until it is; what is recorded already keeps its number.
    """

    job_id: JobId
    attempt: int
    sequence: int
    """Numbers what this attempt tells, from 1."""
    checkpoints: tuple[Checkpoint, ...]
    failed: int = 0
    """How many could not be completed since it was last told, and the last of them."""
    last_failed: Checkpoint | None = None


class CannotStart(Message, frozen=True, kw_only=True):
    """No driver for this application can be started: the settings are wrong."""

    application_id: ApplicationId
    reason: str


# --- JobManager to TaskManager --------------------------------------------------------------------


class Welcome(Message, frozen=True, kw_only=True):
    """The leader has taken the sender in."""


class HeartbeatAnswer(Message, frozen=True, kw_only=True):
    """The leader has heard the heartbeat of this number."""

    number: int


class Prepare(Message, frozen=True, kw_only=True):
    """Keep warm drivers for this application."""

    application_id: ApplicationId
    run_id: RunId
    directory: str
    profile: SessionProfile
    artifacts: tuple[Artifact, ...]
    cluster: str = ""
    """The incarnation of the cluster."""


class Deploy(Message, frozen=True, kw_only=True):
    """Run this attempt in that driver."""

    application_id: ApplicationId
    run_id: RunId
    job_id: JobId
    name: str
    attempt: int
    driver: Incarnation
    plan: Pointer
    staged: str
    writer: str
    """Under which name it writes to what drops a repeated write: that of its lineage, which no
    other run uses, even one with the same ids."""
    result_size_max: int
    checkpoints: str = ""
    """Where the job's checkpoints lie: a path of the storage, or an absolute path or URL."""
    tables: str = ""
    """Where the DataFrames lie that jobs of this application hand on; a path of the storage."""
    restored: tuple[Checkpoint, ...] = ()
    """What the attempt goes on from: the latest of each query, DataFrame and state."""
    accept_found: bool = False
    """Take a query's checkpoint location as it is found."""
    cluster: str = ""
    """The incarnation of the cluster."""
    application_name: str = ""
    slots: int = 0
    """How many jobs the cluster's TaskManagers run at once."""


class StopAttempt(Message, frozen=True, kw_only=True):
    """End this attempt, gently and then by force; answered by AttemptEnded or AttemptLost."""

    job_id: JobId
    attempt: int


class Forget(Message, frozen=True, kw_only=True):
    """The attempt's end is recorded: it need not be reported again."""

    job_id: JobId
    attempt: int


class CheckpointsRecorded(Message, frozen=True, kw_only=True):
    """What the attempt has told under this number is durable."""

    job_id: JobId
    attempt: int
    sequence: int
    numbers: tuple[int, ...] = ()


class CheckpointsRefused(Message, frozen=True, kw_only=True):
    """What the attempt has told under this number is not recorded, and will not be."""

    job_id: JobId
    attempt: int
    sequence: int
    reason: str


class Release(Message, frozen=True, kw_only=True):
    """The application has ended: retire its drivers."""

    application_id: ApplicationId


# --- standby JobManager to the leader -------------------------------------------------------------


class Attend(Message, frozen=True, kw_only=True):
    """A standby stands by; sent again when something changes."""

    name: str
    pid: int
    guardian_pid: int
    rest: str
    ready: bool


LinkMessage = (
    Register
    | Heartbeat
    | Drivers
    | AttemptRunning
    | AttemptEnded
    | AttemptLost
    | AttemptRefused
    | Progress
    | CheckpointsTaken
    | CannotStart
    | Welcome
    | HeartbeatAnswer
    | Prepare
    | Deploy
    | StopAttempt
    | Forget
    | CheckpointsRecorded
    | CheckpointsRefused
    | Release
    | Attend
)

# --- the process of main --------------------------------------------------------------------------


class RunMain(Message, frozen=True, kw_only=True):
    """Execute ``main`` from the top."""

    application_id: ApplicationId
    run_id: RunId
    target: str
    script: str
    args: tuple[str, ...]
    cwd: str
    code: str
    """The directory with the application's code, laid out for Python's path."""
    python_path: tuple[str, ...]
    conf: dict[str, str]
    storage: str
    plans: str
    """Storage directory for the plans of its jobs."""
    term: Term
    execution: int
    first_job_id: str = ""
    first_job_name: str = ""
    """Whose the configured first job id is; empty while nobody has it."""


class Ready(Message, frozen=True, kw_only=True):
    """The process has imported what takes long, and waits for `RunMain`."""


class Submit(Message, frozen=True, kw_only=True):
    """``execute`` was called; without a plan, to learn whether one is needed."""

    request: int
    job_id: JobId
    name: str
    occurrence: int
    plan: Pointer | None = None


class ComeBy(Message, frozen=True, kw_only=True):
    """``execute`` was called for a job of `Accepted.past`; it is not answered."""

    job_id: JobId
    name: str
    occurrence: int


class AwaitJob(Message, frozen=True, kw_only=True):
    """Answer once the job has ended."""

    request: int
    job_id: JobId


class AskStatus(Message, frozen=True, kw_only=True):
    """Answer with the job's status."""

    request: int
    job_id: JobId


class CancelJob(Message, frozen=True, kw_only=True):
    """Cancel a job."""

    request: int
    job_id: JobId


class MainEnded(Message, frozen=True, kw_only=True):
    """``main`` has ended; without a failure it returned or called ``sys.exit(0)``."""

    failure: Failure | None = None
    job_id: JobId | None = None
    """The job whose `JobFailed` or `JobCanceled` it did not catch."""


class NeedPlan(Message, frozen=True, kw_only=True):
    """The job is new: store its plan, and submit again with its pointer."""

    request: int


class Accepted(Message, frozen=True, kw_only=True):
    """The submission, or the wish to cancel, is durable."""

    request: int
    past: dict[JobId, JobDone] = {}
    """How this job and the next ones ended, where they had finished: ``main`` need not ask."""


class JobDone(Message, frozen=True, kw_only=True):
    """How the job ended."""

    request: int
    status: JobStatus
    attempt: int
    start_time: float
    end_time: float
    value: bytes
    """JSON text."""
    failure: Failure | None = None
    checkpoint: str = ""
    """Where its last completed checkpoint lies, if that is retained."""
    savepoint: str = ""


class StatusIs(Message, frozen=True, kw_only=True):
    """The job's status."""

    request: int
    status: JobStatus


class Refusal(Message, frozen=True, kw_only=True):
    """The request was refused; ``code`` is that of an error class."""

    request: int
    code: str
    message: str


MainMessage = (
    RunMain
    | Ready
    | Submit
    | ComeBy
    | AwaitJob
    | AskStatus
    | CancelJob
    | MainEnded
    | NeedPlan
    | Accepted
    | JobDone
    | StatusIs
    | Refusal
)

# --- the driver -----------------------------------------------------------------------------------


class StartSession(Message, frozen=True, kw_only=True):
    """Start the session that this driver will offer to jobs, and warm it."""

    kind: str
    application_id: ApplicationId
    conf: dict[str, str]
    python_path: tuple[str, ...]
    scratch: str
    storage: str
    cluster: str = ""
    run_id: RunId = RunId("")
    keep_idle_s: float = 0.0
    """How long executors stay after a job."""
    wait_s: float | None = None
    """How long a job may be without executors; None: for ever."""
    reuse: str = "application"
    """Whether the driver serves more than one job."""


class Warm(Message, frozen=True, kw_only=True):
    """The session is there, and free."""

    jvm_pid: int = 0
    spark: SparkApplication = SparkApplication()


class Executors(Message, frozen=True, kw_only=True):
    """What the Spark cluster gives: reported when it changes."""

    waits: str = ""
    """Why the job that runs has no executors; empty where it has some."""
    carries: int | None = None
    """How many jobs the cluster can carry at once; None where that is not known."""


class RunAttempt(Message, frozen=True, kw_only=True):
    """Run the function of a plan."""

    deploy: Deploy
    term: Term


class Entered(Message, frozen=True, kw_only=True):
    """The function has been entered."""

    job_id: JobId
    attempt: int
    spark: SparkApplication = SparkApplication()


class Interrupt(Message, frozen=True, kw_only=True):
    """Interrupt what runs."""

    job_id: JobId
    attempt: int


class Retiring(Message, frozen=True, kw_only=True):
    """The driver cannot serve another job: why."""

    reason: str


DriverMessage = (
    StartSession
    | Warm
    | Executors
    | RunAttempt
    | Entered
    | Interrupt
    | AttemptEnded
    | Progress
    | CheckpointsTaken
    | CheckpointsRecorded
    | CheckpointsRefused
    | Retiring
)
