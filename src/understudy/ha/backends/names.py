"""Keys as names of files and nodes: whatever a key is, its name is no path and not hidden."""

from __future__ import annotations

from urllib.parse import quote, unquote


def quoted(key: str) -> str:
    """Return the name of a key: without slashes, and without dots, which lead elsewhere."""
    return quote(key, safe="").replace(".", "%2E")


def unquoted(name: str) -> str:
    """Return the key of a name."""
    return unquote(name)
