"""What a new leader does first: which run it is here for, and what became of each attempt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from understudy.model import (
    ApplicationId,
    ApplicationStatus,
    Incarnation,
    JobEntry,
    JobId,
    RegistryBody,
    RunId,
    Tombstone,
)

# --- which run ------------------------------------------------------------------------------------


class Continue(Struct, frozen=True):
    """An unfinished run is here: execute its application again."""

    application_id: ApplicationId
    run_id: RunId


class Answer(Struct, frozen=True):
    """The run has ended: give its result, execute nothing."""

    tombstone: Tombstone


class Bygone(Struct, frozen=True):
    """The run has ended, and its result is kept no longer: tell how, execute nothing."""

    run_id: RunId
    status: ApplicationStatus


class Submit(Struct, frozen=True):
    """Nothing of this run is here: begin it."""

    run_id: RunId


Bootstrap = Continue | Answer | Bygone | Submit


def bootstrap(
    registry: RegistryBody,
    wanted: RunId | None,
    bound: RunId | None,
    known_at_start: frozenset[RunId],
    minted: RunId,
) -> Bootstrap:
    """Decide what the application-mode leader does with the run it was started for.

    ``wanted`` is the run id given by a person. ``bound`` is the run that this process has followed
    as a standby. ``known_at_start`` are the runs that had ended when the process started: any
    other one ended while it stood by, so its own work is done (Flink's standby runs a normally
    finished application again). A new run over an unfinished one continues that one. Whether a
    result is still kept makes no difference: that hangs on a wall clock, which may jump.
    """
    unfinished = {link.run_id: key for key, link in registry.applications.items()}
    for run in (wanted, bound):
        if run and run in unfinished:
            return Continue(unfinished[run], run)
        if run and run in registry.tombstones:
            return Answer(registry.tombstones[run])
        if run and run in registry.ended:
            return Bygone(run, registry.ended[run])
    if unfinished:
        run, application_id = next(iter(unfinished.items()))
        return Continue(application_id, run)
    ended_meanwhile = [
        stone for run, stone in registry.tombstones.items() if run not in known_at_start
    ]
    if ended_meanwhile and not wanted:
        return Answer(max(ended_meanwhile, key=lambda stone: stone.ended_at))
    bygone = [run for run in registry.ended if run not in known_at_start]
    if bygone and not wanted:
        return Bygone(bygone[-1], registry.ended[bygone[-1]])
    return Submit(wanted or minted)


# --- which code -----------------------------------------------------------------------------------


def needs_plan(entry: JobEntry, deployment: int) -> bool:
    """Say whether a job that ``main`` reaches must bring its plan again.

    Its plan is of the code before, or has gone with its result.
    """
    return entry.result is None and entry.deployment != deployment


def is_outdated(entry: JobEntry, deployment: int) -> bool:
    """Say whether an attempt that may live runs the code of an earlier deployment.

    The attempt and the plan are told apart: ``main`` may have brought the new plan while the old
    attempt was still to be stopped, and then the leader was lost.
    """
    if entry.intent is None or entry.result or entry.displaced:
        return False
    return entry.intent.deployment != deployment


# --- which attempts -------------------------------------------------------------------------------


def lineage(entry: JobEntry) -> str:
    """Name the attempts that go on from each other: no other ones leave traces under it."""
    return f"{entry.job_id}-{entry.begun_after}" if entry.begun_after else entry.job_id


def chosen_directory(chosen: str, entry: JobEntry) -> str:
    """Return where a person wants a job's checkpoints; empty where nobody has said it.

    They stay where the first attempt has put them, whatever a later leader is configured with.
    """
    if entry.intent:
        return entry.intent.checkpoints
    return f"{chosen.rstrip('/')}/{lineage(entry)}" if chosen else ""


class Inventory(Struct, frozen=True):
    """What one TaskManager says about one attempt when it registers."""

    job_id: JobId
    attempt: int
    running: bool


class Verdict(Struct, frozen=True):
    """What a registration means for the attempts that this leader knows of."""

    running: tuple[JobId, ...]
    """Runs on: to be adopted when ``main`` reaches it."""
    ended: tuple[JobId, ...]
    """Ended while nobody led; its outcome is staged."""
    lost: tuple[JobId, ...]
    """The TaskManager does not have it, so it never started or is dead."""
    foreign: tuple[Inventory, ...]
    """Runs there, but no intent names it: to be stopped."""


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
