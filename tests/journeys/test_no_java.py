"""A Java that never answers, exits at once or prints nonsense: said, and not tried for ever."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.harness import COMMAND, Run, stored
from tests.support.sampling import quickly

FEW = ("--master", "local[1]", "--jobmanagers", "1", "--slots", "1")
ONE_JOB = """
import understudy
def job(ctx):
    return 1
understudy.get_environment().execute(job)
"""
JAVAS = {
    "never answers": (
        "exec sleep 1000",
        "3 s",
        "silent for too long before it was warm; taskmanager.driver.start-timeout is 3 s",
    ),
    "exits": ("echo no room for a heap >&2; exit 1", "1 min", "/bin/java: no room for a heap"),
    "prints nonsense": (
        "printf 'x\\0\\n\\276\\0y'; head -c 3000 /dev/urandom",
        "1 min",
        "/bin/java: it printed no command line",
    ),
}


@pytest.mark.parametrize("how", quickly(JAVAS, ["exits"]))
def test_a_java_that(tmp_path: Path, how: str) -> None:
    script, timeout, why = JAVAS[how]
    run = _run(tmp_path, script, timeout)
    try:
        code = run.finish()
    finally:
        harness.end(run)
    finished = run.of("application-finished")[0]

    assert (1, "FAILED") == (code, finished["status"])
    assert finished["failure"].startswith("DriverStartError: a driver ")
    assert why in finished["failure"]
    assert 3 <= len(run.of("driver-ended")) <= 4, "it is not tried for ever"
    assert {} == harness.processes_of(tmp_path)
    assert [] == stored(tmp_path)


def _run(place: Path, script: str, timeout: str) -> Run:
    """Start a run whose Java is a shell script."""
    home = place / "java"
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
    (home / "bin" / "java").write_text(f"#!/bin/sh\n{script}\n")
    (home / "bin" / "java").chmod(0o755)
    (place / "app.py").write_text(ONE_JOB)
    options = ("-D", "taskmanager.spare-drivers=0")
    timeouts = ("-D", f"taskmanager.driver.start-timeout={timeout}")
    line = [
        *("env", f"JAVA_HOME={home}"),
        *(*COMMAND, "run-application", "--json", *FEW, *options, *timeouts, "app.py"),
    ]
    return Run(line, place, place / "stderr.log")


def test_spares_that_do_not_fit_the_memory_are_refused_before_anything_is_started(
    tmp_path: Path,
) -> None:
    (tmp_path / "app.py").write_text(ONE_JOB)
    for role in ("run-application", "taskmanager"):
        done = subprocess.run(
            [*COMMAND, role, "-D", "taskmanager.spare-drivers=1000", *["app.py"][: role[0] == "r"]],
            cwd=tmp_path,
            env=harness.environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=harness.PATIENCE_S,
            check=False,
        )

        assert 2 == done.returncode
        assert "1000 spare(s)) need about " in done.stderr
        assert "lower --slots or taskmanager.spare-drivers" in done.stderr
        assert ["app.py"] == [path.name for path in tmp_path.iterdir()]
