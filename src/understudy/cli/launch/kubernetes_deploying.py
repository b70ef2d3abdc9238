"""Creates and removes the objects of a cluster on Kubernetes; every step may be repeated.

Names are fixed, so that what a lost answer has created is found again. An object that another
program has made is named and left alone.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from understudy.cli.launch.compose import open_services
from understudy.cli.launch.joining import patiently
from understudy.config import Configuration, options
from understudy.core.backoff import Backoff
from understudy.errors import UnderstudyError, UsageError
from understudy.kubernetes.access import Access
from understudy.kubernetes.client import ApiRequest, Client, RequestLimits, Traffic
from understudy.kubernetes.kinds import DEPLOYMENT, POD, Resource
from understudy.kubernetes.manifests import CONTENT, Blueprint, owned_by
from understudy.kubernetes.pods import JOBMANAGER, RUN_ID, selector
from understudy.kubernetes.refusals import ApiRefusal, Contested, NotThere
from understudy.kubernetes.templates import Json
from understudy.model import RegistryBody

GONE_S = 90.0
"""How long objects of an earlier Deployment may take to go: its pods have 30 s to end."""

LOST_MAX = 5
"""How often a request is sent whose outcome is unknown."""

AGAIN = Backoff(0.2, 2.0)


@dataclass(frozen=True)
class Deployed:
    """What a start has led to."""

    run_id: str | None
    is_new: bool
    """False: it was there already, and is the same."""


def client_of(access: Access) -> Client:
    """Return a client for one command."""
    return Client(access, RequestLimits(), Traffic())


async def deploy(client: Client, asked: Blueprint) -> Deployed:
    """Create what is missing of a cluster; return its run. Raises `UsageError`, and ``OSError``."""
    found = await _not_going(client, asked)
    run_id = _run_of(asked, found) if found else _new_run_of(asked)
    (kind, body), *others = replace(asked, run_id=run_id).objects()
    deployment = found or await _created(client, kind, body)
    if deployment["metadata"].get("annotations", {}).get(CONTENT) != asked.content():
        raise UsageError(_different(asked))
    owner = owned_by(deployment)
    for kind, body in others:
        owned = {**body, "metadata": {**body["metadata"], "ownerReferences": [owner]}}
        await _ensured(client, kind, owned)
    return Deployed(run_id, is_new=found is None)


async def run_to_continue(configuration: Configuration, cluster_id: str) -> str | None:
    """Return the unfinished run that the register of a cluster has, which comes before a new one.

    Raises ``OSError`` if the register cannot be asked.
    """
    registry = await registry_of(configuration, cluster_id)
    unfinished = [str(link.run_id) for link in registry.applications.values()] if registry else []
    return unfinished[0] if unfinished else None


async def registry_of(configuration: Configuration, cluster_id: str) -> RegistryBody | None:
    """Return a cluster's record of its runs."""
    return await patiently(configuration, open_services(configuration, cluster_id).registry.read)


def _new_run_of(asked: Blueprint) -> str | None:
    return asked.run_id or (new_run_id() if asked.arguments else None)


def new_run_id() -> str:
    """Return the id of a new run."""
    return uuid.uuid4().hex[:12]


async def remove(client: Client, cluster: str, run_id: str | None = None) -> bool:
    """Remove a cluster's Deployment, and with it all that it owns; return whether it was there.

    ``run_id``: only if it is there for this run. Raises `UsageError` if it is another program's.
    """
    found = await client.get(DEPLOYMENT, cluster)
    if found is None:
        return False
    if not _is_ours(found, cluster):
        raise UsageError(_foreign(DEPLOYMENT, cluster, client.access.namespace))
    if run_id and found["metadata"]["labels"].get(RUN_ID) != run_id:
        return False
    body = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
        "preconditions": {"uid": found["metadata"]["uid"]},
    }
    try:
        await client.send(ApiRequest("delete", DEPLOYMENT, cluster, body=body))
    except (NotThere, Contested):  # Somebody else has removed it.
        return False
    return True


async def until_ended(client: Client, cluster: str) -> None:
    """Return once no JobManager's pod is left; raises `UnderstudyError` after `GONE_S`."""
    query = {"labelSelector": _label_query(selector(cluster, JOBMANAGER))}
    failures = 0
    try:
        async with asyncio.timeout(GONE_S):
            while (await client.list(POD, query, metadata_only=True))[0]:
                failures += 1
                await asyncio.sleep(AGAIN.pause_s(failures))
    except TimeoutError:
        raise UnderstudyError(
            f"pods of {cluster} are still there after {GONE_S:g} s: `kubectl -n "
            f"{client.access.namespace} get pods -l app={cluster}` shows them"
        ) from None


def _label_query(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in labels.items())


async def _not_going(client: Client, asked: Blueprint) -> Json | None:
    """Return the Deployment, once none is on its way out; None if there is none."""
    failures = 0
    async with asyncio.timeout(GONE_S):
        while True:
            found = await client.get(DEPLOYMENT, asked.cluster)
            if found is None or not found["metadata"].get("deletionTimestamp"):
                break
            failures += 1
            await asyncio.sleep(AGAIN.pause_s(failures))
    if found is not None and not _is_ours(found, asked.cluster):
        raise UsageError(_foreign(DEPLOYMENT, asked.cluster, asked.namespace))
    return found


def _run_of(asked: Blueprint, found: Json) -> str | None:
    """Return the run of a Deployment that exists; raises `UsageError` if another one is asked."""
    run_id: str | None = found["metadata"]["labels"].get(RUN_ID)
    if asked.run_id and run_id and asked.run_id != run_id:
        raise UsageError(
            f"Deployment {asked.cluster!r} in namespace {asked.namespace} is there for run "
            f"{run_id}, not for {asked.run_id}: {_way_out(asked)}"
        )
    return run_id


def _different(asked: Blueprint) -> str:
    return (
        f"Deployment {asked.cluster!r} in namespace {asked.namespace} runs something else than "
        f"this command says (application, arguments, settings or image): {_way_out(asked)}"
    )


def _way_out(asked: Blueprint) -> str:
    return (
        f"choose another {options.K8S_CLUSTER_ID.key}, or end it with `kubectl -n "
        f"{asked.namespace} delete deployment {asked.cluster}`, which keeps its data"
    )


def _foreign(kind: Resource, name: str, namespace: str) -> str:
    return (
        f"{kind.name} {name!r} in namespace {namespace} is another program's, and is left alone: "
        f"choose another {options.K8S_CLUSTER_ID.key}"
    )


def _is_ours(found: Json, cluster: str) -> bool:
    labels = found["metadata"].get("labels") or {}
    return {**labels, **selector(cluster, JOBMANAGER)} == labels


async def _created(client: Client, kind: Resource, body: Json) -> Json:
    """Create an object, or return the one that a lost answer has created."""
    name, lost = body["metadata"]["name"], 0
    while True:
        try:
            found = await client.send(ApiRequest("create", kind, body=body))
        except Contested:
            found = await client.get(kind, name)
        except ApiRefusal as error:
            if error.status < 500:
                raise
            lost = await _after_loss(error, lost)
            continue
        except OSError as error:
            lost = await _after_loss(error, lost)
            continue
        if found is not None:
            return found


async def _after_loss(error: OSError, lost: int) -> int:
    """Wait before a request whose outcome is unknown is repeated; raise it at last."""
    if lost == LOST_MAX:
        raise error
    await asyncio.sleep(AGAIN.pause_s(lost + 1))
    return lost + 1


async def _ensured(client: Client, kind: Resource, body: Json) -> None:
    """Have an object there that belongs to our Deployment; raises `UsageError` otherwise."""
    metadata: dict[str, Any] = body["metadata"]
    (owner,) = metadata["ownerReferences"]
    name, failures = metadata["name"], 0
    try:
        async with asyncio.timeout(GONE_S):
            while True:
                found = await _created(client, kind, body)
                owners = found["metadata"].get("ownerReferences") or ()
                if any(one["uid"] == owner["uid"] for one in owners):
                    return
                if not owners or not _is_ours(found, owner["name"]):
                    raise UsageError(_foreign(kind, name, metadata["namespace"]))
                # It goes with an earlier Deployment of this name.
                failures += 1
                await asyncio.sleep(AGAIN.pause_s(failures))
    except TimeoutError:
        raise UnderstudyError(
            f"{kind.name} {name!r} of an earlier Deployment is still there after {GONE_S:g} s"
        ) from None
