"""Addresses of links over TCP: their text form, and the listening sockets."""

from __future__ import annotations

import errno
import socket
from urllib.parse import urlsplit

from understudy.errors import ConfigurationError, UnreachableError

SCHEME = "tcp://"

BACKLOG = 128


def address_at(host: str, port: int) -> str:
    """Return the address of a link."""
    return f"{SCHEME}{bracketed(host)}:{port}"


def bracketed(host: str) -> str:
    """Return a host as written in an address: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def bind(host: str, ports: tuple[int, ...], keys: tuple[str, str]) -> socket.socket:
    """Return a socket that listens at the first free port, or raise `ConfigurationError`.

    ``keys``: the option names of host and ports, for errors.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"{keys[0]} is {host!r}: not known here ({error})") from error
    elsewhere = 0
    for port in ports:
        for family, *_, address in found:
            listening = socket.socket(family, socket.SOCK_STREAM)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listening.bind((address[0], port, *address[2:]))
                listening.listen(BACKLOG)
            except OSError as error:
                listening.close()
                elsewhere += error.errno == errno.EADDRNOTAVAIL
                continue
            listening.setblocking(False)
            return listening
    if elsewhere:
        raise ConfigurationError(f"{keys[0]} is {host!r}, which is no address of this host")
    raise ConfigurationError(
        f"{keys[1]}: none of {ports[0]}-{ports[-1]} on {host} is free: give others"
    )


def host_and_port(address: str) -> tuple[str, int]:
    """Return the host and port of an address; raises `UnreachableError` for an invalid one."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port or not address.startswith(SCHEME):
        raise UnreachableError("no address of a link over TCP")
    return host, port
