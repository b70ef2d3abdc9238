"""Who asks at a REST endpoint: the bearer tokens that are accepted, and the role of each.

The cluster's own token (see `authentication`) is an admin's. Further tokens are in files of lines,
a name and a token each, which are read again once they change: a token is added, replaced or
withdrawn without a restart. A file that cannot be used lets nobody in.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import hashlib
import hmac
import logging
import re
import time
from dataclasses import dataclass, field
from pathlib import Path

from understudy.errors import ConfigurationError, UsageError
from understudy.rpc.secret import read_private

TOKENS_MAX = 1_000
"""Most tokens of a file; each request looks through all of them."""

AGAIN_S = 1.0
"""How long a file's state counts as known; a change takes effect after this time."""

PATIENCE_S = 2.0
"""Longest wait for a file; until it answers, the last known tokens count."""

TOKEN_CHARS_MIN = 16

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_TOKEN = re.compile(rf"[A-Za-z0-9._~+/-]{{{TOKEN_CHARS_MIN},512}}=*")
"""As RFC 6750 has them."""

_log = logging.getLogger(__name__)


class Role(enum.Enum):
    """What a caller may do."""

    NONE = "none"
    """Nothing."""
    VIEWER = "viewer"
    """Read everything."""
    ADMIN = "admin"
    """Change everything, too."""


@dataclass(frozen=True)
class Caller:
    """Who asks."""

    name: str
    role: Role
    is_member: bool = False
    """A process of the cluster, or a command of the user who runs it."""


MEMBER = Caller("cluster", Role.ADMIN, is_member=True)

ANYONE = Caller("anyone", Role.ADMIN)
"""Who asks where no token is needed."""

NOBODY = Caller("nobody", Role.NONE)
"""Who shows no token that is known."""

_OURS = {one.name for one in (MEMBER, ANYONE, NOBODY)}


@dataclass
class TokenFile:
    """A file of tokens of one role."""

    option: str
    """The option that names the file."""
    path: str
    role: Role
    _seen: tuple[int, ...] | None = None
    _known: dict[bytes, Caller] = field(default_factory=dict)
    """By the token's digest, so that no token stays in memory."""
    _complaint: str = ""
    """What was logged last of the file."""

    def read(self) -> None:
        """Read the file if it has changed; raises `ConfigurationError`. Blocking."""
        seen = self._state()
        if seen is not None and seen == self._seen:
            return
        self._known, self._seen = {}, seen
        self._known = self._parsed(read_private(self.option, self.path))

    def refresh(self) -> None:
        """Do the same, and log the error. Blocking."""
        try:
            self.read()
            self._complaint = ""
        except ConfigurationError as error:
            if str(error) != self._complaint:
                _log.warning("nobody is let in by a file of tokens: %s", error)
            self._complaint = str(error)

    def find(self, digest: bytes) -> Caller | None:
        """Return the caller whose token has this digest."""
        found = None
        for known, caller in self._known.items():
            if hmac.compare_digest(known, digest):
                found = caller
        return found

    def _state(self) -> tuple[int, ...] | None:
        with contextlib.suppress(OSError, ValueError):
            found = Path(self.path).stat()
            return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
        return None

    def _parsed(self, content: bytes) -> dict[bytes, Caller]:
        found: dict[bytes, Caller] = {}
        for number, line in enumerate(content.decode("latin-1").splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) != 2 or not is_name(words[0]) or not _TOKEN.fullmatch(words[1]):
                raise ConfigurationError(
                    f"{self.option}: {self.path}: line {number} is not a name and a token of at "
                    f"least {TOKEN_CHARS_MIN} characters: make one with `understudy token --new "
                    "NAME`"
                )
            found[digest_of(words[1].encode())] = Caller(words[0], self.role)
        if len(found) > TOKENS_MAX:
            raise ConfigurationError(
                f"{self.option}: {self.path} holds {len(found):,} tokens: at most {TOKENS_MAX:,} "
                "are taken"
            )
        return found


class Tokens:
    """The tokens that an endpoint accepts."""

    def __init__(self, own: str, files: tuple[TokenFile, ...] = ()) -> None:
        """``own``: the cluster's token."""
        self._own = digest_of(own.encode())
        self._files = files
        self._until = float("-inf")
        self._reading: asyncio.Future[None] | None = None

    async def caller(self, token: bytes) -> Caller:
        """Return whose token this is."""
        digest = digest_of(token)
        if hmac.compare_digest(digest, self._own):
            return MEMBER
        await self._refresh()
        found = [caller for file in self._files if (caller := file.find(digest))]
        # A token that stands in both files is an admin's.
        return max(found, key=lambda caller: caller.role is Role.ADMIN, default=NOBODY)

    async def _refresh(self) -> None:
        """Look once a second whether a file has changed, beside the event loop."""
        if self._reading is None:
            if not self._files or time.monotonic() < self._until:
                return
            self._reading = asyncio.ensure_future(asyncio.to_thread(self._read))
        reading = self._reading
        await asyncio.wait({reading}, timeout=PATIENCE_S)
        if reading.done() and self._reading is reading:
            self._reading, self._until = None, time.monotonic() + AGAIN_S

    def _read(self) -> None:
        for file in self._files:
            file.refresh()


def read_token(option: str, path: str) -> str:
    """Return the token of a file that holds one, alone or behind a name.

    Raises `ConfigurationError`, which names the option and the file, never what it holds.
    """
    words = read_private(option, path).decode("latin-1").split()
    if len(words) not in {1, 2} or not _TOKEN.fullmatch(words[-1]):
        raise ConfigurationError(
            f"{option}: {path}: expected one token, alone or behind a name, as `understudy token "
            "--new NAME` prints it"
        )
    return words[-1]


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a person who has a token."""
    return bool(_NAME.fullmatch(text)) and text not in _OURS


def checked_name(name: str) -> str:
    """Return the name of a caller; raises `UsageError`."""
    if not is_name(name):
        raise UsageError(
            f"{name[:100]!r} is no name: use up to 64 letters, digits, '.', '_', '@' and '-'"
        )
    return name


def digest_of(token: bytes) -> bytes:
    """Return a token's digest."""
    return hashlib.sha256(token).digest()
