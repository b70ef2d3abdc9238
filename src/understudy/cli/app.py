"""The command ``understudy``."""

from __future__ import annotations

import signal
import sys

import typer
from typer.core import TyperGroup

from understudy.cli.commands import (
    ask,
    checkpoints,
    cleanup,
    destroy,
    run,
    savepoint,
    standing_cluster,
    token,
    zookeeper,
)
from understudy.config.secrets import masked
from understudy.errors import UnderstudyError, UsageError
from understudy.process.reporter import printable_lines
from understudy.version import VERSION

app = typer.Typer(
    name="understudy",
    help="High availability for PySpark: the job goes on when its driver, its JobManager or its "
    "leader dies.",
    no_args_is_help=True,
    add_completion=False,
    cls=TyperGroup,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(VERSION)
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, help="Print the version."),
) -> None:
    """Take what stands before the command."""


run.register(app)
ask.register(app)
checkpoints.register(app)
savepoint.register(app)
cleanup.register(app)
destroy.register(app)
token.register(app)
standing_cluster.register(app)
zookeeper.register(app)


def main() -> None:
    """Run the command that was typed; exit with its code."""
    try:
        app(standalone_mode=True)
    except UnderstudyError as error:
        typer.echo(f"understudy: {printable_lines(masked(str(error)))}", err=True)
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except OSError as error:  # The register or the storage, once all patience is over.
        said = str(error) or "there was no answer in time"
        typer.echo(f"understudy: {printable_lines(masked(said))}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
