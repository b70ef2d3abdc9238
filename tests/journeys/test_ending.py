"""How runs end, what is left, and what another start with the same data does."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.conftest import Start
from tests.journeys.harness import SESSION_LESS, command, stored
from tests.journeys.members import until
from tests.support.sampling import quickly

CLOSINGS = [
    ((signal.SIGINT, signal.SIGINT), 130),
    ((signal.SIGTERM,), 143),
    ((signal.SIGHUP,), 129),
]
"""The signals that close a run, and its exit code."""

NAMED = ("-D", "high-availability.cluster-id=flights")


@pytest.mark.parametrize("how", quickly(["exit-0", "raise", "no-jobs"], ["exit-0"]))
def test_a_cluster_without_a_name_leaves_nothing(
    start: Start, place: Path, nothing_left: Callable[[], None], how: str
) -> None:
    start("mains.py", how, standbys=1).finish()

    assert [] == stored(place)
    nothing_left()


@pytest.mark.local_storage  # An object store has no directories.
@pytest.mark.parametrize("how", quickly(["exit-0", "raise", "no-jobs", "same-name"], ["raise"]))
def test_a_named_cluster_leaves_its_registry_and_one_tombstone(
    start: Start, place: Path, nothing_left: Callable[[], None], how: str
) -> None:
    start("mains.py", how, options=(*NAMED, "--run-id", "monday"), standbys=1).finish()
    left = [name.partition("~")[0] for name in stored(place) if "register/registry/" not in name]

    # Where the register is not in storage, storage says which register knows the cluster.
    away = harness.quorum or harness.kubeconfig
    elsewhere = ["flights/coordination.json"] if away else []
    assert [
        "flights",
        *elsewhere,
        "flights/register",
        "flights/register/registry",
        "flights/tombstones",
        "flights/tombstones/monday",
    ] == left
    nothing_left()


@pytest.mark.long  # Units: tests/ha/test_result_store.py.
def test_results_may_be_kept_whole(start: Start, place: Path) -> None:
    keep = ("-D", "application-result-store.delete-on-commit=false")
    start("mains.py", "same-name", options=(*NAMED, *keep)).finish()
    names = [name for name in stored(place) if name.endswith(".json")]

    assert [1, 2, 1] == [
        sum(name.startswith(prefix) for name in names)
        for prefix in ("application-result-store", "job-result-store", "flights/tombstones")
    ]
    assert not any("DIRTY" in name for name in names)


def test_an_ended_run_is_answered_and_a_new_run_starts_anew(start: Start, place: Path) -> None:
    first = start("mains.py", "raise", options=(*NAMED, "--run-id", "monday"))
    first.finish()
    again = start("mains.py", "raise", options=(*NAMED, "--run-id", "monday"))
    code = again.finish()
    script = str(place / "mains.py")
    once_more = (*SESSION_LESS, *NAMED, "--run-id", "monday", script, "raise")
    repeated = command(place, "run-application", *once_more, code=1)
    asked = command(place, "result", "monday", *NAMED, code=1)
    told = json.loads(command(place, "result", "monday", *NAMED, "--json", code=1).stdout)
    executed = len(first.lines("main.txt"))
    new = start("mains.py", "raise", options=NAMED)
    new.finish()

    assert 1 == code
    assert ["application-finished"] == [event["event"] for event in again.events]
    assert "FAILED" == again.events[0]["status"]
    assert "RuntimeError: main gives up" == again.events[0]["failure"]
    assert "the application failed: RuntimeError: main gives up" in repeated.stderr
    assert "  RuntimeError: main gives up" in asked.stdout.splitlines()
    assert "main gives up" == told["failure"]["message"]
    assert 1 == executed
    assert 2 == len(new.lines("main.txt"))


@pytest.mark.long  # Units: tests/cli/test_another_run.py.
@pytest.mark.parametrize(
    "command_line", quickly([["run-application"], ["jobmanager"]], [["jobmanager"]])
)
def test_an_id_that_another_run_has_used_is_refused_before_anything_starts(
    start: Start, place: Path, command_line: list[str]
) -> None:
    identified = (*SESSION_LESS, *NAMED, "-D", f"$internal.pipeline.job-id={'ab' * 16}")
    first = start("mains.py", "exit-0", options=(*identified, "--run-id", "monday"))
    first.finish()
    before = stored(place)
    script = str(place / "mains.py")
    again = command(place, *command_line, *identified, script, "exit-0", code=2)

    assert "was used by run monday" in again.stderr
    assert "continues" not in again.stderr
    assert 1 == len(first.lines("main.txt"))
    assert before == stored(place)


@pytest.mark.long
def test_a_standby_does_not_run_again_what_ended_normally(place: Path, start: Start) -> None:
    """Flink's standby does, by default: 3 of 3 (FLIP-560, delete-on-commit)."""
    script = harness.put_app(place, "mains.py")
    members = [
        _foreground(place, "jobmanager", str(script), "exit-0", name=f"jm{n}") for n in (1, 2)
    ]
    try:
        for log in (place / "jm1.log", place / "jm2.log"):
            until(lambda log=log: "jobmanager-ready" in _text(log))  # type: ignore[misc]
        members.append(_foreground(place, "taskmanager", name="tm"))  # Nothing ends before it.
        codes = [member.wait(harness.PATIENCE_S) for member in members[:2]]
        members[2].terminate()
        members[2].wait(harness.PATIENCE_S)
    finally:
        _end(members, place)

    assert [0, 0] == codes
    assert ["one 1"] == (place / "jobs.txt").read_text().splitlines()
    assert 1 == len((place / "main.txt").read_text().splitlines())


@pytest.mark.parametrize("host", quickly([[], ["--host", "127.0.0.1"]], [[]]))
def test_single_processes_form_a_cluster_and_survive_their_leader(
    place: Path, host: list[str]
) -> None:
    script = harness.put_app(place, "three.py")
    members = [_foreground(place, "jobmanager", *host, str(script), name=f"jm{n}") for n in (1, 2)]
    members.append(_foreground(place, "taskmanager", *host, name="tm"))
    try:
        until(lambda: (place / "jobs.txt").exists() and "long 1" in _text(place / "jobs.txt"))
        until(lambda: len((place / "main.txt").read_text().splitlines()) == 1)
        main = int((place / "main.pid").read_text())
        leader = _ancestors(main)
        killed = next(member for member in members[:2] if member.pid in leader)
        os.kill(leader[leader.index(killed.pid) - 1], signal.SIGKILL)
        until(lambda: len((place / "main.txt").read_text().splitlines()) == 2)
        (place / "go").touch()
        codes = sorted(member.wait(harness.PATIENCE_S) for member in members[:2])
        members[2].terminate()
        members[2].wait(harness.PATIENCE_S)
    finally:
        _end(members, place)

    assert [0, 137] == codes
    assert ["first 1", "long 1", "third 1"] == _text(place / "jobs.txt").splitlines()
    assert {} == harness.processes_of(place)
    assert not [name for name in stored(place) if "/locks" in name]


def test_the_printed_command_shows_no_secret(start: Start) -> None:
    secret = ("--conf", "spark.hadoop.fs.s3a.secret.key=hush")
    run = start("three.py", "slow", "--db-password", "hunter22", options=secret)
    run.running("second job")
    run.process.terminate()
    run.finish()
    said = run.log.read_text()

    assert "continues where it stopped" in said
    assert "spark.hadoop.fs.s3a.secret.key=******" in said
    assert "fill in the secrets" in said
    assert "--db-password '******'" in said
    assert "hush" not in said
    assert "hunter22" not in said


def test_the_first_interrupt_cancels_and_cleans_up(
    start: Start, place: Path, nothing_left: Callable[[], None]
) -> None:
    run = start("three.py")
    run.running("second job")
    run.process.send_signal(signal.SIGINT)
    code = run.finish()

    assert 130 == code
    assert "CANCELED" == run.of("application-finished")[0]["status"]
    assert [] == stored(place)
    nothing_left()


@pytest.mark.long
def test_a_run_whose_cancellation_is_durable_is_not_said_to_go_on(
    start: Start, place: Path, nothing_left: Callable[[], None]
) -> None:
    run = start("mains.py", "cancelled", options=("-D", "taskmanager.driver.cancel-grace=10min"))
    run.grown("stubborn.txt", 1)
    run.process.send_signal(signal.SIGINT)
    run.wait("application-status", status="CANCELING")
    run.process.send_signal(signal.SIGINT)
    code = run.finish()
    printed = run.log.read_text()
    resume = printed[printed.index("  understudy run-application") :].splitlines()[0].strip()
    done = command(place, *shlex.split(resume)[1:], code=3)

    assert 130 == code
    assert "this ends it as CANCELED" in printed
    assert "continues where it stopped" not in printed
    assert "is CANCELED" in done.stderr
    assert [] == stored(place)
    nothing_left()


@pytest.mark.parametrize(
    ("signals", "code"),
    quickly(CLOSINGS, CLOSINGS[:1]),
)
def test_a_closed_run_keeps_its_data_and_is_resumed_by_the_printed_command(
    start: Start,
    place: Path,
    nothing_left: Callable[[], None],
    signals: tuple[int, ...],
    code: int,
) -> None:
    run = start("three.py", "stubborn")
    run.at_work()
    if signal.SIGINT in signals:  # Nobody takes the wish to cancel before the second comes.
        os.kill(run.leader()["pid"], signal.SIGSTOP)
    for number in signals:
        run.process.send_signal(number)
        if number == signal.SIGINT:
            run.said("press Ctrl-C again")
    closed = run.finish()
    left = stored(place)
    nothing_left()
    printed = run.log.read_text()
    resume = printed[printed.index("  understudy run-application") :].splitlines()[0].strip()
    (place / "go").touch()
    words = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' {resume}"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    done = command(place, *words[1:])

    assert code == closed
    assert left
    assert "[main] values" in done.stderr
    assert "silent for too long" not in done.stderr, "the lock had proved that it was dead"
    assert ["first 1", "long 1", "long 2", "third 1"] == _text(place / "jobs.txt").splitlines()
    assert [] == stored(place)


@pytest.mark.long  # test_redeployment.py has such a run.
def test_a_new_run_over_an_unfinished_one_continues_it_and_says_so(
    start: Start, place: Path
) -> None:
    run = start("three.py", options=NAMED)
    run.at_work()
    run.process.terminate()
    run.finish()
    (place / "go").touch()
    again = start("three.py", options=NAMED)
    code = again.finish()

    assert 0 == code
    assert "is unfinished here: it is continued" in again.log.read_text()
    assert ["first 1", "long 1", "long 2", "third 1"] == again.lines("jobs.txt")


def test_killing_the_launcher_leaves_no_process_and_keeps_the_data(
    start: Start, place: Path, nothing_left: Callable[[], None]
) -> None:
    run = start("three.py", "fork", standbys=1)
    run.running("second job")
    run.process.kill()
    run.finish()
    nothing_left()

    assert stored(place)


@pytest.mark.long
def test_a_launcher_whose_reader_is_gone_ends_all_the_same(place: Path) -> None:
    script = harness.put_app(place, "mains.py")
    line = [*harness.COMMAND, "run-application", "--json", *SESSION_LESS, str(script), "exit-0"]
    run = subprocess.Popen(
        line,
        cwd=place,
        env=harness.environment(place),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert run.stdout is not None
    run.stdout.close()

    assert 0 == run.wait(harness.PATIENCE_S)
    assert [] == stored(place)


def _foreground(place: Path, role: str, *arguments: str, name: str) -> subprocess.Popen[bytes]:
    log = (place / f"{name}.log").open("wb")
    options = [*harness.impatient(), *SESSION_LESS]
    if role == "jobmanager":
        options += arguments
    return subprocess.Popen(
        [*harness.COMMAND, role, *options],
        cwd=place,
        env=harness.environment(place),
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def _end(members: list[subprocess.Popen[bytes]], place: Path) -> None:
    for member in members:
        if member.poll() is None:
            member.kill()
            member.wait(10)
    for pid in harness.processes_of(place):
        os.kill(pid, signal.SIGKILL)


def _text(path: Path) -> str:
    return path.read_text()


def _ancestors(pid: int) -> list[int]:
    """Return the process and its ancestors, nearest first."""
    found = []
    while pid > 1:
        found.append(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    return found


def test_a_standby_whose_guardian_was_killed_leaves_nothing_in_line(
    start: Start, place: Path, nothing_left: Callable[[], None]
) -> None:
    run = start("three.py", standbys=1)
    run.running("second job")
    (standby,) = [one for one in run.standby_is_ready()["standbys"] if one["ready"]]
    (its,) = [one for one in run.of("jobmanager-started") if one["pid"] == standby["pid"]]
    os.kill(its["guardian_pid"], signal.SIGKILL)
    run.release()

    assert 0 == run.finish()
    assert [] == stored(place)
    nothing_left()
