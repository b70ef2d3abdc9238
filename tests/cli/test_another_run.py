"""A start of another run over an unfinished one: refused with commands that work, by check too."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from understudy.cli.commands.group import app
from understudy.cli.launch.compose import open_services
from understudy.cli.launch.redeploying import AskedStart, changes_of
from understudy.cli.launch.spec import ApplicationSpec
from understudy.cli.launch.submitting import application_spec, submission_of
from understudy.cli.launch.typed import Typed
from understudy.config import Configuration, options
from understudy.errors import UsageError
from understudy.model import ApplicationResultEntry, ApplicationStatus, Pointer, RunId

CLUSTER = "flights"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("UNDERSTUDY_CONF_DIR", raising=False)
    path = tmp_path / "app.py"
    path.write_text("print('ran')")
    return path


def spec_of(script: Path, *args: str) -> ApplicationSpec:
    return application_spec(Configuration({}), Typed(str(script), args))


def unfinished(script: Path, *, ended: bool = False) -> Configuration:
    """Leave the run monday; return its cluster's configuration."""
    configuration = Configuration({options.STORAGE_DIR.key: str(script.parent / "a storage")})
    services = open_services(configuration, CLUSTER, as_jobmanager=True)

    async def put() -> None:
        directory = services.applications.new_directory()
        submission = submission_of(spec_of(script), configuration)
        record = submission.store(services, RunId("monday"), directory, 100.0)
        await services.registry.claim(1, ephemeral=False)
        stored = await services.applications.put(1, record, directory)
        entry = ApplicationResultEntry(
            status=ApplicationStatus.FINISHED,
            source=Pointer(path="", digest="", size=0),
            end_time=200.0,
        )
        if ended:
            await stored.update(1, lambda body: replace(body, result=entry))

    asyncio.run(put())
    return configuration


@pytest.mark.parametrize("ended", [False, True])
def test_the_ways_out_are_whole_commands(script: Path, ended: bool) -> None:
    configuration = unfinished(script, ended=ended)
    place = f"-D {options.CLUSTER_ID.key}=flights -D '{options.STORAGE_DIR.key}="
    with pytest.raises(UsageError) as refused:
        changes_of(configuration, CLUSTER, AskedStart("tuesday", spec_of(script)))

    said = str(refused.value)

    assert f"understudy run-application --resume --run-id monday {place}" in said
    assert ended is (f"understudy cancel {place}" not in said)


@pytest.mark.parametrize(("argument", "code"), [((), 0), (("other",), 2)])
def test_check_refuses_what_a_start_refuses(
    script: Path, argument: tuple[str, ...], code: int
) -> None:
    storage = unfinished(script).storage_dir
    given = {
        options.CLUSTER_ID.key: CLUSTER,
        options.STORAGE_DIR.key: storage,
        "taskmanager.driver.type": "session-less",
    }
    words = [word for key, value in given.items() for word in ("-D", f"{key}={value}")]
    done = CliRunner().invoke(app, ["check", "--json", *words, "app.py", *argument])
    problems = json.loads(done.stdout)["problems"]

    assert code == done.exit_code
    assert bool(code) is any("its arguments are other, not none" in one for one in problems)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["app.py"], "APP"),
        (["--as", "job"], "--as"),
        (["--master", "local[2]"], "spark.master"),
        (["--py-files", "helper.py"], "--py-files"),
        (["--name", "x"], "--name"),
        (["-s", "/savepoint"], "--from-savepoint"),
    ],
)
def test_resume_refuses_what_the_stored_run_decides(
    script: Path, words: list[str], named: str
) -> None:
    place = ["-D", f"{options.CLUSTER_ID.key}={CLUSTER}"]
    done = CliRunner().invoke(app, ["run-application", "--resume", *place, *words])

    assert isinstance(done.exception, UsageError)
    assert "leave out" in str(done.exception)
    assert named in str(done.exception)
