"""The command that tries what a start would be refused for: understudy check."""

from __future__ import annotations

from typing import Any

import typer

from understudy.cli.commands.ask import print_json
from understudy.cli.commands.common import (
    JOBMANAGERS,
    TASKMANAGERS,
    ConfigDir,
    Json,
    Overrides,
    Size,
    configured,
)
from understudy.cli.commands.run import PASS_THROUGH
from understudy.cli.launch.checking import Checked, check_start
from understudy.cli.launch.flags import grouped
from understudy.cli.launch.submitting import application_spec
from understudy.cli.launch.typed import TypedApp
from understudy.process.reporter import printable

REFUSED = 2
"""Exit code where a start would be refused: that of the start."""


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("check", context_settings=PASS_THROUGH)(check)


@grouped
def check(
    typed: TypedApp,
    size: Size,
    overrides: Overrides = None,
    config_dir: ConfigDir = None,
    as_json: Json = False,
) -> None:
    """Check whether run-application could start APP, and say what would run; start nothing.

    All problems are shown at once. Exit code: 0 it could start, 2 it would be refused.
    """
    configuration = configured(config_dir, size.overruling(overrides))
    checked, spec = Checked(), None
    with checked.step():
        spec = application_spec(configuration, typed)
    check_start(
        checked,
        configuration,
        spec,
        spec.conf if spec else typed.said.conf,
        jobmanagers=1 if configuration.is_standalone else size.jobmanagers or JOBMANAGERS,
        taskmanagers=size.taskmanagers or TASKMANAGERS,
    )
    if as_json:
        print_json({"ok": not checked.problems, "problems": checked.problems, **checked.plan})
    else:
        _print(checked)
    raise typer.Exit(REFUSED if checked.problems else 0)


def _print(checked: Checked) -> None:
    for name, text in _lines(checked.plan):
        typer.echo(f"{name + ':':<13} {printable(text)}")
    for problem in checked.problems:
        typer.echo(f"refused: {printable(problem)}", err=True)
    if not checked.problems:
        typer.echo("run-application would start it; nothing was started")


def _lines(plan: dict[str, Any]) -> list[tuple[str, str]]:
    found = []
    if "entry" in plan:
        found += [
            ("application", plan["application"]),
            ("entry", " ".join([_entry(plan), *plan["arguments"]])),
            ("runs as", "main, which submits jobs" if plan["as"] == "main" else "one job, whole"),
            ("stored", _some(plan["modules"]) or "nothing: its module is installed"),
        ]
    if plan.get("py-files"):
        found.append(("--py-files", _some(plan["py-files"])))
    if plan.get("requirements"):
        found.append(("requirements", plan["requirements"]))
    if "python" in plan:
        spark = f", PySpark {plan['pyspark']}" if "pyspark" in plan else ", without Spark"
        found.append(("python", f"{plan['python']} ({plan['python-version']}{spark})"))
    if "java" in plan:
        found.append(("java", plan["java"]))
    found += [
        ("master", plan["master"] or "Spark's default"),
        (
            "processes",
            f"{_count(plan['jobmanagers'], 'JobManager')}, "
            f"{_count(plan['taskmanagers'], 'TaskManager')} with "
            f"{_count(plan['slots'], 'slot')} and {_count(plan['spares'], 'spare driver')} each",
        ),
        ("cluster", plan["cluster"] or "a new one, of which nothing is left at its end"),
        ("storage", f"{plan['storage']} (register: {plan['register']})"),
    ]
    for one in plan.get("unfinished", ()):
        found.append(("unfinished", f"run {one['run']} would be continued"))
        found += [("  kept", _some(one["kept"]))] if one["kept"] else []
        found += [("  to do", _some(one["to do"]))] if one["to do"] else []
    return found


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _entry(plan: dict[str, Any]) -> str:
    """Return the entry point with its place, where that is another text."""
    entry, place = plan["entry"], plan["from"]
    return entry if place in entry else f"{entry}, {place}"


def _some(names: list[str], shown: int = 8) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
