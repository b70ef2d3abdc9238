"""Bounds on what one endpoint holds for its clients, so that leading never waits for REST.

A body is read up to a limit, whatever length was announced; an upload is passed on as it arrives.
Few requests are answered at a time, and at most one begins in each turn of the event loop, so that
leases are renewed in between.
Answers are sent in pieces, as clients read; the unread bytes of all clients together are bounded.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from understudy.api import answers, own_headers, probes

BODY_BYTES_MAX = 65_536
"""The largest request names a directory and an id."""

BODY_S = 10.0
"""Longest time for a body to arrive."""

REQUESTS_MAX = 16
"""Requests answered at a time: half of the threads that wait for storage stay for the process."""

WAITING_MAX = 200
"""Requests that wait for their turn, each with a body of at most `BODY_BYTES_MAX`."""

WAIT_S = 5.0
"""Longest wait for a turn: shorter than a standby waits for the leader's answer."""

UNREAD_BYTES_MAX = 64 << 20
"""Most bytes that clients may leave unread: some logs, and lists of thousands of jobs."""

PIECE_BYTES = 65_536
"""Bytes written to a connection at a time."""

NEVER_WAIT = ("/ha/status", "/v1/ha/status", "/metrics", *probes.PATHS)
"""Paths that are answered from memory, even while other requests wait for storage."""

UPLOADS_MAX = 4
"""Uploads at a time: each has a file open, and keeps a thread busy now and then."""

UPLOAD_S = 900.0
"""Longest time for an upload to arrive."""

PIECE_S = 20.0
"""Longest time for the next piece of an upload."""

FORM_BYTES = 65_536
"""What a form may have around its file."""

_BUSY = f"{REQUESTS_MAX} requests are being answered, and others wait. Please try again."
_UNREAD = "Other clients have not read their answers yet. Please try again."
_SLOW = f"The body did not arrive within {BODY_S:g} s."
_LARGE = "The body is too large: at most {:,} bytes are read."
_UPLOADS = f"{UPLOADS_MAX} uploads are arriving already. Please try again."
_STALLED = f"The upload did not arrive: {PIECE_S:g} s without a piece, or {UPLOAD_S:g} s in all."


class GoneError(Exception):
    """The client left before its request was complete."""


@dataclass(frozen=True)
class BufferedResponse:
    """An application's complete answer."""

    start: Message
    body: bytes


class Bounds:
    """ASGI wrapper that applies the bounds; the application must answer in one piece."""

    def __init__(
        self,
        app: ASGIApp,
        given_by: str = "",
        uploads: frozenset[str] = frozenset(),
        size_max: int = 0,
    ) -> None:
        """``given_by`` names this process, so that clients know that a refusal is ours.

        ``uploads``: paths to which a file of up to ``size_max`` bytes may be posted.
        """
        self._app = app
        self._given_by = given_by
        self._uploads = uploads
        self._upload_bytes_max = size_max + FORM_BYTES
        self._uploading = 0
        self._answering = asyncio.Semaphore(REQUESTS_MAX)
        self._waiting = 0
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
        if (
            isinstance(answer, BufferedResponse)
            and self._unread + len(answer.body) > UNREAD_BYTES_MAX
        ):
            # A single answer is sent, whatever its size.
            answer = answers.unavailable(_UNREAD) if self._unread else answer
        if isinstance(answer, Response):
            if self._given_by:
                answer.headers[own_headers.GIVEN_BY] = self._given_by
            await answer(scope, receive, send)
            return
        await self._deliver(answer, send)

    async def _answered(self, scope: Scope, receive: Receive) -> BufferedResponse | Response:
        """Return the application's answer, or a refusal."""
        if scope["method"] == "POST" and scope["path"] in self._uploads:
            return await self._uploaded(scope, receive)
        try:
            async with asyncio.timeout(BODY_S):
                body = await _read(scope, receive)
        except TimeoutError:
            return answers.error(408, _SLOW)
        if body is None:
            return answers.error(413, _LARGE.format(BODY_BYTES_MAX))
        if scope["path"] in NEVER_WAIT:
            return await self._begun(scope, body, receive)
        if not await self._has_turn():
            return answers.unavailable(_BUSY)
        try:
            return await self._begun(scope, body, receive)
        finally:
            self._answering.release()

    async def _has_turn(self) -> bool:
        """Wait for a turn to be answered; return whether there is one, which is to be released."""
        if self._answering.locked() and self._waiting >= WAITING_MAX:
            return False
        self._waiting += 1
        try:
            async with asyncio.timeout(WAIT_S):
                return await self._answering.acquire()
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1

    async def _begun(self, scope: Scope, body: bytes, receive: Receive) -> BufferedResponse:
        async with self._turn:
            await asyncio.sleep(0)
        return await _asked(self._app, scope, _Replayed(body, receive))

    async def _uploaded(self, scope: Scope, receive: Receive) -> BufferedResponse | Response:
        """Return the application's answer to an upload, or a refusal."""
        most = self._upload_bytes_max
        if _announced(scope) > most:
            return answers.error(413, _LARGE.format(most))
        if self._uploading >= UPLOADS_MAX:
            return answers.unavailable(_UPLOADS)
        arriving = _Arriving(receive, most)
        self._uploading += 1
        try:
            answer = await _asked(self._app, scope, arriving)
        finally:
            self._uploading -= 1
        return arriving.refusal or answer

    async def _deliver(self, answer: BufferedResponse, send: Send) -> None:
        """Send an answer in pieces; `send` waits for a slow client."""
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
    """Return the whole body, None if it is too large. Raises `GoneError`."""
    if _announced(scope) > BODY_BYTES_MAX:
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


def _announced(scope: Scope) -> int:
    """Return the length that a body is said to have; 0 if nothing is said."""
    return max(
        (
            int(text)
            for name, text in scope["headers"]
            if name == b"content-length" and text.isdigit()
        ),
        default=0,
    )


class _Replayed:
    """Gives a body that was read, then what else the client sends."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        body, self._body = self._body, None
        if body is None:
            return await self._receive()
        return {"type": "http.request", "body": body, "more_body": False}


class _Arriving:
    """Gives the pieces of a body as they arrive; out of bounds, the client seems to leave."""

    def __init__(self, receive: Receive, bytes_max: int) -> None:
        self.refusal: Response | None = None
        """Why nothing more is given."""
        self._receive = receive
        self._bytes_max = bytes_max
        self._size = 0
        self._is_whole = False
        self._until = asyncio.get_running_loop().time() + UPLOAD_S

    async def __call__(self) -> Message:
        if self._is_whole:
            return await self._receive()
        message: Message = {"type": "http.disconnect"}
        if self.refusal is None:
            left_s = self._until - asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(min(PIECE_S, left_s)):
                    message = await self._receive()
            except TimeoutError:
                self.refusal = answers.error(408, _STALLED)
        self._size += len(message.get("body", b""))
        if self._size > self._bytes_max:
            self.refusal = answers.error(413, _LARGE.format(self._bytes_max))
            return {"type": "http.disconnect"}
        self._is_whole = message["type"] == "http.request" and not message.get("more_body", False)
        return message


async def _asked(app: ASGIApp, scope: Scope, receive: Receive) -> BufferedResponse:
    """Return the application's answer to a request with this body."""
    start: Message = {}
    received = bytearray()

    async def heard(message: Message) -> None:
        nonlocal start
        if message["type"] == "http.response.start":
            start = message
        else:
            received.extend(message.get("body", b""))

    await app(scope, receive, heard)
    return BufferedResponse(start, bytes(received))
