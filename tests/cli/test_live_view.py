"""The live view: what a terminal shows while a run goes on, rendered to text."""

from __future__ import annotations

import io
import re
import tracemalloc

import pytest
from rich.console import Console

from understudy.cli.launch.sentences import describe
from understudy.cli.launch.show import LINES_SHOWN, LiveView, StatusPanel
from understudy.cli.launch.story import Event, Story

HOSTILE = "load\x1b[2J\r\n\x07[red]rows[/red] \u202edaol"


class Watched:
    """A story with a clock that a test sets, and its view."""

    def __init__(self) -> None:
        self.at = 0.0
        self.story = Story(lambda: 0.0, lambda: self.at)
        self.hear("leader", id="jobmanager-1", rest="http://[::1]:8081", term=1)
        self.hear("application-status", application_id="a", run_id="r", status="RUNNING")

    def hear(self, event: str, **fields: object) -> None:
        self.story.hear({"event": event, **fields})

    def job(self, number: int, name: str, status: str = "RUNNING", **fields: object) -> None:
        told = {"attempt": 1, "adopted": False, **fields}
        self.hear("job-status", job_id=str(number), name=name, status=status, **told)

    def progress(self, number: int, done: int, total: int, **fields: object) -> None:
        told = {"attempt": 1, "stage": "", **fields}
        self.hear("job-progress", job_id=str(number), tasks_done=done, tasks_total=total, **told)

    def shown(self, width: int = 120) -> list[str]:
        console = Console(record=True, width=width, file=io.StringIO())
        console.print(StatusPanel(self.story))
        lines = console.export_text().splitlines()
        assert all(len(line) <= width for line in lines)
        return [re.sub(r"\s+", " ", line).strip() for line in lines]


@pytest.fixture
def watched() -> Watched:
    return Watched()


def takeover(**fates: list[str]) -> Event:
    none: dict[str, list[str]] = {
        word: [] for word in ("adopted", "restarted", "skipped", "displaced")
    }
    return {"event": "takeover", "seconds": 0.0812, "term": 2, **none, **fates}


def test_a_running_job_has_a_line_with_attempt_bar_tasks_rate_and_stage(watched: Watched) -> None:
    watched.job(1, "load", attempt=2)
    for second in range(5):
        watched.at = float(second)
        watched.progress(1, 10 * second, 80, attempt=2, stage="3: count at flights.py:7")
    bar = "━" * 10 + "─" * 10
    expected = f"load attempt 2, 4 s {bar} 40/80 tasks 10.0/s stage 3: count at flights.py:7"

    actual = watched.shown()[1]

    assert expected == actual


def test_who_leads_stands_above_and_brackets_are_no_markup(watched: Watched) -> None:
    expected = "● RUNNING for 0 s leader: term 1 jobmanager-1 http://[::1]:8081 takeovers: 0"

    actual = watched.shown()[0]

    assert expected == actual


def test_a_job_without_tasks_yet_says_what_it_does(watched: Watched) -> None:
    watched.job(1, "load", "CREATED", attempt=0)
    watched.job(2, "clean", "RESTARTING", attempt=3)
    expected = ["load created, 0 s", "clean restarting, attempt 3, 0 s"]

    actual = watched.shown()[1:]

    assert expected == actual


def test_a_job_that_waits_says_for_what_and_a_running_one_where_its_spark_ui_is(
    watched: Watched,
) -> None:
    watched.job(1, "load", "CREATED", attempt=0)
    watched.hear("job-waits", job_id="1", name="load", waits="waits for a slot: 2 of 2 run others")
    watched.at = 65.0
    waiting = watched.shown()
    watched.job(1, "load")
    watched.hear("job-driver", job_id="1", name="load", attempt=1, driver="driver-1", ui="http://u")
    watched.at = 70.0
    running = watched.shown()
    watched.hear(
        "attempt-failed",
        job_id="1",
        name="load",
        attempt=1,
        failure={"type": "ValueError", "message": "no luck", "traceback": ""},
        retry=1,
        retries=3,
        delay_s=2.0,
        reason="",
    )
    watched.job(1, "load", "RESTARTING", attempt=2)
    failed = watched.shown()

    assert ["load created, 1 min", "↳ waits for a slot: 2 of 2 run others"] == waiting[1:]
    assert "● RUNNING for 1 min" == waiting[0].partition(" leader")[0]
    assert ["load attempt 1, 5 s", "↳ Spark UI: http://u"] == running[1:]
    assert ["↳ retry 1 of 3 in 2 s: ValueError: no luck"] == failed[2:]


def test_jobs_that_have_ended_are_shown_no_more(watched: Watched) -> None:
    for number, status in enumerate(("FINISHED", "FAILED", "CANCELED", "RUNNING")):
        watched.job(number, status.lower(), status)
    expected = ["running attempt 1, 0 s"]

    actual = watched.shown()[1:]

    assert expected == actual


def test_an_adopted_job_is_marked_and_keeps_its_tasks(watched: Watched) -> None:
    watched.job(1, "load")
    watched.progress(1, 6, 12)
    watched.job(1, "load", adopted=True)
    expected = f"load attempt 1, adopted, 0 s {'━' * 10}{'─' * 10} 6/12 tasks"

    actual = watched.shown()[1]

    assert expected == actual


def test_another_attempt_counts_from_nothing(watched: Watched) -> None:
    watched.job(1, "load")
    watched.progress(1, 6, 12, stage="1: count")
    watched.job(1, "load", attempt=2)
    watched.progress(1, 7, 12, attempt=1)
    expected = "load attempt 2, 0 s"

    actual = watched.shown()[1]

    assert expected == actual


def test_the_rate_is_that_of_the_last_seconds(watched: Watched) -> None:
    watched.job(1, "load")
    for second, done in ((0, 0), (10, 1000), (20, 1010), (25, 1015)):
        watched.at = float(second)
        watched.progress(1, done, 2000)
    watched.at = 30.0
    expected = 0.5

    actual = watched.story.jobs["1"].rate(watched.at)

    assert expected == actual


def test_a_job_that_stands_still_has_the_rate_nothing(watched: Watched) -> None:
    watched.job(1, "load")
    watched.progress(1, 5, 10)
    early = watched.story.jobs["1"].rate(5.0)

    late = watched.story.jobs["1"].rate(60.0)

    assert early is None
    assert 0.0 == late


def test_more_jobs_than_fit_are_counted(watched: Watched) -> None:
    for number in range(LINES_SHOWN + 30):
        watched.job(number, f"job {number}")

    lines = watched.shown()

    assert 1 + LINES_SHOWN + 1 == len(lines)
    assert "… and 30 more" == lines[-1]


def test_a_takeover_is_shown_while_it_goes_on_and_after(watched: Watched) -> None:
    watched.hear("leader", id="jobmanager-2", rest="http://127.0.0.1:8082", term=2)
    during = watched.shown()
    watched.story.hear(takeover(adopted=["load[1]"], skipped=[f"job {n}" for n in range(5000)]))

    after = watched.shown(200)

    assert "another one leads: it takes over" == during[1]
    assert "term 2 jobmanager-2 http://127.0.0.1:8082 takeovers: 1" in after[0]
    assert "last takeover in 0.08 s; adopted: load[1]; not run again: job 0, job 1" in after[1]
    assert after[1].endswith("job 9 and 4,990 more")


def test_a_leader_is_told_with_its_process() -> None:
    event = {"event": "leader", "id": "jobmanager-2", "pid": 4711, "term": 2}

    actual = describe({**event, "rest": "http://127.0.0.1:8082"})

    assert "understudy: jobmanager-2 (process 4711) leads, term 2, http://127.0.0.1:8082" == actual


def test_of_many_takeovers_with_many_jobs_only_the_last_is_kept(watched: Watched) -> None:
    tracemalloc.start()
    try:
        for number in range(40):
            watched.story.hear(takeover(skipped=[f"job {number} {n}" for n in range(5000)]))
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert "takeovers: 40" in watched.shown()[0]
    assert held < 2_000_000


def test_the_first_leader_takes_nothing_over(watched: Watched) -> None:
    expected = 1

    actual = len(watched.shown())

    assert expected == actual


def test_names_are_shown_as_they_are_but_move_nothing(watched: Watched) -> None:
    watched.job(1, HOSTILE)
    watched.progress(1, 1, 2, stage=f"1: {HOSTILE}")
    watched.story.hear(takeover(restarted=[HOSTILE]))
    expected = "load·[2J···[red]rows[/red] ·daol"

    lines = watched.shown(200)

    assert lines[2].startswith(expected)
    assert lines[2].endswith(f"stage 1: {expected}")
    assert lines[1].endswith(f"restarted: {expected}")


@pytest.mark.parametrize("width", [40, 80, 120, 250])
def test_nothing_is_wider_than_the_terminal(watched: Watched, width: int) -> None:
    watched.job(1, "n" * 10_000)
    watched.job(2, "漢字" * 100)
    watched.progress(2, 4_000, 100_000, stage="s" * 500)

    lines = watched.shown(width)

    assert 3 == len(lines)


def test_a_narrow_terminal_shows_tasks_and_rate_and_drops_the_stage(watched: Watched) -> None:
    watched.job(1, "a long name of a job")
    for second in range(3):
        watched.at = float(second)
        watched.progress(1, 10 * second, 40, stage="1: count")

    line = watched.shown(60)[1]

    assert line.endswith("20/40 tasks 10.0/s")


def test_what_the_application_prints_keeps_its_colours_and_moves_nothing() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, color_system="standard")
    view = LiveView(Story(lambda: 0.0), console)

    line = "\x1b[31mred\x1b[0m \x1b[2J\x1b[1;1H[bold]x[/bold]\x07"
    view.show({"event": "output", "source": "main", "line": line})

    assert "[main] \x1b[31mred\x1b[0m [bold]x[/bold]" == file.getvalue().strip()


def test_names_move_nothing_in_plain_lines() -> None:
    job: Event = {"event": "job-status", "name": HOSTILE, "status": "RUNNING", "attempt": 1}
    lines = [describe({**job, "adopted": True}), describe(takeover(adopted=[HOSTILE]))]

    actual = [line for line in lines if not line.isprintable()]

    assert [] == actual


def completed(watched: Watched, number: int, **fields: object) -> None:
    told = {"attempt": 1, "kind": "batch", "of": "live", "batch_id": number - 1, "rows": 0}
    watched.hear("checkpoint-completed", job_id="1", number=number, **{**told, **fields})


def test_below_a_job_stand_number_age_and_rows_a_second_of_its_last_checkpoint(
    watched: Watched,
) -> None:
    watched.job(1, "board")
    for second in range(6):
        watched.at = float(second)
        completed(watched, second + 1, rows=1_200)
    watched.at = 6.0

    actual = watched.shown()[1:]

    assert [
        "board attempt 1, 6 s",
        "↳ checkpoint 6, 1 s ago, 1,000 rows/s: batch 5 of live",
    ] == actual


def test_a_job_without_checkpoints_has_one_line(watched: Watched) -> None:
    watched.job(1, "load")
    watched.job(2, "clean")

    actual = watched.shown()[1:]

    assert ["load attempt 1, 0 s", "clean attempt 1, 0 s"] == actual


def test_rows_a_second_are_not_told_once_none_come(watched: Watched) -> None:
    watched.job(1, "board")
    for second in range(3):
        watched.at = float(second)
        completed(watched, second + 1, rows=10)
    watched.at = 75.0

    actual = watched.shown()[2]

    assert "↳ checkpoint 3, 1 min ago: batch 2 of live" == actual


def test_of_two_queries_the_higher_number_is_shown(watched: Watched) -> None:
    watched.job(1, "board")
    completed(watched, 8, of="late", batch_id=3)
    completed(watched, 7, of="early", batch_id=4)

    actual = watched.shown()[2]

    assert "↳ checkpoint 8, 0 s ago: batch 3 of late" == actual


def test_a_restarted_job_says_from_what_it_goes_on_until_it_has_a_new_one(
    watched: Watched,
) -> None:
    watched.job(1, "board")
    completed(watched, 8, batch_id=7)
    state = {"number": 9, "kind": "state", "of": "", "batch_id": None}
    restored = {"job_id": "1", "name": "board", "attempt": 2, "number": 9, "checkpoints": [state]}
    watched.hear("checkpoint-restored", **restored)
    watched.job(1, "board", attempt=2)
    before = watched.shown()[2]
    completed(watched, 10, kind="state", of="", batch_id=None, attempt=2)
    after = watched.shown()[2]

    assert "↳ continues from checkpoint 9, since 0 s: state" == before
    assert "↳ checkpoint 10, 0 s ago: state" == after
    expected = "understudy: job 'board', attempt 2, continues from checkpoint 9 (state)"
    assert expected == describe({"event": "checkpoint-restored", **restored})


def test_a_checkpoint_of_any_name_keeps_to_its_line_on_any_terminal(watched: Watched) -> None:
    watched.job(1, HOSTILE)
    completed(watched, 123_456, of=HOSTILE * 5, batch_id=123_455)
    for width in (40, 80, 120):
        actual = watched.shown(width)

        assert 3 == len(actual)
        assert "checkpoint 123,456, 0 s ago" in actual[2]


FAILED = {
    "event": "attempt-failed",
    "job_id": "j",
    "name": "load",
    "attempt": 1,
    "failure": {"type": "ValueError", "message": "a\nb", "traceback": "Traceback\n  a\x1b[2J\n"},
    "retry": 1,
    "retries": 3,
    "delay_s": 2.0,
    "reason": "",
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "retry 1 of 3 in 2 s"),
        ({"delay_s": 0.0, "retries": 3_000}, "retry 1 of 3,000 at once"),
        ({"retries": None, "delay_s": 1.5432}, "retry 1 in 1.54 s"),
        ({"delay_s": None}, "retry 1 of 3 when main reaches the job again"),
        ({"retry": 0, "retries": None, "reason": "not restarted: why"}, "not restarted: why"),
    ],
)
def test_a_failed_attempt_says_what_follows_and_shows_its_traceback(
    changes: dict[str, object], expected: str
) -> None:
    actual = describe({**FAILED, **changes})

    assert actual == (
        f"understudy: job 'load', attempt 1, failed: ValueError: a b; {expected}\n"
        "Traceback\n  a·[2J"
    )


def test_a_new_leader_tells_no_failed_attempt_again() -> None:
    story = Story(lambda: 0.0)

    assert story.hear({**FAILED}) is not None
    assert story.hear({**FAILED}) is None
    assert story.hear({**FAILED, "attempt": 2}) is not None


def test_a_run_starts_when_its_story_begins() -> None:
    """The monotonic clock counts from the start of the machine."""
    story = Story(lambda: 0.0, lambda: 7500.0)
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(StatusPanel(story))

    assert "starting for 0 s" in console.export_text()
