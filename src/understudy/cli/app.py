"""The command ``understudy``."""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

from understudy.errors import UnderstudyError, UsageError
from understudy.version import VERSION


def main() -> None:
    """Run the command that was typed; exit with its code."""
    if sys.argv[1:] == ["--version"]:  # Asked by scripts: without the library of the commands.
        print(VERSION)
        return
    if os.getpid() == 1:  # In a container: signals that process 1 has no handler for are dropped.
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _end)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # A terminal may be of Latin-1, or of ASCII.
            stream.reconfigure(errors="replace")
    group = importlib.import_module("understudy.cli.commands.group")
    try:
        group.app(standalone_mode=True)
    except UnderstudyError as error:
        _say(str(error))
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except OSError as error:  # The register or the storage, once all patience is over.
        _say(str(error) or "there was no answer in time")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def _end(number: int, _: FrameType | None) -> NoReturn:
    """End as if the signal had its default effect."""
    sys.exit(128 + number)


def _say(problem: str) -> None:
    reporter = importlib.import_module("understudy.process.reporter")
    secrets = importlib.import_module("understudy.config.secrets")
    print(f"understudy: {reporter.printable_lines(secrets.masked(problem))}", file=sys.stderr)
