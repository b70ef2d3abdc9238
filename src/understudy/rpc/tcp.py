"""Links over TCP, between hosts: authenticated by a shared secret, sealed, and in TLS if wanted.

A peer that has not proved that it knows the secret costs one task with a deadline and a hundred
bytes, and there are never many of these (`admission.py`). What is read of it before is of a fixed
size. Whoever cannot prove it is told so, and the log of both sides
names the option to look at.
"""

from __future__ import annotations

import asyncio
import contextlib
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
from understudy.rpc.admission import HANDSHAKE_S, Admission, Heard, name_of
from understudy.rpc.certificates import is_pinned
from understudy.rpc.complaints import Complaints
from understudy.rpc.gateway import Envelope, Link, Serve
from understudy.rpc.handshake import Seal, Secrets
from understudy.rpc.wire import CONNECT_S, FRAME_BYTES_MAX, Codec, UnixNetwork, is_read

M = TypeVar("M")

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
        heard: Heard = lambda: None,
    ) -> None:
        """``heard`` is called with each message that the peer has said."""
        self._codec = codec
        self._sender = sender
        self._reader, self._writer = stream
        self._sending = sending
        self._receiving = receiving
        self._heard = heard

    def send(self, message: M, term: Term = 0) -> None:
        """See `Link.send`."""
        if not is_read(self._writer):
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
            envelope = self._codec.decode(body)
        except (asyncio.IncompleteReadError, OSError):
            return None
        except UnreachableError as error:
            _log.warning(
                "the link with %s is closed: %s",
                name_of(self._writer.get_extra_info("socket")),
                error,
            )
            self._writer.transport.abort()
            return None
        self._heard()
        return envelope

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
        self._complaints = Complaints()

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

        async def prove(end: socket.socket, heard: Heard) -> Link[M]:
            try:
                return await self._authenticated(end, incarnation, heard)
            except ssl.SSLError as error:
                raise UnreachableError(f"{_reason(error)}: {_SAME_TLS}") from error

        admission: Admission[M] = Admission(self._complaints)
        async with admission.listening(self._listening, prove, serve):
            yield

    async def _authenticated(
        self, end: socket.socket, incarnation: Incarnation, heard: Heard
    ) -> Link[M]:
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
        return SealedLink(self._codec, incarnation, (reader, writer), sending, receiving, heard)


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


def _reason(error: ssl.SSLError) -> str:
    return str(getattr(error, "verify_message", "") or error.reason or error)
