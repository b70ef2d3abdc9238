"""Processes in the background: found again, ended, and never taken for another one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from understudy.cli.launch import background
from understudy.cli.launch.background import Background

SLEEPER = ("sleep", "600")
STUBBORN = (
    sys.executable,
    "-c",
    "import signal, time\nsignal.signal(signal.SIGTERM, lambda *_: None)\n"
    "print('deaf', flush=True)\nwhile True: time.sleep(1)",
)


class Started:
    """Processes that a test has started."""

    def __init__(self, place: Path) -> None:
        self.record = place / "pids" / "one.json"
        self.log = place / "logs" / "one.log"
        self._pids: list[int] = []

    def __call__(self, command: tuple[str, ...] = SLEEPER) -> Background:
        found = background.start(command, self.record, self.log, about={"who": "one"})
        self._pids.append(found.pid)
        return found

    def close(self) -> None:
        for pid in self._pids:
            os.kill(pid, signal.SIGKILL)  # It stays ours until it is waited for.
            os.waitpid(pid, 0)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Started]:
    found = Started(tmp_path)
    yield found
    found.close()


def test_it_is_found_again_by_its_record_until_it_ends(start: Started) -> None:
    process = start()
    found = background.recorded(start.record)
    lived = process.lives
    gone = background.end(process, 30.0)

    assert process == found
    assert {"who": "one"} == process.about
    assert lived
    assert gone
    assert not process.lives
    assert background.end(process, 30.0), "it is gone already"


def test_it_has_a_session_of_its_own_and_its_output_goes_to_the_log(start: Started) -> None:
    process = start(STUBBORN)
    deadline = time.monotonic() + 60
    while background.last_lines(start.log, 1) != ["deaf"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)

    assert process.pid == os.getsid(process.pid)
    assert 0o600 == start.log.stat().st_mode & 0o777
    assert background.end(process, 0.2), "what does not hear is killed"


@pytest.mark.parametrize("changed", [{"started": 1}, {"boot": "another"}])
def test_another_process_with_its_number_is_left_alone(
    start: Started, changed: dict[str, int | str]
) -> None:
    process = start()
    other = replace(process, **changed)
    ended = background.end(other, 5.0)

    assert ended
    assert not other.lives
    assert process.lives


def test_what_ended_at_once_does_not_live(start: Started) -> None:
    process = start(("true",))
    handle = os.pidfd_open(process.pid)
    over = background.is_over(handle, 60.0)
    os.close(handle)

    assert over
    assert not process.lives
    assert not replace(process, started=0).lives


@pytest.mark.parametrize("data", [b"", b"{", b'{"pid": "x"}', b"[]", b"\xff"])
def test_a_record_that_says_nothing_names_nobody(tmp_path: Path, data: bytes) -> None:
    record = tmp_path / "one.json"
    record.write_bytes(data)

    assert background.recorded(record) is None
    assert background.recorded(tmp_path / "none.json") is None


def test_what_cannot_be_started_leaves_no_record(start: Started) -> None:
    with pytest.raises(FileNotFoundError):
        background.start(("/no/such/program",), start.record, start.log)

    assert not start.record.exists()


def test_two_commands_do_not_look_at_the_records_at_once(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom pathlib import Path\nfrom understudy.cli.launch import background\n"
        "with background.alone(Path(sys.argv[1])):\n    print('in', flush=True)"
    )
    with background.alone(tmp_path):
        other = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE
        )
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(1.5)
    out, _ = other.communicate(timeout=60)

    assert b"in\n" == out
