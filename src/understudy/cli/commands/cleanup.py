"""Commands for a failing cleanup: understudy cleanup retry, understudy cleanup abandon."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from understudy.api.client import ClusterClient
from understudy.api.views import Json as JsonObject
from understudy.cli.commands import completing
from understudy.cli.commands.ask import application_named, find_one, print_json, with_client
from understudy.cli.commands.common import ConfigDir, Json, Overrides, configured
from understudy.cli.launch.compose import open_services
from understudy.config import Configuration, options
from understudy.errors import NoLeaderError, NotFoundError, UnreachableError
from understudy.process.reporter import printable

POLL_S = 0.2

LEFT = "left-behind"
"""Key that only an application has whose cleanup is over."""

Id = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="An application's id or run id, or its beginning.",
        autocompletion=completing.ids,
    ),
]

commands = typer.Typer(
    help="Step in where an application cannot be cleaned up after.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(commands, name="cleanup")


@commands.command()
def retry(
    wanted: Id, overrides: Overrides = None, config_dir: ConfigDir = None, as_json: Json = False
) -> None:
    """Retry at once the cleanup tasks that failed, also those given up."""
    configuration = configured(config_dir, overrides)
    cluster_id, found = find_one(configuration, wanted, application_named)
    if LEFT in found:
        _tell_over(found, as_json=as_json)
        return

    async def ask(client: ClusterClient) -> JsonObject:
        return await client.post(f"/ha/cleanup/{found['id']}/retry")

    answer = asyncio.run(with_client(configuration, cluster_id, ask))
    if as_json:
        print_json({"id": found["id"], "tasks": answer["tasks"]})
        return
    for task in answer["tasks"]:
        typer.echo(f"tried again: {task}")


@commands.command()
def abandon(
    wanted: Id, overrides: Overrides = None, config_dir: ConfigDir = None, as_json: Json = False
) -> None:
    """Give up the cleanup so that the run ends; print what is left behind."""
    configuration = configured(config_dir, overrides)
    cluster_id, found = find_one(configuration, wanted, application_named)
    if LEFT in found:
        _tell_over(found, as_json=as_json)
        return
    timeout_s = configuration.get(options.CLIENT_TIMEOUT)

    async def ask(client: ClusterClient) -> JsonObject:
        answer: JsonObject = {"tasks": [], "left-behind": []}
        try:
            answer = await client.post(f"/ha/cleanup/{found['id']}/abandon")
        except (NoLeaderError, UnreachableError):
            # The application may have ended, and its cluster too, before the answer arrived.
            if LEFT not in await application_named(found["id"])(client):
                raise
        try:
            async with asyncio.timeout(timeout_s):
                return {**answer, **await _ended(client, found["id"])}
        except (NotFoundError, TimeoutError):  # A nameless cluster is gone by now.
            return answer

    answer = asyncio.run(with_client(configuration, cluster_id, ask))
    left = asyncio.run(_still_there(configuration, cluster_id, answer["left-behind"]))
    if as_json:
        print_json({"id": found["id"], "tasks": answer["tasks"], "left_behind": left})
        return
    for task in answer["tasks"]:
        typer.echo(f"abandoned: {task}")
    for path in left:
        typer.echo(f"left behind: {path}")
    if not left:
        typer.echo("nothing is left behind")


def _tell_over(found: JsonObject, *, as_json: bool) -> None:
    """Say that the cleanup of an application is over."""
    if as_json:
        print_json({"id": found["id"], "tasks": [], "left_behind": found[LEFT]})
        return
    typer.echo(
        printable(
            f"run {found['run-id']} of {found['name']} has ended, {found['status']}, and there is "
            "nothing to clean up"
        )
    )
    for path in found[LEFT]:
        typer.echo(printable(f"left behind, as a person asked: {path}"))


async def _ended(client: ClusterClient, application_id: str) -> dict[str, Any]:
    """Wait for the end of the cleanup; return what it left behind, empty if the run continues."""
    while True:
        found = await application_named(application_id)(client)
        if LEFT in found:
            return {LEFT: found[LEFT]}
        if found["status"] not in {"FINISHED", "FAILED", "CANCELED"}:
            return {}
        await asyncio.sleep(POLL_S)


async def _still_there(
    configuration: Configuration, cluster_id: str, paths: list[str]
) -> list[str]:
    """Return the full paths of leftovers that still exist."""
    storage = open_services(configuration, cluster_id).storage
    return [storage.place(path) for path in paths if await storage.exists(path)]
