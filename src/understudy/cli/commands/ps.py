"""The command that shows the processes of clusters on this machine: understudy ps."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable
from typing import Any

import typer

from understudy.api.client import ClusterClient
from understudy.cli.commands.ask import long, print_json, when, with_client
from understudy.cli.commands.common import Json
from understudy.cli.launch.machine import LocalProcess, guarded
from understudy.cli.launch.spec import WorkerSpec
from understudy.config import Configuration
from understudy.errors import UnderstudyError
from understudy.process.reporter import printable

ANSWER_S = 5.0
"""How long a leader may take to tell what its drivers do; the rest is shown without it."""

Row = dict[str, Any]

COLUMNS = ("process", "pid", "cluster", "run", "application", "since", "for", "")


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("ps")(ps)


def ps(as_json: Json = False) -> None:
    """Show the processes of all clusters on this machine: kind, pid, cluster, run, job.

    The processes are known by their guardians; what a driver does is asked of the leader.
    """
    found = guarded()
    clusters = {(one.worker.cluster_id, _place(one.worker)): one.worker for one in _heads(found)}
    told: dict[str, Row] = {}
    for worker in clusters.values():
        told |= asyncio.run(_told(worker))
    rows = [_row(one, told, found) for one in found]
    if as_json:
        print_json({"processes": rows})
    elif rows:
        _print([COLUMNS, *(_cells(row) for row in rows)])
    else:
        typer.echo("no process of a cluster runs on this machine")


def _heads(found: Iterable[LocalProcess]) -> Iterable[Any]:
    """Return the processes whose cluster is known."""
    return (one for one in found if one.worker)


def _place(worker: WorkerSpec) -> tuple[tuple[str, str], ...]:
    """Return what tells clusters of one id apart: their settings, without those of one process."""
    return tuple(sorted((k, v) for k, v in worker.settings.items() if k.startswith("high-avail")))


async def _told(worker: WorkerSpec) -> dict[str, Row]:
    """Return what a cluster's leader tells: by the name of a JobManager, the id of a driver."""

    async def ask(client: ClusterClient) -> dict[str, Row]:
        status = await client.get("/ha/status")
        jobs = {one["jid"]: one["name"] for one in (await client.get("/jobs/overview"))["jobs"]}
        told: dict[str, Row] = {one["id"]: {"does": "stands by"} for one in status["standbys"]}
        told[status["leader"]["id"]] = {"does": "leads"}
        for manager in (await client.get("/taskmanagers"))["taskmanagers"]:
            for driver in (*manager["slots"], *manager["spare_drivers"]):
                if driver.get("id"):
                    told[driver["id"]] = _does(driver, jobs)
        return told

    with contextlib.suppress(UnderstudyError, OSError, TimeoutError, KeyError):
        async with asyncio.timeout(ANSWER_S):
            found: dict[str, Row] = await with_client(
                Configuration(worker.settings), worker.cluster_id, ask
            )
            return found
    return {}


def _does(driver: Row, jobs: dict[str, str]) -> Row:
    job = driver.get("job_id")
    if not job:
        return {"does": driver["state"]}
    name, attempt = jobs.get(job, job), driver.get("attempt")
    return {
        "does": f"runs {name!r}, attempt {attempt}",
        "job_id": job,
        "job": name,
        "attempt": attempt,
    }


def _row(one: LocalProcess, told: dict[str, Row], found: list[LocalProcess]) -> Row:
    worker = one.worker
    names = {
        other.worker.application.name
        for other in _heads(found)
        if worker and other.worker.cluster_id == worker.cluster_id and other.worker.application
    }
    about = told.get(one.incarnation) or told.get(one.name, {})
    return {
        "kind": one.kind,
        "name": one.name,
        "incarnation": one.incarnation or None,
        "pid": one.pid,
        "guardian_pid": one.guardian_pid or None,
        "cluster_id": worker.cluster_id if worker else None,
        "run_id": worker.run_id if worker else None,
        "application": min(names, default=None),
        "started_at": one.started_at,
        "does": about.get("does"),
        "job_id": about.get("job_id"),
        "job": about.get("job"),
        "attempt": about.get("attempt"),
    }


def _cells(row: Row) -> tuple[str, ...]:
    started_ms = int(row["started_at"] * 1000)
    return (
        row["name"],
        str(row["pid"]),
        row["cluster_id"] or "",
        row["run_id"] or "",
        row["application"] or "",
        when(started_ms),
        long(max(0, int(time.time() * 1000) - started_ms)),
        row["does"] or "",
    )


def _print(rows: list[tuple[str, ...]]) -> None:
    """Print columns as wide as they need, as a pipe has no width."""
    rows = [tuple(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())
