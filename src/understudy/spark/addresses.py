"""Chooses the address of this host that a driver gives to its executors.

This module imports nothing of Spark.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Iterator, Mapping

LOOPBACK = "127.0.0.1"

OUTSIDE = ("192.0.2.1", 9)
"""A reserved address that nobody has: the route to it is the default route out of this host."""

CHOSEN_BY_USER = ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME")
"""Environment variables with which the user sets this host's address for Spark."""

Route = Callable[[str, int], str | None]
"""Returns the source address of packets to a host and port; None without a route."""

_PORTS = {"spark": 7077, "k8s": 443}


def route(host: str, port: int) -> str | None:
    """Return the kernel's source address for packets to a host; nothing is sent."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return None
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as line:
                line.connect(address)
                return str(line.getsockname()[0]).partition("%")[0]
        except OSError:
            continue
    return None


def is_local(master: str) -> bool:
    """Return whether a master has no executors outside its driver's JVM."""
    return master == "local" or master.startswith("local[")


def advertised(master: str, way: Route = route) -> str | None:
    """Return the address under which executors reach a driver; None if Spark chooses.

    With several masters, one on another host decides, as executors may be on other hosts, too.
    """
    if master.startswith("local"):
        return LOOPBACK
    ways = [way(*target) for target in _masters(master) or [OUTSIDE]]
    found = [address for address in ways if address]
    outward = [address for address in found if not _is_loopback(address)]
    return next(iter(outward or found), None)


def on_this_host(master: str, way: Route = route) -> bool:
    """Return whether the master's cluster is confined to this host."""
    if master.startswith("local"):
        return True
    targets = list(_masters(master))
    return bool(targets) and all(_is_loopback(way(*target) or "") for target in targets)


def address_settings(
    conf: Mapping[str, str], environment: Mapping[str, str], way: Route = route
) -> dict[str, str]:
    """Return the settings with which executors reach a driver; the user's settings stay."""
    master = conf.get("spark.master", "local")
    if is_local(master):
        defaults = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    elif any(environment.get(name) for name in CHOSEN_BY_USER):
        return {}
    else:
        # Spark would resolve the address to a name that other hosts may not know.
        address = advertised(master, way)
        defaults = {"spark.driver.host": address} if address else {}
    return {key: value for key, value in defaults.items() if key not in conf}


def _masters(master: str) -> list[tuple[str, int]]:
    """Return the hosts and ports that a master's URL names."""
    scheme, _, rest = master.partition("://")
    if scheme not in _PORTS:
        return []
    if scheme == "k8s":
        rest = rest.partition("://")[2] or rest
    return [*_parsed(rest.partition("/")[0], _PORTS[scheme])]


def _parsed(places: str, port: int) -> Iterator[tuple[str, int]]:
    for place in places.split(","):
        if found := re.fullmatch(r"(?:\[([^]]+)\]|([^:]+))(?::(\d+))?", place.strip()):
            yield found[1] or found[2], int(found[3] or port)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
