"""The command that ends a run or a job before its end: understudy cancel."""

from __future__ import annotations

import asyncio
from functools import partial

import typer

from understudy.api.client import ClusterClient
from understudy.api.views import INTERRUPTED
from understudy.api.views import Json as JsonObject
from understudy.cli.commands.ask import (
    ENDED,
    Id,
    application_named,
    application_or_job,
    find_one,
    is_of_session,
    print_json,
    with_client,
)
from understudy.cli.commands.common import ConfigDir, Json, Overrides, configured
from understudy.cli.commands.targets import takes_target
from understudy.cli.launch.cluster import ClusterPlan
from understudy.cli.launch.compose import EXIT_CODES
from understudy.cli.launch.joining import check_startable_here
from understudy.cli.launch.redeploying import stored_run
from understudy.cli.launch.running import run_cluster
from understudy.config import Configuration
from understudy.errors import UnderstudyError
from understudy.jobmanager.redeployment import Changes
from understudy.model import ApplicationStatus
from understudy.process.reporter import printable


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("cancel")(cancel)


@takes_target
def cancel(
    wanted: Id, overrides: Overrides = None, config_dir: ConfigDir = None, as_json: Json = False
) -> None:
    """Cancel an application, or one of its jobs; an interrupted run is ended for good.

    Exit code: 0 it is cancelled or being cancelled, 1 it has ended otherwise.
    """
    configuration = configured(config_dir, overrides)
    cluster_id, found = find_one(configuration, wanted, partial(application_or_job, strict=True))
    identity = found.get("jid") or found["id"]
    status = str(found.get("status") or found["state"])
    if "jid" in found and status not in ENDED:
        _refuse_interrupted(configuration, cluster_id, found)
    if status == INTERRUPTED:
        if is_of_session(found, cluster_id):
            raise UnderstudyError(
                f"no process of the session {cluster_id!r} runs: start it with `understudy session "
                "start`, then cancel the application"
            )
        _end(configuration, cluster_id, found["run-id"])
        status = "CANCELED"
    elif status not in ENDED:

        async def ask(client: ClusterClient) -> JsonObject:
            if "jid" in found:
                return await client.patch(f"/jobs/{identity}")
            return await client.post(f"/applications/{identity}/cancel")

        asyncio.run(with_client(configuration, cluster_id, ask))
        status = "CANCELING"
    elif status != "CANCELED":
        raise UnderstudyError(
            f"{printable(found['name'])} ({identity}) has ended already: {status}; there is "
            f"nothing to cancel. `understudy result {wanted}` shows its result"
        )
    if as_json:
        print_json({"id": identity, "cancelled": True, "status": status})
    elif status == "CANCELING":
        typer.echo(f"{identity} is being cancelled")
    else:
        typer.echo(f"{identity} is CANCELED")


def _refuse_interrupted(configuration: Configuration, cluster_id: str, job: JsonObject) -> None:
    """Raise `UnderstudyError` for a job of a run that no process executes."""
    ask = application_named(job["application-id"])
    run = asyncio.run(with_client(configuration, cluster_id, ask))
    if run["status"] == INTERRUPTED:
        raise UnderstudyError(
            f"job {printable(job['name'])!r} does not run, as run {run['run-id']} is interrupted: "
            f"resume that run, or end it with `understudy cancel {run['run-id']}`"
        )


def _end(configuration: Configuration, cluster_id: str, run_id: str) -> None:
    """End a run that no process executes: a JobManager starts here and cleans up after the run."""
    stored = stored_run(configuration, cluster_id, run_id)
    configuration = stored.configuration
    check_startable_here(configuration, cluster_id)
    plan = ClusterPlan(
        configuration,
        cluster_id,
        stored.ephemeral,
        run_id,
        None,
        jobmanagers=1,
        taskmanagers=0,
        changes=Changes(cancel=run_id),
    )
    code = run_cluster(plan, as_json=False)
    if code != EXIT_CODES[ApplicationStatus.CANCELED]:
        raise UnderstudyError(f"run {run_id} is not cancelled: see the lines above")
