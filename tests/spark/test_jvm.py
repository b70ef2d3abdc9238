"""How Spark's JVM is started: with what executors run Python, and what its command line shows."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from understudy.errors import ConfigurationError, UsageError
from understudy.spark import defaults, jvm
from understudy.spark.defaults import session_conf, settings_and_flags
from understudy.spark.jvm import executor_python

HERE, THERE = "spark://127.0.0.1:7077", "spark://192.0.2.7:7077"


@pytest.mark.parametrize(
    ("conf", "variable", "expected"),
    [
        ({}, "", sys.executable),
        ({"spark.master": HERE}, "", sys.executable),
        ({"spark.master": THERE}, "", None),
        ({"spark.master": "yarn"}, "", None),
        ({"spark.master": THERE}, "python3.12", "python3.12"),
        ({"spark.master": HERE}, "./env/bin/python", "./env/bin/python"),
        ({"spark.pyspark.python": "./env/bin/python"}, "python3.12", "./env/bin/python"),
    ],
)
def test_executors_run_this_python_only_where_it_is_and_nobody_has_said_otherwise(
    conf: dict[str, str], variable: str, expected: str | None
) -> None:
    assert expected == executor_python(conf, {"PYSPARK_PYTHON": variable})


def test_what_stands_between_java_and_its_main_class_goes_into_a_file_that_java_reads(
    tmp_path: Path,
) -> None:
    command = ["env", "A=b", "/jdk/bin/java", "-cp", "/a b/*", '-Dp="\\x\n', jvm.MAIN_CLASS, "more"]
    shown = jvm._with_options_in_file(command, tmp_path / "options")

    assert [*command[:3], f"@{tmp_path}/options", *command[6:]] == shown
    assert '"-cp"\n"/a b/*"\n"-Dp=\\"\\\\x\\n"\n' == (tmp_path / "options").read_text()
    assert 0o600 == (tmp_path / "options").stat().st_mode & 0o777


@pytest.mark.parametrize(
    ("arguments", "settings", "flags"),
    [
        ("pyspark-shell", {}, []),
        (
            "--conf spark.a=b=c -c 'spark.d=e f' pyspark-shell",
            {"spark.a": "b=c", "spark.d": "e f"},
            [],
        ),
        ("--conf=spark.a=b --conf spark.a=c", {"spark.a": "c"}, []),
        (
            "--master local[2] --driver-memory 1g",
            {"spark.master": "local[2]"},
            ["--driver-memory", "1g"],
        ),
        ("--properties-file FILE --conf spark.a=said", {"spark.a": "said", "spark.x": "file"}, []),
        ("--conf spark.a=said --properties-file=FILE", {"spark.a": "said", "spark.x": "file"}, []),
        (
            "--driver-java-options -Dpassword=x --packages a:b:1 -v",
            {"spark.driver.extraJavaOptions": "-Dpassword=x"},
            ["--packages", "a:b:1", "-v"],
        ),
    ],
)
def test_settings_are_taken_off_command_lines(
    arguments: str, settings: dict[str, str], flags: list[str], tmp_path: Path
) -> None:
    (tmp_path / "given.conf").write_text("spark.a file\nspark.x file\n")
    words = shlex.split(arguments.replace("FILE", str(tmp_path / "given.conf")))

    assert (settings, flags) == settings_and_flags(words)


Defaults = Callable[[str], object]


@pytest.fixture
def spark_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Defaults:
    """Return a function that writes ``spark-defaults.conf``."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return (tmp_path / "spark-defaults.conf").write_text


def test_the_defaults_of_a_host_are_over_ours_and_under_what_is_given(
    spark_defaults: Defaults, tmp_path: Path
) -> None:
    spark_defaults(
        "spark.master spark://127.0.0.1:7077\nspark.a host\nspark.b host\n"
        "spark.driver.extraJavaOptions -Dhost=1\n"
    )
    conf = session_conf({"spark.a": "given"}, str(tmp_path), "application")

    assert ("given", "host", HERE) == (conf["spark.a"], conf["spark.b"], conf["spark.master"])
    assert ("application", "127.0.0.1") == (conf["spark.app.name"], conf["spark.driver.host"])
    assert conf["spark.driver.extraJavaOptions"].endswith(" -Dhost=1")


def test_a_driver_does_not_start_where_its_host_puts_it_elsewhere(
    spark_defaults: Defaults, tmp_path: Path
) -> None:
    spark_defaults("spark.remote sc://elsewhere\n")

    with pytest.raises(UsageError, match=r"spark.remote=sc://elsewhere: a Spark Connect"):
        session_conf({}, str(tmp_path), "application")


def test_defaults_that_cannot_be_read_are_named(spark_defaults: Defaults, tmp_path: Path) -> None:
    spark_defaults("spark.a \\u12")

    with pytest.raises(ConfigurationError, match=f"{tmp_path}/spark-defaults.conf: .*\\\\u12"):
        session_conf({}, str(tmp_path), "application")
    with pytest.raises(ConfigurationError, match="/nowhere: no such file"):
        defaults.settings_and_flags(["--properties-file", "/nowhere"])
