"""How two processes prove to each other that they know one secret, and seal what follows.

Nothing here waits or touches a socket. The client says a nonce, the server another one, then the
client proves that it knows the secret, and the server after it: a stranger who only connects is
told nothing that the secret went into. Nobody learns the secret from what is said, nor can what
was said once be used again, since both nonces go into every proof and key.

Frames are sealed, not hidden: whoever is on the way can read and cut, but neither alter, repeat,
leave out nor reorder. To hide them is the part of TLS.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass

from understudy.errors import UnreachableError

MAGIC = b"UNDSTDY\x01"
"""What either side says first: another program, or another version, is told at once."""

NONCE_BYTES = 32
PROOF_BYTES = 32
HELLO_BYTES = len(MAGIC) + NONCE_BYTES
"""All that is read of a peer before it has proved anything has a fixed, small size."""

REFUSED = bytes(PROOF_BYTES)
"""What a server says instead of its proof to a client that does not know the secret."""

HEADER_BYTES = 4 + 16
"""The length of a frame and its own, shorter seal: an altered length would have the reader wait
for bytes that never come."""

_LENGTH = struct.Struct(">I")
_NUMBER = struct.Struct(">Q")


def hello(nonce: bytes) -> bytes:
    """Return what a side says first."""
    return MAGIC + nonce


def nonce_of(said: bytes) -> bytes:
    """Return the nonce of a peer's hello; raises `UnreachableError`."""
    if not said.startswith(MAGIC):
        raise UnreachableError("the peer speaks another protocol")
    return said[len(MAGIC) :]


@dataclass(frozen=True)
class Secrets:
    """What follows from the secret and both nonces, for one connection of one cluster."""

    client_proof: bytes
    server_proof: bytes
    client_key: bytes
    """Seals what the client sends."""
    server_key: bytes

    @staticmethod
    def of(secret: bytes, cluster_id: str, client_nonce: bytes, server_nonce: bytes) -> Secrets:
        """Derive all four; each has a purpose of its own, so that none can stand for another."""
        root = hmac.digest(secret, b"understudy link", "sha256")
        said = MAGIC + client_nonce + server_nonce + cluster_id.encode()

        def derived(purpose: bytes) -> bytes:
            return hmac.digest(root, purpose + b"\0" + said, "sha256")

        return Secrets(
            derived(b"proof of the client"),
            derived(b"proof of the server"),
            derived(b"from client to server"),
            derived(b"from server to client"),
        )


def is_proof(expected: bytes, given: bytes) -> bool:
    """Say whether a proof is right, in a time that does not depend on where it is wrong."""
    return hmac.compare_digest(expected, given)


class Seal:
    """The frames of one direction, numbered and sealed: one of these at each end."""

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
        """Return how long the body of the next frame is; raises `UnreachableError`."""
        length = header[: _LENGTH.size]
        if not hmac.compare_digest(self._of_length(length), header[_LENGTH.size :]):
            raise UnreachableError("a frame was altered, repeated or left out on its way")
        (count,) = _LENGTH.unpack(length)
        return int(count)

    def unseal(self, body: bytes, proof: bytes) -> bytes:
        """Return the body of the next frame, and count it; raises `UnreachableError`."""
        if not hmac.compare_digest(self._of_body(body), proof):
            raise UnreachableError("a frame was altered on its way")
        self._number += 1
        return body

    def _of_length(self, length: bytes) -> bytes:
        said = b"length" + _NUMBER.pack(self._number) + length
        return hmac.digest(self._key, said, "sha256")[: HEADER_BYTES - _LENGTH.size]

    def _of_body(self, body: bytes) -> bytes:
        return hmac.digest(self._key, b"body" + _NUMBER.pack(self._number) + body, "sha256")
