"""What a shell is told to offer, by the command that its script asks."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from understudy.cli.commands import completing, completion
from understudy.cli.commands.group import MODULES, app

SHELLS = ("bash", "zsh", "fish")


def _offered(line: str) -> list[str]:
    return [text for text, _ in completion.offers(line)]


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let there be one application with one job."""

    class Client:
        async def get(self, path: str) -> dict[str, list[dict[str, str]]]:
            application = {"id": "3f1c" * 8, "run-id": "monday", "name": "etl", "status": "RUNNING"}
            job = {"jid": "77aa" * 8, "name": "load", "state": "FINISHED"}
            return {"applications": [application], "jobs": [job]}

    async def told(configuration: object, query: object) -> dict[str, str]:
        assert callable(query)
        found: dict[str, str] = await query(Client())
        return found

    monkeypatch.setattr(completing, "_told", told)


def test_commands_options_and_choices_are_offered() -> None:
    assert {"list", "logs"} == {*_offered("understudy l")}
    assert {*MODULES} == {*_offered("understudy ")}
    assert ["--json"] == _offered("understudy list --j")
    assert ["bash"] == _offered("understudy completion b")
    assert {"start", "stop", "status"} == {*_offered("understudy cluster ")}


def test_keys_of_options_are_offered() -> None:
    assert ["high-availability.cluster-id="] == _offered("understudy info -D high-availability.cl")


@pytest.mark.usefixtures("known")
def test_ids_are_offered_of_what_there_is() -> None:
    assert ["3f1c3f1c3f1c", "monday", "77aa77aa77aa"] == _offered("understudy info ")
    assert ["monday"] == _offered("understudy cancel mon")
    assert ["load", "77aa77aa77aa"] == _offered("understudy checkpoints ")
    assert [("3f1c3f1c3f1c", "application etl, RUNNING")] == [
        *completion.offers("understudy logs 3")
    ]


@pytest.mark.parametrize("line", ["understudy info 'x", "understudy run-application a", ""])
def test_nothing_is_offered_where_nothing_is_known(line: str) -> None:
    """So the shell offers files."""
    assert "app.py" not in _offered(line)
    assert [] == _offered(line) or not line


def test_a_storage_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    line = f"understudy info -D high-availability.storageDir={tmp_path / 'none'} "

    assert [] == _offered(line)


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("bash", "monday"),
        ("zsh", "monday:run of etl, RUNNING"),
        ("fish", "monday\trun of etl, RUNNING"),
    ],
)
def test_each_shell_gets_its_format(shell: str, line: str) -> None:
    told = CliRunner().invoke(app, ["completion", shell, "--line", "understudy info mon"])

    assert f"{line}\n" == told.output


def test_bash_gets_words_that_it_reads_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "offers", lambda line: [("load $(x) y", ""), ("monday", "")])
    told = CliRunner().invoke(app, ["completion", "bash", "--line", "understudy info "])

    assert "'load $(x) y'\nmonday\n" == told.output


@pytest.mark.parametrize("shell", SHELLS)
def test_each_script_asks_the_command(shell: str) -> None:
    told = CliRunner().invoke(app, ["completion", shell])

    assert f"completion {shell} --line" in told.output


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
def test_bash_offers_what_the_command_says(tmp_path: Path) -> None:
    program = tmp_path / "understudy"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m understudy "$@"\n')
    program.chmod(0o755)
    script = (
        f'eval "$({program} completion bash)"\n'
        "COMP_LINE='understudy info -D high-availability.cl'; COMP_POINT=${#COMP_LINE}\n"
        f"_understudy {program}; printf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, check=True, text=True, timeout=60
    )

    assert "high-availability.cluster-id=\n" == done.stdout
