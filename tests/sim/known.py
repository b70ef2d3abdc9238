"""What the watcher remembers: documents as they were written, and who lives."""

from __future__ import annotations

from dataclasses import dataclass

from tests.sim.hosts import SimProcess
from understudy.ha.documents import Stamped
from understudy.ha.format import Format
from understudy.model import ApplicationDocument, Checkpoints, RegistryBody, Segment

Body = RegistryBody | ApplicationDocument | Segment | Checkpoints
BODIES: dict[str, type[Body]] = {
    "registry": RegistryBody,
    "application": ApplicationDocument,
    "jobs": Segment,
    "checkpoints": Checkpoints,
}
FORMATS = {kind: Format(kind, Stamped) for kind in BODIES}


@dataclass
class Living:
    """An attempt, or an execution of ``main``, that may still have effects."""

    process: SimProcess
    number: int


@dataclass
class Known:
    """A document as it was written last."""

    term: int
    body: Body


@dataclass(frozen=True)
class Application:
    """An application's document as it was written last."""

    term: int
    body: ApplicationDocument
