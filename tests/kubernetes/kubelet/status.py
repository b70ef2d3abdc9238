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


def phase(containers: Sequence[ContainerState], over: bool) -> str:
    """Return the phase of a pod; ``over`` once no container will be started again."""
    if over:
        return "Failed" if any(one.exit_code for one in containers) else "Succeeded"
    started = all("waiting" not in one.state or one.restarts for one in containers)
    return "Running" if started else "Pending"


def pod_status(
    containers: Sequence[ContainerState], over: bool, since: str, address: str, host: str
) -> Object:
    """Return the status of a pod."""
    ready = not over and all(one.ready for one in containers)
    conditions = {"PodScheduled": True, "Initialized": True, "ContainersReady": ready}
    return {
        "phase": phase(containers, over),
        "conditions": [
            {"type": kind, "status": str(holds), "lastTransitionTime": since}
            for kind, holds in {**conditions, "Ready": ready}.items()
        ],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        "startTime": since,
        "containerStatuses": [one.as_object() for one in containers],
    }
