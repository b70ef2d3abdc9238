"""The kinds of failure: how each begins and ends, and whether a leader must bear it.

A slow disk is made by ``strace``, which holds up each fsync of a server; where there is none the
server is frozen in bursts. Everything that acts on the network needs hosts of their own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from tests.failure.cluster import PATIENCE_S, Player, Stage, until
from tests.failure.contender import CLUSTER
from tests.support import namespaces
from tests.support.zookeeper import MEMBERS, Server
from understudy.ha.backends.zookeeper import release as zookeeper_release

T = TypeVar("T")

_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.CRITICAL)  # That servers do not answer is what we are here for.

BASE = f"/understudy/{CLUSTER}"
ADMIN_S = 10.0
STRANGER = ("somebody", "else")

SHORT, BORNE, LONG = 0.2, 0.3, 1.3
"""Shares of a session: losing the quorum for the first is always borne, a pause for the second;
after the third every session has expired that was not heard of."""


@dataclass
class Fault:
    """One failure that is ready to begin."""

    kind: str
    story: str
    lasts_s: float
    begin: Callable[[], object]
    end: Callable[[], object] = lambda: None
    borne: bool = False
    """No leadership may end by it, if nothing else happens."""
    robs: bool = False
    """The leader's place is taken away by hand."""
    needs_quorum: bool = False
    """To begin, and to end: so it is the first, and the last."""


class Draw:
    """What a fault is made of: the stage, who leads, and chance."""

    def __init__(self, stage: Stage, leader: Player, chance: random.Random) -> None:
        self.stage = stage
        self.leader = leader
        self.chance = chance
        self.session_s = stage.session_s

    @property
    def servers(self) -> list[Server]:
        """Return the members."""
        return self.stage.ensemble.servers

    def lasts(self, lowest: float, highest: float) -> float:
        """Return how long, between two shares of the session timeout."""
        return self.session_s * self.chance.uniform(lowest, highest)

    def server(self) -> tuple[int, Server]:
        """Return any member, the one that the leader speaks with as often as the others."""
        place = self.chance.randrange(len(self.servers))
        theirs = self.stage.server_of(self.leader)
        if theirs is not None and self.chance.random() < 0.5:
            place = theirs
        return place, self.servers[place]

    def leads(self, place: int) -> bool:
        """Say whether a member leads the ensemble: its silence costs ``syncLimit`` and an election.

        That is most of what our short sessions bear, and too much for a busy machine to be judged.
        """
        found = self.servers[place].serving()
        return found is not None and found.mode == "leader"

    @property
    def network(self) -> namespaces.Network:
        """Return the network, where there is one."""
        assert self.stage.network is not None
        return self.stage.network


Kind = Callable[[Draw], Fault]


def leader_from_quorum(draw: Draw) -> Fault:
    host = draw.leader.host
    others = [member for member in MEMBERS if member != host]
    return Fault(
        "leader-from-quorum",
        f"{host}, which leads, is cut off from {others}",
        draw.lasts(SHORT, LONG),
        lambda: draw.network.partition(host, others),
        draw.network.heal,
    )


def client_from_server(draw: Draw) -> Fault:
    place, host = _connection(draw)
    return Fault(
        "client-from-server",
        f"{host} is cut off from its server {MEMBERS[place]}",
        draw.lasts(SHORT, LONG),
        lambda: draw.network.partition(host, MEMBERS[place]),
        draw.network.heal,
        borne=True,
    )


def one_way_out(draw: Draw) -> Fault:
    place, host = _connection(draw)
    return Fault(
        "one-way-out",
        f"what {host} sends to its server {MEMBERS[place]} is lost",
        draw.lasts(SHORT, LONG),
        lambda: draw.network.one_way(host, MEMBERS[place]),
        draw.network.heal,
        borne=True,
    )


def one_way_in(draw: Draw) -> Fault:
    host = draw.leader.host
    others = [member for member in MEMBERS if member != host]
    return Fault(
        "one-way-in",
        f"what {others} send to {host}, which leads, is lost",
        draw.lasts(SHORT, LONG),
        _each(lambda other: draw.network.one_way(other, host), others),
        draw.network.heal,
    )


def server_with_client(draw: Draw) -> Fault:
    host = draw.chance.choice(MEMBERS)
    if draw.leader.host in MEMBERS and draw.chance.random() < 0.6:
        host = draw.leader.host
    return Fault(
        "server-with-client",
        f"{host} and its server are cut off from all others",
        draw.lasts(SHORT, LONG),
        lambda: draw.network.isolate(host),
        draw.network.heal,
        borne=host != draw.leader.host and not draw.leads(MEMBERS.index(host)),
    )


def resets(draw: Draw) -> Fault:
    host = draw.leader.host
    return Fault(
        "resets",
        f"all connections of {host}, which leads, are reset",
        0.1,
        lambda: [draw.network.reset(host, member) for member in MEMBERS],
        borne=True,
    )


def server_killed(draw: Draw) -> Fault:
    place, server = draw.server()
    return Fault(
        "server-killed",
        f"server {MEMBERS[place]} is killed",
        draw.lasts(SHORT, LONG),
        server.kill,
        lambda: _again(server),
        borne=True,
    )


def server_frozen(draw: Draw) -> Fault:
    place, server = draw.server()
    return Fault(
        "server-frozen",
        f"server {MEMBERS[place]} is frozen",
        draw.lasts(SHORT, LONG),
        lambda: _freeze(server),
        lambda: _thaw(server),
        borne=not draw.leads(place),
    )


def rolling_restart(draw: Draw) -> Fault:
    def begin() -> None:
        for server in draw.chance.sample(draw.servers, len(draw.servers)):
            server.kill()
            _again(server)
            with contextlib.suppress(AssertionError):  # Another fault may keep it from serving.
                server.await_serving(2 * draw.session_s)

    return Fault("rolling-restart", "the servers are restarted in turn", 0.0, begin, borne=True)


def quorum_lost_shortly(draw: Draw) -> Fault:
    lost = draw.chance.sample(draw.servers, 2)
    return Fault(
        "quorum-lost-shortly",
        f"servers {_names(draw, lost)} are frozen for a moment",
        draw.session_s * SHORT,
        _each(_freeze, lost),
        _each(_thaw, lost),
        borne=True,
    )


def quorum_lost(draw: Draw) -> Fault:
    lost = draw.chance.sample(draw.servers, 2)
    if draw.chance.random() < 0.5:
        return Fault(
            "quorum-lost",
            f"servers {_names(draw, lost)} are frozen",
            draw.session_s * LONG,
            _each(_freeze, lost),
            _each(_thaw, lost),
        )
    return Fault(
        "quorum-lost",
        f"servers {_names(draw, lost)} are killed",
        draw.session_s * LONG,
        _each(Server.kill, lost),
        _each(_again, lost),
    )


def contender_killed(draw: Draw) -> Fault:
    player = draw.leader
    guarded = "guarded" if player.guarded else "unguarded"
    return Fault(
        f"contender-killed-{guarded}",
        f"the leader at {player.host}, {guarded}, is killed",
        0.1,
        lambda: tell(draw.stage, player, signal.SIGKILL),
    )


def contender_frozen(draw: Draw) -> Fault:
    return _pause(draw, "contender-frozen", draw.lasts(0.1, BORNE), borne=True)


def session_expired(draw: Draw) -> Fault:
    return _pause(draw, "session-expired", draw.lasts(LONG, LONG + 0.3), borne=False)


def session_closed(draw: Draw) -> Fault:
    stage, player = draw.stage, draw.leader

    def begin() -> None:
        born = stage.born(player)
        session = stage.last("session", born.who) if born else None
        if session:
            argv = [sys.executable, "-I", "-S", zookeeper_release.__file__]
            given = session["release"].encode()
            subprocess.run(argv, input=given, check=False, timeout=PATIENCE_S)

    return Fault(
        "session-closed",
        f"somebody closes the session of {player.host}",
        0.1,
        begin,
        robs=True,
        needs_quorum=True,
    )


def place_deleted(draw: Draw) -> Fault:
    stage = draw.stage

    def begin() -> None:
        with admin(stage) as client:
            line = client.get_children(f"{BASE}/latch")
            for node in sorted(line, key=lambda name: name.rpartition("-")[2])[:1]:
                client.delete(f"{BASE}/latch/{node}")

    return Fault(
        "place-deleted",
        "somebody deletes the leader's place in line",
        0.1,
        begin,
        robs=True,
        needs_quorum=True,
    )


def wrong_acl(draw: Draw) -> Fault:
    stage = draw.stage
    node = draw.chance.choice(["register", "latch", "leader", "registry"])
    acl = [make_digest_acl(*STRANGER, all=True)]
    changed: list[str] = []

    def begin() -> None:
        with admin(stage) as client:
            path = f"{BASE}/{node}"
            if node in {"leader", "registry"}:
                path = f"{BASE}/register/{node}"
                path = f"{path}/{client.get_children(path)[0]}"
            changed.append(path)
            client.set_acls(path, acl)

    def end() -> None:
        for path in changed:
            with admin(stage) as client:
                client.set_acls(path, OPEN_ACL_UNSAFE)

    return Fault(
        "wrong-acl",
        f"the ACL of {node} lets nobody in",
        draw.lasts(SHORT, 0.5),
        begin,
        lambda: until(lambda: _managed(end), "the ACL cannot be restored"),
        needs_quorum=True,
    )


def slow_disk(draw: Draw) -> Fault:
    place, server = draw.server()
    delay_ms = draw.chance.choice([50, 200, 500])
    over = threading.Event()
    held: list[subprocess.Popen[bytes]] = []

    def by_strace() -> None:
        calls = "fsync,fdatasync"
        inject = f"inject={calls}:delay_exit={delay_ms}000"
        line = ["strace", "-f", "-qq", "-o", os.devnull, "-e", f"trace={calls}", "-e", inject]
        held.append(subprocess.Popen([*line, "-p", str(server.pid)], stderr=subprocess.DEVNULL))

    def by_bursts() -> None:
        while not over.wait(0.05):
            _freeze(server)
            over.wait(delay_ms / 1000)
            _thaw(server)

    def end() -> None:
        over.set()
        for process in held:
            process.terminate()
            process.wait(PATIENCE_S)

    way = by_strace if shutil.which("strace") else threading.Thread(target=by_bursts).start
    return Fault(
        "slow-disk",
        f"the disk of server {MEMBERS[place]} takes {delay_ms} ms for each fsync",
        draw.lasts(SHORT, LONG),
        lambda: way() if server.runs else None,
        end,
    )


ON_A_NETWORK = (
    leader_from_quorum,
    client_from_server,
    one_way_out,
    one_way_in,
    server_with_client,
)
ANYWHERE = (
    server_killed,
    server_frozen,
    rolling_restart,
    quorum_lost_shortly,
    quorum_lost,
    contender_killed,
    contender_frozen,
    session_expired,
    session_closed,
    place_deleted,
    wrong_acl,
    slow_disk,
)


def kinds() -> tuple[Kind, ...]:
    """Return the kinds that are possible on this machine."""
    found: list[Kind] = [*ANYWHERE]
    if namespaces.available():
        found += ON_A_NETWORK
    if not namespaces.no_resets():
        found.append(resets)
    return tuple(found)


def left_out() -> list[str]:
    """Return, for people, each kind that is not possible on this machine, and why."""
    said = []
    if why := namespaces.unavailable():
        said.append(f"on loopback, without faults of the network: {why}")
    elif why := namespaces.no_resets():
        said.append(f"without resets of connections: {why}")
    if shutil.which("strace") is None:
        said.append("slow disks are servers that are frozen in bursts: there is no strace")
    return said


@contextlib.contextmanager
def admin(stage: Stage) -> Iterator[KazooClient]:
    """Connect as somebody with the rights of all; raises ``OSError`` where that is impossible."""
    known = [("digest", ":".join(STRANGER))]
    client = KazooClient(
        stage.ensemble.connect_string, timeout=ADMIN_S, auth_data=known, logger=_kazoo_log
    )
    try:
        client.start(ADMIN_S)
        yield client
    except (KazooException, KazooTimeoutError) as error:
        raise OSError(str(error) or type(error).__name__) from error
    finally:
        client.stop()
        client.close()


def _managed(work: Callable[[], None]) -> bool | None:
    try:
        work()
    except OSError:
        return None
    return True


def _connection(draw: Draw) -> tuple[int, str]:
    """Return a member and the host of a client that speaks with it over the network.

    That of the leader, if there is one.
    """
    stage = draw.stage
    apart = [player for player in stage.contenders if player.host not in MEMBERS]
    player = draw.leader if draw.leader in apart else draw.chance.choice(apart)
    place = stage.server_of(player)
    return (0 if place is None else place), player.host


def _pause(draw: Draw, kind: str, lasts_s: float, *, borne: bool) -> Fault:
    stage, player = draw.stage, draw.leader
    return Fault(
        kind,
        f"the leader at {player.host} is frozen for {lasts_s:.1f} s",
        lasts_s,
        lambda: tell(stage, player, signal.SIGSTOP),
        lambda: tell(stage, player, signal.SIGCONT),
        borne=borne,
    )


def tell(stage: Stage, player: Player, number: signal.Signals) -> None:
    """Send a signal to a contender itself, not to its guardian."""
    pid = stage.pid(player)
    with contextlib.suppress(OSError):
        # It may have ended, and its number be somebody else's.
        if str(stage.history).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, number)


def _each(act: Callable[[T], object], them: Sequence[T]) -> Callable[[], None]:
    def act_on_all() -> None:
        for one in them:
            act(one)

    return act_on_all


def _again(server: Server) -> None:
    if not server.runs:
        server.launch()


def _freeze(server: Server) -> None:
    if server.runs:
        server.freeze()


def _thaw(server: Server) -> None:
    if server.runs:
        server.thaw()


def _names(draw: Draw, servers: list[Server]) -> str:
    return " and ".join(MEMBERS[draw.servers.index(server)] for server in servers)
