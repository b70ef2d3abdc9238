"""The stage: an ensemble of three, contenders and retrievals, each on a host of its own."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tests.failure.contender import DENIED, on_zookeeper
from tests.failure.history import Event, Pen, Reader, now
from tests.support import namespaces
from tests.support.namespaces import Network
from tests.support.zookeeper import MEMBERS, Ensemble, launch
from understudy.process.processes import GUARDIAN

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
APART = ("a", "b")
"""Hosts without a server."""

PATIENCE_S = 60.0
POLL_S = 0.02


class Player:
    """A process of ours on a host; started again after it has died."""

    def __init__(self, stage: Stage, host: str, kind: str, guarded: bool, **spec: Any) -> None:
        self.host = host
        self.guarded = guarded
        self.lives = 0
        self._stage = stage
        self._kind = kind
        self._spec = spec
        self._process: subprocess.Popen[bytes] | None = None
        self._told = 0

    @property
    def name(self) -> str:
        """Return what its log is called."""
        return f"{self._kind}-{self.host}"

    @property
    def log(self) -> Path:
        """Return what it prints, over all its lives."""
        return self._stage.directory / f"{self.name}.log"

    def start(self) -> None:
        """Start it, unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        stage = self._stage
        self.lives += 1
        spec = {
            "host": self.host,
            "history": str(stage.history),
            "settings": stage.settings(self.host),
            "session_s": stage.session_s,
            "guarded": self.guarded,
            **self._spec,
        }
        argv = [sys.executable, "-m", f"tests.failure.{self._kind}", json.dumps(spec)]
        if self.guarded:
            guarded = {"name": self.name, "argv": argv, "lock": str(self._lock)}
            argv = [sys.executable, "-I", "-S", GUARDIAN, json.dumps(guarded)]
        where = ["env", f"PYTHONPATH={ROOT}:{ROOT / 'src'}", *stage.prefix(self.host)]
        with self.log.open("ab") as log:
            self._process = launch([*where, *argv], log.fileno())

    def ended(self) -> int | None:
        """Return how it has ended, once for each end; notes when it was seen to be dead."""
        if self._process is None or self._process.poll() is None or self._told == self.lives:
            return None
        self._told = self.lives
        born = self._stage.born(self)
        if born:
            at = now()
            with contextlib.suppress(OSError, ValueError):
                at = json.loads(self._lock.read_text())["at"]
            self._stage.pen.note("dead", of=born.who, by=at, code=self._process.returncode)
        return self._process.returncode

    @property
    def _lock(self) -> Path:
        return self._stage.directory / "locks" / f"{self.name}-{self.lives}"

    def kill(self) -> None:
        """Kill it, guardian and all."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE_S)


class Stage:
    """All that runs; killed with the process that made it."""

    def __init__(self, directory: Path, session_s: float, network: Network | None) -> None:
        """Use `open_stage`."""
        self.directory = directory
        self.history = directory / "history.jsonl"
        self.session_s = session_s
        self.network = network
        self.pen = Pen(self.history, "nemesis")
        self.reader = Reader(self.history)
        self.ensemble: Ensemble
        self.alone = False
        """Whether a client on a member's host speaks with this member only."""
        self.contenders: list[Player] = []
        self.watchers: list[Player] = []

    def quorum(self, host: str) -> str:
        """Return the servers that are named to a process of this host."""
        if self.alone and host in MEMBERS:
            return self.ensemble.servers[MEMBERS.index(host)].connect_string
        return self.ensemble.connect_string

    def settings(self, host: str = "") -> dict[str, str]:
        """Return the settings of a process of this host, or of one that only looks."""
        return on_zookeeper(self.quorum(host), self.session_s)

    def await_serving(self) -> None:
        """Wait until the servers serve again."""
        self.ensemble.await_serving(PATIENCE_S)

    def prefix(self, host: str) -> Sequence[str]:
        """Return what stands before a command line."""
        return self.network.prefix(host) if self.network else []

    def contend(self, hosts: Sequence[str], guarded: Sequence[str], *, idle: bool = False) -> None:
        """Start contenders; those that are idle write nothing once they serve."""
        (self.directory / "locks").mkdir(exist_ok=True)
        for host in hosts:
            self.contenders.append(Player(self, host, "contender", host in guarded, idle=idle))
            self.contenders[-1].start()

    def watch(self, hosts: Sequence[str], **spec: Any) -> None:
        """Start retrievals."""
        for host in hosts:
            self.watchers.append(Player(self, host, "watcher", guarded=False, **spec))
            self.watchers[-1].start()

    def raise_the_dead(self) -> list[str]:
        """Start again what has ended; return what has ended by itself, though nobody let it."""
        odd = []
        for player in (*self.contenders, *self.watchers):
            code = player.ended()
            if code is None:
                continue
            if code not in {0, DENIED, -signal.SIGKILL, 128 + signal.SIGKILL}:
                last = player.log.read_text(errors="replace").splitlines()[-8:]
                odd.append(f"{player.name} has ended with {code}: {' / '.join(last)}")
            player.start()
        return odd

    def born(self, player: Player) -> Event | None:
        """Return the event by which a contender's present life has begun."""
        self.reader.more()
        found = [
            event
            for event in self.reader.events
            if event.what == "start" and event["host"] == player.host
        ]
        return found[player.lives - 1] if len(found) >= player.lives else None

    def pid(self, player: Player) -> int:
        """Return a contender's own process id, not its guardian's; 0 where it has not begun."""
        born = self.born(player)
        return int(born["pid"]) if born else 0

    def last(self, what: str, who: str | None = None) -> Event | None:
        """Return the last event of a kind (of one process)."""
        self.reader.more()
        return next(
            (
                event
                for event in reversed(self.reader.events)
                if event.what == what and who in {None, event.who}
            ),
            None,
        )

    def leader(self) -> tuple[Player, Event] | None:
        """Return who leads and serves, as it says itself; None where it may have ended."""
        serves, revoked = self.last("serves"), self.last("revoked")
        if serves is None or (revoked and revoked["term"] >= serves["term"]):
            return None
        for player in self.contenders:
            born = self.born(player)
            if born and born.who == serves.who:
                return player, serves
        return None

    def server_of(self, player: Player) -> int | None:
        """Return the number of the member that a contender speaks with."""
        born = self.born(player)
        event = self.last("server", born.who) if born else None
        places = [server.connect_string for server in self.ensemble.servers]
        return places.index(event["server"]) if event and event["server"] in places else None

    def await_write(self, since: float, timeout_s: float) -> Event | None:
        """Return the first write that was begun after that and acknowledged; None for none."""
        began: dict[str, Event] = {}
        seen = 0
        until = time.monotonic() + timeout_s
        while True:
            self.reader.more()
            for event in self.reader.events[seen:]:
                if event.what == "begin" and event.at > since:
                    began[event["id"]] = event
                if event.what == "end" and event["outcome"] == "done" and event["id"] in began:
                    return event
            seen = len(self.reader.events)
            if time.monotonic() > until:
                return None
            self.raise_the_dead_quietly()
            time.sleep(POLL_S)

    def raise_the_dead_quietly(self) -> None:
        """Start again what has ended; what was odd about it is noted for the checker."""
        for sentence in self.raise_the_dead():
            self.pen.note("odd", sentence=sentence)

    def close(self) -> None:
        """Kill all of ours."""
        for player in (*self.contenders, *self.watchers):
            player.kill()
        self.reader.close()


def until(find: Callable[[], T | None], what: str, timeout_s: float = PATIENCE_S) -> T:
    """Return what is found in time; raise ``AssertionError`` otherwise."""
    deadline = time.monotonic() + timeout_s
    while (found := find()) is None:
        assert time.monotonic() < deadline, what
        time.sleep(POLL_S)
    return found


@contextlib.contextmanager
def open_stage(
    directory: Path,
    session_s: float,
    *,
    tick_ms: int = 500,
    sync_ticks: int = 2,
    on_hosts: bool | None = None,
    fsync: bool = False,
) -> Iterator[Stage]:
    """Start the ensemble: on hosts of their own, where there can be, else on loopback."""
    if on_hosts is None:
        on_hosts = namespaces.available()
    directory.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(Network([*MEMBERS, *APART])) if on_hosts else None
        stage = Stage(directory, session_s, network)
        stage.ensemble = stack.enter_context(
            Ensemble(
                directory,
                network,
                tick_ms=tick_ms,
                fsync=fsync,
                configuration=f"syncLimit={sync_ticks}\n",
            )
        )
        stack.callback(stage.close)
        yield stage
