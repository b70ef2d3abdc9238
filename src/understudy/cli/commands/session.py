"""Sessions: clusters that stay, and take applications: understudy session start|stop|status.

A session is a standing cluster whose JobManagers lead without an application of their own. `stop`
keeps all data; the next `start` recovers all applications, and each continues where it stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from understudy.api.client import ClusterClient
from understudy.api.views import Json as JsonObject
from understudy.cli.commands.ask import (
    overview,
    print_applications,
    print_attention,
    print_json,
    with_client,
)
from understudy.cli.commands.common import (
    AS_USUAL,
    JOBMANAGERS,
    SESSION_ID,
    TASKMANAGERS,
    ConfigDir,
    Json,
    Overrides,
    Size,
)
from understudy.cli.commands.kubernetes import deploys_sessions, shows_sessions, stops_sessions
from understudy.cli.commands.standing import (
    StandingCluster,
    StartOrder,
    bring_up,
    check_hosts,
    described,
    end_all,
    leader_json,
    leader_of,
    print_rows,
    rows_of,
    status_of,
)
from understudy.cli.launch.flags import grouped
from understudy.cli.launch.hosts import LOCALHOST, MASTERS, WORKERS, Member, is_this_host
from understudy.cli.launch.interpreter import Python
from understudy.cli.launch.members import Account, recorded_here
from understudy.cli.launch.preflight import check_drivers_start
from understudy.cli.launch.spec import check_handed_on
from understudy.config import Configuration, options
from understudy.errors import DataError, NoLeaderError, UnderstudyError, UsageError
from understudy.model import LeaderRecord


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(
        help="A cluster that stays, and takes applications: submit them with `understudy run`.",
        no_args_is_help=True,
    )
    group.command("start")(start)
    group.command("stop")(stop)
    group.command("status")(status)
    app.add_typer(group, name="session")


@grouped
@deploys_sessions
def start(
    size: Size,
    python: Python = None,
    overrides: Overrides = None,
    config_dir: ConfigDir = None,
) -> None:
    """Start the missing processes of a session; unfinished applications continue.

    Without the files masters and workers of --config-dir, all processes run on this machine.
    Exit code: 0 all processes run, 1 some could not be started, 2 bad usage.
    """
    standing = _described(config_dir, size.overruling(overrides), size)
    check_hosts(standing)
    check_handed_on(standing.configuration)
    if any(is_this_host(one.host) for one in standing.workers):
        check_drivers_start(standing.configuration)
    here = [one for one in standing.masters if is_this_host(one.host)]
    first = (here or standing.masters)[0]
    told = bring_up(StartOrder(standing), first, "understudy session stop")
    leader = asyncio.run(leader_of(standing))
    if leader is None:
        raise UnderstudyError(
            f"the {len(told)} processes of session {standing.cluster_id!r} run, and none leads "
            "yet: `understudy session status`, with the same options, shows them"
        )
    typer.echo(f"session {standing.cluster_id!r}: {len(told)} processes, {leader.rest}")


@stops_sessions
def stop(overrides: Overrides = None, config_dir: ConfigDir = None) -> None:
    """Stop all processes of a session; keep all its data, which the next start continues with.

    Exit code: 0 all processes have ended, 1 otherwise.
    """
    standing = _described(config_dir, overrides)
    end_all(standing)
    typer.echo(f"session {standing.cluster_id!r} is stopped; its data is kept")


def _status_in_pods(configuration: Configuration, *, as_json: bool) -> None:
    # httpx is imported only where it is used.
    from understudy.cli.launch import kubernetes_pods as pods

    configuration = pods.named(configuration)
    standing = StandingCluster(configuration, configuration.get(options.CLUSTER_ID), (), [], [])
    leader = asyncio.run(leader_of(standing))
    found = pods.accounts(configuration, leader)
    if found:
        try:
            reaches = configuration.with_settings(pods.settings_for(configuration))
            standing = replace(standing, configuration=reaches)
        except UsageError as error:  # The pods are known, what they execute is not.
            typer.echo(f"understudy: {error}", err=True)
    _show(standing, found, leader, as_json=as_json)


@shows_sessions(_status_in_pods)
def status(
    overrides: Overrides = None, config_dir: ConfigDir = None, as_json: Json = False
) -> None:
    """Show a session: its processes, the leader, the standbys, and the applications.

    Exit code: 0 all processes run, and one leads; 1 otherwise.
    """
    standing = _described(config_dir, overrides)
    found = status_of(standing)
    leader = asyncio.run(leader_of(standing))
    _show(standing, found, leader, as_json=as_json)


def _show(
    standing: StandingCluster,
    found: list[Account],
    leader: LeaderRecord | None,
    *,
    as_json: bool,
) -> None:
    """Print a session's processes and applications, and exit."""
    rows = rows_of(standing, found, leader)
    told = asyncio.run(with_client(standing.configuration, standing.cluster_id, _asked))
    if as_json:
        print_json(
            {
                "cluster_id": standing.cluster_id,
                "leader": leader_json(leader),
                "standbys": told["standbys"],
                "processes": rows,
                "applications": told["applications"],
                "attention": told["attention"],
            }
        )
    else:
        print_rows(rows, leader, "")
        for one in told["standbys"]:
            ready = "is ready to lead" if one["ready"] else "stands by, and is not ready yet"
            typer.echo(f"{one['id']} {ready}: {one['rest']}")
        print_applications(
            [{**one, "cluster-id": standing.cluster_id} for one in told["applications"]]
        )
        print_attention(told["attention"])
    sys.exit(0 if leader and all(one.state == "runs" for one in found) else 1)


async def _asked(client: ClusterClient) -> JsonObject:
    """Return applications and standbys, as far as they are known."""
    told: dict[str, Any] = {"applications": [], "attention": [], "standbys": []}
    with contextlib.suppress(UnderstudyError, DataError, OSError, TimeoutError):
        told |= await overview(client)
    with contextlib.suppress(NoLeaderError, UnderstudyError, OSError, TimeoutError):
        told["standbys"] = (await client.get("/ha/status"))["standbys"]
    return told


def _described(
    config_dir: Path | None, overrides: list[str] | None, size: Size = AS_USUAL
) -> StandingCluster:
    """Return the session; without files, its processes are those started here, or the usual ones.

    Raises `UsageError` for a number of processes that a file states.
    """
    settings = [*(overrides or []), f"{options.SESSION.key}=true"]
    standing = described(config_dir, settings, SESSION_ID)
    known = recorded_here(standing.configuration.settings, standing.cluster_id, LOCALHOST)
    masters = _members("jobmanager", size.jobmanagers or known["jobmanager"] or JOBMANAGERS)
    workers = _members("taskmanager", size.taskmanagers or known["taskmanager"] or TASKMANAGERS)
    for file, flag, count in (
        (MASTERS, "--jobmanagers", size.jobmanagers),
        (WORKERS, "--taskmanagers", size.taskmanagers),
    ):
        if not (config_dir and (config_dir / file).is_file()):
            continue
        if count is not None:
            raise UsageError(f"{flag} {count}: {config_dir / file} states the processes")
        if file == MASTERS:
            masters = standing.masters
        else:
            workers = standing.workers
    return replace(standing, masters=masters, workers=workers)


def _members(role: str, count: int) -> list[Member]:
    return [Member(role, LOCALHOST, number) for number in range(1, count + 1)]
