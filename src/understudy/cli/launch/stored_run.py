"""An unfinished run as it is stored, and who executes it just now."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import typer

from understudy.cli.launch.compose import open_services
from understudy.cli.launch.joining import patiently
from understudy.cli.launch.redeploying import NO_RUN, record_of, unfinished_run
from understudy.cli.launch.shared_storage import lives
from understudy.config import Configuration
from understudy.config.secrets import HIDDEN
from understudy.errors import DataError, UsageError
from understudy.ha.retrieval import serving_leader
from understudy.model import LeaderRecord


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
