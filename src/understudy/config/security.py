"""Checks of addresses, secrets and certificates: which settings contradict each other.

A client that reaches a process of the cluster without authentication could run code there. So no
address beyond loopback, and no port for other users of this host, opens without a secret.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from understudy.config import options
from understudy.config.option import Option
from understudy.errors import ConfigurationError

if TYPE_CHECKING:
    from understudy.config.configuration import Configuration

_LOOPBACK_NAMES = {"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"}

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9.])?")
_NUMBER = re.compile(r"(.*\.)?([0-9]+|0[xX][0-9A-Fa-f]*)\.?")
"""Text that the system accepts as an address although it is not one: ``0`` is 0.0.0.0."""

_SHOWN_CHARS_MAX = 80

_PUBLISHED: tuple[tuple[Option[str], Option[str]], ...] = (
    (options.RPC_ADDRESS, options.BIND_HOST),
    (options.REST_ADDRESS, options.REST_BIND_ADDRESS),
    (options.TASKMANAGER_HOST, options.TASKMANAGER_BIND_HOST),
)
"""Pairs of a published address and the address at which the process listens."""

_HOSTS: tuple[Option[str], ...] = (
    options.BIND_HOST,
    options.RPC_ADDRESS,
    options.REST_ADDRESS,
    options.REST_BIND_ADDRESS,
    options.TASKMANAGER_BIND_HOST,
)
_FAMILIES: tuple[tuple[Option[bool], tuple[Option[str], ...], tuple[Option[str], ...]], ...] = (
    (
        options.INTERNAL_SSL,
        (options.INTERNAL_KEYSTORE, options.INTERNAL_TRUSTSTORE),
        (options.INTERNAL_KEY_PASSWORD, options.INTERNAL_FINGERPRINT),
    ),
    (
        options.REST_SSL,
        (options.REST_TRUSTSTORE,),
        (options.REST_KEYSTORE, options.REST_KEY_PASSWORD),
    ),
)
"""The switch of each TLS family, the options that it requires, and its optional ones."""


def check(configuration: Configuration) -> None:
    """Raise `ConfigurationError` for settings that leave an endpoint open or half secured."""
    for option in _HOSTS:
        text = configuration.settings.get(option.key)
        if text is not None:
            _check_host(option, text.strip())
    for name in configuration.get(options.ALLOWED_HOSTS):
        if place_of(name) is None:
            raise ConfigurationError(
                f"{options.ALLOWED_HOSTS.key} holds {name[:_SHOWN_CHARS_MAX]!r}: expected a host's "
                "name or address, alone or with a port, like flights.example:8443 or [2001:db8::1]"
            )
    for published, bound in _PUBLISHED:
        address = configuration.find(published) or ""
        if is_everywhere(address):
            raise ConfigurationError(
                f"{published.key} is {address!r}, which is every address of this host, not one "
                f"that others reach: set it to one that they do; {bound.key} takes {address!r}"
            )
    if not configuration.find(options.SECRET_FILE):
        for option in (options.ADMINS_FILE, options.VIEWERS_FILE):
            if configuration.find(option):
                raise ConfigurationError(
                    f"{option.key} is set, but {options.SECRET_FILE.key} is not: the processes of "
                    "the cluster would have no token; name a file with a secret, too"
                )
        _check_metrics(configuration)
        for option in _without_secret(configuration):
            raise ConfigurationError(
                f"{option.key} is {configuration.get(option)!r}, but {options.SECRET_FILE.key} is "
                "not set: anyone who reaches this address could run code; name a file with a "
                "secret of at least 16 bytes that only you can read"
            )
    for bound, published in (
        (options.BIND_HOST, options.RPC_ADDRESS),
        (options.REST_BIND_ADDRESS, options.REST_ADDRESS),
    ):
        address = configuration.find(bound) or ""
        if is_everywhere(address) and published.key not in configuration.settings:
            raise ConfigurationError(
                f"{bound.key} is {address!r}, which is every address of this host: set "
                f"{published.key} to the one under which others reach it"
            )
    for switch, needed, further in _FAMILIES:
        _check_family(configuration, switch, needed, further)


def is_everywhere(address: str) -> bool:
    """Return whether a listen address stands for all addresses of the host."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return (getattr(found, "ipv4_mapped", None) or found).is_unspecified


def is_loopback(host: str) -> bool:
    """Return whether a name or address is loopback, which other hosts cannot reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() in _LOOPBACK_NAMES


def links_over_tcp(configuration: Configuration) -> bool:
    """Return whether a JobManager with this configuration listens on TCP.

    On loopback only with a secret: a Unix socket reaches as far, and excludes other users.
    Without high availability the other processes derive this too, from the JobManager's address.
    """
    host = configuration.find(options.BIND_HOST)
    if host and (configuration.find(options.SECRET_FILE) or not is_loopback(host)):
        return True
    elsewhere = not is_loopback(configuration.get(options.RPC_ADDRESS))
    return configuration.is_standalone and elsewhere


def _without_secret(configuration: Configuration) -> Iterator[Option[str]]:
    """Yield the options whose values require a secret."""
    if links_over_tcp(configuration):
        bound = configuration.find(options.BIND_HOST)
        yield options.BIND_HOST if bound and not is_loopback(bound) else options.RPC_ADDRESS
    if not is_loopback(configuration.get(options.REST_BIND_ADDRESS)):
        yield options.REST_BIND_ADDRESS
    if configuration.is_standalone and not is_loopback(configuration.get(options.REST_ADDRESS)):
        yield options.REST_ADDRESS


def _check_metrics(configuration: Configuration) -> None:
    host = configuration.get(options.TASKMANAGER_BIND_HOST)
    if options.PROMETHEUS in configuration.get(options.REPORTERS) and not is_loopback(host):
        raise ConfigurationError(
            f"{options.TASKMANAGER_BIND_HOST.key} is {host!r}, where others could read the metrics "
            f"of TaskManagers: set {options.SECRET_FILE.key}, or leave it at 127.0.0.1"
        )


def _check_host(option: Option[str], text: str) -> None:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        if not _HOST.fullmatch(text) or _NUMBER.fullmatch(text):
            raise ConfigurationError(
                f"{option.key} is {text[:_SHOWN_CHARS_MAX]!r}: expected a host's name or its "
                "address, without a port and brackets"
            ) from None


def _check_family(
    configuration: Configuration,
    switch: Option[bool],
    needed: tuple[Option[str], ...],
    further: tuple[Option[str], ...],
) -> None:
    if configuration.get(switch):
        clients = switch is options.REST_SSL and configuration.get(options.REST_CLIENTS)
        for option in (*needed, *((options.REST_KEYSTORE,) if clients else ())):
            if not configuration.find(option):
                raise ConfigurationError(
                    f"{switch.key} is true, but {option.key} is not set: name a PEM file"
                )
        return
    if switch.key in configuration.settings:
        return  # Switched off explicitly: the other options may stay set, as in Flink.
    for option in (*needed, *further):
        if option.key in configuration.settings:
            raise ConfigurationError(
                f"{option.key} is set, but {switch.key} is not: set it to true, or to false to go "
                "without TLS"
            )


# --- the names by which an endpoint may be asked --------------------------------------------------


@dataclass(frozen=True)
class Hosts:
    """Names by which an endpoint may be asked, beside those of loopback."""

    known: frozenset[HostPort] = frozenset()

    @staticmethod
    def of(configuration: Configuration, *names: str) -> Hosts:
        """Return what a configuration allows, and the names that the endpoint publishes."""
        named = [one for one in names if one and not is_everywhere(one)]
        known = {HostPort(spelled(one), None) for one in named}
        further = [place_of(one) for one in configuration.get(options.ALLOWED_HOSTS)]
        return Hosts(frozenset(known | {place for place in further if place}))

    def knows(self, place: HostPort, reached: str) -> bool:
        """Say whether an endpoint at the address that was ``reached`` is called that.

        An address is known where the connection was made to it: no other process can listen there.
        """
        if is_loopback(place.host) or place.host == spelled(reached):
            return True
        return place in self.known or HostPort(place.host, None) in self.known


# --- hosts and ports, in one spelling -------------------------------------------------------------


_PLACE = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(:(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True)
class HostPort:
    """A host and its port; None if no port is given."""

    host: str
    port: int | None


def place_of(text: str) -> HostPort | None:
    """Parse a host with or without a port; return None if the text is not a host."""
    found = _PLACE.fullmatch(text.strip())
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
