"""Data that somebody has damaged: named, left in place, shown; all else goes on, nothing twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.journeys import harness
from tests.journeys.conftest import Start
from tests.journeys.harness import Run, command
from tests.support.sampling import quickly

pytestmark = pytest.mark.local_storage

NAMED = ("-D", "high-availability.cluster-id=flights", "--run-id", "monday")
CLUSTER = NAMED[:2]

Damage = Callable[[Path], None]


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def newer(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"version":1', b'"version":9'))


def gone(path: Path) -> None:
    path.unlink()


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def storage(place: Path) -> Path:
    return place / "state" / "understudy" / "ha"


def only(place: Path, pattern: str) -> Path:
    """Return the one file below the cluster's directory that matches."""
    (found,) = (storage(place) / "flights").glob(pattern)
    return found


def begun(start: Start) -> Run:
    """Return a run whose first job has finished and whose second one runs."""
    run = start("three.py", options=(*NAMED, *harness.impatient()), standbys=1)
    run.at_work()
    run.standby_is_ready()
    return run


def kill_leader(run: Run) -> None:
    os.kill(run.leader()["pid"], signal.SIGKILL)


def repair(path: Path, sound: bytes) -> None:
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    path.write_bytes(sound)


def told(answer: Any) -> str:
    """Return all that is said to need attention."""
    return "\n".join(f"{one['id']}: {one['problem']}" for one in answer["attention"])


DAMAGES: list[tuple[str, Damage]] = [
    ("register/registry/val.*", half),
    ("applications/*/application.json", a_fifo),
    ("register/application-*/val.*", newer),
    ("register/jobs-*/val.*", a_directory),
]


@pytest.mark.filesystem
@pytest.mark.parametrize("damages", quickly([DAMAGES[:2], DAMAGES[2:]], [DAMAGES[:2]]))
def test_a_leader_that_takes_over_damage_names_it_waits_and_goes_on_once_it_is_repaired(
    start: Start, place: Path, damages: list[tuple[str, Damage]]
) -> None:
    run = begun(start)
    for executed, (pattern, damage) in enumerate(damages, 1):
        path = only(place, pattern)
        sound = path.read_bytes()
        damage(path)
        kill_leader(run)
        run.wait("leader")
        answer = run.until("/ha/status", lambda answer: path.name in told(answer))  # noqa: B023
        listed = json.loads(command(place, "list", "--json", *CLUSTER).stdout)
        shown = command(place, "info", "monday", *CLUSTER, code=None)

        assert told(answer) == told(listed)
        assert path.name in shown.stdout + shown.stderr
        assert "continues by itself" in shown.stdout + shown.stderr
        assert executed == len(run.lines("main.txt"))
        assert path.exists()

        repair(path, sound)
        run.grown("main.txt", executed + 1)
        run.standby_is_ready()
    run.release()

    assert 0 == run.finish()
    assert ["first 1"] == [line for line in run.lines("jobs.txt") if line.startswith("first")]
    assert "TWICE AT ONCE" not in run.lines("jobs.txt")
    assert "Traceback" not in run.log.read_text()


@pytest.mark.long  # Units: tests/jobmanager/test_damage.py.
def test_what_a_dead_attempt_staged_and_cannot_be_read_is_not_run_again_until_it_is_removed(
    start: Start, place: Path
) -> None:
    """It may have finished: only a person can tell."""
    run = begun(start)
    entry = next(e for e in run.of("job-status", name="second job"))
    harness.kill(harness.processes_of(place))
    run.finish()
    (directory,) = (storage(place) / "flights/applications").iterdir()
    staged = directory / "staged" / f"{entry['job_id']}-1.json"
    staged.write_bytes(b'{"format":"job-result"')
    again = start("three.py", options=(*NAMED, *harness.impatient()))
    again.wait("leader")
    answer = again.until("/ha/status", lambda answer: staged.name in told(answer))
    shown = command(place, "info", "monday", *CLUSTER)

    assert "or remove it, and the job runs again" in told(answer)
    assert staged.name in shown.stdout
    assert ["first 1", "long 1"] == again.lines("jobs.txt")

    staged.unlink()
    again.grown("jobs.txt", 3)
    again.release()

    assert 0 == again.finish()
    assert ["first 1", "long 1", "long 2", "third 1"] == again.lines("jobs.txt")


@pytest.mark.long  # Units: tests/jobmanager/test_damage.py.
@pytest.mark.filesystem
def test_a_start_over_a_cluster_that_lost_or_broke_its_register_is_refused(
    start: Start, place: Path
) -> None:
    run = begun(start)
    harness.kill(harness.processes_of(place))
    run.finish()
    register = storage(place) / "flights/register"
    register.rename(place / "aside")
    lost = command(place, "run-application", *NAMED, str(place / "three.py"), code=1)
    listed = command(place, "list")

    assert "registry is gone" in lost.stderr
    assert "understudy destroy" in lost.stderr
    assert "registry is gone" in listed.stdout

    shutil.rmtree(register, ignore_errors=True)
    (place / "aside").rename(register)
    path = only(place, "register/registry/val.*")
    sound = path.read_bytes()
    for damage in (half, a_fifo):
        damage(path)
        refused = command(place, "run-application", *NAMED, str(place / "three.py"), code=1)
        listed = command(place, "list")
        repair(path, sound)

        assert path.name in refused.stderr
        assert path.name in listed.stdout
    (place / "go").touch()
    again = start("three.py", options=(*NAMED, *harness.impatient()))

    assert 0 == again.finish()
    assert 1 == again.lines("jobs.txt").count("first 1")


@pytest.mark.long  # Units: tests/jobmanager/test_damage.py.
def test_an_ended_run_whose_tombstone_was_damaged_is_answered_and_not_run_again(
    start: Start, place: Path
) -> None:
    start("mains.py", "exit-0", options=NAMED).finish()
    path = only(place, "tombstones/monday~*.json")
    flipped(path)
    again = start("mains.py", "exit-0", options=NAMED)
    code = again.finish()
    listed = command(place, "list", *CLUSTER).stdout
    shown = command(place, "info", "monday", *CLUSTER).stdout

    assert 0 == code
    assert 1 == len(again.lines("main.txt"))
    assert str(path) in again.log.read_text()
    assert str(path) in listed
    assert str(path) in shown


@pytest.mark.long
def test_a_second_cluster_with_the_same_id_stands_by_or_is_refused_where_it_contradicts(
    start: Start, place: Path
) -> None:
    run = begun(start)
    key = "high-availability.leader-election.lease-duration"
    contradicting = [*harness.impatient(), "-D", f"{key}=9s"]
    script = str(place / "three.py")
    refused = command(place, "run-application", *NAMED, *contradicting, script, code=2)
    alike = command(
        place, "run-application", "-D", "high-availability.cluster-id=/flights", script, code=2
    )
    second = start("three.py", options=(*NAMED, *harness.impatient()))
    run.until("/ha/status", lambda answer: len(answer["standbys"]) == 2)
    run.release()

    assert f"{key} is 9s here, but 8s in the cluster 'flights'" in refused.stderr
    assert "belongs to cluster 'flights', not to '/flights'" in alike.stderr
    assert (0, 0) == (run.finish(), second.finish())
    assert ["first 1", "long 1", "third 1"] == run.lines("jobs.txt")
    assert 1 == len(run.lines("main.txt"))


@pytest.mark.long
@pytest.mark.filesystem  # Elsewhere nobody loses the register with it.
def test_a_storage_directory_that_is_moved_away_and_back_is_no_fresh_start(
    start: Start, place: Path
) -> None:
    run = begun(start)
    away = place / "away"
    storage(place).rename(away)
    run.said("term 1 ended")

    assert not storage(place).exists()

    away.rename(storage(place))
    run.wait("leader")
    run.grown("main.txt", 2)
    run.release()

    assert 0 == run.finish()
    assert 1 == run.lines("jobs.txt").count("first 1")
    assert "TWICE AT ONCE" not in run.lines("jobs.txt")


def test_results_wait_for_a_storage_directory_that_is_moved_away(start: Start, place: Path) -> None:
    run = begun(start)
    away = place / "away"
    storage(place).rename(away)
    run.release()
    run.said("the storage directory is gone")
    run.grown("jobs.txt", 2)
    recreated = storage(place).exists()
    away.rename(storage(place))

    assert 0 == run.finish()
    assert not recreated
    assert ["first 1", "long 1", "third 1"] == run.lines("jobs.txt")
