"""``understudy zookeeper``: real servers, as a user starts, asks and ends them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.journeys.harness import COMMAND, PATIENCE_S
from tests.support.zookeeper import LOOPBACK, free_port
from understudy.cli.launch import background

pytestmark = pytest.mark.filesystem  # With a backend of its own.


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Return a directory; whatever server was started on data below it is ended."""
    yield tmp_path
    for record in tmp_path.rglob("understudy-zookeeper.json"):
        if (server := background.recorded(record)) is not None:
            background.end(server, grace_s=0.0)


def zookeeper(
    place: Path, *arguments: str | Path, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    environment = {**os.environ, "XDG_STATE_HOME": str(place / "state"), **(variables or {})}
    return subprocess.run(
        [*COMMAND, "zookeeper", *map(str, arguments)],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def configured(place: Path, *lines: str, port: int | None = None, name: str = "zoo.cfg") -> Path:
    """Write a configuration with data of its own."""
    file = place / name
    # Relative: from the directory of the file.
    said = [f"dataDir=data-{file.stem}", f"clientPort={port or free_port()}"]
    said += [f"clientPortAddress={LOOPBACK}", "admin.enableServer=false", *lines]
    file.write_text("\n".join(said) + "\n")
    return file


def status(place: Path, config: Path) -> dict[str, Any]:
    """Ask for the status; its exit code must tell the same."""
    done = zookeeper(place, "status", "--config", config, "--json")
    said: dict[str, Any] = json.loads(done.stdout)

    assert (0 if said["serves"] else 1) == done.returncode

    return said


def test_a_server_is_started_asked_used_and_stopped_and_its_data_stay(place: Path) -> None:
    config = configured(place)

    before = zookeeper(place, "status", "--config", config)
    started = zookeeper(place, "start", "--config", config)
    said = status(place, config)
    client = KazooClient(said["quorum"])
    client.start(PATIENCE_S)
    client.create("/kept", b"what was written")
    connected = status(place, config)["connections"]
    client.stop()
    stopped = zookeeper(place, "stop", "--config", config)

    assert 1 == before.returncode
    assert 0 == started.returncode, started.stderr
    assert "trying out and for small clusters" in started.stdout
    assert (
        "-D high-availability.type=zookeeper "
        f"-D high-availability.zookeeper.quorum={said['address']}\n"
    ) in started.stdout
    assert "standalone" == said["mode"]
    assert str(place / "data-zoo") == said["data"]
    assert 1 == connected
    assert f"stopped: {said['address']} (pid {said['pid']})\n" == stopped.stdout
    assert not Path(f"/proc/{said['pid']}").exists() or _is_zombie(said["pid"])
    assert 1 == zookeeper(place, "status", "--config", config).returncode

    zookeeper(place, "start", "--config", config)
    client = KazooClient(said["quorum"])
    client.start(PATIENCE_S)
    found, _ = client.get("/kept")
    client.stop()

    assert b"what was written" == found


def _is_zombie(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


@pytest.mark.long
def test_to_start_what_runs_and_to_stop_what_does_not_is_said_and_no_error(place: Path) -> None:
    config = configured(place)

    never = zookeeper(place, "stop", "--config", config)
    first = zookeeper(place, "start", "--config", config)
    pid = status(place, config)["pid"]
    second = zookeeper(place, "start", "--config", config)
    still = status(place, config)["pid"]
    zookeeper(place, "stop", "--config", config)
    again = zookeeper(place, "stop", "--config", config)

    assert [0, 0, 0, 0] == [done.returncode for done in (never, first, second, again)]
    assert never.stdout.startswith("does not run: ")
    assert second.stdout.startswith("already runs: ZooKeeper ")
    assert pid == still
    assert again.stdout.startswith("does not run: ")


@pytest.mark.long
def test_a_pid_that_was_given_to_somebody_else_is_left_alone(place: Path) -> None:
    config = configured(place)
    zookeeper(place, "start", "--config", config)
    record = place / "data-zoo" / "understudy-zookeeper.json"
    server = json.loads(record.read_text())
    os.kill(server["pid"], signal.SIGKILL)
    with subprocess.Popen(["sleep", "60"]) as other:
        record.write_text(json.dumps({**server, "pid": other.pid}))

        stopped = zookeeper(place, "stop", "--config", config)
        lives = other.poll() is None
        other.kill()

    assert stopped.stdout.startswith("does not run: ")
    assert lives


@pytest.mark.long  # It takes the whole grace period.
def test_a_frozen_server_is_stopped_too(place: Path) -> None:
    config = configured(place)
    zookeeper(place, "start", "--config", config)
    pid = background.recorded(place / "data-zoo" / "understudy-zookeeper.json")
    assert pid is not None
    os.kill(pid.pid, signal.SIGSTOP)

    said = status(place, config)
    stopped = zookeeper(place, "stop", "--config", config)

    assert not said["serves"]
    assert stopped.stdout.startswith("stopped: ")
    assert not pid.lives


@pytest.mark.long  # Ensembles: tests/ha/test_ensembles.py.
def test_three_members_are_a_quorum_and_serve_while_two_are_there(place: Path) -> None:
    ports = [free_port() for _ in range(9)]
    members = [
        f"server.{n + 1}={LOOPBACK}:{ports[3 * n]}:{ports[3 * n + 1]};{LOOPBACK}:{ports[3 * n + 2]}"
        for n in range(3)
    ]
    configs = []
    for n in range(3):
        config = place / f"member-{n + 1}.cfg"
        lines = [f"dataDir={place / f'data-{n + 1}'}", "tickTime=500", "initLimit=10"]
        config.write_text("\n".join([*lines, "syncLimit=4", "admin.enableServer=false", *members]))
        configs.append(config)

    nameless = zookeeper(place, "start", "--config", configs[0])
    first = zookeeper(place, "start", "--config", configs[0], "--myid", "1")
    alone = status(place, configs[0])
    others = [
        zookeeper(place, "start", "--config", configs[1], "--myid", "2"),
        zookeeper(place, "start", "--config", configs[2], "--myid", "3"),
    ]
    until = time.monotonic() + PATIENCE_S
    while not all(
        (said := [status(place, config) for config in configs])[n]["serves"] for n in range(3)
    ):
        assert time.monotonic() < until, said
    leader = next(n for n in range(3) if said[n]["mode"] == "leader")
    quorum = said[0]["quorum"]
    zookeeper(place, "stop", "--config", configs[leader])
    client = KazooClient(quorum, timeout=5.0)
    client.start(PATIENCE_S)
    client.retry(client.create, "/with-two", b"")
    client.stop()
    back = zookeeper(place, "start", "--config", configs[leader])
    other = zookeeper(place, "start", "--config", configs[leader], "--myid", str(leader % 3 + 2))

    assert 2 == nameless.returncode
    assert "which of them is this one? Say --myid N" in nameless.stderr
    assert "member 1 of 3 runs, and does not serve: too few" in first.stdout
    assert not alone["serves"]
    assert [0, 0] == [done.returncode for done in others]
    assert ["follower", "follower", "leader"] == sorted(one["mode"] for one in said)
    assert ",".join(f"{LOOPBACK}:{ports[3 * n + 2]}" for n in range(3)) == quorum
    assert 0 == back.returncode
    assert 2 == other.returncode
    assert "the data of a member cannot become another's" in other.stderr


@pytest.mark.long
def test_the_server_in_the_foreground_is_the_process_that_was_started(place: Path) -> None:
    config = configured(place)
    command = [*COMMAND, "zookeeper", "start", "--foreground", "--config", str(config)]
    with subprocess.Popen(command, cwd=place, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        for line in server.stderr:
            if "binding to port" in line:
                break
        until = time.monotonic() + PATIENCE_S
        while not (said := status(place, config))["serves"]:
            assert time.monotonic() < until
        refused = zookeeper(place, "stop", "--config", config)
        server.terminate()
        server.stderr.close()
        code = server.wait(PATIENCE_S)

    assert said["pid"] is None
    assert 1 == refused.returncode
    assert "was not started in the background by this command" in refused.stderr
    assert code in {143, -signal.SIGTERM}


@pytest.mark.long
def test_without_a_configuration_one_is_written_and_is_the_users_from_then_on(place: Path) -> None:
    never = zookeeper(place, "stop")
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # Somebody else's will do as well.
            stack.enter_context(socket.create_server((LOOPBACK, 2181)))
        taken = zookeeper(place, "start")
    file = place / "state" / "understudy" / "zookeeper" / "zoo.cfg"
    port = free_port()
    file.write_text(file.read_text().replace("clientPort=2181", f"clientPort={port}"))
    started = zookeeper(place, "start")
    stopped = zookeeper(place, "stop")

    assert "does not run: 127.0.0.1:2181\n" == never.stdout
    assert (0, 1) == (never.returncode, taken.returncode)
    assert f"port 2181 of {LOOPBACK} is taken" in taken.stderr
    assert str(file) in taken.stderr
    assert f"serves at {LOOPBACK}:{port} (standalone)" in started.stdout
    assert stopped.stdout.startswith(f"stopped: {LOOPBACK}:{port} ")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("clientPort=2181", "dataDir is missing"),
        ("dataDir=data", "clientPort is missing"),
        ("dataDir=data\nclientPort=soon", "clientPort is 'soon'"),
        ("dataDir=data\nclientPort=2181\nnonsense", "'nonsense': expected key=value"),
        ("dataDir=data\nclientPort=2181\nserver.1=host", "server.1=host: expected HOST:PORT:PORT"),
        ("dataDir=data\nclientPort=2181\n4lw.commands.whitelist=ruok", "must name srvr"),
        ("dataDir=/proc/data\nclientPort=2181", "dataDir /proc/data cannot be written"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused_by_name(
    place: Path, lines: str, said: str
) -> None:
    config = place / "zoo.cfg"
    config.write_text(lines)

    done = zookeeper(place, "start", "--config", config)

    assert done.returncode in {1, 2}
    assert said in done.stderr
    assert 1 == len(done.stderr.strip().splitlines())


def test_what_only_zookeeper_finds_wrong_is_told_from_its_log(place: Path) -> None:
    config = configured(place, "tickTime=soon")

    done = zookeeper(place, "start", "--config", config)

    assert 1 == done.returncode
    assert "ZooKeeper has ended; the end of its log" in done.stderr
    assert 'NumberFormatException: For input string: "soon"' in done.stderr
    assert "\tat " not in done.stderr


def test_what_the_jvm_refuses_is_told(place: Path) -> None:
    config = configured(place)

    done = zookeeper(
        place, "start", "--config", config, variables={"SERVER_JVMFLAGS": "-XX:Nonsense"}
    )

    assert 1 == done.returncode
    assert "Unrecognized VM option 'Nonsense'" in done.stderr
