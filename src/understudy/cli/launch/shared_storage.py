"""Checks that a leader is alive, and that this host's storage is the leader's storage.

On several hosts, the same path may be a different directory on each. A process that joined anyway
would find no file that the register names.
"""

from __future__ import annotations

from understudy.api import own_headers
from understudy.api.authentication import RestSecurity
from understudy.cli.launch.compose import locks_directories, register_in_storage
from understudy.config import Configuration, options
from understudy.errors import DataError, NotFoundError, UsageError
from understudy.ha.registry import application_document
from understudy.ha.services import HighAvailabilityServices
from understudy.model import LeaderRecord
from understudy.process.liveness_lock import LivenessLocks

ANSWER_S = 2.0
"""How long a leader on another host may take to answer."""


async def lives(
    configuration: Configuration, services: HighAvailabilityServices, leader: LeaderRecord
) -> bool:
    """Return whether a leader is alive, as far as this host can tell."""
    locks = locks_directories(configuration, services.cluster_id)
    if locks and leader.holder in await LivenessLocks(*locks).living():
        return True
    if register_in_storage(configuration):
        return False
    import httpx  # The import takes 0.25 s, and most starts do not need it.

    # Without a held lock here, the leader may live on another host: only its answer proves it.
    meant = {own_headers.MEANT_FOR: leader.holder}
    async with RestSecurity.of(configuration).client(ANSWER_S) as client:
        try:
            answer = await client.get(f"{leader.rest}/ha/status", headers=meant)
        except httpx.HTTPError:
            return False
    given_by: str | None = answer.headers.get(own_headers.GIVEN_BY)
    return given_by == leader.holder


async def check_storage(
    configuration: Configuration, services: HighAvailabilityServices, leader: LeaderRecord
) -> None:
    """Raise `UsageError` if a live leader's application is not in this host's storage.

    A register inside the storage is proof enough.
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
        return  # The leader reports damage.
