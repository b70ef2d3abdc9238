"""Forwards a standby's requests to the leader.

The bytes in a standby are bounded: a request was read up to its limit before it comes here, or is
an upload, which is passed on as it arrives. All answers together have at most `HELD_BYTES_MAX`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import httpx
from starlette.requests import ClientDisconnect, Request

from understudy.api.bounds import UPLOAD_S
from understudy.ha.storage import LARGE_S

FORWARD_S = 10.0
"""How long a standby waits for the leader's answer."""

UPLOADED_S = UPLOAD_S + LARGE_S
"""How long a standby waits for an upload to arrive here and to be durable there."""

HELD_BYTES_MAX = 64 << 20
"""Most bytes of answers in a standby: lists of thousands of jobs, and pieces of logs."""


@dataclass(frozen=True)
class Forwarded:
    """The leader's answer."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes


class Forwarder:
    """Keeps connections to the leader."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        """``client`` must have the timeout `FORWARD_S`."""
        self._client = client
        self._held = 0

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def ask(
        self, request: Request, leader: str, headers: Mapping[str, str], *, is_upload: bool = False
    ) -> Forwarded | None:
        """Return the leader's answer to a request, None without one."""
        passed_on = ("content-type", "content-length") if is_upload else ("content-type",)
        limit_s = UPLOADED_S if is_upload else FORWARD_S
        asked = self._client.stream(
            request.method,
            leader + _target(request),
            content=request.stream() if is_upload else await request.body(),
            headers={
                **headers,
                **{name: request.headers[name] for name in passed_on if name in request.headers},
            },
            timeout=httpx.Timeout(FORWARD_S, read=limit_s, write=limit_s),
        )
        try:
            async with asyncio.timeout(limit_s), asked as answer:
                content = await self._whole(answer)
        except (httpx.HTTPError, TimeoutError, ClientDisconnect):
            return None
        if content is None:
            return None
        return Forwarded(answer.status_code, answer.headers, content)

    async def _whole(self, answer: httpx.Response) -> bytes | None:
        """Return the body of an answer, None if it is too large to hold."""
        content = bytearray()
        try:
            async for piece in answer.aiter_bytes():
                self._held += len(piece)
                content += piece
                if self._held > HELD_BYTES_MAX:
                    return None
            return bytes(content)
        finally:
            self._held -= len(content)


def _target(request: Request) -> str:
    """Return the path and the query as they were asked for: decoded, they may name another one."""
    query = request.scope["query_string"].decode("latin-1")
    path = request.scope["raw_path"].decode("latin-1")
    return f"{path}?{query}" if query else path
