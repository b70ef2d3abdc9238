from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.house.repository import ROOT, files, texts

REGISTRY = re.compile(
    r"(pypi\.org|pythonhosted\.org|registry\.npmjs|repo1?\.maven|proxy\.golang|"
    r"deb\.debian|(--|^\s*)(extra-)?index-url)\b(?!`)",
    re.MULTILINE,
)
MACHINE = re.compile(r"(?<![\w.])/(work|root|home|Users)/\w")
OWN = Path(__file__).resolve()


def found(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}: {match.group(0)!r}"
        for path, text in texts()
        if path != OWN
        for match in pattern.finditer(text)
    ]


def test_no_registry_host_stands_in_the_repository() -> None:
    expected: list[str] = []

    actual = found(REGISTRY)

    assert expected == actual


def test_no_path_of_a_machine_stands_in_the_repository() -> None:
    expected: list[str] = []

    actual = found(MACHINE)

    assert expected == actual


def test_each_requirement_is_pinned_with_its_digest() -> None:
    for path in set((ROOT / "requirements").glob("*.txt")) - {ROOT / "requirements/overrides.txt"}:
        text = path.read_text().replace("\\\n", " ")
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]

        assert lines
        for line in lines:
            assert "==" in line, line
            assert "--hash=sha256:" in line, line


def test_what_is_declared_is_used() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {
        re.split(r"[>=<; \[]", line)[0]
        for line in [*project["dependencies"], *project["optional-dependencies"]["examples"]]
    }
    modules = {"prometheus-client": "prometheus_client", "pyyaml": "yaml"}
    sources = "\n".join(
        text
        for path, text in texts()
        if path.suffix == ".py" and ({"src", "examples"} & set(path.relative_to(ROOT).parts))
    )
    expected: list[str] = []

    actual = [
        name
        for name in sorted(declared)
        if not re.search(
            rf"""(import |from |find_spec\(["'])({modules.get(name, name)})\b""", sources
        )
    ]

    assert expected == actual


def test_nothing_that_a_run_leaves_is_kept() -> None:
    expected: list[str] = []

    actual = [
        str(path.relative_to(ROOT))
        for path in files()
        if {"out", "spark-warehouse", "metastore_db", "__pycache__"} & set(path.parts)
        or path.suffix in {".log", ".pyc"}
    ]

    assert expected == actual


def test_the_package_says_that_it_is_typed() -> None:
    assert ROOT / "src" / "understudy" / "py.typed" in files()
