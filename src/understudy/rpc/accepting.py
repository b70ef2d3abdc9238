"""Accepting connections without using up the leader's file descriptors.

Each kind of connection has a share of the process's limit (RLIMIT_NOFILE), and a reserve is kept
for the process's own work. ``asyncio`` accepts without a bound, and logs thousands of lines at once
when descriptors run out. So every server of ours accepts here.
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
"""Pause after a failed accept; the usual cause is too many open files."""

RESERVE_MAX = 256
"""Descriptors reserved for leading: the register, storage, processes of ``main``, logs."""

REST_MAX = 256
"""REST connections of clients and scrapers; one answer takes milliseconds."""

UNPROVEN_MAX = 64
"""Peers without a first message; a peer of the cluster sends that at once."""

LIMIT_MAX = 1 << 20
"""The limit that is assumed for a higher or infinite one."""

SHORT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_OF_ONE_PEER = (errno.ECONNABORTED, errno.EPROTO, errno.EINTR)

_UNLINGERING = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Shares:
    """The shares of this process's descriptors; strangers get half of them at most."""

    limit: int
    reserve: int
    rest: int
    unproven: int
    links: int


def shares(limit: int | None = None) -> Shares:
    """Return the shares under a limit; by default this process's limit."""
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

    ``give_way`` ends the connection that has waited longest, and returns whether there was one.
    It is called when a connection would use the reserve. If it returns false, the new connection is
    closed.
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
        # The kernel assigns the lowest free number, so the number shows how many are in use.
        if end.fileno() < shared.limit - shared.reserve or give_way():
            return end
        complaints.log(
            "accepting connections",
            f"refused, as {end.fileno()} of {shared.limit} file descriptors are in use, and the "
            "rest is kept for the process's own work: raise the limit (ulimit -n)",
        )
        refuse(end)


def refuse(end: socket.socket) -> None:
    """Close a connection at once by a reset, which notifies the peer."""
    with end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _UNLINGERING)
