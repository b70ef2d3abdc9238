"""Duration and effect of a takeover, measured until every running job is accounted for."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from understudy.model import JobId


class Takeover(Struct, frozen=True):
    """The jobs that ran when the old leader was lost, and what has happened to them so far."""

    lost_at: float
    open: frozenset[JobId]
    names: Mapping[JobId, str]
    adopted: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    """Jobs that had already ended and do not run again."""
    displaced: tuple[str, ...] = ()


class Report(Struct, frozen=True):
    """The report of a completed takeover."""

    seconds: float
    takeover: Takeover


def settled(takeover: Takeover, job_id: JobId, how: str) -> Takeover:
    """Record that a job was ``adopted``, ``restarted``, ``skipped`` or ``displaced``."""
    if job_id not in takeover.open:
        return takeover
    names = (*getattr(takeover, how), takeover.names[job_id])
    takeover = replace(takeover, open=takeover.open - {job_id})
    return replace(takeover, **{how: names})


def report(takeover: Takeover, now: float) -> Report | None:
    """Return the report once no job is open, else None."""
    return None if takeover.open else Report(max(0.0, now - takeover.lost_at), takeover)
