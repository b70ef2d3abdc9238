"""The grammar of properties files: what is written is read again, and what Java allows is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from understudy.cli.launch.spark_submit import spark_conf
from understudy.errors import UsageError
from understudy.spark import properties

KEY = "spark.some.key"


@pytest.mark.parametrize(
    "value",
    [
        "",
        "plain",
        "two\nlines\r\nthree",
        "C:\\dir\\name\\",
        "a\\nb \\u0041 \\\\",
        "= : # !",
        "#no comment",
        "-Da=\"b c\" -Dd='e'",
        "inner  blanks\tand tabs",
        "\n edge \n",
        "Zoë € 😀 \ufeff",
        "a\x01\x7f",
        "\udc80",
    ],
)
def test_what_is_written_is_read_again_in_ascii(value: str) -> None:
    text = properties.written({KEY: value, f"{KEY}= :#!é": "other"})

    assert {KEY: value, f"{KEY}= :#!é": "other"} == properties.read(text)
    assert text.isascii()


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("spark.some.key value", "value"),
        ("spark.some.key\tvalue", "value"),
        ("  spark.some.key : value", "value"),
        ("spark.some.key = = value", "= value"),
        ("spark.some.key", ""),
        ("spark.some.key value  ", "value"),
        ("spark.some.key  \\ value", "value"),
        ("spark.some.key one \\\n    two", "one two"),
        ("spark.some.key one\\\\\n! two", "one\\"),
        ("spark.some.key one\\\n# two", "one# two"),
        ("spark.some.key one\\", "one"),
        ("spark.some\\.key \\u20AC\\x", "€x"),
        ("spark.some.key \\ud83d\\ude00", "😀"),
        ("! a comment\n# another \\\nspark.some.key value", "value"),
        ("spark.some.key first\r\nspark.some.key last\r", "last"),
    ],
)
def test_what_java_allows_is_read_as_java_reads_it(line: str, value: str) -> None:
    assert {KEY: value} == properties.read(line)


def test_what_is_none_of_sparks_settings_is_left_out() -> None:
    assert {} == properties.read("other.key value\n\n  \n=value\n")


@pytest.mark.parametrize("line", ["spark.some.key \\u12", "spark.some.key \\u12xy"])
def test_a_broken_escape_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="12"):
        properties.read(line)


def test_a_written_file_is_for_our_eyes_only(tmp_path: Path) -> None:
    properties.write(tmp_path / "settings", {KEY: "secret"})

    assert 0o600 == (tmp_path / "settings").stat().st_mode & 0o777
    with pytest.raises(FileExistsError):
        properties.write(tmp_path / "settings", {})


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "/spark/conf/spark-defaults.conf"),
        ({"SPARK_CONF_DIR": ""}, "/spark/conf/spark-defaults.conf"),
        ({"SPARK_CONF_DIR": "/etc/spark"}, "/etc/spark/spark-defaults.conf"),
    ],
)
def test_the_defaults_lie_where_spark_looks_for_them(
    environment: dict[str, str], expected: str
) -> None:
    assert Path(expected) == properties.defaults_file("/spark", environment)


def test_a_file_that_is_given_is_read_with_the_same_grammar(tmp_path: Path) -> None:
    given = tmp_path / "given.conf"
    given.write_text("spark.some.key : one \\\n  two\nspark.other \\u20ac\n")
    found = spark_conf({}, ("spark.other=said",), str(given))
    given.write_text("spark.some.key \\u12")

    assert {KEY: "one two", "spark.other": "said"} == found
    with pytest.raises(UsageError, match=r"--properties-file .*given\.conf: malformed"):
        spark_conf({}, (), str(given))
