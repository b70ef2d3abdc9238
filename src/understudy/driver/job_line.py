"""The line between a driver and the process of its job: what is said on it.

The driver hands on what its TaskManager says of the attempt, and what the attempt says of itself;
beside that, the process beats as long as its attempt runs.
"""

from __future__ import annotations

import socket

from understudy.core.handover import Handover
from understudy.errors import ExecutorsUnavailable, JobTimedOut
from understudy.model import Incarnation, JobId
from understudy.rpc import messages
from understudy.rpc.messages import Message
from understudy.rpc.wire import BlockingLink, Codec


class Attach(Message, frozen=True, kw_only=True):
    """Run the attempt that follows on this, which the driver has opened for it."""

    handover: Handover


class GetReady(Message, frozen=True, kw_only=True):
    """Attach to this ahead: an attempt follows, sooner or later, and `Attach` before it."""

    handover: Handover


class GiveUp(Message, frozen=True, kw_only=True):
    """End the attempt: it has waited for executors, or run, for too long."""

    job_id: JobId
    attempt: int
    reason: str
    timed_out: bool = False
    """The attempt has exceeded its job's timeout."""

    @property
    def error(self) -> ExecutorsUnavailable | JobTimedOut:
        """Return what the attempt fails with."""
        return (JobTimedOut if self.timed_out else ExecutorsUnavailable)(self.reason)


class Beat(Message, frozen=True, kw_only=True):
    """The process runs; it will be heard of again by then."""

    until: float


class Decided(Message, frozen=True, kw_only=True):
    """How the attempt ended is decided: storing that takes no time of the job's timeout."""


LineMessage = (
    Attach
    | GetReady
    | GiveUp
    | Beat
    | Decided
    | messages.RunAttempt
    | messages.Interrupt
    | messages.Stopping
    | messages.CheckpointsRecorded
    | messages.CheckpointsRefused
    | messages.Entered
    | messages.CheckpointsTaken
    | messages.AttemptEnded
)

Line = BlockingLink[LineMessage]
"""One end of it."""

_codec: Codec[LineMessage] = Codec(LineMessage)


def line_over(end: socket.socket, sender: str) -> Line:
    """Make one end of the line of a socket."""
    return BlockingLink(end, _codec, Incarnation(sender))
