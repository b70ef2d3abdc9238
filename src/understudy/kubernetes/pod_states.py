"""What a pod of a TaskManager says of its processes: whether they run, why not, and their death.

Death is proved only by a kubelet that has reported the container's end, and by what has never been
bound to a node. A pod whose object is gone, or marked as failed by a controller while its node is
silent, may still run. Pure.
"""

from __future__ import annotations

from understudy.core.ids import incarnation_of_pod
from understudy.core.workers import SeenWorker, WorkerId, WorkerState
from understudy.kubernetes.templates import MAIN_CONTAINER, Json

WORKER = "understudy/worker"
"""The label with a `WorkerId`: a pod that a leader has asked for has it."""

ENDED = ("Succeeded", "Failed")
"""Phases that a pod never leaves."""

UNKNOWN = "ContainerStatusUnknown"
"""The reason of an end that the kubelet has not seen, but concluded."""

USUAL = ("ContainerCreating", "PodInitializing")
"""What every container waits for."""

SHOWN_CHARS_MAX = 300


def seen_of(pod: Json, *, is_deleted: bool = False) -> SeenWorker:
    """Return how a leader sees a pod; ``is_deleted``: this is the last state of an object."""
    metadata = pod["metadata"]
    state, problem = _state_of(pod, is_deleted=is_deleted)
    worker = WorkerId(metadata.get("labels", {}).get(WORKER, ""))
    return SeenWorker(worker, incarnation_of_pod(metadata["uid"]), state, problem)


def _state_of(pod: Json, *, is_deleted: bool) -> tuple[WorkerState, str]:
    status: Json = pod.get("status") or {}
    main = _main(status)
    state: Json = main.get("state") or {}
    phase = status.get("phase", "")
    if ended := state.get("terminated"):
        is_proof = ended.get("reason") != UNKNOWN
        return WorkerState.DEAD if is_proof else WorkerState.ENDING, _how_ended(status, ended)
    if is_deleted:
        never_ran = not pod.get("spec", {}).get("nodeName")
        return (WorkerState.DEAD if never_ran else WorkerState.ENDING), "it was deleted"
    if phase in ENDED:
        # Without a status the kubelet has refused the pod; with one, a controller has given it up.
        is_proof = not main and not _is_disrupted(status)
        return WorkerState.DEAD if is_proof else WorkerState.ENDING, _how_ended(status, {})
    if pod["metadata"].get("deletionTimestamp"):
        return WorkerState.ENDING, ""
    if "running" in state:
        return WorkerState.RUNNING, ""
    return WorkerState.COMING, _why_waiting(status)


def _main(status: Json) -> Json:
    containers: list[Json] = status.get("containerStatuses") or []
    return next((one for one in containers if one.get("name") == MAIN_CONTAINER), {})


def _is_disrupted(status: Json) -> bool:
    return any(one.get("type") == "DisruptionTarget" for one in status.get("conditions") or ())


def _how_ended(status: Json, ended: Json) -> str:
    reason = status.get("reason") or ended.get("reason") or status.get("phase", "")
    message = status.get("message") or ended.get("message") or ""
    code = f"exit code {ended['exitCode']}" if "exitCode" in ended else ""
    return _shown(", ".join(one for one in (code, reason) if one), message)


def _why_waiting(status: Json) -> str:
    """Return why a pod does not run; empty while nothing is unusual."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _shown(condition.get("reason", ""), condition.get("message", ""))
    containers = (status.get("initContainerStatuses") or []) + (
        status.get("containerStatuses") or []
    )
    for one in containers:
        waiting: Json = (one.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") and waiting["reason"] not in USUAL:
            return _shown(waiting["reason"], waiting.get("message", ""))
    return ""


def _shown(reason: str, message: str) -> str:
    text = f"{reason}: {message}" if message else reason
    return " ".join(text.split())[:SHOWN_CHARS_MAX]
