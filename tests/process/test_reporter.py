"""What is printed faster than anybody reads is dropped, counted, and never held without end."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from understudy.process.reporter import (
    HELD_CHARS_MAX,
    LINES_MAX,
    LogFiles,
    ThreadedReporter,
    printable_lines,
)


@pytest.mark.parametrize(
    ("length", "most"), [(1 << 16, HELD_CHARS_MAX // (1 << 16) + 2), (1, LINES_MAX + 2)]
)
def test_lines_for_a_paused_reader_are_held_up_to_a_bound(
    tmp_path: Path, length: int, most: int
) -> None:
    told: list[dict[str, Any]] = []
    done = threading.Event()
    read = threading.Event()
    paused = threading.Event()

    def tell(item: dict[str, Any]) -> None:
        paused.set()
        read.wait()
        told.append(item)
        if item["event"] == "done":
            done.set()

    reporter = ThreadedReporter(tell, LogFiles(tmp_path, 10))
    reporter.line("log", "source", "first")
    paused.wait()
    for _ in range(2 * most):
        reporter.line("log", "source", "x" * length)
    read.set()
    reporter.event("done")
    assert done.wait(30)
    reporter.line("log", "source", "last")
    reporter.close()

    assert len(told) <= most + 3
    assert "lines were dropped: the reader was too slow]" in (tmp_path / "log.log").read_text()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("one\n\r\x1b[2Jtwo", "one\n··[2Jtwo"), ("a\tb", "a   b"), ("\u202egnp", "·gnp"), ("", "")],
)
def test_text_keeps_its_lines_and_loses_what_moves_the_cursor(text: str, expected: str) -> None:
    actual = printable_lines(text)

    assert expected == actual
