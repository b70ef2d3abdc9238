"""The output streams of this process."""

from __future__ import annotations

import contextlib
import sys
from typing import TextIO


def flush_output() -> None:
    """Flush the output streams, which user code may have closed or replaced."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a person sees a stream; it is None where the process began without it."""
    return stream is not None and stream.isatty()
