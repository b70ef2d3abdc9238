"""What a JobManager or TaskManager in the foreground prints: sentences, or events for a log."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from understudy.cli.launch.notify import NoNotifier
from understudy.cli.launch.worker import _to_console_and

EVENTS: list[dict[str, object]] = [
    {"event": "jobmanager-started", "id": "jobmanager-1", "pid": 7, "rest": "http://h:1"},
    {"event": "leader", "id": "jobmanager-1", "pid": 7, "rest": "http://h:1", "term": 3},
    {"event": "output", "source": "main", "line": "hello"},
    {"event": "jobmanager-told-nobody"},
]


class Screen(io.StringIO):
    """A standard error that is a terminal, or not."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        """Return whether this is a terminal."""
        return self._is_terminal


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_shows_sentences_and_a_log_the_events(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "understudy")
    screen = Screen(is_terminal=is_terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    tell = _to_console_and(NoNotifier())

    for event in EVENTS:
        tell(event)

    shown, logged = screen.getvalue().splitlines(), [one.getMessage() for one in caplog.records]
    if is_terminal:
        assert [
            "understudy: jobmanager-1 has started, http://h:1",
            "understudy: jobmanager-1 (process 7) leads, term 3, http://h:1",
            "[main] hello",
        ] == shown
        assert [] == logged
    else:
        assert ["[main] hello"] == shown
        assert "leader id=jobmanager-1 pid=7 rest=http://h:1 term=3" in logged


def test_the_log_of_a_session_does_not_grow_with_what_applications_print(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = Screen(is_terminal=False)
    monkeypatch.setattr(sys, "stderr", screen)
    tell = _to_console_and(NoNotifier(), prints=False)

    for event in EVENTS:
        tell(event)

    assert "hello" not in screen.getvalue()
