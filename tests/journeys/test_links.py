"""Links over TCP, and REST with a secret, as a user sets them: on one host and on several."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.journeys import harness
from tests.journeys.conftest import Start
from tests.journeys.harness import COMMAND, SESSION_LESS
from tests.support import namespaces
from tests.support.sampling import quickly

pytestmark = pytest.mark.filesystem  # With a backend of its own.

SECRET = "a secret of this journey, and of no other"


def secret_file(place: Path, text: str = SECRET, name: str = "secret") -> Path:
    path = place / name
    path.write_text(text + "\n")
    path.chmod(0o600)
    return path


def given(*settings: str) -> list[str]:
    return [word for setting in settings for word in ("-D", setting)]


def tls(place: Path, family: str) -> list[str]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(place / f"{family}-trust.pem"))
    issued = authority.issue_cert("127.0.0.1", "localhost")
    issued.private_key_and_cert_chain_pem.write_to_path(str(place / f"{family}.pem"))
    begin = f"security.ssl.{family}"
    return [
        f"{begin}.enabled=true",
        f"{begin}.keystore={place}/{family}.pem",
        f"{begin}.truststore={place}/{family}-trust.pem",
    ]


def asked(
    url: str, shown: str | None = None, context: ssl.SSLContext | None = None
) -> tuple[int, Any]:
    headers = {} if shown is None else {"authorization": shown}
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.load(refusal)


def published(place: Path) -> set[str]:
    """Return the addresses of links that stand in the register."""
    found: set[str] = set()
    for directory, _, names in os.walk(place / "state"):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # It was replaced meanwhile.
                text = Path(directory, name).read_text(errors="replace")
                found |= set(re.findall(r"(?:tcp|unix):[^\"]+", text))
    return {one for one in found if one.startswith(("tcp://", "unix:@"))}


# --- on one host ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "secured", quickly(["the secret", "the secret and TLS"], ["the secret and TLS"])
)
def test_a_job_runs_on_over_tcp_while_its_leader_is_lost(
    start: Start, place: Path, nothing_left: Callable[[], None], secured: str
) -> None:
    settings = [f"security.secret-file={secret_file(place)}", "jobmanager.bind-host=127.0.0.1"]
    context = None
    if secured == "the secret and TLS":
        settings += [*tls(place, "internal"), *tls(place, "rest")]
        settings.append("security.ssl.rest.authentication-enabled=true")
        context = ssl.create_default_context(cafile=str(place / "rest-trust.pem"))
        context.load_cert_chain(str(place / "rest.pem"))
    options = given(*settings)
    token = harness.command(place, "token", *options).stdout.strip()
    run = start("three.py", options=options, standbys=1)
    run.shown, run.tls = {"authorization": f"Bearer {token}"}, context
    run.running("second job")
    driver = run.busy()[1]["driver_pid"]
    seconds = []
    for _ in range(3):
        status = run.standby_is_ready()
        os.kill(status["leader"]["pid"], signal.SIGKILL)
        seconds.append(run.wait("takeover")["seconds"])
    same_driver = run.busy()[1]["driver_pid"] == driver
    standby = run.standby_is_ready()["standbys"][0]["rest"]
    links = published(place)
    right, wrong = f"Bearer {token}", f"Bearer {token[:-1]}{'1' if token[-1] == '0' else '0'}"
    refusals = {
        path: asked(base + path, shown, context)
        for base in (run.rest, standby)
        for path in ("/overview", "/ha/status", "/metrics", "/nowhere", "/v1/overview")
        for shown in (None, wrong, token, f"Basic {token}", "Bearer ", f"{right}, {right}")
    }
    handed_on = asked(f"{standby}/overview", f"bearer {token}", context)
    run.release()

    assert run.finish() == 0
    assert same_driver
    assert run.lines("jobs.txt") == ["first 1", "long 1", "third 1"]
    assert len(links) == 1
    assert links.pop().startswith("tcp://127.0.0.1:")
    assert max(seconds) < harness.BY_PROOF_S, seconds
    assert {401} == {code for code, _ in refusals.values()}
    assert "understudy token" in refusals["/nowhere"][1]["errors"][0]
    assert handed_on[0] == 200
    assert run.rest.startswith("http://" if context is None else "https://127.0.0.1:")
    assert SECRET not in run.log.read_text()
    assert token not in run.log.read_text()
    nothing_left()


def test_commands_show_the_token_or_say_what_is_missing(start: Start, place: Path) -> None:
    cluster = "high-availability.cluster-id=mine"
    settings = [cluster, f"security.secret-file={secret_file(place)}", *tls(place, "rest")]
    run = start("three.py", options=given(*settings))
    run.running("second job")
    listed = harness.command(place, "list", "--json", *given(*settings))
    (application,) = json.loads(listed.stdout)["applications"]
    another = secret_file(place, "some secret of another cluster", "another")

    def refused(*other: str) -> str:
        return harness.command(place, "info", *given(cluster, *other), run_id, code=1).stderr

    run_id = application["run-id"]
    no_secret = refused(*settings[2:])
    other_secret = refused(f"security.secret-file={another}", *settings[2:])
    no_tls = refused(settings[1])
    harness.command(place, "cancel", *given(*settings), application["id"])
    code = run.finish()

    assert application["status"] == "RUNNING"
    assert code == 3
    assert "does not take our token: security.secret-file must name a file" in no_secret
    assert "does not take our token" in other_secret
    assert "certificate verify failed" in no_tls
    assert "security.ssl.rest.* must be the same there and here" in no_tls


@pytest.mark.long
def test_ctrl_c_cancels_where_rest_wants_a_token(start: Start, place: Path) -> None:
    settings = [f"security.secret-file={secret_file(place)}", *tls(place, "rest")]
    run = start("three.py", options=given(*settings))
    run.running("second job")
    run.process.send_signal(signal.SIGINT)
    finished = run.wait("application-finished")

    assert finished["status"] == "CANCELED"
    assert run.finish() == 130


@pytest.mark.long  # Units: tests/rpc/test_tls.py.
def test_a_taskmanager_with_another_secret_is_named_in_both_logs_and_goes_on_trying(
    start: Start, place: Path
) -> None:
    settings = ["high-availability.cluster-id=mine", "jobmanager.bind-host=127.0.0.1"]
    own = given(*settings, f"security.secret-file={secret_file(place)}")
    run = start("three.py", options=own)
    run.running("second job")
    other = secret_file(place, "some secret of another cluster", "another")
    log = place / "taskmanager.log"
    with log.open("wb") as file:
        stranger = subprocess.Popen(
            [
                *[*COMMAND, "taskmanager", *SESSION_LESS],
                *given(*settings, f"security.secret-file={other}"),
            ],
            cwd=place,
            env=harness.environment(place),
            stderr=file,
        )
    try:
        run.said("127.0.0.1: refused, it does not know the secret: security.secret-file must")
        deadline = time.monotonic() + harness.PATIENCE_S
        while "it refuses us: security.secret-file must" not in log.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        alive = stranger.poll() is None
    finally:
        stranger.terminate()
        stranger.wait(30)
    run.release()

    assert run.finish() == 0
    assert alive
    assert run.lines("jobs.txt") == ["first 1", "long 1", "third 1"]
    assert "another cluster" not in log.read_text()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["jobmanager.bind-host=10.0.0.1"], "jobmanager.bind-host is '10.0.0.1', but security."),
        (["rest.bind-address=10.0.0.1"], "rest.bind-address is '10.0.0.1', but security.secret-"),
        (["security.secret-file=none"], "security.secret-file: none does not exist: make one"),
        (
            ["security.secret-file=secret", "jobmanager.bind-host=0.0.0.0"],
            "set jobmanager.rpc.address to the one under which others reach it",
        ),
        (
            ["security.secret-file=secret", "rest.bind-address=::"],
            "set rest.address to the one under which others reach it",
        ),
        (["security.ssl.rest.enabled=true"], "security.ssl.rest.truststore is not set"),
        (
            ["security.ssl.rest.enabled=true", "security.ssl.rest.truststore=secret"],
            "security.ssl.rest.truststore: secret holds no certificates as PEM",
        ),
        (["security.ssl.internal.keystore=x"], "but security.ssl.internal.enabled is not"),
        (
            ["security.secret-file=open"],
            "security.secret-file: open can be read or written by others than its owner",
        ),
    ],
)
@pytest.mark.parametrize(
    "role", quickly(["run-application", "jobmanager", "taskmanager"], ["run-application"])
)
def test_a_door_that_would_stand_open_is_refused_before_anything_starts(
    place: Path, role: str, settings: list[str], expected: str
) -> None:
    harness.put_app(place, "three.py")
    secret_file(place)
    secret_file(place, name="open").chmod(0o644)

    app = [] if role == "taskmanager" else ["three.py"]
    done = harness.command(place, role, *given(*settings), *app, code=2)

    assert expected in done.stderr
    assert not (place / "main.txt").exists()
    assert SECRET not in done.stderr


def test_the_token_is_printed_for_curl_and_is_not_the_secret(place: Path) -> None:
    path = f"security.secret-file={secret_file(place)}"

    token = harness.command(place, "token", "-D", path).stdout

    assert re.fullmatch(r"[0-9a-f]{64}\n", token)
    assert "security.secret-file is not set" in harness.command(place, "token", code=2).stderr


# --- on several hosts -----------------------------------------------------------------------------


class Hosts:
    """Three hosts that share a directory, and no Unix socket: those end where a namespace does."""

    def __init__(self, place: Path, net: namespaces.Network) -> None:
        self.place = place
        self.net = net
        self.processes: list[subprocess.Popen[bytes]] = []

    def begin(self, host: str, *arguments: str) -> Path:
        """Start a command on a host; return its log."""
        log = self.place / f"{host}-{arguments[0]}-{len(self.processes)}.log"
        with log.open("wb") as file:
            self.processes.append(
                subprocess.Popen(
                    [*self.net.prefix(host), *COMMAND, *arguments],
                    cwd=self.place,
                    env=harness.environment(self.place),
                    stdout=file,
                    stderr=file,
                )
            )
        return log

    def command(self, host: str, *arguments: str) -> Any:
        """Run a command on a host; return what it prints, as JSON."""
        done = subprocess.run(
            [*self.net.prefix(host), *COMMAND, *arguments],
            cwd=self.place,
            env=harness.environment(self.place),
            capture_output=True,
            check=True,
            timeout=harness.PATIENCE_S,
        )
        return json.loads(done.stdout)

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + harness.PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.05)

    def logs(self) -> str:
        """Return what all have said, for the message of a failing test."""
        logs = self.place.glob("*.log")
        return "\n".join(f"--- {one.name}\n{one.read_text()[-3000:]}" for one in logs)


@pytest.fixture
def hosts(place: Path) -> Iterator[Hosts]:
    if why := namespaces.unavailable():
        pytest.skip(why)
    with namespaces.Network(["one", "two", "three"]) as net:
        ground = Hosts(place, net)
        yield ground
        for process in ground.processes:
            process.kill()
            process.wait(30)


def test_a_leader_on_another_host_is_found_lost_and_followed(hosts: Hosts, place: Path) -> None:
    harness.put_app(place, "three.py")
    shared = given(
        "high-availability.cluster-id=mine",
        f"security.secret-file={secret_file(place)}",
    )

    def jobmanager(host: str) -> Path:
        at = hosts.net.address(host)
        bound = given(
            f"jobmanager.bind-host={at}",
            "rest.bind-address=0.0.0.0",
            f"rest.address={at}",
        )
        line = (
            *harness.impatient(),
            *harness.LASTING,
            *SESSION_LESS,
            *shared,
            *bound,
            "--run-id",
            "r",
            "three.py",
        )
        return hosts.begin(host, "jobmanager", *line)

    log = jobmanager("one")
    hosts.until(lambda: "granted term" in log.read_text())
    jobmanager("two")
    hosts.begin(
        "three", "taskmanager", *harness.impatient(), *harness.LASTING, *SESSION_LESS, *shared
    )
    hosts.until((place / "pids.txt").exists)
    before = published(place)
    listed = hosts.command("three", "list", "--json", *shared)["applications"]
    hosts.processes[0].kill()
    hosts.until(lambda: len(published(place) - before) == 1)
    hosts.until(lambda: (place / "main.txt").read_text().count("\n") == 2)
    (place / "go").touch()
    codes = [hosts.processes[1].wait(harness.PATIENCE_S)]

    assert ["RUNNING"] == [one["status"] for one in listed]
    assert codes == [0], hosts.logs()
    assert (place / "jobs.txt").read_text().split("\n")[:-1] == ["first 1", "long 1", "third 1"]
    assert "can read the token of each request" in log.read_text()


@pytest.mark.long  # Units: tests/ha/test_retrieval.py.
def test_the_one_jobmanager_is_found_on_another_host_where_the_configuration_says(
    hosts: Hosts, place: Path
) -> None:
    harness.put_app(place, "three.py")
    (place / "go").touch()
    at = hosts.net.address("one")
    shared = given(
        "high-availability.type=NONE",
        f"security.secret-file={secret_file(place)}",
        f"jobmanager.rpc.address={at}",
        f"rest.address={at}",
    )
    hosts.begin("two", "taskmanager", *SESSION_LESS, *shared)
    bound = given("jobmanager.bind-host=0.0.0.0", "rest.bind-address=0.0.0.0")
    hosts.begin("one", "jobmanager", *SESSION_LESS, *shared, *bound, "three.py")

    assert hosts.processes[1].wait(harness.PATIENCE_S) == 0, hosts.logs()
    assert (place / "jobs.txt").read_text().split("\n")[:-1] == ["first 1", "long 1", "third 1"]
