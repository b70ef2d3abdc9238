"""The commands of ``understudy``, each imported when it is typed."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import typer
from typer.core import TyperGroup

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
                add_examples(name, command)
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


# --- examples below the help text of each command -------------------------------------------------


EXAMPLES: dict[str, tuple[str, ...]] = {
    "run-application": (
        "understudy run-application app.py an-argument",
        "understudy run-application --master spark://host:7077 --py-files lib.zip app.py",
        "understudy run-application -m package.module",
        "understudy run-application -t kubernetes-application -D kubernetes.cluster-id=flights "
        "local:///opt/app/etl.py",
        "understudy run-application -D high-availability.cluster-id=nightly --run-id monday app.py",
    ),
    "jobmanager": (
        "understudy jobmanager -D high-availability.cluster-id=nightly app.py",
        "understudy jobmanager -D high-availability.cluster-id=nightly    (a standby)",
    ),
    "taskmanager": ("understudy taskmanager -D high-availability.cluster-id=nightly",),
    "check": (
        "understudy check app.py an-argument",
        "understudy check --master spark://host:7077 -m package.module",
    ),
    "list": ("understudy list", "understudy list --json"),
    "info": ("understudy info 3f1c",),
    "cancel": ("understudy cancel 3f1c",),
    "result": ("understudy result monday --json",),
    "logs": ("understudy logs -f 3f1c",),
    "ps": ("understudy ps", "understudy ps --json"),
    "checkpoints": ("understudy checkpoints board",),
    "savepoint": ("understudy savepoint board /data/savepoints",),
    "stop": ("understudy stop --savepoint board /data/savepoints",),
    "artifacts list": ("understudy artifacts list --json",),
    "artifacts upload": ("understudy artifacts upload etl.py",),
    "artifacts delete": ("understudy artifacts delete 3f1c0d…_etl.py",),
    "destroy": ("understudy destroy -D high-availability.cluster-id=nightly --yes",),
    "token": (
        'curl -H "Authorization: Bearer $(understudy token)" https://host:8081/overview',
        "understudy token --new alice >> viewers",
    ),
    "cleanup retry": ("understudy cleanup retry 3f1c",),
    "cleanup abandon": ("understudy cleanup abandon 3f1c",),
    "run": (
        "understudy run app.py an-argument",
        "understudy run -d --run-id monday --py-files lib.zip app.py",
        "understudy run --target https://host:8081 --token-file alice.token app.py",
        "understudy run --target local app.py",
        "understudy run -t kubernetes-session -D kubernetes.cluster-id=shared app.py",
    ),
    "session start": (
        "understudy session start",
        "understudy session start --taskmanagers 2 --slots 4",
        "understudy session start --config-dir conf",
        "understudy session start -t kubernetes-session -D kubernetes.cluster-id=shared",
    ),
    "session stop": ("understudy session stop",),
    "session status": ("understudy session status --json",),
    "cluster start": ("understudy cluster start --config-dir conf app.py",),
    "cluster stop": ("understudy cluster stop --config-dir conf",),
    "cluster status": ("understudy cluster status --config-dir conf",),
    "zookeeper start": ("understudy zookeeper start",),
    "zookeeper stop": ("understudy zookeeper stop",),
    "zookeeper status": ("understudy zookeeper status",),
    "completion": (
        'eval "$(understudy completion bash)"',
        'eval "$(understudy completion zsh)"',
        "understudy completion fish > ~/.config/fish/completions/understudy.fish",
    ),
}
"""By command; each example is a line."""


def add_examples(name: str, command: Any) -> None:
    """Put the examples of a command, or of the commands of a group, below the help text."""
    for inner, one in getattr(command, "commands", {}).items():
        add_examples(f"{name} {inner}", one)
    if name in EXAMPLES:
        # An empty line between two keeps them on lines of their own.
        command.epilog = "\n\n".join(("Examples:", *EXAMPLES[name]))
