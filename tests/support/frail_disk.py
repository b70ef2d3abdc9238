"""A disk that kills or stops its user at a chosen system call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from understudy.process.disk import Disk


class Killed(BaseException):
    """The attempt is dead: each further call raises this error again."""


class FrailDisk(Disk):
    """Counts the changing calls, and calls ``act`` before or after one of them."""

    def __init__(
        self, at: int = 0, when: str = "before", act: Callable[[], None] | None = None
    ) -> None:
        self.calls: list[str] = []
        self.dead = False
        self._at = at
        self._when = when
        self._act = act or self._die

    def _die(self) -> None:
        self.dead = True
        raise Killed

    def _call(self, name: str, *arguments: Any) -> None:
        if self.dead:
            raise Killed
        self.calls.append(name)
        here = len(self.calls) == self._at
        if here and self._when == "before":
            self._act()
        try:
            getattr(super(), name)(*arguments)
        finally:
            if here and self._when == "after":
                self._act()

    def make(self, path: Path) -> None:
        self._call("make", path)

    def write(self, path: Path, data: bytes) -> None:
        self._call("write", path, data)

    def link(self, source: Path, target: Path) -> None:
        self._call("link", source, target)

    def like(self, source: Path, target: Path) -> None:
        self._call("like", source, target)

    def rename(self, source: Path, target: Path) -> None:
        self._call("rename", source, target)

    def place(self, source: Path, target: Path) -> None:
        self._call("place", source, target)

    def exchange(self, one: Path, other: Path) -> None:
        self._call("exchange", one, other)

    def remove(self, path: Path) -> None:
        self._call("remove", path)

    def remove_tree(self, path: Path) -> None:
        self._call("remove_tree", path)

    def sync(self, path: Path) -> None:
        self._call("sync", path)


class Stop:
    """Stops a thread, as SIGSTOP would, until `cont`."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._go = threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        self._go.wait()

    def cont(self) -> None:
        """Continue the thread."""
        self._go.set()
