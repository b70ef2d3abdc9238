"""Type checkers find a user's mistakes in the arguments of jobs, and nothing else."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.repository import ROOT

BASE = """
from collections.abc import Iterator

import understudy
from understudy import JobClient, JobContext, JobExecutionResult

env = understudy.get_environment()


@understudy.job(name="load", retries=2, no_retry=(KeyError, "my.Error"), timeout="2 h")
def load(ctx: JobContext, path: str, depth: int = 1) -> dict[str, int]:
    rows = ctx.spark.read.csv(path)
    return {"rows": rows.count(), "depth": depth}


@understudy.job
def note(ctx: JobContext) -> None:
    ctx.log.info("attempt %d", ctx.attempt)


def train(ctx: JobContext, data: str, *, name: str) -> list[float]:
    return [float(len(data + name))]
"""

RIGHT = """
rows: dict[str, int] = load.run("x.csv").value
result: JobExecutionResult[dict[str, int]] = load.run("x.csv", depth=2)
later: JobClient[dict[str, int]] = load.submit("x.csv")
same: dict[str, int] = later.result().value
nothing: None = note.run().value

lr = env.options(name="train lr", retries=1)
losses: list[float] = lr.execute(train, "data", name="lr").value
rows = env.execute(load, "x.csv", 3, name="again").value
rows = env.execute(load, "x.csv", depth=3, name="again", no_retry=()).value
rows = env.execute(load, path="x.csv", name="again").value
rows = env.execute(load, "x.csv", depth=3).value
client: JobClient[dict[str, int]] = env.execute_async(load, "x.csv", name="async")

with env.parallel() as jobs:
    first = jobs.submit(load, "x.csv")
    second = jobs.options(name="note").submit(note)
total: int = first.result().value["rows"]
durations: list[float] = [one.duration for one in jobs.results()]


def helper(job: understudy.Job[[str, int], dict[str, int]], ctx: JobContext) -> Iterator[int]:
    yield from job(ctx, "x.csv", 1).values()
"""

WRONG = """
load.run(7)  # wrong
load.submit("x.csv", depth="2")  # wrong
lr.execute(train, "data", name=1)  # wrong
"""

MORE = """
load.run()  # wrong
note.run("x.csv")  # wrong
env.execute(load, 7)  # wrong
env.execute(load, 7, name="load")  # wrong
env.execute(load, "x.csv", "deep", name="load")  # wrong
env.execute(load, 7, depth=1, name="load")  # wrong
env.execute_async(load, 7, name="load")  # wrong
env.execute(load("x.csv"))  # wrong
number: int = load.run("x.csv").value  # wrong
with env.parallel() as jobs:
    jobs.submit(load, 7)  # wrong


@understudy.job  # wrong
def no_context(path: str) -> int:
    return len(path)


@understudy.job(retries="2")  # wrong
def text(ctx: JobContext) -> int:
    return ctx.attempt
"""


def flagged_by_mypy(file: Path) -> set[int]:
    """Return the lines in which ``mypy --strict`` finds an error."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--no-pretty"),
            *("--config-file=", f"--cache-dir={ROOT / 'out' / 'mypy_of_users'}", str(file)),
        ],
        capture_output=True,
        check=False,
        text=True,
        timeout=300,
        cwd=file.parent,
    )

    assert done.returncode in {0, 1}, done.stdout + done.stderr
    return {int(line) for line in re.findall(r"^[^:]*:(\d+): error:", done.stdout, re.MULTILINE)}


def flagged_by_pyright(file: Path) -> set[int]:
    """Return the lines in which pyright finds an error in its strict mode."""
    (file.parent / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict"}))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable),
            *("--project", str(file.parent / "pyrightconfig.json")),
        ],
        capture_output=True,
        check=False,
        text=True,
        timeout=300,
        cwd=file.parent,
    )
    told = json.loads(done.stdout)

    assert 1 == told["summary"]["filesAnalyzed"]
    return {
        one["range"]["start"]["line"] + 1
        for one in told["generalDiagnostics"]
        if one["severity"] == "error"
    }


PYRIGHT = pytest.param(
    flagged_by_pyright,
    marks=pytest.mark.skipif(
        importlib.util.find_spec("basedpyright") is None, reason="make pyright installs it"
    ),
)


@pytest.mark.parametrize("flagged", [flagged_by_mypy, PYRIGHT])
def test_wrong_arguments_of_jobs_are_found_and_right_ones_pass(
    tmp_path: Path, flagged: object
) -> None:
    """One file, as starting a checker takes longer than checking."""
    assert callable(flagged)
    file = tmp_path / "app.py"
    text = BASE + RIGHT + WRONG + MORE
    file.write_text(text)
    expected = {n for n, line in enumerate(text.splitlines(), 1) if line.endswith("# wrong")}

    actual = flagged(file)

    assert expected == actual
