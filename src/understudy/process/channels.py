"""The channel between a process and its parent: a socket pair, inherited by number."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping
from typing import Any

from understudy.model import Incarnation
from understudy.process import forks
from understudy.rpc import messages
from understudy.rpc.wire import BlockingLink, Codec

CHANNEL_FD = "UNDERSTUDY_CHANNEL_FD"
INCARNATION = "UNDERSTUDY_INCARNATION"
HEARTBEAT_S = "UNDERSTUDY_HEARTBEAT_S"
SCRATCH = "UNDERSTUDY_SCRATCH"

JVM_LOST = 86
"""Exit code of a driver whose JVM has ended."""

APPLICATION_LOST = 87
"""Exit code of a driver whose Spark application the cluster has ended."""

SERVES_ONE = "it serves one job (taskmanager.driver.reuse)"
"""Why a driver is retired after each job, where a person wants that."""

link_codec: Codec[messages.LinkMessage] = Codec(messages.LinkMessage)
main_codec: Codec[messages.MainMessage] = Codec(messages.MainMessage)
driver_codec: Codec[messages.DriverMessage] = Codec(messages.DriverMessage)


@contextlib.contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield the two ends of a new channel, the parent's and the child's, until the child has its.

    Only the parent's end stays open, unless an error is raised.
    """
    mine, theirs = socket.socketpair()
    with contextlib.ExitStack() as unless_started, theirs:
        unless_started.callback(mine.close)
        yield mine, theirs
        unless_started.pop_all()


def child_environment(end: socket.socket, incarnation: Incarnation) -> Mapping[str, str]:
    """Return the environment variables with a child's channel descriptor and incarnation."""
    return {CHANNEL_FD: str(end.fileno()), INCARNATION: incarnation}


def inherited(codec: Codec[Any]) -> BlockingLink[Any]:
    """Open the channel that the parent has named in the environment."""
    end = socket.socket(fileno=int(os.environ.pop(CHANNEL_FD)))
    end.set_inheritable(False)
    forks.keep_from_children(end)
    return BlockingLink(end, codec, Incarnation(os.environ.get(INCARNATION, "")))
