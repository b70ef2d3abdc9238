"""The output streams of this process."""

from __future__ import annotations

import contextlib
import sys


def flush_output() -> None:
    """Flush the output streams, which user code may have closed or replaced."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
