"""What a start means for an unfinished run: the same run, changed or not, or another one.

The command computes the changes once. A replacement process must not compute them again: the script
may have been edited since, and nobody asked for that edit to run.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

import typer

from understudy.api.directory import Directory
from understudy.api.views import ApplicationFacts
from understudy.cli.launch.compose import open_services
from understudy.cli.launch.joining import patiently
from understudy.cli.launch.shared_storage import lives
from understudy.cli.launch.spec import ApplicationSpec, RunsAs
from understudy.cli.launch.submitting import source_files, target_of
from understudy.clock import SystemClock
from understudy.config import Configuration, options
from understudy.config.secrets import HIDDEN
from understudy.core.recovery import differences
from understudy.errors import DataError, NotFoundError, UsageError
from understudy.ha.retrieval import serving_leader
from understudy.ha.services import HighAvailabilityServices
from understudy.jobmanager.redeployment import NO_CHANGES, Changes
from understudy.model import ApplicationRecord, JobId, LeaderRecord
from understudy.process import code
from understudy.process.reporter import printable

NO_RUN = (
    "--resume: cluster {!r} has no such unfinished run; `understudy list` shows what is "
    f"interrupted, with the command that resumes each; check {options.CLUSTER_ID.key}, "
    f"{options.STORAGE_DIR.key} and --run-id"
)
"""Said with the id of the cluster."""


@dataclass(frozen=True)
class AskedStart:
    """What a person asks of a start."""

    run_id: str | None
    application: ApplicationSpec | None
    """None: the unfinished run, as it is stored."""
    rerun: tuple[str, ...] = ()
    resume: bool = False
    """Continue the unfinished run as it is stored, whatever else the start says."""


def changes_of(configuration: Configuration, cluster_id: str | None, start: AskedStart) -> Changes:
    """Return and print the changes to an unfinished run. Raises `UsageError`.

    A start of another run is refused. Without a ``cluster_id`` there is no unfinished run.
    """
    unfinished = None
    if cluster_id is not None and not configuration.is_standalone:
        services = open_services(configuration, cluster_id)
        unfinished = asyncio.run(unfinished_run(services, start.run_id))
    if unfinished is None:
        if start.rerun:
            raise UsageError(_no_run(start.rerun[0], start.run_id))
        if start.resume:
            raise UsageError(NO_RUN.format(cluster_id))
        return NO_CHANGES
    run, over = unfinished.body.run_id, ""
    files = asyncio.run(changed_files(configuration, services, unfinished, start))
    if unfinished.body.result:  # Only its cleanup is unfinished.
        if start.rerun:
            raise UsageError(_no_run(start.rerun[0], start.run_id))
        return NO_CHANGES
    discarded = _discarded(unfinished, start.rerun)
    if files:
        over = unfinished.body.record.digest
        typer.echo(
            f"understudy: run {run} is unfinished, and this is other code "
            f"({printable(', '.join(files))}): its results are kept, what is not finished runs "
            "with the new code as soon as a JobManager of this start leads",
            err=True,
        )
    for job_id in discarded:
        entry = unfinished.entries[job_id]
        typer.echo(
            f"understudy: the result of job {entry.name!r} (attempt {entry.attempt}) is "
            "discarded, and it runs again, as soon as a JobManager of this start leads",
            err=True,
        )
    return Changes(over, files, discarded)


async def changed_files(
    configuration: Configuration,
    services: HighAvailabilityServices,
    unfinished: ApplicationFacts,
    start: AskedStart,
) -> tuple[str, ...]:
    """Return the files whose code differs from the unfinished run's.

    Raises `UsageError` if a start is not a start of that run.
    """
    asked = start.application
    if asked is None or start.resume:
        return ()
    record = await record_of(services, unfinished)
    if record is None:
        return ()
    if found := differences(record, start.run_id, target_of(asked), asked.args):
        run = f"{record.run_id} of {record.name}"
        ended = unfinished.body.result is not None
        raise UsageError(refusal(configuration, services.cluster_id, run, found, ended=ended))
    files = tuple(code.changed(record.artifacts, source_files(asked)))
    if not files:
        _refuse_as(record, asked)
    return files


def _refuse_as(record: ApplicationRecord, asked: ApplicationSpec) -> None:
    """Raise `UsageError` where ``--as`` contradicts the unfinished run, whose code is the same."""
    if asked.overruled and record.as_job is not (asked.runs_as is RunsAs.JOB):
        kept, wanted = ("job", "main") if record.as_job else ("main", "job")
        raise UsageError(
            f"--as {wanted}: run {record.run_id} is unfinished and runs as {kept}, which "
            f"a restart does not change: leave out --as, or start a new run"
        )


def refusal(
    configuration: Configuration,
    cluster_id: str,
    unfinished: str,
    found: Iterable[str],
    *,
    ended: bool = False,
) -> str:
    """Return why a start of another run is refused, and the ways out.

    ``ended``: only the cleanup of the unfinished run is left, and nothing to cancel.
    """
    run = unfinished.partition(" ")[0]
    lines = "".join(f"\n  {one}" for one in found)
    place = _place(configuration, cluster_id)
    resume = ["understudy", "run-application", "--resume", "--run-id", run, *place]
    ways = f"To continue run {run} with its own arguments and code: {shlex.join(resume)}"
    if ended:
        ways = f"Run {run} has ended, and this finishes its cleanup: {shlex.join(resume)}"
    else:
        cancel = shlex.join(["understudy", "cancel", *place, run])
        ways += f"\nTo end it, and drop what it has kept: {cancel}"
    return (
        f"run {unfinished} is unfinished in cluster {cluster_id!r}, and this start is another run:"
        f"{lines}\nnothing was started. {ways}"
    )


def _place(configuration: Configuration, cluster_id: str) -> list[str]:
    """Return the options that name the cluster and its storage, secrets hidden."""
    prefix = options.CLUSTER_ID.key.partition(".")[0]
    shown = {options.CLUSTER_ID.key: cluster_id} | configuration.redacted()
    settings = [f"{key}={text}" for key, text in shown.items() if key.startswith(prefix)]
    return [word for setting in settings for word in ("-D", setting)]


async def unfinished_run(
    services: HighAvailabilityServices, run_id: str | None
) -> ApplicationFacts | None:
    """Return the run that a leader will continue, at least by its cleanup, or None.

    Unreadable data is left to the leader, which reports it and keeps it in place.
    """
    try:
        directory = Directory(services, SystemClock())
        registry = await directory.registry()
        if registry is None or run_id in registry.tombstones or run_id in registry.ended:
            return None
        stored = await directory.stored(registry)
    except DataError:
        return None
    wanted = [facts for facts in stored if facts.body.run_id == run_id]
    return next(iter((*wanted, *stored)), None)


async def record_of(
    services: HighAvailabilityServices, unfinished: ApplicationFacts
) -> ApplicationRecord | None:
    """Return the run's stored application; None if it cannot be read."""
    try:
        return await services.applications.record(unfinished.body)
    except (DataError, NotFoundError):
        return None


def _discarded(unfinished: ApplicationFacts, names: Iterable[str]) -> dict[JobId, str]:
    """Return the results to discard: those of all jobs with the given names."""
    found: dict[JobId, str] = {}
    entries = unfinished.entries.values()
    for name in names:
        results = {
            entry.job_id: entry.result.source.digest
            for entry in entries
            if entry.name == name and entry.result
        }
        if not results:
            known = sorted({repr(entry.name) for entry in entries if entry.result})
            raise UsageError(
                f"--rerun {name}: run {unfinished.body.run_id} has no result of a job of that "
                f"name; it has those of {', '.join(known) or 'none'}"
            )
        found |= results
    return found


def _no_run(name: str, run_id: str | None) -> str:
    found = f"run {run_id} is not unfinished here" if run_id else "no run is unfinished here"
    return (
        f"--rerun {name}: {found}; a run that has ended is not run again: start a new one, with "
        "another --run-id or none"
    )


# --- the unfinished run that --resume continues, and who executes it just now ---------------------


@dataclass(frozen=True)
class StoredRun:
    """An unfinished run that ``--resume`` continues."""

    configuration: Configuration
    """The run's settings, replaced by those that a person gives now."""
    conf: dict[str, str]
    """Spark's settings."""
    ephemeral: bool = False
    """The cluster id was generated for this run."""


def stored_run(
    configuration: Configuration, cluster_id: str | None, run_id: str | None
) -> StoredRun:
    """Return the unfinished run; raises `UsageError` if there is none.

    Secrets are not stored: a person gives them again.
    """
    services, found = None, None
    if cluster_id is not None and not configuration.is_standalone:
        services = open_services(configuration, cluster_id)
        found = asyncio.run(unfinished_run(services, run_id))
    if services is None or found is None or run_id not in {None, str(found.body.run_id)}:
        raise UsageError(NO_RUN.format(cluster_id))
    record = asyncio.run(record_of(services, found))
    registry = asyncio.run(services.registry.read())
    ephemeral = registry is not None and registry.ephemeral
    if record is None:  # Of a run whose cleanup is unfinished, or damaged: its leader tells.
        return StoredRun(configuration, {}, ephemeral)
    settings = {
        key: text for key, text in record.configuration.items() if HIDDEN not in text
    } | configuration.settings
    return StoredRun(Configuration(settings), record.profile.conf, ephemeral)


def follows(configuration: Configuration, cluster_id: str, run_id: str | None) -> bool:
    """Return whether a living leader executes the run; if so, say that this start follows it."""
    leader = asyncio.run(_living_leader(configuration, cluster_id)) if run_id else None
    if leader is None:
        return False
    typer.echo(
        f"understudy: run {run_id} is running already: {leader.name} leads at {leader.rest}. This "
        "start follows the run to its end, and its processes stand by; Ctrl-C ends this start only",
        err=True,
    )
    return True


def tell_continued(run_id: str | None) -> None:
    """Say that a start continues an unfinished run."""
    typer.echo(f"understudy: run {run_id} is unfinished here: it is continued", err=True)


async def _living_leader(configuration: Configuration, cluster_id: str) -> LeaderRecord | None:
    services = open_services(configuration, cluster_id)
    try:
        leader = await patiently(configuration, lambda: serving_leader(services.register))
    except DataError:
        return None
    if leader and await lives(configuration, services, leader):
        return leader
    return None
