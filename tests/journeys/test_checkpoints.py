"""A job that saves where it is goes on from there, whoever is killed, and never from elsewhere."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.conftest import Start
from tests.journeys.harness import COMMAND, SESSION_LESS, Run, command, stored
from tests.support.sampling import quickly

AGAIN_SOON = (
    *("-D", "restart-strategy.type=fixed-delay"),
    *("-D", "restart-strategy.fixed-delay.attempts=100"),
    *("-D", "restart-strategy.fixed-delay.delay=50ms"),
)
"""A driver that was killed is no reason to wait, in a test."""

SUM = sum(range(100))

NAMED = ("-D", "high-availability.cluster-id=flights", "--run-id", "monday")

CHECKPOINTS = "execution.checkpointing.dir"
RETENTION = "execution.checkpointing.externalized-checkpoint-retention"


def kill_driver(run: Run) -> None:
    os.kill(int(run.lines("pids.txt")[-1]), signal.SIGKILL)


def kill_leader(run: Run) -> None:
    os.kill(run.standby_is_ready()["leader"]["pid"], signal.SIGKILL)


def begun(run: Run) -> list[tuple[int, int]]:
    """Return each attempt, and at which step it began."""
    return [_pair(line) for line in run.lines("begun.txt")]


def saved(run: Run) -> list[tuple[int, int]]:
    """Return each step that was saved, and under which number."""
    return [_pair(line) for line in run.lines("saved.txt")]


def _pair(line: str) -> tuple[int, int]:
    first, second = line.split()
    return int(first), int(second)


def goes_on_where_it_was(run: Run) -> None:
    """Check that each attempt began right behind the last step that was saved.

    A driver may have been killed between a step being durable and its learning that.
    """
    attempts = begun(run)
    for (attempt, start), (_, following) in itertools.pairwise(attempts):
        steps = [_pair(line) for line in run.lines("steps.txt")]
        done = [step for step, by in steps if by == attempt]

        assert following in {done[-1], done[-1] + 1} if done else following == start
    numbers = [number for _, number in saved(run)]

    assert sorted(set(numbers)) == numbers
    assert numbers[0] == 1
    assert numbers[-1] == 100
    assert len(numbers) >= 100 - len(attempts)


@pytest.mark.long
def test_a_loop_goes_on_at_its_step_whenever_its_driver_is_killed(
    start: Start, place: Path, nothing_left: Callable[[], None]
) -> None:
    run = start("kept_loop.py", "loop", "95", options=AGAIN_SOON)
    for kill in range(1, 5):
        run.grown("saved.txt", 20 * kill)
        run.grown("begun.txt", kill)
        kill_driver(run)
    run.release()
    code = run.finish()

    assert code == 0, run.story()
    assert run.lines("result.txt") == [f"{SUM} 5 None"]
    goes_on_where_it_was(run)
    assert stored(place) == []
    nothing_left()


@pytest.mark.long  # Units: tests/taskmanager/test_new_leader.py.
def test_a_state_is_recorded_by_the_next_leader_and_no_step_is_done_twice(
    start: Start, place: Path
) -> None:
    run = start("kept_loop.py", "loop", "0", standbys=1)
    for step in range(19, 100, 20):
        run.until_line("steps.txt", f"{step} 1".__eq__)
        if lost := step in (19, 59):
            pid = run.standby_is_ready()["leader"]["pid"]
            os.kill(pid, signal.SIGKILL)
        (place / f"go-{step}").touch()
        if lost:
            run.wait("takeover")
    code = run.finish()

    assert code == 0, run.story()
    assert run.lines("result.txt") == [f"{SUM} 1 None"]
    assert saved(run) == [(step, step + 1) for step in range(100)]
    assert run.lines("steps.txt") == [f"{step} 1" for step in range(100)]
    assert stored(place) == []


def test_leader_and_driver_are_killed_together(start: Start, place: Path) -> None:
    run = start("kept_loop.py", "loop", "0", options=AGAIN_SOON, standbys=1)
    for attempt, step in enumerate(range(19, 80, 20), start=1):
        run.until_line("steps.txt", f"{step} {attempt}".__eq__)
        pid = run.standby_is_ready()["leader"]["pid"]
        (place / f"go-{step}").touch()
        os.kill(pid, signal.SIGKILL)
        kill_driver(run)
        run.wait("takeover")
    (place / "go-99").touch()
    code = run.finish()

    assert code == 0, run.story()
    assert run.lines("result.txt") == [f"{SUM} 5 None"]
    goes_on_where_it_was(run)


@pytest.mark.long  # Units: tests/jobmanager/test_checkpoint_cleanup.py.
@pytest.mark.local_storage
def test_only_the_latest_state_is_kept_and_what_a_dead_attempt_left_goes(
    start: Start, place: Path
) -> None:
    run = start("kept_loop.py", "loop", "0", options=AGAIN_SOON)
    run.until_line("steps.txt", "19 1".__eq__)
    (state,) = states(place)
    litter = state.with_name("1-999.json")
    litter.write_text("half")
    kill_driver(run)
    run.until_line("steps.txt", "19 2".__eq__)
    before = states(place)
    (place / "go-19").touch()
    run.until_line("steps.txt", "39 2".__eq__)
    after = states(place)
    for step in (39, 59, 79, 99):
        (place / f"go-{step}").touch()
    code = run.finish()

    assert code == 0
    assert before == sorted([state, litter])
    assert [one.name for one in after] == ["2-20.json"]
    assert saved(run) == [(step, step + 1) for step in range(100)]
    assert begun(run) == [(1, 0), (2, 19)]


def states(place: Path) -> list[Path]:
    return sorted(
        (place / "state" / "understudy" / "ha").glob("*/applications/*/checkpoints/*/state/*")
    )


DAMAGES = (("altered", "was altered since it was saved"), ("gone", "no such file"))


@pytest.mark.long  # Units: tests/driver/test_kept_state.py.
@pytest.mark.local_storage
@pytest.mark.parametrize(("damage", "why"), quickly(DAMAGES, DAMAGES[:1]))
def test_a_state_that_is_damaged_is_named_and_the_job_does_not_begin_from_scratch(
    start: Start, place: Path, damage: str, why: str
) -> None:
    run = start("kept_loop.py", "caught", "50", options=AGAIN_SOON)
    run.until_line("steps.txt", "50 1".__eq__)
    (state,) = states(place)
    if damage == "gone":
        state.unlink()
    else:
        state.write_bytes(state.read_bytes().replace(b"1225", b"1226"))
    kill_driver(run)
    code = run.finish()
    (caught,) = run.lines("caught.txt")

    assert code == 0
    assert "CheckpointError: job 'loop' failed in attempt 2" in caught
    assert state.name in caught
    assert why in caught
    assert "checkpoint 50" in caught
    assert "start a new run" in caught
    assert begun(run) == [(1, 0)]
    assert stored(place) == []


@pytest.mark.long  # Units: tests/driver/test_kept_state.py.
def test_what_is_no_json_or_too_large_is_refused_and_the_state_before_stays(start: Start) -> None:
    run = start("kept_loop.py", "refused")
    code = run.finish()
    keys, nan, large, thing, session = run.lines("errors.txt")

    assert code == 0, run.story()
    assert keys.startswith("InvalidValueError: $: the key 1 is a int")
    assert nan.startswith("InvalidValueError: $: nan is not JSON")
    assert "TooLarge" in large or "InvalidValue" in large
    assert "262144" in large.replace(",", "") or "256" in large
    assert thing.startswith("InvalidValueError: $: builtins.object cannot be kept: return ")
    assert session.startswith("this driver has no SparkSession")


# --- a damaged document -------------------------------------------------------------------------


@pytest.mark.long  # Units: tests/jobmanager/test_damage.py.
@pytest.mark.filesystem
@pytest.mark.parametrize("way_out", ["repaired", "cancelled"])
def test_a_damaged_document_is_named_its_job_waits_and_the_others_go_on(
    start: Start, place: Path, way_out: str
) -> None:
    run = start(
        "kept_loop.py",
        "beside",
        options=(*AGAIN_SOON, *NAMED, "-D", "taskmanager.numberOfTaskSlots=2"),
        standbys=1,
    )
    run.until_line("steps.txt", "5 1".__eq__)
    cluster = place / "state" / "understudy" / "ha" / "flights"
    (document,) = cluster.glob("register/checkpoints-*/val.*")
    sound = document.read_bytes()
    document.write_bytes(sound[: len(sound) // 2])
    kill_leader(run)
    run.wait("takeover")
    kill_driver(run)
    answer = run.until("/ha/status", lambda answer: answer["attention"])
    (problem,) = answer["attention"]
    (loop,) = [job for job in run.get("/jobs/overview")["jobs"] if job["name"] == "loop"]
    (place / "go-neighbour").touch()
    run.grown("caught.txt", 1)
    terms = len(run.of("leader"))
    run.release()
    if way_out == "repaired":
        document.write_bytes(sound)
    else:
        command(place, "cancel", loop["jid"], *NAMED[:2])
    code = run.finish()

    assert code == 0, run.story()
    assert problem["id"] == loop["jid"]
    assert "job 'loop'" in problem["problem"]
    assert document.parent.name in problem["problem"]
    assert run.lines("jobs.txt") == ["neighbour 1"]
    assert terms == 2
    if way_out == "repaired":
        assert begun(run) == [(1, 0), (2, 5)]
        assert run.lines("caught.txt") == ["1", str({"step": 100, "sum": SUM})]
    else:
        assert begun(run) == [(1, 0)]
        assert run.lines("caught.txt") == ["1", "cancelled None"]
    assert not list(cluster.glob("register/checkpoints-*"))


# --- what is retained ---------------------------------------------------------------------------

KEPT = {
    "NO_EXTERNALIZED_CHECKPOINTS": set(),
    "DELETE_ON_CANCELLATION": {"fails"},
    "RETAIN_ON_CANCELLATION": {"fails", "cancelled"},
}


@pytest.mark.long  # Units: tests/jobmanager/test_checkpoint_cleanup.py.
@pytest.mark.parametrize(
    ("scheme", "retention"),
    quickly(product(["", "file://"], KEPT), [("file://", "DELETE_ON_CANCELLATION")]),
)
def test_after_the_end_only_what_is_retained_is_left_and_the_results_name_it(
    start: Start, place: Path, retention: str, scheme: str
) -> None:
    chosen = place / "points"
    run = start(
        "kept_loop.py",
        "ends",
        options=(
            *NAMED,
            *("-D", f"{CHECKPOINTS}={scheme}{chosen}", "-D", f"{RETENTION}={retention}"),
        ),
    )
    code = run.finish()
    shown = json.loads(command(place, "info", "monday", "--json", *NAMED[:2]).stdout)
    told = {job["name"]: job["checkpoint"] for job in shown["jobs"]}
    results = command(place, "result", "monday", *NAMED[:2]).stdout
    text = command(place, "info", "monday", *NAMED[:2]).stdout
    caught = dict(line.split() for line in run.lines("caught.txt"))

    assert code == 0, run.story()
    assert {name for name, path in told.items() if path} == KEPT[retention]
    assert {name for name, path in caught.items() if path != "None"} == KEPT[retention]
    assert len(list(chosen.iterdir())) == len(KEPT[retention])
    for name in KEPT[retention]:
        assert told[name] == caught[name]
        path = Path(told[name].removeprefix("file://"))
        file = json.loads(path.read_text())["body"]["checkpoints"]
        (state,) = file["completed"]

        assert path.name == "checkpoint-3.json"
        assert file["counter"] == 3
        assert sorted(one.name for one in path.parent.rglob("*") if one.is_file()) == sorted(
            [path.name, Path(state["location"]).name]
        )
        assert told[name] in results
        assert told[name] in text
    left = [path for path in stored(place) if not path.startswith("flights/tombstones")]
    assert not [path for path in left if "checkpoint" in path or "application" in path]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ([f"{CHECKPOINTS}=points"], "give an absolute path or a URL"),
        ([f"{CHECKPOINTS}=/dev/null/points"], "execution.checkpointing.dir cannot be used"),
        ([f"{CHECKPOINTS}=nosuch://x/y"], "execution.checkpointing.dir cannot be used"),
        ([f"{RETENTION}=RETAIN_ON_CANCELLATION"], "say in execution.checkpointing.dir"),
    ],
)
def test_a_directory_that_cannot_be_used_is_refused_in_one_sentence(
    place: Path, settings: list[str], sentence: str
) -> None:
    harness.put_app(place, "kept_loop.py")
    options = [word for setting in settings for word in ("-D", setting)]
    refused = command(
        place, "run-application", *SESSION_LESS, *options, "kept_loop.py", "loop", "-1", code=2
    )

    assert sentence in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert stored(place) == []
    assert not (place / "main.txt").exists()


def test_plain_python_saves_and_restores_too(place: Path) -> None:
    harness.put_app(place, "kept_loop.py")
    done = subprocess.run(
        [COMMAND[0], "kept_loop.py", "loop", "-1"],
        cwd=place,
        env=harness.environment(place),
        capture_output=True,
        text=True,
        timeout=harness.PATIENCE_S,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert (place / "result.txt").read_text() == f"{SUM} 1 None\n"
