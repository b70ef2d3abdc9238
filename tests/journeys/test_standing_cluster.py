"""A cluster that stands on its own, on one host; and JobManagers that never had the script."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.journeys import harness
from tests.journeys.harness import COMMAND, SESSION_LESS, command, lines
from tests.journeys.members import Begin, members, until
from understudy.process.given_files import GIVEN_BYTES_MAX

pytestmark = pytest.mark.filesystem  # With a backend of its own.

OPTIONS = (*SESSION_LESS, *harness.impatient())


@pytest.fixture
def begin(place: Path) -> Iterator[Begin]:
    """Return a function that starts a process of the cluster in the foreground."""
    with members(place) as start:
        yield lambda role, *arguments: start(role, *OPTIONS, *arguments)


@pytest.fixture
def conf(place: Path) -> Iterator[Path]:
    """Return a directory of configuration that asks for two JobManagers and a TaskManager."""
    directory = place / "conf"
    directory.mkdir()
    (directory / "masters").write_text("localhost\nlocalhost\n")
    settings = [one.split("=", 1) for one in OPTIONS if one != "-D"]
    (directory / "config.yaml").write_text(
        "".join(f"{key}: '{value}'\n" for key, value in settings)
    )
    yield directory
    harness.kill(harness.processes_of(place))


def status(place: Path, conf: Path, code: int | None = 0) -> dict[str, Any]:
    done = command(place, "cluster", "status", "--config-dir", str(conf), "--json", code=code)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.long  # test_ending.py has single processes.
def test_a_jobmanager_without_an_application_waits_takes_over_and_finishes(
    begin: Begin, place: Path
) -> None:
    script = harness.put_app(place, "three.py")
    without = begin("jobmanager")
    log = place / "jobmanager-0.log"
    until(lambda: "waits until there is a run" in log.read_text())
    rest = log.read_text().split("jobmanager-started")[1].split("rest=")[1].split()[0]
    told = httpx.get(f"{rest}/ha/status")
    begin("taskmanager")
    leader = begin("jobmanager", str(script))
    until(lambda: lines(place, "jobs.txt") == ["first 1", "long 1"])
    script.unlink()
    harness.kill(sorted(harness.descendants_of({leader.pid})))
    until(lambda: len(lines(place, "main.txt")) == 2)
    (place / "go").touch()
    code = without.wait(harness.PATIENCE_S)
    again = begin("jobmanager")
    until(lambda: "waits until there is a run" in (place / "jobmanager-3.log").read_text())
    again.terminate()
    again.wait(30)

    assert 503 == told.status_code
    assert "started without an application" in told.text
    assert 0 == code
    assert ["first 1", "long 1", "third 1"] == lines(place, "jobs.txt")


@pytest.mark.long
def test_it_ends_with_the_run_as_other_standbys_do(begin: Begin, place: Path) -> None:
    script = harness.put_app(place, "three.py")
    begin("taskmanager")
    (place / "go").touch()
    without = begin("jobmanager")
    log = place / "jobmanager-1.log"
    until(lambda: "waits until there is a run" in log.read_text())
    leader = begin("jobmanager", str(script))

    assert [0, 0] == [leader.wait(harness.PATIENCE_S), without.wait(harness.PATIENCE_S)]
    assert ["first 1", "long 1", "third 1"] == lines(place, "jobs.txt")


def test_a_cluster_is_started_looked_at_stopped_and_goes_on(place: Path, conf: Path) -> None:
    script = harness.put_app(place, "three.py")
    at = ("--config-dir", str(conf))
    first = command(place, "cluster", "start", *at, str(script)).stdout
    until(lambda: lines(place, "jobs.txt") == ["first 1", "long 1"])
    until(lambda: status(place, conf)["processes"][2]["slots"] == "1 of 2")  # The other is warm.
    running = status(place, conf)
    again = command(place, "cluster", "start", *at, str(script)).stdout
    stopped = command(place, "cluster", "stop", *at).stdout
    left = harness.processes_of(place)
    missing = status(place, conf, code=1)
    (place / "go").touch()
    third = command(place, "cluster", "start", *at, str(script))
    until(lambda: "third 1" in lines(place, "jobs.txt"))
    until(lambda: [] == [one for one in status(place, conf, None)["processes"] if one["leads"]])
    command(place, "cluster", "stop", *at)

    states = [(one["role"], one["state"], one["leads"]) for one in running["processes"]]
    assert [("jobmanager", "runs", True), ("jobmanager", "runs", False)] == states[:2]
    assert [("taskmanager", "runs", None)] == states[2:]
    assert 3 == first.count("is started")
    assert running["leader"]["rest"] == running["processes"][0]["rest"]
    assert 3 == again.count("runs already")
    assert "its data is kept" in stopped
    assert {} == left
    assert {"missing"} == {one["state"] for one in missing["processes"]}
    assert "is unfinished here: it is continued" in third.stderr
    assert ["first 1", "long 1", "long 2", "third 1"] == lines(place, "jobs.txt")
    assert {} == harness.processes_of(place)


@pytest.mark.long
def test_a_cluster_that_is_to_stay_leads_and_tells_after_its_application(
    place: Path, conf: Path
) -> None:
    script = harness.put_app(place, "three.py")
    (place / "go").touch()
    with (conf / "config.yaml").open("a") as file:
        file.write("execution.shutdown-on-application-finish: 'false'\n")
    at = ("--config-dir", str(conf))
    command(place, "cluster", "start", *at, str(script))
    until(lambda: ["FINISHED"] == states(place, at))
    before = status(place, conf)
    leader = next(one for one in before["processes"] if one["leads"])
    told = httpx.get(f"{leader['rest']}/jobs/overview", timeout=60).json()["jobs"]
    harness.kill([leader["pid"]])
    until(lambda: leads(place, conf) not in {None, leader["pid"]})
    after = states(place, at)
    command(place, "cluster", "stop", *at)

    assert ["FINISHED"] * 3 == [one["state"] for one in told]
    assert {("runs", True), ("runs", False), ("runs", None)} == {
        (one["state"], one["leads"]) for one in before["processes"]
    }
    assert ["FINISHED"] == after
    assert ["first 1", "long 1", "third 1"] == lines(place, "jobs.txt")
    assert 1 == len(lines(place, "main.txt"))
    assert {} == harness.processes_of(place)


def states(place: Path, at: tuple[str, ...]) -> list[str]:
    """Return the states of the applications."""
    listed = json.loads(command(place, "list", *at, "--json", code=None).stdout)
    return [one["status"] for one in listed["applications"]]


def leads(place: Path, conf: Path) -> int | None:
    """Return the process that leads."""
    found = [one["pid"] for one in status(place, conf, None)["processes"] if one["leads"]]
    return found[0] if found else None


@pytest.mark.long  # Units: tests/cli/test_members.py.
def test_what_was_started_under_other_lines_is_shown_and_stopped(place: Path, conf: Path) -> None:
    script = harness.put_app(place, "three.py")
    at = ("--config-dir", str(conf))
    command(place, "cluster", "start", *at, str(script))
    until(lambda: lines(place, "jobs.txt") == ["first 1", "long 1"])
    (conf / "masters").write_text("localhost\n")
    fewer = command(place, "cluster", "start", *at, str(script))
    (conf / "masters").write_text("127.0.0.1\n")
    renamed = command(place, "cluster", "start", *at, str(script), code=1).stderr
    shown = status(place, conf, code=1)["processes"]
    stopped = command(place, "cluster", "stop", *at).stdout
    left = harness.processes_of(place)

    said = "; masters and workers do not ask for jobmanager 2 on localhost"
    assert [1, 0] == [fewer.stderr.count(said), fewer.stdout.count(said)]
    assert "runs already\n" in fewer.stdout
    assert ": 2 processes\n" in fewer.stdout
    assert "127.0.0.1: jobmanager 1 failed: process " in renamed
    assert "is jobmanager 1 of this host by another name, localhost: write that name" in renamed
    assert ["missing", "runs", "runs", "runs"] == [one["state"] for one in shown]
    assert ["", "", "localhost", "localhost"] == [one["under"] for one in shown]
    assert "is stopped; masters and workers do not ask for jobmanager 2 on localhost" in stopped
    assert {} == left


def test_what_does_not_come_up_is_told_with_the_end_of_its_log(place: Path, conf: Path) -> None:
    script = harness.put_app(place, "three.py")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (conf / "masters").write_text(f"localhost:{port}\n")
        done = command(place, "cluster", "start", "--config-dir", str(conf), str(script), code=1)

    assert "localhost: jobmanager 1 failed: " in done.stderr
    assert f"rest.bind-port: none of {port}" in done.stderr
    assert "no other process was started" in done.stderr
    assert {} == harness.processes_of(place)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["jobmanager", "--rerun", "x"], "give APP, or leave them"),
        (["jobmanager", "--conf", "spark.x=1"], "give APP, or leave them"),
        (["jobmanager", "-D", "high-availability.type=NONE"], "give it the application"),
        (["jobmanager", "--host", "a b"], "--host 'a b': expected the name or the address"),
        (["jobmanager", "--host", "192.0.2.1"], "security.secret-file"),
        (["jobmanager", "--host", "0.0.0.0"], "--host '0.0.0.0': this is every address of a host"),
        (["jobmanager", "-D", "rest.address=::"], "rest.address is '::', which is every address"),
        (["taskmanager", "--host", "-x"], "--host '-x': expected the name or the address"),
        (["taskmanager", "--host", "::"], "--host '::': this is every address of a host, not one"),
        (["cluster", "start", "no.py"], "no.py: no such script"),
        (["cluster", "stop", "--config-dir", "nowhere"], "nowhere/config.yaml"),
    ],
)
def test_what_cannot_be_meant_is_refused(place: Path, arguments: list[str], said: str) -> None:
    assert said in command(place, *arguments, code=2).stderr


def test_files_that_are_not_read_are_warned_of(place: Path, conf: Path) -> None:
    beside = command(place, "cluster", "status", *OPTIONS, code=1).stderr
    read = command(place, "cluster", "status", "--config-dir", "conf", code=1).stderr
    (conf / "masters").unlink()
    (conf / "config.yaml").unlink()
    without = command(place, "cluster", "status", *OPTIONS, code=1).stderr

    assert (
        "understudy: conf/masters is not read without `--config-dir conf` (or "
        "UNDERSTUDY_CONF_DIR=conf)\n"
    ) == beside
    assert "" == read == without


def test_what_is_no_order_is_refused(place: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "cluster", "member"],
        cwd=place,
        env=harness.environment(place),
        input="{}",
        capture_output=True,
        text=True,
        timeout=harness.PATIENCE_S,
        check=False,
    )

    assert 1 == done.returncode
    assert "this is no order of this version of Understudy" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["jobmanager", "--host", "192.0.2.1", "-D", "security.secret-file=secret"],
        ["cluster", "start", "--config-dir", "conf"],
    ],
)
def test_a_file_that_other_hosts_would_not_get_is_refused(
    place: Path, conf: Path, arguments: list[str]
) -> None:
    script = harness.put_app(place, "three.py")
    (place / "secret").write_text("a secret of more than 16 bytes")
    (place / "secret").chmod(0o600)
    (conf / "masters").write_text("192.0.2.1\n")
    with (conf / "config.yaml").open("a") as file:
        file.write(
            "high-availability.type: zookeeper\n"
            "high-availability.zookeeper.quorum: 192.0.2.1:2181\n"
        )
    large = place / "large.jar"
    large.touch()
    os.truncate(large, GIVEN_BYTES_MAX + 1)
    done = command(place, *arguments, "--jars", "large.jar", str(script), code=2)

    assert f"--jars {large}: takes more than the 64 MB that are stored" in done.stderr
    assert f"give file://{large}, or give its URL" in done.stderr


READS = """
import os, shlex, time
from pathlib import Path

[files] = [one for one in shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"]) if "spark.files=" in one]
with open("main.txt", "a") as noted:
    noted.write("main\\n")
while not Path("go").exists():
    time.sleep(0.05)
Path("read.txt").write_text(Path(files.partition("=")[2]).read_text())
"""


@pytest.mark.long  # Units: tests/process/test_given_files.py.
def test_files_that_were_given_are_there_for_a_jobmanager_that_never_had_them(
    begin: Begin, place: Path
) -> None:
    script, data = place / "reads.py", place / "data.txt"
    script.write_text(READS)
    data.write_text("data")
    without = begin("jobmanager")
    leader = begin("jobmanager", "--as", "main", "--files", data.name, str(script))
    until(lambda: len(lines(place, "main.txt")) == 1)
    script.unlink()
    data.unlink()
    harness.kill(sorted(harness.descendants_of({leader.pid})))
    until(lambda: len(lines(place, "main.txt")) == 2)
    (place / "go").touch()
    code = without.wait(harness.PATIENCE_S)

    assert 0 == code, (place / "jobmanager-0.log").read_text()[-4000:]
    assert "data" == (place / "read.txt").read_text()
