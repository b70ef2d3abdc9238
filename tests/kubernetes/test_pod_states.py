"""What a pod says of its processes, and what proves their death. Tables, no server."""

from __future__ import annotations

from typing import Any

import pytest

from understudy.core.workers import SeenWorker, WorkerState
from understudy.kubernetes.pod_states import WORKER, seen_of
from understudy.kubernetes.templates import MAIN_CONTAINER
from understudy.model import Incarnation

Json = dict[str, Any]
COMING, RUNNING, ENDING, DEAD = WorkerState
RUNS = {"running": {"startedAt": "2026-11-24T12:00:00Z"}}


def pod(status: Json, *, node: str = "node-1", **metadata: str) -> Json:
    labels = {WORKER: "7-1"}
    return {
        "metadata": {"name": "pod", "uid": "0f-1e", "labels": labels, **metadata},
        "spec": {"nodeName": node} if node else {},
        "status": status,
    }


def status(phase: str, state: Json | None = None, **more: Any) -> Json:
    """Return the status of a pod whose container is in a state, or has none yet."""
    containers = [
        {"name": "beside", "state": RUNS},
        *([{"name": MAIN_CONTAINER, "state": state}] if state else []),
    ]
    return {"phase": phase, "containerStatuses": containers, **more}


def ended(code: int = 0, reason: str = "Error", **more: str) -> Json:
    return {"terminated": {"exitCode": code, "reason": reason, **more}}


def waits(reason: str, message: str = "") -> Json:
    return {"waiting": {"reason": reason, "message": message}}


NO_ROOM = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/2 nodes are available",
}
DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}


@pytest.mark.parametrize(
    ("found", "state", "problem"),
    [
        (pod({}), COMING, ""),
        (pod(status("Pending", waits("ContainerCreating"))), COMING, ""),
        (pod(status("Running", RUNS)), RUNNING, ""),
        # Why it does not come.
        (
            pod({"phase": "Pending", "conditions": [NO_ROOM]}, node=""),
            COMING,
            "Unschedulable: 0/2 nodes are available",
        ),
        (
            pod(status("Pending", waits("ImagePullBackOff", "no such\n image"))),
            COMING,
            "ImagePullBackOff: no such image",
        ),
        # Its container's end is reported, with or without that of the pod.
        (pod(status("Failed", ended(3))), DEAD, "exit code 3, Error"),
        (pod(status("Succeeded", ended(reason="Completed"))), DEAD, "exit code 0, Completed"),
        (pod(status("Running", ended(137, "OOMKilled"))), DEAD, "exit code 137, OOMKilled"),
        (
            pod(status("Failed", ended(143), reason="Evicted", message="low on memory")),
            DEAD,
            "exit code 143, Evicted: low on memory",
        ),
        # A kubelet that has refused it.
        ({**pod({"phase": "Failed", "reason": "OutOfcpu"})}, DEAD, "OutOfcpu"),
        # Asked to end, or given up by others than its kubelet: it may run.
        (pod(status("Running", RUNS), deletionTimestamp="now"), ENDING, ""),
        (pod(status("Failed", RUNS, reason="NodeLost")), ENDING, "NodeLost"),
        (pod(status("Failed", RUNS, conditions=[DISRUPTED])), ENDING, "Failed"),
        (pod({"phase": "Failed", "conditions": [DISRUPTED]}), ENDING, "Failed"),
        (
            pod(status("Failed", ended(137, "ContainerStatusUnknown"))),
            ENDING,
            "exit code 137, ContainerStatusUnknown",
        ),
    ],
)
def test_the_state_of_a_pod(found: Json, state: WorkerState, problem: str) -> None:
    expected = SeenWorker("7-1", Incarnation("0f1e"), state, problem)  # type: ignore[arg-type]

    assert expected == seen_of(found)


@pytest.mark.parametrize(
    ("last", "state"),
    [
        # Removed by its kubelet once it had ended, or before it was bound to a node.
        (pod(status("Failed", ended(143)), deletionTimestamp="now"), DEAD),
        (pod({"phase": "Pending"}, node=""), DEAD),
        # Removed by force.
        (pod(status("Running", RUNS)), ENDING),
        (pod(status("Running", RUNS), deletionTimestamp="now"), ENDING),
        (pod({"phase": "Pending"}), ENDING),
        (pod(status("Running", ended(137, "ContainerStatusUnknown"))), ENDING),
    ],
)
def test_the_last_state_of_a_pod_that_is_gone_may_prove_its_death(
    last: Json, state: WorkerState
) -> None:
    assert state == seen_of(last, is_deleted=True).state
