"""Hosts of a test: network namespaces joined by a bridge, and network faults between them.

Needs root and iproute2; `unavailable` names what is missing. The hosts use no ARP: each knows the
others' hardware addresses from the start. To lose packets in one direction, the sender gets an
address that no host has. The bridge then drops them silently, in this direction only, for existing
and new connections.

The test itself is a host too (`OUTSIDE`): it reaches all others, even hosts that are cut off from
each other. There is no route from a host to the rest of the world.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import ipaddress
import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

OUTSIDE = "outside"
HUB = "hub"
OUTSIDE_NUMBER = 254
VOID = "02:00:00:00:00:00"
PORT_NAME_BYTES_MAX = 15
PATIENCE_S = 20.0
CLONE_NEWNET = 0x40000000

NAME = re.compile(r"us-(\d+)-\d+-[\w-]+")

_counter = itertools.count()


class Network:
    """Hosts that reach each other at 10.x.y.z; removed at the end with all their processes."""

    def __init__(self, hosts: Sequence[str]) -> None:
        assert OUTSIDE not in hosts, "the test is there by itself"
        assert HUB not in hosts, "the bridge has this name"
        assert all(len(host) <= PORT_NAME_BYTES_MAX for host in hosts), "the kernel's bound"
        self.hosts = (*hosts,)
        self._numbers = {**{host: n for n, host in enumerate(hosts, 1)}, OUTSIDE: OUTSIDE_NUMBER}
        self._mark = f"us-{os.getpid()}-{next(_counter)}"
        self._link = self._mark.replace("-", "")
        self._lost: set[tuple[str, str]] = set()
        self._net = ""

    def __enter__(self) -> Network:
        sweep()
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def address(self, host: str) -> str:
        """Return the address of a host."""
        return f"{self._net}.{self._numbers[host]}"

    def prefix(self, host: str) -> list[str]:
        """Return the prefix of a command line that runs on a host."""
        return [] if host == OUTSIDE else ["ip", "netns", "exec", self._namespace(host)]

    @contextlib.contextmanager
    def entered(self, host: str) -> Iterator[None]:
        """Have this thread, and each thread it starts in the block, open sockets on a host.

        A socket stays on the host where it was opened.
        """
        with (
            open("/proc/thread-self/ns/net", "rb") as home,
            open(f"/run/netns/{self._namespace(host)}", "rb") as there,
        ):
            _setns(there.fileno())
            try:
                yield
            finally:
                _setns(home.fileno())

    def one_way(self, sender: str, receiver: str) -> None:
        """Lose all packets from one host to another; the other direction stays."""
        self._teach(sender, receiver, VOID)
        self._lost.add((sender, receiver))

    def partition(self, some: str | Iterable[str], others: str | Iterable[str]) -> None:
        """Lose everything between some hosts and others, in both directions."""
        left = [some] if isinstance(some, str) else [*some]
        right = [others] if isinstance(others, str) else [*others]
        for one, another in itertools.product(left, right):
            self.one_way(one, another)
            self.one_way(another, one)

    def isolate(self, host: str) -> None:
        """Cut a host off from all others; the test itself still reaches it."""
        self.partition(host, [other for other in self.hosts if other != host])

    def heal(self) -> None:
        """End all packet loss."""
        for sender, receiver in sorted(self._lost):
            self._teach(sender, receiver, self._hardware(receiver))
        self._lost.clear()

    def reset(self, host: str, other: str) -> int:
        """Reset all connections between two hosts; return how many there were.

        Both ends get an error at once. See `no_resets` for the requirements.
        """
        done = _run([*self.prefix(host), "ss", "-HKtn", "dst", self.address(other)])
        return len(done.splitlines())

    def close(self) -> None:
        """Kill all processes on the hosts, and remove the hosts."""
        _remove([self._namespace(name) for name in (*self.hosts, HUB)])
        subprocess.run(
            ["ip", "link", "delete", "dev", self._link], capture_output=True, check=False
        )

    def _build(self) -> None:
        self._net = _free_net()
        namespaces = {host: self._namespace(host) for host in self.hosts}
        hub = self._namespace(HUB)
        _ip(
            f"netns add {hub}",
            *(f"netns add {name}" for name in namespaces.values()),
            *(
                f"link add name {host} netns {hub} type veth peer name eth0 "
                f"address {self._hardware(host)} netns {name}"
                for host, name in namespaces.items()
            ),
            f"link add name {self._link} address {self._hardware(OUTSIDE)} type veth "
            f"peer name {OUTSIDE} netns {hub}",
            f"addr add {self.address(OUTSIDE)}/24 dev {self._link}",
            f"link set dev {self._link} up",
        )
        _ip(
            "link add name bridge type bridge",
            "link set dev bridge up",
            *(f"link set dev {port} master bridge up" for port in (*self.hosts, OUTSIDE)),
            namespace=hub,
        )
        for host, name in namespaces.items():
            _ip(
                "link set lo up",
                f"addr add {self.address(host)}/24 dev eth0",
                "link set eth0 up",
                namespace=name,
            )
        for host, other in itertools.permutations((*self.hosts, OUTSIDE), 2):
            self._teach(host, other, self._hardware(other))

    def _namespace(self, host: str) -> str:
        return f"{self._mark}-{host}"

    def _hardware(self, host: str) -> str:
        """Return a host's hardware address, unique among all networks and real devices."""
        return f"02:{':'.join(f'{int(part):02x}' for part in self.address(host).split('.'))}:01"

    def _teach(self, host: str, other: str, hardware: str) -> None:
        device = self._link if host == OUTSIDE else "eth0"
        _ip(
            f"neigh replace {self.address(other)} lladdr {hardware} dev {device} nud permanent",
            namespace=None if host == OUTSIDE else self._namespace(host),
        )


@functools.cache
def unavailable() -> str:
    """Return why namespaces do not work here; empty if they do."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need iproute2 (ip)"
    try:
        with Network(["one", "two"]):
            return ""
    except AssertionError as error:
        return f"network namespaces do not work here: {error}"


def available() -> bool:
    """Return whether namespaces work here."""
    return not unavailable()


@functools.cache
def no_resets() -> str:
    """Return why connections cannot be reset here; empty if they can."""
    if why := unavailable():
        return why
    if shutil.which("ss") is None:
        return "resetting connections needs ss of iproute2"
    with Network(["one", "two"]) as network, network.entered("one"):
        server = socket.create_server((network.address("one"), 0))
        with server, socket.create_connection(server.getsockname()):
            if network.reset("one", "one"):
                return ""
    return "resetting connections needs a kernel with CONFIG_INET_DIAG_DESTROY, for ss -K"


def sweep() -> None:
    """Remove the namespaces of tests that were killed."""
    found = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False)
    names = [line.split()[0] for line in found.stdout.splitlines() if line.strip()]
    left = [
        name
        for name in names
        if (parts := NAME.fullmatch(name)) and not Path(f"/proc/{parts[1]}").exists()
    ]
    _remove(left)


def _remove(names: Iterable[str]) -> None:
    """Remove namespaces and their processes; absent ones are fine."""
    names = [name for name in names if Path(f"/run/netns/{name}").exists()]
    until = time.monotonic() + PATIENCE_S
    while pids := [pid for name in names for pid in _run(["ip", "netns", "pids", name]).split()]:
        assert time.monotonic() < until, f"processes {pids} do not die"
        for pid in map(int, pids):
            assert pid != os.getpid(), "this process is still on a host"
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    for name in names:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _free_net() -> str:
    """Return the prefix of a network 10.x.y.0/24 without a route on this machine."""
    taken = [
        ipaddress.ip_network(word, strict=False)
        for word in re.findall(
            r"(?m)^(?:\w+ )?(\d+\.\d+\.\d+\.\d+(?:/\d+)?)", _run(["ip", "route"])
        )
    ]
    for step in range(1 << 14):
        high, low = divmod((os.getpid() + step * 7) % (1 << 14), 256)
        net = f"10.{64 + high}.{low}"
        if not any(ipaddress.ip_network(f"{net}.0/24").overlaps(one) for one in taken):
            return net
    raise AssertionError("all of 10.64.0.0/10 is taken")


def _ip(*commands: str, namespace: str | None = None) -> None:
    """Run several commands of ``ip`` in one process."""
    line = ["ip", *(["-n", namespace] if namespace else []), "-batch", "-"]
    _run(line, "\n".join(commands) + "\n")


def _run(line: list[str], given: str = "") -> str:
    done = subprocess.run(
        line, input=given, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, f"{' '.join(line)}: {done.stderr.strip()}"
    return done.stdout


def _setns(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
