"""Options and configuration shared by the commands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.commands import completing
from understudy.config import Configuration, options
from understudy.config.configuration import learn_secrets, load_configuration
from understudy.config.secrets import masked
from understudy.core.lease import Timing

DEFAULT_CLUSTER_ID = "default"
"""Cluster id of single processes started without one (Flink: /default)."""

SESSION_ID = "session"
"""Cluster id of a session started without one."""

ConfigDir = Annotated[
    Path | None,
    typer.Option(
        "--config-dir",
        envvar="UNDERSTUDY_CONF_DIR",
        help="Directory with config.yaml.",
        show_default=False,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "-D",
        metavar="KEY=VALUE",
        help="Set an option; may be repeated.",
        autocompletion=completing.settings,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else.")]

MEMBERS_MAX = 100
"""More JobManagers or TaskManagers than one machine can use."""

JOBMANAGERS, TASKMANAGERS = 2, 1
"""Processes of a cluster on this machine: one JobManager leads, and one stands by."""


@dataclass(frozen=True)
class Size:
    """How many processes and slots a cluster on this machine is to have; None: as usual."""

    jobmanagers: Annotated[
        int | None,
        typer.Option(
            min=1, max=MEMBERS_MAX, help="JobManagers: one leads.", show_default=str(JOBMANAGERS)
        ),
    ] = None
    taskmanagers: Annotated[
        int | None,
        typer.Option(min=1, max=MEMBERS_MAX, help="TaskManagers.", show_default=str(TASKMANAGERS)),
    ] = None
    slots: Annotated[
        int | None, typer.Option(min=1, help="Slots of a TaskManager.", show_default="2")
    ] = None

    @property
    def settings(self) -> dict[str, str]:
        """Return what of this is a setting of the cluster."""
        return {} if self.slots is None else {options.SLOTS.key: str(self.slots)}

    def overruling(self, overrides: list[str] | None) -> list[str]:
        """Return -D options with those that this means, which win."""
        return [*(overrides or []), *(f"{key}={text}" for key, text in self.settings.items())]


AS_USUAL = Size()


def configured(directory: Path | None, overrides: list[str] | None) -> Configuration:
    """Read and check the configuration; warnings go to stderr."""
    configuration = load_configuration(directory, overrides or [])
    Timing.of(configuration)
    learn_secrets(configuration.settings, configuration.get(options.REDACTED_KEYS))
    for warning in configuration.warnings:
        typer.echo(f"understudy: {masked(warning)}", err=True)
    return configuration


def cluster_id_of(configuration: Configuration) -> str | None:
    """Return the configured cluster id, or None."""
    return configuration.find(options.CLUSTER_ID)
