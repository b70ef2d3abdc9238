"""Checks that a leader is alive, and that this host's storage is the leader's storage.

On several hosts, the same path may be a different directory on each. A process that joined anyway
would find no file that the register names.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection

from understudy.api import own_headers
from understudy.api.authentication import RestSecurity
from understudy.cli.launch import machine
from understudy.cli.launch.compose import locks_directories, open_services, register_in_storage
from understudy.config import Configuration, options
from understudy.errors import DataError, NotFoundError, UsageError
from understudy.ha.registry import application_document
from understudy.ha.retrieval import serving_leader
from understudy.ha.services import HighAvailabilityServices
from understudy.model import LeaderRecord
from understudy.process.liveness_lock import LivenessLocks

ANSWER_S = 2.0
"""How long a leader on another host may take to answer."""

LOOK_S = 3.0
"""How long a command that ends looks for other JobManagers of its cluster."""


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


async def lives_elsewhere(
    configuration: Configuration, cluster_id: str, own: Collection[str]
) -> bool:
    """Return whether a JobManager lives that is not among ``own``, so that the run continues.

    A JobManager of which nothing can be found out in `LOOK_S` counts as dead.
    """
    with contextlib.suppress(OSError, TimeoutError, DataError):
        async with asyncio.timeout(LOOK_S):
            if locks := locks_directories(configuration, cluster_id):
                living = {*await LivenessLocks(*locks).living()}.difference(own)
                if living and living.difference(await asyncio.to_thread(_taskmanagers)):
                    return True
            services = open_services(configuration, cluster_id)
            line = await services.line()
            if line is not None:
                return not {*line}.issubset(own)
            leader = await serving_leader(services.register)
            if leader and leader.holder not in own:
                return await lives(configuration, services, leader)
    return False


def _taskmanagers() -> set[str]:
    return {one.incarnation for one in machine.guarded() if one.kind == "taskmanager"}


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
