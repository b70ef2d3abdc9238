"""What is refused before anything is started: no PySpark, no Java, no master."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from understudy.cli.launch import preflight
from understudy.cli.launch.submitting import application_spec
from understudy.cli.launch.typed import Typed
from understudy.config import Configuration, options
from understudy.errors import UsageError
from understudy.spark import java

WITHOUT_SPARK = Configuration({options.DRIVER_KIND.key: "session-less"})


def test_a_missing_pyspark_is_named_with_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "pyspark_version", lambda: None)
    preflight.check_drivers_start(WITHOUT_SPARK)

    with pytest.raises(UsageError, match=r"PySpark is not installed for .*python"):
        preflight.check_drivers_start(Configuration({}))


def test_a_java_home_without_a_java_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    preflight.check_drivers_start(WITHOUT_SPARK)

    with pytest.raises(UsageError, match=f"JAVA_HOME is '{tmp_path}'"):
        preflight.check_drivers_start(Configuration({}))


def test_a_missing_java_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "javas", lambda: iter(()))

    with pytest.raises(UsageError, match="Spark needs a Java 17 or 21"):
        preflight.check_drivers_start(Configuration({}))


def test_a_master_of_the_flags_or_the_configuration_is_checked() -> None:
    configured = Configuration({"spark.master": "locl"})

    assert preflight.check_master(configured, {"spark.master": "local[2]"}) == "local[2]"
    assert preflight.check_master(WITHOUT_SPARK, {"spark.master": "locl"}) == ""
    with pytest.raises(UsageError, match="--master 'locl': Spark knows no such master"):
        preflight.check_master(configured, {})


def test_a_master_that_cannot_be_reached_is_refused_within_the_deadline() -> None:
    configuration = Configuration({options.MASTER_TIMEOUT.key: "200 ms"})
    began = time.monotonic()
    with pytest.raises(UsageError, match=r"spark://127.0.0.1:1' cannot be reached \(.*refused"):
        preflight.check_master_answers(configuration, {"spark.master": "spark://127.0.0.1:1"})

    assert time.monotonic() - began < 5


def test_a_master_is_not_tried_where_that_is_said() -> None:
    configuration = Configuration({options.MASTER_TIMEOUT.key: "0"})
    preflight.check_master_answers(configuration, {"spark.master": "spark://127.0.0.1:1"})


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        master = f"spark://127.0.0.1:1,127.0.0.1:{server.getsockname()[1]}"
        preflight.check_master_answers(Configuration({}), {"spark.master": master})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"x = (", "line 1: '\\(' was never closed: correct the script"),
        (b"ok = 1\n  x = 2", "line 2: unexpected indent"),
        (b"x = 1\0", "null bytes"),
        (b"x = '\xff'", "utf-8"),
    ],
)
def test_a_script_that_python_cannot_compile_is_refused(
    tmp_path: Path, text: bytes, said: str
) -> None:
    (tmp_path / "app.py").write_bytes(text)

    with pytest.raises(UsageError, match=f"app.py.*{said}"):
        application_spec(Configuration({}), Typed(str(tmp_path / "app.py")))


def test_a_script_is_compiled_and_not_executed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "app.py").write_text("print('ran', 1 is 1)")
    application_spec(Configuration({}), Typed(str(tmp_path / "app.py")))

    assert capfd.readouterr() == ("", "")


def test_a_module_that_is_built_into_python_has_no_files() -> None:
    assert application_spec(Configuration({}), Typed("os:getcwd")).app == "os:getcwd"
