"""Sessions: which processes they have, and what may not join them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.ha import ground
from tests.support.faulty_register import Durable, Faults
from understudy.cli.commands import session
from understudy.cli.commands.common import Size
from understudy.cli.commands.group import app
from understudy.cli.launch import joining
from understudy.cli.launch.joining import shared_settings
from understudy.cli.launch.members import recorded_here
from understudy.config import Configuration, options
from understudy.errors import ConfigurationError, UsageError
from understudy.ha.retrieval import LEADER_KEY, encode_leader
from understudy.jobmanager.surroundings import DispatcherSettings
from understudy.model import Incarnation, LeaderRecord

SESSION = {options.SESSION.key: "true"}


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("UNDERSTUDY_CONF_DIR", raising=False)
    monkeypatch.chdir(tmp_path)


def processes(config_dir: Path | None = None, **counts: int) -> list[str]:
    found = session._described(config_dir, None, Size(**counts))
    assert found.configuration.get(options.SESSION)
    assert "session" == found.cluster_id
    return [str(one) for one in (*found.masters, *found.workers)]


def test_on_this_machine_it_has_a_standby() -> None:
    assert [
        "jobmanager 1 on localhost",
        "jobmanager 2 on localhost",
        "taskmanager 1 on localhost",
    ] == processes()


def test_it_has_as_many_processes_as_were_started_here(tmp_path: Path) -> None:
    records = tmp_path / "understudy" / "pids" / "session"
    records.mkdir(parents=True)
    for name in ("jobmanager-localhost-3", "taskmanager-localhost-2", "jobmanager-other-7", "x"):
        (records / f"{name}.json").write_text("{}")
    asked = processes()
    fewer = processes(jobmanagers=1, taskmanagers=1)

    assert [3, 2] == [sum(one.startswith(role) for one in asked) for role in ("job", "task")]
    assert ["jobmanager 1 on localhost", "taskmanager 1 on localhost"] == fewer
    assert {"jobmanager": 7} == recorded_here({}, "session", "other")


def test_the_files_state_its_processes(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("")
    (tmp_path / "masters").write_text("one\ntwo\n")

    assert ["jobmanager 1 on one", "jobmanager 1 on two", "taskmanager 1 on localhost"] == (
        processes(tmp_path)
    )
    with pytest.raises(UsageError, match=r"--jobmanagers 2: .*masters states the processes"):
        processes(tmp_path, jobmanagers=2)


def test_it_stays_and_needs_standbys() -> None:
    assert Configuration(SESSION).stays
    assert not DispatcherSettings.of(Configuration(SESSION)).shutdown_on_finish
    with pytest.raises(ConfigurationError, match="lost with its JobManager"):
        Configuration({**SESSION, options.HA_TYPE.key: "NONE"})


def test_a_cluster_for_one_application_is_no_session() -> None:
    said = ["run-application", "-D", "jobmanager.session=true", "app.py"]
    told = CliRunner().invoke(app, said)

    assert isinstance(told.exception, UsageError)
    assert "submit with `understudy run`" in str(told.exception)


@pytest.mark.parametrize(
    ("theirs", "mine", "match"),
    [
        (SESSION, {}, "is a session, which jobmanager leads: submit to it"),
        ({}, SESSION, "is there for one application"),
        (SESSION, SESSION, ""),
        ({}, {}, ""),
    ],
)
@pytest.mark.parametrize("jobmanager", [True, False])
def test_a_jobmanager_of_another_kind_does_not_join(
    theirs: dict[str, str],
    mine: dict[str, str],
    match: str,
    jobmanager: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fine(*_: object) -> bool:
        return True

    monkeypatch.setattr(joining, "lives", fine)
    monkeypatch.setattr(joining, "check_storage", fine)
    services = ground.services(Durable(), Faults())
    record = LeaderRecord(
        Incarnation("a"),
        3,
        "s",
        name="jobmanager",
        rpc="rpc",
        settings=shared_settings(Configuration(theirs)),
    )

    async def join() -> None:
        await services.register.swap(LEADER_KEY, encode_leader(record), None)
        await joining.check_joinable(Configuration(mine), services, jobmanager=jobmanager)

    if match and jobmanager:
        with pytest.raises(UsageError, match=match):
            asyncio.run(join())
    else:
        asyncio.run(join())
