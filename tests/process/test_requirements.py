"""Which requirements are taken, and what is said of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from understudy.config.options import PYTHON_REQUIREMENTS
from understudy.errors import ConfigurationError, UsageError
from understudy.process import requirements
from understudy.process.code import SourceFile
from understudy.process.requirement_lines import check

CLUSTER = {"pyspark": "4.1.4", "understudy": "0.1.0"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cherry",
        "cherry==1.0  # a comment\n\n# another\nplum[jam]>=1,<2; python_version > '3'",
        "cherry==1.0 \\\n  --hash=sha256:ab \\\n  --hash=sha256:cd",
        "-i https://example.org/simple\n--no-index\n-f /opt/wheels\n"
        "--find-links=https://example.org/wheels",
        "cherry @ https://example.org/cherry-1.0-py3-none-any.whl",
        "PySpark>=4\nunderstudy==0.1.0",
        "pyspark==1.0; python_version < '3'",
    ],
)
def test_what_each_host_can_install_is_taken(text: str) -> None:
    check("needs.txt", text, CLUSTER)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cherry\n-r other.txt", "needs.txt, line 2: -r other.txt: -r has no meaning here"),
        ("-e .", "line 1: -e .: -e has no meaning"),
        ("./cherry.whl", "line 1: ./cherry.whl: is no requirement such as"),
        ("--find-links wheels", "line 1: --find-links wheels: give an absolute path"),
        (
            "# old\npyspark \\\n  ==4.0.1",
            "line 2: pyspark   ==4.0.1: this cluster has pyspark 4.1.4",
        ),
        ("PySpark<4", "this cluster has pyspark 4.1.4, which all its processes need"),
        ("understudy @ https://example.org/u.whl", "this cluster has understudy 0.1.0"),
    ],
)
def test_what_it_cannot_is_refused_with_the_line(text: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        check("needs.txt", text, CLUSTER)

    assert expected in str(caught.value)


def test_the_text_is_stored_with_the_application_and_not_the_path(tmp_path: Path) -> None:
    file = tmp_path / "needs.txt"
    file.write_text("cherry==1.0\n")
    (one,) = requirements.given(str(file), "")
    (two,) = requirements.given("", "cherry==1.0\n")

    assert one.read() == two.read()
    assert requirements.PLACE == one.name == two.name
    assert [] == requirements.given("", "")


def test_a_file_comes_before_the_option() -> None:
    script, key = SourceFile(Path("app.py"), "app/app.py"), PYTHON_REQUIREMENTS.key
    (given,) = requirements.given("", "cherry")
    _, found = requirements.with_configured([script], {key: "plum"})

    assert [script, given] == requirements.with_configured([script, given], {key: "plum"})
    assert b"plum" == found.read()
    with pytest.raises(ConfigurationError, match=r"python\.requirements, line 1: -r a:"):
        requirements.with_configured([script], {key: "-r a"})


@pytest.mark.parametrize(
    ("body", "expected"),
    [(b"\xff", "not text in UTF-8"), (b"cherry\x00", "expected printable text in lines")],
)
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, body: bytes, expected: str) -> None:
    (tmp_path / "needs.txt").write_bytes(body)
    with pytest.raises(UsageError, match=expected):
        requirements.given(f"{tmp_path}/needs.txt", "")
    with pytest.raises(UsageError, match="No such file"):
        requirements.given(f"{tmp_path}/other.txt", "")
