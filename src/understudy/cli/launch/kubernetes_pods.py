"""What pods a cluster has, for commands that show it or remove its data."""

from __future__ import annotations

import asyncio
from typing import Any

from understudy.cli.launch.kubernetes_deploying import client_of
from understudy.cli.launch.kubernetes_plan import cluster_name, settings_of
from understudy.cli.launch.members import Account
from understudy.config import Configuration, options
from understudy.core.workers import WorkerState
from understudy.errors import UnderstudyError, UsageError
from understudy.kubernetes.access import access_of
from understudy.kubernetes.kinds import DEPLOYMENT, POD
from understudy.kubernetes.pod_states import seen_of
from understudy.kubernetes.pods import JOBMANAGER, TYPE
from understudy.kubernetes.templates import Json
from understudy.model import LeaderRecord

STATES = {
    WorkerState.COMING: "started",
    WorkerState.RUNNING: "runs",
    WorkerState.ENDING: "stopped",
    WorkerState.DEAD: "gone",
}


def named(configuration: Configuration) -> Configuration:
    """Return the settings of the cluster that is named; raises `UsageError` if none is."""
    cluster = cluster_name(configuration)
    if cluster is None:
        raise UsageError(f"name the cluster: -D {options.K8S_CLUSTER_ID.key}=NAME")
    return configuration.with_settings(settings_of(configuration, cluster))


def settings_to_destroy(configuration: Configuration) -> dict[str, str]:
    """Return the settings that lead to a cluster's data.

    Raises `UsageError`, ``OSError``, and `UnderstudyError` while pods of the cluster are there.
    """
    found = named(configuration)
    if not found.find(options.STORAGE_DIR):
        raise UsageError(f"{options.STORAGE_DIR.key} is not set: name where the cluster's data is")
    cluster = found.get(options.K8S_CLUSTER_ID)
    _, pods = asyncio.run(_asked(found, cluster))
    living = [one["metadata"]["name"] for one in pods if STATES[seen_of(one).state] != "gone"]
    if living:
        raise UnderstudyError(
            f"cluster {cluster!r} is in use: {len(living)} of its pods are there "
            f"({', '.join(living)}); end them first"
        )
    return dict(found.settings)


def accounts(configuration: Configuration, leader: LeaderRecord | None) -> list[Account]:
    """Return the processes in a cluster's pods, as on a machine; the name of a pod is its host."""
    cluster = configuration.get(options.K8S_CLUSTER_ID)
    deployment, pods = asyncio.run(_asked(configuration, cluster))
    found: list[Account] = []
    for role in ("jobmanager", "taskmanager"):
        mine = [one for one in pods if one["metadata"]["labels"].get("component") == role]
        found += [_account(one, role, number, leader) for number, one in enumerate(mine, 1)]
        wanted: int = deployment["spec"].get("replicas", 1) if deployment else 0
        if role == JOBMANAGER.name:
            missing = range(len(mine) + 1, wanted + 1)
            found += [Account("", role, number, "missing") for number in missing]
    return found


def _account(pod: Json, role: str, number: int, leader: LeaderRecord | None) -> Account:
    seen, address = seen_of(pod), pod.get("status", {}).get("podIP", "")
    leads = bool(leader and address and f"//{address}:" in leader.rest)
    return Account(
        host=pod["metadata"]["name"],
        role=role,
        number=number,
        state=STATES[seen.state],
        incarnation=leader.holder if leader and leads else seen.incarnation,
        rest=leader.rest if leader and leads else "",
        why=seen.problem,
    )


async def _asked(configuration: Configuration, cluster: str) -> tuple[Json | None, list[Any]]:
    """Return a cluster's Deployment, and its pods by name."""
    client = client_of(access_of(configuration))
    pods, _ = await client.list(POD, {"labelSelector": f"app={cluster},type={TYPE}"})
    deployment = await client.get(DEPLOYMENT, cluster)
    return deployment, sorted(pods, key=lambda one: str(one["metadata"]["name"]))
