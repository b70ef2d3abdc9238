"""What of an application is uploaded to a session, and what is asked for."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from understudy.api.bodies_submitting import RunRequest
from understudy.cli.launch.packing import CODE_NAME, Packed, packed, request_of
from understudy.cli.launch.spark_submit import SparkSubmit
from understudy.cli.launch.spec import ApplicationSpec
from understudy.cli.launch.submitting import application_spec
from understudy.cli.launch.typed import Typed
from understudy.config import Configuration, options
from understudy.config.brought import BroughtSettings
from understudy.errors import UsageError

PLAIN = Configuration({})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current directory."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a directory for what is packed."""
    (tmp_path / "packed").mkdir()
    return tmp_path / "packed"


def spec_of(
    app: str, conf: dict[str, str] | None = None, *, is_module: bool = False
) -> ApplicationSpec:
    said = SparkSubmit(None, (), conf or {})
    return application_spec(PLAIN, Typed(app, ("x y",), is_module, said=said))


def inside(found: Packed) -> dict[str, str]:
    with zipfile.ZipFile(found.main) as file:
        return {name: file.read(name).decode() for name in file.namelist()}


def test_a_script_alone_is_uploaded_as_it_is(here: Path, place: Path) -> None:
    (here / "app.py").write_text("print(1)\n")
    found = packed(spec_of("app.py"), place)

    assert ("app.py", "") == (found.main.name, found.entry)
    assert "print(1)\n" == found.main.read_text()


@pytest.mark.parametrize(
    ("app", "is_module", "entry"),
    [
        ("app.py", False, "app.py"),
        ("pkg.inner:begin", False, "pkg.inner:begin"),
        ("pkg.inner", True, "pkg.inner"),
        ("pkg", True, "pkg.__main__"),
        ("odd name.py", False, "odd name.py"),
    ],
)
def test_what_lies_beside_is_packed_with_it(
    app: str, is_module: bool, entry: str, here: Path, place: Path
) -> None:
    (here / "pkg").mkdir()
    for name in ("app.py", "odd name.py", "pkg/__init__.py", "pkg/__main__.py"):
        (here / name).write_text(f"# {name}\n")
    (here / "pkg" / "inner.py").write_text("def begin(): pass\n")
    found = packed(spec_of(app, is_module=is_module), place)

    assert CODE_NAME == found.main.name
    assert found.entry in {entry, entry.removesuffix(".__main__")}
    assert "def begin(): pass\n" == inside(found)["pkg/inner.py"]


def test_the_same_application_is_the_same_bytes(here: Path, place: Path) -> None:
    (here / "app.py").write_text("import b\n")
    (here / "b.py").write_text("x = 1\n")
    first = packed(spec_of("app.py"), place).main.read_bytes()
    (here / "b.py").touch()
    (here / "b.py").chmod(0o600)

    assert first == packed(spec_of("app.py"), place).main.read_bytes()


def test_a_notebook_is_uploaded_as_the_script_that_it_holds(here: Path, place: Path) -> None:
    cell = {"cell_type": "code", "source": ["print(7)"], "metadata": {}, "outputs": []}
    (here / "book.ipynb").write_text(json.dumps({"cells": [cell], "nbformat": 4}))
    found = packed(spec_of("book.ipynb"), place)

    assert "book.py" == found.main.name
    assert "print(7)" in found.main.read_text()


def test_files_of_this_host_are_uploaded_and_urls_are_kept(here: Path, place: Path) -> None:
    for name in ("app.py", "lib.zip", "more.py", "env.tar.gz"):
        (here / name).write_text("")
    conf = {
        "spark.files": f"hdfs://x/y.csv,{here}/more.py",
        "spark.archives": f"{here}/env.tar.gz#env",
        "spark.jars": "s3a://jars/one.jar",
    }
    spec = replace(spec_of("app.py", conf), py_files=(str(here / "lib.zip"),))
    found = packed(spec, place)
    body = request_of(spec, found, {one: f"id-{one.name}" for one in found.uploads}, PLAIN)

    assert [CODE_NAME, "lib.zip", "more.py", "env.tar.gz"] == [one.name for one in found.uploads]
    assert ["id-lib.zip"] == body["pyFiles"]
    assert ["id-more.py"] == body["files"]
    assert ["id-env.tar.gz#env"] == body["archives"]
    assert "hdfs://x/y.csv" == body["flinkConfiguration"]["spark.files"]
    assert "s3a://jars/one.jar" == body["flinkConfiguration"]["spark.jars"]
    assert "spark.archives" not in body["flinkConfiguration"]


def test_the_text_of_requirements_goes_with_the_request(here: Path, place: Path) -> None:
    (here / "app.py").write_text("")
    (here / "needs.txt").write_text("cherry<2")
    spec = replace(spec_of("app.py"), requirements=str(here / "needs.txt"))
    found = packed(spec, place)
    body = request_of(spec, found, {found.main: "id"}, PLAIN)

    assert "cherry<2" == body["flinkConfiguration"]["python.requirements"]


@pytest.mark.parametrize("setting", ["spark.jars", "spark.files"])
def test_what_cannot_be_uploaded_names_the_way_out(setting: str, here: Path, place: Path) -> None:
    (here / "app.py").write_text("")
    (here / "a.jar").write_text("")
    with pytest.raises(UsageError, match=rf"a\.jar: .*give file://{here}/a\.jar"):
        packed(spec_of("app.py", {setting: f"{here}/a.jar"}), place)


def test_an_installed_module_is_refused(here: Path, place: Path) -> None:
    with pytest.raises(UsageError, match="a session runs what is uploaded"):
        packed(spec_of("json.tool", is_module=True), place)


def test_an_application_brings_what_concerns_it_and_no_setting_of_the_cluster(
    here: Path, place: Path
) -> None:
    (here / "app.py").write_text("")
    given = {
        "restart-strategy.type": "none",
        options.CLUSTER_ID.key: "mine",
        options.SLOTS.key: "7",
        options.TARGET.key: "http://host:1",
        "spark.sql.shuffle.partitions": "3",
    }
    configuration = Configuration(given)
    spec = spec_of("app.py", {"spark.ui.enabled": "false"})
    found = packed(spec, place)
    body = request_of(spec, found, {found.main: "id"}, configuration)
    asked = msgspec.convert(body, RunRequest)
    brought = BroughtSettings(PLAIN).checked(asked.flinkConfiguration or {})

    assert {"restart-strategy.type": "none"} == brought.settings
    assert {"spark.app.name", "spark.ui.enabled", "spark.sql.shuffle.partitions"} == {*brought.conf}
    assert (["x y"], str(here), "job") == (asked.programArgsList, asked.cwd, asked.runsAs)
    assert asked.entryClass is None
