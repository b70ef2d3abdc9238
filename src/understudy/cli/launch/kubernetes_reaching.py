"""Finds the JobManagers of a cluster on Kubernetes, for commands that ask.

By the Service, where it has an address that can be reached from here, else by the addresses of the
pods. Where neither can be reached, the sentence says how to forward a port.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from understudy.cli.launch.kubernetes_deploying import client_of
from understudy.cli.launch.kubernetes_plan import cluster_name
from understudy.config import Configuration, options
from understudy.errors import UsageError
from understudy.kubernetes.access import access_of
from understudy.kubernetes.client import Client
from understudy.kubernetes.kinds import POD, SERVICE
from understudy.kubernetes.kinds import SECRET as SECRETS
from understudy.kubernetes.manifests import REST_PORT, rest_service, secret
from understudy.kubernetes.pods import JOBMANAGER, SECRET_KEY, selector
from understudy.kubernetes.refusals import Forbidden
from understudy.kubernetes.templates import Json

REACH_S = 2.0
"""Longest time for an address to accept a connection."""


def settings_for(configuration: Configuration) -> dict[str, str]:
    """Return the settings with which a command asks the cluster that a configuration names.

    Raises `UsageError`, and ``OSError`` if the API server cannot be asked.
    """
    cluster = cluster_name(configuration)
    if cluster is None:
        raise UsageError(f"name the cluster: -D {options.K8S_CLUSTER_ID.key}=NAME")
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
