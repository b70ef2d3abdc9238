"""What is written for a job that finishes: into the register, and into storage."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from asyncinotify import Inotify, Mask

from benchmarks import clusters
from benchmarks.clusters import cluster
from benchmarks.counting import REGISTER, SWAPS
from benchmarks.figures import Chapter, Effort, Table, size

ROOT = Path(__file__).parents[1]
COUNTED = ("-D", "high-availability.type=benchmarks.counting:open_register")
BEFORE = 50
"""Jobs before the count begins: every directory is there, and a segment is a quarter full."""

SEGMENT = 200


def run(effort: Effort) -> Chapter:
    """Count swaps and files of jobs that finish at once."""
    jobs = effort.of(SEGMENT, 20)
    with counting(), cluster("two_halves.py", BEFORE, jobs, options=COUNTED) as one:
        notes = Path(os.environ[SWAPS])
        one.grown("half.txt", 1)
        before = len(_notes(notes))
        with _Watched(one.place / "state" / "understudy" / "ha") as files:
            one.release()
            one.grown("whole.txt", 1, clusters.PATIENCE_S)
        swaps = _notes(notes)[before:]
        (one.place / "end").touch()
        assert one.finish() == 0, one.story()
    documents = Counter(key.split("-")[0] for key, _ in swaps)
    written = sum(count for _, count in swaps)
    rows = [
        (f"register: {_what(kind)}", f"{count / jobs:.2f}", size(_bytes(swaps, kind) / jobs))
        for kind, count in documents.most_common()
    ]
    rows += [
        (f"storage: {kind}", f"{count / jobs:.2f}", size(files.bytes[kind] / jobs))
        for kind, count in files.count.most_common()
    ]
    total = written + sum(files.bytes.values())
    return Chapter(
        "Writes of a job",
        f"Counted over {jobs} empty jobs, one after the other, after {BEFORE} others, with a "
        "register that notes each swap and with inotify on the storage directory. A swap writes "
        f"its document whole; jobs lie in documents of at most {SEGMENT}, so the bytes of a job "
        "grow with its place in the document and fall again with the next one. Flink wrote 21 "
        "transactions of ZooKeeper for a job (version 2.3, from its transaction log).",
        (Table(("for each job", "writes", "bytes"), tuple(rows)),),
        f"A finished job costs {len(swaps) / jobs:.1f} register writes and "
        f"{sum(files.count.values()) / jobs:.1f} files, together {size(total / jobs)}.",
    )


def _what(kind: str) -> str:
    return {"jobs": "a document of jobs", "leader": "the lease"}.get(kind, kind)


def _bytes(swaps: list[tuple[str, int]], kind: str) -> int:
    return sum(count for key, count in swaps if key.split("-")[0] == kind)


@contextlib.contextmanager
def counting() -> Iterator[None]:
    """Let the JobManagers find the counting register, and where to note."""
    kept = dict(os.environ)
    notes = clusters.SCRATCH / f"swaps-{os.getpid()}.jsonl"
    path = os.pathsep.join([str(ROOT), *filter(None, [kept.get("PYTHONPATH")])])
    os.environ |= {SWAPS: str(notes), "PYTHONPATH": path}
    notes.touch()
    try:
        yield
    finally:
        notes.unlink()
        shutil.rmtree(f"{notes}{REGISTER}", ignore_errors=True)
        os.environ.clear()
        os.environ.update(kept)


def _notes(path: Path) -> list[tuple[str, int]]:
    notes = map(json.loads, path.read_text().splitlines())
    return [(note["key"], note["bytes"]) for note in notes]


class _Watched:
    """Counts the files that appear in storage, by the directory they appear in."""

    def __init__(self, storage: Path) -> None:
        self.count: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self._storage = storage
        self._stop = storage / "stop"
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._inotify = Inotify()

    def __enter__(self) -> _Watched:
        self._inotify.add_watch(self._storage, Mask.CREATE)
        for path in self._storage.rglob("*"):
            inside = {"register", "locks", "code"} & set(path.parts)
            if path.is_dir() and not inside:
                self._inotify.add_watch(path, Mask.MOVED_TO)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.touch()
        self._thread.join()
        self._stop.unlink()
        self._inotify.close()

    def _listen(self) -> None:
        for event in self._inotify:
            if event.path == self._stop:
                return
            if event.path is None or event.mask & Mask.CREATE:
                continue
            kind = _kind_of(event.path.parent)
            self.count[kind] += 1
            # A plan may be gone before it can be looked at.
            with contextlib.suppress(FileNotFoundError):
                self.bytes[kind] += event.path.stat().st_size


def _kind_of(directory: Path) -> str:
    if directory.parent.name == "job-result-store":
        return "results"
    return directory.name
