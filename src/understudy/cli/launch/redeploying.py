"""Changes that a start makes to an unfinished run, computed once by the command.

A replacement process must not compute them again: the script may have been edited since, and nobody
asked for that edit to run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import typer

from understudy.api.directory import Directory
from understudy.api.views import ApplicationFacts
from understudy.cli.launch.compose import open_services
from understudy.cli.launch.spec import ApplicationSpec, RunsAs
from understudy.cli.launch.submitting import source_files, target_of
from understudy.clock import SystemClock
from understudy.config import Configuration
from understudy.errors import DataError, NotFoundError, UsageError
from understudy.ha.services import HighAvailabilityServices
from understudy.jobmanager.redeployment import NO_CHANGES, Changes
from understudy.model import JobId
from understudy.process import code
from understudy.process.reporter import printable


def changes_of(
    configuration: Configuration,
    cluster_id: str | None,
    run_id: str | None,
    spec: ApplicationSpec,
    rerun: tuple[str, ...] = (),
) -> Changes:
    """Return and print the changes to an unfinished run. Raises `UsageError`.

    Without a ``cluster_id`` there is no unfinished run.
    """
    if cluster_id is None or configuration.is_standalone:
        if rerun:
            raise UsageError(_no_run(rerun[0], run_id))
        return NO_CHANGES
    services = open_services(configuration, cluster_id)
    unfinished = asyncio.run(_unfinished(services, run_id))
    if unfinished is None:
        if rerun:
            raise UsageError(_no_run(rerun[0], run_id))
        return NO_CHANGES
    discarded = _discarded(unfinished, rerun)
    over, files = asyncio.run(_other_code(services, unfinished, spec))
    run = unfinished.body.run_id
    if over:
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


async def _unfinished(
    services: HighAvailabilityServices, run_id: str | None
) -> ApplicationFacts | None:
    """Return the unfinished run that a leader will continue, or None.

    Unreadable data is left to the leader, which reports it and keeps it in place.
    """
    try:
        directory = Directory(services, SystemClock())
        registry = await directory.registry()
        if registry is None or run_id in registry.tombstones:
            return None
        stored = await directory.stored(registry)
    except DataError:
        return None
    going_on = [facts for facts in stored if facts.body.result is None]
    wanted = [facts for facts in going_on if facts.body.run_id == run_id]
    return next(iter((*wanted, *going_on)), None)


async def _other_code(
    services: HighAvailabilityServices, unfinished: ApplicationFacts, spec: ApplicationSpec
) -> tuple[str, tuple[str, ...]]:
    """Return the record's digest and the changed files if the code differs, else empty."""
    try:
        record = await services.applications.record(unfinished.body)
    except (DataError, NotFoundError):
        return "", ()
    changed = code.changed(record.artifacts, source_files(spec))
    if record.target != target_of(spec):
        changed.append(f"{target_of(spec)} instead of {record.target}")
    if not changed and spec.overruled and record.as_job is not (spec.runs_as is RunsAs.JOB):
        kept, wanted = ("job", "main") if record.as_job else ("main", "job")
        raise UsageError(
            f"--as {wanted}: run {unfinished.body.run_id} is unfinished and runs as {kept}, which "
            f"a restart does not change: leave out --as, or start a new run"
        )
    return (unfinished.body.record.digest, tuple(changed)) if changed else ("", ())


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
