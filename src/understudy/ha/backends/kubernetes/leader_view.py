"""The leader's record as other programs of Kubernetes show it: a view, never read back.

`kubectl get lease` and tools that know client-go's annotation show the holder, and when it has
renewed. These are this machine's wall clock, for people: no decision depends on them.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime

ANNOTATION = "control-plane.alpha.kubernetes.io/leader"
"""FLIP-144's and client-go's."""

TRANSITIONS_MAX = 2**31 - 1
VACANT_S = 1
"""The duration of a lease that nobody holds, as client-go writes it: it must be positive."""


@dataclass(frozen=True)
class LeaderView:
    """What a leader's record says to other programs."""

    holder: str
    """The incarnation of the process that leads; empty if nobody does."""
    name: str
    duration_s: int
    acquired: float
    transitions: int

    @property
    def identity(self) -> str:
        """Return the holder's identity: the name, for people, and the incarnation."""
        return f"{self.name}_{self.holder}" if self.name and self.holder else self.holder

    def spec(self, now: float) -> dict[str, object]:
        """Return the ``spec`` of a Lease."""
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self.duration_s,
            "acquireTime": _micro_time(self.acquired),
            "renewTime": _micro_time(now),
            "leaseTransitions": self.transitions,
        }

    def annotation(self, now: float) -> str:
        """Return the value of the annotation, in client-go's format."""
        spec = self.spec(now)
        return json.dumps(
            {
                "holderIdentity": spec["holderIdentity"],
                "leaseDurationSeconds": spec["leaseDurationSeconds"],
                "acquireTime": _time(self.acquired),
                "renewTime": _time(now),
                "leaderTransitions": spec["leaseTransitions"],
            }
        )


def view_of(value: bytes | None, now: float) -> LeaderView:
    """Return the view of a leader's record; of anything else, that nobody leads."""
    try:
        body = json.loads(value or b"")["body"]
        holder, term = str(body["holder"]), int(body["term"])
        duration_s = math.ceil(float(body.get("lease_s", 15.0))) if holder else VACANT_S
        acquired = float(body.get("since", 0.0)) or now
        name = str(body.get("name", ""))
    except (ValueError, TypeError, KeyError):
        return LeaderView("", "", VACANT_S, now, 0)
    return LeaderView(holder, name, max(1, duration_s), acquired, min(term, TRANSITIONS_MAX))


def _micro_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
