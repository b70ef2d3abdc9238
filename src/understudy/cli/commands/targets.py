"""The cluster that a command asks: --target and --token-file, declared once for all commands.

Both become settings, so that what reads the configuration need not know of them.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Any

import typer

from understudy.cli.launch.flags import Command, extended, flag
from understudy.config import Configuration, options
from understudy.config.configuration import load_configuration
from understudy.errors import UsageError

URL = typer.Option(
    "--target",
    "-t",
    metavar="URL|kubernetes-…",
    help="Ask the JobManager at this URL, or at several with commas between, instead of finding "
    "the cluster by its configuration; kubernetes-application, kubernetes-session: the JobManagers "
    "in pods, by kubernetes.cluster-id.",
    show_default=False,
)
TOKEN = typer.Option(
    "--token-file",
    metavar="FILE",
    help="A file with the token to send, of a viewer or an admin.",
    show_default=False,
)


def takes_target(command: Command) -> Command:
    """Add --target and --token-file to a command, which receives them among its ``overrides``."""
    flags = [
        flag("target", Annotated[str | None, URL]),
        flag("token_file", Annotated[Path | None, TOKEN]),
    ]

    @functools.wraps(command)
    def typed(**given: Any) -> None:
        target, token_file = given.pop("target", None), given.pop("token_file", None)
        overrides = given.get("overrides") or []
        given["overrides"] = asked(target, token_file, overrides, given.get("config_dir"))
        command(**given)

    return extended(command, flags, typed)


def asked(
    target: str | None, token_file: Path | None, overrides: list[str], config_dir: Path | None
) -> list[str]:
    """Return -D options with those that the target means. Raises `UsageError`."""
    on_kubernetes = target in options.ON_KUBERNETES_TARGETS
    found = [*overrides, *settings_of(None if on_kubernetes else target, token_file)]
    if on_kubernetes:
        found.append(f"{options.EXECUTION_TARGET.key}={target}")
    if target is None or on_kubernetes:
        configuration = load_configuration(config_dir, found)
        said = configuration.find(options.EXECUTION_TARGET)
        if said in options.ON_KUBERNETES_TARGETS and not configuration.find(options.TARGET):
            found += in_pods(configuration)
    return found


def in_pods(configuration: Configuration) -> list[str]:
    """Return the -D options with which a command asks a cluster in pods. Raises `UsageError`."""
    from understudy.cli.launch.kubernetes_pods import settings_for  # httpx: where it is used.

    try:
        return [f"{key}={text}" for key, text in settings_for(configuration).items()]
    except OSError as error:
        raise UsageError(str(error) or "the API server does not answer in time") from error


def settings_of(target: str | None, token_file: Path | None) -> list[str]:
    """Return settings as -D options. Raises `UsageError`."""
    found = []
    if target is not None:
        if "://" not in target:
            raise UsageError(
                f"--target {target}: expected the URL of a JobManager, such as http://host:8081"
            )
        found.append(f"{options.TARGET.key}={target}")
    if token_file is not None:
        found.append(f"{options.BEARER_FILE.key}={token_file.absolute()}")
    return found
