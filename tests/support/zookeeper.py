"""Real ZooKeeper servers for tests: one in a second, ended with the process that started it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.namespaces import Network
from understudy.process import guardian
from understudy.spark import zookeeper_server
from understudy.spark.java import find_java
from understudy.spark.zookeeper_server import Serving

START_S = 60.0
"""A server starts in a second; a machine that starts several of everything needs longer."""

ANSWER_S = 5.0
POLL_S = 0.02

_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
PORTS = range(21_000, 31_000)[_WORKER::_WORKERS]
"""Below the ephemeral ones: no client's own port is ever in the way of a server's restart. Each of
the processes that test at the same time has ports of its own."""

_given: deque[int] = deque(maxlen=100)

TRIES = 5
"""Another process may take a port between our look and the server's bind."""

QUICK_JVM = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")

LOOPBACK = "127.0.0.1"

MEMBERS = ("zk1", "zk2", "zk3")

SYNC_TICKS = 4
"""A leader drops a follower that is so far behind, or silent for so long: 2 s by default."""

_launcher = ThreadPoolExecutor(1, thread_name_prefix="launch")
"""The death signal comes when the *thread* ends that has forked; this one lives as long as we."""

_launcher.submit(int).result()  # Now: a thread begins on the host on which its maker is just then.


class Server:
    """A ZooKeeper server with data of its own; killed with the process that made it.

    ``prefix`` stands before its command line (another network namespace), ``configuration`` is
    added to its zoo.cfg. Nothing runs before `start`.
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
        self.directory = directory
        self.host = host
        self.port = port or free_port(host)
        self.member = member
        self._port_is_ours = port is None
        self._tick_ms = tick_ms
        self._prefix = (*prefix,)
        self._fsync = fsync
        self._configuration = configuration
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def connect_string(self) -> str:
        """Return what clients are given."""
        return f"{self.host}:{self.port}"

    @property
    def log(self) -> Path:
        """Return where it writes its log, across restarts."""
        return self.directory / "log"

    @property
    def runs(self) -> bool:
        """Say whether its process is there; a frozen one is."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Return the process id of its JVM."""
        assert self._process is not None, "it does not run"
        return self._process.pid

    def start(self, wait: bool = True) -> Server:
        """Start it, again on the same data and port; return when it serves.

        A member of an ensemble serves when there is a quorum: start several without ``wait``.
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
        """Start its process, and wait for nothing."""
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
        """Wait until it serves; raise ``AssertionError`` with its log if it ends, or never does."""
        until = time.monotonic() + timeout_s
        while True:
            if (found := self.serving(timeout_s=1.0)) is not None:
                return found
            if self._process is None or self._process.poll() is not None:
                self._process = None
                raise AssertionError(f"ZooKeeper has ended:\n{self._last_lines()}")
            if time.monotonic() > until:
                raise AssertionError(f"ZooKeeper does not serve:\n{self._last_lines()}")
            time.sleep(POLL_S)

    def serving(self, timeout_s: float = ANSWER_S) -> Serving | None:
        """Return what it says of itself; None while it does not serve."""
        found = zookeeper_server.ask_serving(self.host, self.port, timeout_s)
        return found if isinstance(found, Serving) else None

    def ask(self, word: str, timeout_s: float = ANSWER_S) -> str:
        """Return its answer to any four-letter word."""
        return zookeeper_server.ask(self.host, self.port, word, timeout_s)

    def transactions(self) -> int:
        """Return how many transactions it has written, those of sessions too (two a session).

        In an ensemble the count begins anew with each leader.
        """
        return self._must_serve().transactions

    def open_connections(self) -> int:
        """Return how many clients are connected, without the one that asks."""
        return self._must_serve().connections - 1

    def freeze(self) -> None:
        """Stop its process where it stands (SIGSTOP); its connections stay open, and silent."""
        os.kill(self.pid, signal.SIGSTOP)
        self._await_state(lambda state: state in "Tt")

    def thaw(self) -> None:
        """Let it go on (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)
        self._await_state(lambda state: state not in "Tt")

    def kill(self) -> None:
        """Kill it (SIGKILL), frozen or not; return when it is dead. Nothing if it does not run."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in order (SIGTERM); return when it has ended. Nothing if it does not run."""
        self._end(signal.SIGTERM)

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(START_S)
        finally:
            self._process.kill()
            self._process.wait(START_S)
            self._process = None

    def _must_serve(self) -> Serving:
        found = self.serving()
        assert found is not None, f"{self.connect_string} does not serve"
        return found

    def _await_state(self, wanted: Callable[[str], bool]) -> None:
        stat = Path(f"/proc/{self.pid}/stat")
        until = time.monotonic() + ANSWER_S
        while not wanted(stat.read_text().rpartition(")")[2].split()[0]):
            assert time.monotonic() < until, "the signal has no effect"
            time.sleep(0.001)

    def _zoo_cfg(self, data: Path) -> str:
        return (
            f"tickTime={self._tick_ms}\n"
            # Sessions down to two ticks, which is the server's default; up to a minute.
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

    def _last_lines(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])


class Ensemble:
    """Three servers that agree; killed with the process that made them.

    On loopback without ``network``, else on its hosts `MEMBERS`; clients may run on the others.
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
        """Return what clients are given."""
        return ",".join(server.connect_string for server in self.servers)

    def start(self) -> Ensemble:
        """Start the members that do not run; return when all three serve."""
        for server in self.servers:
            if not server.runs:
                server.launch()
        return self.await_serving()

    def await_serving(self, timeout_s: float = START_S) -> Ensemble:
        """Wait until all three serve."""
        until = time.monotonic() + timeout_s
        for server in self.servers:
            server.await_serving(max(0.1, until - time.monotonic()))
        return self

    def leader(self, timeout_s: float = START_S) -> Server:
        """Return the member that leads, or comes to; one that leads and is cut off may, too."""
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
        """Return on which host of the network a member is."""
        return MEMBERS[self.servers.index(server)]

    def kill(self) -> None:
        """Kill all members."""
        for server in self.servers:
            server.kill()

    def __enter__(self) -> Ensemble:
        try:
            return self.start()
        except BaseException:
            self.kill()
            raise

    def __exit__(self, *_: object) -> None:
        self.kill()


@contextlib.contextmanager
def ensemble_on_hosts(
    directory: Path, clients: Sequence[str] = (), *, tick_ms: int = 500, configuration: str = ""
) -> Iterator[tuple[Ensemble, Network]]:
    """Make a network with three members and hosts for clients; start the ensemble on it."""
    with (
        Network([*MEMBERS, *clients]) as network,
        Ensemble(directory, network, tick_ms=tick_ms, configuration=configuration) as ensemble,
    ):
        yield ensemble, network


def _place(network: Network | None, host: str) -> tuple[str, int, int, int]:
    """Return a member's address, and its ports: quorum, elections, clients."""
    if network is not None:
        return network.address(host), 2888, 3888, 2181
    return LOOPBACK, free_port(), free_port(), free_port()


def launch(
    command: Sequence[str], output: int, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process that is killed when this one ends, however it ends."""

    def die_with_us() -> None:
        guardian.prctl(guardian.PR_SET_PDEATHSIG, signal.SIGKILL)

    def popen() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # A group of its own: the ^C of a terminal is for the tests.
            process_group=0,
            preexec_fn=die_with_us,  # noqa: PLW1509 -- one system call, no lock is taken
        )

    return _launcher.submit(popen).result(START_S)


def free_port(host: str = LOOPBACK) -> int:
    """Return a port that nobody listens at; the caller binds it next."""
    while True:
        port = random.choice(PORTS)
        if port in _given:  # Its server may not have bound it yet.
            continue
        with contextlib.suppress(OSError), socket.create_server((host, port)):
            _given.append(port)
            return port


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a server that serves, one for all tests of a process that want one.

    Tests share it: each uses a root path of its own and leaves the server running. Who kills or
    freezes one makes one.
    """
    with Server(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server
