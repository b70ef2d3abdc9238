"""Which Python runs an application, and what it needs: the same version of Understudy."""

from __future__ import annotations

import os
import shutil
import sys
import venv
from pathlib import Path

import pytest

from understudy.cli import app
from understudy.cli.launch import interpreter
from understudy.errors import UsageError
from understudy.version import VERSION

REST = ("run-application", "app.py")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a virtual environment without Understudy."""
    place = tmp_path_factory.mktemp("project") / ".venv"
    venv.create(place, with_pip=False, symlinks=True)
    return place


def _give(environment: Path, version: str) -> None:
    """Put into an environment what tells its version of Understudy."""
    package = next((environment / "lib").glob("python*")) / "site-packages" / "understudy"
    # Compiled code of a file with the same size and second would be taken for the new one's.
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "version.py").write_text(f"VERSION = {version!r}\n")


def test_this_interpreter_runs_what_nobody_sends_elsewhere(
    monkeypatch: pytest.MonkeyPatch, other: Path
) -> None:
    """Somebody who types the command of another environment than the active one means it."""
    monkeypatch.setenv("VIRTUAL_ENV", str(other))

    assert interpreter.wanted(None) is None


def test_a_tool_uses_the_active_environment(
    monkeypatch: pytest.MonkeyPatch, other: Path, tmp_path: Path
) -> None:
    (tmp_path / "uv-receipt.toml").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    without = interpreter.wanted(None)
    monkeypatch.setenv("VIRTUAL_ENV", str(other))

    assert without is None
    assert str(other / "bin/python") == interpreter.wanted(None)
    assert sys.executable == interpreter.wanted(sys.executable)


def test_an_interpreter_is_named_by_path_environment_or_name(
    monkeypatch: pytest.MonkeyPatch, other: Path
) -> None:
    monkeypatch.setenv("PATH", str(other / "bin"))
    program = str(other / "bin/python")

    assert [program] * 3 == [interpreter.wanted(one) for one in (program, str(other), "python")]


@pytest.mark.parametrize("named", ["/nowhere/python", "no-such-python"])
def test_an_interpreter_that_is_not_there_is_refused(named: str) -> None:
    with pytest.raises(UsageError, match=f"--python {named}: there is no Python interpreter"):
        interpreter.wanted(named)


def test_the_same_interpreter_is_not_started_again(tmp_path: Path) -> None:
    by_another_name = tmp_path / "python"
    by_another_name.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    by_another_name.chmod(0o755)

    assert interpreter.command_there(sys.executable, REST) is None
    assert interpreter.command_there(str(by_another_name), REST) is None


def test_the_same_version_is_needed_there(other: Path) -> None:
    program = str(other / "bin/python")
    with pytest.raises(UsageError, match=rf"has no Understudy, and .*{VERSION}: uv pip install"):
        interpreter.command_there(program, REST)
    _give(other, "0.0.1")
    with pytest.raises(UsageError, match=f"has Understudy 0.0.1, and .* {VERSION}"):
        interpreter.command_there(program, REST)
    _give(other, VERSION)

    assert [program, "-P", "-m", "understudy", *REST] == interpreter.command_there(program, REST)


@pytest.mark.parametrize("text", ["#!/bin/sh\necho broken >&2; exit 3\n", "#!/bin/sh\necho 1\n"])
def test_what_is_no_python_is_refused(tmp_path: Path, text: str) -> None:
    program = tmp_path / "python"
    program.write_text(text)
    program.chmod(0o755)

    with pytest.raises(UsageError, match=f"{program} does not work as a Python"):
        interpreter.command_there(str(program), REST)


@pytest.mark.parametrize(
    ("typed", "executed"),
    [
        ("run-application a.py", "run-application --python P a.py"),
        ("cluster start a.py", "cluster start --python P a.py"),
        ("cluster start --python P a.py", "cluster start --python P a.py"),
        ("taskmanager", "taskmanager --python P"),
    ],
)
def test_a_command_executes_itself_with_the_interpreter_named_behind_its_own_name(
    typed: str, executed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named, so that the printed command that resumes does not depend on what is active then."""
    monkeypatch.setattr(interpreter, "wanted", lambda named: "P")
    monkeypatch.setattr(interpreter, "command_there", lambda program, words: [program, *words])
    monkeypatch.setattr(sys, "argv", ["understudy", *typed.split()])
    monkeypatch.setattr(os, "execv", _become)
    with pytest.raises(Become) as became:
        app.main()

    assert ("P", *executed.split()) == became.value.args


class Become(BaseException):
    """The process became another command."""


def _become(program: str, command: list[str]) -> None:
    raise Become(*command)
