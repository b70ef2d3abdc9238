"""The headers of our own, which endpoints and their clients agree on."""

from __future__ import annotations

MEANT_FOR = "x-understudy-to"
"""Header of a request: the incarnation of the JobManager that is to answer it, and no other.

A record of a leader that was killed names an address at which a stranger may listen by now.
"""

GIVEN_BY = "x-understudy-by"
"""Header of an answer: the incarnation of the JobManager that gives it."""

ASKED_BY = "x-understudy-asked-by"
"""Header of a request that a standby passes on: name and role of who asked the standby."""

ASKED_FROM = "x-understudy-asked-from"
"""Header of such a request: the address from which the standby was asked."""

ID = "x-understudy-id"
"""Header of a request that a standby passes on: the id that the first JobManager chose for what is
submitted. Whoever answers in the end, it is one application."""

AGE = "x-understudy-age"
"""Header of an answer that was made from what was read earlier, since the register takes long to
answer: so many seconds ago."""

NEXT_OFFSET = "x-understudy-next-offset"
"""Header of a piece of a log: where the next piece begins, in bytes."""

LOG_SIZE = "x-understudy-log-size"
"""Header of a piece of a log: how many bytes the log has."""
