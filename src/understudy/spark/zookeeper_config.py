"""Reads the parts of a ``zoo.cfg`` that Understudy needs: data directory, addresses, members.

ZooKeeper itself reads and validates the whole file. Relative paths in the file are relative to the
file's directory, in which we start the server.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from understudy.config.configuration import state_home
from understudy.errors import ConfigurationError

DEFAULT_PORT = 2181
LOOPBACK = "127.0.0.1"
EVERYWHERE = frozenset({"", "*", "0.0.0.0", "::"})  # noqa: S104 -- to recognise it, not to bind it

ID_MAX = 255
"""ZooKeeper's own limit: the first byte of a session id is the server's id."""

MEMBER = re.compile(
    r"(?P<host>\[[^\]]+\]|[^:;|\s]+):(?P<quorum>\d+):(?P<election>\d+)(?::\w+)?"
    r"(?:\|[^;]*)?(?:;(?P<client>\S+))?"
)


@dataclass(frozen=True)
class Address:
    """A host, or an address that a server binds, and a port."""

    host: str
    port: int

    @property
    def asked(self) -> str:
        """Return the host under which clients on this machine connect."""
        return LOOPBACK if self.host in EVERYWHERE else self.host

    def __str__(self) -> str:
        host = f"[{self.asked}]" if ":" in self.asked else self.asked
        return f"{host}:{self.port}"


@dataclass(frozen=True)
class QuorumMember:
    """A member of the quorum, from its ``server.N`` line."""

    host: str
    quorum_port: int
    election_port: int
    client: Address | None
    """The address for clients, if the line contains one."""


@dataclass(frozen=True)
class ServerConfig:
    """One server's configuration from a file."""

    file: Path
    data_dir: Path
    client: Address | None
    """The address for clients; None if they connect with TLS only."""

    secure: Address | None
    members: dict[int, QuorumMember] = field(default_factory=dict)
    my_id: int | None = None
    """This server's member number; None for a standalone server."""

    @property
    def has_quorum(self) -> bool:
        """Return whether the server is one of several; one ``server.N`` line makes no quorum."""
        return len(self.members) > 1

    @property
    def address(self) -> Address:
        """Return the address at which the server answers clients."""
        address = self.client or self.secure
        assert address is not None, "checked when the file was read"
        return address

    @property
    def quorum(self) -> str:
        """Return the connection string for clients: all members whose client ports are known.

        A member's line may contain the port, else ``clientPort`` applies to all members, which is
        possible only if no two of them share a host.
        """
        shared = len({member.host for member in self.members.values()}) < len(self.members)
        found = []
        for number, member in sorted(self.members.items()):
            if member.client is not None:
                host = member.host if member.client.host in EVERYWHERE else member.client.host
                found.append(Address(host, member.client.port))
            elif not shared or number == self.my_id:
                found.append(Address(member.host, self.address.port))
        return ",".join(map(str, found if self.has_quorum else [self.address]))


def read_config(
    file: Path, my_id: int | None = None, is_here: Callable[[str], bool] = lambda host: False
) -> ServerConfig:
    """Read a ``zoo.cfg``, and this member's number from the file ``myid``, else the argument.

    Without either, it is the only member whose host ``is_here``.

    Raises `ConfigurationError` that names the file and the error.
    """
    file = file.absolute()
    pairs = _properties(file)
    if "dynamicConfigFile" in pairs:
        pairs |= _properties(file.parent / pairs["dynamicConfigFile"])
    if not pairs.get("dataDir"):
        raise ConfigurationError(f"{file}: dataDir is missing: where does the server keep its data")
    words = {word.strip() for word in pairs.get("4lw.commands.whitelist", "srvr").split(",")}
    if not words & {"srvr", "*"}:
        raise ConfigurationError(
            f"{file}: 4lw.commands.whitelist must name srvr, which tells whether the server serves"
        )
    data_dir = file.parent / pairs["dataDir"]
    members = {
        _number(file, "a member's number", key.removeprefix("server."), ID_MAX): _member(
            file, key, value
        )
        for key, value in pairs.items()
        if key.startswith("server.")
    }
    if len(members) > 1:
        my_id = _my_id(file, data_dir, members, my_id, is_here)
    elif my_id is not None:
        raise ConfigurationError(
            f"--myid {my_id}: {file} names no members; a quorum has a line "
            "server.N=HOST:2888:3888 for each"
        )
    own = members[my_id].client if my_id is not None else None
    client = own or _address(file, pairs, "clientPort")
    secure = _address(file, pairs, "secureClientPort")
    if client is None and secure is None:
        raise ConfigurationError(f"{file}: clientPort is missing: where do clients connect")
    return ServerConfig(file, data_dir, client, secure, members, my_id)


def default_directory() -> Path:
    """Return the directory of the server that has no ``zoo.cfg`` of the user's."""
    return state_home() / "zookeeper"


def default_server(directory: Path) -> ServerConfig:
    """Return the parsed form of `default_config`, which need not be written yet."""
    return ServerConfig(
        directory / "zoo.cfg", directory / "data", Address(LOOPBACK, DEFAULT_PORT), None
    )


def default_config(directory: Path) -> str:
    """Return a ``zoo.cfg`` for one server that only this machine reaches."""
    server = default_server(directory)
    return (
        "# Written once by `understudy zookeeper start`; yours to change.\n"
        f"dataDir={server.data_dir}\n"
        f"clientPort={server.address.port}\n"
        f"clientPortAddress={server.address.host}\n"
        "# Sessions of 2 s to a minute are granted; a tick is in milliseconds.\n"
        "tickTime=1000\n"
        "minSessionTimeout=2000\n"
        "maxSessionTimeout=60000\n"
        "# All clients come from one address here: they are not counted.\n"
        "maxClientCnxns=0\n"
        "# Old snapshots and logs go, each hour.\n"
        "autopurge.snapRetainCount=3\n"
        "autopurge.purgeInterval=1\n"
        "admin.enableServer=false\n"
    )


def _properties(file: Path) -> dict[str, str]:
    """Read a file of Java properties."""
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise ConfigurationError(f"{file}: cannot be read: {why}") from error
    found = {}
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if not line.strip() or line.lstrip()[0] in "#!":
            continue
        parts = re.fullmatch(r"\s*([^=:\s]+)(?:\s*[=:]|\s)\s*(.*?)\s*", line)
        if parts is None:
            raise ConfigurationError(f"{file}: {line.strip()!r}: expected key=value")
        found[parts[1]] = parts[2]
    return found


def _number(file: Path, name: str, text: str, most: int) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > most:
        raise ConfigurationError(f"{file}: {name} is {text!r}: expected a number up to {most}")
    return int(text)


def _address(file: Path, pairs: dict[str, str], key: str) -> Address | None:
    """Return the address made of a port's key and the matching ``…Address`` key."""
    if not pairs.get(key):
        return None
    host = pairs.get(f"{key}Address", "").strip("[]")
    return Address(host, _number(file, key, pairs[key], 65_535))


def _member(file: Path, key: str, value: str) -> QuorumMember:
    parts = MEMBER.fullmatch(value)
    if parts is None:
        raise ConfigurationError(
            f"{file}: {key}={value}: expected HOST:PORT:PORT, for the quorum and for its elections"
        )
    client = None
    if parts["client"]:
        host, _, port = parts["client"].rpartition(":")
        client = Address(host.strip("[]"), _number(file, key, port, 65_535))
    return QuorumMember(
        parts["host"].strip("[]"), int(parts["quorum"]), int(parts["election"]), client
    )


def _my_id(
    file: Path,
    data_dir: Path,
    members: dict[int, QuorumMember],
    wanted: int | None,
    is_here: Callable[[str], bool],
) -> int:
    """Return this member's number from ``myid``, which an argument must not contradict."""
    place = data_dir / "myid"
    known = ", ".join(map(str, sorted(members)))
    try:
        found: int | None = _number(place, "the member's number", place.read_text().strip(), ID_MAX)
    except FileNotFoundError:
        found = None
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise ConfigurationError(f"{place}: cannot be read: {why}") from error
    if found is None and wanted is None:
        here = [number for number, member in members.items() if is_here(member.host)]
        if len(here) != 1:
            raise ConfigurationError(
                f"{file} names the members {known}, {len(here)} of them on this host, and {place} "
                "is missing: which of them is this one? Say --myid N"
            )
        wanted = here[0]
    if found is not None and wanted not in {None, found}:
        raise ConfigurationError(
            f"--myid {wanted}: {place} says that this is member {found}; the data of a member "
            "cannot become another's"
        )
    mine = wanted if found is None else found
    assert mine is not None
    if mine not in members:
        raise ConfigurationError(f"member {mine} has no line in {file}: the members are {known}")
    return mine
