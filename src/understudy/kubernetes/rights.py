"""The rights that a JobManager needs, asked for before it serves.

Without a right to write the Lease, an election would fail silently at the first renewal. So each
right is asked for at the start (SelfSubjectAccessReview), and a missing one is named with the rule
to add to the Role, also as an Event.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from datetime import UTC, datetime

from understudy.kubernetes.access import Access
from understudy.kubernetes.client import ApiRequest, Client
from understudy.kubernetes.kinds import (
    ACCESS_REVIEW,
    CONFIG_MAP,
    EVENT,
    LEASE,
    Resource,
)
from understudy.kubernetes.refusals import Forbidden, rule

MESSAGE_CHARS_MAX = 1024
"""Kubernetes's limit for the message of an Event."""

VERBS = ("get", "list", "watch", "create", "patch", "delete")


def needed(*, lease: bool) -> list[tuple[str, Resource]]:
    """Return the verbs on kinds that the backend uses."""
    kinds = (CONFIG_MAP, LEASE) if lease else (CONFIG_MAP,)
    return [(verb, kind) for kind in kinds for verb in VERBS]


async def missing(client: Client, *, lease: bool) -> list[str]:
    """Return the rights that we lack, as rules of a Role; raises as `Client.send` does."""
    lacking: dict[Resource, list[str]] = {}
    asked = needed(lease=lease)
    answers = await asyncio.gather(*(_allowed(client, verb, kind) for verb, kind in asked))
    for (verb, kind), allowed in zip(asked, answers, strict=True):
        if not allowed:
            lacking.setdefault(kind, []).append(verb)
    return [rule(kind, *verbs) for kind, verbs in lacking.items()]


def sentence(access: Access, rules: list[str]) -> str:
    """Return what people must add, as one sentence."""
    return (
        f"our account at {access.server} lacks rights in namespace {access.namespace}: add to its "
        f"Role: {'; '.join(rules)}"
    )


async def _allowed(client: Client, verb: str, kind: Resource) -> bool:
    asked = {
        "namespace": client.access.namespace,
        "verb": verb,
        "group": kind.group,
        "resource": kind.plural,
    }
    body = {
        "apiVersion": ACCESS_REVIEW.api_version,
        "kind": ACCESS_REVIEW.name,
        "spec": {"resourceAttributes": asked},
    }
    try:
        answer = await client.send(ApiRequest("create", ACCESS_REVIEW, body=body))
    except Forbidden as error:
        if error.status == 401:
            raise
        return True  # Who may not ask learns it from the first request itself.
    return bool((answer or {}).get("status", {}).get("allowed"))


async def announce(client: Client, about: tuple[Resource, str], message: str, now: float) -> None:
    """Show a message as an Event of an object, there or not; where we may not, the log has it."""
    kind, name = about
    namespace = client.access.namespace
    at = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    involved = {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "name": name,
        "namespace": namespace,
    }
    body = {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.name,
        "metadata": {"name": f"{name}.{uuid.uuid4().hex[:16]}"},
        "involvedObject": involved,
        "reason": "MissingRights",
        "message": message[:MESSAGE_CHARS_MAX],
        "type": "Warning",
        "source": {"component": "understudy"},
        "reportingComponent": "understudy",
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
    with contextlib.suppress(OSError):
        await client.send(ApiRequest("create", EVENT, body=body))
