"""Options that belong together reach a command as one value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from understudy.cli.commands.common import Size
from understudy.cli.commands.restoring import AnyRun, ClaimMode, Restore
from understudy.cli.launch.flags import grouped
from understudy.cli.launch.spark_submit import SparkSubmit
from understudy.cli.launch.spec import RunsAs
from understudy.cli.launch.typed import Typed, TypedApp


@dataclass(frozen=True)
class Inner:
    names: Annotated[tuple[str, ...], typer.Option("--name")] = ()


@dataclass(frozen=True)
class Outer:
    count: Annotated[int, typer.Option("--count", min=1)] = 1
    inner: Inner = Inner()


def formed(*words: str, outer: bool = False) -> tuple[Any, ...]:
    """Return the values that a command receives for these words."""
    app = typer.Typer()
    found: list[tuple[Any, ...]] = []

    def small(outer: Outer, late: Annotated[bool, typer.Option("--late")] = False) -> None:
        found.append((outer, late))

    def large(typed: Typed, size: Size, run: AnyRun) -> None:
        found.append((typed, size, run))

    for command in (small, large):
        app.command(context_settings={"allow_interspersed_args": False})(grouped(command))
    done = CliRunner().invoke(app, ["small" if outer else "large", *words], standalone_mode=False)
    if done.exception:
        raise done.exception
    (value,) = found
    return value


def test_what_is_not_typed_has_its_default() -> None:
    assert (Outer(), False) == formed(outer=True)
    assert (Typed(), Size(), AnyRun()) == formed()


def test_a_value_within_a_value_is_formed_too() -> None:
    found = formed("--count", "2", "--name", "a", "--late", "--name", "b", outer=True)

    assert (Outer(2, Inner(("a", "b"))), True) == found


def test_an_application_is_formed_with_the_flags_of_spark_submit() -> None:
    typed, size, run = formed(
        *("--slots", "3", "--rerun", "board", "-s", "/one", "-s", "/two", "--claimMode", "CLAIM"),
        *("--as", "job", "--name", "etl", "--driver-memory", "2g", "app.py", "-x", "--name"),
    )

    assert Size(slots=3) == size
    assert AnyRun(None, Restore(("/one", "/two"), claim=ClaimMode.CLAIM), ("board",)) == run
    assert ("app.py", ("-x", "--name"), RunsAs.JOB) == (typed.app, typed.args, typed.runs_as)
    assert SparkSubmit("etl", conf={"spark.driver.memory": "2g"}) == typed.said


def test_a_command_that_needs_an_application_says_so() -> None:
    app = typer.Typer()

    def whole(typed: TypedApp) -> None:
        raise AssertionError

    app.command()(grouped(whole))
    done = CliRunner().invoke(app, [])

    assert 2 == done.exit_code
    assert "Missing argument" in done.output


def test_a_value_that_another_command_has_formed_is_kept() -> None:
    found = []

    def command(size: Size) -> None:
        found.append(size)

    grouped(command)(size=Size(slots=1))

    assert [Size(slots=1)] == found


@pytest.mark.parametrize("word", ["--deploy-mode=cluster", "--conf=x"])
def test_a_flag_without_meaning_is_refused(word: str, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"no meaning here|expected spark\.key=value"):
        formed(word)
