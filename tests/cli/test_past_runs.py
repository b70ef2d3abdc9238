"""Summaries of runs without a configured cluster id: what is kept, and for how long."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from msgspec import Raw

from understudy.api.client import ClusterClient
from understudy.cli.commands.ask import with_client
from understudy.cli.commands.run import answer_past_run
from understudy.cli.launch import past_runs
from understudy.cli.launch.compose import open_services
from understudy.cli.launch.past_runs import PastClient, PastRun
from understudy.config import Configuration
from understudy.errors import ConfigurationError
from understudy.model import (
    ApplicationId,
    ApplicationResult,
    ApplicationStatus,
    JobId,
    JobRecord,
    JobStatus,
    Pointer,
    RunId,
    Tombstone,
    TombstoneFile,
)

HERE = Configuration({"high-availability.storageDir": "/here"})


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "understudy" / "past-runs"


def run(number: int, *, age_s: float = 0.0, storage: str = "/here", value: str = "1") -> PastRun:
    identity = ApplicationId(f"{number:032}")
    run_id, status = RunId(f"r{number}"), ApplicationStatus.FINISHED
    ended = time.time() - age_s
    result = ApplicationResult(
        application_id=identity,
        application_name="load",
        run_id=run_id,
        status=status,
        start_time=0.0,
        end_time=ended,
    )
    job = JobRecord(
        job_id=JobId(f"j{number}"),
        name="load",
        status=JobStatus.FINISHED,
        attempt=1,
        start_time=0.0,
        end_time=ended,
        value=Raw(value.encode()),
    )
    stone = Tombstone(
        application_id=identity,
        run_id=run_id,
        name="load",
        status=status,
        started_at=0.0,
        ended_at=ended,
        file=Pointer(path="", digest="", size=0),
    )
    file = TombstoneFile(result=result, jobs=(job,))
    return PastRun(cluster_id=f"run-{number}", storage=storage, tombstone=stone, file=file)


def test_the_last_runs_are_kept_and_no_more(state: Path) -> None:
    for number in range(past_runs.PAST_RUNS_MAX + 3):
        past_runs.keep(HERE, run(number))

    found = past_runs.known(HERE)

    assert past_runs.PAST_RUNS_MAX == len(found) == len([*state.iterdir()])
    assert "run-2" not in found
    assert "run-3" in found


def test_a_run_is_kept_no_longer_than_a_tombstone(state: Path) -> None:
    days = 86_400.0
    past_runs.keep(HERE, run(1, age_s=8 * days))
    past_runs.keep(HERE, run(2, age_s=6 * days))

    assert ["run-2"] == [*past_runs.known(HERE)]
    assert ["run-2.json"] == [path.name for path in state.iterdir()]


def test_a_run_is_known_to_who_asks_about_its_storage() -> None:
    past_runs.keep(HERE, run(1))
    past_runs.keep(HERE, run(2, storage="/there"))

    assert ["run-1"] == [*past_runs.known(HERE)]
    assert past_runs.of_cluster(HERE, "run-1") is not None
    assert past_runs.of_cluster(HERE, "run-2") is None


def test_large_values_are_not_kept_and_that_is_said() -> None:
    value = '"' + "x" * past_runs.PAST_RUN_BYTES_MAX + '"'
    past_runs.keep(HERE, run(1, value=value))

    found = past_runs.of_cluster(HERE, "run-1")

    assert found is not None
    assert (Raw(b"null"), past_runs.TOO_LARGE) == (
        found.file.jobs[0].value,
        found.file.jobs[0].note,
    )


def test_a_damaged_summary_is_passed_over_and_a_forgotten_one_is_gone(state: Path) -> None:
    for number in (1, 2):
        past_runs.keep(HERE, run(number))
    (state / "run-1.json").write_text("{")

    assert ["run-2"] == [*past_runs.known(HERE)]
    assert str(state / "run-2.json") == past_runs.forget("run-2")
    assert "" == past_runs.forget("run-2")
    assert {} == past_runs.known(HERE)


def test_a_user_without_a_home_directory_knows_no_past_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", no_home)

    assert {} == past_runs.known(HERE)
    assert past_runs.of_cluster(HERE, "run-1") is None
    assert "" == past_runs.forget("run-1")
    with pytest.raises(ConfigurationError, match="set HOME, or XDG_STATE_HOME"):
        past_runs.keep(HERE, run(1))


def test_a_past_run_is_answered_and_not_run_again(capsys: pytest.CaptureFixture[str]) -> None:
    past_runs.keep(HERE, run(1))
    answer_past_run(HERE, "run-1", "another", as_json=False)
    with pytest.raises(SystemExit) as ended:
        answer_past_run(HERE, "run-1", "r1", as_json=False)

    assert 0 == ended.value.code
    assert "run r1 has ended: FINISHED" in capsys.readouterr().err


@pytest.mark.parametrize("started_again", [False, True])
def test_a_summary_is_shown_only_while_its_cluster_has_no_registry(
    started_again: bool, tmp_path: Path
) -> None:
    here = Configuration({"high-availability.storageDir": str(tmp_path / "ha")})
    past_runs.keep(here, run(1, storage=here.storage_dir))

    async def clients() -> type:
        if started_again:
            services = open_services(here, "run-1", as_jobmanager=True)
            await services.registry.claim(1, ephemeral=True)

        async def kind(client: ClusterClient) -> type:
            return type(client)

        found: type = await with_client(here, "run-1", kind)
        return found

    assert (ClusterClient if started_again else PastClient) is asyncio.run(clients())
