"""A leader whose record lies in the other of the two places: named, and never joined by a second.

JobManagers that are given different places for the record would each elect a leader. So a contender
looks at the other place after it has written its own record: of two that write at the same time,
the later one sees the earlier one, and withdraws. From then on it looks before it writes: one look
is a request more in each takeover, two would make it slow. The other place counts as
vacant once its record has stood unchanged for its lease, as the leader's own place does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from understudy.clock import SystemClock
from understudy.errors import DataError
from understudy.ha.backends.kubernetes.leader_view import view_of
from understudy.ha.backends.kubernetes.objects import Slot
from understudy.ha.backends.kubernetes.options import K8S_LOCK


@dataclass(frozen=True)
class Rival:
    """A holder of the record in the other place."""

    name: str
    renewed: bool
    """Whether the record has changed while we looked: then the holder lives."""


class OtherPlace:
    """The place of the record that this process does not use, as seen by it."""

    def __init__(self, look: Callable[[], Awaitable[Slot | None]], where: str, own: str) -> None:
        """``look`` reads the record; ``own``: what is configured here."""
        self._look = look
        self._where = where
        self._own = own
        self._clock = SystemClock()
        self._version = ""
        self._seen_at = 0.0
        self.was_held = False
        """Whether somebody held the record there when we looked last."""

    async def rival(self) -> Rival | None:
        """Return who holds the record there; None if nobody does, or nobody renews it any more.

        Where we may not look, nobody is seen. Raises ``OSError`` if the server does not answer.
        """
        found = await self._found()
        self.was_held = found is not None
        return found

    async def _found(self) -> Rival | None:
        try:
            slot = await self._look()
        except (PermissionError, DataError):
            return None
        if slot is None:
            return None
        view, now = view_of(slot.value, 0.0), self._clock.now()
        if not view.holder:
            return None
        before, self._version = self._version, slot.version
        if before != slot.version:
            self._seen_at = now
        elif now - self._seen_at >= view.duration_s:
            return None
        return Rival(view.name or view.holder, before not in {"", slot.version})

    def sentence(self, rival: Rival) -> str:
        """Return what people must change."""
        return (
            f"{rival.name} leads this cluster by {self._where}, and {K8S_LOCK.key} is {self._own} "
            "here: give all JobManagers of the cluster the same value"
        )
