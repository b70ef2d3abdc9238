"""A proxy before an API server, with faults for chosen requests: exact ones, at the exact request.

The proxy ends TLS with a certificate of the control plane's authority and asks the API server for
the same on a connection of its own for each of the client's, so that a client's keep-alive stays
what it is. A client is known by its token: its certificate does not get through.

A fault holds while its block lasts; of several that match, the one that came last happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import h11

from tests.kubernetes.control_plane import ControlPlane
from tests.support.zookeeper import LOOPBACK

READ_BYTES = 65_536
CONNECT_S = 10.0
CALL_S = 20.0

HTML = "<html><body><h1>502 Bad Gateway</h1></body></html>"
"""What a load balancer says, which is not an API server."""


@dataclass(frozen=True)
class Answer:
    """The proxy answers itself; the API server does not hear of the request."""

    status: int
    body: str = "{}"
    kind: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Delay:
    """The request reaches the API server later."""

    seconds: float


@dataclass(frozen=True)
class Stall:
    """The request reaches nobody, and the connection stays open; it is closed after the block."""


@dataclass(frozen=True)
class LoseReply:
    """The API server has done what was asked; the connection is closed without a word."""


@dataclass(frozen=True)
class CloseEarly:
    """The answer begins, as that of a watch, and the connection is closed after its head."""


@dataclass(frozen=True)
class Silence:
    """Nothing more of the answer arrives, as if the network lost it; after the block it does."""


Happening = Answer | Delay | Stall | LoseReply | CloseEarly | Silence


@dataclass(eq=False)
class Fault:
    """What happens to requests of a method to paths in which a pattern is found.

    ``left`` is for how many requests: all, unless given. ``met`` is how many there were.
    """

    happening: Happening
    method: str = ""
    pattern: str = ""
    left: int | None = None
    met: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def matches(self, method: str, target: str) -> bool:
        """Say whether this is such a request."""
        return self.method in ("", method) and bool(re.search(self.pattern, target))


def refused(status: int, reason: str, **headers: str) -> Answer:
    """Return a refusal as an API server has it: ``refused(429, "TooManyRequests")``."""
    body = f'{{"kind":"Status","status":"Failure","reason":"{reason}","code":{status}}}'
    return Answer(status, body, headers={k.replace("_", "-"): v for k, v in headers.items()})


def html(status: int = 502) -> Answer:
    """Return the answer of something that is no API server."""
    return Answer(status, HTML, "text/html")


class FaultyApi:
    """The proxy, which listens while the block lasts, in a thread of its own."""

    def __init__(self, plane: ControlPlane) -> None:
        self._upstream = int(plane.url.rpartition(":")[2])
        self._client_side = plane.keys.client_context()
        self._server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._server_side.load_cert_chain(*plane.keys.serving("faults", LOOPBACK))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="faults", daemon=True)
        self._faults: list[Fault] = []
        self._connections: set[asyncio.Task[None]] = set()
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        port = self._call(self._listen())
        self.url = f"https://{LOOPBACK}:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_S)
        self._loop.close()

    @contextlib.contextmanager
    def fault(
        self, happening: Happening, method: str = "", pattern: str = "", times: int | None = None
    ) -> Iterator[Fault]:
        """Have this happen to requests whose method and path are such, while the block lasts."""
        fault = Fault(happening, method, pattern, times)
        self._loop.call_soon_threadsafe(self._faults.insert, 0, fault)
        try:
            yield fault
        finally:
            self._call(self._end(fault))

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        """Lose everything in both directions while the block lasts; connections stay open."""
        with self.fault(Stall()), self.fault(Silence(), times=0):
            yield

    def drop_connections(self) -> None:
        """Close all connections that there are now."""
        self._call(self._drop())

    def _call(self, doing: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(doing, self._loop).result(CALL_S)

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._accept, LOOPBACK, 0, ssl=self._server_side)
        return int(self._server.sockets[0].getsockname()[1])

    async def _close(self) -> None:
        self._server.close()
        await self._drop()

    async def _end(self, fault: Fault) -> None:
        self._faults.remove(fault)
        fault.over.set()

    async def _drop(self) -> None:
        for task in [*self._connections]:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with contextlib.suppress(
                OSError, h11.ProtocolError, _ClosedError, asyncio.CancelledError
            ):
                await _Connection(self, reader, writer).serve()
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    def find(self, method: str, target: str) -> Fault | None:
        """Return what happens to a request that has come now."""
        for fault in self._faults:
            if fault.left != 0 and fault.matches(method, target):
                fault.met += 1
                fault.left = None if fault.left is None else fault.left - 1
                return fault
        return None

    async def heard(self, method: str, target: str) -> None:
        """Wait as long as nothing of an answer may arrive, however old its request is."""
        while silent := next(
            (
                one
                for one in self._faults
                if isinstance(one.happening, Silence) and one.matches(method, target)
            ),
            None,
        ):
            await silent.over.wait()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection to the API server."""
        async with asyncio.timeout(CONNECT_S):
            return await asyncio.open_connection(LOOPBACK, self._upstream, ssl=self._client_side)


class _ClosedError(Exception):
    """One side has closed its connection."""


class _Half:
    """One end of HTTP/1.1 on a connection."""

    def __init__(
        self,
        role: type[h11.CLIENT] | type[h11.SERVER],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.state = h11.Connection(role)
        self._reader = reader
        self._writer = writer

    async def next(self) -> Any:
        while (event := self.state.next_event()) is h11.NEED_DATA:
            self.state.receive_data(await self._reader.read(READ_BYTES))
        if event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
            raise _ClosedError
        return event

    async def send(self, event: Any) -> None:
        if (data := self.state.send(event)) is None:
            raise _ClosedError
        self._writer.write(data)
        await self._writer.drain()

    async def gone(self) -> None:
        """Return when the other side has closed; it sends nothing before it has an answer."""
        while data := await self._reader.read(READ_BYTES):
            self.state.receive_data(data)

    def close(self) -> None:
        self._writer.transport.abort()


class _Connection:
    """A client's connection, and the one to the API server that belongs to it."""

    def __init__(
        self, api: FaultyApi, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._api = api
        self._client = _Half(h11.SERVER, reader, writer)
        self._server: _Half | None = None

    async def serve(self) -> None:
        """Answer one request after the other until a side closes."""
        try:
            while True:
                request = await self._client.next()
                body = b""
                while isinstance(data := await self._client.next(), h11.Data):
                    body += bytes(data.data)
                answering = asyncio.create_task(self._answer(request, body))
                leaving = asyncio.create_task(self._client.gone())
                try:
                    await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
                    if not answering.done():
                        return
                    answering.result()
                finally:
                    answering.cancel()
                    leaving.cancel()
                    await asyncio.gather(answering, leaving, return_exceptions=True)
                self._client.state.start_next_cycle()
        finally:
            if self._server is not None:
                self._server.close()

    async def _answer(self, request: h11.Request, body: bytes) -> None:
        method, target = request.method.decode(), request.target.decode()
        fault = self._api.find(method, target)
        match fault.happening if fault is not None else None:
            case Answer() as answer:
                await self._send(answer)
                return
            case Stall():
                assert fault is not None
                await fault.over.wait()
                raise _ClosedError
            case Delay(seconds):
                await asyncio.sleep(seconds)
        server = await self._ask(request, body)
        lost = fault is not None and isinstance(fault.happening, LoseReply)
        early = fault is not None and isinstance(fault.happening, CloseEarly)
        while True:
            event = await server.next()
            if isinstance(event, h11.InformationalResponse) or (
                lost and not isinstance(event, h11.EndOfMessage)
            ):
                continue
            if lost:
                raise _ClosedError
            await self._api.heard(method, target)
            await self._client.send(event)
            if early:
                raise _ClosedError
            if isinstance(event, h11.EndOfMessage):
                break
        self._next_cycle(server)

    async def _ask(self, request: h11.Request, body: bytes) -> _Half:
        """Send the request, on this client's connection to the API server."""
        if self._server is None:
            self._server = _Half(h11.CLIENT, *await self._api.connect())
        server = self._server
        await server.send(request)
        if body:
            await server.send(h11.Data(data=body))
        await server.send(h11.EndOfMessage())
        return server

    def _next_cycle(self, server: _Half) -> None:
        try:
            server.state.start_next_cycle()
        except h11.LocalProtocolError:  # it closes after this answer
            server.close()
            self._server = None

    async def _send(self, answer: Answer) -> None:
        body = answer.body.encode()
        headers = {
            "Content-Type": answer.kind,
            "Content-Length": str(len(body)),
            **answer.headers,
        }
        head = h11.Response(status_code=answer.status, headers=[*headers.items()])
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            await self._client.send(event)
