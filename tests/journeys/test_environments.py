"""Applications with requirements: `main` and drivers run in an environment that has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.journeys.harness import SESSION_LESS, command
from tests.support.wheels import wheel

APP = """
import cherry
import understudy

env = understudy.get_environment()


def version(ctx):
    import cherry

    return cherry.VERSION


print("main has", cherry.VERSION, "and a job", env.execute(version, name="version").value)
"""


def options(place: Path) -> list[str]:
    return [
        *SESSION_LESS,
        *("-D", f"io.tmp.dirs={place}/tmp", "-D", "taskmanager.numberOfTaskSlots=1"),
        *("-D", f"python.find-links={place}/wheels", "-D", "python.no-index=true"),
    ]


def test_main_and_jobs_have_the_requirements_which_are_gone_with_the_application(
    place: Path,
) -> None:
    """This interpreter has no cherry, and another application may need another one."""
    (place / "app.py").write_text(APP)
    for version in ("1.0", "2.0"):
        wheel(place / "wheels", "cherry", version)
    (place / "needs.txt").write_text("cherry<2\n")
    done = command(
        place, "run-application", *options(place), "--requirements", "needs.txt", "app.py"
    )

    assert "main has 1.0 and a job 1.0" in done.stdout + done.stderr
    assert [] == [*place.glob("tmp/*/environments")]


@pytest.mark.long  # Units: tests/process/test_environments.py.
def test_an_application_fails_with_what_the_installer_has_said(place: Path) -> None:
    (place / "app.py").write_text(APP)
    wheel(place / "wheels", "cherry", "1.0")
    text = ("-D", "python.requirements=cherry==9.0")
    done = command(place, "run-application", "--json", *options(place), *text, "app.py", code=1)
    ended = [json.loads(line) for line in done.stdout.splitlines()][-1]

    assert "cherry==9.0" in json.dumps(ended)
    assert [] == [*place.glob("tmp/*/environments")]


def test_requirements_that_no_environment_can_have_are_refused_before_anything_starts(
    place: Path,
) -> None:
    (place / "app.py").write_text(APP)
    (place / "needs.txt").write_text("cherry\npyspark==1.0  # an old one\n")
    done = command(
        place, "run-application", *SESSION_LESS, "--requirements", "needs.txt", "app.py", code=2
    )

    assert "line 2: pyspark==1.0: this cluster has pyspark" in " ".join(done.stderr.split())
