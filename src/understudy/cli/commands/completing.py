"""What may complete an argument: ids and names of what there is, keys of options.

Asked while a person types, so an answer has a deadline, and an error is no answer. Where nothing
is known, the shell offers files.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from pathlib import Path
from typing import Any

import typer

from understudy.config import Configuration
from understudy.config.configuration import load_configuration
from understudy.config.known import known_with
from understudy.errors import NoLeaderError, UnderstudyError

ANSWER_S = 3.0
"""A person waits for the answer."""

SHORT = 12
"""Characters of an id that are shown, and suffice."""

Offers = list[tuple[str, str] | str]
"""Each text with its meaning."""


def ids(ctx: typer.Context) -> Offers:
    """Return ids of applications, runs and jobs, each with its name and state."""
    return _asked(ctx, _ids)


def jobs(ctx: typer.Context) -> Offers:
    """Return names and ids of jobs."""
    return _asked(ctx, _jobs)


def settings() -> Offers:
    """Return the keys of options, each with its meaning."""
    return [(f"{key}=", option.meaning) for key, option in known_with({}).options.items()]


def _asked(ctx: typer.Context, query: Any) -> Offers:
    directory = ctx.params.get("config_dir")
    told: dict[str, str] = {}
    with contextlib.suppress(UnderstudyError, OSError, TimeoutError):
        configuration = load_configuration(
            Path(directory) if directory else None, ctx.params.get("overrides") or []
        )
        told = asyncio.run(_told(configuration, query))
    return [*told.items()]


async def _told(configuration: Configuration, query: Any) -> dict[str, str]:
    ask = importlib.import_module("understudy.cli.commands.ask")
    told: dict[str, str] = {}
    async with asyncio.timeout(ANSWER_S):
        async for cluster_id in ask.clusters_of(configuration):
            with contextlib.suppress(UnderstudyError, OSError):
                told |= await ask.with_client(configuration, cluster_id, query)
    return told


async def _ids(client: Any) -> dict[str, str]:
    try:
        applications = (await client.get("/applications/overview"))["applications"]
    except NoLeaderError:
        applications = (await client.stored_overview())["applications"]
    told = {}
    for one in applications:
        about = f"{one['name']}, {one['status']}"
        told[one["id"][:SHORT]] = f"application {about}"
        told[one["run-id"]] = f"run of {about}"
    by_id = {one["jid"][:SHORT]: f"job {one['name']}, {one['state']}" for one in await _all(client)}
    return told | by_id


async def _jobs(client: Any) -> dict[str, str]:
    found = await _all(client)
    by_name = {one["name"]: f"job, {one['state']}" for one in found}
    return by_name | {one["jid"][:SHORT]: f"job {one['name']}, {one['state']}" for one in found}


async def _all(client: Any) -> list[dict[str, Any]]:
    """Return the jobs of a cluster."""
    try:
        found: list[dict[str, Any]] = (await client.get("/jobs/overview"))["jobs"]
    except NoLeaderError:
        found = await client.stored_jobs()
    return found
