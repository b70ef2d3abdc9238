"""conf/masters and conf/workers: the hosts of a cluster's processes.

The files lie beside config.yaml and have Flink's format: one host per line, in masters with an
optional REST port; a repeated host runs several processes. A missing file means one process on
this host.
"""

from __future__ import annotations

import functools
import ipaddress
import re
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from understudy.config import Configuration, options
from understudy.config.configuration import quoted
from understudy.config.security import is_everywhere, is_loopback
from understudy.errors import UsageError

MASTERS = "masters"
WORKERS = "workers"

LINES_MAX = 1_000
"""More processes of one role than a cluster can use."""

LOCALHOST = "localhost"

_NAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")


@dataclass(frozen=True)
class Member:
    """A process listed in one of the files."""

    role: str
    host: str
    number: int
    """Number of this process among those of its role on its host, from 1."""
    port: int | None = None
    """REST port; None: as configured."""

    def __str__(self) -> str:
        """Return role, number and host."""
        return f"{self.role} {self.number} on {self.host}"


def read_masters(directory: Path | None) -> list[Member]:
    """Return the JobManagers listed in ``masters``. Raises `UsageError`."""
    found: list[Member] = []
    for place, line in _lines(directory, MASTERS):
        host, port = _address(place, line)
        if port is not None and any((one.host, one.port) == (host, port) for one in found):
            raise UsageError(f"{place}: {line} is there twice: each JobManager needs its own port")
        found.append(_next("jobmanager", host, found, port))
    return found


def read_workers(directory: Path | None) -> list[Member]:
    """Return the TaskManagers listed in ``workers``. Raises `UsageError`."""
    found: list[Member] = []
    for place, line in _lines(directory, WORKERS):
        found.append(_next("taskmanager", _checked(place, line), found, None))
    return found


@functools.cache
def is_this_host(host: str) -> bool:
    """Return whether a name or address belongs to this host.

    The result is cached: a failing lookup may take seconds.
    """
    if is_loopback(host) or host.lower() == socket.gethostname().lower():
        return True
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False  # Perhaps only the host itself knows this name: not ours.
    return any(_is_ours(family, address) for family, _, _, _, address in found)


def reachable_as(
    host: str | None, port: int | None, overrides: Iterable[str] | None
) -> dict[str, str]:
    """Return the settings of a JobManager that others reach as ``host``.

    Keys in ``overrides``, each ``key=value``, are left out. Without a host, the JobManager serves
    its own host only.
    """
    said = {one.partition("=")[0].strip() for one in overrides or ()}
    settings: dict[str, str] = {}
    if host is not None:
        settings |= dict.fromkeys(
            (
                options.BIND_HOST.key,
                options.RPC_ADDRESS.key,
                options.REST_ADDRESS.key,
                options.REST_BIND_ADDRESS.key,
            ),
            host,
        )
    if port is not None:
        settings[options.REST_BIND_PORT.key] = str(port)
    return {key: text for key, text in settings.items() if key not in said}


def shown_as(
    host: str | None, configuration: Configuration, overrides: Iterable[str] | None
) -> dict[str, str]:
    """Return the settings of a TaskManager whose host others call ``host``.

    Keys in ``overrides``, each ``key=value``, are left out; so is the bind address for metrics if
    configured already. Metrics are open to other hosts only if a secret protects them.
    """
    if host is None:
        return {}
    settings: dict[str, str] = {}
    if options.TASKMANAGER_HOST.key not in {
        one.partition("=")[0].strip() for one in overrides or ()
    }:
        settings[options.TASKMANAGER_HOST.key] = host
    said = options.TASKMANAGER_BIND_HOST.key in configuration.settings
    if configuration.find(options.SECRET_FILE) and not said and not is_loopback(host):
        settings[options.TASKMANAGER_BIND_HOST.key] = host
    return settings


def check_host(host: str) -> str:
    """Return a host's name or address without brackets. Raises ``ValueError`` if invalid."""
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if is_everywhere(bare):
        raise ValueError(
            "this is every address of a host, not one that others reach: name one that they do; "
            f"{options.BIND_HOST.key}, {options.REST_BIND_ADDRESS.key} and "
            f"{options.TASKMANAGER_BIND_HOST.key} take it"
        )
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        if bare != host or not _NAME.fullmatch(host):
            raise ValueError("expected the name or the address of a host") from None
    return host


def _is_ours(family: int, address: tuple[object, ...]) -> bool:
    """Return whether an address is this host's: only own addresses can be bound."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address[0], 0, *address[2:]))
    except OSError:
        return False
    return True


def _lines(directory: Path | None, name: str) -> Iterator[tuple[str, str]]:
    """Yield the place, for messages, and the content of each line."""
    path = None if directory is None else directory / name
    try:
        text = f"{LOCALHOST}\n" if path is None else path.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = f"{LOCALHOST}\n"
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not text in UTF-8") from error
    count = 0
    for number, line in enumerate(text.splitlines(), start=1):
        said = re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip()
        if not said:
            continue
        count += 1
        if count > LINES_MAX:
            raise UsageError(f"{path}: line {number}: more than {LINES_MAX:,} hosts")
        yield f"{path}: line {number}", said
    if not count:
        raise UsageError(f"{path}: names no host: write one on each line, or remove the file")


def _address(place: str, line: str) -> tuple[str, int | None]:
    """Split ``host``, ``host:port``, ``[v6]:port`` or a bare IPv6 address."""
    host, colon, port = line.rpartition(":")
    if not colon or line.endswith("]") or (":" in host and not host.endswith("]")):
        return _checked(place, line), None
    if not port.isascii() or not port.isdigit() or not 1 <= int(port[:6]) <= 65535:
        raise UsageError(f"{place}: {quoted(line)}: expected host or host:port, port 1 to 65535")
    return _checked(place, host), int(port)


def _checked(place: str, host: str) -> str:
    try:
        return check_host(host)
    except ValueError as error:
        hint = "; for several processes, repeat the line" if " " in host else ""
        if "@" in host:
            hint = f"; name the user in {options.SSH_OPTIONS.key}, as '-l USER'"
        raise UsageError(f"{place}: {quoted(host)}: {error}{hint}") from None


def _next(role: str, host: str, found: list[Member], port: int | None) -> Member:
    before = Counter(one.host for one in found)
    return Member(role, host, before[host] + 1, port)
