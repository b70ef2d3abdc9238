"""The JSON texts in checkpoints, encoded for a wire with MessagePack.

msgspec copies a `msgspec.Raw` unchanged into a frame: right for JSON, invalid in MessagePack. So
the text travels as a byte string.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from understudy.model import NULL, Checkpoint
from understudy.rpc.gateway import Envelope, M
from understudy.rpc.messages import CheckpointsTaken, Deploy, RunAttempt


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
