"""``ctx.write``: the rows reach their target exactly once, even if the writing attempt dies.

The progress of a write is a checkpoint of kind WRITE, one slot per write (`core.checkpoints`). Only
the current attempt of a job can record progress, so a zombie never moves from *staging* to
*prepared*; a *prepared* zombie loses its area to the next attempt. The area itself shows which of
the two attempts made the swap: see `publishing`.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from understudy.clock import Clock
from understudy.core.checkpoints import WriteNote, WriteState, encoded, note_of
from understudy.driver.checkpointing import Recorder, counted
from understudy.driver.kept_state import StateKeeper
from understudy.errors import CheckpointError
from understudy.ha.format import digest
from understudy.model import Checkpoint, CheckpointKind
from understudy.process import publishing
from understudy.process.disk import Disk, is_passing
from understudy.process.forks import Home
from understudy.process.persist import persist_on_disk
from understudy.process.publishing import Area, Mode
from understudy.rpc.messages import Deploy

R = TypeVar("R")

TXN_DIGITS = 16
"""Digits of the digest that identifies one write of a job in a Delta table's log."""


@dataclass
class Batch:
    """One run of a fenced function over one micro-batch."""

    query: str
    number: int
    taken: list[Checkpoint] = field(default_factory=list)
    """The batch's writes, recorded together with its end."""
    areas: list[Area] = field(default_factory=list)
    """Areas to remove after that record: until then they show what is published."""


class SafeWrites:
    """The writes of one attempt."""

    def __init__(
        self,
        deploy: Deploy,
        recorder: Recorder,
        state: StateKeeper,
        clock: Clock,
        disk: Disk | None = None,
    ) -> None:
        self._deploy = deploy
        self._recorder = recorder
        self._state = state
        self._clock = clock
        self._disk = disk or Disk()
        self._turn = threading.Lock()
        self._home = Home()
        self._known = {one.name: one for one in deploy.restored if one.kind is CheckpointKind.WRITE}
        self._orders: Counter[tuple[str, int]] = Counter()
        self._used: set[str] = set()
        self._swept: set[Path] = set()

    def write(
        self,
        target: Path,
        mode: Mode,
        emit: Callable[[Path], None],
        name: str | None = None,
        batch: Batch | None = None,
    ) -> None:
        """Publish the rows that ``emit`` writes into a new directory to the target, once.

        Raises `CheckpointError` if that cannot be guaranteed or another attempt has taken over.
        """
        self._home.demand("ctx.write")
        began = self._clock.now()
        slot = self._slot(str(target), name, batch)
        self._sweep(target)
        known = self._known_of(slot, batch)
        if known and note_of(known).state is WriteState.PUBLISHED:
            return
        taken = self._begun(slot, batch)
        area = self._area(taken, target)
        if known and note_of(known).state is WriteState.PREPARED:
            taken = replace(taken, digest=known.digest, size=known.size)
            whole = self._take_over(area, known)
        else:
            whole = False
        if not whole:
            if mode is Mode.IGNORE and target.exists():
                self._published(taken, target, area, began, batch)
                return
            taken = self._prepare(taken, area, mode, emit, began)
        _persist("publish a write", lambda: area.publish(mode))
        self._published(taken, target, area, began, batch)

    def transact(
        self,
        target: str,
        emit: Callable[[Mapping[str, str]], None],
        name: str | None = None,
        batch: Batch | None = None,
    ) -> None:
        """Write to a Delta table, which drops a repeated write by itself.

        ``emit`` receives the options that identify a write: ``txnAppId``, ``txnVersion``.
        """
        self._home.demand("ctx.write")
        began = self._clock.now()
        slot = self._slot(target, name, batch)
        known = self._known_of(slot, batch)
        if known and note_of(known).state is WriteState.PUBLISHED:
            return
        part = digest(slot.encode()).removeprefix("sha256:")[:TXN_DIGITS]
        number = batch.number if batch else 0
        emit(
            {
                "txnAppId": f"{self._deploy.writer}-{part}",
                "txnVersion": str(number),
            }
        )
        self._published(self._begun(slot, batch), target, None, began, batch)

    def counted(self, name: str, batch: Batch | None) -> contextlib.AbstractContextManager[None]:
        """Report a write that fails; in a batch, the failed batch is reported instead."""
        if batch:
            return contextlib.nullcontext()
        return counted(self._recorder, self._clock, self._begun(name, None))

    def begin(self, query: str, number: int) -> Batch | None:
        """Begin a batch of a streaming query; None if the batch is done.

        Raises `CheckpointError` if a later batch of this query is done: the query's checkpoint was
        rolled back, and its batches may have different rows now.
        """
        self._home.demand("a function of ctx.fenced_batch")
        self._forget_names(query)  # This attempt may have restarted the query.
        done = self._known.get(_done_slot(query))
        if done and number == done.batch_id:
            return None
        if done and number < done.batch_id and not self._deploy.accept_found:
            raise CheckpointError(
                f"batch {number} of the query {query} comes again, though batch {done.batch_id} is "
                "recorded as done: the query's checkpoint location was rolled back; put back the "
                "right one, or run the job again with a new one"
            )
        return Batch(query, number)

    def end(self, batch: Batch) -> None:
        """Record a batch as done with all its writes: it does not run again."""
        done = replace(
            self._begun(_done_slot(batch.query), batch),
            completed_at=self._clock.wall(),
            note=encoded(WriteNote(state=WriteState.DONE)),
        )
        self._record(*batch.taken, done)
        for area in batch.areas:
            _persist("tidy up after a write", area.remove)

    def _begun(self, slot: str, batch: Batch | None) -> Checkpoint:
        """Return the checkpoint of a write that begins in this attempt."""
        return Checkpoint(
            kind=CheckpointKind.WRITE,
            name=slot,
            attempt=self._deploy.attempt,
            batch_id=batch.number if batch else -1,
            query_id=batch.query if batch else "",
        )

    def _slot(self, target: str, name: str | None, batch: Batch | None) -> str:
        """Return the name under which a restarted attempt finds this write.

        Without a given name, the writes to a target are numbered within each saved state, so that
        a loop that resumes at step 57 finds the writes of step 57.
        """
        within = f"{batch.query}:" if batch else ""
        with self._turn:
            if name is None:
                step = 0 if batch else self._state.step
                self._orders[within + target, step] += 1
                name = f"{target}#{step}.{self._orders[within + target, step]}"
            slot = within + name
            if slot in self._used:
                raise CheckpointError(
                    f"the name {name!r} was used by an earlier write of this attempt: a restarted "
                    "job would take the one for the other; give each write a name of its own"
                )
            self._used.add(slot)
            return slot

    def _forget_names(self, query: str) -> None:
        with self._turn:
            self._used = {slot for slot in self._used if not slot.startswith(f"{query}:")}
            for key in [key for key in self._orders if key[0].startswith(f"{query}:")]:
                del self._orders[key]

    def _known_of(self, slot: str, batch: Batch | None) -> Checkpoint | None:
        """Return this write's recorded progress; discard what another batch prepared."""
        known = self._known.get(slot)
        if known is None or batch is None or known.batch_id == batch.number:
            return known
        note = note_of(known)
        area = Path(known.location)
        if note.state is WriteState.PREPARED and publishing.is_area_of(area, self._deploy.job_id):
            Area(area, Path(note.target), self._disk).discard()
        return None

    def _area(self, taken: Checkpoint, target: Path, attempt: int = 0) -> Area:
        """Return the area of this write for an attempt, by default the current one."""
        attempt = attempt or self._deploy.attempt
        write = f"{taken.name}@{taken.batch_id}"
        path = publishing.area_of(target, self._deploy.job_id, attempt, write)
        return Area(path, target, self._disk)

    def _take_over(self, area: Area, known: Checkpoint) -> bool:
        """Continue with prepared rows; False if the rows must be computed again."""
        target = area.target
        attempts = range(known.attempt, self._deploy.attempt + 1)
        earlier = [Path(known.location), *(self._area(known, target, n).path for n in attempts)]
        if not area.take_over(earlier):
            raise CheckpointError(
                f"{known.location} is gone, in which the rows for {target} were prepared: nobody "
                "can say any more whether they are in the target; look there, then cancel the job "
                "and run it again, without this write if they are"
            )
        return area.is_published() or area.is_whole(known.digest)

    def _prepare(
        self,
        taken: Checkpoint,
        area: Area,
        mode: Mode,
        emit: Callable[[Path], None],
        began: float,
    ) -> Checkpoint:
        """Compute the rows, make them durable, and record the write as prepared."""
        area.check(mode)
        note = WriteNote(state=WriteState.STAGING, target=str(area.target))
        taken = replace(taken, location=str(area.path), note=encoded(note))
        self._recorder.report(replace(taken, completed_at=self._clock.wall()))
        _persist("prepare a write", lambda: area.begin(mode))
        try:
            emit(area.rows)
            manifest = _persist("make a write durable", area.seal)
        except BaseException:
            area.discard()
            raise
        taken = replace(
            taken,
            digest=manifest,
            size=area.size,
            duration_s=self._clock.now() - began,
            completed_at=self._clock.wall(),
            note=encoded(replace(note, state=WriteState.PREPARED)),
        )
        # After a refusal the area stays: the record may exist although its answer was lost, and
        # the next attempt needs the area then.
        self._record(taken)
        return taken

    def _published(
        self,
        taken: Checkpoint,
        target: Path | str,
        area: Area | None,
        began: float,
        batch: Batch | None,
    ) -> None:
        taken = replace(
            taken,
            location=str(target),
            duration_s=self._clock.now() - began,
            completed_at=self._clock.wall(),
            note=encoded(WriteNote(state=WriteState.PUBLISHED)),
        )
        if batch:
            batch.taken.append(taken)
            batch.areas += [area] if area else []
            return
        self._record(taken)
        if area:
            _persist("tidy up after a write", area.remove)

    def _record(self, *taken: Checkpoint) -> None:
        self._recorder.record(*taken)
        self._known.update({one.name: one for one in taken})

    def _sweep(self, target: Path) -> None:
        """Remove what earlier attempts left beside a target, except prepared areas."""
        with self._turn:
            if self._deploy.attempt == 1 or target in self._swept:
                return
            self._swept.add(target)
        needed = {
            self._area(one, target, 1).path.name.rpartition("-")[2]
            for one in self._known.values()
            if note_of(one).state is WriteState.PREPARED
        }
        for path in publishing.leftovers(target, self._deploy.job_id, self._deploy.attempt):
            if path.name.rpartition("-")[2] not in needed:
                Area(path, target, self._disk).discard()


def _persist(what: str, operation: Callable[[], R]) -> R:
    """Retry an idempotent operation while the file system fails temporarily."""
    return persist_on_disk(what, operation, is_passing)


def _done_slot(query: str) -> str:
    return f"{query}: done"
