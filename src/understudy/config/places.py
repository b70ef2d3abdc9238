"""Parsing of ``Host`` headers into hosts and ports, with one spelling for each host."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(:(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True)
class HostPort:
    """A host and its port; None if no port is given."""

    host: str
    port: int | None


def place_of(text: str) -> HostPort | None:
    """Parse a host with or without a port; return None if the text is not a host."""
    found = _HOST.fullmatch(text.strip())
    if found is None:
        return None
    port = int(found["port"]) if found["port"] else None
    return HostPort(spelled(found["host"].strip("[]")), port)


def spelled(host: str) -> str:
    """Return a name or address in the normalised spelling in which hosts are compared."""
    name = host.lower().removesuffix(".")
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name
    return str(getattr(address, "ipv4_mapped", None) or address)
