"""Whether a leader lives, and whether the storage of this host is the one that it uses.

Where processes run on several hosts, a path may be another directory on each of them. A process
that joined all the same would find nothing of what the register names.
"""

from __future__ import annotations

from understudy.api import own_headers
from understudy.api.authentication import rest_security
from understudy.cli.launch.compose import locks_directories, register_in_storage
from understudy.config import Configuration, options
from understudy.errors import DataError, NotFoundError, UsageError
from understudy.ha.registry import application_document
from understudy.ha.services import HighAvailabilityServices
from understudy.model import LeaderRecord
from understudy.process.liveness_lock import LivenessLocks

ANSWER_S = 2.0
"""How long a leader of another host may take to show that it lives."""


async def lives(
    configuration: Configuration, services: HighAvailabilityServices, leader: LeaderRecord
) -> bool:
    """Say whether a leader lives, as far as this host can tell: a dead one contradicts nobody."""
    locks = locks_directories(configuration, services.cluster_id)
    if locks and leader.holder in await LivenessLocks(*locks).living():
        return True
    if register_in_storage(configuration):
        return False
    import httpx  # It takes a quarter of a second, and a JobManager that starts asks nobody.

    # It has no lock here, or nobody holds it: only itself can say that it lives, elsewhere.
    meant = {own_headers.MEANT_FOR: leader.holder}
    async with rest_security(configuration).client(ANSWER_S) as client:
        try:
            answer = await client.get(f"{leader.rest}/ha/status", headers=meant)
        except httpx.HTTPError:
            return False
    given_by: str | None = answer.headers.get(own_headers.GIVEN_BY)
    return given_by == leader.holder


async def check_storage(
    configuration: Configuration, services: HighAvailabilityServices, leader: LeaderRecord
) -> None:
    """Raise `UsageError` where what a living leader executes is not in the storage of this host.

    A register that lies in storage itself proves that by being there.
    """
    if register_in_storage(configuration):
        return
    try:
        registry = await services.registry.read()
        for application, link in (registry.applications if registry else {}).items():
            document = application_document(services.register, link.document, application)
            body = await document.read()
            if body and body.result is None:
                await services.applications.record(body)
    except NotFoundError as error:
        raise UsageError(
            f"{leader.name} leads on {leader.host}, and what it executes is not in the storage of "
            f"this host: {error}; {options.STORAGE_DIR.key} must be the same place for each "
            "process: one shared directory, mounted on each host, or an object store"
        ) from error
    except (DataError, OSError, TimeoutError):
        return  # Damage is named by whoever leads.
