"""What tests of ZooKeeper stand on: servers, an ensemble, hosts, and what goes wrong with them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.failure import faults
from tests.support import namespaces
from tests.support.namespaces import OUTSIDE, Network
from tests.support.zookeeper import Server, ensemble_on_hosts, launch
from understudy.cli.launch import background

PATIENCE_S = 60.0
LOST_S = 0.3
"""So long nothing has arrived, where a packet takes microseconds."""

PORT = 7000
ROOT = Path(__file__).parents[2]


@pytest.fixture
def network() -> Iterator[Network]:
    """Return three hosts."""
    if why := namespaces.unavailable():
        pytest.skip(why)
    with Network(["a", "b", "c"]) as found:
        yield found


def reaches(network: Network, host: str, other: str) -> bool:
    """Say whether a new connection comes about."""
    with contextlib.ExitStack() as stack:
        if other != OUTSIDE:
            stack.enter_context(network.entered(other))
        server = socket.create_server((network.address(other), PORT))
    with server, contextlib.ExitStack() as stack:
        if host != OUTSIDE:
            stack.enter_context(network.entered(host))
        try:
            socket.create_connection(server.getsockname(), LOST_S).close()
        except TimeoutError:
            return False
        return True


def test_what_is_lost_between_two_hosts_is_lost_between_them_only(network: Network) -> None:
    network.partition("a", "b")
    found = [reaches(network, *pair) for pair in (("a", "b"), ("b", "a"), ("a", "c"), ("c", "b"))]
    network.heal()
    network.isolate("a")
    alone = [reaches(network, *pair) for pair in (("b", "a"), ("a", "c"), (OUTSIDE, "a"))]
    network.heal()

    assert [False, False, True, True] == found
    assert [False, False, True] == alone
    assert reaches(network, "a", "b")


def test_one_way_is_lost_for_connections_that_stand_and_arrives_when_it_heals(
    network: Network,
) -> None:
    near, far = connected(network)
    with near, far:
        network.one_way("a", "b")
        near.sendall(b"lost")
        far.sendall(b"arrives")
        heard = near.recv(100)
        far.settimeout(LOST_S)
        with pytest.raises(TimeoutError):
            far.recv(100)
        network.heal()
        far.settimeout(PATIENCE_S)
        later = far.recv(100)

    assert (b"arrives", b"lost") == (heard, later)


def test_a_reset_is_seen_at_both_ends(network: Network) -> None:
    if why := namespaces.no_resets():
        pytest.skip(why)
    near, far = connected(network)
    with near, far:
        count = network.reset("a", "b")

        assert 1 == count
        for end in (near, far):
            with pytest.raises(ConnectionError):
                end.recv(1)


def test_what_is_not_tried_on_this_machine_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    found = shutil.which

    def without_ss(name: str) -> str | None:
        return None if name == "ss" else found(name)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "which", without_ss)
        namespaces.no_resets.cache_clear()
        said, kinds = faults.left_out(), faults.kinds()
    namespaces.no_resets.cache_clear()

    assert faults.resets not in kinds
    assert any("ss of iproute2" in sentence for sentence in said) or namespaces.unavailable()


def connected(network: Network) -> tuple[socket.socket, socket.socket]:
    """Return the ends of a connection from a to b."""
    with network.entered("b"):
        server = socket.create_server((network.address("b"), PORT))
    with server, network.entered("a"):
        near = socket.create_connection(server.getsockname(), PATIENCE_S)
        far, _ = server.accept()
    far.settimeout(PATIENCE_S)
    return near, far


def test_hosts_go_with_what_runs_on_them(network: Network) -> None:
    with Path(os.devnull).open("wb") as nowhere:
        process = launch([*network.prefix("a"), "sleep", "1000"], nowhere.fileno())
    until = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{process.pid}/comm").read_text() != "sleep\n":  # It is on the host.
        assert time.monotonic() < until
        time.sleep(0.001)

    network.close()

    assert -signal.SIGKILL == process.wait(PATIENCE_S)
    assert [] == [host for host in network.hosts if reaches_namespace(network, host)]


def reaches_namespace(network: Network, host: str) -> bool:
    """Say whether a program can still be run on a host."""
    line = [*network.prefix(host), "true"]
    return subprocess.run(line, capture_output=True, check=False).returncode == 0


def test_a_test_that_is_killed_leaves_no_server_and_its_hosts_are_swept(tmp_path: Path) -> None:
    if why := namespaces.unavailable():
        pytest.skip(why)
    script = (
        "import sys, time\nfrom pathlib import Path\n"
        "from tests.support.namespaces import Network\nfrom tests.support.zookeeper import Server\n"
        "with Network(['zk']) as net, Server(Path(sys.argv[1]), net.address('zk'), 2181,\n"
        "        prefix=net.prefix('zk')) as server:\n"
        "    print(server.pid, net.prefix('zk')[-1], flush=True)\n    time.sleep(1000)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as test:
        assert test.stdout is not None
        pid, name = test.stdout.readline().split()
        handle = os.pidfd_open(int(pid))
        test.kill()
        test.wait(PATIENCE_S)
    is_over = background.is_over(handle, PATIENCE_S)
    os.close(handle)

    namespaces.sweep()

    assert is_over
    assert not Path(f"/run/netns/{name}").exists()


def test_a_server_counts_what_is_written_and_keeps_it(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        client = KazooClient(server.connect_string)
        client.start(PATIENCE_S)
        before = server.transactions()
        client.create("/one")
        client.set("/one", b"two")
        client.get("/one")
        after = server.transactions()
        connections = server.open_connections()
        server.freeze()
        frozen = server.serving(timeout_s=LOST_S)
        server.thaw()
        client.stop()
        client.close()
        server.kill()
        server.start()

        assert 2 == after - before
        assert 1 == connections
        assert frozen is None
        assert after <= server.transactions() <= after + 1, "the end of the session is one more"


@pytest.mark.long  # tests/failure has such faults, judged by history.
def test_a_leader_that_is_cut_off_is_replaced_and_follows_later(tmp_path: Path) -> None:
    if why := namespaces.unavailable():
        pytest.skip(why)
    with ensemble_on_hosts(tmp_path, ["client"]) as (ensemble, network):
        with network.entered("client"):
            client = KazooClient(ensemble.connect_string, timeout=4.0)
            client.start(PATIENCE_S)
        client.retry(client.create, "/before")
        old = ensemble.leader()
        network.isolate(ensemble.host_of(old))
        until = time.monotonic() + PATIENCE_S
        while old.serving() is not None:
            assert time.monotonic() < until, "it serves without its quorum"
            time.sleep(0.02)
        new = ensemble.leader()
        client.retry(client.create, "/while")
        network.heal()
        ensemble.await_serving()
        seen = client.retry(client.get_children, "/")
        client.stop()
        client.close()
        found = old.serving()

    assert new is not old
    assert found is not None
    assert "follower" == found.mode
    assert {"before", "while"} <= set(seen)
