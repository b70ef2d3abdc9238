"""The command ``understudy``."""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Iterable
from typing import Any

import typer
from typer.core import TyperGroup

from understudy.config.secrets import masked
from understudy.errors import UnderstudyError, UsageError
from understudy.process.reporter import printable_lines
from understudy.version import VERSION

MODULES = {
    "run-application": "run",
    "jobmanager": "run",
    "taskmanager": "run",
    "list": "ask",
    "info": "ask",
    "cancel": "ask",
    "result": "ask",
    "logs": "ask",
    "checkpoints": "checkpoints",
    "savepoint": "savepoint",
    "stop": "savepoint",
    "destroy": "destroy",
    "token": "token",
    "cleanup": "cleanup",
    "cluster": "standing_cluster",
    "zookeeper": "zookeeper",
}
"""Each command, in the order of the help text, with the module of `understudy.cli.commands`."""


class Commands(TyperGroup):
    """The commands; a command imports its own module, and nothing that only others need."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands; the help text needs the commands, too."""
        self._load(MODULES.values())
        return list(MODULES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of this name."""
        # For a name that is none, similar names are offered: of all commands.
        self._load([MODULES[cmd_name]] if cmd_name in MODULES else MODULES.values())
        return self.commands.get(cmd_name)

    def _load(self, modules: Iterable[str]) -> None:
        for module in dict.fromkeys(modules):
            part = typer.Typer()
            imported = importlib.import_module(f"understudy.cli.commands.{module}")
            imported.register(part)
            self.commands.update(typer.main.get_group(part).commands)


app = typer.Typer(
    name="understudy",
    help="High availability for PySpark: the job goes on when its driver, its JobManager or its "
    "leader dies.",
    no_args_is_help=True,
    add_completion=False,
    cls=Commands,
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
