"""A cluster of several hosts: started, looked at and stopped from one of them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journeys import harness
from tests.journeys.many_hosts import Hosts
from tests.support import namespaces
from tests.support.namespaces import OUTSIDE, Network
from tests.support.zookeeper import Server

pytestmark = [
    pytest.mark.filesystem,  # With a backend of its own.
    pytest.mark.skipif(not namespaces.available(), reason=namespaces.unavailable()),
]


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    """Return three hosts."""
    with Network(["alpha", "beta", "gamma"]) as found:
        yield found


@pytest.fixture
def hosts(place: Path, network: Network) -> Iterator[Hosts]:
    """Return three hosts that share a directory, with a ZooKeeper server outside of them."""
    with Server(place / "zookeeper", network.address(OUTSIDE)) as server:
        found = Hosts(place, network, server.connect_string)
        yield found
        found.close()


def status(hosts: Hosts, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(hosts.cluster("status", "--json", code=code).splitlines()[0])
    return found


def states(hosts: Hosts, code: int = 0) -> list[tuple[str, str, str]]:
    named = {hosts.address(name): name for name in hosts.names}
    return [
        (named[one["host"]], one["role"], one["state"]) for one in status(hosts, code)["processes"]
    ]


@pytest.mark.long
def test_the_loss_of_the_only_host_with_the_script_is_no_loss(hosts: Hosts) -> None:
    hosts.ask_for(masters=["alpha", "beta"], workers=["beta", "gamma"])
    said = hosts.start()
    hosts.until(lambda: "long 1" in hosts.lines("jobs.txt"), "the second job does not run")
    shown = status(hosts)
    hosts.lose("alpha")
    hosts.until(lambda: len(hosts.lines("main.txt")) == 2, "nobody takes over")
    (hosts.shared / "go").touch()
    run = said.split(" runs ")[1].split(":")[0]

    def ended() -> bool:
        done = hosts.command("result", run, *hosts.connected(), "--json", host="gamma", code=None)
        return done.returncode == 0

    hosts.until(ended, "the run does not end")
    left = hosts.cluster("stop")

    rest = {f"http://{hosts.address(name)}" for name in ("alpha", "beta")}
    assert rest == {
        one["rest"].rpartition(":")[0] for one in shown["processes"] if one["role"] == "jobmanager"
    }
    assert [True, False] == [one["leads"] for one in shown["processes"] if one["leads"] is not None]
    assert ["first 1", "long 1", "third 1"] == hosts.lines("jobs.txt")
    assert "is stopped; its data is kept" in left
    assert {} == hosts.processes("beta") | hosts.processes("gamma")


@pytest.mark.long
def test_a_session_outlives_the_host_that_leads_and_is_stopped_and_goes_on(hosts: Hosts) -> None:
    hosts.ask_for(masters=["alpha", "beta"], workers=["beta", "gamma"])
    at = ("--config-dir", str(hosts.conf))
    said = hosts.command("session", "start", *at).stdout
    words = ("run", "-d", *at, str(hosts.app), str(hosts.shared))
    submitted = hosts.command(*words).stdout.strip()
    hosts.until(lambda: "long 1" in hosts.lines("jobs.txt"), "the second job does not run")
    hosts.lose("alpha")
    hosts.until(lambda: len(hosts.lines("main.txt")) == 2, "nobody takes over")
    stopped = hosts.command("session", "stop", *at).stdout
    left = [hosts.processes(name) for name in hosts.names]
    hosts.command("session", "start", *at)
    (hosts.shared / "go").touch()

    def result(code: int | None) -> subprocess.CompletedProcess[str]:
        asked = ("result", submitted, *hosts.connected(), "--json")
        return hosts.command(*asked, host="gamma", code=code)

    hosts.until(lambda: result(None).returncode == 0, "the application does not end")
    found = json.loads(result(0).stdout)
    shown = json.loads(hosts.command("session", "status", *at, "--json").stdout)
    hosts.command("session", "stop", *at)

    assert "4 processes" in said
    assert "its data is kept" in stopped
    assert [{}, {}, {}] == left
    assert 3 == len(found["jobs"])
    assert ["FINISHED"] == [one["status"] for one in shown["applications"]]
    assert {"runs"} == {one["state"] for one in shown["processes"]}
    assert ["first 1", "long 1", "long 2", "third 1"] == hosts.lines("jobs.txt")


@pytest.mark.long
def test_no_secret_is_on_a_command_line_and_a_host_without_a_process_does_not_destroy_the_cluster(
    hosts: Hosts,
) -> None:
    """The leader's record is not renewed in ZooKeeper: its place in line says that it lives."""
    hosts.ask_for(masters=["alpha"], workers=["beta"])
    hosts.configure(**{"notify.url": "http://user:hush@127.0.0.1:1/hush"})
    hosts.start()
    lines = [*hosts.processes("alpha").values(), *hosts.processes("beta").values()]
    hosts.until(lambda: "long 1" in hosts.lines("jobs.txt"), "the second job does not run")
    connected = [*hosts.connected(), *harness.impatient()]
    refused = hosts.command("destroy", *connected, "--yes", host="gamma", code=None)
    (hosts.shared / "go").touch()
    hosts.until(lambda: "third 1" in hosts.lines("jobs.txt"), "the run does not go on")
    hosts.cluster("stop")
    asked = (hosts.place / "ssh.log").read_text()

    assert refused.returncode == 1, refused.stderr
    assert "jobmanager-" in refused.stderr
    assert 4 <= len(lines)
    assert "hush" not in "".join([*lines, asked])
    assert "BatchMode=yes" in asked


@pytest.mark.long
def test_a_host_that_cannot_be_reached_is_named_and_started_later(hosts: Hosts) -> None:
    hosts.ask_for(masters=["alpha", "beta"], workers=["alpha", "beta", "beta"])
    hosts.cut("beta", off=True)
    first = hosts.start(code=1)
    unreachable = states(hosts, code=1)
    hosts.cut("beta", off=False)
    second = hosts.start()
    everything = states(hosts)
    hosts.cut("beta", off=True)
    halfway = hosts.cluster("stop", code=1)
    hosts.cut("beta", off=False)
    hosts.cluster("stop")
    stopped = states(hosts, code=1)

    beta = hosts.address("beta")
    assert f"{beta}: jobmanager 1 unreachable: " in first
    assert "No route to host" in first
    assert "3 of 5 processes do not run" in first
    assert 3 == [state for _, _, state in unreachable].count("unreachable")
    assert 2 == second.count("runs already")
    assert 3 == second.count("is started")
    assert [("alpha", "runs"), ("beta", "runs")] == sorted(
        {(host, state) for host, _, state in everything}
    )
    assert f"may still run, on {beta}" in halfway
    assert {"missing"} == {state for _, _, state in stopped}
    assert {} == hosts.processes("alpha") | hosts.processes("beta")


@pytest.mark.long
def test_a_host_with_another_storage_is_refused(hosts: Hosts) -> None:
    hosts.ask_for(masters=["alpha", "beta"], workers=["alpha"])
    (hosts.shared / "ha").mkdir()
    hosts.hide("beta", hosts.shared / "ha")
    said = hosts.start(code=1)
    found = states(hosts, code=1)
    hosts.cluster("stop")

    assert "is not in the storage of this host" in said
    assert "must be one shared directory, mounted on each host" in said
    assert ("beta", "jobmanager", "missing") in found
    assert ("alpha", "taskmanager", "runs") in found


@pytest.mark.parametrize(
    ("changes", "masters", "workers", "said"),
    [
        ({"high-availability.type": "filesystem"}, ["alpha"], ["beta"], "one host: use -D high"),
        ({}, ["beta"], ["alpha"], "this host is not in the masters file"),
    ],
)
def test_what_cannot_be_one_cluster_is_refused(
    hosts: Hosts, changes: dict[str, str], masters: list[str], workers: list[str], said: str
) -> None:
    hosts.ask_for(masters, workers)
    if changes:
        del hosts.settings["high-availability.zookeeper.quorum"]
    hosts.configure(**changes)

    assert said in hosts.start(code=2)


def test_localhost_among_other_hosts_is_refused(hosts: Hosts) -> None:
    hosts.ask_for([], ["beta"])
    (hosts.conf / "masters").write_text("localhost\n")

    assert "could not reach it by that name" in hosts.start(code=2)
