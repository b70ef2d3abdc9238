"""The messages between the processes of a cluster.

Every message travels in an `Envelope` with the sender's incarnation and term. A TaskManager refuses
a leader with a lower term than the highest it has seen.
"""

from __future__ import annotations

import msgspec

from understudy.core.drivers import Purpose
from understudy.model import (
    ApplicationId,
    Artifact,
    Checkpoint,
    Failure,
    Incarnation,
    JobId,
    JobStatus,
    Limits,
    Pointer,
    RunId,
    SessionProfile,
    SparkApplication,
    Term,
)


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The base of all messages; the class's name is its tag on the wire.

    A renamed class keeps the tag that earlier versions know.
    """


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
    """Digest of all settings that the driver was started with."""
    driver_pid: int = 0
    guardian_pid: int = 0
    jvm_pid: int = 0
    spark: SparkApplication = SparkApplication()
    job_id: str = ""
    attempt: int = 0
    waits: str = ""
    """Why its job has no executors."""
    carries: int | None = None
    """How many jobs the Spark cluster can run at once; None if unknown."""
    note: str = ""
    """Why this driver is being retired, or why its predecessor in the slot was retired or lost."""


class AttemptReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt of a TaskManager that runs, or has ended and is not acknowledged yet.

    How it ended comes afterwards as `AttemptEnded`, behind the last checkpoints of the attempt.
    """

    job_id: JobId
    attempt: int
    driver: Incarnation
    ran_s: float
    running: bool = True
    application_id: ApplicationId = ApplicationId("")
    """Empty for an attempt that has ended."""


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
    """All processes of the attempt are dead; required for every status but FINISHED."""


class RegisterTaskManager(Message, frozen=True, kw_only=True, tag="Register"):
    """A TaskManager registers with a leader, and lists all that it runs."""

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
    """The address of its metrics; empty if not served."""


class Heartbeat(Message, frozen=True, kw_only=True):
    """The sender is alive; the answer has the same number."""

    number: int


class Drivers(Message, frozen=True, kw_only=True):
    """The drivers of a TaskManager, sent after each change."""

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
    handed_over: bool = False
    """A TaskManager that drains has ended the attempt: no fault of the job, nor of its process."""


class AttemptRefused(Message, frozen=True, kw_only=True):
    """The TaskManager refused the attempt, which never started."""

    job_id: JobId
    attempt: int
    reason: str


class Progress(Message, frozen=True, kw_only=True):
    """The progress of an attempt, in Spark's tasks."""

    job_id: JobId
    attempt: int
    tasks_done: int
    tasks_total: int
    stage: str = ""


class CheckpointsTaken(Message, frozen=True, kw_only=True):
    """The attempt has completed these checkpoints, which count once the leader answers.

    Repeated to the next leader until answered; a recorded checkpoint keeps its number.
    """

    job_id: JobId
    attempt: int
    sequence: int
    """The number of this message of the attempt, from 1."""
    checkpoints: tuple[Checkpoint, ...]
    failed: int = 0
    """How many checkpoints failed since the last message; ``last_failed`` is the last of them."""
    last_failed: Checkpoint | None = None


class Draining(Message, frozen=True, kw_only=True):
    """The TaskManager is asked to end: it takes no more work, and hands over what runs."""


class Leaving(Message, frozen=True, kw_only=True):
    """The TaskManager has ended and reported all its attempts; the leader closes the link."""


class CannotStart(Message, frozen=True, kw_only=True):
    """No driver for this application can be started: the settings are wrong."""

    application_id: ApplicationId
    reason: str


# --- JobManager to TaskManager --------------------------------------------------------------------


class Welcome(Message, frozen=True, kw_only=True):
    """The leader has registered the sender."""


class HeartbeatAnswer(Message, frozen=True, kw_only=True):
    """The leader has received the heartbeat with this number."""

    number: int


class Prepare(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a TaskManager needs to start drivers for an application."""

    application_id: ApplicationId
    run_id: RunId
    directory: str
    profile: SessionProfile
    artifacts: tuple[Artifact, ...]
    cluster: str = ""
    """The incarnation of the cluster."""
    ended_runs: tuple[str, ...] = ()
    """Runs of the cluster that had ended when the leader began with this application."""

    @property
    def purpose(self) -> Purpose:
        """Return what these drivers serve."""
        return Purpose(self.application_id, self.profile.digest)


class KeepDrivers(Message, frozen=True, kw_only=True):
    """Have these drivers; replaces the last message of this kind.

    Idle drivers of other applications and profiles are retired.
    """

    applications: tuple[Prepare, ...]
    wanted: tuple[int, ...]
    """An entry for each driver, the most important first: the position of its application."""


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
    """The writer id for sinks that drop repeated writes: unique to the attempt's lineage, even if
    another run has the same ids."""
    result_size_max: int
    checkpoints: str = ""
    """The directory of the job's checkpoints: a path in the storage, an absolute path or a URL."""
    tables: str = ""
    """The directory of DataFrames that this application's jobs pass on; a path in the storage."""
    restored: tuple[Checkpoint, ...] = ()
    """The checkpoints to resume from: the latest of each query, DataFrame and state."""
    accept_found: bool = False
    """Accept a query's checkpoint location as found."""
    cluster: str = ""
    """The incarnation of the cluster."""
    application_name: str = ""
    slots: int = 0
    """How many jobs the cluster's TaskManagers can run at once."""
    lost_driver: str = ""
    """Driver of the previous attempt, if it is known dead; else empty."""
    ended_runs: tuple[str, ...] = ()
    """Runs of the cluster that have ended lately: what Spark still has of them is ended."""
    no_retry: tuple[str, ...] = ()
    """Exceptions that another attempt would raise again, unless the plan has a list of its own."""
    timeout_s: float | None = None
    """Longest run of the function; None: no limit."""
    whole: bool = False
    """The function was not written as a job: it may end its own process, as a script does."""


class StopAttempt(Message, frozen=True, kw_only=True):
    """End this attempt, gently and then by force; answered by AttemptEnded or AttemptLost."""

    job_id: JobId
    attempt: int


class Forget(Message, frozen=True, kw_only=True):
    """The attempt's end is recorded, so the TaskManager need not report it again."""

    job_id: JobId
    attempt: int


class CheckpointsRecorded(Message, frozen=True, kw_only=True):
    """The checkpoints in the message with this number are durable."""

    job_id: JobId
    attempt: int
    sequence: int
    numbers: tuple[int, ...] = ()


class CheckpointsRefused(Message, frozen=True, kw_only=True):
    """The checkpoints in the message with this number will never be recorded."""

    job_id: JobId
    attempt: int
    sequence: int
    reason: str


# --- standby JobManager to the leader -------------------------------------------------------------


class Attend(Message, frozen=True, kw_only=True):
    """A standby introduces itself to the leader; sent again after each change."""

    name: str
    pid: int
    guardian_pid: int
    rest: str
    ready: bool


AttemptMessage = (
    AttemptRunning | AttemptEnded | AttemptLost | AttemptRefused | Progress | CheckpointsTaken
)
"""A TaskManager's message about an attempt, for the inbox of the job."""

LinkMessage = (
    RegisterTaskManager
    | Heartbeat
    | Drivers
    | AttemptRunning
    | AttemptEnded
    | AttemptLost
    | AttemptRefused
    | Progress
    | CheckpointsTaken
    | CannotStart
    | Draining
    | Leaving
    | Welcome
    | HeartbeatAnswer
    | KeepDrivers
    | Deploy
    | StopAttempt
    | Forget
    | CheckpointsRecorded
    | CheckpointsRefused
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
    redacted_keys: tuple[str, ...] = ()
    """Further parts of keys of ``conf`` whose values are secrets."""
    storage: str
    plans: str
    """Storage directory for the plans of its jobs."""
    term: Term
    execution: int
    first_job_id: str = ""
    first_job_name: str = ""
    """The job with the configured first job id; empty if none has it yet."""
    as_job: bool = False
    """Run the application, which was not converted, whole as one job."""


class Ready(Message, frozen=True, kw_only=True):
    """The process has finished its slow imports and waits for `RunMain`."""


class Submit(Message, frozen=True, kw_only=True):
    """``execute`` was called; sent without a plan first if the plan may be stored already."""

    request: int
    job_id: JobId
    name: str
    occurrence: int
    plan: Pointer | None = None
    limits: Limits = Limits()
    arguments: dict[str, str] = {}
    """Short digests of the job's arguments by name (``core.arguments``)."""


class ComeBy(Message, frozen=True, kw_only=True):
    """``execute`` was called for a job in `Accepted.past`; there is no answer."""

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


class Once(Message, frozen=True, kw_only=True):
    """``env.once`` was called; with a value, record it unless one is recorded."""

    request: int
    name: str
    value: str = ""
    """JSON text; empty to ask for what is recorded."""


class OnceIs(Message, frozen=True, kw_only=True):
    """What is recorded under the name; empty if nothing is."""

    request: int
    value: str = ""


class MainEnded(Message, frozen=True, kw_only=True):
    """``main`` has ended; no failure: ``main`` returned or called ``sys.exit(0)``."""

    failure: Failure | None = None
    job_id: JobId | None = None
    """The job whose `JobFailed` or `JobCanceled` ``main`` did not catch."""


class NeedPlan(Message, frozen=True, kw_only=True):
    """The job is new: store its plan, and submit again with its pointer."""

    request: int


class Accepted(Message, frozen=True, kw_only=True):
    """The submission or cancellation is durable."""

    request: int
    past: dict[JobId, JobDone] = {}
    """The results of this job and the next ones that have finished: ``main`` need not ask."""
    arguments: dict[JobId, dict[str, str]] = {}
    """The digests of the arguments that these jobs have; none of an earlier deployment."""


class JobDone(Message, frozen=True, kw_only=True):
    """The job's result."""

    request: int
    status: JobStatus
    attempt: int
    start_time: float
    end_time: float
    value: bytes
    """JSON text."""
    failure: Failure | None = None
    checkpoint: str = ""
    """The location of the last completed checkpoint, if retained."""
    savepoint: str = ""
    stopped: bool = False
    """It was stopped with the savepoint and has no value."""


class StatusIs(Message, frozen=True, kw_only=True):
    """The job's status."""

    request: int
    status: JobStatus


class Refusal(Message, frozen=True, kw_only=True):
    """The request was refused; ``code`` is an error class's code."""

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
    | Once
    | OnceIs
    | MainEnded
    | NeedPlan
    | Accepted
    | JobDone
    | StatusIs
    | Refusal
)

# --- the driver -----------------------------------------------------------------------------------


class StartSession(Message, frozen=True, kw_only=True):
    """Start and warm the session that this driver offers to jobs."""

    kind: str
    application_id: ApplicationId
    conf: dict[str, str]
    redacted_keys: tuple[str, ...] = ()
    """Further parts of keys of ``conf`` whose values are secrets."""
    python_path: tuple[str, ...]
    scratch: str
    storage: str
    cluster: str = ""
    run_id: RunId = RunId("")
    keep_idle_s: float = 0.0
    """How long executors are kept after a job."""
    wait_s: float | None = None
    """How long a job may wait for executors; None: for ever."""
    reuse: str = "application"
    """Whether the driver serves more than one job."""
    class_data: str = ""
    """Directory of the archives of classes that JVMs start from; empty: they start without."""
    ended_runs: tuple[str, ...] = ()
    """Runs of the cluster that have ended."""
    cancel_grace_s: float = 30.0
    """How long the process of a job that has exceeded its timeout may take to end."""


class Warm(Message, frozen=True, kw_only=True):
    """The session is started and free."""

    jvm_pid: int = 0
    spark: SparkApplication = SparkApplication()


class Executors(Message, frozen=True, kw_only=True):
    """The resources that the Spark cluster gives; sent after each change."""

    waits: str = ""
    """Why the running job has no executors; empty if it has some."""
    carries: int | None = None
    """How many jobs the cluster can run at once; None if unknown."""


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
    """Interrupt the attempt's function."""

    job_id: JobId
    attempt: int


class Stopping(Message, frozen=True, kw_only=True):
    """The TaskManager drains: the attempt is to save, and ends with its next checkpoint."""


class Retiring(Message, frozen=True, kw_only=True):
    """The driver cannot serve another job, for this reason."""

    reason: str


DriverMessage = (
    StartSession
    | Warm
    | Executors
    | RunAttempt
    | Entered
    | Interrupt
    | Stopping
    | AttemptEnded
    | Progress
    | CheckpointsTaken
    | CheckpointsRecorded
    | CheckpointsRefused
    | Retiring
)
