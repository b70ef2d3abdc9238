"""A directory that grows: files of numbered rows, for a streaming job to read."""

from __future__ import annotations

import threading
from pathlib import Path


class Feed:
    """Writes files of rows into ``in`` until `end`, and counts the rows."""

    PAUSE_S = 0.2
    ROWS = 5

    def __init__(self, place: Path, files: int | None = None) -> None:
        """With ``files`` write that many at once; without, write until `end`."""
        self.place = place / "in"
        self.place.mkdir(exist_ok=True)
        self.rows = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        if files is None:
            self._thread.start()
        else:
            for _ in range(files):
                self._write()

    def _run(self) -> None:
        while not self._over.wait(self.PAUSE_S):
            self._write()

    def _write(self) -> None:
        ids = range(self.rows, self.rows + self.ROWS)
        draft = self.place.parent / "draft"
        draft.write_text("".join(f'{{"id": {number}}}\n' for number in ids))
        draft.rename(self.place / f"{self.rows}.json")
        self.rows += self.ROWS

    def end(self) -> None:
        """Stop writing."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
