"""conf/masters and conf/workers: on which hosts the processes of a cluster are to run.

The files lie beside config.yaml and have Flink's format: a host a line, of masters with the port of
its REST endpoint if that is to be a certain one; a host that is repeated has several processes.
Where a file is missing, its one host is this one.
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
"""More processes of one kind than one cluster has a use for."""

LOCALHOST = "localhost"

_NAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")


@dataclass(frozen=True)
class Member:
    """One process that a file asks for."""

    role: str
    host: str
    number: int
    """Counts the processes of this role on this host, from 1."""
    port: int | None = None
    """Where its REST endpoint is to be; None: wherever the configuration says."""

    def __str__(self) -> str:
        """Say which one it is."""
        return f"{self.role} {self.number} on {self.host}"


def read_masters(directory: Path | None) -> list[Member]:
    """Return the JobManagers that ``masters`` asks for; raises `UsageError`."""
    found: list[Member] = []
    for place, line in _lines(directory, MASTERS):
        host, port = _address(place, line)
        if port is not None and any((one.host, one.port) == (host, port) for one in found):
            raise UsageError(f"{place}: {line} is there twice: each JobManager needs its own port")
        found.append(_next("jobmanager", host, found, port))
    return found


def read_workers(directory: Path | None) -> list[Member]:
    """Return the TaskManagers that ``workers`` asks for; raises `UsageError`."""
    found: list[Member] = []
    for place, line in _lines(directory, WORKERS):
        found.append(_next("taskmanager", _checked(place, line), found, None))
    return found


@functools.cache
def is_this_host(host: str) -> bool:
    """Say whether a name or address is that of the host that this process runs on.

    A name is looked up once: where nothing answers that may take seconds.
    """
    if is_loopback(host) or host.lower() == socket.gethostname().lower():
        return True
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False  # Only its own host may know this name; it is not ours.
    return any(_is_ours(family, address) for family, _, _, _, address in found)


def reachable_as(
    host: str | None, port: int | None, overrides: Iterable[str] | None
) -> dict[str, str]:
    """Return the settings of a JobManager that others reach as ``host``.

    What the ``overrides`` say, ``key=value`` each, stays as it is. Without a host it serves its
    own host only.
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

    What the ``overrides`` say, ``key=value`` each, stays as it is; so does, wherever it is said,
    where metrics are served. Others may scrape them there only if they have to show a token.
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
    """Return a host's name or address without brackets; raises ``ValueError`` for what is none."""
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
    """Say whether an address is this host's: nobody can bind another one."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address[0], 0, *address[2:]))
    except OSError:
        return False
    return True


def _lines(directory: Path | None, name: str) -> Iterator[tuple[str, str]]:
    """Yield what stands on each line, with its place for messages."""
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
