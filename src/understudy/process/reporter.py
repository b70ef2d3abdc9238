"""Reporting: events for the launcher, lines that user code prints, and log files.

Nothing here ever blocks the event loop: a separate thread writes. While the reader is paused, lines
are dropped (and counted), so that the cluster is not delayed. Events are never dropped.
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

from understudy.config import Configuration, options
from understudy.process import disk

LINES_MAX = 10_000
"""Lines kept for a paused reader: usually a few megabytes."""

HELD_CHARS_MAX = 16 << 20
"""Characters kept for a paused reader, for long lines."""

LOG_BYTES_MAX = 64 << 20
"""A log file of this size is renamed and a new one begins, unless a size is configured; one old
file is kept."""

OPEN_MAX = 100
"""Log files held open, of those applications that printed last: others are opened again."""

LOG_ONLY = "\x01"
"""Begins a line that goes to the log only."""

QUIET = (LOG_ONLY, "WARNING: Using incubator modules")
"""Lines with these prefixes go to the log only: Spark's own log, and noise of the JVM."""


CLUSTER = "understudy"
"""The source of the cluster processes' own log lines."""


def printable(name: str) -> str:
    """Return a name without characters that move the cursor or end the line."""
    return "".join(character if character.isprintable() else "·" for character in name)


def printable_lines(text: str) -> str:
    """Return text without characters that move the cursor; lines are kept."""
    return "\n".join(printable(line.expandtabs(4)) for line in text.split("\n"))


def log_name(run_id: str, application_id: str) -> str:
    """Return the name of an application's log, which contains both ids."""
    return f"{run_id}-{application_id}"


class Reporter(Protocol):
    """Receives events and printed lines."""

    def event(self, event: str, **fields: Any) -> None:
        """Report an event; the fields are JSON."""
        ...

    def line(self, log: str, source: str, text: str) -> None:
        """Report a line that user code has printed."""
        ...

    def close(self) -> None:
        """Write everything that is queued, within a second."""
        ...


class Silent:
    """A reporter that drops everything."""

    def event(self, event: str, **fields: Any) -> None:
        """Drop the event."""

    def line(self, log: str, source: str, text: str) -> None:
        """Drop the line."""

    def close(self) -> None:
        """Do nothing."""


class ThreadedReporter:
    """Writes log files, and passes events and lines to ``tell``, in a separate thread."""

    def __init__(self, emit: Callable[[dict[str, Any]], None], logs: LogFiles) -> None:
        self._emit = emit
        self._logs = logs
        self._queue: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._dropped = 0
        # Characters received and characters written, each counted by one thread only.
        self._taken = 0
        self._written = 0
        self._thread = threading.Thread(target=self._write, name="understudy-reporter", daemon=True)
        self._thread.start()

    def event(self, event: str, **fields: Any) -> None:
        """Queue the event."""
        self._queue.put({"event": event, **fields})

    def line(self, log: str, source: str, text: str) -> None:
        """Queue the line, or drop and count it if too much is queued."""
        held = self._taken - self._written
        if self._queue.qsize() > LINES_MAX or held > HELD_CHARS_MAX:
            self._dropped += 1
            return
        self._taken += len(text)
        self._queue.put({"event": "output", "log": log, "source": printable(source), "line": text})

    def close(self) -> None:
        """Let the thread finish the queue; wait for a second at most."""
        self._queue.put(None)
        self._thread.join(1.0)

    def _write(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                if item["event"] == "output":
                    self._written += len(item["line"])
                    self._write_line(item)
                else:
                    self._emit(item)
            except (OSError, ValueError):
                continue  # The reader is gone, or the disk is full: the cluster continues.

    def _write_line(self, item: dict[str, Any]) -> None:
        text: str = item["line"]
        quiet = text.startswith(QUIET)
        item["line"] = text = text.removeprefix(LOG_ONLY)
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            text += f"\n[{dropped} lines were dropped: the reader was too slow]"
        self._logs.append(item["log"], item["source"], text)
        if not quiet:
            self._emit(item)


class LogFiles:
    """One log file per application, to which all processes append whole lines."""

    def __init__(self, directory: Path, keep: int, size: int | None = None) -> None:
        """``keep``: so many applications' logs are kept; ``size``: see `LOG_BYTES_MAX`."""
        self._directory = directory
        self._size = LOG_BYTES_MAX if size is None else size
        self._keep = keep
        self._open: dict[str, int] = {}
        self._lock = threading.Lock()

    @classmethod
    def of(cls, configuration: Configuration) -> LogFiles:
        """Return the logs that a configuration names."""
        keep, size = configuration.get(options.LOG_MAX), configuration.get(options.LOG_MAX_SIZE)
        return cls(configuration.log_dir, keep, size)

    def append(self, application: str, source: str, text: str) -> None:
        """Append lines, each with time and source."""
        now = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")
        marked = "".join(f"{now} [{source}] {line}\n" for line in text.split("\n"))
        with self._lock:
            os.write(self._descriptor(application), marked.encode(errors="replace"))

    def path(self, application: str) -> Path:
        """Return the log file of an application."""
        return self._directory / f"{application}.log"

    def _descriptor(self, application: str) -> int:
        path = self.path(application)
        # Forget the descriptor before anything fails: the next file may get its number.
        descriptor = self._open.pop(application, None)
        if descriptor is not None:
            status = os.fstat(descriptor)
            full = status.st_size >= self._size
            if status.st_nlink and not (full and _set_aside(path, descriptor)):
                self._open[application] = descriptor  # The last, as it was used last.
                return descriptor
            os.close(descriptor)
        self._directory.mkdir(parents=True, exist_ok=True)
        if descriptor is None and not path.exists():
            self._prune()
        while len(self._open) >= OPEN_MAX:
            os.close(self._open.pop(next(iter(self._open))))
        self._open[application] = os.open(
            path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        return self._open[application]

    def _prune(self) -> None:
        """Remove the oldest logs to make room for one more."""
        logs = sorted(self._directory.glob("*.log"), key=_written_at)
        for path in logs[: max(0, len(logs) - self._keep + 1)]:
            path.unlink(missing_ok=True)
            path.with_suffix(".log.1").unlink(missing_ok=True)


def _set_aside(path: Path, descriptor: int) -> bool:
    """Rename a full log to its second name; return whether the log is renamed now.

    All processes find a full log at the same time. The first to lock it renames it, unless it was
    renamed already; the others write one more line into it.
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
    except FileNotFoundError:  # Another process has removed it.
        return 0.0


def to_pipe(descriptor: int) -> Callable[[dict[str, Any]], None]:
    """Return a function that writes JSON lines to the launcher's pipe."""

    def emit(item: dict[str, Any]) -> None:
        data = json.dumps(item).encode() + b"\n"
        while data:
            data = data[os.write(descriptor, data) :]

    return emit


def to_console(item: dict[str, Any]) -> None:
    """Print lines with their source; write events as log records."""
    if item["event"] == "output":
        print(f"[{item['source']}] {item['line']}", file=sys.stderr, flush=True)
        return
    fields = " ".join(f"{key}={value}" for key, value in item.items() if key != "event")
    logging.getLogger("understudy").info("%s %s", item["event"], fields)
