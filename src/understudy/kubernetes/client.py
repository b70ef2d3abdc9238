"""A small client of the Kubernetes API: one object, a list, or a watch at a time.

Promises: a write is sent once, unless the server has said that it did nothing (429); a request
ends within its lane's limit; ``Retry-After`` is obeyed. Answers other than success raise
`ApiRefusal`; an unknown outcome raises ``OSError`` or ``TimeoutError``. Renewals have a connection
of their own, so nothing queues before them.

A client belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import enum
import errno
import json
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx

from understudy.clock import SystemClock
from understudy.errors import ConfigurationError
from understudy.kubernetes import pauses
from understudy.kubernetes.access import TOKEN_AGE_S, Access
from understudy.kubernetes.kinds import Resource
from understudy.kubernetes.refusals import (
    ApiRefusal,
    Contested,
    NotThere,
    Outdated,
    Throttled,
    judged,
)
from understudy.version import VERSION

Json = dict[str, Any]

CONNECT_S = 3.0
"""A server on the same network accepts in milliseconds; a lost one costs no more than this."""

CONNECTIONS_MAX = 8
"""Requests of one process at the same time; more queue."""

READS_MAX = 4
"""How often a read is sent whose answer is lost, or an error of the server's."""

QUIET_MAX_S = 60.0
"""Longest time for which a server may ask for silence."""

TOKEN_READ_S = 1.0
"""A file that takes longer is not waited for: the token that was read last is used."""

PAGE_OBJECTS = 100
"""Objects in one answer to a list: 100 MB at most."""

PAGES_MAX = 10_000

SILENCE_S = 70.0
"""The server sends a bookmark each minute: a watch that is silent for longer is dead."""

_METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"


class Lane(enum.Enum):
    """Which connection a request takes."""

    COMMON = "common"
    RENEWAL = "renewal"
    """Requests for the leader's record: nothing else queues before them."""
    WATCH = "watch"


@dataclass(frozen=True)
class RequestLimits:
    """How long a request may take, in seconds, with all its tries."""

    common_s: float = 5.0
    renewal_s: float = 5.0
    """Shorter than the renew deadline."""
    leader_silence_s: float = SILENCE_S
    """The leader's record changes with each renewal: a watch of it that is silent for the duration
    of a lease is dead, or nobody leads."""


@dataclass
class Traffic:
    """What a client has met, for people and metrics."""

    answered_at: float | None = None
    """When a request was sent that the server has answered, by `SystemClock`."""
    requests: int = 0
    retries: int = 0
    throttled: int = 0
    failures: int = 0
    problem: str = ""
    """The last failure, empty after a success."""


@dataclass(frozen=True)
class ApiRequest:
    """One request; ``verb`` is that of a Role."""

    verb: str
    kind: Resource
    name: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    body: Json | None = None
    metadata_only: bool = False
    """The answer needs no data: the server leaves it out."""

    @property
    def method(self) -> str:
        """Return the method of HTTP."""
        return {"create": "POST", "patch": "PATCH", "delete": "DELETE"}.get(self.verb, "GET")

    @property
    def accept(self) -> str:
        """Return the kinds of answer that are welcome; the second where the first is unknown."""
        if not self.metadata_only:
            return "application/json"
        return f"{_METADATA.format('List' if self.verb == 'list' else '')}, application/json"

    @property
    def content_type(self) -> str:
        """Return the type of the body."""
        return "application/merge-patch+json" if self.verb == "patch" else "application/json"


class Client:
    """The API server, for one namespace and one event loop."""

    def __init__(self, access: Access, limits: RequestLimits, counts: Traffic) -> None:
        self.access = access
        self.counts = counts
        self._limits = limits
        self._clock = SystemClock()
        self._token = _Token(access)
        self._quiet_until = dict.fromkeys(Lane, 0.0)
        """The server has asked for no request in a lane before this time of the loop."""
        name = access.server_name
        self._extensions = {"sni_hostname": name} if name else {}
        tls = access.tls()
        self._lanes = {
            lane: self._opened(tls, None if lane is Lane.WATCH else CONNECTIONS_MAX)
            for lane in Lane
        }

    def _opened(self, tls: Any, connections: int | None) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=connections, keepalive_expiry=60.0)
        return httpx.AsyncClient(
            base_url=self.access.server,
            verify=tls,
            trust_env=False,
            limits=limits,
            timeout=httpx.Timeout(None, connect=CONNECT_S),
            headers={"user-agent": f"understudy/{VERSION}"},
        )

    @property
    def token(self) -> str:
        """Return the token that was read last."""
        return self._token.text

    async def get(self, kind: Resource, name: str, lane: Lane = Lane.COMMON) -> Json | None:
        """Return an object as it is now; None if it does not exist."""
        return await self.send(ApiRequest("get", kind, name), lane)

    async def send(self, request: ApiRequest, lane: Lane = Lane.COMMON) -> Json | None:
        """Send a request; return the answer, or None where a read finds nothing."""
        limit_s = self._limits.renewal_s if lane is Lane.RENEWAL else self._limits.common_s
        sent_at = self._clock.now()
        try:
            async with asyncio.timeout(limit_s):
                answer = await self._tried(request, lane)
        except TimeoutError:
            quiet_s = self._quiet_until[lane] - _now()
            self._failed(
                f"the API server {self.access.server} asks for no request for {quiet_s:.0f} s more"
                if quiet_s > 0
                else f"the API server {self.access.server} is silent for {limit_s:g} s"
            )
            raise TimeoutError(errno.ETIMEDOUT, self.counts.problem) from None
        except OSError as error:
            if not isinstance(error, (NotThere, Contested, Outdated)):
                self._failed(str(error))
            raise
        self.counts.answered_at, self.counts.problem = sent_at, ""
        return answer

    async def list(
        self, kind: Resource, query: Mapping[str, str], *, metadata_only: bool = False
    ) -> tuple[list[Json], str]:
        """Return the objects and the version of the list, read in pages of one snapshot."""
        found: list[Json] = []
        page = {**query, "limit": str(PAGE_OBJECTS)}
        for _ in range(PAGES_MAX):
            request = ApiRequest("list", kind, query=page, metadata_only=metadata_only)
            try:
                answer = await self.send(request)
            except Outdated:
                # The snapshot is too old for the next page: begin again.
                found, page = [], {**query, "limit": str(PAGE_OBJECTS)}
                continue
            assert answer is not None
            found += answer.get("items") or ()
            metadata = answer.get("metadata") or {}
            if not metadata.get("continue"):
                return found, str(metadata.get("resourceVersion", ""))
            page = {**page, "continue": metadata["continue"]}
        raise OSError(errno.EBUSY, f"a list of {kind.plural} has more than {PAGES_MAX} pages")

    async def watch(
        self,
        kind: Resource,
        query: Mapping[str, str],
        version: str,
        silence_s: float = SILENCE_S,
        *,
        metadata_only: bool = True,
    ) -> AsyncGenerator[tuple[str, Json], None]:
        """Yield type and object of each change after a version, until the server ends the watch.

        Raises `Outdated` if the version is too old, ``TimeoutError`` if the watch is silent for
        ``silence_s``.
        """
        asked = {
            **query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
        }
        request = ApiRequest("watch", kind, query=asked, metadata_only=metadata_only)
        timeout = httpx.Timeout(CONNECT_S, read=silence_s)
        await self._calm(Lane.WATCH)
        await self._token.refresh()
        try:
            async with self._lanes[Lane.WATCH].stream(
                "GET",
                self._path(request),
                params=asked,
                headers={**self._headers(), "accept": request.accept},
                timeout=timeout,
                extensions=self._extensions,
            ) as response:
                if response.status_code != 200:
                    self._heed(response, Lane.WATCH)
                    raise self._judged(request, response.status_code, await response.aread())
                async for line in response.aiter_lines():
                    if line:
                        yield self._event(request, line)
        except httpx.TimeoutException as error:
            raise TimeoutError(errno.ETIMEDOUT, f"the watch of {kind.plural} is silent") from error
        except httpx.HTTPError as error:
            raise self._lost(error) from error

    def _event(self, request: ApiRequest, line: str) -> tuple[str, Json]:
        try:
            event = json.loads(line)
            kind, found = event["type"], event["object"]
        except (ValueError, TypeError, KeyError) as error:
            raise OSError(f"the watch of {request.kind.plural} sends no event: {error}") from error
        if kind == "ERROR":
            raise self._judged(request, int(found.get("code") or 500), json.dumps(found).encode())
        return kind, found

    async def _tried(self, request: ApiRequest, lane: Lane) -> Json | None:
        reads, renewed, throttled = 1, False, 0
        while True:
            await self._calm(lane)
            try:
                answer = await self._sent(request, lane)
            except Throttled:
                # Nothing was done, and the server has said when to come back.
                throttled += 1
                self.counts.throttled += 1
                self._quiet(lane, pauses.pause_s(pauses.REQUEST, throttled))
                continue
            except ApiRefusal as error:
                if error.status == 401 and not renewed:
                    renewed = True
                    await self._token.renew()
                    continue
                if request.verb == "get" and isinstance(error, NotThere):
                    return None
                if error.status < 500 or request.method != "GET" or reads == READS_MAX:
                    raise
            except OSError:
                if request.method != "GET" or reads == READS_MAX:
                    raise
            else:
                return answer
            self.counts.retries += 1
            await asyncio.sleep(pauses.pause_s(pauses.REQUEST, reads))
            reads += 1

    async def _sent(self, request: ApiRequest, lane: Lane) -> Json:
        self.counts.requests += 1
        await self._token.refresh()
        headers = {**self._headers(), "accept": request.accept}
        content = None
        if request.body is not None:
            headers["content-type"] = request.content_type
            content = json.dumps(request.body).encode()
        try:
            response = await self._lanes[lane].request(
                request.method,
                self._path(request),
                params=dict(request.query),
                content=content,
                headers=headers,
                extensions=self._extensions,
            )
        except httpx.HTTPError as error:
            raise self._lost(error) from error
        self._heed(response, lane)
        if response.status_code not in {200, 201, 202}:
            raise self._judged(request, response.status_code, response.content)
        return self._understood(request, response)

    def _understood(self, request: ApiRequest, response: httpx.Response) -> Json:
        try:
            answer = json.loads(response.content)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or "kind" not in answer:
            # A proxy's page, with a status of success: whether the server saw us is unknown.
            raise self._judged(request, 502, response.content)
        return answer

    def _path(self, request: ApiRequest) -> str:
        return request.kind.path(self.access.namespace, request.name)

    def _headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._token.text}"} if self._token.text else {}

    def _judged(self, request: ApiRequest, status: int, body: bytes) -> ApiRefusal:
        asked = (request.verb, request.kind, request.name)
        return judged(asked, self.access.namespace, status, body)

    def _lost(self, error: httpx.HTTPError) -> OSError:
        why = str(error) or type(error).__name__
        return OSError(errno.EIO, f"the API server {self.access.server} cannot be asked: {why}")

    def _failed(self, problem: str) -> None:
        self.counts.failures += 1
        self.counts.problem = problem

    def _heed(self, response: httpx.Response, lane: Lane) -> None:
        if retry_after := response.headers.get("retry-after", ""):
            self._quiet(lane, _seconds(retry_after))

    def _quiet(self, lane: Lane, seconds: float) -> None:
        """Note what the server asks for; it counts leases and other objects apart."""
        self._quiet_until[lane] = max(self._quiet_until[lane], _now() + seconds)

    async def _calm(self, lane: Lane) -> None:
        """Wait as long as the server has asked."""
        await asyncio.sleep(self._quiet_until[lane] - _now())


class _Token:
    """Our token, read again by age and after a refusal."""

    def __init__(self, access: Access) -> None:
        self._read = access.read_token
        self._read_at = float("-inf")
        self._thread = ThreadPoolExecutor(1, "token")
        """Not one of the loop's threads: storage that hangs occupies these."""
        self.text = ""

    async def refresh(self) -> None:
        """Read the token again if it is old; raises ``OSError`` only if none was ever read."""
        if self._read is None or _now() - self._read_at < TOKEN_AGE_S:
            return
        try:
            await self.renew()
        except OSError:
            if not self.text:
                raise

    async def renew(self) -> None:
        """Read the token again; raises ``OSError`` if it cannot be read."""
        if self._read is None:
            return
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(TOKEN_READ_S):
                text = await loop.run_in_executor(self._thread, self._read)
        except (ConfigurationError, UnicodeDecodeError) as error:
            # Somebody may be writing the file: it is read again with the next request.
            raise OSError(errno.EIO, str(error)) from error
        except TimeoutError:
            # No ``TimeoutError``: the API server is not the one that is silent.
            raise OSError(errno.EIO, "the token cannot be read: its file hangs") from None
        if not text:
            # Without a token the server would answer as to anybody, and refuse each request.
            raise OSError(errno.ENODATA, "the token is empty")
        self.text, self._read_at = text, _now()


def _now() -> float:
    return asyncio.get_running_loop().time()


def _seconds(text: str) -> float:
    """Return what ``Retry-After`` asks for; Kubernetes sends whole seconds."""
    return min(QUIET_MAX_S, float(text)) if text.isdecimal() else pauses.REQUEST.first_s
