"""A hundred TaskManagers on one leader, over real sockets, before and after its loss."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journeys import harness
from tests.journeys.harness import COMMAND, SESSION_LESS, lines

TASKMANAGERS = 100
APP = Path(__file__).with_name("app.py")
AGAIN_S = 25.0
"""All have registered with the next leader by then, before drivers would end as orphans; it is half
a second on a free machine."""

Begin = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Return a function that starts a process of the cluster."""
    members: list[subprocess.Popen[bytes]] = []

    def start(*line: str) -> subprocess.Popen[bytes]:
        with (tmp_path / f"{len(members)}.log").open("wb") as log:
            variables = harness.environment(tmp_path)
            variables["PYTHONPATH"] = str(Path(__file__).parents[3])
            member = subprocess.Popen(
                line, cwd=tmp_path, env=variables, stdout=log, stderr=subprocess.STDOUT
            )
        members.append(member)
        return member

    yield start
    for member in members:
        member.kill()
        member.wait(10)
    harness.kill(harness.processes_of(tmp_path))


def told(log: Path, pattern: str) -> str:
    """Wait until a process has logged something; return the group of the pattern."""
    found: re.Match[str] = until(lambda: re.search(pattern, log.read_text()), log)
    return found[1]


def until(holds: Callable[[], Any], log: Path) -> Any:
    deadline = time.monotonic() + harness.PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < deadline, log.read_text()[-4000:]
        time.sleep(0.02)
    return found


def ask(base: str, path: str) -> Any:
    with urllib.request.urlopen(base + path, timeout=30) as answer:
        return json.load(answer)


def busy(base: str) -> int:
    """Return how many connected TaskManagers run a job."""
    managers = ask(base, "/taskmanagers")["taskmanagers"]
    return sum(
        one["connected"] and [slot["state"] for slot in one["slots"]] == ["busy"]
        for one in managers
    )


def test_all_register_with_the_next_leader_and_nothing_is_run_twice(
    begin: Begin, tmp_path: Path
) -> None:
    line = [*COMMAND, "jobmanager", *SESSION_LESS, str(APP), str(TASKMANAGERS)]
    logs = [tmp_path / "0.log", tmp_path / "1.log"]
    managers = [begin(*line), begin(*line)]
    begin(sys.executable, "-m", "tests.journeys.scale.fleet", str(TASKMANAGERS))
    rests = [told(log, r"jobmanager-ready .*rest=(\S+)") for log in logs]
    until(lambda: len(lines(tmp_path, "jobs.txt")) == TASKMANAGERS, logs[0])
    leader = ask(rests[0], "/ha/status")["leader"]
    first = rests.index(leader["rest"])
    until(lambda: busy(rests[first]) == TASKMANAGERS, logs[first])
    killed = time.monotonic()
    harness.kill([leader["pid"]])
    adopted = told(logs[1 - first], r"takeover .*adopted=\[(.*?)\]")
    until(lambda: busy(rests[1 - first]) == TASKMANAGERS, logs[1 - first])
    again_s = time.monotonic() - killed
    (tmp_path / "go").touch()
    code = managers[1 - first].wait(harness.PATIENCE_S)

    assert 0 == code
    assert again_s < AGAIN_S
    assert TASKMANAGERS == len(adopted.split(","))
    assert sorted(f"{number} 1" for number in range(TASKMANAGERS)) == sorted(
        lines(tmp_path, "jobs.txt")
    )
    assert 2 == len(lines(tmp_path, "mains.txt"))
    assert sum(range(TASKMANAGERS)) == int((tmp_path / "sum.txt").read_text())
