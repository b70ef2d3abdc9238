"""What is told of a job's checkpoints while they come: events for programs and for the live view.

A stream may complete a hundred batches a second, a loop may save its state as often. Of each query,
table and state, the first is told at once, and then one event a second at most tells the latest,
how many it stands for and how many rows they had together. None is left out of the counts.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from understudy.core.checkpoints import Slot, in_words, slot
from understudy.core.writes import is_under_way
from understudy.jobmanager.attention import checkpoints_need, no_room
from understudy.model import Checkpoint, JobId
from understudy.process.reporter import Reporter

PAUSE_S = 1.0
"""Between two events of one slot: a person reads no faster."""

RESTORED_MAX = 20
"""Of what an attempt goes on from, the newest are named."""

_log = logging.getLogger(__name__)


class CheckpointNews:
    """Tells of the checkpoints of one job; see `Audience`."""

    def __init__(
        self, reporter: Reporter, job_id: JobId, name: str, attention: dict[str, str]
    ) -> None:
        """``attention`` is where what needs a person is shown, by job."""
        self._reporter = reporter
        self._job_id = job_id
        self._name = name
        self._attention = attention
        self._is_full = False
        self._untold: dict[Slot, list[Checkpoint]] = {}
        """Of each slot that was told within the last second, what has come since."""
        self._timers: dict[Slot, asyncio.TimerHandle] = {}

    def completed(self, checkpoint: Checkpoint) -> None:
        """See `Audience.completed`."""
        if is_under_way(checkpoint):  # Nobody waits for what is not published yet.
            return
        which = slot(checkpoint)
        if which in self._timers:
            self._untold.setdefault(which, []).append(checkpoint)
            return
        self._tell(checkpoint, 1, checkpoint.rows)
        self._pause(which)

    def failed(self, last: Checkpoint, count: int) -> None:
        """See `Audience.failed`; whoever tells sees to it that this is not often."""
        why = in_words(last.failure) if last.failure else ""
        _log.warning("job %r: checkpoint %d failed: %s", self._name, last.number, why)
        self._event(
            "checkpoint-failed",
            last.attempt,
            **_identity(last),
            count=count,
            failure=why,
            duration_s=round(last.duration_s, 3),
        )

    def restored(self, attempt: int, given: tuple[Checkpoint, ...], savepoint: str) -> None:
        """See `Audience.restored`."""
        newest = given[-1]
        _log.info(
            "job %r: attempt %d goes on from %s",
            self._name,
            attempt,
            f"savepoint {savepoint}" if savepoint else f"checkpoint {newest.number}",
        )
        self._event(
            "checkpoint-restored",
            attempt,
            number=newest.number,
            savepoint=savepoint or None,
            checkpoints=[_identity(one) for one in reversed(given[-RESTORED_MAX:])],
        )

    def unreadable(self, problem: str) -> None:
        """See `Audience.unreadable`."""
        if not problem:
            self._attention.pop(self._job_id, None)
            return
        self._attention[self._job_id] = checkpoints_need(self._name, problem)
        _log.error("%s", self._attention[self._job_id])

    def full(self, problem: str) -> None:
        """See `Audience.full`; it is told until the job ends: nothing makes room before."""
        if not self._is_full:
            self._attention[self._job_id] = no_room(self._name, problem)
            _log.error("%s", self._attention[self._job_id])
        self._is_full = True

    def over(self) -> None:
        """See `Audience.over`."""
        if self._is_full:
            self._attention.pop(self._job_id, None)
        for which in list(self._timers):
            self._timers.pop(which).cancel()
            self._flush(which)

    def _pause(self, which: Slot) -> None:
        loop = asyncio.get_running_loop()
        self._timers[which] = loop.call_later(PAUSE_S, self._pause_over, which)

    def _pause_over(self, which: Slot) -> None:
        del self._timers[which]
        if self._flush(which):
            self._pause(which)

    def _flush(self, which: Slot) -> bool:
        untold = self._untold.pop(which, [])
        if untold:
            self._tell(untold[-1], len(untold), sum(one.rows for one in untold))
        return bool(untold)

    def _tell(self, latest: Checkpoint, count: int, rows: int) -> None:
        self._event(
            "checkpoint-completed",
            latest.attempt,
            **_identity(latest),
            rows=rows,
            count=count,
            size=latest.size,
            duration_s=round(latest.duration_s, 3),
        )

    def _event(self, kind: str, attempt: int, /, **told: Any) -> None:
        self._reporter.event(kind, job_id=self._job_id, name=self._name, attempt=attempt, **told)


def _identity(one: Checkpoint) -> dict[str, Any]:
    return {
        "number": one.number,
        "kind": one.kind.value,
        "of": one.name,
        "batch_id": one.batch_id if one.batch_id >= 0 else None,
    }
