"""What any user of this host can read of other processes: their command lines."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable
from pathlib import Path

LOOK_S = 0.1
"""Spark's launcher, which ends first, lives for a quarter of a second and longer."""


class Watcher:
    """Reads all command lines of this host, again and again, until the block ends."""

    def __init__(self, secrets: Iterable[str], kinds: Iterable[str]) -> None:
        self.kinds: set[str] = set()
        """Which kinds of processes were seen: a main class, or a module, on the line."""
        self.found: set[str] = set()
        """The lines with a secret."""
        self._secrets = [word.encode() for word in secrets]
        self._wanted = list(kinds)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            for pid in os.listdir("/proc"):
                with contextlib.suppress(OSError):
                    line = Path(f"/proc/{pid}/cmdline").read_bytes() if pid.isdigit() else b""
                    self.kinds.update(kind for kind in self._wanted if kind.encode() in line)
                    if any(word in line for word in self._secrets):
                        self.found.add(line.replace(b"\0", b" ").decode(errors="replace"))
