"""Events about a job's checkpoints, for programs and for the live view.

A stream may complete a hundred batches a second, a loop may save its state as often. For each
query, table and state, the first checkpoint is reported at once; then at most one event a second
reports the latest, with the number of checkpoints and rows since. The counts are complete.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from understudy.core.checkpoints import Slot, in_words, is_under_way, slot
from understudy.jobmanager.attention import checkpoints_need, no_room
from understudy.model import Checkpoint, JobId
from understudy.process.reporter import Reporter

PAUSE_S = 1.0
"""Pause between two events of one slot: a person reads no faster."""

RESTORED_MAX = 20
"""Most checkpoints that a restore event names, newest first."""

_log = logging.getLogger(__name__)


class CheckpointNews:
    """Reports the checkpoints of one job as events and log lines (an `Audience`)."""

    def __init__(
        self, reporter: Reporter, job_id: JobId, name: str, attention: dict[str, str]
    ) -> None:
        """``attention`` holds the problems that need a person, by job."""
        self._reporter = reporter
        self._job_id = job_id
        self._name = name
        self._attention = attention
        self._is_full = False
        self._unreported: dict[Slot, list[Checkpoint]] = {}
        """Checkpoints not reported yet, of each slot with an event within the last second."""
        self._timers: dict[Slot, asyncio.TimerHandle] = {}

    def completed(self, checkpoint: Checkpoint) -> None:
        """Report the checkpoint now, or with the slot's next event."""
        if is_under_way(checkpoint):  # An unpublished write is no news.
            return
        which = slot(checkpoint)
        if which in self._timers:
            self._unreported.setdefault(which, []).append(checkpoint)
            return
        self._report(checkpoint, 1, checkpoint.rows)
        self._pause(which)

    def failed(self, last: Checkpoint, count: int) -> None:
        """Log and report the failure at once; the caller limits the rate."""
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
        """Log and report the checkpoints that an attempt resumes from."""
        newest = given[-1]
        _log.info(
            "job %r: attempt %d continues from %s",
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
        """Show or withdraw the problem."""
        if not problem:
            self._attention.pop(self._job_id, None)
            return
        self._attention[self._job_id] = checkpoints_need(self._name, problem)
        _log.error("%s", self._attention[self._job_id])

    def full(self, problem: str) -> None:
        """Show the problem until the job ends: no room appears earlier."""
        if not self._is_full:
            self._attention[self._job_id] = no_room(self._name, problem)
            _log.error("%s", self._attention[self._job_id])
        self._is_full = True

    def over(self) -> None:
        """Withdraw the problem, and report all waiting checkpoints."""
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
        unreported = self._unreported.pop(which, [])
        if unreported:
            self._report(unreported[-1], len(unreported), sum(one.rows for one in unreported))
        return bool(unreported)

    def _report(self, latest: Checkpoint, count: int, rows: int) -> None:
        self._event(
            "checkpoint-completed",
            latest.attempt,
            **_identity(latest),
            rows=rows,
            count=count,
            size=latest.size,
            duration_s=round(latest.duration_s, 3),
        )

    def _event(self, kind: str, attempt: int, /, **fields: Any) -> None:
        self._reporter.event(kind, job_id=self._job_id, name=self._name, attempt=attempt, **fields)


def _identity(one: Checkpoint) -> dict[str, Any]:
    return {
        "number": one.number,
        "kind": one.kind.value,
        "of": one.name,
        "batch_id": one.batch_id if one.batch_id >= 0 else None,
    }
