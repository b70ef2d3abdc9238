"""Commands that run an application or a process: run-application, jobmanager, taskmanager."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
import uuid
from dataclasses import replace
from typing import Annotated, NoReturn

import msgspec
import typer

from understudy.cli.commands.common import (
    DEFAULT_CLUSTER_ID,
    JOBMANAGERS,
    TASKMANAGERS,
    ConfigDir,
    Json,
    Overrides,
    Size,
    cluster_id_of,
    configured,
)
from understudy.cli.commands.kubernetes import deploys_applications
from understudy.cli.commands.restoring import AnyRun, Restore, restored_spec
from understudy.cli.launch import past_runs
from understudy.cli.launch.admission import await_rights
from understudy.cli.launch.cluster import ClusterPlan
from understudy.cli.launch.compose import (
    EXIT_CODES,
    check_storage_dir,
    open_services,
    release_registers,
    scratch_base,
)
from understudy.cli.launch.flags import grouped
from understudy.cli.launch.hosts import check_host, reachable_as, shown_as
from understudy.cli.launch.interpreter import Python
from understudy.cli.launch.joining import (
    START_WAY_OUT,
    check_first_job_id,
    check_startable_here,
    patiently,
    refuse_session,
)
from understudy.cli.launch.notify import notifier
from understudy.cli.launch.preflight import (
    check_drivers_fit,
    check_drivers_start,
    check_master,
    check_master_answers,
)
from understudy.cli.launch.redeploying import (
    AskedStart,
    changes_of,
    follows,
    refusal,
    stored_run,
    tell_continued,
)
from understudy.cli.launch.running import run_cluster
from understudy.cli.launch.show import PlainView
from understudy.cli.launch.spark_submit import SparkSubmit, check_configured
from understudy.cli.launch.spec import (
    ApplicationSpec,
    WorkerSpec,
    check_handed_on,
    guarded,
    new_worker,
    own_incarnation,
)
from understudy.cli.launch.story import Story, reason_of
from understudy.cli.launch.submitting import (
    adopted_settings,
    application_spec,
    unconverted,
)
from understudy.cli.launch.typed import Typed
from understudy.config import Configuration, options
from understudy.config.configuration import quoted
from understudy.config.security import is_loopback, links_over_tcp
from understudy.core.ids import RUN_ID_MAX, is_run_id
from understudy.errors import (
    DataError,
    ForeignDataError,
    NotFoundError,
    UnderstudyError,
    UsageError,
)
from understudy.ha import layout
from understudy.jobmanager.redeployment import NO_CHANGES
from understudy.jobmanager.retention import read_tombstone
from understudy.model import RegistryBody, Tombstone, TombstoneFile
from understudy.process import guardian, processes
from understudy.process.given_files import check_storable

Host = Annotated[
    str | None,
    typer.Option("--host", help="The name or address by which other hosts reach this process."),
]
PASS_THROUGH = {"allow_interspersed_args": False}
"""Arguments after APP belong to the application."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("run-application", context_settings=PASS_THROUGH)(run_application)
    app.command("jobmanager", context_settings=PASS_THROUGH)(jobmanager)
    app.command("taskmanager")(taskmanager)


@grouped
@deploys_applications
def run_application(
    typed: Typed,
    size: Size,
    run: AnyRun,
    overrides: Overrides = None,
    config_dir: ConfigDir = None,
    as_json: Json = False,
) -> None:
    """Start a cluster here (-t: in pods), run one application, stop the cluster.

    With --resume, APP is not needed. Exit code: 0 FINISHED, 1 FAILED, 2 bad usage, 3 CANCELED,
    130 interrupted.
    """
    configuration = configured(config_dir, size.overruling(overrides))
    refuse_session(configuration)
    run_id, taskmanagers = checked_run_id(run.run_id), size.taskmanagers or TASKMANAGERS
    spec, conf = None, {}
    if run.resume:
        _refuse_with_resume(typed, run.restore)
        stored = stored_run(configuration, cluster_id_of(configuration), run_id)
        configuration, conf = stored.configuration, stored.conf
        check_drivers_fit(configuration, taskmanagers)
    elif typed.app is None:
        raise UsageError("give APP (a script, or module:function), or --resume an unfinished run")
    else:
        check_drivers_fit(configuration, taskmanagers)
        spec = application_spec(configuration, typed)
        conf = spec.conf
        check_configured(configuration, conf)
    check_handed_on(configuration, spec)
    asked = AskedStart(run_id, spec, run.rerun, run.resume)
    plan = _joined(configuration, asked, size.jobmanagers, taskmanagers, as_json=as_json)
    check_drivers_start(configuration)
    check_master_answers(configuration, conf)
    if spec:
        spec = restored_spec(spec, run.restore, configuration, cluster_id_of(configuration))
        check_first_job_id(configuration, plan.cluster_id, plan.run_id)
    check_startable_here(configuration, plan.cluster_id, jobmanagers=plan.jobmanagers)
    if spec:
        say_how_it_runs(spec)
    sys.exit(run_cluster(replace(plan, application=spec), as_json=as_json))


def _refuse_with_resume(typed: Typed, restore: Restore) -> None:
    """Raise `UsageError` for what is typed beside --resume, as the stored run keeps its own."""
    said = typed.said
    given = {
        "APP": typed.app,
        "-m": typed.is_module,
        "--as": typed.runs_as,
        "--from-savepoint": restore.paths,
        "--allow-non-restored-state": restore.allow_non_restored,
        "--claim-mode": restore.claim,
        "--name": said.name,
        "--py-files": said.py_files,
        "--requirements": said.requirements,
        **{f"{key} (--conf or its own flag)": True for key in said.conf},
    }
    if named := [name for name, value in given.items() if value]:
        raise UsageError(
            f"--resume continues a run with its own code, arguments and settings: leave out "
            f"{', '.join(named)}"
        )


def _joined(
    configuration: Configuration,
    asked: AskedStart,
    jobmanagers: int | None,
    taskmanagers: int,
    *,
    as_json: bool,
) -> ClusterPlan:
    """Return the cluster to start, or to join; exit with the result of a run that has ended."""
    named = cluster_id_of(configuration)
    cluster_id = named or f"run-{uuid.uuid4().hex[:12]}"
    layout.cluster_directory(cluster_id)
    registry = asyncio.run(read_registry(configuration, cluster_id)) if named else None
    if named and registry is None:
        answer_past_run(configuration, cluster_id, asked.run_id, as_json=as_json)
    changes = changes_of(configuration, named, asked)
    run_id, ephemeral = asked.run_id, named is None
    if registry:
        answer_ended_run(configuration, cluster_id, registry, run_id, as_json=as_json)
        run_id, ephemeral = (
            continued_run(configuration, registry, run_id, resume=asked.resume),
            registry.ephemeral,
        )
        joins = follows(configuration, cluster_id, run_id)
        if not joins and run_id != asked.run_id:
            tell_continued(run_id)
    return ClusterPlan(
        configuration,
        cluster_id,
        ephemeral,
        run_id or uuid.uuid4().hex[:12],
        asked.application,
        _jobmanagers(configuration, jobmanagers),
        taskmanagers,
        changes,
    )


@grouped
def jobmanager(
    typed: Typed,
    run: AnyRun,
    host: Host = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="The port of its REST endpoint.")
    ] = None,
    overrides: Overrides = None,
    config_dir: ConfigDir = None,
) -> None:
    """Run a JobManager in the foreground; JobManagers with the same cluster id form a cluster.

    Without APP, the JobManager is a standby for the application that another one brings.
    """
    addresses = reachable_as(_checked_host(host), port, overrides)
    configuration = configured(config_dir, [*_said(addresses), *(overrides or [])])
    spec = None
    if typed.app is None:
        _check_without_application(configuration, typed.said, run)
    else:
        refuse_session(configuration)
        spec = application_spec(configuration, typed)
        check_configured(configuration, spec.conf)
        if _serves_other_hosts(configuration):
            check_storable(spec.conf)
        check_master(configuration, spec.conf)
    check_handed_on(configuration, spec)
    cluster_id = cluster_id_of(configuration) or DEFAULT_CLUSTER_ID
    layout.cluster_directory(cluster_id)
    run_id = checked_run_id(run.run_id)
    await_rights(configuration, cluster_id, jobmanager=True)
    if spec:
        check_first_job_id(configuration, cluster_id, run_id)
    check_startable_here(configuration, cluster_id)
    changes = NO_CHANGES
    if spec:
        spec = restored_spec(spec, run.restore, configuration, cluster_id)
        start = AskedStart(run_id, spec, run.rerun, run.resume)
        changes = changes_of(configuration, cluster_id, start)
        say_how_it_runs(spec)
    _become(
        msgspec.structs.replace(
            new_worker("jobmanager", configuration, cluster_id, scratch_base(configuration)),
            run_id=run_id,
            application=spec,
            changes=changes,
        )
    )


def taskmanager(
    host: Annotated[
        str | None, typer.Option("--host", help="How this host is called where it is shown.")
    ] = None,
    python: Python = None,
    overrides: Overrides = None,
    config_dir: ConfigDir = None,
) -> None:
    """Run a TaskManager in the foreground; the TaskManager finds and follows the leader."""
    name = _checked_host(host)
    said = configured(config_dir, overrides)
    configuration = Configuration({**said.settings, **shown_as(name, said, overrides)})
    check_drivers_fit(configuration)
    check_drivers_start(configuration)
    check_handed_on(configuration)
    cluster_id = cluster_id_of(configuration) or DEFAULT_CLUSTER_ID
    layout.cluster_directory(cluster_id)
    await_rights(configuration, cluster_id, jobmanager=False)
    check_startable_here(configuration, cluster_id, jobmanagers=0)
    _become(
        new_worker(
            "taskmanager", configuration, cluster_id, scratch_base(configuration), own_incarnation()
        )
    )


def _check_without_application(
    configuration: Configuration, said: SparkSubmit, run: AnyRun
) -> None:
    """Raise `UsageError` for options that need an application."""
    if configuration.is_standalone:
        raise UsageError(
            f"with {options.HA_TYPE.key} NONE there is one JobManager: give it the application"
        )
    given = (said.name, said.py_files, said.conf, said.requirements)
    if run.rerun or run.restore.paths or any(given):
        raise UsageError(
            "--rerun, --from-savepoint and spark-submit's flags are about an application: give "
            "APP, or leave them to the JobManager that brings it"
        )


def _checked_host(host: str | None) -> str | None:
    try:
        return None if host is None else check_host(host)
    except ValueError as error:
        raise UsageError(f"--host {quoted(host or '')}: {error}") from None


def _serves_other_hosts(configuration: Configuration) -> bool:
    address = configuration.find(options.BIND_HOST) or configuration.get(options.RPC_ADDRESS)
    return links_over_tcp(configuration) and not is_loopback(address)


def _said(settings: dict[str, str]) -> list[str]:
    """Return settings as -D options, placed before the typed ones, which win."""
    return [f"{key}={text}" for key, text in settings.items()]


def _jobmanagers(configuration: Configuration, wanted: int | None) -> int:
    if not configuration.is_standalone:
        return JOBMANAGERS if wanted is None else wanted
    if wanted is not None and wanted > 1:
        raise UsageError(
            f"--jobmanagers {wanted}: with {options.HA_TYPE.key} NONE there is one; choose "
            "another type for standbys"
        )
    return 1


def checked_run_id(run_id: str | None) -> str | None:
    """Return a valid run id. Raises `UsageError`."""
    if run_id is None:
        return None
    if not is_run_id(run_id):
        raise UsageError(
            f"--run-id {quoted(run_id)}: use up to {RUN_ID_MAX} letters (a to z), digits, '.', "
            "'_' and '-', beginning with a letter or digit"
        )
    return run_id


async def read_registry(configuration: Configuration, cluster_id: str) -> RegistryBody | None:
    """Return a cluster's record of its runs. Raises an error that names the way out."""
    check_storage_dir(configuration)
    try:
        return await patiently(
            configuration, open_services(configuration, cluster_id).registry.read
        )
    except ForeignDataError as error:
        raise UsageError(str(error)) from error
    except DataError as error:
        raise UnderstudyError(f"{error}: {START_WAY_OUT}") from error
    except OSError as error:  # A start is refused then; commands that only ask may try again.
        why = str(error) or "it does not answer"
        raise UsageError(f"the register cannot be used: {why}") from error


def say_how_it_runs(spec: ApplicationSpec) -> None:
    """Tell the person if all of an application runs as one job, and with which of its settings."""
    for told in (unconverted(spec), adopted_settings(spec)):
        if told:
            typer.echo(told, err=True)


def answer_ended_run(
    configuration: Configuration,
    cluster_id: str,
    registry: RegistryBody,
    run_id: str | None,
    *,
    as_json: bool,
) -> None:
    """Exit with the result of the run if it has ended."""
    _answer_bygone(registry, run_id, as_json=as_json)
    stone = {str(run): stone for run, stone in registry.tombstones.items()}.get(run_id or "")
    if stone is None:
        return
    file: TombstoneFile | None = None
    damage = ""
    try:
        file = asyncio.run(read_tombstone(open_services(configuration, cluster_id), stone))
    except (DataError, NotFoundError) as error:
        damage = str(error)
    _exit_as_ended(configuration, stone, file, damage, as_json=as_json)


def answer_past_run(
    configuration: Configuration, cluster_id: str, run_id: str | None, *, as_json: bool
) -> None:
    """Exit with the result of a run of which only a summary on this host is left."""
    past = past_runs.of_cluster(configuration, cluster_id)
    if past and past.tombstone.run_id == run_id:
        _exit_as_ended(configuration, past.tombstone, past.file, "", as_json=as_json)


def _exit_as_ended(
    configuration: Configuration,
    stone: Tombstone,
    file: TombstoneFile | None,
    damage: str,
    *,
    as_json: bool,
) -> NoReturn:
    """Show the result of an ended run; ``damage``: why nothing is known of its jobs."""
    run_id = str(stone.run_id)
    story = Story(time.time)

    def say(text: str) -> None:
        view.show({"event": "log", "line": text})

    view = PlainView(sys.stdout if as_json else None)
    with notifier(configuration, say) as posts:
        say(f"run {run_id} has ended: {stone.status.value}")
        if damage:
            say(f"what is known of its jobs cannot be read: {damage}")
        told = story.hear(
            {
                "event": "application-finished",
                "run_id": run_id,
                "status": stone.status.value,
                "failure": reason_of(file.result.failure) if file else None,
                "jobs": [
                    {
                        "job_id": job.job_id,
                        "name": job.name,
                        "status": job.status.value,
                        "attempt": job.attempt,
                    }
                    for job in (file.jobs if file else ())
                ],
            }
        )
        if told:
            view.show(told)
            posts.tell(told)
    sys.exit(EXIT_CODES[stone.status])


def _answer_bygone(registry: RegistryBody, run_id: str | None, *, as_json: bool) -> None:
    """Exit with the status of a run whose tombstone has expired."""
    status = {str(run): status for run, status in registry.ended.items()}.get(run_id or "")
    if status is None:
        return
    view = PlainView(sys.stdout if as_json else None)
    text = f"run {run_id} has ended: {status.value}; its result is kept no longer"
    view.show({"event": "log", "line": text})
    ended = {"event": "application-finished", "run_id": run_id, "status": status.value}
    told = Story(time.time).hear({**ended, "failure": None, "jobs": []})
    if told:
        view.show(told)
    sys.exit(EXIT_CODES[status])


def continued_run(
    configuration: Configuration, registry: RegistryBody, run_id: str | None, *, resume: bool
) -> str | None:
    """Return the run to execute: an unfinished run comes before a new one.

    Raises `UsageError` for another run id than that of the unfinished run.
    """
    unfinished = [str(link.run_id) for link in registry.applications.values()]
    if not unfinished or run_id in unfinished:
        return run_id
    if run_id and not resume:  # Where the record of the unfinished run is unreadable.
        differs = f"the run id is {run_id}, not {unfinished[0]}"
        raise UsageError(refusal(configuration, registry.cluster_id, unfinished[0], [differs]))
    return unfinished[0]


def _become(worker: WorkerSpec) -> NoReturn:
    """Replace this process by the guardian of the worker, which runs in the foreground."""
    spec = guarded(worker, orphan_grace_s=0.0)
    program, environment = processes.command_of(spec)
    release_registers()
    # Process 1 must not be without handlers: the guardian unblocks signals once it has some.
    signal.pthread_sigmask(signal.SIG_BLOCK, guardian.SIGNALS)
    os.execve(program[0], program, environment)  # noqa: S606
