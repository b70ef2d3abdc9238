"""A single file in a ``multipart/form-data`` body (RFC 7578), as it arrives.

Any other part is refused, so nothing but the file is kept in memory: at most a delimiter's length
of it, and the head of the part. Starlette's own parser needs a further library, and writes each
part to a file before anybody can refuse it.
"""

from __future__ import annotations

import enum
import re

from understudy.errors import UsageError

HEAD_BYTES_MAX = 8_192
"""Most bytes before the file, and after it; a head of ours has two hundred."""

KIND = "multipart/form-data"

_BOUNDARY = re.compile(r";\s*boundary=(?:\"([^\"]{1,70})\"|([^\s\";,]{1,70}))\s*(?:;|$)", re.I)
_FILE_NAME = re.compile(r";\s*filename=(?:\"([^\"\\]*)\"|([^\s\";]+))\s*(?:;|$)", re.I)

_WANTED = "send one file: curl -F file=@app.py"


class _Place(enum.Enum):
    """What comes next in the body."""

    BEFORE = "before the part"
    MARK = "what follows a boundary"
    HEAD = "the head of the part"
    FILE = "the file"
    END = "after the last boundary"


def boundary_of(content_type: str) -> bytes:
    """Return the boundary in a Content-Type; raises `UsageError`."""
    kind, _, _ = content_type.partition(";")
    found = _BOUNDARY.search(content_type)
    if kind.strip().lower() != KIND or not found or not content_type.isascii():
        raise UsageError(f"Content-Type {content_type[:100]!r} is no {KIND}: {_WANTED}")
    return (found[1] or found[2]).encode()


class OneFile:
    """Takes the pieces of a body, and gives those of the file in it."""

    def __init__(self, boundary: bytes) -> None:
        self.name: str | None = None
        """The file's name, once its head has arrived."""
        self._delimiter = b"\r\n--" + boundary
        self._place = _Place.BEFORE
        self._rest = bytearray(b"\r\n")  # The first boundary may begin the body.
        self._skipped = 0

    @property
    def is_whole(self) -> bool:
        """Return whether the last boundary has arrived."""
        return self._place is _Place.END and self.name is not None

    def feed(self, piece: bytes) -> bytes:
        """Take the next piece; return the bytes of the file in it. Raises `UsageError`."""
        self._rest += piece
        found = bytearray()
        while self._step(found):
            pass
        return bytes(found)

    def _step(self, found: bytearray) -> bool:
        """Take one part of what has arrived; return whether there may be another."""
        match self._place:
            case _Place.BEFORE:
                return self._to_delimiter(None)
            case _Place.FILE:
                return self._to_delimiter(found)
            case _Place.MARK:
                return self._mark()
            case _Place.HEAD:
                return self._head()
            case _Place.END:
                self._skip(len(self._rest))
                return False

    def _to_delimiter(self, found: bytearray | None) -> bool:
        """Take all before the next boundary; keep what may be the beginning of one."""
        at = self._rest.find(self._delimiter)
        size = at if at >= 0 else max(0, len(self._rest) - len(self._delimiter) + 1)
        if found is None:
            self._skip(size)
        else:
            found += self._rest[:size]
            del self._rest[:size]
        if at < 0:
            return False
        del self._rest[: len(self._delimiter)]
        self._place = _Place.MARK
        return True

    def _mark(self) -> bool:
        """Take what follows a boundary: ``--`` at the end, else white space and a line's end."""
        if self._rest[:2] == b"--":
            if self.name is None:
                raise UsageError(f"the body holds no file: {_WANTED}")
            self._place = _Place.END
            return True
        end = self._rest.find(b"\r\n")
        if end < 0:
            if len(self._rest) > HEAD_BYTES_MAX:
                raise UsageError("a boundary of the body does not end its line")
            return False
        if self._rest[:end].strip(b" \t"):
            raise UsageError("a boundary of the body does not end its line")
        if self.name is not None:
            raise UsageError(f"the body holds more than one part: {_WANTED}")
        del self._rest[:end]
        self._place = _Place.HEAD
        return True

    def _head(self) -> bool:
        end = self._rest.find(b"\r\n\r\n")
        if (len(self._rest) if end < 0 else end) > HEAD_BYTES_MAX:
            raise UsageError(f"the head of the part has more than {HEAD_BYTES_MAX:,} bytes")
        if end < 0:
            return False
        first, boundary = self._rest[end + 4 :], self._delimiter[2:]
        if first.startswith(boundary):
            raise UsageError("the file begins with the boundary: readers disagree on what that is")
        if boundary.startswith(first):
            return False
        self.name = _file_name(bytes(self._rest[:end]))
        del self._rest[: end + 4]
        self._place = _Place.FILE
        return True

    def _skip(self, size: int) -> None:
        self._skipped += size
        if self._skipped > HEAD_BYTES_MAX:
            raise UsageError(f"the body has more than {HEAD_BYTES_MAX:,} bytes beside the file")
        del self._rest[:size]


def _file_name(head: bytes) -> str:
    for line in head.decode("latin-1").split("\r\n"):
        key, _, text = line.partition(":")
        if key.strip().lower() != "content-disposition":
            continue
        if text.partition(";")[0].strip().lower() == "form-data" and (
            found := _FILE_NAME.search(text)
        ):
            return found[1] if found[1] is not None else found[2]
    raise UsageError(f"the part has no file name: {_WANTED}")
