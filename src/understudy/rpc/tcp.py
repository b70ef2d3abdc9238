"""Links over TCP, between hosts: authenticated by a shared secret, sealed, and in TLS if wanted.

A peer that has not proved that it knows the secret costs one task with a deadline and a hundred
bytes, and there are never many of these: the one that has waited longest gives way. What is read
of it before is of a fixed size. Whoever cannot prove it is told so, and the log of both sides
names the option to look at.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import secrets
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from understudy.config import options
from understudy.errors import UnreachableError
from understudy.model import Incarnation, Term
from understudy.rpc import handshake
from understudy.rpc.addresses import SCHEME, host_and_port
from understudy.rpc.certificates import is_pinned
from understudy.rpc.gateway import Envelope, Link, Serve
from understudy.rpc.handshake import Seal, Secrets
from understudy.rpc.wire import CONNECT_S, FRAME_BYTES_MAX, Codec, UnixNetwork

M = TypeVar("M")

HANDSHAKE_S = 5.0
"""How long a peer may take to prove that it knows the secret."""

HANDSHAKES_MAX = 64
"""Peers that may be about it at once: more than a cluster has, less than a process has files."""

QUIET_S = 60.0
"""The same complaint about the same peer is logged once in so long: peers try again and again."""

COMPLAINTS_MAX = 256
"""Complaints that are remembered; strangers have many addresses."""

ACCEPT_AGAIN_S = 1.0
"""Pause after the kernel could not give us a connection, mostly since there are too many files."""

KEEPALIVE_IDLE_S = 5
KEEPALIVE_INTERVAL_S = 2
KEEPALIVE_COUNT = 3
UNACKNOWLEDGED_MS = 10_000
"""A host that vanished ends its links after ten seconds, not after the kernel's quarter of an
hour; who still lives connects again. What counts as dead is decided elsewhere."""

_SAME_SECRET = f"{options.SECRET_FILE.key} must hold the same secret there and here, and "
_SAME_SECRET += f"{options.CLUSTER_ID.key} must be the same"
_SAME_TLS = "security.ssl.internal.* must be the same there and here"
_CLOSED = f"it closed the connection at once; if that goes on, {_SAME_TLS}"
_SHORT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LinkSecurity:
    """What proves that a peer belongs to the cluster."""

    secret: bytes
    cluster_id: str
    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None
    fingerprint: str | None = None

    def __repr__(self) -> str:
        """Leave out the secret: this may come into a log."""
        return f"LinkSecurity({self.cluster_id!r}, tls={self.server is not None})"

    def checked(self, writer: asyncio.StreamWriter) -> None:
        """Raise `UnreachableError` for a peer with another certificate than the pinned one."""
        tls = writer.get_extra_info("ssl_object")
        if tls and not is_pinned(tls.getpeercert(binary_form=True), self.fingerprint):
            raise UnreachableError(
                f"its certificate is not the one of {options.INTERNAL_FINGERPRINT.key}"
            )


class SealedLink(Generic[M]):
    """One connection, both ways, whose frames are sealed; see `Link`."""

    def __init__(
        self,
        codec: Codec[M],
        sender: Incarnation,
        stream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        sending: Seal,
        receiving: Seal,
    ) -> None:
        self._codec = codec
        self._sender = sender
        self._reader, self._writer = stream
        self._sending = sending
        self._receiving = receiving

    def send(self, message: M, term: Term = 0) -> None:
        """See `Link.send`."""
        if self._writer.is_closing():
            return
        body = self._codec.body(Envelope(self._sender, term, message))
        self._writer.write(self._sending.seal(body))

    async def receive(self) -> Envelope[M] | None:
        """See `Link.receive`; a peer whose frames are not whole is gone, and the log says why."""
        read = self._reader.readexactly
        try:
            length = self._receiving.length(await read(handshake.HEADER_BYTES))
            if length > FRAME_BYTES_MAX:
                raise UnreachableError("a frame is too large: the peer speaks another protocol")
            body = await read(length)
            body = self._receiving.unseal(body, await read(handshake.PROOF_BYTES))
            return self._codec.decode(body)
        except (asyncio.IncompleteReadError, OSError):
            return None
        except UnreachableError as error:
            _log.warning(
                "the link with %s is closed: %s",
                _name(self._writer.get_extra_info("socket")),
                error,
            )
            self._writer.transport.abort()
            return None

    def close(self) -> None:
        """See `Link.close`."""
        self._writer.close()


class TcpNetwork(Generic[M]):
    """The processes that know the secret, on whatever host; see `Network`."""

    def __init__(
        self,
        codec: Codec[M],
        security: LinkSecurity,
        listening: socket.socket | None = None,
        published: str = "",
    ) -> None:
        """``listening`` is bound already, and closed by `listen`; ``published`` reaches it."""
        self._codec = codec
        self._security = security
        self._listening = listening
        self._published = published
        self._complaints = _Complaints()
        self._waiting: dict[asyncio.Task[None], None] = {}
        """Who has not proved anything yet, the oldest first."""
        self._serving: set[asyncio.Task[None]] = set()

    def address_of(self, incarnation: Incarnation) -> str:
        """See `Network.address_of`; one process has one address here."""
        return self._published

    # --- asking -----------------------------------------------------------------------------------

    async def connect(self, address: str, sender: Incarnation) -> Link[M]:
        """See `Network.connect`."""
        try:
            async with asyncio.timeout(CONNECT_S):
                return await self._connect(address, sender)
        except UnreachableError as error:
            # Nobody repairs this but a person, who may not see what the caller logs.
            self._complaints.log(address, str(error))
            raise UnreachableError(f"{address}: {error}") from error
        except ssl.SSLError as error:
            said = f"{_reason(error)}: {_SAME_TLS}"
            self._complaints.log(address, said)
            raise UnreachableError(f"{address}: {said}") from error
        except (OSError, TimeoutError) as error:
            raise UnreachableError(f"{address}: {str(error) or 'no answer'}") from error

    async def _connect(self, address: str, sender: Incarnation) -> Link[M]:
        host, port = host_and_port(address)
        security = self._security
        try:
            reader, writer = await asyncio.open_connection(
                host, port, ssl=security.client, server_hostname=host if security.client else None
            )
        except ConnectionResetError:
            raise UnreachableError(_CLOSED) from None
        try:
            _set_timeouts(writer)
            security.checked(writer)
            said = await self._greet(reader, writer)
        except BaseException:
            writer.transport.abort()
            raise
        sending, receiving = Seal(said.client_key), Seal(said.server_key)
        return SealedLink(self._codec, sender, (reader, writer), sending, receiving)

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Secrets:
        """Prove that we know the secret, and have it proved."""
        mine = secrets.token_bytes(handshake.NONCE_BYTES)
        writer.write(handshake.hello(mine))
        try:
            theirs = handshake.nonce_of(await reader.readexactly(handshake.HELLO_BYTES))
        except (asyncio.IncompleteReadError, ConnectionResetError):
            raise UnreachableError(_CLOSED) from None
        ours = Secrets.of(self._security.secret, self._security.cluster_id, mine, theirs)
        writer.write(ours.client_proof)
        try:
            answer = await reader.readexactly(handshake.PROOF_BYTES)
        except asyncio.IncompleteReadError:
            raise ConnectionResetError("it closed the connection") from None
        if answer == handshake.REFUSED:
            raise UnreachableError(f"it refuses us: {_SAME_SECRET}")
        if not handshake.is_proof(ours.server_proof, answer):
            raise UnreachableError(f"it does not know the secret: {_SAME_SECRET}")
        return ours

    # --- answering --------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def listen(self, incarnation: Incarnation, serve: Serve[M]) -> AsyncIterator[None]:
        """See `Network.listen`."""
        assert self._listening is not None, "this process has no address"
        with self._listening as listening:
            accepting = asyncio.create_task(self._accept(listening, incarnation, serve))
            try:
                yield
            finally:
                ending = [accepting, *self._waiting, *self._serving]
                for task in ending:
                    task.cancel()
                await asyncio.gather(*ending, return_exceptions=True)

    async def _accept(
        self, listening: socket.socket, incarnation: Incarnation, serve: Serve[M]
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                end, _ = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno in _SHORT_OF_FILES:
                    self._complaints.log("accepting connections", str(error))
                    await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            if len(self._waiting) >= HANDSHAKES_MAX:
                oldest = next(iter(self._waiting))
                del self._waiting[oldest]
                oldest.cancel()
            task = loop.create_task(self._admit(end, incarnation, serve))
            self._waiting[task] = None
            task.add_done_callback(lambda task: self._waiting.pop(task, None))

    async def _admit(self, end: socket.socket, incarnation: Incarnation, serve: Serve[M]) -> None:
        """Serve one peer once it has proved who it is."""
        peer = _name(end)
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                link = await self._authenticated(end, incarnation)
        except UnreachableError as error:
            return self._complaints.log(peer, str(error))
        except ssl.SSLError as error:
            return self._complaints.log(peer, f"{_reason(error)}: {_SAME_TLS}")
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return None  # A port scan, a health check, a process that was killed: not a word.
        task = asyncio.current_task()
        assert task is not None
        self._waiting.pop(task, None)
        self._serving.add(task)
        try:
            await serve(link)
        except Exception:
            _log.exception("serving %s has failed", peer)
        finally:
            self._serving.discard(task)
            link.close()
        return None

    async def _authenticated(self, end: socket.socket, incarnation: Incarnation) -> Link[M]:
        """Return the link with a peer that knows the secret."""
        reader, writer = await _stream(end, self._security.server)
        try:
            _set_timeouts(writer)
            self._security.checked(writer)
            theirs = handshake.nonce_of(await reader.readexactly(handshake.HELLO_BYTES))
            mine = secrets.token_bytes(handshake.NONCE_BYTES)
            ours = Secrets.of(self._security.secret, self._security.cluster_id, theirs, mine)
            writer.write(handshake.hello(mine))
            proof = await reader.readexactly(handshake.PROOF_BYTES)
            if not handshake.is_proof(ours.client_proof, proof):
                writer.write(handshake.REFUSED)
                await writer.drain()
                writer.close()
                raise UnreachableError(f"refused, it does not know the secret: {_SAME_SECRET}")
            writer.write(ours.server_proof)
        except BaseException:
            if not writer.is_closing():
                writer.transport.abort()
            raise
        sending, receiving = Seal(ours.server_key), Seal(ours.client_key)
        return SealedLink(self._codec, incarnation, (reader, writer), sending, receiving)


class MixedNetwork(Generic[M]):
    """Listens in one way, and reaches whoever listens in the other; see `Network`.

    Where a leader is found is told by the leader: those who look for it need no setting for it.
    """

    def __init__(
        self, unix: UnixNetwork[M], tcp: TcpNetwork[M] | None, *, listens_on_tcp: bool = False
    ) -> None:
        """Without ``tcp``, as there is no secret, leaders of other hosts are out of reach."""
        self._unix = unix
        self._tcp = tcp
        self._own: UnixNetwork[M] | TcpNetwork[M] = tcp if tcp and listens_on_tcp else unix

    def address_of(self, incarnation: Incarnation) -> str:
        """See `Network.address_of`."""
        return self._own.address_of(incarnation)

    async def connect(self, address: str, sender: Incarnation) -> Link[M]:
        """See `Network.connect`."""
        if not address.startswith(SCHEME):
            return await self._unix.connect(address, sender)
        if self._tcp is None:
            raise UnreachableError(
                f"{address}: links over TCP need {options.SECRET_FILE.key}: name the file with the "
                "secret of the cluster"
            )
        return await self._tcp.connect(address, sender)

    def listen(
        self, incarnation: Incarnation, serve: Serve[M]
    ) -> contextlib.AbstractAsyncContextManager[None]:
        """See `Network.listen`."""
        return self._own.listen(incarnation, serve)


class _Complaints:
    """What was logged lately, so that who tries again and again does not fill the log."""

    def __init__(self) -> None:
        self._until: dict[tuple[str, str], float] = {}

    def log(self, about: str, said: str) -> None:
        """Log a sentence about a peer, unless that was done a moment ago."""
        now = asyncio.get_running_loop().time()
        if self._until.get((about, said), now) > now:
            return
        if len(self._until) >= COMPLAINTS_MAX:
            self._until.pop(next(iter(self._until)))
        self._until[about, said] = now + QUIET_S
        _log.warning("%s: %s", about, said)


async def _stream(
    end: socket.socket, tls: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return the streams of an accepted connection, after the handshake of TLS."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    # The deadline of the whole handshake is the caller's; asyncio's own are a minute.
    limit_s = HANDSHAKE_S if tls else None
    try:
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            end,
            ssl=tls,
            ssl_handshake_timeout=limit_s,
            ssl_shutdown_timeout=limit_s,
        )
    except BaseException:
        end.close()
        raise
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


def _set_timeouts(writer: asyncio.StreamWriter) -> None:
    end = writer.get_extra_info("socket")
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, number in (
        (socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S),
        (socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S),
        (socket.TCP_KEEPCNT, KEEPALIVE_COUNT),
        (socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS),
    ):
        end.setsockopt(socket.IPPROTO_TCP, option, number)


def _name(end: socket.socket) -> str:
    """Return the host of a peer; its port is another one each time."""
    try:
        return str(end.getpeername()[0])
    except OSError:
        return "somebody"


def _reason(error: ssl.SSLError) -> str:
    return str(getattr(error, "verify_message", "") or error.reason or error)
