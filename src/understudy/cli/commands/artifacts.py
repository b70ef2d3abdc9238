"""Commands for uploaded artifacts: understudy artifacts list, upload, delete."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from understudy.api.views import Json as JsonObject
from understudy.cli.commands.ask import Ask, clusters_of, print_json, with_client
from understudy.cli.commands.common import ConfigDir, Json, Overrides, configured
from understudy.cli.commands.targets import takes_target
from understudy.config import Configuration, options
from understudy.errors import NotFoundError, UsageError
from understudy.process.reporter import printable

commands = typer.Typer(
    help="Files that a cluster keeps for the applications that are submitted with them.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(commands, name="artifacts")


@commands.command("list")
@takes_target
def list_artifacts(
    overrides: Overrides = None, config_dir: ConfigDir = None, as_json: Json = False
) -> None:
    """List the uploaded artifacts, the latest first."""
    answer = _asked(
        configured(config_dir, overrides),
        lambda client: client.get("/artifacts", awaits_leader=True),
    )
    if as_json:
        print_json(answer)
        return
    for one in answer["artifacts"]:
        uploaded = datetime.fromtimestamp(one["uploaded"] / 1000).astimezone()
        typer.echo(printable(f"{one['id']}  {one['size']:,} bytes  {uploaded:%Y-%m-%d %H:%M:%S}"))


@commands.command()
@takes_target
def upload(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .py, .zip, .whl or .tar.gz.")],
    overrides: Overrides = None,
    config_dir: ConfigDir = None,
    as_json: Json = False,
) -> None:
    """Upload a file; print the artifact's id. The same file again is the same artifact."""
    if not file.is_file():
        raise UsageError(f"{file}: no such file")
    answer = _asked(configured(config_dir, overrides), lambda client: client.upload(file))
    if as_json:
        print_json(answer)
    else:
        typer.echo(answer["id"])


@commands.command()
@takes_target
def delete(
    artifact: Annotated[str, typer.Argument(metavar="ID", help="The id of an artifact.")],
    overrides: Overrides = None,
    config_dir: ConfigDir = None,
) -> None:
    """Remove an artifact that no unfinished application needs."""
    path = f"/artifacts/{quote(artifact, safe='')}"
    _asked(configured(config_dir, overrides), lambda client: client.delete(path))


def _asked(configuration: Configuration, ask: Ask) -> JsonObject:
    """Return the answer of the only cluster, or of the configured one."""

    async def look() -> JsonObject:
        known = [cluster_id async for cluster_id in clusters_of(configuration)]
        if not known:
            raise NotFoundError(f"there is no cluster in {configuration.storage_dir}")
        if len(known) > 1:
            raise UsageError(
                f"there are several clusters ({', '.join(known)}): choose with "
                f"-D {options.CLUSTER_ID.key}=…"
            )
        answer: JsonObject = await with_client(configuration, known[0], ask)
        return answer

    return asyncio.run(look())
