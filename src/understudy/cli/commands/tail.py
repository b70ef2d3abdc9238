"""Printing a log file, and following it as it grows."""

from __future__ import annotations

import sys
from pathlib import Path

from asyncinotify import Inotify, Mask


async def follow(path: Path, *, for_ever: bool) -> None:
    """Print a file to stdout; with ``for_ever``, keep printing as the file grows (inotify)."""
    with path.open("r", encoding="utf-8", errors="replace") as file, Inotify() as inotify:
        inotify.add_watch(path, Mask.MODIFY | Mask.MOVE_SELF | Mask.DELETE_SELF)
        while True:
            while piece := file.read(1 << 16):
                sys.stdout.write(piece)
            sys.stdout.flush()
            if not for_ever:
                return
            event = await inotify.get()
            if event.mask & (Mask.MOVE_SELF | Mask.DELETE_SELF):
                return
