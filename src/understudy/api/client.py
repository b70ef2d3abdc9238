"""The client of a cluster: finds the leader, follows its changes, and reads storage without one.

Answers from storage are the same JSON as the leader's, without the facts that only a leader has.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from understudy.api import checkpoints, directory, ended, own_headers, views
from understudy.api.authentication import OPEN, RestSecurity
from understudy.api.directory import Directory
from understudy.api.views import ApplicationFacts, Json
from understudy.clock import SystemClock
from understudy.config import options
from understudy.errors import (
    AlreadyEndedError,
    CorruptDataError,
    DataError,
    DifferentRequestError,
    NoLeaderError,
    NotFoundError,
    StorageError,
    UnderstudyError,
    UnreachableError,
    UsageError,
)
from understudy.ha import permits
from understudy.ha.layout import cluster_directory, standalone_directory
from understudy.ha.retrieval import WHOEVER, ConfiguredLeader, serving_leader
from understudy.ha.services import HighAvailabilityServices
from understudy.model import Failure, JobId, LeaderRecord, Tombstone

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

TRIES_MAX = 50
PAUSE_S = 0.2
"""Pause between fifty tries: ten seconds, much longer than an election on one host."""

UPLOADED_S = 1_800.0
"""Longest time for an upload to be answered: it is received, checked and stored before."""

Content = Json | Path | None
"""What a request carries: JSON, a file, or nothing."""

View = Callable[[ApplicationFacts], Json]

QUICK_S = 2.0
"""Longest time for a leader of this host to accept a connection, and for the next one to lead."""


async def _nobody_lives() -> bool:
    return False


class ClusterClient:
    """A command's access to one cluster."""

    def __init__(
        self,
        services: HighAvailabilityServices,
        timeout_s: float,
        security: RestSecurity = OPEN,
        *,
        await_leader_s: float = 0.0,
        notify: Callable[[str], None] = lambda _: None,
        lives: Callable[[], Awaitable[bool]] = _nobody_lives,
    ) -> None:
        """``notify`` is called once, when a request that needs a leader begins to wait for one.

        ``lives`` returns whether a process of the cluster is alive on this host.
        """
        self._services = services
        self._await_leader_s = await_leader_s
        self._notify = notify
        self._lives = lives
        self._notified = False
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
        """Return the leader's answer; raises `NoLeaderError` without a leader.

        ``awaits_leader``: wait for the next leader, for what storage cannot answer.
        """
        return await (self._ask_the_next if awaits_leader else self._ask)("GET", path)

    async def post(self, path: str, body: Json | None = None) -> Json:
        """Ask the leader, or the next one, for an action that may be requested twice."""
        return await self._ask_the_next("POST", path, body)

    async def patch(self, path: str) -> Json:
        """Ask the leader, or the next one, for a change that may be requested twice."""
        return await self._ask_the_next("PATCH", path)

    async def delete(self, path: str) -> Json:
        """Ask the leader, or the next one, to remove something; gone is fine for who asks twice."""
        return await self._ask_the_next("DELETE", path, always=True)

    async def upload(self, file: Path) -> Json:
        """Upload an artifact to the leader, or the next one; return what it has become.

        A repeated upload is the same artifact, so no failover during an upload does harm.
        """
        return await self._ask_the_next("POST", "/artifacts/upload", file, always=True)

    async def run_application(self, artifact_id: str, body: Json) -> str:
        """Submit an application; return its id. Its request names the application or the run.

        A repeated request is the same application, so no failover meanwhile does harm. Raises
        `UsageError` for a request that may not be repeated, `DifferentRequestError`, and
        `AlreadyEndedError`.
        """
        if not body.get("applicationId") and not body.get("runId"):
            raise UsageError("name the application (applicationId) or the run (runId)")
        path = f"/artifacts/{artifact_id}/run-application"
        answer = await self._ask_the_next("POST", path, body, always=True)
        return str(answer["applicationid"])

    @contextlib.asynccontextmanager
    async def permit(self, trigger: str, directory: str) -> AsyncIterator[None]:
        """Let a request name a directory that is not configured: see `understudy.ha.permits`.

        Who cannot write to the storage is no user who runs the cluster; the leader says so then.
        """
        services = self._services
        storage, cluster = services.storage, services.locations.cluster
        if isinstance(services.backend, ConfiguredLeader):
            found = await self.get("/ha/status", awaits_leader=True)
            cluster = standalone_directory(cluster_directory(found["cluster_id"]))
        with contextlib.suppress(OSError, StorageError):
            await permits.grant(storage, cluster, trigger, directory)
        try:
            yield
        finally:
            with contextlib.suppress(OSError, StorageError):
                await permits.withdraw(storage, cluster, trigger)

    async def _ask_the_next(
        self, method: str, path: str, body: Content = None, *, always: bool = False
    ) -> Json:
        """Ask the leader, or the next one; see `_with_the_next`."""
        return await self._with_the_next(lambda: self._ask(method, path, body), always=always)

    async def _with_the_next(self, ask: Callable[[], Awaitable[T]], *, always: bool = False) -> T:
        """Ask the leader; without one, wait for the next leader as long as a run is unfinished.

        ``always``: wait for it although no run is unfinished.
        """
        limit = f"{options.AWAIT_LEADER.key} ({self._await_leader_s:g} s)"
        loop = asyncio.get_running_loop()
        until: float | None = None
        while True:
            try:
                return await ask()
            except NoLeaderError as error:
                until = loop.time() + self._await_leader_s if until is None else until
                if loop.time() >= until:
                    raise NoLeaderError(f"{error}, within {limit}") from error
                if not always and await self._has_ended():
                    raise
                if not self._notified:
                    self._notified = True
                    self._notify(f"{error}: waiting for a leader, up to {limit}")
            await asyncio.sleep(PAUSE_S)

    async def _ask(self, method: str, path: str, body: Content = None) -> Json:
        """Return the body of the leader's answer; raise the error of another one."""
        return _judged(await self._answer(method, path, body))

    async def log(self, application: str, offset: int) -> tuple[bytes, int]:
        """Return a piece of an application's log, and the offset of the next piece."""
        path = f"/applications/{application}/log?offset={offset}"
        answer = await self._with_the_next(lambda: self._answer("GET", path))
        if not answer.is_success:
            _judged(answer)
        return answer.content, int(answer.headers.get(own_headers.NEXT_OFFSET, 0))

    async def _answer(self, method: str, path: str, body: Content = None) -> httpx.Response:
        """Ask the leader; repeat while the leader changes and a next one may come."""
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
                    return answer
                error = None
            await asyncio.sleep(PAUSE_S)
        if error is None:
            raise NoLeaderError("nobody leads this cluster now: an election is under way")
        raise UnreachableError(f"the leader does not answer: {str(error) or 'timeout'}")

    async def _request(
        self, method: str, path: str, leader: LeaderRecord, body: Content
    ) -> httpx.Response:
        """Ask this leader; an answer of another process at its address does not count."""
        import httpx

        is_anyone = leader.holder == WHOEVER
        meant = {} if is_anyone else {own_headers.MEANT_FOR: leader.holder}
        with contextlib.ExitStack() as stack:
            sent: dict[str, Any] = {"json": body}
            if isinstance(body, Path):
                form = {"file": (body.name, stack.enter_context(body.open("rb")))}
                sent = {"files": form, "timeout": httpx.Timeout(UPLOADED_S, connect=QUICK_S)}
            answer = await self._http.request(method, leader.rest + path, headers=meant, **sent)
        if is_anyone:
            return answer
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
        """Return whether, within `QUICK_S`, another leader leads or this one renews its lease.

        An empty line of contenders shows at once that no leader follows. Without a line and without
        a leader's record, the cluster may have ended for good.
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

    async def is_alive(self) -> bool:
        """Return whether a JobManager is known that may lead, though nobody does just now."""
        return await self._lives() or bool(await self._line())

    async def _has_ended(self) -> bool:
        """Return whether all runs are finished, so that no leader is needed."""
        try:
            registry = await self._directory.registry()
        except (OSError, TimeoutError, DataError):
            return False
        return registry is None or not registry.applications

    # --- without a leader -------------------------------------------------------------------------

    async def stored_overview(self) -> Json:
        """Return the applications in storage, and the problems that a person must solve."""
        problems = await self._directory.problems()
        answer: Json = {"leader": None, "attention": views.attention(problems)}
        registry = None
        with contextlib.suppress(DataError):
            registry = await self._directory.registry()
        if registry is None:
            return {"applications": [], **answer}
        facts = await self._directory.stored(registry)
        show = await self._shown()
        listed = [show(one, views.application_overview) for one in facts]
        listed += directory.unreadable(registry, facts, problems)
        listed += [ended.buried_overview(stone) for stone in registry.tombstones.values()]
        return {"applications": listed, **answer}

    async def stored_application(self, wanted: str) -> Json:
        """Return one application from storage; raises `NotFoundError` or `DataError`."""
        problems = await self._directory.problems()
        if damage := problems.get("registry"):
            raise CorruptDataError(damage)
        registry = await self._directory.registry()
        if registry is None:
            raise NotFoundError(f"there is no application {wanted!r} here")
        facts = await self._directory.stored(registry)
        try:
            found = directory.find_application(wanted, facts, registry.tombstones.values())
        except NotFoundError:
            unreadable = directory.unreadable(registry, facts, problems)
            if one := directory.find_unreadable(wanted, unreadable):
                return one
            raise
        if isinstance(found, Tombstone):
            return await self._directory.buried_detail(found)
        show = await self._shown()
        return show(await self._directory.with_cause(found), views.application_detail)

    async def _shown(self) -> Callable[[ApplicationFacts, View], Json]:
        """Return how to show an application: INTERRUPTED if it is unfinished and nobody lives."""
        if await self.is_alive():
            return lambda facts, view: view(facts)

        def show(facts: ApplicationFacts, view: View) -> Json:
            if facts.body.result:
                return view(facts)
            return {**view(views.interrupted(facts)), "status": views.INTERRUPTED}

        return show

    async def attention(self) -> list[Json]:
        """Return the problems that a person must solve, from the leader or from the data."""
        try:
            found: list[Json] = (await self.get("/ha/status"))["attention"]
        except NoLeaderError:
            return views.attention(await self._directory.problems())
        return found

    async def stored_results(self, wanted: str) -> list[Json]:
        """Return the results of an application's jobs (or of one job) that storage has."""
        facts, stones = await self._directory.contents()
        found: list[Json] = []
        for one in facts:
            whole = one.body.application_id.startswith(wanted) or one.body.run_id == wanted
            for job_id in one.entries:
                if whole or job_id.startswith(wanted):
                    outcome, missing = await self._directory.outcome(one, job_id)
                    found.append(views.execution_result(one, job_id, outcome, missing))
        for stone in stones:
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

    async def failures(self, job_id: str) -> list[Json]:
        """Return why attempts of a job failed, the latest first, from the leader or storage."""
        try:
            answer = await self.get(f"/jobs/{job_id}/exceptions")
        except NoLeaderError:
            answer = views.of_job(await self._stored_failures(job_id), views.MAXIMUM_DEFAULT)
        found: list[Json] = answer["exceptionHistory"]["entries"]
        return found

    async def _stored_failures(self, job_id: str) -> list[Failure]:
        registry = await self._directory.registry()
        for facts in await self._directory.stored(registry) if registry else []:
            if JobId(job_id) in facts.entries:
                return await self._directory.failures(facts, JobId(job_id))
        for stone in registry.tombstones.values() if registry else ():
            with contextlib.suppress(DataError, NotFoundError):
                for record in (await self._directory.buried(stone)).jobs:
                    if record.job_id == job_id:
                        return views.of_record(record)
        return []

    async def stored_jobs(self) -> list[Json]:
        """Return the readable jobs in storage, in the shape of lists."""
        facts, stones = await self._directory.contents()
        found = [views.job_details(one, job_id) for one in facts for job_id in one.entries]
        async for stone, file in self._directory.files(stones):
            found += [ended.recorded_job(record, stone) for record in file.jobs]
        return found

    async def stored_checkpoints(self, wanted: str) -> Json:
        """Return a job's checkpoints from storage; raises `NotFoundError`."""
        facts, stones = await self._directory.contents()
        if found := directory.find_job(wanted, facts):
            return checkpoints.statistics(await self._directory.checkpoints(*found))
        async for _, file in self._directory.files(stones):
            for record in file.jobs:
                if record.job_id.startswith(wanted):
                    return checkpoints.statistics(checkpoints.ended(record.job_id, record))
        raise NotFoundError(f"there is no job {wanted!r} here")


def _refuse_bad_tls(leader: LeaderRecord, error: BaseException) -> None:
    """Raise `UnderstudyError` for a TLS failure, since waiting does not help."""
    cause: BaseException | None = error
    while cause and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if cause:
        raise UnderstudyError(
            f"{leader.rest}: {cause}: security.ssl.rest.* must be the same there and here, and the "
            "certificate must name that host"
        ) from error


def _judged(answer: httpx.Response) -> Json:
    """Return the body of a successful answer; raise the error of another one."""
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
            f"the secret of this cluster, or {options.BEARER_FILE.key} (--token-file) one with a "
            "token"
        )
    code = body.get("code")
    if code == AlreadyEndedError.code:
        raise AlreadyEndedError(message, body["applicationid"], body["status"])
    if code == DifferentRequestError.code:
        raise DifferentRequestError(message)
    raise UnderstudyError(message)
