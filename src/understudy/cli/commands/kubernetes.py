"""Deploying on Kubernetes: `-t kubernetes-application` and `-t kubernetes-session`.

The commands keep their names and options, as Flink's do; `-t`, or ``execution.target``, says where.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli.commands.ask import print_json
from understudy.cli.commands.common import Size, configured
from understudy.cli.launch.flags import Command, extended, flag
from understudy.cli.launch.kubernetes_plan import (
    Further,
    application_arguments,
    blueprint,
    cluster_name,
    completed,
    readable_secrets,
    requirements_setting,
)
from understudy.cli.launch.spark_submit import check_configured
from understudy.config import Configuration, options
from understudy.config.configuration import load_configuration
from understudy.core.ids import is_run_id
from understudy.errors import UnderstudyError, UsageError

if TYPE_CHECKING:
    from understudy.cli.commands.restoring import AnyRun
    from understudy.cli.launch.typed import Typed

TARGET = typer.Option(
    "--target",
    "-t",
    metavar="local|kubernetes-application|kubernetes-session",
    help="Where: on this machine, or in pods.",
    show_default=False,
)
DRY_RUN = typer.Option("--dry-run", help="Print the manifests as YAML, and do nothing.")


def deploys_applications(command: Command) -> Command:
    """Add -t and --dry-run to run-application: a target in pods is deployed."""

    def elsewhere(target: str, *, dry_run: bool, given: dict[str, Any]) -> bool:
        if target == options.KUBERNETES_SESSION:
            raise UsageError(
                f"-t {target}: `understudy session start -t {target}` starts it, `understudy run "
                f"-t {target}` submits to it; a cluster for one application is "
                f"{options.KUBERNETES_APPLICATION}"
            )
        if target == options.KUBERNETES_APPLICATION:
            _deploy_application(given, dry_run=dry_run)
        return target == options.KUBERNETES_APPLICATION

    return _with_target(command, elsewhere)


def deploys_sessions(command: Command) -> Command:
    """Add -t and --dry-run to `session start`."""

    def elsewhere(target: str, *, dry_run: bool, given: dict[str, Any]) -> bool:
        _refuse_application(target)
        if target != options.KUBERNETES_SESSION:
            return False
        size: Size = given["size"]
        typed = {"--jobmanagers": size.jobmanagers, "--taskmanagers": size.taskmanagers}
        for name, count in typed.items():
            if count is not None:
                raise UsageError(
                    f"{name}: in pods, {options.K8S_REPLICAS.key} and "
                    f"{options.SLOTS_MIN.key} say how many"
                )
        configuration = completed(_configured(given).with_settings(size.settings), target)
        _deploy(configuration, (), None, dry_run=dry_run, as_json=False)
        return True

    return _with_target(command, elsewhere)


def stops_sessions(command: Command) -> Command:
    """Add -t to `session stop`: the pods go, the data stays."""

    def elsewhere(target: str, *, dry_run: bool, given: dict[str, Any]) -> bool:
        _refuse_application(target)
        if target == options.KUBERNETES_SESSION:
            _stop_session(_configured(given))
        return target == options.KUBERNETES_SESSION

    return _with_target(command, elsewhere, dry=False)


def shows_sessions(show: Callable[..., None]) -> Callable[[Command], Command]:
    """Add -t to `session status`: ``show`` takes the configuration, and ``as_json``."""

    def elsewhere(target: str, *, dry_run: bool, given: dict[str, Any]) -> bool:
        _refuse_application(target)
        if target == options.KUBERNETES_SESSION:
            with _said_plainly():
                show(_configured(given), as_json=bool(given.get("as_json")))
        return target == options.KUBERNETES_SESSION

    return lambda command: _with_target(command, elsewhere, dry=False)


def destroys_clusters(command: Command) -> Command:
    """Add -t to `destroy`: the data of a cluster whose pods have gone."""

    def elsewhere(target: str, *, dry_run: bool, given: dict[str, Any]) -> bool:
        if target in options.ON_KUBERNETES_TARGETS:
            # httpx: where it is used.
            from understudy.cli.launch.kubernetes_pods import settings_to_destroy

            with _said_plainly():
                settings = settings_to_destroy(_configured(given))
            given["overrides"] = [f"{key}={text}" for key, text in settings.items()]
        return False

    return _with_target(command, elsewhere, dry=False)


def _refuse_application(target: str) -> None:
    if target == options.KUBERNETES_APPLICATION:
        raise UsageError(
            f"-t {target}: a session is {options.KUBERNETES_SESSION}; `understudy run-application "
            f"-t {target}` starts a cluster for one application"
        )


def _with_target(command: Command, elsewhere: Callable[..., bool], *, dry: bool = True) -> Command:
    """Extend a command by -t; ``elsewhere`` returns whether it has done what was asked."""
    flags = [flag("target", Annotated[str | None, TARGET])]
    if dry:
        flags.append(flag("dry_run", Annotated[bool, DRY_RUN], default=False))

    @functools.wraps(command)
    def typed(**given: Any) -> None:
        said, dry_run = given.pop("target", None), bool(given.pop("dry_run", False))
        target = said or _configured_target(given) or "local"
        known = ("local", *options.ON_KUBERNETES_TARGETS)
        if said and said not in known:
            raise UsageError(f"--target {said}: expected one of {', '.join(known)}")
        if elsewhere(target, dry_run=dry_run, given=given):
            return
        if dry_run:
            raise UsageError("--dry-run prints the manifests of pods: give -t kubernetes-…, too")
        command(**given)

    return extended(command, flags, typed)


def _configured_target(given: dict[str, Any]) -> str | None:
    directory: Path | None = given.get("config_dir")
    configuration = load_configuration(directory, given.get("overrides") or [])
    found: str | None = configuration.find(options.EXECUTION_TARGET)
    return found if found in options.ON_KUBERNETES_TARGETS else None


def _configured(given: dict[str, Any]) -> Configuration:
    return configured(given.get("config_dir"), given.get("overrides"))


def _deploy_application(given: dict[str, Any], *, dry_run: bool) -> None:
    typed: Typed = given["typed"]
    size: Size = given["size"]
    run: AnyRun = given["run"]
    for name, value in (("--jobmanagers", size.jobmanagers), ("--resume", run.resume)):
        if value:
            raise UsageError(
                f"{name} has no meaning in pods: {options.K8S_REPLICAS.key} says how many "
                "JobManagers there are, and an unfinished run is continued"
            )
    if run.run_id is not None and not is_run_id(run.run_id):
        raise UsageError(f"--run-id {run.run_id!r}: letters, digits, '.', '_' and '-'")
    restore = run.restore
    claim = restore.claim.value if restore.claim else ""
    further = Further(run.rerun, restore.paths, restore.allow_non_restored, claim)
    arguments = application_arguments(typed, further)
    before = _configured(given).with_settings({**size.settings, **requirements_setting(typed.said)})
    configuration = completed(before, options.KUBERNETES_APPLICATION)
    check_configured(configuration, typed.said.conf)
    as_json = bool(given.get("as_json"))
    _deploy(configuration, arguments, run.run_id, dry_run=dry_run, as_json=as_json)


def _deploy(
    configuration: Configuration,
    arguments: tuple[str, ...],
    run_id: str | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Deploy a cluster, or print its manifests."""
    from understudy.cli.launch import kubernetes_deploying as deploying  # httpx: where it is used.
    from understudy.kubernetes.access import access_of
    from understudy.kubernetes.manifests import as_yaml

    for key in readable_secrets(configuration):
        typer.echo(
            f"understudy: the value of {key} can be read in a ConfigMap: put it into a Secret, and "
            f"name that in {options.K8S_SECRET_VARIABLES.key} or {options.K8S_SECRETS.key}",
            err=True,
        )
    is_session = configuration.get(options.SESSION)
    if dry_run:
        namespace = configuration.find(options.K8S_NAMESPACE) or "default"
        planned = blueprint(configuration, namespace, arguments)
        run = None if is_session else run_id or deploying.new_run_id()
        typer.echo(as_yaml(replace(planned, run_id=run).objects()), nl=False)
        return
    access = access_of(configuration)
    planned = blueprint(configuration, access.namespace, arguments)

    async def deployed() -> deploying.Deployed:
        client = deploying.client_of(access)
        cluster_id = configuration.get(options.CLUSTER_ID)
        wanted = planned
        if not is_session:
            unfinished = await deploying.run_to_continue(configuration, cluster_id)
            wanted = replace(planned, run_id=_run(run_id, unfinished))
        return await deploying.deploy(client, wanted)

    with _said_plainly():
        found = asyncio.run(deployed())
    _tell(configuration, planned.cluster, access.namespace, found, as_json=as_json)


def _run(asked: str | None, unfinished: str | None) -> str | None:
    """Return the run to deploy; None: a new one, or that of the Deployment that exists."""
    if asked and unfinished and asked != unfinished:
        raise UsageError(
            f"run {unfinished} is unfinished, and comes before run {asked}: leave out --run-id to "
            "continue it, or cancel it first"
        )
    return asked or unfinished


def _tell(
    configuration: Configuration, cluster: str, namespace: str, found: Any, *, as_json: bool
) -> None:
    told = {"cluster-id": cluster, "namespace": namespace, "run-id": found.run_id}
    if as_json:
        print_json({**told, "new": found.is_new})
        return
    target = configuration.get(options.EXECUTION_TARGET)
    what = f"run {found.run_id}" if found.run_id else "a session"
    is_there = "is deployed" if found.is_new else "is there already"
    typer.echo(f"{cluster!r} {is_there} in namespace {namespace}: {what}")
    given = f"-t {target} -D {options.K8S_CLUSTER_ID.key}={cluster}"
    typer.echo(f"`understudy list {given}` shows it; `kubectl -n {namespace} get pods`, too")


def _stop_session(configuration: Configuration) -> None:
    from understudy.cli.launch import kubernetes_deploying as deploying  # httpx: where it is used.
    from understudy.kubernetes.access import access_of

    cluster = cluster_name(configuration)
    if cluster is None:
        raise UsageError(f"name the session: -D {options.K8S_CLUSTER_ID.key}=NAME")
    access = access_of(configuration)

    async def stopped() -> bool:
        client = deploying.client_of(access)
        was_there = await deploying.remove(client, cluster)
        await deploying.until_ended(client, cluster)
        return was_there

    with _said_plainly():
        was_there = asyncio.run(stopped())
    how = "is stopped" if was_there else "does not run"
    typer.echo(f"session {cluster!r} {how} in namespace {access.namespace}; its data is kept")


@contextlib.contextmanager
def _said_plainly() -> Iterator[None]:
    """Raise what the API server refuses as an error of the command."""
    try:
        yield
    except PermissionError as error:
        raise UsageError(str(error)) from error
    except TimeoutError as error:
        raise UnderstudyError(str(error) or "the API server does not answer in time") from error
    except OSError as error:
        raise UnderstudyError(str(error)) from error
