"""The builder of an archive of classes: one at a time, bounded, out of everybody's way."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from understudy.driver import class_data_building as module
from understudy.driver.class_data_building import build
from understudy.process.disk import Disk, locked
from understudy.spark.class_data import FAILED, QUIET, RETRY_S, Building
from understudy.spark.java import find_java
from understudy.spark.jvm import spark_home

PATIENCE_S = 300.0

BUILDS = """#!/bin/sh
for word; do case $word in -XX:SharedArchiveFile=*) echo archive > "${word#*=}";; esac; done
"""
"""A program that does what a JVM would."""


@pytest.fixture
def building(tmp_path: Path) -> Building:
    """Return what to build, with a program that is quick."""
    directory = tmp_path / "class-data"
    directory.mkdir()
    classes = tmp_path / "classes"
    classes.write_text("java/lang/Object\njava/lang/Str")
    java = tmp_path / "java"
    java.write_text(BUILDS)
    java.chmod(0o755)
    return Building(str(java), (), "/a.jar", str(classes), str(directory / "key.jsa"))


def put(building: Building, script: str) -> None:
    """Replace the program."""
    Path(building.java).write_text(script)


def names(building: Building) -> set[str]:
    """Return what lies beside the archive."""
    return {one.name for one in Path(building.archive).parent.iterdir()}


def test_an_archive_is_published_once(building: Building) -> None:
    first = build(building)
    put(building, "#!/bin/sh\nexit 1\n")

    assert (True, True) == (first, build(building))
    assert {"key.jsa", module.LOCK} == names(building)


def test_a_jvm_gets_whole_lines_only(building: Building, tmp_path: Path) -> None:
    keep = f"""for word; do case $word in
        -XX:SharedClassListFile=*) cp "${{word#*=}}" {tmp_path}/seen;; esac; done"""
    put(building, BUILDS + keep)
    build(building)

    assert "java/lang/Object\n" == (tmp_path / "seen").read_text()


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("#!/bin/sh\necho no space; exit 1\n", "no space"),
        (f"{BUILDS}case $* in *share:on*) exit 3;; esac\n", "-Xshare:on exited with 3"),
        ("#!/bin/sh\nexit 0\n", "No such file"),
        ("#!/bin/sh\nexec sleep 600\n", "timed out"),
        ("", "Exec format error"),
    ],
)
def test_a_build_that_fails_leaves_its_reason_and_nothing_else(
    building: Building, script: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(building, script)
    if "sleep" in script:
        monkeypatch.setattr(module, "BUILD_S", 0.2)
    done = build(building)
    note = Path(building.archive).with_suffix(FAILED)

    assert not done
    assert {note.name, module.LOCK} == names(building)
    assert why in note.read_text()


def test_an_archive_that_cannot_be_made_durable_is_not_published(
    building: Building, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(disk: Disk, path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Disk, "sync", full)

    assert not build(building)
    assert {f"key{FAILED}", module.LOCK} == names(building)


def test_nothing_is_built_where_space_is_short(
    building: Building, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ARCHIVE_BYTES_MAX", 1 << 60)

    assert not build(building)
    assert "too little space" in Path(building.archive).with_suffix(FAILED).read_text()


def test_one_builder_works_at_a_time(building: Building) -> None:
    lock = os.open(Path(building.archive).parent / module.LOCK, os.O_RDWR | os.O_CREAT)
    try:
        assert locked(lock)
        assert not build(building)
    finally:
        os.close(lock)
    assert build(building)


def test_what_killed_builders_have_left_is_removed(building: Building) -> None:
    left = Path(building.archive).with_name(f"other-1{module.PART}")
    left.touch()
    build(building)

    assert not left.exists()


def test_the_archives_used_last_are_kept(building: Building) -> None:
    directory = Path(building.archive).parent
    old = time.time() - RETRY_S - 1
    for number in range(5):
        path = directory / f"{number}.jsa"
        path.touch()
        os.utime(path, (old + number / 10, old + number / 10))
    for name in ("old", "new"):
        (directory / f"{name}{FAILED}").touch()
    os.utime(directory / f"old{FAILED}", (old, old))
    build(building)

    assert {"key.jsa", "4.jsa", "3.jsa", f"new{FAILED}", module.LOCK} == names(building)


def parent_of(building: Building, ending: str) -> subprocess.Popen[str]:
    """Start a process that starts a builder, prints its pid, and goes on as it is told."""
    code = f"""
import sys
from understudy.driver import class_data_building
from understudy.spark.class_data import Building
builder = class_data_building.start(Building.decode({building.encode()!r}))
print(builder.pid, flush=True)
{ending}
"""
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def test_a_builder_takes_what_nobody_else_wants(building: Building, tmp_path: Path) -> None:
    look = "cat /proc/self/stat > {0}/stat; cat /proc/self/oom_score_adj > {0}/oom\n"
    put(building, BUILDS + look.format(tmp_path))
    with parent_of(building, "print(builder.wait())") as parent:
        printed, _ = parent.communicate(timeout=PATIENCE_S)
    fields = (tmp_path / "stat").read_text().rpartition(")")[2].split()

    assert "0" == printed.split()[1]
    assert Path(building.archive).exists()
    assert ("19", str(os.SCHED_IDLE)) == (fields[16], fields[38])
    assert module.FIRST_TO_KILL == (tmp_path / "oom").read_text().strip()


def test_a_builder_and_its_jvm_die_with_their_driver(building: Building, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    # Whoever reads sees the end of the pipe once the last process that holds it is dead.
    put(building, f"#!/bin/sh\nexec 9> {tmp_path}/fifo\necho on >&9\nexec sleep 600\n")
    parent = parent_of(building, "builder.wait()")
    with parent, (tmp_path / "fifo").open() as fifo:
        assert "on\n" == fifo.readline()
        parent.send_signal(signal.SIGKILL)

        assert not fifo.read()
    assert not Path(building.archive).exists()


def test_a_real_archive_is_accepted_by_its_jvm(tmp_path: Path) -> None:
    jar = shutil.copy(next(Path(spark_home(), "jars").glob("slf4j-api-*.jar")), tmp_path)
    classes, archive = tmp_path / "classes", tmp_path / "key.jsa"
    classes.write_text("java/lang/Object\norg/slf4j/Logger\n")
    java = find_java().program
    built = build(Building(java, (), str(jar), str(classes), str(archive)))
    shared = (*QUIET, "-Xshare:on", f"-XX:SharedArchiveFile={archive}", "-cp", str(jar))
    done = subprocess.run([java, *shared, "-version"], timeout=PATIENCE_S, check=False)

    assert (True, 0) == (built, done.returncode)


@pytest.mark.parametrize("limit", [4096, 1_000_000])
def test_an_archive_that_outgrows_its_bound_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    classes = tmp_path / "classes"
    classes.write_text("java/lang/Object\n")
    monkeypatch.setattr(module, "ARCHIVE_BYTES_MAX", limit)
    archive = tmp_path / "key.jsa"

    assert not build(Building(find_java().program, (), "/a.jar", str(classes), str(archive)))
    assert {"classes", f"key{FAILED}", module.LOCK} == {one.name for one in tmp_path.iterdir()}
