"""The wire: framed messages over a stream socket, for event loops and for threads.

A frame is four bytes of length and a MessagePack map. Processes of one host use abstract Unix
sockets, which leave no files behind. A peer of another user is refused by ``SO_PEERCRED``, as
every peer can run code here. Between hosts ``tcp.py`` carries the same messages.

msgspec copies a `msgspec.Raw` unchanged into a frame: right for JSON, invalid in MessagePack. So
the JSON texts in checkpoints travel as byte strings.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any, Generic

import msgspec
from msgspec.structs import replace

from understudy.errors import TooLargeError, UnreachableError, UsageError
from understudy.model import NULL, Checkpoint, Incarnation, Term
from understudy.rpc.addresses import BACKLOG
from understudy.rpc.admission import Admission, Heard
from understudy.rpc.complaints import Complaints
from understudy.rpc.gateway import Envelope, Link, M, Serve
from understudy.rpc.messages import CheckpointsTaken, Deploy, RunAttempt

FRAME_BYTES_MAX = 64 << 20
"""Results travel by pointer; the largest frame is a registration with all its attempts."""

UNREAD_BYTES_MAX = FRAME_BYTES_MAX
"""Unsent bytes for a peer that does not read; more would fill the memory."""

CONNECT_S = 5.0
"""A peer of this host answers in microseconds, or is paused."""

_LENGTH = struct.Struct(">I")

_log = logging.getLogger(__name__)


class Codec(Generic[M]):
    """Converts envelopes of one family of messages to frames and back."""

    def __init__(self, messages: Any) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Envelope[M]] = msgspec.msgpack.Decoder(
            Envelope[messages]
        )

    def encode(self, envelope: Envelope[M]) -> bytes:
        """Return the frame of an envelope."""
        body = self.body(envelope)
        return _LENGTH.pack(len(body)) + body

    def body(self, envelope: Envelope[M]) -> bytes:
        """Return the frame of an envelope without its length; raises `TooLargeError`."""
        body = self._encoder.encode(packed(envelope))
        if len(body) > FRAME_BYTES_MAX:
            kind = type(envelope.message).__name__
            raise TooLargeError(f"a {kind} of {len(body)} bytes: at most {FRAME_BYTES_MAX}")
        return body

    def decode(self, body: bytes) -> Envelope[M]:
        """Return the envelope of a frame without its length; raises `UnreachableError`."""
        try:
            return unpacked(self._decoder.decode(body))
        except msgspec.DecodeError as error:
            raise UnreachableError(f"the peer speaks another protocol: {error}") from error


class StreamLink(Generic[M]):
    """One connection, both ways, in an event loop."""

    def __init__(
        self,
        codec: Codec[M],
        sender: Incarnation,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        heard: Heard = lambda: None,
    ) -> None:
        """``heard`` is called at each message of the peer."""
        self._codec = codec
        self._sender = sender
        self._reader = reader
        self._writer = writer
        self._heard = heard

    def send(self, message: M, term: Term = 0) -> None:
        """Send a message; a broken connection shows when receiving."""
        if not is_read(self._writer):
            return
        self._writer.write(self._codec.encode(Envelope(self._sender, term, message)))

    async def receive(self) -> Envelope[M] | None:
        """Return the next message; None once the peer is gone, or after an unknown message."""
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            if length > FRAME_BYTES_MAX:
                raise UnreachableError("the peer speaks another protocol")
            envelope = self._codec.decode(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError):
            return None
        except UnreachableError as error:
            _log.warning("a link is closed: %s", error)
            self._writer.transport.abort()
            return None
        self._heard()
        return envelope

    def close(self) -> None:
        """Close the connection; what was sent is still delivered if the peer reads."""
        self._writer.close()


class UnixNetwork(Generic[M]):
    """The processes of one host and user."""

    def __init__(self, codec: Codec[M], own_address: str | None = None) -> None:
        """``own_address``: where this process listens, in place of its incarnation's address."""
        self._codec = codec
        self._own_address = own_address

    def address_of(self, incarnation: Incarnation) -> str:
        """Return the own address, or one that contains the incarnation."""
        return self._own_address or f"unix:@understudy-{incarnation}"

    async def connect(self, address: str, sender: Incarnation) -> StreamLink[M]:
        """Connect to a process of the same user, or raise `UnreachableError`."""
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_unix_connection(_path(address))
        except (OSError, TimeoutError) as error:
            raise UnreachableError(f"{address}: {str(error) or 'no answer'}") from error
        if not _same_user(writer.get_extra_info("socket")):
            writer.close()
            raise UnreachableError(f"{address}: belongs to another user")
        return StreamLink(self._codec, sender, reader, writer)

    @contextlib.asynccontextmanager
    async def listen(self, incarnation: Incarnation, serve: Serve[M]) -> AsyncIterator[None]:
        """Accept connections of the same user during the block."""

        async def prove(end: socket.socket, heard: Heard) -> Link[M]:
            if not _same_user(end):
                end.close()
                raise UnreachableError("refused, it is a process of another user")
            reader, writer = await asyncio.open_unix_connection(sock=end)
            return StreamLink(self._codec, incarnation, reader, writer, heard)

        admission: Admission[M] = Admission(Complaints())
        listening = _listening(self.address_of(incarnation))
        async with admission.listening(listening, prove, serve):
            yield


async def over_socket(end: socket.socket, codec: Codec[M], sender: Incarnation) -> StreamLink[M]:
    """Return a link over one end of a socket pair; a child has inherited the other end."""
    end.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=end)
    return StreamLink(codec, sender, reader, writer)


class BlockingLink(Generic[M]):
    """One connection, both ways, for threads: any thread may send, one thread receives."""

    def __init__(self, end: socket.socket, codec: Codec[M], sender: Incarnation) -> None:
        end.setblocking(True)
        self._end = end
        self._codec = codec
        self._sender = sender
        self._sending = threading.Lock()
        self._process = os.getpid()

    def send(self, message: M, term: Term = 0) -> None:
        """Send a message, or raise `UnreachableError`; `UsageError` in a forked child."""
        self._refuse_children()  # Before the lock, which a child may have inherited locked.
        frame = self._codec.encode(Envelope(self._sender, term, message))
        try:
            with self._sending:
                self._end.sendall(frame)
        except OSError as error:
            raise UnreachableError(f"the parent process is gone: {error}") from error

    def receive(self) -> Envelope[M] | None:
        """Return the next message; None once the peer is gone; `UsageError` in a forked child."""
        self._refuse_children()
        header = self._exactly(_LENGTH.size)
        body = self._exactly(_LENGTH.unpack(header)[0]) if header else None
        return self._codec.decode(body) if body is not None else None

    def _refuse_children(self) -> None:
        if os.getpid() != self._process:
            raise UsageError(
                f"process {os.getpid()} was forked by process {self._process}: only that one may "
                "speak for it"
            )

    def _exactly(self, count: int) -> bytes | None:
        data = bytearray()
        while len(data) < count:
            piece = b""
            with contextlib.suppress(OSError):
                piece = self._end.recv(count - len(data))
            if not piece:
                return None
            data += piece
        return bytes(data)


def is_read(writer: asyncio.StreamWriter) -> bool:
    """Return whether to send a peer more; a peer that leaves too much unread is cut off."""
    if writer.is_closing():
        return False
    unread = writer.transport.get_write_buffer_size()
    if unread <= UNREAD_BYTES_MAX:
        return True
    _log.warning("a link is closed: its peer has left %d bytes unread", unread)
    writer.transport.abort()
    return False


def _listening(address: str) -> socket.socket:
    """Return a socket that listens at an address."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listening.bind(_path(address))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise OSError(error.errno, f"{address}: {error.strerror}") from error
    return listening


def _path(address: str) -> str:
    return "\0" + address.removeprefix("unix:@")


def _same_user(end: socket.socket) -> bool:
    credentials = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", credentials)
    return bool(user in {os.geteuid(), 0})


def packed(envelope: Envelope[M]) -> Envelope[M]:
    """Return an envelope with its JSON texts as byte strings."""
    return _changed(envelope, _pack)


def unpacked(envelope: Envelope[M]) -> Envelope[M]:
    """Return an envelope with its JSON texts restored: the inverse of `packed`."""
    return _changed(envelope, _unpack)


def _changed(envelope: Envelope[M], change: Callable[[msgspec.Raw], msgspec.Raw]) -> Envelope[M]:
    message = envelope.message

    def each(checkpoints: tuple[Checkpoint, ...]) -> tuple[Checkpoint, ...]:
        return tuple(
            replace(one, offsets=change(one.offsets), note=change(one.note)) for one in checkpoints
        )

    match message:
        case CheckpointsTaken(checkpoints=taken):
            return replace(envelope, message=replace(message, checkpoints=each(taken)))
        case Deploy(restored=restored) if restored:
            return replace(envelope, message=replace(message, restored=each(restored)))
        case RunAttempt(deploy=deploy) if deploy.restored:
            order = replace(deploy, restored=each(deploy.restored))
            return replace(envelope, message=replace(message, deploy=order))
    return envelope


def _pack(text: msgspec.Raw) -> msgspec.Raw:
    if bytes(text) == bytes(NULL):
        return NULL  # The default is omitted from the frame.
    return msgspec.Raw(msgspec.msgpack.encode(bytes(text)))


def _unpack(text: msgspec.Raw) -> msgspec.Raw:
    if text is NULL:
        return NULL
    return msgspec.Raw(msgspec.msgpack.decode(text, type=bytes))
