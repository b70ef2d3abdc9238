"""Asking a cluster: find the leader by retrieval, follow it as it changes, read storage if none.

What storage can tell is the same JSON as the leader's, without what only a leader knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from understudy.api import checkpoints, directory, ended, own_headers, views
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

if TYPE_CHECKING:
    import httpx

TRIES_MAX = 50
PAUSE_S = 0.2
"""Fifty times: ten seconds, in which an election on one host is over many times."""

QUICK_S = 2.0
"""How long a leader of this host may take to accept a connection, and the next one to lead."""


class ClusterClient:
    """One cluster, as a command sees it."""

    def __init__(
        self,
        services: HighAvailabilityServices,
        timeout_s: float,
        security: RestSecurity = OPEN,
        *,
        await_leader_s: float = 0.0,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``tell`` is called once, when ``await_leader_s`` begins for what must reach a leader."""
        self._services = services
        self._await_leader_s = await_leader_s
        self._tell = tell
        self._told = False
        self._directory = Directory(services, SystemClock())
        self._security = security
        self._timeout_s = timeout_s
        self._client: httpx.AsyncClient | None = None

    async def close(self) -> None:
        """Close connections."""
        if self._client:
            await self._client.aclose()

    @property
    def _http(self) -> httpx.AsyncClient:
        """Connections to leaders; made, and their library imported, once there is a leader."""
        import httpx

        if self._client is None:
            timeout = httpx.Timeout(self._timeout_s, connect=QUICK_S)
            self._client = self._security.client(timeout)
        return self._client

    async def get(self, path: str, *, awaits_leader: bool = False) -> Json:
        """Return the leader's answer; raises `NoLeaderError` where nobody serves.

        What storage can answer instead awaits nobody.
        """
        return await (self._ask_the_next if awaits_leader else self._ask)("GET", path)

    async def post(self, path: str, body: Json | None = None) -> Json:
        """Ask the leader, or the next one, to do something that may be asked twice."""
        return await self._ask_the_next("POST", path, body)

    async def patch(self, path: str) -> Json:
        """Ask the leader, or the next one, to change something that may be asked twice."""
        return await self._ask_the_next("PATCH", path)

    async def _ask_the_next(self, method: str, path: str, body: Json | None = None) -> Json:
        """Ask whoever leads; where nobody does, wait until somebody leads what is unfinished."""
        limit = f"{options.AWAIT_LEADER.key} ({self._await_leader_s:g} s)"
        loop = asyncio.get_running_loop()
        until: float | None = None
        while True:
            try:
                return await self._ask(method, path, body)
            except NoLeaderError as error:
                until = loop.time() + self._await_leader_s if until is None else until
                if loop.time() >= until:
                    raise NoLeaderError(f"{error}, within {limit}") from error
                if await self._has_ended():
                    raise
                if not self._told:
                    self._told = True
                    self._tell(f"{error}: waiting for a leader, up to {limit}")
            await asyncio.sleep(PAUSE_S)

    async def _ask(self, method: str, path: str, body: Json | None = None) -> Json:
        """Ask whoever leads; ask again while that changes, as long as somebody may lead."""
        error: Exception | None = None
        for _ in range(TRIES_MAX):
            leader = await self._leader()
            if leader is None:
                if await self._is_followed(None):
                    continue
                raise NoLeaderError("nobody leads this cluster just now")
            import httpx  # Where nobody leads, nobody is asked.

            try:
                answer = await self._request(method, path, leader, body)
            except httpx.ConnectError as refused:
                _refuse_bad_tls(leader, refused)
                if not await self._is_followed(leader):
                    raise NoLeaderError("the last leader is gone, and nobody follows") from refused
                error = refused
            except httpx.HTTPError as failed:
                error = failed
            else:
                if answer.status_code != 503:
                    return _judged(answer)
                error = None
            await asyncio.sleep(PAUSE_S)
        if error is None:
            raise NoLeaderError("nobody leads this cluster just now: an election goes on")
        raise UnreachableError(f"the leader does not answer: {str(error) or 'timeout'}")

    async def _request(
        self, method: str, path: str, leader: LeaderRecord, body: Json | None
    ) -> httpx.Response:
        """Ask this leader; whoever else listens at its address is as good as nobody."""
        import httpx

        if leader.holder == WHOEVER:
            return await self._http.request(method, leader.rest + path, json=body)
        meant = {own_headers.MEANT_FOR: leader.holder}
        answer = await self._http.request(method, leader.rest + path, json=body, headers=meant)
        if answer.headers.get(own_headers.GIVEN_BY) != leader.holder:
            raise httpx.ConnectError(f"somebody else listens at {leader.rest}")
        return answer

    async def _leader(self) -> LeaderRecord | None:
        try:
            return await serving_leader(self._services.register)
        except (OSError, TimeoutError, DataError) as error:
            why = str(error) or "the register does not answer"
            raise NoLeaderError(f"nobody can tell who leads: {why}") from error

    async def _is_followed(self, leader: LeaderRecord | None) -> bool:
        """Wait a moment; say whether somebody leads after this one, or it has renewed its lease.

        A line of contenders says at once that nobody will; who has left no record, and has no
        line, may have ended for good.
        """
        was = leader and (leader.term, leader.renewals)
        for _ in range(round(QUICK_S / PAUSE_S)):
            line = await self._line()
            if not (leader if line is None else line):
                return False
            await asyncio.sleep(PAUSE_S)
            now = await self._leader()
            if now is not None and (now.term, now.renewals) != was:
                return True
        return False

    async def _line(self) -> list[str] | None:
        try:
            return await self._services.line()
        except (OSError, TimeoutError):
            return None

    async def _has_ended(self) -> bool:
        """Say whether no run is unfinished, so that nobody need lead any more."""
        try:
            registry = await self._directory.registry()
        except (OSError, TimeoutError, DataError):
            return False
        return registry is None or not registry.applications

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
        listed += [ended.buried_overview(stone) for stone in registry.tombstones.values()]
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
        return views.application_detail(await self._directory.with_cause(found))

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

    async def stored_jobs(self) -> list[Json]:
        """Return the jobs that storage knows and that can be read, as they stand in lists."""
        registry = await self._directory.registry()
        facts = await self._directory.stored(registry) if registry else []
        found = [views.job_details(one, job_id) for one in facts for job_id in one.entries]
        for stone in registry.tombstones.values() if registry else ():
            with contextlib.suppress(DataError, NotFoundError):
                records = (await self._directory.buried(stone)).jobs
                found += [ended.recorded_job(record, stone) for record in records]
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
