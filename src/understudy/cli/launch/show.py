"""How a run is shown: JSON lines for programs, a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from understudy.cli.launch.story import PUBLIC, Event, JobLine, LastCheckpoint, Story, of_what
from understudy.process.reporter import printable

BAR_WIDTH = 24
NAME_WIDTH = 32
NAME_WIDTH_MIN = 8
STAGE_WIDTH_MIN = 12
NAMES_SHOWN = 10
"""Jobs that a takeover is told with, of those that share a fate; there may be thousands."""

LINES_SHOWN = 12
"""Jobs in the live view; more would push the application's own output off the screen."""


NAME, TASKS, RATE, STAGE = 0, 3, 4, 5
"""Columns of a job's line."""


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

    def __init__(self, story: Story, console: Console | None = None) -> None:
        self._story = story
        self._console = console or Console(stderr=True, highlight=False)
        self._live = Live(
            console=self._console,
            refresh_per_second=4,
            transient=True,
            get_renderable=lambda: Standing(story),
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
            self._console.print(_as_printed(text), soft_wrap=True)


class Standing:
    """How things stand: who leads, the last takeover, and a line for each running job."""

    def __init__(self, story: Story) -> None:
        self._story = story

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """Yield line by line, none wider than the terminal."""
        story = self._story
        yield _line(f"● {_leader(story)}", style="bold")
        if story.taking_over:
            yield _line("  another one leads: it takes over", style="yellow")
        elif story.last_takeover:
            yield _line(f"  last {_takeover(story.last_takeover)}")
        running = [line for line in story.jobs.values() if line.status not in _OVER]
        yield from _jobs(running[:LINES_SHOWN], story.now(), options.max_width)
        if len(running) > LINES_SHOWN:
            yield _line(f"  … and {len(running) - LINES_SHOWN} more")


def _jobs(lines: list[JobLine], now: float, width: int) -> Iterator[Table | Text]:
    """Yield a line for each job: what is counted is always shown, names have to give way.

    Below it stands its last checkpoint, where it has one.
    """
    bar_width = min(BAR_WIDTH, width // 6)
    rows = [[Text(cell) for cell in _cells(line, now, bar_width)] for line in lines]
    widths = [max((row[column].cell_len for row in rows), default=0) for column in range(6)]
    room = width - sum(widths[NAME + 1 : STAGE]) - len(widths) - 1
    widths[NAME] = min(widths[NAME], NAME_WIDTH, max(NAME_WIDTH_MIN, min(room, width // 4)))
    left = room - widths[NAME]
    widths[STAGE] = min(widths[STAGE], left) if left >= STAGE_WIDTH_MIN else 0
    shown = widths if widths[STAGE] else widths[:STAGE]
    for line, row in zip(lines, rows, strict=True):
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_column(width=1)
        for number, column_width in enumerate(shown):
            justify: JustifyMethod = "right" if number in {TASKS, RATE} else "left"
            table.add_column(width=column_width, no_wrap=True, overflow="ellipsis", justify=justify)
        table.add_row("", *row[: len(shown)])
        yield table
        if line.waits:
            yield _line(f"    ↳ {line.waits}", style="yellow")
        if line.checkpoint:
            yield _line(f"    {_checkpoint(line.checkpoint, now)}", style="dim")


def _checkpoint(last: LastCheckpoint, now: float) -> str:
    """Return the number, the age and the rate first: where there is no room, the name gives way."""
    age = _age(max(0.0, now - last.at))
    if last.restored:
        return f"↳ goes on from checkpoint {last.number:,}, since {age}: {last.words}"
    if last.failure:
        return f"↳ checkpoint {last.number:,} failed {age} ago: {last.words}: {last.failure}"
    rate = last.rows_a_second(now)
    told = "" if rate is None else f", {rate:,.0f} rows/s"
    return f"↳ checkpoint {last.number:,}, {age} ago{told}: {last.words}"


def _age(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = int(seconds) // 60
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


_OVER = {"FINISHED", "FAILED", "CANCELED"}


def _line(text: str, style: str = "") -> Text:
    """Return text as it is: brackets in it say nothing about its looks."""
    return Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")


def _leader(story: Story) -> str:
    leader = f"term {story.term}  {story.leader}  {story.rest}" if story.leader else "nobody yet"
    status = story.status or "starting"
    return f"{status}   leader: {leader}   takeovers: {story.takeovers}"


def _cells(line: JobLine, now: float, bar_width: int) -> tuple[str, str, str, str, str, str]:
    """Return a job's line: its name, what it does, a bar, tasks, tasks a second, the stage."""
    words = [] if line.status == "RUNNING" else [line.status.lower()]
    if line.attempt:
        words.append(f"attempt {line.attempt}")
    if line.adopted:
        words.append("adopted")
    name, doing = printable(line.name), ", ".join(words)
    done, total = line.tasks_done, line.tasks_total
    if not total:
        return name, doing, "", "", "", ""
    filled = bar_width * min(done, total) // total
    bar = f"{'━' * filled}{'─' * (bar_width - filled)}"
    rate = line.rate(now)
    told = "" if rate is None else f"{rate:,.1f}/s"
    stage = f"stage {printable(line.stage)}" if line.stage else ""
    return name, doing, bar, f"{done:,}/{total:,} tasks", told, stage


def _as_printed(text: str) -> Text:
    """Return what the application printed: its colours stay, what would move the cursor goes."""
    shown = Text("\n").join(Text.from_ansi(line) for line in text.split("\n"))
    if all(character.isprintable() or character in "\n\t" for character in shown.plain):
        return shown
    return Text("\n".join(printable(line) for line in text.split("\n")))


def describe(event: Event) -> str:
    """Return the line that tells an event to a person; empty for what is not told in lines."""
    match event["event"]:
        case "output":
            return f"[{event['source']}] {event['line']}"
        case "log":
            return str(event["line"])
        case "cluster-started":
            return f"understudy: cluster {event['cluster_id']} started, {', '.join(event['rest'])}"
        case "driver-ended":
            where = f"in slot {event['slot']}" if event["slot"] else "to spare"
            return f"understudy: driver {event['pid']} {where} {event['reason']}"
        case "leader":
            return f"understudy: {event['id']} leads, term {event['term']}, {event['rest']}"
        case "application-redeployed":
            return f"understudy: {_redeployed(event)}"
        case "result-discarded":
            return f"understudy: the result of job {event['name']!r} is discarded: it runs again"
        case "application-status":
            return f"understudy: application {event['application_id']} is {event['status']}"
        case "job-status":
            return _describe_job(event)
        case "job-executors":
            return f"understudy: {_attempt(event)} {printable(event['waits'] or 'has executors')}"
        case "checkpoint-failed":
            return f"understudy: {_failed(event)}"
        case "checkpoint-restored":
            return f"understudy: {_restored(event)}"
        case "takeover":
            return f"understudy: {_takeover(event)}"
        case "application-finished" if event.get("failure"):
            return f"understudy: the application failed: {printable(event['failure'])}"
    return ""


def _describe_job(event: Event) -> str:
    if event["status"] == "CREATED" and event["attempt"]:
        return ""  # It has a driver and begins: RUNNING tells it.
    how = ", adopted" if event["adopted"] else ""
    attempt = f", attempt {event['attempt']}" if event["attempt"] else ""
    return f"understudy: job {event['name']!r} is {event['status']}{attempt}{how}"


def _attempt(event: Event) -> str:
    return f"job {printable(event['name'])!r}, attempt {event['attempt']}"


def _restored(event: Event) -> str:
    words = ", ".join(printable(of_what(one)) for one in event["checkpoints"][:NAMES_SHOWN])
    saved = event.get("savepoint")
    which = f"savepoint {printable(saved)}" if saved else f"checkpoint {event['number']}"
    return f"{_attempt(event)}, goes on from {which} ({words})"


def _failed(event: Event) -> str:
    which = f"checkpoint {event['number']} ({printable(of_what(event))})"
    more = f", the last of {event['count']:,}" if event["count"] > 1 else ""
    return f"{_attempt(event)}: {which} failed{more}: {printable(event['failure'])}"


def _redeployed(event: Event) -> str:
    """Return what became other code, and which attempts of the code before are stopped for it."""
    changed = _names(event["changed"]) or "its code"
    stopped = f"; stopped: {_names(event['stopped'])}" if event["stopped"] else ""
    return f"other code is deployed, for the {event['deployment']}. time: {changed}{stopped}"


def _takeover(event: Event) -> str:
    """Return what a takeover came to; of many jobs, the first."""
    parts = [
        f"{word}: {_names(event[key])}"
        for key, word in (
            ("adopted", "adopted"),
            ("restarted", "restarted"),
            ("skipped", "not run again"),
            ("displaced", "gave way"),
        )
        if event.get(key)
    ]
    return f"takeover in {event['seconds']:.2f} s; {'; '.join(parts) or 'nothing ran'}"


def _names(names: list[str]) -> str:
    shown = ", ".join(printable(name) for name in names[:NAMES_SHOWN])
    more = len(names) - NAMES_SHOWN
    return f"{shown} and {more:,} more" if more > 0 else shown
