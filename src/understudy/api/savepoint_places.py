"""Where savepoints may be written to and removed from over REST: anybody may have asked.

A place is allowed below a directory that the configuration names, whatever links lead to it: local
paths are compared as the system resolves them, URLs by scheme, bucket and each part of the path.
What has several meanings (``..``, also in percent signs, and chains of fsspec) is refused.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import unquote

from understudy.config import Configuration, options
from understudy.errors import UsageError

_LOCAL = {"file", "local"}


@dataclass(frozen=True)
class _Whole:
    """An address in its one spelling."""

    scheme: str
    """Empty for a path of this host."""
    parts: tuple[str, ...]

    def is_below(self, other: _Whole) -> bool:
        """Say whether it lies in another, or is it."""
        return self.scheme == other.scheme and self.parts[: len(other.parts)] == other.parts


@dataclass(frozen=True)
class SavepointPlaces:
    """The directories that REST may write savepoints to and remove them from."""

    allowed: tuple[str, ...] = ()
    checkpoints: str = ""
    """Directory of checkpoints; empty: the HA storage."""

    @classmethod
    def of(cls, configuration: Configuration) -> SavepointPlaces:
        """Return the places that a configuration names."""
        chosen = configuration.find(options.SAVEPOINT_DIR)
        return cls(
            (*configuration.get(options.SAVEPOINT_ALLOWED_DIRS), *([chosen] if chosen else [])),
            configuration.find(options.CHECKPOINTS_DIR) or "",
        )

    def refuse_target(self, path: str) -> None:
        """Raise `UsageError` for a directory in which REST may take no savepoint."""
        asked = _asked(path)
        if not any(asked.is_below(_whole(one)) for one in self.allowed):
            raise self._refused(path, "write savepoints to")

    def refuse_disposal(self, path: str) -> None:
        """Raise `UsageError` for what REST may not remove.

        The directory of checkpoints counts: savepoints made of retained checkpoints lie there.
        """
        asked = _asked(path)
        places = [*self.allowed, *([self.checkpoints] if self.checkpoints else [])]
        if not any(asked != one and asked.is_below(one) for one in map(_whole, places)):
            raise self._refused(path, "remove savepoints from")

    def _refused(self, path: str, what: str) -> UsageError:
        key = options.SAVEPOINT_ALLOWED_DIRS.key
        if not self.allowed:
            return UsageError(
                f"{path}: no directory is configured that REST may {what}: name it in {key}, or "
                "use `understudy savepoint` as the user who runs the cluster"
            )
        return UsageError(
            f"{path}: lies below none of the directories that REST may {what}: add it to {key}, or "
            "use `understudy savepoint` as the user who runs the cluster"
        )


def _asked(address: str) -> _Whole:
    """Return what a request names; raises `UsageError` for what has several meanings."""
    if not address.startswith("/") and "://" not in address:
        raise UsageError(f"{address}: give an absolute path or a URL for the savepoint")
    if ".." in unquote(address).replace("\\", "/").split("/") or "::" in address:
        raise UsageError(f"{address}: give it without '..' and '::'")
    return _whole(address)


def _whole(address: str) -> _Whole:
    """Return an address without links and detours."""
    scheme, separator, path = address.partition("://")
    scheme, path = (scheme.lower(), path) if separator else ("", address)
    if scheme and scheme not in _LOCAL:
        return _Whole(scheme, tuple(path.rstrip("/").split("/")))
    return _Whole("", tuple(os.path.realpath(path).rstrip("/").split("/")))
