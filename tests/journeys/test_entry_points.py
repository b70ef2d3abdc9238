"""Each way to name an application, from the command to the value of its job."""

from __future__ import annotations

import json
import sys
import venv
from pathlib import Path

import pytest

from tests.journeys.harness import SESSION_LESS, command, program

JOB = """
import sys
import understudy
{also}

def job(ctx, given):
    return [{value}, *given]

def main():
    env = understudy.get_environment()
    print(env.execute(job, sys.argv[1:], name="job").value)
"""

WHOLE = JOB.format(also="import helper", value="helper.WORD")


def _put(place: Path) -> None:
    (place / "helper.py").write_text("WORD = 'beside'\n")
    (place / "app.py").write_text(f"{WHOLE}\nmain()\n")
    cells = [WHOLE, {"cell_type": "markdown", "source": "# Now"}, "main()"]
    told = [{"cell_type": "code", "source": one} if isinstance(one, str) else one for one in cells]
    (place / "note.ipynb").write_text(json.dumps({"cells": told, "nbformat": 4}))
    package = place / "pkg"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "words.py").write_text("WORD = 'beside'\n")
    relative = JOB.format(also="from . import words", value="words.WORD")
    (package / "mod.py").write_text(f"{relative}\nif __name__ == '__main__':\n    main()\n")


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(("app.py",), id="script", marks=pytest.mark.long),
        pytest.param(("note.ipynb",), id="notebook"),
        pytest.param(("pkg.mod:main",), id="function", marks=pytest.mark.long),
        pytest.param(("-m", "pkg.mod"), id="module", marks=pytest.mark.long),
        pytest.param(("simplecache::file://{place}/app.py", "--py-files"), id="url"),
    ],
)
def test_an_application_begins_where_it_is_said(place: Path, entry: tuple[str, ...]) -> None:
    """A script at a URL brings no modules from beside: they are given."""
    _put(place)
    words = [word.format(place=place) for word in entry]
    given = ["--py-files", "helper.py"] if words[-1] == "--py-files" else []
    entry_words = [word for word in words if word != "--py-files"]
    done = command(place, "run-application", *SESSION_LESS, *given, *entry_words, "a", "--b")

    assert "['beside', 'a', '--b']" in done.stderr + done.stdout


@pytest.mark.long
def test_a_tool_runs_an_application_with_the_interpreter_of_its_project(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `uv tool install` and an active virtual environment: both have what this test has."""
    (place / "app.py").write_text(
        "import sys\nimport understudy\n"
        "env = understudy.get_environment()\n"
        "print('main', sys.prefix)\n"
        "print('job', env.execute(lambda ctx: sys.prefix, name='where').value)\n"
    )
    for name in ("tool", "project"):
        venv.create(place / name, with_pip=False, symlinks=True)
        packages = next((place / name / "lib").glob("python*")) / "site-packages"
        (packages / "these.pth").write_text("\n".join(path for path in sys.path if path))
    (place / "tool" / "uv-receipt.toml").touch()
    monkeypatch.setenv("VIRTUAL_ENV", str(place / "project"))
    tool = (str(place / "tool/bin/python"), "-m", "understudy")
    done = program(place, *tool, "run-application", *SESSION_LESS, "app.py")

    assert f"main {place / 'project'}" in done.stdout + done.stderr
    assert f"job {place / 'project'}" in done.stdout + done.stderr
