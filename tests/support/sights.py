"""A reader's view of a directory that others replace as a whole."""

from __future__ import annotations

import os
from pathlib import Path


def names_in(directory: Path) -> list[str] | None:
    """List a directory; None if it was just replaced, as the old one is removed file by file.

    Raises ``FileNotFoundError`` if there is none.
    """
    here = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        names = os.listdir(here)
        return names if os.path.samestat(os.fstat(here), directory.stat()) else None
    finally:
        os.close(here)
