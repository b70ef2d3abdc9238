"""Jobs that treat their process badly: told as what they did, and the next job feels nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.journeys import harness
from tests.journeys.conftest import Start
from tests.journeys.harness import COMMAND, SESSION_LESS, Run, stored

ONCE = (
    *("-D", "restart-strategy.type=none"),
    *("-D", "taskmanager.driver.heartbeat-timeout=4 s"),
    *("-D", "taskmanager.numberOfTaskSlots=1"),
)

RETIRED = {
    "fork_children": "it left child processes",
    "fork_daemon": "it left child processes",
}
"""They return, and their driver serves no other job."""

ITS_OWN = (
    *("start_thread", "start_daemon_thread", "start_raw_thread", "start_named_threads"),
    *("close_output", "lose_output", "change_directory", "remove_directory", "change_mask"),
    *("change_environment", "change_handlers", "change_limits", "patch_json", "change_recursion"),
    *("change_timeout", "stop_collecting", "change_log_level", "change_precision", "add_module"),
    "block_no_more",
)
"""They return, and what they have done ends with their process: the driver goes on."""

FAILED = {
    "fill_memory": ("MemoryError", ""),
    "sys_exit": ("SystemExit", "the function called sys.exit('it has had enough')"),
    "sys_exit_list": ("SystemExit", "the function called sys.exit([1])"),
    "interrupt": ("KeyboardInterrupt", ""),
    "unspeakable": ("Unspeakable", "<its text cannot be told: KeyboardInterrupt>"),
    "unpicklable": ("Unpicklable", "it holds a lock"),
    "recurse": ("RecursionError", "maximum recursion depth exceeded"),
    "say_much": ("ValueError", "characters are left out"),
}
"""They raise: the exception is what ``main`` sees."""

LOST = {
    "exit_0": "its driver exited with 0",
    "exit_3": "its driver exited with 3",
    "kill_itself": "its driver was killed by signal 9",
    "kill_its_parent": "its driver was killed by signal 9",
    "kill_its_driver": "its driver was killed by signal 9",
    "kill_its_guardian": "its driver was killed: its guardian was killed",
    "freeze": "its driver was killed: silent for too long",
    "freeze_its_parent": "its driver was killed: silent for too long",
    "become_another": "its driver exited with 5",
    "become_another_for_long": "its driver was killed: silent for too long",
    "close_all": "its driver ",
}
"""They take the driver with them."""

FINE = ("print_binary", "print_much")

ALL = (*RETIRED, *ITS_OWN, *FAILED, *LOST, *FINE)

UNTOUCHED = {
    "mine": True,
    "left": None,
    "ignored": False,
    "threads": [],
    "children": [],
    "files": False,
    "output": [True, True],
    "blocks": [True, True],
    "json": "[1]",
    "timeout": None,
    "collected": True,
    "precision": 28,
    "imported": False,
    "path": False,
}
ALIKE = ("mask", "recursion", "log level", "counted")
"""What all jobs find alike, whatever it is here."""


@dataclass
class Story:
    """What was seen of the run."""

    run: Run
    code: int
    seen: dict[str, dict[str, Any]]
    left: dict[int, str]
    storage: list[str]

    def ended(self, name: str) -> dict[str, Any]:
        """Return the event of the end of the driver that ran a job."""
        job = next(e for e in self.run.events if e.get("name") == name)
        after = [e for e in self.run.of("driver-ended") if e["seq"] > job["seq"]]
        return after[0]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Run them all, one after the other, in one slot."""
    place = tmp_path_factory.mktemp("unclean")
    app = harness.put_app(place, "unclean.py")
    names = ALL
    line = [*COMMAND, "run-application", "--json", *SESSION_LESS, *ONCE, str(app), *names]
    run = Run(line, place, place / "stderr.log")
    try:
        code = run.finish(4 * harness.PATIENCE_S)
        lines = (place / "seen.jsonl").read_text().splitlines()
        seen = {told["job"]: told for told in map(json.loads, lines)}
        return Story(run, code, seen, harness.processes_of(place), stored(place))
    finally:
        harness.end(run)


def test_all_of_them_leave_the_application_as_main_wants_it(story: Story) -> None:
    assert 0 == story.code, story.run.story()
    assert {*ALL} == {*story.seen}
    assert 1 == len(story.run.of("leader")), "no JobManager was lost"
    assert ({}, []) == (story.left, story.storage)


@pytest.mark.parametrize("name", ALL)
def test_the_next_job_feels_nothing_of_it(story: Story, name: str) -> None:
    felt = story.seen[name]["then"]

    assert UNTOUCHED.items() <= felt.items()
    for what in ALIKE:
        assert {told["then"][what] for told in story.seen.values()} == {felt[what]}


@pytest.mark.parametrize("name", RETIRED)
def test_a_driver_that_was_left_unclean_is_retired_and_why_is_told(story: Story, name: str) -> None:
    assert story.seen[name]["value"] is None
    assert f"was retired: {RETIRED[name]}" == story.ended(name)["reason"]


@pytest.mark.parametrize("name", ITS_OWN)
def test_a_driver_goes_on_where_only_the_process_of_its_job_was_changed(
    story: Story, name: str
) -> None:
    before = story.seen[ALL[ALL.index(name) - 1]]["then"]["driver"]
    told = story.seen[name]

    assert told["value"] is None
    assert before == told["then"]["driver"]


@pytest.mark.parametrize("name", FAILED)
def test_what_it_raised_is_told(story: Story, name: str) -> None:
    kind, message = FAILED[name]
    told = story.seen[name]

    assert kind == told["type"].rpartition(".")[2]
    assert f"job {name!r} failed in attempt 1: " in told["message"]
    assert message in told["message"]
    assert "was retired: its job failed" == story.ended(name)["reason"]


def test_an_exception_that_holds_a_table_is_told_from_both_ends(story: Story) -> None:
    message = story.seen["say_much"]["message"]

    assert "the table was xxx" in message
    assert "xxx and ended" in message
    assert len(message) < 100_000


@pytest.mark.parametrize("name", LOST)
def test_how_its_driver_was_lost_is_told(story: Story, name: str) -> None:
    told = story.seen[name]

    assert "AttemptLost" == told["type"]
    assert LOST[name] in told["message"]
    assert LOST[name].removeprefix("its driver ") in story.ended(name)["reason"]


@pytest.mark.parametrize("name", FINE)
def test_what_it_prints_does_no_harm(story: Story, name: str) -> None:
    assert story.seen[name]["value"] is None


def test_output_that_is_no_text_is_kept_as_it_can_be_shown(story: Story) -> None:
    said = story.run.log.read_text(errors="strict")

    assert "[print_binary] " in said
    assert "\x1b[2J" in said, "what an application prints is its own"


@pytest.mark.long
def test_why_the_driver_before_was_lost_is_shown_over_rest_and_to_a_person(start: Start) -> None:
    run = start("three.py", options=("--slots", "1"))
    run.at_work()
    lost = run.busy()[1]
    harness.kill([lost["driver_pid"]])
    run.grown("jobs.txt", 3)
    slot = run.busy()[1]
    told = run.wait("driver-ended")
    run.release()
    code = run.finish()

    assert 0 == code
    assert "the driver before it was killed by signal 9" == slot["note"]
    assert (lost["id"], lost["job_id"], lost["slot"], "was killed by signal 9") == (
        told["id"],
        told["job_id"],
        told["slot"],
        told["reason"],
    )


@pytest.mark.long
def test_what_became_of_a_driver_is_told_to_a_person_too(tmp_path: Path) -> None:
    app = str(harness.put_app(tmp_path, "unclean.py"))

    done = harness.command(tmp_path, "run-application", *SESSION_LESS, *ONCE, app, "fork_daemon")

    assert " in slot 1 was retired: it left child processes" in done.stderr


@pytest.mark.long
def test_where_a_driver_serves_one_job_each_has_another_one(tmp_path: Path) -> None:
    app = str(harness.put_app(tmp_path, "unclean.py"))
    never = ("-D", "taskmanager.driver.reuse=never")

    done = harness.command(
        tmp_path, "run-application", *SESSION_LESS, *ONCE, *never, app, "change_mask", "patch_json"
    )

    told = [json.loads(line) for line in (tmp_path / "seen.jsonl").read_text().splitlines()]
    assert 2 == len({one["then"]["driver"] for one in told})
    assert "was retired" not in done.stderr
