"""The handshake that proves a shared secret to both sides, and the seals of all later frames.

Nothing here waits or touches a socket. The client sends a nonce, the server another nonce; then the
client proves that it knows the secret, and the server after it. So a stranger who only connects
receives no data derived from the secret. The messages do not reveal the secret and cannot be
replayed, as both nonces are part of every proof and key.

Frames are sealed, not encrypted: an attacker on the way can read them and cut the connection, but
cannot alter, repeat, drop or reorder frames. TLS provides the encryption.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass

from understudy.errors import UnreachableError

MAGIC = b"UNDSTDY\x01"
"""The first bytes of both sides: they expose another program or version at once."""

NONCE_BYTES = 32
PROOF_BYTES = 32
HELLO_BYTES = len(MAGIC) + NONCE_BYTES
"""Before the proof, only reads of a small fixed size are made from a peer."""

REFUSED = bytes(PROOF_BYTES)
"""A server's answer, in place of its proof, to a client that does not know the secret."""

HEADER_BYTES = 4 + 16
"""A frame's length with a shorter seal of its own: with an altered length the reader would wait
for bytes that never come."""

_LENGTH = struct.Struct(">I")
_NUMBER = struct.Struct(">Q")


def hello(nonce: bytes) -> bytes:
    """Return the first message of a side."""
    return MAGIC + nonce


def nonce_of(content: bytes) -> bytes:
    """Return the nonce of a peer's hello; raises `UnreachableError`."""
    if not content.startswith(MAGIC):
        raise UnreachableError("the peer speaks another protocol")
    return content[len(MAGIC) :]


@dataclass(frozen=True)
class Secrets:
    """The proofs and keys of one connection, derived from the secret and both nonces."""

    client_proof: bytes
    server_proof: bytes
    client_key: bytes
    """Seals the client's frames."""
    server_key: bytes

    @staticmethod
    def of(secret: bytes, cluster_id: str, client_nonce: bytes, server_nonce: bytes) -> Secrets:
        """Derive all four, each for its own purpose, so that none can replace another."""
        root = hmac.digest(secret, b"understudy link", "sha256")
        content = MAGIC + client_nonce + server_nonce + cluster_id.encode()

        def derived(purpose: bytes) -> bytes:
            return hmac.digest(root, purpose + b"\0" + content, "sha256")

        return Secrets(
            derived(b"proof of the client"),
            derived(b"proof of the server"),
            derived(b"from client to server"),
            derived(b"from server to client"),
        )


def is_proof(expected: bytes, given: bytes) -> bool:
    """Return whether a proof is right, in constant time."""
    return hmac.compare_digest(expected, given)


class Seal:
    """Seals and numbers the frames of one direction; each end has one per direction."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0

    def seal(self, body: bytes) -> bytes:
        """Return the next frame."""
        length = _LENGTH.pack(len(body))
        frame = length + self._of_length(length) + body + self._of_body(body)
        self._number += 1
        return frame

    def length(self, header: bytes) -> int:
        """Return the length of the next frame's body; raises `UnreachableError`."""
        length = header[: _LENGTH.size]
        if not hmac.compare_digest(self._of_length(length), header[_LENGTH.size :]):
            raise UnreachableError("a frame was altered, repeated or left out on its way")
        (count,) = _LENGTH.unpack(length)
        return int(count)

    def unseal(self, body: bytes, proof: bytes) -> bytes:
        """Return the next frame's body, and count the frame; raises `UnreachableError`."""
        if not hmac.compare_digest(self._of_body(body), proof):
            raise UnreachableError("a frame was altered on its way")
        self._number += 1
        return body

    def _of_length(self, length: bytes) -> bytes:
        content = b"length" + _NUMBER.pack(self._number) + length
        return hmac.digest(self._key, content, "sha256")[: HEADER_BYTES - _LENGTH.size]

    def _of_body(self, body: bytes) -> bytes:
        return hmac.digest(self._key, b"body" + _NUMBER.pack(self._number) + body, "sha256")
