"""An application that waits between its two steps; the first runs until it may end.

``$FLIGHTS`` is a directory: each attempt adds a line to ``attempts``; ``job`` and ``main`` let go.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import understudy
from understudy import JobContext

PLACE = Path(os.environ["FLIGHTS"])


def await_file(name: str) -> None:
    """Return once there is such a file."""
    while not (PLACE / name).exists():
        time.sleep(0.05)


def load(ctx: JobContext) -> int:
    """Note the attempt and its pod; end once it may."""
    with (PLACE / "attempts").open("a") as file:
        file.write(f"{ctx.attempt} {os.environ['POD_NAME']}\n")
    await_file("job")
    return ctx.attempt


attempt = understudy.get_environment().execute(load, name="load").value
(PLACE / "loaded").write_text(str(attempt))
await_file("main")
