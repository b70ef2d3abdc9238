"""Which PySpark is installed, without importing PySpark."""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path

_ASSIGNED = re.compile(r"""^__version__\b[^=]*=\s*["']([^"']+)["']""", re.MULTILINE)


@functools.cache
def pyspark_version() -> str | None:
    """Return the version of PySpark; None where PySpark is not installed.

    PySpark's own file says so; to ask `importlib.metadata` takes ten times as long.
    """
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    try:
        written = Path(found.origin).with_name("version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    assigned = _ASSIGNED.search(written)
    return assigned[1] if assigned else None
