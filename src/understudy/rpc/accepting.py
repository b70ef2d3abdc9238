"""Connections are taken in so that what leads never lacks a file descriptor.

Each kind of connection has its share of what the process may open (RLIMIT_NOFILE), and the last
descriptors are kept for the process's own work, whatever else uses the others. ``asyncio`` accepts
without a bound, and logs thousands of lines at once where descriptors are short: so every server of
ours accepts here.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

from understudy.rpc.complaints import Complaints

ACCEPT_AGAIN_S = 1.0
"""Pause after the kernel could not give us a connection, mostly since there are too many files."""

RESERVE_MAX = 256
"""Descriptors kept for leading: the register, storage, processes of ``main``, logs."""

REST_MAX = 256
"""Connections of REST, clients and scrapers: one answer takes milliseconds."""

UNPROVEN_MAX = 64
"""Peers that have not said anything yet: a peer of a cluster says who it is at once."""

LIMIT_MAX = 1 << 20
"""What counts of a limit that is higher, or that is none."""

SHORT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_OF_ONE_PEER = (errno.ECONNABORTED, errno.EPROTO, errno.EINTR)

_UNLINGERING = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Shares:
    """How many descriptors of this process are whose; half of them at most are of strangers."""

    limit: int
    reserve: int
    rest: int
    unproven: int
    links: int


def shares(limit: int | None = None) -> Shares:
    """Return how descriptors are shared out under a limit, by default that of this process."""
    if limit is None:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = LIMIT_MAX if limit == resource.RLIM_INFINITY else min(limit, LIMIT_MAX)
    return Shares(
        limit,
        reserve=min(RESERVE_MAX, limit // 4),
        rest=max(4, min(REST_MAX, limit // 8)),
        unproven=max(4, min(UNPROVEN_MAX, limit // 16)),
        links=max(4, limit // 2),
    )


async def accepted(
    listening: socket.socket,
    complaints: Complaints,
    shared: Shares,
    give_way: Callable[[], bool],
) -> socket.socket:
    """Return the next connection.

    ``give_way`` ends the connection that has kept us waiting longest, and says whether there was
    one. It is called where a connection would take what is kept in reserve; without one the new
    connection is closed.
    """
    loop = asyncio.get_running_loop()
    while True:
        try:
            end, _ = await loop.sock_accept(listening)
        except OSError as error:
            if error.errno in _OF_ONE_PEER:
                continue
            complaints.log("accepting connections", str(error))
            if error.errno in SHORT_OF_FILES:
                give_way()
            await asyncio.sleep(ACCEPT_AGAIN_S)
            continue
        # The kernel gives the lowest number that is free: this one tells how many are in use.
        if end.fileno() < shared.limit - shared.reserve or give_way():
            return end
        complaints.log(
            "accepting connections",
            f"refused, as {end.fileno()} of {shared.limit} file descriptors are in use, and the "
            "rest is kept for the process's own work: raise the limit (ulimit -n)",
        )
        refuse(end)


def refuse(end: socket.socket) -> None:
    """Close a connection at once, and have its peer told."""
    with end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _UNLINGERING)
