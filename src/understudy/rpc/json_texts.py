"""JSON that a checkpoint holds as it was written, on a wire that speaks MessagePack.

`msgspec.Raw` is put into a frame as it is: right in a JSON document, and rubbish in MessagePack. So
it travels as a byte string.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from understudy.model import NULL, Checkpoint
from understudy.rpc.gateway import Envelope, M
from understudy.rpc.messages import CheckpointsTaken, Deploy, RunAttempt


def packed(envelope: Envelope[M]) -> Envelope[M]:
    """Return an envelope that can be encoded."""
    return _changed(envelope, _pack)


def unpacked(envelope: Envelope[M]) -> Envelope[M]:
    """Return what `packed` was given."""
    return _changed(envelope, _unpack)


def _changed(envelope: Envelope[M], change: Callable[[msgspec.Raw], msgspec.Raw]) -> Envelope[M]:
    message = envelope.message

    def each(checkpoints: tuple[Checkpoint, ...]) -> tuple[Checkpoint, ...]:
        return tuple(
            replace(one, offsets=change(one.offsets), note=change(one.note)) for one in checkpoints
        )

    match message:
        case CheckpointsTaken(checkpoints=told):
            return replace(envelope, message=replace(message, checkpoints=each(told)))
        case Deploy(restored=restored) if restored:
            return replace(envelope, message=replace(message, restored=each(restored)))
        case RunAttempt(deploy=deploy) if deploy.restored:
            order = replace(deploy, restored=each(deploy.restored))
            return replace(envelope, message=replace(message, deploy=order))
    return envelope


def _pack(text: msgspec.Raw) -> msgspec.Raw:
    if bytes(text) == bytes(NULL):
        return NULL  # The default, which is left out.
    return msgspec.Raw(msgspec.msgpack.encode(bytes(text)))


def _unpack(text: msgspec.Raw) -> msgspec.Raw:
    if text is NULL:
        return NULL
    return msgspec.Raw(msgspec.msgpack.decode(text, type=bytes))
