"""The run that a start asks for, and the savepoints it begins with, checked by the command."""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass
from typing import Annotated

import msgspec
import typer

from understudy.cli.commands.savepoint import checked_address
from understudy.cli.launch.compose import open_services
from understudy.cli.launch.spec import ApplicationSpec
from understudy.config import Configuration, options
from understudy.errors import CheckpointError, ConfigurationError, DataError, UsageError
from understudy.ha import savepoints
from understudy.jobmanager import retained
from understudy.model import StartFrom
from understudy.process.reporter import printable


class ClaimMode(enum.Enum):
    """Who owns a savepoint after a job has started from it (Flink's terms)."""

    CLAIM = "CLAIM"
    NO_CLAIM = "NO_CLAIM"


Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Continue the unfinished run with its own run id, arguments and code.",
    ),
]


@dataclass(frozen=True)
class Restore:
    """The restore options of the command line."""

    paths: Annotated[
        tuple[str, ...],
        typer.Option(
            "--from-savepoint",
            "--fromSavepoint",
            "-s",
            metavar="PATH",
            help="Let the job of that savepoint's name begin with it; may be repeated.",
            show_default=False,
        ),
    ] = ()
    allow_non_restored: Annotated[
        bool,
        typer.Option(
            "--allow-non-restored-state",
            "--allowNonRestoredState",
            help="The application need not submit a job for each savepoint.",
        ),
    ] = False
    claim: Annotated[
        ClaimMode | None,
        typer.Option(
            "--claim-mode",
            "--claimMode",
            help="CLAIM: the savepoint is removed once its job has taken it over.",
            show_default="NO_CLAIM",
        ),
    ] = None

    def or_configured(self, configuration: Configuration) -> Restore:
        """Return the options, with the configuration's values where none were typed."""
        path = configuration.find(options.RECOVERY_PATH)
        return Restore(
            self.paths or ((path,) if path else ()),
            self.allow_non_restored or configuration.get(options.RECOVERY_IGNORE_UNCLAIMED),
            self.claim or ClaimMode(configuration.get(options.RECOVERY_CLAIM_MODE)),
        )


@dataclass(frozen=True)
class NewRun:
    """The run that a command asks for, and what it begins with."""

    run_id: Annotated[
        str | None, typer.Option("--run-id", help="Names the run; the same id never runs twice.")
    ] = None
    restore: Restore = Restore()


@dataclass(frozen=True)
class AnyRun(NewRun):
    """The run that a command asks for: a new one, or an unfinished one, which it may change."""

    rerun: Annotated[
        tuple[str, ...],
        typer.Option(
            "--rerun",
            metavar="NAME",
            help="Discard this job's result in the unfinished run: it runs again; may be repeated.",
        ),
    ] = ()
    resume: Resume = False


def restored_spec(
    spec: ApplicationSpec, restore: Restore, configuration: Configuration, cluster_id: str | None
) -> ApplicationSpec:
    """Return the application with its savepoints; see `start_from`."""
    savepoints_ = start_from(restore, configuration, cluster_id)
    return msgspec.structs.replace(spec, savepoints=savepoints_)


def start_from(
    restore: Restore, configuration: Configuration, cluster_id: str | None
) -> tuple[StartFrom, ...]:
    """Return the savepoints, each verified byte by byte.

    Raises `UsageError` for an unusable savepoint. Returns none if the cluster continues an
    unfinished run: that run keeps its own progress and the savepoints it started from.
    """
    typed, restore = restore, restore.or_configured(configuration)
    if not restore.paths:
        if typed.allow_non_restored or typed.claim is ClaimMode.CLAIM:
            raise UsageError(
                "--allow-non-restored-state and --claim-mode are about --from-savepoint: give one"
            )
        return ()
    if cluster_id and (run := _unfinished(configuration, cluster_id)):
        typer.echo(
            f"understudy: run {run} is unfinished here and continues from where it is: "
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
        found = _found(address)
    except (CheckpointError, ConfigurationError) as error:
        raise UsageError(f"--from-savepoint: {error}") from error
    return StartFrom(
        path=found.place.address,
        digest=found.digest,
        job_name=found.manifest.job_name,
        claim=restore.claim is ClaimMode.CLAIM,
        may_be_left=restore.allow_non_restored,
    )


def _found(address: str) -> savepoints.FoundSavepoint:
    """Return a complete savepoint; a retained checkpoint is converted into one."""
    if kept := retained.find(address):
        made = retained.savepoint_of(kept)
        typer.echo(
            f"understudy: {printable(made.place.address)} is a savepoint of the retained "
            f"checkpoint-{kept.number}.json",
            err=True,
        )
        return made
    found = savepoints.read(address)
    savepoints.check(found)
    return found


def _unfinished(configuration: Configuration, cluster_id: str) -> str:
    """Return the unfinished run; empty if there is none or it cannot be read."""
    if configuration.is_standalone:
        return ""
    try:
        registry = asyncio.run(open_services(configuration, cluster_id).registry.read())
    except (DataError, OSError, TimeoutError):
        return ""
    links = registry.applications.values() if registry else ()
    return next((str(link.run_id) for link in links), "")
