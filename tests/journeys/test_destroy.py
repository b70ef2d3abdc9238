"""What `understudy destroy` removes, and when it refuses."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.conftest import Start
from tests.journeys.harness import COMMAND, SESSION_LESS, Run, command, stored

NAMED = ("-D", "high-availability.cluster-id=flights")
OTHER = ("-D", "high-availability.cluster-id=trains")
KEEP = ("-D", "application-result-store.delete-on-commit=false")


def destroy(place: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    return command(place, "destroy", *NAMED, *arguments, code=code)


def closed(start: Start, nothing_left: Callable[[], None]) -> Run:
    """Leave an unfinished run behind, without any process."""
    run = start("three.py", options=(*NAMED, "--run-id", "monday"))
    run.at_work()
    run.process.send_signal(signal.SIGTERM)
    run.finish()
    nothing_left()
    return run


def test_everything_of_an_unfinished_run_is_removed(
    start: Start, place: Path, nothing_left: Callable[[], None]
) -> None:
    closed(start, nothing_left)
    done = json.loads(destroy(place, "--yes", "--json").stdout)
    left = stored(place)
    again = destroy(place, "--yes", code=2)

    assert "flights" == done["cluster_id"]
    assert "register: registry" == done["removed"][0]
    assert f"{harness.storage(place)}/flights" == done["removed"][-1]
    assert [] == left
    assert "there is no cluster 'flights' in " in again.stderr


def test_results_go_and_other_clusters_stay(start: Start, place: Path) -> None:
    assert 0 == start("mains.py", "same-name", options=(*NAMED, *KEEP)).finish()
    assert 0 == start("mains.py", "same-name", options=(*OTHER, *KEEP)).finish()
    before = [name for name in stored(place) if "trains" in name]
    printed = destroy(place, "--yes").stdout

    assert before == [name for name in stored(place) if name not in STORES]
    assert "cluster 'flights' is gone" in printed
    assert "job-result-store/flights" in printed


STORES = ("job-result-store", "application-result-store")


@pytest.mark.long
def test_of_a_directory_that_others_use_only_its_own_results_go(start: Start, place: Path) -> None:
    shared = place / "results"
    results = ("-D", f"job-result-store.storage-path={shared}")
    for cluster in (NAMED, OTHER):
        assert 0 == start("mains.py", "same-name", options=(*cluster, *KEEP, *results)).finish()
    before = sorted(shared.iterdir())
    (shared / "notes.txt").touch()
    mine = json.loads(command(place, "list", *NAMED, "--json").stdout)["applications"][0]["id"]
    info = json.loads(command(place, "info", *NAMED, mine, "--json").stdout)
    destroy(place, *results, "--yes")

    assert 4 == len(before)
    assert sorted([*before, shared / "notes.txt"]) == sorted(
        [*shared.iterdir(), *(shared / f"{job['jid']}.json" for job in info["jobs"])]
    )


def test_it_is_refused_while_somebody_leads_and_the_run_goes_on(start: Start, place: Path) -> None:
    run = start("three.py", options=NAMED)
    run.running("second job")
    leader = run.leader()
    refused = destroy(place, "--yes", code=1)
    run.release()

    assert 0 == run.finish()
    assert f"{leader['id']} leads cluster 'flights'" in refused.stderr
    assert f"process {leader['pid']}" in refused.stderr
    assert ["first 1", "long 1", "third 1"] == run.lines("jobs.txt")


@pytest.mark.filesystem
def test_it_is_refused_while_any_process_of_the_cluster_lives(place: Path) -> None:
    script = harness.put_app(place, "three.py")
    taskmanager = subprocess.Popen(
        [*COMMAND, "taskmanager", *NAMED, *SESSION_LESS],
        cwd=place,
        env=harness.environment(place),
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + harness.PATIENCE_S
        while not list(place.glob("state/understudy/ha/flights/locks/*")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        refused = destroy(place, "--yes", code=1)
    finally:
        taskmanager.terminate()
        taskmanager.wait(30)

    assert script.exists()
    assert "1 of its processes live" in refused.stderr
    assert str(taskmanager.pid) in refused.stderr


@pytest.mark.long
def test_what_nobody_can_read_is_removed_too(
    start: Start, place: Path, nothing_left: Callable[[], None]
) -> None:
    closed(start, nothing_left)
    register = place / "state" / "understudy" / "ha" / "flights" / "register"
    for value in register.glob("*/val.*"):
        value.write_bytes(b"nonsense")
    destroy(place, "--yes")

    assert [] == stored(place)


@pytest.mark.long
def test_it_asks_where_somebody_can_answer_and_refuses_where_nobody_can(
    start: Start, place: Path, nothing_left: Callable[[], None]
) -> None:
    closed(start, nothing_left)
    before = stored(place)
    silent = destroy(place, code=2)
    asked, code = answered(place, "n")
    kept = stored(place)
    _, done = answered(place, "y")

    assert "confirm with --yes" in silent.stderr
    assert "run monday is unfinished" in asked
    assert "nothing was removed" in asked
    assert (1, 0) == (code, done)
    assert before == kept
    assert [] == stored(place)


@pytest.mark.parametrize("how", ["-D", "--config-dir"])
def test_a_cluster_that_is_not_there_is_named(place: Path, how: str) -> None:
    (place / "config.yaml").write_text("high-availability.cluster-id: nowhere")
    named = ("-D", "high-availability.cluster-id=nowhere") if how == "-D" else (how, str(place))
    refused = command(place, "destroy", *named, "--yes", code=2)

    assert "there is no cluster 'nowhere' in " in refused.stderr
    assert not (place / "state").exists()


def answered(place: Path, answer: str) -> tuple[str, int]:
    """Run the command on a terminal, and answer its question."""
    mine, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "destroy", *NAMED],
        cwd=place,
        env=harness.environment(place),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    os.close(theirs)
    os.write(mine, f"{answer}\n".encode())
    printed, _ = process.communicate(timeout=harness.PATIENCE_S)
    os.close(mine)
    return printed, process.returncode
