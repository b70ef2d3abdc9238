"""Commands that query a cluster: list, info, result, logs.

The commands find the leader by retrieval, with the processes' own configuration, follow it when it
changes, and read storage when there is no leader. Without a configured cluster id they query every
cluster in the storage directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.api.authentication import RestSecurity
from understudy.api.client import ClusterClient
from understudy.api.remote import RemoteClient
from understudy.api.views import INTERRUPTED
from understudy.api.views import Json as JsonObject
from understudy.cli.commands import completing
from understudy.cli.commands.common import (
    DEFAULT_CLUSTER_ID,
    SESSION_ID,
    ConfigDir,
    Json,
    Overrides,
    cluster_id_of,
    configured,
)
from understudy.cli.commands.targets import takes_target
from understudy.cli.launch import past_runs
from understudy.cli.launch.compose import EXIT_CODES, locks_directories, open_services
from understudy.cli.launch.logs import follow, print_log
from understudy.cli.launch.past_runs import PastClient
from understudy.config import Configuration, options
from understudy.config.secrets import masked_words
from understudy.errors import (
    DataError,
    NoLeaderError,
    NotFoundError,
    UnderstudyError,
    UsageError,
)
from understudy.ha.register import ListsClusters
from understudy.ha.services import HighAvailabilityServices
from understudy.ha.storage import LocalStorage, open_storage
from understudy.model import ApplicationStatus
from understudy.process.attempt_news import on_one_line
from understudy.process.liveness_lock import LivenessLocks
from understudy.process.printed import is_terminal
from understudy.process.reporter import printable, printable_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

PIPED_WIDTH = 10_000
"""Columns of tables that a program reads: rich would cut them at 80."""

KEPT = ("checkpoint", "savepoint")
"""What a job may leave behind."""

ENDED = {"FINISHED", "FAILED", "CANCELED"}
"""The final states of a job."""

FAILING = {"FAILED", "RESTARTING"}
"""The states of a job whose first attempt has failed."""

FAILED_JOBS_MAX = 20
"""Jobs of which `info` shows the failed attempts: each takes a request."""

NOT_ENDED = 4
"""Exit code of `result` for an application or job that has not ended."""

Id = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The id of an application, a run or a job, its beginning, or a job's name.",
        autocompletion=completing.ids,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("list")(list_applications)
    app.command("info")(info)
    app.command("result")(result)
    app.command("logs")(logs)


@takes_target
def list_applications(
    overrides: Overrides = None, config_dir: ConfigDir = None, as_json: Json = False
) -> None:
    """List the applications of the cluster, running and ended."""
    configuration = configured(config_dir, overrides)
    found = asyncio.run(_gather(configuration))
    applications = [
        {
            **one,
            "cluster-id": cluster_id,
            "leader": answer.get("leader"),
            **resumed_by(one, cluster_id, overrides, config_dir),
        }
        for cluster_id, answer in found
        for one in answer["applications"]
    ]
    attention = [
        {**one, "cluster-id": cluster_id}
        for cluster_id, answer in found
        for one in answer["attention"]
    ]
    if as_json:
        print_json({"applications": applications, "attention": attention})
    else:
        print_applications(applications)
        print_attention(attention)
    if found and all(answer.get("unasked") for _, answer in found):
        raise typer.Exit(1)


def print_applications(applications: list[JsonObject]) -> None:
    """Print a table of applications, and how to resume those that are interrupted."""
    if not applications:
        typer.echo("no applications")
        return
    from rich.table import Table

    table = Table("application", "run", "name", "status", "started", "duration", "jobs", "cluster")
    for one in applications:
        counts = ", ".join(f"{count} {state}" for state, count in one["jobs"].items())
        table.add_row(
            one["id"][:12],
            "" if one["run-id"] == one["id"] else one["run-id"],
            cell(one["name"]),
            one["status"],
            when(one["start-time"]) if one["start-time"] >= 0 else "",
            long(one["duration"]),
            counts,
            one["cluster-id"],
        )
    console().print(table)
    for one in applications:
        if one.get("waits"):
            console().print(cell(f"run {one['run-id']} {one['waits']}"), soft_wrap=True)
        _print_resume(one)


def resumed_by(
    application: JsonObject, cluster_id: str, overrides: list[str] | None, config_dir: Path | None
) -> JsonObject:
    """Return the command that resumes an interrupted application, if this one is."""
    if application["status"] != INTERRUPTED:
        return {}
    if is_of_session(application, cluster_id):
        words = ["understudy", "session", "start"]
    else:
        words = ["understudy", "run-application", "--resume", "--run-id", application["run-id"]]
    if config_dir:
        words += ["--config-dir", str(config_dir)]
    settings = [] if cluster_id == SESSION_ID else [f"{options.CLUSTER_ID.key}={cluster_id}"]
    settings += [one for one in overrides or () if not one.startswith(options.CLUSTER_ID.key)]
    words += [word for setting in settings for word in ("-D", setting)]
    return {"resume": shlex.join(masked_words(words))}


def is_of_session(application: JsonObject, cluster_id: str) -> bool:
    """Return whether an application was submitted to a session, as far as its ids tell."""
    return cluster_id == SESSION_ID or application["run-id"] == application["id"]


def _print_resume(application: JsonObject) -> None:
    if command := application.get("resume"):
        typer.echo(f"run {application['run-id']} is interrupted; this resumes it:\n  {command}")


SPARK = {"id": "application", "ui": "UI", "event-log": "event log"}
"""What `info` shows of a job's Spark application: key and label."""


@takes_target
def info(
    wanted: Id, overrides: Overrides = None, config_dir: ConfigDir = None, as_json: Json = False
) -> None:
    """Show an application with its jobs, or one job: reached, adopted, skipped, not reached."""
    configuration = configured(config_dir, overrides)
    cluster_id, found = find_one(configuration, wanted, _with_application)
    found |= resumed_by(found, cluster_id, overrides, config_dir)
    told = asyncio.run(with_client(configuration, cluster_id, lambda client: client.attention()))
    about = {found["id"], found["run-id"], *(job["jid"] for job in found["jobs"])}
    about |= {"registry", "leader", "storage"}
    found["attention"] = [one for one in told if one["id"] in about]
    failed = [job for job in found["jobs"] if job["attempt"] > 1 or job["state"] in FAILING]
    asyncio.run(with_client(configuration, cluster_id, _failures_of(failed[-FAILED_JOBS_MAX:])))
    if as_json:
        print_json(found)
        return
    from rich.table import Table

    screen = console()
    screen.print(
        cell(
            f"{found['name']}  {found['status']}  run {found['run-id']}  application {found['id']}"
        )
    )
    if found.get("deployment", 1) > 1:
        screen.print(f"new code was deployed: deployment {found['deployment']}")
    table = Table("job", "id", "state", "attempt", "duration", "in this execution of main")
    for job in found["jobs"]:
        table.add_row(
            cell(job["name"]),
            job["jid"][:12],
            job["state"],
            str(job["attempt"]),
            long(job["duration"]),
            cell(_mark(job)),
        )
    screen.print(table)
    for job in found["jobs"]:
        if job.get("waits"):
            screen.print(cell(f"{job['name']} {job['waits']}"), soft_wrap=True)
        spark = job.get("spark") or {}
        parts = [f"{word} {spark[key]}" for key, word in SPARK.items() if spark.get(key)]
        if parts:
            screen.print(cell(f"Spark of {job['name']}: {', '.join(parts)}"), soft_wrap=True)
        for kind in KEPT:
            if job.get(kind):
                screen.print(cell(f"{kind} of {job['name']}: {job[kind]}"), soft_wrap=True)
        for one in reversed(job.get("failures", ())):
            about_it = f"{job['name']}, attempt {one.get('attempt', '?')}: {_summary(one)}"
            screen.print(cell(about_it), soft_wrap=True)
    if len(failed) > FAILED_JOBS_MAX:
        screen.print(f"failed attempts of {len(failed) - FAILED_JOBS_MAX:,} more jobs: not shown")
    print_attention(found["attention"])
    _print_resume(found)
    failure = found.get("failure")
    if failure:
        screen.print(_text(printable_lines(failure["stack-trace"])))


def _failures_of(jobs: list[JsonObject]) -> Ask:
    """Return a query that adds to each job why its attempts failed, the latest first."""

    async def ask(client: ClusterClient) -> None:
        for job in jobs:
            with contextlib.suppress(DataError, NotFoundError):  # `info` shows the rest.
                job["failures"] = await client.failures(job["jid"])

    return ask


def _summary(failure: JsonObject) -> str:
    """Return the line of a traceback that names the exception, shortened."""
    name, lines = failure["exceptionName"], failure["stacktrace"].splitlines()
    named = [line for line in lines if line.startswith(name)]
    return on_one_line(name, (named or lines or [""])[-1].removeprefix(f"{name}: "))


@takes_target
def result(
    wanted: Id, overrides: Overrides = None, config_dir: ConfigDir = None, as_json: Json = False
) -> None:
    """Print the result of an application and its jobs, or of one job.

    Exit code: 0 FINISHED, 1 FAILED, 3 CANCELED, 4 not ended yet.
    """
    configuration = configured(config_dir, overrides)
    cluster_id, found = find_one(configuration, wanted, application_or_job)

    async def ask(client: ClusterClient) -> list[JsonObject]:
        jobs = [found["jid"]] if "jid" in found else [job["jid"] for job in found["jobs"]]
        try:
            return [await client.get(f"/jobs/{job}/execution-result") for job in jobs]
        except NoLeaderError:
            return await client.stored_results(found.get("jid") or found["id"])

    results = asyncio.run(with_client(configuration, cluster_id, ask))
    status = found.get("status") or found["state"]
    answer = {"id": found.get("jid") or found["id"], "status": status, "jobs": results}
    if failure := found.get("failure"):
        answer["failure"] = failure
    if as_json:
        print_json(answer)
    else:
        typer.echo(printable(f"{found['name']}: {status}"))
        if failure:
            typer.echo(printable_lines(f"  {failure['class']}: {failure['message']}"))
        for one in results:
            typer.echo(printable_lines(_result_line(one)))
    ended = status in {one.value for one in EXIT_CODES}
    raise typer.Exit(EXIT_CODES[ApplicationStatus(status)] if ended else NOT_ENDED)


@takes_target
def logs(
    wanted: Id,
    follow_log: Annotated[bool, typer.Option("-f", "--follow", help="Go on as it grows.")] = False,
    overrides: Overrides = None,
    config_dir: ConfigDir = None,
) -> None:
    """Print the output of an application's main and jobs.

    The log files of this host come first; what is not there is asked for at the cluster.
    """
    configuration = configured(config_dir, overrides)
    directory = configuration.log_dir
    is_remote = configuration.find(options.TARGET) is not None
    found = [] if is_remote else _log_files(directory, wanted)
    if len(found) > 1:
        names = ", ".join(path.stem for path in found)
        raise NotFoundError(f"{wanted!r} begins several logs: {names}")
    try:
        if found:
            asyncio.run(follow(found[0], for_ever=follow_log))
        else:
            _print_remote_log(configuration, wanted, follow_log=follow_log)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except (NotFoundError, NoLeaderError) as error:
        if is_remote:
            raise
        raise NotFoundError(f"no log of {wanted!r} in {directory}, nor at a leader") from error


def _log_files(directory: Path, wanted: str) -> list[Path]:
    return sorted(
        path
        for path in directory.glob("*.log")
        if any(part.startswith(wanted) for part in path.stem.rsplit("-", 1)) or path.stem == wanted
    )


def _print_remote_log(configuration: Configuration, wanted: str, *, follow_log: bool) -> None:
    cluster_id, one = find_one(configuration, wanted, application_or_job)
    application = one.get("application-id") or one["id"]

    async def ask(client: ClusterClient) -> None:
        await print_log(client, application, for_ever=follow_log)

    asyncio.run(with_client(configuration, cluster_id, ask))


# --- asking ---------------------------------------------------------------------------------------

Ask = Callable[[ClusterClient], Awaitable[Any]]


async def overview(client: ClusterClient) -> JsonObject:
    """Return the applications of a cluster, who leads it, and what needs a person."""
    try:
        answer = await client.get("/applications/overview")
        status = await client.get("/ha/status")
    except NoLeaderError:
        return await client.stored_overview()
    return {
        **answer,
        "cluster-id": status["cluster_id"],
        "leader": status["leader"]["id"],
        "attention": status["attention"],
    }


def application_named(wanted: str) -> Ask:
    """Return a query for an application: to the leader, or to storage if there is no leader."""

    async def ask(client: ClusterClient) -> JsonObject:
        try:
            return await client.get(f"/applications/{wanted}")
        except NoLeaderError:
            return await client.stored_application(wanted)

    return ask


def application_or_job(wanted: str, *, strict: bool = False) -> Ask:
    """Return a query for an application or a job.

    The id of an application or a run comes first, then the id or name of a job, then beginnings of
    ids. ``strict``: the query raises `UsageError` where an application that runs and one of its
    jobs could both be meant.
    """

    async def ask(client: ClusterClient) -> JsonObject:
        application: JsonObject | None = None
        missing: NotFoundError | None = None
        try:
            application = await application_named(wanted)(client)
        except NotFoundError as error:
            missing = error
        exact = application is not None and wanted in {application["id"], application["run-id"]}
        if application and exact and not strict:
            return application
        jobs = await _jobs(client)
        called = [one for one in jobs if wanted in {one["jid"], one["name"]}]
        if application and (exact or not called):
            begun = [one for one in jobs if len(wanted) >= 4 and one["jid"].startswith(wanted)]
            if strict:
                _refuse_both(wanted, application, called if exact else begun)
            return application
        found = job_named(wanted, jobs)
        if found is None:
            raise missing or NotFoundError(f"there is no {printable(wanted)!r} here")
        return found

    return ask


async def _jobs(client: ClusterClient) -> list[JsonObject]:
    try:
        found: list[JsonObject] = (await client.get("/jobs/overview"))["jobs"]
    except NoLeaderError:
        found = await client.stored_jobs()
    return found


def _refuse_both(wanted: str, application: JsonObject, jobs: Iterable[JsonObject]) -> None:
    """Raise `UsageError` if a job that runs could be meant as well as its application."""
    running = [one for one in jobs if one["state"] not in ENDED]
    if running and application["status"] not in {*ENDED, INTERRUPTED}:
        raise UsageError(
            f"{printable(wanted)!r} is run {application['run-id']} ({application['id']}) and job "
            f"{printable(running[0]['name'])!r} ({running[0]['jid']}): give the id of one"
        )


def _with_application(wanted: str) -> Ask:
    """Return a query for an application; for a job, its application with this job only."""

    async def ask(client: ClusterClient) -> JsonObject:
        found: JsonObject = await application_or_job(wanted)(client)
        if "jid" not in found:
            return found
        whole: JsonObject = await application_named(found["application-id"])(client)
        return {**whole, "jobs": [one for one in whole["jobs"] if one["jid"] == found["jid"]]}

    return ask


def job_named(wanted: str, jobs: Iterable[JsonObject]) -> JsonObject | None:
    """Return the job with this id, beginning of an id, or name; a job that runs comes first.

    Raises `UsageError` if there are several.
    """
    jobs = [*jobs]
    identified = [one for one in jobs if one["jid"] == wanted]
    named = [one for one in jobs if one["name"] == wanted]
    running = [one for one in named if one["state"] not in ENDED]
    prefixed = [one for one in jobs if len(wanted) >= 4 and one["jid"].startswith(wanted)]
    return only_one((identified, running, named, prefixed), wanted)


async def with_client(configuration: Configuration, cluster_id: str, ask: Ask) -> Any:
    """Run a query against one cluster."""
    client = await _client(configuration, cluster_id)
    try:
        return await ask(client)
    finally:
        await client.close()


async def _client(configuration: Configuration, cluster_id: str) -> ClusterClient:
    services = open_services(configuration, cluster_id)
    security = RestSecurity.of(configuration, asks=True)

    def notify(words: str) -> None:
        typer.echo(f"understudy: {words}", err=True)

    if target := configuration.find(options.TARGET):
        return RemoteClient(
            services,
            target,
            configuration.get(options.CLIENT_TIMEOUT),
            security,
            await_leader_s=configuration.get(options.AWAIT_LEADER),
            notify=notify,
        )
    past = past_runs.of_cluster(configuration, cluster_id)
    if past and not await _has_registry(services):
        return PastClient(services, past)

    async def lives() -> bool:
        locks = locks_directories(configuration, cluster_id)
        return bool(locks) and bool(await LivenessLocks(*locks).living())

    return ClusterClient(
        services,
        configuration.get(options.CLIENT_TIMEOUT),
        security,
        await_leader_s=configuration.get(options.AWAIT_LEADER),
        notify=notify,
        lives=lives,
    )


async def _has_registry(services: HighAvailabilityServices) -> bool:
    """Return whether the cluster of a past run has been started again, as far as is known."""
    try:
        return await services.registry.read() is not None
    except (OSError, TimeoutError, DataError):
        return True  # The query itself says what is wrong.


async def _gather(configuration: Configuration) -> list[tuple[str, JsonObject]]:
    """Return the applications of all clusters; an unreachable cluster becomes a problem entry."""
    found: list[tuple[str, JsonObject]] = []
    async for cluster_id in clusters_of(configuration):
        try:
            answer = await with_client(configuration, cluster_id, overview)
        except (UnderstudyError, OSError, TimeoutError) as error:
            problem = {"id": cluster_id, "problem": str(error) or "does not answer in time"}
            answer = {"applications": [], "leader": None, "attention": [problem], "unasked": True}
        found.append((answer.get("cluster-id", cluster_id), answer))
    return found


def find_one(
    configuration: Configuration, wanted: str, ask_for: Callable[[str], Ask]
) -> tuple[str, JsonObject]:
    """Return the id and the answer of the one cluster that knows ``wanted``."""

    damage: list[DataError] = []

    async def look() -> list[tuple[str, JsonObject]]:
        found = []
        async for cluster_id in clusters_of(configuration):
            try:
                answer = await with_client(configuration, cluster_id, ask_for(wanted))
            except NotFoundError:
                continue
            except DataError as error:
                damage.append(error)
                continue
            found.append((cluster_id, answer))
        return found

    found = asyncio.run(look())
    if not found and damage:
        raise damage[0]
    if not found:
        where = configuration.settings.get(options.TARGET.key, configuration.storage_dir)
        raise NotFoundError(f"there is no {wanted!r} in {where}")
    if len(found) > 1:
        names = ", ".join(cluster_id for cluster_id, _ in found)
        raise UnderstudyError(
            f"{wanted!r} is known to several clusters ({names}): choose with "
            f"-D {options.CLUSTER_ID.key}=…"
        )
    return found[0]


def only_one(choices: Iterable[Sequence[JsonObject]], wanted: str) -> JsonObject | None:
    """Return the job of the first non-empty choice. Raises `UsageError` if it has several."""
    for candidates in choices:
        if len(candidates) > 1:
            raise UsageError(
                f"{len(candidates)} jobs are called {printable(wanted)!r}: give the id of one"
            )
        if candidates:
            return dict(candidates[0])
    return None


async def clusters_of(configuration: Configuration) -> AsyncIterator[str]:
    """Yield the configured cluster, or every cluster in the backend or storage directory.

    Clusters of past runs follow.
    """
    configured_id = cluster_id_of(configuration)
    if configuration.is_standalone or configuration.find(options.TARGET) is not None:
        configured_id = configured_id or DEFAULT_CLUSTER_ID  # The address identifies it.
    if configured_id:
        yield configured_id
        return
    past = past_runs.known(configuration)
    async for name in _present(configuration):
        past.pop(name, None)
        yield name
    for name in past:
        yield name


async def _present(configuration: Configuration) -> AsyncIterator[str]:
    """Yield every cluster that has data."""
    backend = open_services(configuration, DEFAULT_CLUSTER_ID).backend
    if isinstance(backend, ListsClusters):
        for name in await backend.clusters():
            yield name
        return
    storage = open_storage(configuration.storage_dir)
    if not isinstance(storage, LocalStorage):
        raise UnderstudyError(f"set {options.CLUSTER_ID.key}: the storage is not on this host")
    for name in await asyncio.to_thread(storage.names, ""):
        if await asyncio.to_thread(_is_cluster, storage, name):
            yield name


def _is_cluster(storage: LocalStorage, name: str) -> bool:
    """Return whether a directory is a cluster's, even if its register is lost."""
    return any(
        storage.exists(f"{name}/{part}") for part in ("register", "applications", "tombstones")
    )


# --- printing -------------------------------------------------------------------------------------


def print_json(value: object) -> None:
    """Print one line of JSON."""
    json.dump(value, sys.stdout)  # In ASCII, which every terminal and pipe can take.
    sys.stdout.write("\n")


def _result_line(one: JsonObject) -> str:
    answer = one.get("job-execution-result")
    if answer is None:
        return "  (continues)"
    status = answer["application-status"].replace("SUCCEEDED", "FINISHED")
    text = json.dumps(answer.get("value"))
    if "failure-cause" in answer:
        cause = answer["failure-cause"]
        text = f"{cause['class']}: {cause['message']}"
    text += "".join(f"\n    {kind}: {answer[kind]}" for kind in KEPT if answer.get(kind))
    return f"  {printable(answer['name'])}: {status} in attempt {answer['attempt']}: {text}"


def print_attention(attention: list[JsonObject]) -> None:
    """Print the problems that need a person."""
    for one in attention:
        typer.echo(printable(f"needs attention: {one['id']}: {one['problem']}"))


def console() -> Console:
    """Return the console for tables: as wide as they are, unless a terminal limits them."""
    from rich.console import Console

    return Console() if is_terminal(sys.stdout) else Console(width=PIPED_WIDTH)


def cell(text: str) -> Text:
    """Return literal text: neither control characters nor markup take effect."""
    return _text(printable(text))


def _text(text: str) -> Text:
    from rich.text import Text

    return Text(text)


def _mark(job: JsonObject) -> str:
    if job.get("reached") is None:
        return ""
    marks = [word for word in ("adopted", "skipped", "displaced") if job.get(word)]
    if not job["reached"]:
        marks.insert(0, "not reached")
    elif not marks:
        marks = ["reached"]
    return ", ".join(marks) + (f" ({job['reason']})" if job.get("reason") else "")


def when(milliseconds: int) -> str:
    """Return a timestamp in this host's time zone."""
    return datetime.fromtimestamp(milliseconds / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def long(milliseconds: int) -> str:
    """Return a duration for people."""
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
