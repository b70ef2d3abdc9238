"""Commands for savepoints: understudy savepoint, understudy stop."""

from __future__ import annotations

import asyncio
import time
import uuid
from pathlib import Path
from typing import Annotated, Any

import typer

from understudy.api.client import ClusterClient
from understudy.api.views import Json as JsonObject
from understudy.cli.commands import completing
from understudy.cli.commands.ask import ENDED, Ask, find_one, only_one, print_json, with_client
from understudy.cli.commands.common import ConfigDir, Json, Overrides, configured
from understudy.cli.commands.targets import takes_target
from understudy.config import Configuration, options
from understudy.errors import (
    CheckpointError,
    NoLeaderError,
    NotFoundError,
    UnreachableError,
    UsageError,
)
from understudy.ha import savepoints
from understudy.process.reporter import printable

POLL_S = 0.1

Job = Annotated[
    str | None,
    typer.Argument(
        metavar="JOB",
        help="A job's name or id.",
        show_default=False,
        autocompletion=completing.jobs,
    ),
]
Directory = Annotated[
    str | None,
    typer.Argument(
        metavar="[DIR]",
        help=f"Below which directory or URL; else {options.SAVEPOINT_DIR.key}.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("savepoint")(savepoint)
    app.command("stop")(stop)


@takes_target
def savepoint(
    job: Job = None,
    directory: Directory = None,
    dispose: Annotated[
        str | None,
        typer.Option(
            "--dispose",
            metavar="PATH",
            help="Remove this savepoint instead.",
            show_default=False,
        ),
    ] = None,
    overrides: Overrides = None,
    config_dir: ConfigDir = None,
    as_json: Json = False,
) -> None:
    """Take a savepoint of a running job, which continues; print the savepoint's path."""
    configuration = configured(config_dir, overrides)
    if dispose is not None:
        if job is not None:
            raise UsageError("--dispose takes the savepoint's path, and no job")
        _dispose(dispose, as_json=as_json)
        return
    if job is None:
        raise UsageError("name a job: understudy savepoint JOB [DIR], or --dispose PATH")
    named = ("target-directory", checked_address(directory)) if directory else None
    _take(configuration, job, "savepoints", named, as_json=as_json)


@takes_target
def stop(
    job: Annotated[
        str,
        typer.Argument(metavar="JOB", help="A job's name or id.", autocompletion=completing.jobs),
    ],
    directory: Directory = None,
    with_savepoint: Annotated[
        bool, typer.Option("--savepoint", help="Take a savepoint first.")
    ] = False,
    overrides: Overrides = None,
    config_dir: ConfigDir = None,
    as_json: Json = False,
) -> None:
    """Stop a job with a savepoint: the job is FINISHED and commits nothing afterwards."""
    if not with_savepoint:
        raise UsageError(
            "stop ends a job with a savepoint: understudy stop --savepoint JOB [DIR]; `understudy "
            "cancel` ends it without one"
        )
    if directory and _is_address(job) and not _is_address(directory):
        job, directory = directory, job  # Flink's order.
    configuration = configured(config_dir, overrides)
    named = ("targetDirectory", checked_address(directory)) if directory else None
    _take(configuration, job, "stop", named, as_json=as_json)


def _is_address(text: str) -> bool:
    return "://" in text or text.startswith(("/", "./", "../"))


def checked_address(path: str) -> str:
    """Return an absolute path or a URL, the same for every process. Raises `UsageError`."""
    if not path.strip() or "\0" in path:
        raise UsageError("the directory of a savepoint is empty: give a path or a URL")
    return path if "://" in path else str(Path(path).absolute())


def _take(
    configuration: Configuration,
    job: str,
    route: str,
    named: tuple[str, str] | None,
    *,
    as_json: bool,
) -> None:
    """Take a savepoint and print its path; ``named``: the directory's body key and value."""
    cluster_id, found = _find(configuration, job)
    trigger = uuid.uuid4().hex

    async def ask(client: ClusterClient) -> JsonObject:
        path, body = f"/jobs/{found['jid']}/{route}", {"triggerId": trigger}
        if named:
            async with client.permit(trigger, named[1]):
                asked = await client.post(path, {**body, named[0]: named[1]})
        else:
            asked = await client.post(path, body)
        return await _completed(client, found["jid"], trigger, asked.get("location", ""))

    operation = asyncio.run(with_client(configuration, cluster_id, ask))
    if cause := operation.get("failure-cause"):
        raise CheckpointError(f"no savepoint was taken: {cause['message']}")
    told = {
        "job-id": found["jid"],
        "name": found["name"],
        "trigger-id": trigger,
        "location": operation["location"],
    }
    if as_json:
        print_json(told)
    else:
        typer.echo(printable(operation["location"]))


async def _completed(
    client: ClusterClient, job_id: str, trigger: str, location: str
) -> dict[str, Any]:
    """Return the savepoint's outcome; if the cluster has ended already, from its files."""
    began = time.monotonic()
    while True:
        try:
            answer = await client.get(f"/jobs/{job_id}/savepoints/{trigger}", awaits_leader=True)
        except (NoLeaderError, NotFoundError, UnreachableError):
            try:
                await asyncio.to_thread(savepoints.read, location)
            except CheckpointError as error:
                raise UnreachableError(
                    f"the cluster has ended before it told of the savepoint: {error}"
                ) from error
            return {"location": location}
        if answer["status"]["id"] == "COMPLETED":
            return dict(answer["operation"])
        await asyncio.sleep(POLL_S if time.monotonic() - began < 5 else 10 * POLL_S)


def _find(configuration: Configuration, wanted: str) -> tuple[str, JsonObject]:
    """Return the cluster id and the job."""
    leaderless: list[NoLeaderError] = []
    try:
        return find_one(configuration, wanted, lambda name: _job_named(name, leaderless))
    except NotFoundError:
        if leaderless:
            raise leaderless[0] from None
        raise


def _job_named(wanted: str, leaderless: list[NoLeaderError]) -> Ask:
    """Return a query for a job that has not ended, by the job's id, id prefix or name."""

    async def ask(client: ClusterClient) -> JsonObject:
        try:
            listed = (await client.get("/jobs/overview"))["jobs"]
        except NoLeaderError as error:
            leaderless.append(error)
            listed = await client.stored_jobs()
        by_id = [one for one in listed if one["jid"] == wanted]
        named = [one for one in listed if one["name"] == wanted]
        begun = [one for one in listed if len(wanted) >= 4 and one["jid"].startswith(wanted)]
        running = [one for one in named if one["state"] not in ENDED]
        if found := only_one((by_id, running, begun), wanted):
            return found
        if named:
            raise CheckpointError(f"job {wanted!r} has ended: {named[-1]['state']}")
        raise NotFoundError(f"there is no job {wanted!r} here")

    return ask


def _dispose(path: str, *, as_json: bool) -> None:
    found = savepoints.read(checked_address(path))
    savepoints.remove(found)
    if as_json:
        print_json({"disposed": found.place.address})
    else:
        typer.echo(f"{printable(found.place.address)} is removed")
