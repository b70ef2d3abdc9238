"""The life cycle of one application: when ``main`` runs, and when and how the application ends.

``step(state, event, …) -> (state, commands)``. An application ends once ``main`` has ended *and*
every job has a result. Its status depends on ``main``, on jobs that nobody waited for, on
cancellation, and on ``execution.terminate-application-on-any-job-terminated-exceptionally``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from understudy.core import restart
from understudy.core.backoff import BackoffOver
from understudy.core.restart import Again, Strategy
from understudy.model import ApplicationStatus, Failure, JobId, JobStatus, Restarts


class Main(enum.Enum):
    """The state of ``main``'s execution."""

    IDLE = enum.auto()
    RUNNING = enum.auto()
    STOPPING = enum.auto()
    BACKING_OFF = enum.auto()
    ENDED = enum.auto()


class JobView(Struct, frozen=True):
    """A job as the application sees it."""

    reached: bool
    status: JobStatus | None = None
    """The final status; None before the job has ended."""
    awaited: bool = False
    """``main`` has received the job's result or exception."""
    failure: Failure | None = None
    dropped: bool = False
    """Cancelled because ``main`` or the application ended, not by a person."""


class ApplicationState(Struct, frozen=True):
    """The complete state of one application."""

    main: Main = Main.IDLE
    jobs: Mapping[JobId, JobView] = field(default_factory=dict)
    restarts: Restarts = Restarts()
    cancelled: bool = False
    failure: Failure | None = None
    ended: ApplicationStatus | None = None


# --- events ---------------------------------------------------------------------------------------


class Execute(Struct, frozen=True):
    """The application may begin: it is new, or an earlier leader left it unfinished."""


class JobReached(Struct, frozen=True):
    """``main`` called execute for this job."""

    job_id: JobId


class JobEnded(Struct, frozen=True):
    """The job's result is durable."""

    job_id: JobId
    status: JobStatus
    failure: Failure | None


class ResultDelivered(Struct, frozen=True):
    """``main`` received the job's result or its exception."""

    job_id: JobId


class MainReturned(Struct, frozen=True):
    """``main`` returned, or called ``sys.exit(0)``."""


class MainRaised(Struct, frozen=True):
    """``main`` raised, or exited with another code."""

    failure: Failure
    cancelled: bool = False
    """``main`` did not catch that one of its jobs was cancelled, which is not a failure."""


class MainLost(Struct, frozen=True):
    """The process of ``main`` died without reporting its end, and is reaped."""

    failure: Failure
    ran_s: float


class Broken(Struct, frozen=True):
    """The application cannot continue: no driver starts with its settings."""

    failure: Failure


class CancelRequested(Struct, frozen=True):
    """A person requested that the application end as CANCELED."""


Event = (
    Execute
    | JobReached
    | JobEnded
    | ResultDelivered
    | MainReturned
    | MainRaised
    | MainLost
    | Broken
    | BackoffOver
    | CancelRequested
)


# --- commands -------------------------------------------------------------------------------------


class StartMain(Struct, frozen=True):
    """Execute ``main`` from the top; no job counts as reached."""


class PauseMain(Struct, frozen=True):
    """Wait, then answer ``BackoffOver``."""

    delay_s: float


class StopMain(Struct, frozen=True):
    """Stop the process of ``main``, and answer ``MainLost`` when it is reaped."""


class CancelJobs(Struct, frozen=True):
    """Cancel these jobs."""

    jobs: tuple[JobId, ...]
    reason: str


class Conclude(Struct, frozen=True):
    """The application has ended with this status: write its result."""

    status: ApplicationStatus
    failure: Failure | None


Command = StartMain | PauseMain | StopMain | CancelJobs | Conclude

Step = tuple[ApplicationState, list[Command]]


_FAILED = "the application failed"
_JOB_CANCELLED = "a job was cancelled"
_JOB_FAILED = Failure(type="JobFailed", message="a job failed")


def status_of(state: ApplicationState) -> ApplicationStatus:
    """Return the status that users see."""
    if state.ended:
        return state.ended
    if state.cancelled:
        return ApplicationStatus.CANCELING
    if state.failure:
        return ApplicationStatus.FAILING
    return ApplicationStatus.CREATED if state.main is Main.IDLE else ApplicationStatus.RUNNING


def step(
    state: ApplicationState, event: Event, strategy: Strategy, policy: bool | None, chance: float
) -> Step:
    """Apply one event; ``policy`` is the terminate-application option, None if unset."""
    if state.ended:
        return state, []
    commands: list[Command] = []
    match event:
        case Execute() if state.main is Main.IDLE:
            state, commands = _execute(state, policy)
        case JobReached():
            state, commands = _reached(state, event.job_id)
        case JobEnded():
            state, commands = _job_ended(state, event, policy)
        case ResultDelivered() if event.job_id in state.jobs:
            view = state.jobs[event.job_id]
            state = _with_job(state, event.job_id, replace(view, awaited=True))
        case MainReturned():
            state, commands = _main_returned(state, policy)
        case MainRaised() if state.main is Main.STOPPING:
            state = replace(state, main=Main.ENDED)  # It ended as requested.
        case Broken() if not state.cancelled:
            state, commands = _fail(state, event.failure)
        case MainRaised():
            state = replace(state, main=Main.ENDED)
            if event.cancelled:
                state, commands = _abandon(replace(state, cancelled=True), _JOB_CANCELLED)
            else:
                state, commands = _fail(state, event.failure)
        case MainLost():
            state, commands = _main_lost(state, event, strategy, chance)
        case BackoffOver() if state.main is Main.BACKING_OFF:
            state, commands = _run(state)
        case CancelRequested() if not state.cancelled:
            state, commands = _abandon(replace(state, cancelled=True), "cancelled")
        case _:
            return state, []
    return _concluded(state, commands, policy)


def _with_job(state: ApplicationState, job_id: JobId, view: JobView) -> ApplicationState:
    return replace(state, jobs={**state.jobs, job_id: view})


def _run(state: ApplicationState) -> Step:
    # This execution has not received the results that an earlier one did.
    jobs = {
        job_id: replace(view, reached=False, awaited=False) for job_id, view in state.jobs.items()
    }
    return replace(state, main=Main.RUNNING, jobs=jobs), [StartMain()]


def _execute(state: ApplicationState, policy: bool | None) -> Step:
    if state.cancelled:
        return replace(state, main=Main.ENDED), []
    if policy:  # Jobs may have ended under an earlier leader that was lost before applying this.
        ended = [view for view in state.jobs.values() if not view.dropped]
        for view in ended:
            if view.status is JobStatus.FAILED:
                return _fail(state, view.failure or _JOB_FAILED)
        if any(view.status is JobStatus.CANCELED for view in ended):
            return _abandon(replace(state, cancelled=True), _JOB_CANCELLED)
    return _run(state)


def _reached(state: ApplicationState, job_id: JobId) -> Step:
    view = state.jobs.get(job_id, JobView(reached=True))
    state = _with_job(state, job_id, replace(view, reached=True))
    if view.status is None and (state.cancelled or state.failure):
        # ``main`` submitted the job before it was stopped.
        return state, [CancelJobs((job_id,), _FAILED if state.failure else "cancelled")]
    return state, []


def _job_ended(state: ApplicationState, event: JobEnded, policy: bool | None) -> Step:
    view = state.jobs.get(event.job_id, JobView(reached=False))
    view = replace(view, status=event.status, failure=event.failure)
    state = _with_job(state, event.job_id, view)
    if not policy or view.dropped or state.failure or state.cancelled:
        return state, []
    if event.status is JobStatus.FAILED:
        return _fail(state, event.failure or _JOB_FAILED)
    if event.status is JobStatus.CANCELED:
        return _abandon(replace(state, cancelled=True), _JOB_CANCELLED)
    return state, []


def _main_returned(state: ApplicationState, policy: bool | None) -> Step:
    state = replace(state, main=Main.ENDED)
    unreached = _living(state, reached=False)
    for job_id in unreached:
        state = _with_job(state, job_id, replace(state.jobs[job_id], dropped=True))
    commands: list[Command] = []
    if unreached:
        commands.append(CancelJobs(unreached, "main ended without reaching it again"))
    if policy is False and (rest := _living(state, reached=True)):
        commands.append(CancelJobs(rest, "main has ended"))
    return state, commands


def _main_lost(state: ApplicationState, event: MainLost, strategy: Strategy, chance: float) -> Step:
    if state.main is Main.STOPPING or state.cancelled or state.failure:
        return replace(state, main=Main.ENDED), []
    decision = restart.after_loss(strategy, state.restarts, event.ran_s, chance)
    if isinstance(decision, Again):
        state = replace(state, main=Main.BACKING_OFF, restarts=decision.restarts)
        return state, [PauseMain(decision.delay_s)]
    message = f"{event.failure.message}; not executed again: {decision.reason}"
    failure = Failure(type=event.failure.type, message=message, time=event.failure.time)
    return _fail(replace(state, main=Main.ENDED), failure)


def _fail(state: ApplicationState, failure: Failure) -> Step:
    return _abandon(replace(state, failure=state.failure or failure), _FAILED)


def _abandon(state: ApplicationState, reason: str) -> Step:
    """Stop ``main`` and every job."""
    commands: list[Command] = []
    if state.main is Main.RUNNING:
        state = replace(state, main=Main.STOPPING)
        commands.append(StopMain())
    elif state.main is not Main.STOPPING:
        state = replace(state, main=Main.ENDED)
    living = tuple(job_id for job_id, view in state.jobs.items() if view.status is None)
    if living:
        commands.append(CancelJobs(living, reason))
    return state, commands


def _living(state: ApplicationState, *, reached: bool) -> tuple[JobId, ...]:
    return tuple(
        job_id
        for job_id, view in state.jobs.items()
        if view.status is None and view.reached is reached
    )


def _concluded(state: ApplicationState, commands: list[Command], policy: bool | None) -> Step:
    if state.main is not Main.ENDED or any(view.status is None for view in state.jobs.values()):
        return state, commands
    failure = state.failure
    if failure is None and not state.cancelled and policy is None:
        failure = _unawaited(state)
    if state.failure is None and state.cancelled:
        status = ApplicationStatus.CANCELED
    else:
        status = ApplicationStatus.FAILED if failure else ApplicationStatus.FINISHED
    return replace(state, ended=status), [*commands, Conclude(status, failure)]


def _unawaited(state: ApplicationState) -> Failure | None:
    """Return the failure of a job that ``main`` submitted but whose result it never requested."""
    for view in state.jobs.values():
        if view.status is JobStatus.FAILED and view.reached and not view.awaited:
            return view.failure or _JOB_FAILED
    return None
