"""The rights that a JobManager needs, asked for before it serves.

Without a right to write the Lease, an election would fail silently at the first renewal. So each
right is asked for at the start (SelfSubjectAccessReview), and a missing one is named with the rule
to add to the Role, also as an Event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from understudy.kubernetes.access import Access
from understudy.kubernetes.client import ApiRequest, Client
from understudy.kubernetes.kinds import (
    ACCESS_REVIEW,
    CONFIG_MAP,
    DEPLOYMENT,
    EVENT,
    LEASE,
    POD,
    Resource,
)
from understudy.kubernetes.refusals import Forbidden, rule

VERBS = ("get", "list", "watch", "create", "patch", "delete")

OF_WORKERS = tuple((verb, POD) for verb in ("get", "list", "watch", "create", "delete"))
"""Rights of a leader that asks for pods of TaskManagers."""

OPTIONAL = (("create", EVENT), ("patch", EVENT), ("get", DEPLOYMENT))
"""Rights without which only Events are missing, or are those of the Lease."""


def needed(*, lease: bool) -> list[tuple[str, Resource]]:
    """Return the verbs on kinds that the backend uses."""
    kinds = (CONFIG_MAP, LEASE) if lease else (CONFIG_MAP,)
    return [(verb, kind) for kind in kinds for verb in VERBS]


async def missing(client: Client, asked: Sequence[tuple[str, Resource]]) -> list[str]:
    """Return the rights that we lack, as rules of a Role; raises as `Client.send` does."""
    lacking: dict[Resource, list[str]] = {}
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
