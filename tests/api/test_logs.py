"""Logs over REST: pieces that end with whole lines, and say how to go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from understudy.api import logs
from understudy.api.logs import Piece
from understudy.errors import NotFoundError


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "run.log"


def pieces(path: Path, offset: int = 0) -> list[Piece]:
    """Follow a log to its end."""
    found = [logs.read(path, offset, ended=False)]
    while found[-1].following < found[-1].size:
        found.append(logs.read(path, found[-1].following, ended=False))
    return found


def test_a_log_is_read_whole_and_then_on_from_there(log: Path) -> None:
    log.write_bytes(b"one\ntwo\n")
    first = logs.read(log, 0, ended=False)
    with log.open("ab") as file:
        file.write(b"three\n")
    second = logs.read(log, first.following, ended=False)
    third = logs.read(log, second.following, ended=False)

    assert [b"one\ntwo\n", b"three\n", b""] == [first.data, second.data, third.data]
    assert {"x-understudy-next-offset": "14", "x-understudy-log-size": "14"} == third.headers


def test_an_answer_is_bounded_and_ends_with_a_whole_line(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "PIECE_BYTES_MAX", 100)
    lines = [f"line {number} é\n".encode() for number in range(50)]
    log.write_bytes(b"".join(lines))

    found = pieces(log)

    assert b"".join(lines) == b"".join(piece.data for piece in found)
    assert all(len(piece.data) <= 100 and piece.data.endswith(b"\n") for piece in found)


def test_a_line_that_is_longer_than_an_answer_comes_in_parts(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "PIECE_BYTES_MAX", 100)
    log.write_bytes(b"x" * 250 + b"\n")

    found = pieces(log)

    assert [100, 100, 51] == [len(piece.data) for piece in found]


def test_an_offset_beyond_the_end_begins_at_the_beginning(log: Path) -> None:
    log.write_bytes(b"anew\n")
    expected = Piece(b"anew\n", 5, 5)

    actual = logs.read(log, 1 << 40, ended=False)

    assert expected == actual


def test_a_log_that_is_not_there_yet_is_empty(log: Path) -> None:
    assert Piece(b"", 0, 0) == logs.read(log, 7, ended=False)


def test_a_log_that_is_not_there_any_more_is_not_found(log: Path) -> None:
    with pytest.raises(NotFoundError, match=r"env\.log\.max"):
        logs.read(log, 0, ended=True)


def test_only_what_the_clusters_processes_logged_is_left_for_the_jobmanagers_log() -> None:
    ours = b"2026-01-01T00:00:00.000+00:00 [understudy] granted term 1\n"
    theirs = b"2026-01-01T00:00:00.000+00:00 [main] [understudy] I lead\n"

    actual = logs.of_cluster(Piece(theirs + ours + b"a torn line [understudy] x\n", 300, 300))

    assert Piece(ours, 300, 300) == actual
