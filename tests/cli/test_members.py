"""Orders to one host: also what was started under other files, or another name of the host."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from understudy.cli.launch import background
from understudy.cli.launch.background import Background
from understudy.cli.launch.members import Account, Order, Wanted, carry_out, unasked

FIRST = Wanted("taskmanager", 1)

Start = Callable[[str], Background]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a process, as if it were one of the cluster, by its record."""
    pids: list[int] = []

    def begin(name: str) -> Background:
        record = tmp_path / "pids" / "night" / f"{name}.json"
        about = {"incarnation": f"of {name}"}
        found = background.start(("sleep", "600"), record, tmp_path / "log", about=about)
        pids.append(found.pid)
        return found

    yield begin
    for pid in pids:
        os.kill(pid, signal.SIGKILL)  # It stays ours until it is waited for.
        os.waitpid(pid, 0)


def order(place: Path, verb: str, *wanted: Wanted, asked: tuple[str, ...] = ()) -> list[Account]:
    settings = {"env.pid.dir": str(place / "pids")}
    return carry_out(Order(verb, "one", "night", settings, wanted, asked=asked))


def test_what_the_files_do_not_ask_for_is_shown_as_long_as_it_lives(
    tmp_path: Path, start: Start
) -> None:
    start("taskmanager-one-1")
    other = start("jobmanager-fd00::a-b-12")
    start("taskmanager-two-1")
    background.end(start("taskmanager-one-2"), 30.0)
    (tmp_path / "pids" / "night" / "notes.json").write_text("{}")
    asked = ("taskmanager-one-1", "taskmanager-two-1")

    first, *others = order(tmp_path, "status", FIRST, asked=asked)

    assert ("runs", "") == (first.state, first.under)
    assert [("jobmanager", 12, "runs", "fd00::a-b", other.pid)] == [
        (one.role, one.number, one.state, one.under, one.pid) for one in others
    ]
    assert "masters and workers do not ask for jobmanager 12 on fd00::a-b" == others[0].why


def test_it_is_ended_by_the_name_it_was_started_under(tmp_path: Path, start: Start) -> None:
    other = start("taskmanager-two-1")
    missing, shown = order(tmp_path, "status", FIRST, asked=("taskmanager-one-1",))
    stopped = order(tmp_path, "stop", Wanted("taskmanager", 1, under=shown.under))

    assert ("missing", "runs") == (missing.state, shown.state)
    assert [("stopped", "two", other.pid)] == [(one.state, one.under, one.pid) for one in stopped]
    assert not other.lives
    assert ["missing"] == [
        one.state for one in order(tmp_path, "status", FIRST, asked=("taskmanager-one-1",))
    ]


def test_nothing_is_started_beside_one_of_its_kind_under_another_name_of_the_host(
    tmp_path: Path, start: Start
) -> None:
    other = start("taskmanager-two-1")

    refused, shown = order(tmp_path, "start", FIRST, asked=("taskmanager-one-1",))

    assert ("failed", "runs") == (refused.state, shown.state)
    assert refused.why == (
        f"process {other.pid} is taskmanager 1 of this host by another name, two: write that "
        "name, or end all with `understudy cluster stop`, with the same options"
    )


def test_a_process_of_a_host_with_two_names_is_told_once() -> None:
    asked = Account("one", "taskmanager", 1, "runs", 7, "a")
    told = [Account(host, "taskmanager", 2, "runs", 8, "b", under="x") for host in ("one", "two")]

    assert [told[0]] == unasked([asked, *told])
