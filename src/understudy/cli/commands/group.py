"""The commands of ``understudy``, each imported when it is typed."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import typer
from typer.core import TyperGroup

from understudy.cli.commands import examples
from understudy.version import VERSION

MODULES = {
    "run-application": "run",
    "jobmanager": "run",
    "taskmanager": "run",
    "check": "check",
    "list": "ask",
    "info": "ask",
    "cancel": "cancelling",
    "result": "ask",
    "logs": "ask",
    "ps": "ps",
    "checkpoints": "checkpoints",
    "savepoint": "savepoint",
    "stop": "savepoint",
    "artifacts": "artifacts",
    "destroy": "destroy",
    "token": "token",
    "cleanup": "cleanup",
    "run": "submit",
    "session": "session",
    "cluster": "standing_cluster",
    "zookeeper": "zookeeper",
    "completion": "completion",
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
            loaded = typer.main.get_group(part).commands
            for name, command in loaded.items():
                examples.add(name, command)
            self.commands.update(loaded)


app = typer.Typer(
    name="understudy",
    help="High availability for PySpark: the job continues when its driver, its JobManager or its "
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
