"""Whether an application runs as main or whole as one job, by its files and by ``--as``."""

from __future__ import annotations

import asyncio
import zipfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from understudy.cli.launch.compose import open_services
from understudy.cli.launch.redeploying import AskedStart, changes_of
from understudy.cli.launch.spark_submit import SparkSubmit
from understudy.cli.launch.spec import ApplicationSpec, RunsAs
from understudy.cli.launch.submitting import (
    adopted_settings,
    application_spec,
    submission_of,
    unconverted,
)
from understudy.cli.launch.typed import Typed
from understudy.config import Configuration, options
from understudy.errors import UsageError
from understudy.jobmanager.redeployment import NO_CHANGES
from understudy.model import RunId

CLUSTER = "nightly"
PLAIN = "import helper\nprint('\\d')\n"
CONVERTED = "import understudy\n"


def spec_of(app: Path | str, *py_files: Path, runs_as: RunsAs | None = None) -> ApplicationSpec:
    said = SparkSubmit(None, tuple(map(str, py_files)), {})
    return application_spec(Configuration({}), Typed(str(app), runs_as=runs_as, said=said))


@pytest.fixture
def app(tmp_path: Path) -> Path:
    directory = tmp_path / "beside"
    directory.mkdir()
    (directory / "app.py").write_text(PLAIN)
    return directory / "app.py"


def test_a_script_runs_as_a_job_where_nothing_it_imports_is_converted(app: Path) -> None:
    (app.parent / "other.py").write_text(CONVERTED)

    assert RunsAs.JOB is spec_of(app).runs_as
    assert submission_of(spec_of(app), Configuration({})).as_job


def test_a_script_without_a_suffix_is_looked_into(tmp_path: Path) -> None:
    (tmp_path / "etl").write_text(CONVERTED)

    assert RunsAs.MAIN is spec_of(tmp_path / "etl").runs_as


def test_a_converted_module_beside_the_script_counts(app: Path) -> None:
    (app.parent / "helper.py").write_text(CONVERTED)

    assert RunsAs.MAIN is spec_of(app).runs_as
    assert not submission_of(spec_of(app), Configuration({})).as_job


@pytest.mark.parametrize("suffix", [".py", ".zip", ".egg", ".whl"])
def test_what_is_given_with_py_files_counts(app: Path, tmp_path: Path, suffix: str) -> None:
    name = "helper-1.0-py3-none-any.whl" if suffix == ".whl" else f"helper{suffix}"
    if suffix == ".py":
        (tmp_path / name).write_text(CONVERTED)
    else:
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("helper/__init__.py", "from .jobs import load")
            archive.writestr("helper/jobs.py", CONVERTED)

    assert RunsAs.MAIN is spec_of(app, tmp_path / name).runs_as


def test_a_function_runs_as_a_job_where_its_module_is_stored_and_not_converted(
    app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(app.parent)
    (app.parent / "plain_module.py").write_text("def main(): pass\n")
    actual = [spec_of(target).runs_as for target in ("plain_module:main", "os:getcwd")]

    assert [RunsAs.JOB, RunsAs.MAIN] == actual


@pytest.mark.parametrize("runs_as", RunsAs)
def test_a_person_overrules_what_the_sources_tell(app: Path, runs_as: RunsAs) -> None:
    spec = spec_of(app, runs_as=runs_as)

    assert (runs_as, True, "") == (spec.runs_as, spec.overruled, unconverted(spec))


def test_it_is_said_that_a_script_runs_as_a_job(app: Path) -> None:
    spec = spec_of(app)

    assert "app.py does not import understudy, so all of it runs as one job" in unconverted(spec)
    assert "" == unconverted(replace(spec, runs_as=RunsAs.MAIN))


@pytest.mark.parametrize(
    ("runs_as", "expected"), [(None, {"spark.ui.port": "1", "spark.a": "given"}), (RunsAs.MAIN, {})]
)
def test_a_job_gets_the_settings_that_the_script_writes_down_unless_the_command_sets_them(
    app: Path, runs_as: RunsAs | None, expected: dict[str, str]
) -> None:
    app.write_text("b.config('spark.ui.port', '1').config('spark.a', 'written')")
    said = SparkSubmit(None, (), {"spark.a": "given"})
    spec = application_spec(Configuration({}), Typed(str(app), runs_as=runs_as, said=said))

    assert {"spark.app.name": "app", "spark.a": "given", **expected} == spec.conf


def test_the_settings_that_drivers_take_from_a_script_are_said(app: Path) -> None:
    app.write_text("b.config('spark.ui.port', '1').config('spark.app.password', 'hunter22')")
    told = adopted_settings(spec_of(app))

    assert "these settings of app.py" in told
    assert "spark.ui.port=1" in told
    assert "hunter22" not in told
    assert "" == adopted_settings(spec_of(app, runs_as=RunsAs.MAIN))


def test_the_function_that_is_called_may_write_settings_down(
    app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(app.parent)
    (app.parent / "called.py").write_text("def run(): b.config('spark.ui.port', '1')")

    assert ("spark.ui.port",) == spec_of("called:run").adopted


@pytest.fixture
def unfinished(app: Path, tmp_path: Path) -> Configuration:
    """Return the configuration of a cluster whose run is unfinished, and runs as one job."""
    configuration = Configuration({options.STORAGE_DIR.key: str(tmp_path / "storage")})
    services = open_services(configuration, CLUSTER, as_jobmanager=True)

    async def put() -> None:
        directory = services.applications.new_directory()
        submission = submission_of(spec_of(app), configuration)
        record = submission.store(services, RunId("monday"), directory, 100.0)
        await services.registry.claim(1, ephemeral=False)
        await services.applications.put(1, record, directory)

    asyncio.run(put())
    return configuration


@pytest.mark.parametrize("said", [None, RunsAs.JOB])
def test_an_unfinished_run_is_continued_as_it_runs(
    app: Path, unfinished: Configuration, said: RunsAs | None
) -> None:
    start = AskedStart("monday", spec_of(app, runs_as=said))

    assert NO_CHANGES == changes_of(unfinished, CLUSTER, start)


def test_a_restart_does_not_change_as_what_an_unfinished_run_runs(
    app: Path, unfinished: Configuration
) -> None:
    start = AskedStart("monday", spec_of(app, runs_as=RunsAs.MAIN))

    with pytest.raises(UsageError, match="--as main: run monday is unfinished and runs as job"):
        changes_of(unfinished, CLUSTER, start)


def test_other_code_may_run_as_something_else(app: Path, unfinished: Configuration) -> None:
    app.write_text(CONVERTED)
    start = AskedStart("monday", spec_of(app, runs_as=RunsAs.MAIN))

    assert ("app.py",) == changes_of(unfinished, CLUSTER, start).files
