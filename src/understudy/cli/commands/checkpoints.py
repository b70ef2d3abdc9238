"""The command that shows a job's checkpoints: understudy checkpoints JOB."""

from __future__ import annotations

import time
from typing import Annotated
from urllib.parse import quote

import typer
from rich.table import Table

from understudy.api.client import ClusterClient
from understudy.api.views import Json as JsonObject
from understudy.cli.commands import completing
from understudy.cli.commands.ask import (
    Ask,
    cell,
    console,
    find_one,
    job_named,
    long,
    print_json,
    when,
)
from understudy.cli.commands.common import ConfigDir, Json, Overrides, configured
from understudy.cli.commands.targets import takes_target
from understudy.errors import NoLeaderError
from understudy.process.reporter import printable

Job = Annotated[
    str,
    typer.Argument(metavar="JOB", help="A job's name or id.", autocompletion=completing.jobs),
]


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("checkpoints")(checkpoints)


@takes_target
def checkpoints(
    wanted: Job, overrides: Overrides = None, config_dir: ConfigDir = None, as_json: Json = False
) -> None:
    """Show a job's checkpoints, from which a restart continues."""
    configuration = configured(config_dir, overrides)
    _, told = find_one(configuration, wanted, _checkpoints_of)
    if as_json:
        print_json(told)
        return
    counts, latest = told["counts"], told["latest"]
    typer.echo(
        f"{counts['completed']} completed, {counts['failed']} failed, "
        f"gone on from {counts['restored']} times"
    )
    restored = latest["restored"]
    if restored:
        what = "savepoint" if restored["is_savepoint"] else "checkpoint"
        which = restored["external_path"] if restored["is_savepoint"] else restored["id"]
        when_ = when(restored["restore_timestamp"])
        typer.echo(printable(f"last gone on from {what} {which}, {when_}"))
    if told["history"]:
        console().print(_table(told["history"]))
    for what in ("completed", "savepoint"):
        if not told["history"] and latest[what] and latest[what]["external_path"]:
            typer.echo(printable(f"retained: {latest[what]['external_path']}"))


def _table(history: list[JsonObject]) -> Table:
    now = time.time() * 1000
    table = Table("number", "of", "batch", "rows", "bytes", "took", "age", "attempt", "where")
    for one in history:
        if one["status"] == "COMPLETED":
            where = "not retained" if one["discarded"] else one["external_path"] or ""
        else:
            where = one.get("failure_message") or one["status"].lower().replace("_", " ")
        table.add_row(
            str(one["id"] or ""),
            cell(" ".join((one.get("kind") or "savepoint", one.get("name") or "")).strip()),
            "" if one.get("batch_id") is None else str(one["batch_id"]),
            f"{one['rows']:,}",
            f"{one['state_size']:,}",
            f"{one['end_to_end_duration']:,} ms",
            long(max(0, int(now - one["latest_ack_timestamp"])))
            if one["latest_ack_timestamp"] >= 0
            else "",
            str(one.get("attempt") or ""),
            cell(where),
        )
    return table


def _checkpoints_of(wanted: str) -> Ask:
    """Return a query for a job's checkpoints, by the job's name, id or id prefix."""

    async def ask(client: ClusterClient) -> JsonObject:
        try:
            job_id = _id_of(wanted, (await client.get("/jobs/overview"))["jobs"])
            return await client.get(f"/jobs/{quote(job_id, safe='')}/checkpoints")
        except NoLeaderError:
            return await client.stored_checkpoints(_id_of(wanted, await client.stored_jobs()))

    return ask


def _id_of(wanted: str, jobs: list[JsonObject]) -> str:
    found = job_named(wanted, jobs)
    return found["jid"] if found else wanted
