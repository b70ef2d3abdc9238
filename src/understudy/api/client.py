"""Asking a cluster: find the leader by retrieval, follow it as it changes, read storage if none.

What storage can tell is the same JSON as the leader's, without what only a leader knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any

import httpx

from understudy.api import answers, checkpoints, directory, views
from understudy.api.authentication import OPEN, RestSecurity
from understudy.api.directory import Directory
from understudy.api.views import Json
from understudy.clock import SystemClock
from understudy.config import options
from understudy.errors import (
    CorruptDataError,
    DataError,
    NoLeaderError,
    NotFoundError,
    UnderstudyError,
    UnreachableError,
)
from understudy.ha.retrieval import serving_leader
from understudy.ha.services import HighAvailabilityServices
from understudy.ha.standalone import WHOEVER
from understudy.model import LeaderRecord, Tombstone

TRIES_MAX = 50
PAUSE_S = 0.2
"""Fifty times: ten seconds, in which an election on one host is over many times."""

QUICK_S = 2.0
"""How long a leader of this host may take to accept a connection."""


class ClusterClient:
    """One cluster, as a command sees it."""

    def __init__(
        self,
        services: HighAvailabilityServices,
        timeout_s: float,
        security: RestSecurity = OPEN,
    ) -> None:
        self._services = services
        self._directory = Directory(services, SystemClock())
        self._http = security.client(httpx.Timeout(timeout_s, connect=QUICK_S))

    async def close(self) -> None:
        """Close connections."""
        await self._http.aclose()

    async def get(self, path: str) -> Json:
        """Return the leader's answer; raises `NoLeaderError` where nobody serves."""
        return await self._ask("GET", path)

    async def post(self, path: str, body: Json | None = None) -> Json:
        """Ask the leader to do something that may be asked twice."""
        return await self._ask("POST", path, body)

    async def patch(self, path: str) -> Json:
        """Ask the leader to change something that may be asked twice."""
        return await self._ask("PATCH", path)

    async def _ask(self, method: str, path: str, body: Json | None = None) -> Json:
        """Ask whoever leads; ask again while that changes, as long as somebody may lead."""
        error: Exception | None = None
        for _ in range(TRIES_MAX):
            leader = await self._leader()
            if leader is None:
                raise NoLeaderError("nobody leads this cluster just now")
            try:
                answer = await self._request(method, path, leader, body)
            except httpx.ConnectError as refused:
                _refuse_bad_tls(leader, refused)
                if await self._is_gone(leader):
                    raise NoLeaderError("the last leader is gone, and nobody follows") from refused
                error = refused
            except httpx.HTTPError as failed:
                error = failed
            else:
                if answer.status_code != 503:
                    return _judged(answer)
            await asyncio.sleep(PAUSE_S)
        why = str(error or "") or "an election goes on"
        raise UnreachableError(f"the leader does not answer: {why}")

    async def _request(
        self, method: str, path: str, leader: LeaderRecord, body: Json | None
    ) -> httpx.Response:
        """Ask this leader; whoever else listens at its address is as good as nobody."""
        if leader.holder == WHOEVER:
            return await self._http.request(method, leader.rest + path, json=body)
        meant = {answers.MEANT_FOR: leader.holder}
        answer = await self._http.request(method, leader.rest + path, json=body, headers=meant)
        if answer.headers.get(answers.GIVEN_BY) != leader.holder:
            raise httpx.ConnectError(f"somebody else listens at {leader.rest}")
        return answer

    async def _leader(self) -> LeaderRecord | None:
        try:
            return await serving_leader(self._services.register)
        except (OSError, TimeoutError, DataError):
            return None

    async def _is_gone(self, leader: LeaderRecord) -> bool:
        """Say whether the record is that of a leader which nobody has followed for a while."""
        await asyncio.sleep(QUICK_S)
        now = await self._leader()
        return now is not None and (now.term, now.renewals) == (leader.term, leader.renewals)

    # --- without a leader -------------------------------------------------------------------------

    async def stored_overview(self) -> Json:
        """Return the applications that storage knows, and what needs a person."""
        problems = await self._directory.problems()
        answer: Json = {"leader": None, "attention": views.attention(problems)}
        registry = None
        with contextlib.suppress(DataError):
            registry = await self._directory.registry()
        if registry is None:
            return {"applications": [], **answer}
        facts = await self._directory.stored(registry)
        listed = [views.application_overview(one) for one in facts]
        listed += directory.unreadable(registry, facts, problems)
        listed += [views.buried_overview(stone) for stone in registry.tombstones.values()]
        return {"applications": listed, **answer}

    async def stored_application(self, wanted: str) -> Json:
        """Return one application that storage knows; raises `NotFoundError` or `DataError`."""
        problems = await self._directory.problems()
        if damage := problems.get("registry"):
            raise CorruptDataError(damage)
        registry = await self._directory.registry()
        if registry is None:
            raise NotFoundError(f"there is no application {wanted!r} here")
        facts = await self._directory.stored(registry)
        stones = {str(run): stone for run, stone in registry.tombstones.items()}
        try:
            found = directory.find_application(wanted, facts, stones)
        except NotFoundError:
            unreadable = directory.unreadable(registry, facts, problems)
            if one := directory.find_unreadable(wanted, unreadable):
                return one
            raise
        if isinstance(found, Tombstone):
            return await self._directory.buried_detail(found)
        return views.application_detail(found)

    async def attention(self) -> list[Json]:
        """Return what needs a person: as the leader knows, or as the data shows."""
        try:
            told: list[Json] = (await self.get("/ha/status"))["attention"]
        except NoLeaderError:
            return views.attention(await self._directory.problems())
        return told

    async def stored_results(self, wanted: str) -> list[Json]:
        """Return how the jobs of an application (or one job) ended, as far as storage knows."""
        registry = await self._directory.registry()
        facts = await self._directory.stored(registry) if registry else []
        stones = registry.tombstones if registry else {}
        found: list[Json] = []
        for one in facts:
            whole = one.body.application_id.startswith(wanted) or one.body.run_id == wanted
            for job_id in one.entries:
                if whole or job_id.startswith(wanted):
                    outcome, missing = await self._directory.outcome(one, job_id)
                    found.append(views.execution_result(one, job_id, outcome, missing))
        for stone in stones.values():
            whole = stone.application_id.startswith(wanted) or stone.run_id == wanted
            try:
                records = (await self._directory.buried(stone)).jobs
            except (DataError, NotFoundError):
                if whole:
                    raise
                continue
            for record in records:
                if whole or record.job_id.startswith(wanted):
                    found.append(views.recorded_result(record))
        return found

    async def stored_checkpoints(self, wanted: str) -> Json:
        """Return a job's checkpoints, as far as storage knows; raises `NotFoundError`."""
        registry = await self._directory.registry()
        facts = await self._directory.stored(registry) if registry else []
        if found := directory.find_job(wanted, facts):
            return checkpoints.statistics(await self._directory.checkpoints(*found))
        for stone in registry.tombstones.values() if registry else ():
            with contextlib.suppress(DataError):
                for record in (await self._directory.buried(stone)).jobs:
                    if record.job_id.startswith(wanted):
                        return checkpoints.statistics(checkpoints.ended(record.job_id, record))
        raise NotFoundError(f"there is no job {wanted!r} here")


def _refuse_bad_tls(leader: LeaderRecord, error: BaseException) -> None:
    """Raise `UnderstudyError` where TLS has failed, which no waiting mends."""
    cause: BaseException | None = error
    while cause and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if cause:
        raise UnderstudyError(
            f"{leader.rest}: {cause}: security.ssl.rest.* must be the same there and here, and the "
            "certificate must name that host"
        ) from error


def _judged(answer: httpx.Response) -> Json:
    """Return the body of a good answer; raise what a bad one says."""
    try:
        body: Any = answer.json()
    except ValueError:
        body = {"errors": [answer.text[:200]]}
    if answer.is_success:
        return dict(body)
    message = "; ".join(body.get("errors", [])) or f"HTTP {answer.status_code}"
    if answer.status_code == 404:
        raise NotFoundError(message)
    if answer.status_code == 401:
        raise UnderstudyError(
            f"the leader does not take our token: {options.SECRET_FILE.key} must name a file with "
            "the secret of this cluster"
        )
    raise UnderstudyError(message)
