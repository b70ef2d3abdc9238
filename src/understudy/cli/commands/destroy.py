"""The command that removes a cluster's data: understudy destroy."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from understudy.cli.commands.ask import print_json
from understudy.cli.commands.common import (
    DEFAULT_CLUSTER_ID,
    ConfigDir,
    Json,
    Overrides,
    cluster_id_of,
    configured,
)
from understudy.cli.commands.kubernetes import destroys_clusters
from understudy.cli.launch import past_runs
from understudy.cli.launch.compose import every_locks_directory, open_services
from understudy.cli.launch.standalone import remove_leftovers
from understudy.clock import SystemClock
from understudy.config import Configuration, options
from understudy.core.lease import Timing
from understudy.errors import UnderstudyError, UsageError
from understudy.ha import layout
from understudy.jobmanager.destruction import Destruction, Holdings, look
from understudy.process.liveness_lock import LivenessLocks
from understudy.process.printed import is_terminal

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("destroy")(destroy)


@destroys_clusters
def destroy(
    yes: Yes = False,
    overrides: Overrides = None,
    config_dir: ConfigDir = None,
    as_json: Json = False,
) -> None:
    """Remove all data of a cluster: register, storage, results, locks, code.

    Refused while the cluster has a leader or a live process. Choose the cluster with
    -D high-availability.cluster-id=ID.
    """
    configuration = configured(config_dir, overrides)
    cluster_id = cluster_id_of(configuration) or DEFAULT_CLUSTER_ID
    layout.cluster_directory(cluster_id)
    if configuration.is_standalone:
        # Nothing to confirm: the data is unusable, and the next start would remove it.
        removed = remove_leftovers(configuration, cluster_id)
    else:
        removed = asyncio.run(_destroy(configuration, cluster_id, yes=yes))
    if as_json:
        print_json({"cluster_id": cluster_id, "removed": removed})
        return
    for one in removed:
        typer.echo(f"removed {one}")
    typer.echo(f"cluster {cluster_id!r} is gone")


async def _destroy(configuration: Configuration, cluster_id: str, *, yes: bool) -> list[str]:
    services = open_services(configuration, cluster_id)
    found = await look(services)
    past = past_runs.of_cluster(configuration, cluster_id) if found is None else None
    if past:
        if not yes:
            _confirm(cluster_id, past.storage, Holdings(ended=[past.tombstone.run_id]))
        return [past_runs.forget(cluster_id)]
    if found is None:
        raise UsageError(
            f"there is no cluster {cluster_id!r} in {configuration.storage_dir}: check "
            f"{options.CLUSTER_ID.key} and {options.STORAGE_DIR.key}"
        )
    removal = Destruction(
        services, found, _locks(configuration, cluster_id), Timing.of(configuration), SystemClock()
    )
    await removal.refuse_others()
    await removal.refuse_the_living()
    if not yes:
        _confirm(cluster_id, configuration.storage_dir, found)
    try:
        await removal.run()
    except (OSError, TimeoutError) as error:
        raise UnderstudyError(
            f"cluster {cluster_id!r} is not removed whole: {str(error) or 'timeout'}; run it again "
            "once that is mended"
        ) from error
    return removal.removed


def _locks(configuration: Configuration, cluster_id: str) -> LivenessLocks | None:
    # Processes started with other settings count too: they use the same storage.
    directories = every_locks_directory(configuration, cluster_id)
    return LivenessLocks(*directories) if directories else None


def _confirm(cluster_id: str, storage_dir: str, found: Holdings) -> None:
    """Ask on a terminal; require ``--yes`` elsewhere, where nobody could answer."""
    if not is_terminal(sys.stdin):
        raise UsageError("destroy removes all data of a cluster: confirm with --yes")
    typer.echo(f"cluster {cluster_id!r} in {storage_dir}:", err=True)
    for run in found.unfinished:
        typer.echo(f"  run {run} is unfinished and could be continued", err=True)
    if found.ended:
        typer.echo(f"  {len(found.ended)} ended runs, with their results", err=True)
    if not typer.confirm("Remove everything?", err=True):
        raise UnderstudyError("nothing was removed")
