"""The format of durable data: JSON with its kind, version and checksum.

``{"format": "job-result", "version": 1, "checksum": "sha256:…", "body": {…}}``

The checksum covers the body without insignificant white space, so a person may indent a file.
Reading never guesses: data that is truncated, altered, of another kind or of a later version
raises an error that names the data, and nothing is changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from understudy.errors import CorruptDataError, ForeignDataError, NewerFormatError

T = TypeVar("T")

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]


def digest(data: bytes) -> str:
    """Return the digest of these bytes: ``sha256:`` and 64 hex digits."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


class _Envelope(msgspec.Struct):
    format: str
    version: int
    checksum: str
    body: msgspec.Raw


class Format(Generic[T]):
    """One kind of durable record: name, version, and the upgrades from older versions."""

    def __init__(
        self,
        name: str,
        type_: type[T],
        version: int = 1,
        upgrades: Mapping[int, Upgrade] | None = None,
    ) -> None:
        self.name = name
        self.version = version
        self._type = type_
        self._upgrades = dict(upgrades or {})

    def dump(self, value: T, *, pretty: bool = False) -> bytes:
        """Return the record as bytes: one line, or indented for files that people read."""
        body = msgspec.json.encode(value)
        envelope = _Envelope(self.name, self.version, digest(body), msgspec.Raw(body))
        data = msgspec.json.encode(envelope)
        return msgspec.json.format(data, indent=2) + b"\n" if pretty else data

    def load(self, data: bytes, source: str) -> T:
        """Read a record; ``source`` names the origin of the bytes in errors.

        Raises `CorruptDataError`, `ForeignDataError` or `NewerFormatError`.
        """
        envelope = self._open(data, source)
        compact = msgspec.json.format(bytes(envelope.body), indent=-1)
        if digest(compact) != envelope.checksum:
            raise CorruptDataError(f"{source}: the checksum does not match the contents")
        try:
            if envelope.version == self.version:
                return msgspec.json.decode(compact, type=self._type)
            body: dict[str, Any] = msgspec.json.decode(compact)
            for version in range(envelope.version, self.version):
                body = self._upgrades[version](body)
            return msgspec.convert(body, self._type)
        except _UNREADABLE as error:
            raise CorruptDataError(f"{source}: not a {self.name}: {error}") from error

    def _open(self, data: bytes, source: str) -> _Envelope:
        try:
            envelope = msgspec.json.decode(data, type=_Envelope)
        except _UNREADABLE as error:
            raise CorruptDataError(f"{source}: not a {self.name}: {error}") from error
        if envelope.format != self.name:
            raise ForeignDataError(f"{source}: a {envelope.format!r}, expected a {self.name!r}")
        if envelope.version > self.version:
            raise NewerFormatError(
                f"{source}: {self.name} of version {envelope.version}, this Understudy reads up to "
                f"{self.version}: use the version that wrote it"
            )
        if envelope.version < 1 or any(
            version not in self._upgrades for version in range(envelope.version, self.version)
        ):
            raise CorruptDataError(f"{source}: no {self.name} of version {envelope.version} exists")
        return envelope
