"""How long a takeover took, and what it did: measured until nothing that ran hangs in the air."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from understudy.model import JobId


class Takeover(Struct, frozen=True):
    """The jobs that ran at the loss, and what has become of them so far."""

    lost_at: float
    open: frozenset[JobId]
    names: Mapping[JobId, str]
    adopted: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    """Jobs that had ended: not run again."""
    displaced: tuple[str, ...] = ()


class Report(Struct, frozen=True):
    """A takeover that is over."""

    seconds: float
    takeover: Takeover


def settled(takeover: Takeover, job_id: JobId, how: str) -> Takeover:
    """Note that a job was ``adopted``, ``restarted``, ``skipped`` or ``displaced``."""
    if job_id not in takeover.open:
        return takeover
    names = (*getattr(takeover, how), takeover.names[job_id])
    takeover = replace(takeover, open=takeover.open - {job_id})
    return replace(takeover, **{how: names})


def report(takeover: Takeover, now: float) -> Report | None:
    """Return the report once no job is open."""
    return None if takeover.open else Report(max(0.0, now - takeover.lost_at), takeover)
