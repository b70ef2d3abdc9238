"""How much one endpoint holds of its clients, so that leading never waits for REST.

A body is read up to a limit and no further, whatever was announced. Few requests are answered at a
time, and in one turn of the event loop one begins at most: leases are renewed in between. Answers
go out in pieces, as they are read; what all clients have left unread together is bounded.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from understudy.api import answers, own_headers

BODY_BYTES_MAX = 65_536
"""The largest request names a directory and an id."""

BODY_S = 10.0
"""How long a body may be on its way."""

REQUESTS_MAX = 16
"""Answered at a time: half of the threads that wait for storage stay the process's own."""

UNREAD_BYTES_MAX = 64 << 20
"""What clients may leave unread: some logs, and lists of thousands of jobs."""

PIECE_BYTES = 65_536
"""What is handed to a connection at a time."""

NEVER_WAIT = ("/ha/status", "/v1/ha/status", "/metrics")
"""Answered from memory: however many others wait for storage."""

_BUSY = f"{REQUESTS_MAX} requests are being answered already. Please try again."
_UNREAD = "Other clients have not read their answers yet. Please try again."
_SLOW = f"The body did not arrive within {BODY_S:g} s."
_LARGE = f"The body is too large: at most {BODY_BYTES_MAX:,} bytes are read."


class GoneError(Exception):
    """The client has gone before its request was whole."""


@dataclass(frozen=True)
class Answer:
    """What an application has said, whole."""

    start: Message
    body: bytes


class Bounds:
    """Stands before an application whose answers are made of one piece."""

    def __init__(self, app: ASGIApp, given_by: str = "") -> None:
        """``given_by`` says who answers, so that clients know a refusal is not a stranger's."""
        self._app = app
        self._given_by = given_by
        self._answering = 0
        self._unread = 0
        self._turn = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            answer = await self._answered(scope, receive)
        except GoneError:
            return
        if isinstance(answer, Answer) and self._unread + len(answer.body) > UNREAD_BYTES_MAX:
            # One alone is let through, however large it is.
            answer = answers.unavailable(_UNREAD) if self._unread else answer
        if isinstance(answer, Response):
            if self._given_by:
                answer.headers[own_headers.GIVEN_BY] = self._given_by
            await answer(scope, receive, send)
            return
        await self._deliver(answer, send)

    async def _answered(self, scope: Scope, receive: Receive) -> Answer | Response:
        """Return the application's answer, or a refusal."""
        try:
            async with asyncio.timeout(BODY_S):
                body = await _read(scope, receive)
        except TimeoutError:
            return answers.error(408, _SLOW)
        if body is None:
            return answers.error(413, _LARGE)
        waits = scope["path"] not in NEVER_WAIT
        if waits and self._answering >= REQUESTS_MAX:
            return answers.unavailable(_BUSY)
        self._answering += waits
        try:
            async with self._turn:
                await asyncio.sleep(0)
            return await _asked(self._app, scope, body, receive)
        finally:
            self._answering -= waits

    async def _deliver(self, answer: Answer, send: Send) -> None:
        """Send an answer as it is read; `send` waits for a client that is behind."""
        self._unread += len(answer.body)
        try:
            await send(answer.start)
            view = memoryview(answer.body)
            for begin in range(0, max(1, len(view)), PIECE_BYTES):
                piece = bytes(view[begin : begin + PIECE_BYTES])
                more = begin + PIECE_BYTES < len(view)
                await send({"type": "http.response.body", "body": piece, "more_body": more})
        finally:
            self._unread -= len(answer.body)


async def _read(scope: Scope, receive: Receive) -> bytes | None:
    """Return the whole body, None once it is too large. Raises `GoneError`."""
    for name, text in scope["headers"]:
        if name == b"content-length" and text.isdigit() and int(text) > BODY_BYTES_MAX:
            return None
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise GoneError
        body += message.get("body", b"")
        if len(body) > BODY_BYTES_MAX:
            return None
        if not message.get("more_body", False):
            return bytes(body)


async def _asked(app: ASGIApp, scope: Scope, body: bytes, receive: Receive) -> Answer:
    """Return what an application answers."""
    start: Message = {}
    said = bytearray()
    given = False

    async def replayed() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def heard(message: Message) -> None:
        nonlocal start
        if message["type"] == "http.response.start":
            start = message
        else:
            said.extend(message.get("body", b""))

    await app(scope, replayed, heard)
    return Answer(start, bytes(said))
