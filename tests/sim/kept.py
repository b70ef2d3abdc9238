"""What must hold of checkpoints: numbered once, never lost, never taken back, never a dead one's.

Each checkpoint of a simulated job says how far the job had come by then (`progress`), so that what
a later attempt is given can be judged by what it means, not by what the stores say of it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tests.sim.hosts import SimProcess
from understudy.core.checkpoints import Slot, slot
from understudy.ha.format import digest
from understudy.model import Checkpoint, CheckpointKind, Checkpoints, JobEntry, JobId
from understudy.rpc.messages import Deploy

if TYPE_CHECKING:
    from tests.sim.invariants import Watch


UNKNOWN_S = 40.0
"""So long after the faults, a write whose outcome was unknown may be made once more."""


def progress(one: Checkpoint) -> int:
    """Return how far the job had come."""
    return one.batch_id if one.kind is CheckpointKind.BATCH else one.rows


@dataclass
class Record:
    """What is known of one job's checkpoints."""

    counter: int = 0
    numbers: dict[int, Checkpoint] = field(default_factory=dict)
    """All that were ever recorded."""
    latest: dict[Slot, Checkpoint] = field(default_factory=dict)
    acknowledged: dict[Slot, int] = field(default_factory=dict)
    """How far the attempts know that they have come."""
    begun: int = 0
    """The latest attempt that was given what it goes on from."""


@dataclass
class Kept:
    """Everything that was recorded in one world."""

    watch: Watch
    jobs: dict[JobId, Record] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    """Writes, checkpoints, attempts that went on from some: to see that the worlds test them."""

    def of(self, job_id: JobId) -> Record:
        """Return what is known of a job."""
        return self.jobs.setdefault(job_id, Record())

    # --- the register -----------------------------------------------------------------------------

    def written(
        self, key: str, before: Checkpoints | None, body: Checkpoints, claims: bool
    ) -> None:
        """A document was written; it counts once its job's entry names it."""
        entry = self.watch.jobs.get(body.job_id)
        if entry is None or entry.checkpoints != key:
            return
        self.counts["writes"] += 1
        idle = before == body and not claims
        world = self.watch.world
        again = world.time.now < world.profile.faults_end + UNKNOWN_S
        self.watch.demand(not idle or again, f"{entry.name}: a write that records nothing")
        self._body(entry, body)

    def linked(self, entry: JobEntry, body: Checkpoints | None) -> None:
        """A job's entry names another document than before."""
        self.watch.demand(body is not None, f"{entry.name}: its document was never written")
        assert body is not None
        self.watch.demand(body.job_id == entry.job_id, f"{entry.name}: another job's document")
        self._body(entry, body)

    def removed(self, key: str) -> None:
        """A document was removed."""
        for entry in self.watch.jobs.values():
            needed = entry.checkpoints == key and entry.result is None
            self.watch.demand(not needed, f"{entry.name}: {key} is removed before its result")

    def discarded(self, job_id: JobId) -> None:
        """A person wants the job to begin anew."""
        self.jobs.pop(job_id, None)

    def _body(self, entry: JobEntry, body: Checkpoints) -> None:
        known, demand, name = self.of(entry.job_id), self.watch.demand, entry.name
        numbers = [one.number for one in body.completed]
        demand(body.counter >= known.counter, f"{name}: {body.counter} after {known.counter}")
        demand(numbers == sorted(set(numbers)), f"{name}: numbered {numbers}")
        demand(max(numbers, default=0) <= body.counter, f"{name}: {numbers}, {body.counter}")
        for one in body.completed:
            same = known.numbers.setdefault(one.number, one)
            demand(same == one, f"{name}: number {one.number} is {same}, and {one}")
            if one.number > known.counter:
                self._recorded(name, known, one)
        for which, latest in known.latest.items():
            kept = any(slot(one) == which and one.number >= latest.number for one in body.completed)
            demand(kept, f"{name}: checkpoint {latest.number} of {which} is lost")
        known.counter = body.counter

    def _recorded(self, name: str, known: Record, one: Checkpoint) -> None:
        self.counts["checkpoints"] += 1
        dead = one.attempt < known.begun
        self.watch.demand(
            not dead, f"{name}: attempt {one.attempt} is heard, and {known.begun} has begun"
        )
        before = known.latest.get(slot(one))
        back = before is not None and progress(one) <= progress(before)
        self.watch.demand(not back, f"{name}: {one} is recorded after {before}")
        known.latest[slot(one)] = one
        self.watch.world.tell(
            f"{name}: checkpoint {one.number}, {one.kind.value} {progress(one)}, of attempt "
            f"{one.attempt}"
        )

    # --- attempts ---------------------------------------------------------------------------------

    def entered(self, deploy: Deploy) -> None:
        """An attempt begins with what it was given."""
        known, demand, name = self.of(deploy.job_id), self.watch.demand, deploy.name
        known.begun = max(known.begun, deploy.attempt)
        given = {slot(one): one for one in deploy.restored}
        self.counts["restored"] += bool(given)
        for which, come in known.acknowledged.items():
            found = given.get(which)
            demand(found is not None, f"{name}: {which} is not given to attempt {deploy.attempt}")
            assert found is not None
            demand(progress(found) >= come, f"{name}: goes on from {found}, and had {come}")
        files = self.watch.world.storage.files
        for one in given.values():
            recorded = known.numbers.get(one.number)
            demand(recorded == one, f"{name}: is given {one}, and recorded is {recorded}")
            if one.kind is CheckpointKind.STATE and not self.watch.is_spoilt(one.location):
                data = files.get(one.location)
                whole = data is not None and digest(data) == one.digest
                demand(whole, f"{name}: the state of checkpoint {one.number} is gone")

    def acknowledged(self, deploy: Deploy, taken: Checkpoint, number: int) -> None:
        """An attempt learns that what it told is durable."""
        known = self.of(deploy.job_id)
        latest = known.latest.get(slot(taken))
        recorded = latest is not None and progress(latest) >= progress(taken)
        self.watch.demand(recorded, f"{deploy.name}: {taken} is said to be recorded")
        # Of what was superseded, and is told again, nobody knows the number any more. What one
        # write has superseded has a number, though no document has ever held it.
        if number:
            mine = replace(taken, number=number)
            same = known.numbers.setdefault(number, mine)
            right = (slot(same), progress(same), same.attempt) == (
                slot(mine),
                progress(mine),
                mine.attempt,
            )
            self.watch.demand(right, f"{deploy.name}: number {number} is {same}, and {mine}")
            self.watch.demand(number <= known.counter, f"{deploy.name}: number {number} is new")
        come = max(known.acknowledged.get(slot(taken), 0), progress(taken))
        known.acknowledged[slot(taken)] = come

    def refused(self, process: SimProcess, deploy: Deploy, reason: str) -> None:
        """An attempt learns that what it told will not be recorded."""
        entry = self.watch.jobs[deploy.job_id]
        current = entry.attempt == deploy.attempt and entry.result is None
        asked = self.watch.cancelled or entry.cancel_requested
        lives = self.watch.in_good_standing(process) and current and not asked
        self.watch.demand(
            not lives, f"{deploy.name}: attempt {deploy.attempt} is refused: {reason}"
        )
