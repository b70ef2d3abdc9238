"""understudy check: every problem at once, what would run, and nothing left of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from understudy.cli.commands.group import app

SESSION_LESS = ("-D", "taskmanager.driver.type=session-less")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("UNDERSTUDY_CONF_DIR", raising=False)
    (tmp_path / "app.py").write_text("print('ran')")
    (tmp_path / "helper.py").touch()
    return tmp_path


def _check(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["check", *words])
    return done.exit_code, done.stdout, done.stderr


def _checked(*words: str) -> Any:
    code, out, _ = _check("--json", *words)
    told = json.loads(out)
    assert (0 if told["ok"] else 2) == code
    return told


def test_what_would_run_is_said(place: Path) -> None:
    options = ("-D", "high-availability.cluster-id=nightly", "--slots", "3", "--jobmanagers", "1")
    told = _checked(*SESSION_LESS, *options, "--master", "local[2]", "app.py", "an-argument")

    expected = {
        "application": "app",
        "entry": "app.py",
        "as": "job",
        "arguments": ["an-argument"],
        "modules": ["app.py", "helper.py"],
        "jobmanagers": 1,
        "taskmanagers": 1,
        "slots": 3,
        "master": "local[2]",
        "cluster": "nightly",
        "storage": str(place / "state" / "understudy" / "ha"),
        "register": "filesystem",
        "unfinished": [],
    }
    assert expected == {key: told[key] for key in expected}
    assert [] == told["problems"]


def test_nothing_is_executed_and_nothing_is_left(place: Path) -> None:
    code, out, _ = _check(*SESSION_LESS, "app.py")

    assert 0 == code
    assert "ran" not in out.split()
    assert "run-application would start it; nothing was started" in out
    assert [] == [*(place / "state" / "understudy" / "ha").glob("*")]


def test_all_problems_are_said_at_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(place))
    storage = f"high-availability.storageDir={place / 'app.py'}"
    ports = "rest.bind-port=38111"
    code, _, said = _check("--master", "locl", "-D", storage, "-D", ports, "nowhere.py")

    assert 2 == code
    for problem in (
        "nowhere.py: no such script",
        f"JAVA_HOME is '{place}'",
        "--master 'locl': Spark knows no such master",
        "2 JobManagers are to be started, and 1 found",
        "high-availability.storageDir cannot be used",
    ):
        assert problem in said, said
    assert 5 == said.count("refused: ")
