"""The history: one file, one JSON a line, appended to by every process that takes part.

All run on one machine, in whatever namespace: CLOCK_BOOTTIME is the same for all of them.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: when, to whom, and what."""

    at: float
    who: str
    what: str
    more: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        """Return what else is told of it."""
        return self.more[name]

    def get(self, name: str) -> Any:
        """Return what else may be told of it."""
        return self.more.get(name)


def now() -> float:
    """Return the clock of all processes of this machine."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Pen:
    """Writes what happens to one process."""

    def __init__(self, path: Path, who: str) -> None:
        self.who = who
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)

    def note(self, what: str, **more: Any) -> Event:
        """Append an event of just now; a line is written whole or, by a kill, not at all."""
        event = Event(now(), self.who, what, more)
        line = {"at": event.at, "who": self.who, "what": what, **more}
        os.write(self._descriptor, json.dumps(line).encode() + b"\n")
        return event


def events(path: Path) -> list[Event]:
    """Return all events, in the order of time."""
    return sorted(
        (parse(line) for line in path.read_text().splitlines()), key=lambda event: event.at
    )


def parse(line: str) -> Event:
    """Return the event of a line."""
    more = json.loads(line)
    return Event(more.pop("at"), more.pop("who"), more.pop("what"), more)


class Reader:
    """Follows a history that is still being written."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._file = path.open()
        self._rest = ""
        self.events: list[Event] = []

    def more(self) -> list[Event]:
        """Return what was written since the last time; `events` holds all."""
        *lines, self._rest = (self._rest + self._file.read()).split("\n")
        found = [parse(line) for line in lines]
        self.events += found
        return found

    def close(self) -> None:
        """Close the file."""
        self._file.close()
