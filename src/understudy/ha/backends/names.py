"""Names of files and nodes for keys: a name is never a path and never hidden."""

from __future__ import annotations

from urllib.parse import quote, unquote


def quoted(key: str) -> str:
    """Return the name of a key, without slashes and dots: ``..`` would leave the directory."""
    return quote(key, safe="").replace(".", "%2E")


def unquoted(name: str) -> str:
    """Return the key of a name."""
    return unquote(name)
