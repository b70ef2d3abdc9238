"""The application as a command line names it: APP, its arguments, and how it is to run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import typer

from understudy.cli.launch.interpreter import Python
from understudy.cli.launch.spark_submit import SparkSubmit
from understudy.cli.launch.spec import RunsAs

APP_HELP = "A script or notebook (its path or URL), or module:function; with -m, a module."


@dataclass(frozen=True)
class Typed:
    """The application as it was typed; a command that does not need one may be without APP."""

    app: Annotated[str | None, typer.Argument(help=APP_HELP, show_default=False)] = None
    args: Annotated[tuple[str, ...], typer.Argument(help="Arguments of the application.")] = ()
    is_module: Annotated[
        bool, typer.Option("-m", help="APP is a module, run as python -m runs it.")
    ] = False
    runs_as: Annotated[
        RunsAs | None,
        typer.Option(
            "--as",
            help="Run APP as main, which submits jobs, or whole as one job. By default a script "
            "that does not import understudy runs as one job.",
            show_default=False,
        ),
    ] = None
    """Overrules what the sources tell."""
    python: Python = None
    said: SparkSubmit = SparkSubmit()  # noqa: RUF009  (frozen)


@dataclass(frozen=True)
class TypedApp(Typed):
    """The application as it was typed for a command that needs one."""

    app: Annotated[str, typer.Argument(help=APP_HELP)] = field()  # Without the default.
