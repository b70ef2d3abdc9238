"""How a run is shown: JSON lines for programs, a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import os
import sys
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from understudy.cli.story import PUBLIC, Event, Story

BAR_WIDTH = 24
LINES_SHOWN = 12
"""Jobs in the live view; more would push the application's own output off the screen."""


class View(Protocol):
    """Shows events as they come, within a ``with`` block."""

    def __enter__(self) -> Self:
        """Begin."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End, leaving the terminal as it was."""
        ...

    def show(self, event: Event) -> None:
        """Show an event, or a line that was printed."""
        ...


class PlainView:
    """One line each, for logs and pipes; with ``events`` also one JSON object each on stdout."""

    def __init__(self, events: TextIO | None) -> None:
        self._as_json = events is not None
        self._events = events
        self._errors: TextIO | None = sys.stderr

    def __enter__(self) -> Self:
        """See `View.__enter__`."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """See `View.__exit__`."""

    def show(self, event: Event) -> None:
        """See `View.show`."""
        public = event["event"] in PUBLIC
        if public and self._events:
            self._events = _written(self._events, json.dumps(event))
        text = describe(event)
        if text and not (self._as_json and public) and self._errors:
            self._errors = _written(self._errors, text)


def _written(stream: TextIO, line: str) -> TextIO | None:
    """Write a line; return the stream, or None once nobody reads it: the run goes on."""
    try:
        stream.write(line + "\n")
        stream.flush()
    except OSError:
        # What Python still holds must go somewhere when it flushes at exit.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        return None
    return stream


class LiveView:
    """A terminal: output scrolls, below it who leads and how far each running job is."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._console = Console(stderr=True, highlight=False)
        self._live = Live(
            console=self._console, refresh_per_second=4, transient=True, get_renderable=self._table
        )

    def __enter__(self) -> Self:
        """See `View.__enter__`."""
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """See `View.__exit__`."""
        self._live.__exit__(kind, error, trace)

    def show(self, event: Event) -> None:
        """See `View.show`."""
        text = describe(event)
        if text:
            self._console.print(Text(text), soft_wrap=True)

    def _table(self) -> Table:
        story = self._story
        table = Table.grid(padding=(0, 1))
        leader = (
            f"term {story.term}  {story.leader}  {story.rest}" if story.leader else "nobody yet"
        )
        status = story.status or "starting"
        table.add_row("●", f"{status}   leader: {leader}   takeovers: {len(story.takeovers)}")
        running = [line for line in story.jobs.values() if line.status not in _OVER]
        for line in running[:LINES_SHOWN]:
            table.add_row(" ", Text(f"{_printable(line.name)}: {line.status.lower()} {_bar(line)}"))
        if len(running) > LINES_SHOWN:
            table.add_row(" ", f"… and {len(running) - LINES_SHOWN} more")
        return table


_OVER = {"FINISHED", "FAILED", "CANCELED"}


def _bar(line: object) -> str:
    done, total = getattr(line, "tasks_done", 0), getattr(line, "tasks_total", 0)
    if not total:
        return ""
    filled = BAR_WIDTH * done // total
    return f"{'━' * filled}{'─' * (BAR_WIDTH - filled)} {done} of {total} tasks"


def _printable(name: str) -> str:
    """Return a name that cannot move the cursor."""
    return "".join(character if character.isprintable() else "·" for character in name)


def describe(event: Event) -> str:
    """Return the line that tells an event to a person; empty for what is not told in lines."""
    match event["event"]:
        case "output":
            return f"[{event['source']}] {event['line']}"
        case "log":
            return str(event["line"])
        case "cluster-started":
            return f"understudy: cluster {event['cluster_id']} started, {', '.join(event['rest'])}"
        case "leader":
            return f"understudy: {event['id']} leads, term {event['term']}, {event['rest']}"
        case "application-status":
            return f"understudy: application {event['application_id']} is {event['status']}"
        case "job-status":
            return _describe_job(event)
        case "takeover":
            return _describe_takeover(event)
    return ""


def _describe_job(event: Event) -> str:
    if event["status"] == "CREATED" and event["attempt"]:
        return ""  # It has a driver and begins: RUNNING tells it.
    how = ", adopted" if event["adopted"] else ""
    attempt = f", attempt {event['attempt']}" if event["attempt"] else ""
    return f"understudy: job {event['name']!r} is {event['status']}{attempt}{how}"


def _describe_takeover(event: Event) -> str:
    parts = [
        f"{word}: {', '.join(event[key])}"
        for key, word in (
            ("adopted", "adopted"),
            ("restarted", "restarted"),
            ("skipped", "not run again"),
            ("displaced", "gave way"),
        )
        if event.get(key)
    ]
    return f"understudy: takeover in {event['seconds']:.2f} s; {'; '.join(parts) or 'nothing ran'}"
