"""A cluster in pods, for commands: which pods it has, and how its JobManagers are reached.

They are reached by the Service, where it has an address that can be reached from here, else by the
addresses of the pods. Where neither can be reached, the sentence says how to forward a port.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from understudy.cli.launch.kubernetes_deploying import client_of
from understudy.cli.launch.kubernetes_plan import cluster_name, settings_of
from understudy.cli.launch.members import Account
from understudy.config import Configuration, options
from understudy.core.workers import WorkerState
from understudy.errors import UnderstudyError, UsageError
from understudy.kubernetes.access import access_of
from understudy.kubernetes.client import Client
from understudy.kubernetes.kinds import DEPLOYMENT, POD, SERVICE
from understudy.kubernetes.kinds import SECRET as SECRETS
from understudy.kubernetes.manifests import REST_PORT, rest_service, secret
from understudy.kubernetes.pod_states import seen_of
from understudy.kubernetes.pods import JOBMANAGER, SECRET_KEY, TYPE, selector
from understudy.kubernetes.refusals import Forbidden
from understudy.kubernetes.templates import Json
from understudy.model import LeaderRecord

STATES = {
    WorkerState.COMING: "started",
    WorkerState.RUNNING: "runs",
    WorkerState.ENDING: "stopped",
    WorkerState.DEAD: "gone",
}

REACH_S = 2.0
"""Longest time for an address to accept a connection."""


def named(configuration: Configuration) -> Configuration:
    """Return the settings of the cluster that is named; raises `UsageError` if none is."""
    return configuration.with_settings(settings_of(configuration, _named(configuration)))


def _named(configuration: Configuration) -> str:
    if (cluster := cluster_name(configuration)) is None:
        raise UsageError(f"name the cluster: -D {options.K8S_CLUSTER_ID.key}=NAME")
    return cluster


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


# --- how a command reaches its JobManagers --------------------------------------------------------


def settings_for(configuration: Configuration) -> dict[str, str]:
    """Return the settings with which a command asks the cluster that a configuration names.

    Raises `UsageError`, and ``OSError`` if the API server cannot be asked.
    """
    cluster = _named(configuration)
    return asyncio.run(_settings_for(configuration, cluster))


async def _settings_for(configuration: Configuration, cluster: str) -> dict[str, str]:
    client = client_of(access_of(configuration))
    labels = selector(cluster, JOBMANAGER)
    query = {"labelSelector": ",".join(f"{name}={value}" for name, value in labels.items())}
    service = await client.get(SERVICE, rest_service(cluster))
    pods, _ = await client.list(POD, query)
    if not pods:
        raise UsageError(
            f"no JobManager of cluster {cluster!r} is in namespace {client.access.namespace}: see "
            f"whether {options.K8S_CLUSTER_ID.key} and {options.K8S_NAMESPACE.key} are right"
        )
    scheme = "https" if configuration.get(options.REST_SSL) else "http"
    known = [*addresses(service, pods, scheme)]
    reached = await asyncio.gather(*map(_reaches, known))
    found = [url for url, is_reached in zip(known, reached, strict=True) if is_reached]
    if not found:
        raise UsageError(_unreachable(client.access.namespace, cluster, known, scheme))
    return {options.TARGET.key: ",".join(found), **await _token(configuration, client, cluster)}


def addresses(service: Json | None, pods: Sequence[Json], scheme: str) -> Iterator[str]:
    """Yield the URLs of REST endpoints, those for the world outside first."""
    spec = (service or {}).get("spec") or {}
    status = (service or {}).get("status") or {}
    for one in (status.get("loadBalancer") or {}).get("ingress") or ():
        yield _url(scheme, one.get("ip") or one.get("hostname") or "", REST_PORT)
    nodes = dict.fromkeys(one["status"].get("hostIP", "") for one in pods)
    for port in spec.get("ports") or ():
        if spec.get("type") == options.NODE_PORT and port.get("nodePort"):
            yield from (_url(scheme, node, port["nodePort"]) for node in nodes if node)
    for one in pods:
        if address := one["status"].get("podIP"):
            yield _url(scheme, address, REST_PORT)


def _url(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


async def _reaches(url: str) -> bool:
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(REACH_S):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


def _unreachable(namespace: str, cluster: str, known: Sequence[str], scheme: str) -> str:
    tried = ", ".join(known) or "no pod has an address yet"
    service = rest_service(cluster)
    return (
        f"the JobManagers of {cluster!r} cannot be reached from here ({tried}): `kubectl -n "
        f"{namespace} port-forward service/{service} {REST_PORT}:{REST_PORT}` makes a way, then "
        f"`--target {scheme}://127.0.0.1:{REST_PORT}` in place of -t; "
        f"{options.K8S_EXPOSED.key} gives them an address"
    )


async def _token(configuration: Configuration, client: Client, cluster: str) -> dict[str, str]:
    """Return the setting that names the cluster's secret, where none is typed."""
    if configuration.find(options.BEARER_FILE):
        return {}
    name = secret(cluster)
    try:
        found = await client.get(SECRETS, name)
    except Forbidden as error:
        raise UsageError(f"{error}; or give --token-file") from error
    if found is None:
        return {}  # The cluster's secret is a person's own: so is the token.
    return {options.SECRET_FILE.key: _in_memory(base64.b64decode(found["data"][SECRET_KEY]))}


def _in_memory(content: bytes) -> str:
    """Return the path of a file with a secret that no disk has; it goes with this process."""
    descriptor = os.memfd_create("secret")
    os.fchmod(descriptor, 0o600)
    os.write(descriptor, content)
    return f"/proc/self/fd/{descriptor}"
