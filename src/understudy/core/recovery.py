"""A new leader's first decisions: which run to continue, and the state of each attempt."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from understudy.model import (
    ApplicationId,
    ApplicationRecord,
    ApplicationStatus,
    Incarnation,
    JobEntry,
    JobId,
    RegistryBody,
    RunId,
    Tombstone,
)

ENDED_LATELY_MAX = 100
"""Ended runs whose Spark applications are looked for: what dead drivers leave is found soon."""

# --- which run ------------------------------------------------------------------------------------


class Continue(Struct, frozen=True):
    """An unfinished run exists: execute its application again."""

    application_id: ApplicationId
    run_id: RunId


class AnswerRun(Struct, frozen=True):
    """The run has ended: return its result, execute nothing."""

    tombstone: Tombstone


class Bygone(Struct, frozen=True):
    """The run has ended and its result is gone: return its status, execute nothing."""

    run_id: RunId
    status: ApplicationStatus


class SubmitRun(Struct, frozen=True):
    """The run is new: submit it."""

    run_id: RunId


Bootstrap = Continue | AnswerRun | Bygone | SubmitRun


def bootstrap(
    registry: RegistryBody,
    wanted: RunId | None,
    bound: RunId | None,
    known_at_start: frozenset[RunId],
    minted: RunId,
) -> Bootstrap:
    """Decide what the application-mode leader does with the run that it was started for.

    ``wanted`` is the run id given by a person. ``bound`` is the run that this process has followed
    as a standby. ``known_at_start`` are the runs that had ended when the process started: any
    other run ended while the process stood by, so its work is done (Flink's standby runs a normally
    finished application again). A new run over an unfinished one continues that one. Whether a
    result is still retained makes no difference, as that depends on a wall clock, which may jump.
    """
    unfinished = {link.run_id: key for key, link in registry.applications.items()}
    for run in (wanted, bound):
        if run and run in unfinished:
            return Continue(unfinished[run], run)
        if run and run in registry.tombstones:
            return AnswerRun(registry.tombstones[run])
        if run and run in registry.ended:
            return Bygone(run, registry.ended[run])
    if unfinished:
        run, application_id = next(iter(unfinished.items()))
        return Continue(application_id, run)
    ended_meanwhile = [
        stone for run, stone in registry.tombstones.items() if run not in known_at_start
    ]
    if ended_meanwhile and not wanted:
        return AnswerRun(max(ended_meanwhile, key=lambda stone: stone.ended_at))
    bygone = [run for run in registry.ended if run not in known_at_start]
    if bygone and not wanted:
        return Bygone(bygone[-1], registry.ended[bygone[-1]])
    return SubmitRun(wanted or minted)


def differences(
    record: ApplicationRecord, run_id: str | None, target: str, args: Iterable[str]
) -> tuple[str, ...]:
    """Return how a start differs from an unfinished run; empty if it continues that run.

    Changed code of the same entry point does not count: it is deployed over the run.
    """
    found = []
    if run_id is not None and run_id != record.run_id:
        found.append(f"the run id is {run_id}, not {record.run_id}")
    if target != record.target:
        found.append(f"it executes {target}, not {record.target}")
    if (given := tuple(args)) != record.args:
        found.append(f"its arguments are {_words(given)}, not {_words(record.args)}")
    return tuple(found)


def _words(args: tuple[str, ...]) -> str:
    return shlex.join(args) if args else "none"


def bound(registry: RegistryBody, before: RunId | None) -> RunId | None:
    """Return the run that a standby follows: the same as before while that one is unfinished.

    Else it is the run that was submitted first of those that are unfinished.
    """
    unfinished = [link.run_id for link in registry.applications.values()]
    if before in unfinished or not unfinished:
        return before
    return unfinished[0]


def ended_lately(registry: RegistryBody) -> tuple[RunId, ...]:
    """Return the last runs that have ended, oldest first."""
    stones = sorted(registry.tombstones.values(), key=lambda stone: stone.ended_at)
    return (*registry.ended, *(stone.run_id for stone in stones))[-ENDED_LATELY_MAX:]


def rank(priority: int, created_at: float, entries: Iterable[JobEntry]) -> tuple[float, ...]:
    """Return in which order applications execute ``main``: a lower rank comes first.

    First by priority; then those with an attempt that may be running, whose result is then awaited
    soon; then in the order of their submission.
    """
    runs = any(entry.intent and not entry.result for entry in entries)
    return (-priority, not runs, created_at)


# --- which code -----------------------------------------------------------------------------------


def needs_plan(entry: JobEntry, deployment: int) -> bool:
    """Return whether ``main`` must submit the plan of a reached job again.

    That is so if the plan is of an earlier deployment, or was removed with the result.
    """
    return entry.result is None and entry.deployment != deployment


def is_outdated(entry: JobEntry, deployment: int) -> bool:
    """Return whether an attempt that may be alive runs the code of an earlier deployment.

    The attempt counts, not the plan: ``main`` may have submitted the new plan before the old
    attempt was stopped, and then the leader was lost.
    """
    if entry.intent is None or entry.result or entry.displaced:
        return False
    return entry.intent.deployment != deployment


# --- which attempts -------------------------------------------------------------------------------


def lineage(entry: JobEntry) -> str:
    """Return the name of the lineage: only attempts that resume from each other share it."""
    return f"{entry.job_id}-{entry.begun_after}" if entry.begun_after else entry.job_id


def chosen_directory(chosen: str, entry: JobEntry) -> str:
    """Return the configured directory of a job's checkpoints; empty if none is configured.

    The directory of the first attempt stays in use, whatever a later leader's configuration says.
    """
    if entry.intent:
        return entry.intent.checkpoints
    return f"{chosen.rstrip('/')}/{lineage(entry)}" if chosen else ""


class Inventory(Struct, frozen=True):
    """What a registering TaskManager reports about one attempt."""

    job_id: JobId
    attempt: int
    running: bool


class Verdict(Struct, frozen=True):
    """What a registration means for the attempts that this leader knows."""

    running: tuple[JobId, ...]
    """Attempts that run: adopted when ``main`` reaches their jobs."""
    ended: tuple[JobId, ...]
    """Attempts that ended while nobody led; their outcomes are staged."""
    lost: tuple[JobId, ...]
    """Attempts that the TaskManager does not have: they never started or are dead."""
    foreign: tuple[Inventory, ...]
    """Attempts that run there although no intent names them: the leader stops them."""


def judge(
    taskmanager: Incarnation, reported: Iterable[Inventory], entries: Mapping[JobId, JobEntry]
) -> Verdict:
    """Compare what a TaskManager reports with the intents."""
    expected = {
        job_id: entry.intent.attempt
        for job_id, entry in entries.items()
        if entry.intent and not entry.result and entry.intent.taskmanager == taskmanager
    }
    running: list[JobId] = []
    ended: list[JobId] = []
    foreign: list[Inventory] = []
    for item in reported:
        if expected.get(item.job_id) == item.attempt:
            (running if item.running else ended).append(item.job_id)
        elif item.running:
            foreign.append(item)
    seen = {*running, *ended}
    lost = tuple(job_id for job_id in expected if job_id not in seen)
    return Verdict(tuple(running), tuple(ended), lost, tuple(foreign))


# --- what has become of the running jobs ----------------------------------------------------------


class Takeover(Struct, frozen=True):
    """The jobs that ran when the old leader was lost, and what has happened to them so far."""

    lost_at: float
    open: frozenset[JobId]
    names: Mapping[JobId, str]
    adopted: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    """Jobs that had already ended and do not run again."""
    displaced: tuple[str, ...] = ()


class TakeoverReport(Struct, frozen=True):
    """The report of a completed takeover."""

    seconds: float
    takeover: Takeover


def settled(takeover: Takeover, job_id: JobId, how: str) -> Takeover:
    """Record that a job was ``adopted``, ``restarted``, ``skipped`` or ``displaced``."""
    if job_id not in takeover.open:
        return takeover
    names = (*getattr(takeover, how), takeover.names[job_id])
    takeover = replace(takeover, open=takeover.open - {job_id})
    return replace(takeover, **{how: names})


def report(takeover: Takeover, now: float) -> TakeoverReport | None:
    """Return the report once no job is open, else None."""
    return None if takeover.open else TakeoverReport(max(0.0, now - takeover.lost_at), takeover)
