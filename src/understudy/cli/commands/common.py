"""Options and configuration shared by the commands."""

from __future__ import annotations

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
