"""Whether this process and thread run the code of ``main`` or of a job."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

_inside = threading.local()

IN_DRIVER = "UNDERSTUDY_IN_DRIVER"
"""Environment variable of drivers and their Python workers: no ``main`` runs there."""


@contextlib.contextmanager
def inside_job(name: str) -> Iterator[None]:
    """Mark that a job's function runs in this thread."""
    _inside.job = name
    try:
        yield
    finally:
        _inside.job = ""


def running_job() -> str:
    """Return the name of the job whose function runs in this thread; empty if none does."""
    name: str = getattr(_inside, "job", "")
    return name


def is_main_process() -> bool:
    """Return whether this process may run ``main``: it is no driver and no child of one."""
    # A child of multiprocessing has imported it; to import it here would cost each process.
    children = sys.modules.get("multiprocessing.process")
    is_child = children is not None and children.parent_process() is not None
    return IN_DRIVER not in os.environ and not is_child
