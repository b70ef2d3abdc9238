"""Outbox: what leaders must know of attempts, in one hop from the driver to the leader's link.

An attempt's end is kept until a leader has recorded it, and its checkpoints until a leader has
answered them: so a new leader receives both again. All else is sent to the present leader, or
dropped without one: a new leader infers that from the registration.
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from understudy.model import JobId, Term
from understudy.rpc.gateway import Link
from understudy.rpc.messages import (
    AttemptEnded,
    AttemptLost,
    CheckpointsRecorded,
    CheckpointsRefused,
    CheckpointsTaken,
    LinkMessage,
)

Attempt = tuple[JobId, int]


class Outbox:
    """The messages of one TaskManager about attempts, and the link that they take."""

    def __init__(self) -> None:
        self.link: Link[LinkMessage] | None = None
        """Link to the leader; None while the TaskManager is not registered."""
        self.term: Term = 0
        """The highest term that this TaskManager has obeyed."""
        self.ended: dict[Attempt, AttemptEnded] = {}
        """Ends whose recording no leader has confirmed yet."""
        self._taken: dict[Attempt, dict[int, CheckpointsTaken]] = {}
        """Checkpoints that no leader has answered yet."""
        self._forgotten = asyncio.Event()
        """Set whenever a leader has recorded an end."""
        self._wanted_dead: set[Attempt] = set()
        """FINISHED attempts for which a leader wants a report once nothing of them is left."""

    def send(self, message: LinkMessage) -> None:
        """Send to the leader; keep what the next leader must receive if this one does not answer.

        The loss of an attempt is not kept: a later leader infers the loss from the registration.
        """
        match message:
            case AttemptEnded():
                self.ended[message.job_id, message.attempt] = message
            case AttemptLost():
                self._taken.pop((message.job_id, message.attempt), None)
            case CheckpointsTaken():
                taken = self._taken.setdefault((message.job_id, message.attempt), {})
                taken[message.sequence] = message
        if self.link:
            self.link.send(message, self.term)

    def settle(self, ended: AttemptEnded) -> None:
        """Note that nothing of a FINISHED attempt lives; send that, if a leader has asked."""
        attempt = ended.job_id, ended.attempt
        if attempt in self.ended:
            self.ended[attempt] = replace(ended, reaped=True)
            if attempt in self._wanted_dead:
                self.send(self.ended[attempt])
        self._wanted_dead.discard(attempt)

    def want_dead(self, ended: AttemptEnded) -> None:
        """Send a FINISHED attempt's end again once nothing of the attempt lives."""
        self._wanted_dead.add((ended.job_id, ended.attempt))

    def repeat(self) -> None:
        """Send a new leader what no leader has answered: first the checkpoints, then the ends."""
        # The order matters. A leader that reads an end goes on to the result, the savepoint or the
        # next attempt of the job, and refuses the checkpoints of the ended attempt that come later.
        # This is the only way of an end to a new leader: a registration only lists the attempts.
        for taken in list(self._taken.values()):
            for message in list(taken.values()):
                self.send(message)
        for ended in list(self.ended.values()):
            self.send(ended)

    def answered(self, answer: CheckpointsRecorded | CheckpointsRefused) -> None:
        """Stop keeping the checkpoints that a leader has answered."""
        self._taken.get((answer.job_id, answer.attempt), {}).pop(answer.sequence, None)

    def forget(self, attempt: Attempt) -> None:
        """Stop keeping anything of an attempt whose end is recorded."""
        self.ended.pop(attempt, None)
        self._taken.pop(attempt, None)
        self._forgotten.set()

    async def recorded(self) -> None:
        """Return once a leader has recorded the end of each attempt."""
        while self.ended:
            self._forgotten.clear()
            await self._forgotten.wait()
