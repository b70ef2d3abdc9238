"""Links over TCP between hosts: authenticated by a shared secret, sealed, and optionally in TLS.

A peer without a proof of the secret costs one task with a deadline and a hundred bytes, and the
number of such peers is limited (`admission.py`). Reads before the proof have a fixed size. A peer
with a wrong secret gets a refusal, and both sides log the option to check.
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
"""Links to a vanished host end after ten seconds, not after the kernel's quarter of an hour. A
living peer connects again; whether a process is dead is decided elsewhere."""

_SAME_SECRET = f"{options.SECRET_FILE.key} must hold the same secret there and here, and "
_SAME_SECRET += f"{options.CLUSTER_ID.key} must be the same"
_SAME_TLS = "security.ssl.internal.* must be the same there and here"
_CLOSED = f"it closed the connection at once; if that continues, {_SAME_TLS}"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LinkSecurity:
    """The secret and the TLS contexts by which peers prove that they belong to the cluster."""

    secret: bytes
    cluster_id: str
    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None
    fingerprint: str | None = None

    def __repr__(self) -> str:
        """Leave out the secret, as the text may be logged."""
        return f"LinkSecurity({self.cluster_id!r}, tls={self.server is not None})"

    def checked(self, writer: asyncio.StreamWriter) -> None:
        """Raise `UnreachableError` unless the peer's certificate is the pinned one, if any."""
        tls = writer.get_extra_info("ssl_object")
        if tls and not is_pinned(tls.getpeercert(binary_form=True), self.fingerprint):
            raise UnreachableError(
                f"its certificate is not the one of {options.INTERNAL_FINGERPRINT.key}"
            )


class SealedLink(Generic[M]):
    """One connection, both ways, with sealed frames."""

    def __init__(
        self,
        codec: Codec[M],
        sender: Incarnation,
        stream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        sending: Seal,
        receiving: Seal,
        heard: Heard = lambda: None,
    ) -> None:
        """``heard`` is called at each message of the peer."""
        self._codec = codec
        self._sender = sender
        self._reader, self._writer = stream
        self._sending = sending
        self._receiving = receiving
        self._heard = heard

    def send(self, message: M, term: Term = 0) -> None:
        """Send a sealed frame, unless the peer leaves too much unread."""
        if not is_read(self._writer):
            return
        body = self._codec.body(Envelope(self._sender, term, message))
        self._writer.write(self._sending.seal(body))

    async def receive(self) -> Envelope[M] | None:
        """Return the next message; None once the peer is gone, or after a bad frame (logged)."""
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
        """Close the connection; sent messages are still delivered."""
        self._writer.close()


class TcpNetwork(Generic[M]):
    """The processes on any host that know the secret."""

    def __init__(
        self,
        codec: Codec[M],
        security: LinkSecurity,
        listening: socket.socket | None = None,
        published: str = "",
    ) -> None:
        """``listening`` is bound already and closed by `listen`; ``published`` is its address."""
        self._codec = codec
        self._security = security
        self._listening = listening
        self._published = published
        self._complaints = Complaints()

    def address_of(self, incarnation: Incarnation) -> str:
        """Return the published address; a process has only one."""
        return self._published

    # --- the client -------------------------------------------------------------------------------

    async def connect(self, address: str, sender: Incarnation) -> Link[M]:
        """Connect and authenticate, or raise `UnreachableError`; wrong settings are logged."""
        try:
            async with asyncio.timeout(CONNECT_S):
                return await self._connect(address, sender)
        except UnreachableError as error:
            # Only a person can repair this, and may not see the caller's log.
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
        """Prove that we know the secret, and check the server's proof."""
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

    # --- the server -------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def listen(self, incarnation: Incarnation, serve: Serve[M]) -> AsyncIterator[None]:
        """Accept and authenticate connections during the block."""
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
        """Return the link with a peer, once the peer has proved that it knows the secret."""
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
    """Listens on a Unix socket or TCP, and connects to addresses of both kinds.

    The leader publishes its address, so processes that look for the leader need no setting for it.
    """

    def __init__(
        self, unix: UnixNetwork[M], tcp: TcpNetwork[M] | None, *, listens_on_tcp: bool = False
    ) -> None:
        """Without ``tcp`` (no secret is configured) leaders on other hosts are unreachable."""
        self._unix = unix
        self._tcp = tcp
        self._own: UnixNetwork[M] | TcpNetwork[M] = tcp if tcp and listens_on_tcp else unix

    def address_of(self, incarnation: Incarnation) -> str:
        """Return the address of the network on which this process listens."""
        return self._own.address_of(incarnation)

    async def connect(self, address: str, sender: Incarnation) -> Link[M]:
        """Connect over TCP or a Unix socket, by the address."""
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
        """Accept connections on the own network during the block."""
        return self._own.listen(incarnation, serve)


async def _stream(
    end: socket.socket, tls: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return the streams of an accepted connection, after the TLS handshake."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    # The caller limits the whole handshake; asyncio's default limits are a minute.
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
