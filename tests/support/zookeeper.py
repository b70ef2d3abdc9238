"""Real ZooKeeper servers for tests: started in a second, ended with their parent process."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import pytest

from tests.support.daemons import Daemon, Servers
from tests.support.namespaces import Network
from understudy.process import guardian
from understudy.spark import zookeeper_server
from understudy.spark.java import find_java
from understudy.spark.zookeeper_server import Serving

START_S = 60.0
"""A server starts in a second; a busy machine needs longer."""

ANSWER_S = 5.0
POLL_S = 0.02

_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
PORTS = range(21_000, 31_000)[_WORKER::_WORKERS]
"""Ports below the ephemeral range, so that no client's port blocks a server's restart. Each pytest
process has its own ports."""

_given: deque[int] = deque(maxlen=100)

TRIES = 5
"""Another process may take a free port before the server binds it."""

QUICK_JVM = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")

LOOPBACK = "127.0.0.1"

MEMBERS = ("zk1", "zk2", "zk3")

SYNC_TICKS = 4
"""A leader drops a follower that lags or is silent for so many ticks: 2 s by default."""

_launcher = ThreadPoolExecutor(1, thread_name_prefix="launch")
"""The kernel sends the death signal when the forking *thread* ends; this thread lives as long as
the process."""

_launcher.submit(int).result()  # Now: a thread starts on the present network host of its creator.


class Server(Daemon):
    """A ZooKeeper server with its own data; killed with its parent process.

    ``prefix`` is put before the command line (another network namespace), ``configuration`` is
    added to zoo.cfg. Nothing runs before `start`.
    """

    def __init__(
        self,
        directory: Path,
        host: str = LOOPBACK,
        port: int | None = None,
        *,
        tick_ms: int = 500,
        prefix: Sequence[str] = (),
        fsync: bool = False,
        configuration: str = "",
        member: int | None = None,
    ) -> None:
        super().__init__("ZooKeeper", directory / "log")
        self.directory = directory
        self.host = host
        self.port = port or free_port(host)
        self.member = member
        self._port_is_ours = port is None
        self._tick_ms = tick_ms
        self._prefix = (*prefix,)
        self._fsync = fsync
        self._configuration = configuration

    @property
    def connect_string(self) -> str:
        """Return the connect string for clients."""
        return f"{self.host}:{self.port}"

    def start(self, wait: bool = True) -> Server:
        """Start or restart the server on the same data and port; return when it serves.

        A member of an ensemble serves only with a quorum: start several without ``wait``.
        """
        tries = TRIES if self._port_is_ours and not self.log.exists() else 1
        for left in reversed(range(tries)):
            self.launch()
            if not wait:
                return self
            try:
                self.await_serving()
            except AssertionError:
                if not left or "BindException" not in self.log.read_text():
                    raise
                self.log.unlink()
                self.port = free_port(self.host)
            else:
                return self
        raise AssertionError("unreachable")

    def launch(self) -> None:
        """Start the process without waiting."""
        assert not self.runs, "it runs"
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        if self.member is not None:
            (data / "myid").write_text(f"{self.member}\n")
        zoo = self.directory / "zoo.cfg"
        zoo.write_text(self._zoo_cfg(data))
        logging = self.directory / "log4j2.properties"
        logging.write_text(zookeeper_server.log_to_console())
        options = [*QUICK_JVM, f"-Dzookeeper.forceSync={'yes' if self._fsync else 'no'}"]
        command = zookeeper_server.server_command(find_java(), zoo, logging, options)
        with self.log.open("ab") as log:
            self._process = launch([*self._prefix, *command], log.fileno())

    def await_serving(self, timeout_s: float = START_S) -> Serving:
        """Wait until the server serves; otherwise raise ``AssertionError`` with the log."""
        until = time.monotonic() + timeout_s
        while True:
            if (found := self.serving(timeout_s=1.0)) is not None:
                return found
            if self._process is None or self._process.poll() is not None:
                self._process = None
                raise AssertionError(f"ZooKeeper has ended:\n{self.last_lines()}")
            if time.monotonic() > until:
                raise AssertionError(f"ZooKeeper does not serve:\n{self.last_lines()}")
            time.sleep(POLL_S)

    def serving(self, timeout_s: float = ANSWER_S) -> Serving | None:
        """Return the server's own status; None while it does not serve."""
        found = zookeeper_server.ask_serving(self.host, self.port, timeout_s)
        return found if isinstance(found, Serving) else None

    def ask(self, word: str, timeout_s: float = ANSWER_S) -> str:
        """Return the answer to a four-letter word."""
        return zookeeper_server.ask(self.host, self.port, word, timeout_s)

    def transactions(self) -> int:
        """Return the number of transactions, with those of sessions (two per session).

        In an ensemble the count starts again with each leader.
        """
        return self._must_serve().transactions

    def open_connections(self) -> int:
        """Return the number of connected clients, without this request's connection."""
        return self._must_serve().connections - 1

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _must_serve(self) -> Serving:
        found = self.serving()
        assert found is not None, f"{self.connect_string} does not serve"
        return found

    def _zoo_cfg(self, data: Path) -> str:
        return (
            f"tickTime={self._tick_ms}\n"
            # Session timeouts from two ticks, the server's default, to a minute.
            "maxSessionTimeout=60000\n"
            f"dataDir={data}\n"
            f"clientPort={self.port}\n"
            f"clientPortAddress={self.host}\n"
            "maxClientCnxns=0\n"
            "admin.enableServer=false\n"
            "4lw.commands.whitelist=*\n"
            "preAllocSize=1024\n"
            "snapCount=1000000\n"
            f"{self._configuration}"
        )


class Ensemble(Servers):
    """An ensemble of three servers; killed with their parent process.

    With ``network`` on its hosts `MEMBERS`, else on loopback; clients may run on the other hosts.
    Nothing runs before `start`.
    """

    def __init__(
        self,
        directory: Path,
        network: Network | None = None,
        *,
        tick_ms: int = 500,
        fsync: bool = False,
        configuration: str = "",
    ) -> None:
        self.network = network
        places = [_place(network, host) for host in MEMBERS]
        lines = "".join(
            f"server.{n}={host}:{quorum}:{election}\n"
            for n, (host, quorum, election, _) in enumerate(places, 1)
        )
        timing = f"initLimit=10\nsyncLimit={SYNC_TICKS}\n"
        self.servers = [
            Server(
                directory / name,
                host,
                port,
                tick_ms=tick_ms,
                prefix=network.prefix(name) if network else (),
                fsync=fsync,
                configuration=f"{timing}{lines}{configuration}",
                member=n,
            )
            for n, (name, (host, _, _, port)) in enumerate(zip(MEMBERS, places, strict=True), 1)
        ]

    @property
    def connect_string(self) -> str:
        """Return the connect string for clients."""
        return ",".join(server.connect_string for server in self.servers)

    def start(self) -> Self:
        """Start the stopped members; return when all three serve."""
        for server in self.servers:
            if not server.runs:
                server.launch()
        return self.await_serving()

    def await_serving(self, timeout_s: float = START_S) -> Self:
        """Wait until all three serve."""
        until = time.monotonic() + timeout_s
        for server in self.servers:
            server.await_serving(max(0.1, until - time.monotonic()))
        return self

    def leader(self, timeout_s: float = START_S) -> Server:
        """Wait for a leading member and return it; a leader that is cut off may be returned too."""
        until = time.monotonic() + timeout_s
        while True:
            for server in self.servers:
                found = server.serving(timeout_s=1.0) if server.runs else None
                if found is not None and found.mode == "leader":
                    return server
            assert time.monotonic() < until, "no member leads"
            time.sleep(POLL_S)

    def followers(self) -> list[Server]:
        """Return the members that do not lead, running or not."""
        leader = self.leader()
        return [server for server in self.servers if server is not leader]

    def host_of(self, server: Server) -> str:
        """Return the host of a member."""
        return MEMBERS[self.servers.index(server)]

    def kill(self) -> None:
        """Kill all members."""
        for server in self.servers:
            server.kill()


@contextlib.contextmanager
def ensemble_on_hosts(
    directory: Path, clients: Sequence[str] = (), *, tick_ms: int = 500, configuration: str = ""
) -> Iterator[tuple[Ensemble, Network]]:
    """Create a network with three members and hosts for clients; start the ensemble on it."""
    with (
        Network([*MEMBERS, *clients]) as network,
        Ensemble(directory, network, tick_ms=tick_ms, configuration=configuration) as ensemble,
    ):
        yield ensemble, network


def _place(network: Network | None, host: str) -> tuple[str, int, int, int]:
    """Return a member's address and its ports for quorum, elections and clients."""
    if network is not None:
        return network.address(host), 2888, 3888, 2181
    return LOOPBACK, free_port(), free_port(), free_port()


def launch(
    command: Sequence[str], output: int, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process that the kernel kills when this process ends in any way."""

    def die_with_us() -> None:
        guardian.prctl(guardian.PR_SET_PDEATHSIG, signal.SIGKILL)

    def popen() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # Its own process group: a terminal's ^C is only for the tests.
            process_group=0,
            preexec_fn=die_with_us,  # noqa: PLW1509 -- one system call, no lock is taken
        )

    return _launcher.submit(popen).result(START_S)


def free_port(host: str = LOOPBACK) -> int:
    """Return a port without a listener; the caller binds it next."""
    while True:
        port = random.choice(PORTS)
        if port in _given:  # The server of this port may not have bound it yet.
            continue
        with contextlib.suppress(OSError), socket.create_server((host, port)):
            _given.append(port)
            return port


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a running server, shared by all tests of a pytest process.

    Each test uses its own root path and leaves the server running. A test that kills or freezes a
    server needs its own.
    """
    with Server(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server
