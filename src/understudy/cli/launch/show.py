"""Display of a run: JSON lines for programs, a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from understudy.cli.launch.sentences import describe, takeover
from understudy.cli.launch.story import PUBLIC, Event, JobLine, LastCheckpoint, Story
from understudy.process.reporter import printable

BAR_WIDTH = 24
NAME_WIDTH = 32
NAME_WIDTH_MIN = 8
STAGE_WIDTH_MIN = 12
LINES_SHOWN = 12
"""Jobs in the live view; more would push the application's own output off the screen."""


NAME, TASKS, RATE, STAGE = 0, 3, 4, 5
"""Columns of a job's line."""


class PlainView:
    """One line per event, for logs and pipes; with ``events``, public events as JSON instead."""

    def __init__(self, events: TextIO | None) -> None:
        self._as_json = events is not None
        self._events = events
        self._errors: TextIO | None = sys.stderr

    def show(self, event: Event) -> None:
        """Print an event as a line or as JSON."""
        public = event["event"] in PUBLIC
        if public and self._events:
            self._events = _written(self._events, json.dumps(event))
        text = describe(event)
        if text and not (self._as_json and public) and self._errors:
            self._errors = _written(self._errors, text)


def _written(stream: TextIO, line: str) -> TextIO | None:
    """Write a line; return the stream, or None once its reader is gone: the run continues."""
    try:
        stream.write(line + "\n")
        stream.flush()
    except OSError:
        # Python flushes its buffer at exit: give it a place to go.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        return None
    return stream


class LiveView:
    """A terminal display: scrolling output above, the leader and running jobs below."""

    def __init__(self, story: Story, console: Console | None = None) -> None:
        self._story = story
        self._console = console or Console(stderr=True, highlight=False)
        self._live = Live(
            console=self._console,
            refresh_per_second=4,
            transient=True,
            get_renderable=lambda: StatusPanel(story),
        )

    def __enter__(self) -> Self:
        """Start the live display."""
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the live display, which disappears."""
        self._live.__exit__(kind, error, trace)

    def show(self, event: Event) -> None:
        """Print an event above the live part."""
        text = describe(event)
        if text:
            self._console.print(_as_printed(text), soft_wrap=True)


class StatusPanel:
    """The live part of the display: leader, last takeover, and a line per running job."""

    def __init__(self, story: Story) -> None:
        self._story = story

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines, none wider than the terminal."""
        story = self._story
        yield _line(f"● {_leader(story)}", style="bold")
        if story.taking_over:
            yield _line("  another one leads: it takes over", style="yellow")
        elif story.last_takeover:
            yield _line(f"  last {takeover(story.last_takeover)}")
        running = [line for line in story.jobs.values() if line.status not in _OVER]
        yield from _jobs(running[:LINES_SHOWN], story.now(), options.max_width)
        if len(running) > LINES_SHOWN:
            yield _line(f"  … and {len(running) - LINES_SHOWN} more")


def _jobs(lines: list[JobLine], now: float, width: int) -> Iterator[Table | Text]:
    """Yield a line per job: numbers are always shown, names are cut if space is short.

    A second line shows the job's last checkpoint, if any.
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
        if line.pending:
            yield _line(f"    ↳ {line.pending}", style="yellow")
        if line.waits:
            yield _line(f"    ↳ {line.waits}", style="yellow")
        if line.ui:
            yield _line(f"    ↳ Spark UI: {line.ui}", style="dim")
        if line.checkpoint:
            yield _line(f"    {_checkpoint(line.checkpoint, now)}", style="dim")


def _checkpoint(last: LastCheckpoint, now: float) -> str:
    """Return number, age and rate first, so that a narrow terminal cuts the name."""
    age = _age(max(0.0, now - last.at))
    if last.restored:
        return f"↳ continues from checkpoint {last.number:,}, since {age}: {last.words}"
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
    """Return literal text: brackets in it are not markup."""
    return Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")


def _leader(story: Story) -> str:
    leader = f"term {story.term}  {story.leader}  {story.rest}" if story.leader else "nobody yet"
    status = story.status or "starting"
    elapsed = _age(max(0.0, story.now() - story.since))
    return f"{status} for {elapsed}   leader: {leader}   takeovers: {story.takeovers}"


def _cells(line: JobLine, now: float, bar_width: int) -> tuple[str, str, str, str, str, str]:
    """Return a job's cells: name, state, bar, tasks, tasks per second, stage."""
    words = [] if line.status == "RUNNING" else [line.status.lower()]
    if line.attempt:
        words.append(f"attempt {line.attempt}")
    if line.adopted:
        words.append("adopted")
    words.append(_age(max(0.0, now - line.since)))
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
    """Return the application's output with its colours but without cursor movements."""
    shown = Text("\n").join(Text.from_ansi(line) for line in text.split("\n"))
    if all(character.isprintable() or character in "\n\t" for character in shown.plain):
        return shown
    return Text("\n".join(printable(line) for line in text.split("\n")))
