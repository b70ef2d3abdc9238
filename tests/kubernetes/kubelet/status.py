"""What a kubelet tells of a pod, made of the states of its containers alone."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]


def now() -> str:
    """Return the time, as the API has it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class ContainerState:
    """How one container is."""

    name: str
    image: str
    state: Object = field(default_factory=lambda: {"waiting": {"reason": "ContainerCreating"}})
    last: Object = field(default_factory=dict)
    ready: bool = False
    restarts: int = 0

    @property
    def exit_code(self) -> int | None:
        """Return with what it has ended; None unless it has."""
        terminated = self.state.get("terminated")
        return None if terminated is None else int(terminated["exitCode"])

    def as_object(self) -> Object:
        """Return the container's part of the status."""
        return {
            "name": self.name,
            "image": self.image,
            "imageID": "",
            "ready": self.ready,
            "started": "running" in self.state,
            "restartCount": self.restarts,
            "state": self.state,
            "lastState": self.last,
        }


@dataclass(frozen=True)
class Facts:
    """What a pod's status has beside its containers."""

    address: str
    host: str
    since: str
    ready_since: str
    """When it became ready, or ceased to be."""
    over: bool
    """No container will be started again."""


def is_ready(containers: Sequence[ContainerState], over: bool) -> bool:
    """Return whether a pod is ready."""
    return not over and all(one.ready for one in containers)


def phase(states: Sequence[ContainerState], over: bool) -> str:
    """Return the phase of a pod, made of the states of its containers and init containers."""
    if over:
        return "Failed" if any(one.exit_code for one in states) else "Succeeded"
    started = all("waiting" not in one.state or one.restarts for one in states)
    return "Running" if started else "Pending"


def pod_status(
    inits: Sequence[ContainerState], containers: Sequence[ContainerState], facts: Facts
) -> Object:
    """Return the status of a pod."""
    ready = is_ready(containers, facts.over)
    conditions = {
        "PodScheduled": (True, facts.since),
        "Initialized": (all(one.exit_code == 0 for one in inits), facts.since),
        "ContainersReady": (ready, facts.ready_since),
        "Ready": (ready, facts.ready_since),
    }
    return {
        "phase": phase([*inits, *containers], facts.over),
        "conditions": [
            {"type": kind, "status": str(holds), "lastTransitionTime": since}
            for kind, (holds, since) in conditions.items()
        ],
        "podIP": facts.address,
        "podIPs": [{"ip": facts.address}],
        "hostIP": facts.host,
        "hostIPs": [{"ip": facts.host}],
        "startTime": facts.since,
        "initContainerStatuses": [one.as_object() for one in inits],
        "containerStatuses": [one.as_object() for one in containers],
    }
