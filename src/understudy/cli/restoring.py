"""--from-savepoint: what an application is started from, checked where a person types it."""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass
from typing import Annotated

import msgspec
import typer

from understudy.cli.compose import open_services
from understudy.cli.savepoint import checked_address
from understudy.cli.spec import ApplicationSpec
from understudy.config import Configuration
from understudy.core import checkpoints
from understudy.errors import CheckpointError, ConfigurationError, DataError, UsageError
from understudy.ha import savepoints
from understudy.model import CheckpointKind, Checkpoints, StartFrom
from understudy.runtime.checkpoint_cleanup import retained_at


class ClaimMode(enum.Enum):
    """Whose a savepoint is once a job has begun with it, in Flink's words."""

    CLAIM = "CLAIM"
    NO_CLAIM = "NO_CLAIM"


FromSavepoint = Annotated[
    list[str] | None,
    typer.Option(
        "--from-savepoint",
        "--fromSavepoint",
        "-s",
        metavar="PATH",
        help="Let the job of that savepoint's name begin with it; may be repeated.",
        show_default=False,
    ),
]
AllowNonRestored = Annotated[
    bool,
    typer.Option(
        "--allow-non-restored-state",
        "--allowNonRestoredState",
        help="The application need not submit a job for each savepoint.",
    ),
]
Claim = Annotated[
    ClaimMode,
    typer.Option(
        "--claim-mode",
        "--claimMode",
        help="CLAIM: the savepoint is removed once its job has taken it over.",
    ),
]


@dataclass(frozen=True)
class Restore:
    """What was typed."""

    paths: tuple[str, ...]
    allow_non_restored: bool
    claim: ClaimMode


def restored_spec(
    spec: ApplicationSpec, restore: Restore, configuration: Configuration, cluster_id: str | None
) -> ApplicationSpec:
    """Return the application with what it is started from; see `start_from`."""
    savepoints_ = start_from(restore, configuration, cluster_id)
    return msgspec.structs.replace(spec, savepoints=savepoints_)


def start_from(
    restore: Restore, configuration: Configuration, cluster_id: str | None
) -> tuple[StartFrom, ...]:
    """Return the savepoints, each looked at from its first byte to its last.

    Raises `UsageError` for one that cannot be used. Nothing where an unfinished run of the cluster
    is continued: that goes on from where it is, and remembers what it was started from.
    """
    if not restore.paths:
        if restore.allow_non_restored or restore.claim is ClaimMode.CLAIM:
            raise UsageError(
                "--allow-non-restored-state and --claim-mode are about --from-savepoint: give one"
            )
        return ()
    if cluster_id and (run := _unfinished(configuration, cluster_id)):
        typer.echo(
            f"understudy: run {run} is unfinished here and goes on from where it is: "
            "--from-savepoint is for new runs",
            err=True,
        )
        return ()
    found = [_checked(path, restore) for path in restore.paths]
    names = [one.job_name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"several savepoints are of job {name!r}: give one of them")
    return tuple(found)


def _checked(path: str, restore: Restore) -> StartFrom:
    address = checked_address(path)
    try:
        found = savepoints.read(address)
        savepoints.check(found)
    except (CheckpointError, ConfigurationError) as error:
        if kept := retained_at(address):
            raise UsageError(f"--from-savepoint: {_instead(address, kept)}") from error
        raise UsageError(f"--from-savepoint: {error}") from error
    return StartFrom(
        path=found.place.address,
        digest=found.digest,
        job_name=found.manifest.job_name,
        claim=restore.claim is ClaimMode.CLAIM,
        may_be_left=restore.allow_non_restored,
    )


def _instead(address: str, kept: Checkpoints) -> str:
    """Return what to do with retained checkpoints, of which each is used by its own path."""
    ways = []
    for one in checkpoints.latest(kept):
        match one.kind:
            case CheckpointKind.BATCH:
                ways.append(
                    f'the query {one.name!r} goes on with .option("checkpointLocation", '
                    f'"{one.location}")'
                )
            case CheckpointKind.TABLE:
                ways.append(f"the table {one.name!r} is read from {one.location}")
            case CheckpointKind.STATE:
                ways.append(f"the state lies in {one.location}")
    return "; ".join(
        (
            f"{address}: is a retained checkpoint, no savepoint, and no job can be started from it",
            *ways,
            "to move a job, give the path that `understudy stop --savepoint` tells",
        )
    )


def _unfinished(configuration: Configuration, cluster_id: str) -> str:
    """Return the run that will be continued; empty where there is none, or nobody can tell."""
    if configuration.is_standalone:
        return ""
    try:
        registry = asyncio.run(open_services(configuration, cluster_id).registry.read())
    except (DataError, OSError, TimeoutError):
        return ""
    links = registry.applications.values() if registry else ()
    return next((str(link.run_id) for link in links), "")
