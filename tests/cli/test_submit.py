"""Submitting to a session: each step may be repeated, and what is not known is said."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from tests.support.virtual_time import run_virtual
from understudy.api.client import ClusterClient
from understudy.cli.commands import submit
from understudy.cli.commands.group import app
from understudy.cli.commands.submit import OnInterrupt, _Interrupts, _Submitted, _Wanted
from understudy.cli.launch.logs import print_log
from understudy.cli.launch.submitting import application_spec
from understudy.cli.launch.typed import Typed
from understudy.config import Configuration
from understudy.errors import AlreadyEndedError, NoLeaderError, UnderstudyError, UsageError

OWN = "a" * 32


class Cluster:
    """A cluster as a client sees it."""

    def __init__(self, *, leads: bool = True, lives: bool = False, ended: str = "") -> None:
        self.leads = leads
        self.lives_ = lives
        self.ended = ended
        self.uploads: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.posts: list[str] = []
        self.log_ = [b"t [main] one\n", b"", b"t [main] two\n"]

    async def get(self, path: str, *, awaits_leader: bool = False) -> dict[str, Any]:
        if not self.leads:
            raise NoLeaderError("nobody")
        return {"status": "RUNNING" if self.log_ else "FINISHED"}

    async def is_alive(self) -> bool:
        return self.lives_

    async def upload(self, file: Path) -> dict[str, Any]:
        self.uploads.append(file.name)
        return {"id": f"id-{file.name}"}

    async def run_application(self, artifact: str, body: dict[str, Any]) -> str:
        self.bodies.append(body)
        if self.ended:
            raise AlreadyEndedError("over", OWN, self.ended)
        return OWN

    async def post(self, path: str) -> dict[str, Any]:
        self.posts.append(path)
        return {}

    async def log(self, _: str, offset: int) -> tuple[bytes, int]:
        return (self.log_.pop(0) if self.log_ else b""), offset + 1


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("UNDERSTUDY_CONF_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text("print(1)\n")


def wanted(run_id: str | None = None, target: str = "session") -> _Wanted:
    configuration = Configuration({})
    spec = application_spec(configuration, Typed("app.py"))
    return _Wanted(configuration, spec, run_id, {"savepointPath": "/kept"}, target)


def submitted(cluster: Cluster, run_id: str | None = None, target: str = "session") -> _Submitted:
    found = _Submitted(run_id or OWN)
    client = cast("ClusterClient", cluster)
    asyncio.run(wanted(run_id, target).submit_as(found)(client))
    return found


@pytest.mark.parametrize(("run_id", "key"), [(None, "applicationId"), ("monday", "runId")])
def test_the_client_chooses_the_id(run_id: str | None, key: str) -> None:
    cluster = Cluster()
    found = submitted(cluster, run_id)

    assert (OWN, "") == (found.application_id, found.ended)
    assert ["app.py"] == cluster.uploads
    assert (run_id or OWN, "/kept") == (cluster.bodies[0][key], cluster.bodies[0]["savepointPath"])


def test_an_application_that_is_over_before_its_answer_came_is_ours() -> None:
    found = submitted(Cluster(ended="FINISHED"))

    assert (OWN, "") == (found.application_id, found.ended)


def test_a_run_that_has_ended_is_answered_with_its_status() -> None:
    found = submitted(Cluster(ended="FAILED"), "monday")

    assert (OWN, "FAILED") == (found.application_id, found.ended)


@pytest.mark.parametrize(
    ("target", "match"),
    [
        ("session", "no session runs with the cluster id 'session': start one with `understudy se"),
        ("http://host:1", "no session runs at http://host:1: see whether the address is right"),
    ],
)
def test_without_a_session_the_way_out_is_named_at_once(target: str, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        submitted(Cluster(leads=False), target=target)


def test_an_election_is_waited_for() -> None:
    assert OWN == submitted(Cluster(leads=False, lives=True)).application_id


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["--target", "local", "-d"], "leave out --detach"),
        (["--target", "host"], "such as http://host:8081"),
        (["--claim-mode", "CLAIM"], "are about --from-savepoint"),
        (["--run-id", "no/name"], "--run-id 'no/name'"),
    ],
)
def test_what_has_no_meaning_is_refused(words: list[str], match: str) -> None:
    told = CliRunner().invoke(app, ["run", *words, "app.py"])

    assert isinstance(told.exception, UsageError)
    assert match in str(told.exception)


def test_a_local_target_is_a_cluster_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(submit, "run_application", lambda **said: given.update(said))
    words = ["--target", "local", "--conf", "spark.x=1", "--run-id", "monday", "app.py", "--flag"]
    told = CliRunner().invoke(app, ["run", *words])

    assert 0 == told.exit_code
    typed = given["typed"]
    assert ("app.py", ("--flag",), "monday") == (typed.app, typed.args, given["run"].run_id)
    assert {"spark.x": "1"} == typed.said.conf


def test_an_application_of_a_session_begins_with_one_savepoint(tmp_path: Path) -> None:
    (tmp_path / "app.py").touch()
    script = str(tmp_path / "app.py")
    told = CliRunner().invoke(app, ["run", "-s", "/one", "-s", "/two", script])

    assert isinstance(told.exception, UsageError)
    assert "begins with one savepoint" in str(told.exception)


@pytest.mark.parametrize(
    ("chosen", "number", "cancels"),
    [
        (OnInterrupt.DETACH, signal.SIGINT, False),
        (OnInterrupt.CANCEL, signal.SIGINT, True),
        (OnInterrupt.CANCEL, signal.SIGTERM, False),
    ],
)
def test_a_signal_leaves_the_application_or_cancels_it(
    chosen: OnInterrupt, number: signal.Signals, cancels: bool
) -> None:
    cluster = Cluster()

    async def story() -> tuple[str, int]:
        interrupts = _Interrupts(_Submitted(OWN, OWN), chosen, lambda _: None)

        async def following() -> str:
            os.kill(os.getpid(), number)
            while not cluster.posts:
                await asyncio.sleep(0)
            return "CANCELED"

        async def work(client: ClusterClient) -> str:
            return await interrupts.beside(client, following())

        status = await interrupts.heeded(work)(cast("ClusterClient", cluster))
        return status, interrupts.last

    status, last = asyncio.run(story())

    assert number == last
    assert ("CANCELED" if cancels else "") == status
    assert ([f"/applications/{OWN}/cancel"] if cancels else []) == cluster.posts


def test_a_remote_log_is_printed_until_the_application_has_ended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_virtual(print_log(cast("ClusterClient", Cluster()), OWN, for_ever=True))
    grown = capsys.readouterr().out
    run_virtual(print_log(cast("ClusterClient", Cluster()), OWN, for_ever=False))

    assert "t [main] one\nt [main] two\n" == grown
    assert "t [main] one\n" == capsys.readouterr().out


@pytest.mark.parametrize(
    ("application", "words"),
    [
        ("", f"not known whether the application was submitted: `understudy info {OWN}`"),
        (OWN, f"continues without this command: `understudy logs -f {OWN}`"),
    ],
)
def test_without_a_leader_it_says_what_is_known_of_the_application(
    application: str, words: str
) -> None:
    with (
        pytest.raises(UnderstudyError, match="nobody leads") as refused,
        submit._known_of(_Submitted(OWN, application)),
    ):
        raise NoLeaderError("nobody leads")

    assert words in str(refused.value)
