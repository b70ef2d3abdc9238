"""Telling what happens: events for the launcher, lines that user code prints, and log files.

Nothing here ever blocks the event loop: a thread of its own writes, and where the reader is
paused, lines are dropped (and counted) rather than the cluster held up. Events are never dropped.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from understudy.process import disk

LINES_MAX = 10_000
"""Lines held for a paused reader: a few megabytes."""

HELD_CHARS_MAX = 16 << 20
"""... as long as they are no pieces of one that never ends."""

LOG_BYTES_MAX = 64 << 20
"""A larger log of one application begins anew; the last one is kept beside it."""

QUIET = ("\x01", "WARNING: Using incubator modules")
"""Lines that begin like this go to the log only: they are Spark's log, and noise of the JVM."""


CLUSTER = "understudy"
"""The source of what the processes of the cluster log."""


def printable(name: str) -> str:
    """Return a name that cannot move the cursor, and that stays on its line."""
    return "".join(character if character.isprintable() else "·" for character in name)


def printable_lines(text: str) -> str:
    """Return text that cannot move the cursor either, but keeps its lines."""
    return "\n".join(printable(line.expandtabs(4)) for line in text.split("\n"))


def log_name(run_id: str, application_id: str) -> str:
    """Return under which name an application's log is kept: both ids lead to it."""
    return f"{run_id}-{application_id}"


class Reporter(Protocol):
    """Who is told what happens."""

    def event(self, event: str, **fields: Any) -> None:
        """Tell that something happened; the fields are JSON."""
        ...

    def line(self, log: str, source: str, text: str) -> None:
        """Tell that user code has printed a line."""
        ...

    def close(self) -> None:
        """Write what is left, within a second."""
        ...


class Silent:
    """Tells nobody."""

    def event(self, event: str, **fields: Any) -> None:
        """See `Reporter.event`."""

    def line(self, log: str, source: str, text: str) -> None:
        """See `Reporter.line`."""

    def close(self) -> None:
        """See `Reporter.close`."""


class ThreadedReporter:
    """Writes log files, and hands events and lines to ``tell`` in a thread of its own."""

    def __init__(self, tell: Callable[[dict[str, Any]], None], logs: LogFiles) -> None:
        self._tell = tell
        self._logs = logs
        self._queue: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._dropped = 0
        # Characters, each counted by one thread only: what was taken in, and what was written.
        self._taken = 0
        self._written = 0
        self._thread = threading.Thread(target=self._write, name="understudy-reporter", daemon=True)
        self._thread.start()

    def event(self, event: str, **fields: Any) -> None:
        """See `Reporter.event`."""
        self._queue.put({"event": event, **fields})

    def line(self, log: str, source: str, text: str) -> None:
        """See `Reporter.line`."""
        held = self._taken - self._written
        if self._queue.qsize() > LINES_MAX or held > HELD_CHARS_MAX:
            self._dropped += 1
            return
        self._taken += len(text)
        self._queue.put({"event": "output", "log": log, "source": printable(source), "line": text})

    def close(self) -> None:
        """See `Reporter.close`."""
        self._queue.put(None)
        self._thread.join(1.0)

    def _write(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                if item["event"] == "output":
                    self._written += len(item["line"])
                    self._write_line(item)
                else:
                    self._tell(item)
            except (OSError, ValueError):
                continue  # The reader is gone, or the disk is full: the cluster goes on.

    def _write_line(self, item: dict[str, Any]) -> None:
        text: str = item["line"]
        quiet = text.startswith(QUIET)
        item["line"] = text = text.removeprefix("\x01")
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            text += f"\n[{dropped} lines were dropped: the reader was too slow]"
        self._logs.append(item["log"], item["source"], text)
        if not quiet:
            self._tell(item)


class LogFiles:
    """One log file an application, in which all processes append whole lines."""

    def __init__(self, directory: Path, keep: int) -> None:
        self._directory = directory
        self._keep = keep
        self._open: dict[str, int] = {}
        self._lock = threading.Lock()

    def append(self, application: str, source: str, text: str) -> None:
        """Add lines, marked with time and source."""
        now = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")
        marked = "".join(f"{now} [{source}] {line}\n" for line in text.split("\n"))
        with self._lock:
            os.write(self._descriptor(application), marked.encode(errors="replace"))

    def path(self, application: str) -> Path:
        """Return the log file of an application."""
        return self._directory / f"{application}.log"

    def _descriptor(self, application: str) -> int:
        path = self.path(application)
        descriptor = self._open.get(application)
        if descriptor is not None:
            status = os.fstat(descriptor)
            full = status.st_size >= LOG_BYTES_MAX
            if status.st_nlink and not (full and _set_aside(path, descriptor)):
                return descriptor
            # Not ours any more, whatever fails from here on: the next file may get its number.
            del self._open[application]
            os.close(descriptor)
        self._directory.mkdir(parents=True, exist_ok=True)
        if descriptor is None and not path.exists():
            self._prune()
        self._open[application] = os.open(
            path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        return self._open[application]

    def _prune(self) -> None:
        """Remove the oldest logs, so that there is place for one more."""
        logs = sorted(self._directory.glob("*.log"), key=_written_at)
        for path in logs[: max(0, len(logs) - self._keep + 1)]:
            path.unlink(missing_ok=True)
            path.with_suffix(".log.1").unlink(missing_ok=True)


def _set_aside(path: Path, descriptor: int) -> bool:
    """Give a full log its second name; say whether it has it by now.

    All processes come upon a full log at the same time: whoever has its lock renames it, unless it
    was renamed, and the others write one more line into it meanwhile.
    """
    if not disk.locked(descriptor):
        return False
    try:
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            path.replace(path.with_suffix(".log.1"))
    except FileNotFoundError:
        pass
    finally:
        disk.unlock(descriptor)
    return True


def _written_at(log: Path) -> float:
    try:
        return log.stat().st_mtime
    except FileNotFoundError:  # Another process makes place just now.
        return 0.0


def to_pipe(descriptor: int) -> Callable[[dict[str, Any]], None]:
    """Return a writer of JSON lines to a pipe whose reader is the launcher."""

    def tell(item: dict[str, Any]) -> None:
        data = json.dumps(item).encode() + b"\n"
        while data:
            data = data[os.write(descriptor, data) :]

    return tell


def to_console(item: dict[str, Any]) -> None:
    """Print lines marked with their source, and events as log records."""
    if item["event"] == "output":
        print(f"[{item['source']}] {item['line']}", file=sys.stderr, flush=True)
        return
    fields = " ".join(f"{key}={value}" for key, value in item.items() if key != "event")
    logging.getLogger("understudy").info("%s %s", item["event"], fields)
