"""Class data sharing: which archive a JVM starts from, and that a bad one is never in its way."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from understudy.spark import class_data
from understudy.spark.class_data import Building, ClassDataSharing, share
from understudy.spark.java import Java, find_java, javas
from understudy.spark.jvm import spark_home

JVM_S = 300.0

FROM_ARCHIVE = "source: shared objects file"


@dataclasses.dataclass
class Ground:
    """A Java, a class path and a directory of archives."""

    java: Java
    jar: Path
    directory: Path
    environment: dict[str, str]

    def share(self, *options: str) -> ClassDataSharing:
        """Decide for a JVM with these options."""
        given = ("-cp", f"/nowhere/conf:{self.jar.parent}/*", "-Xmx1g", *options)
        return share(self.java, given, self.environment, self.directory, self.directory)

    def archive(self, *options: str) -> str:
        """Return the name of the archive of such a JVM; empty if it has none."""
        building = self.share(*options).building
        return building.archive if building else ""


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    """Return a Java that is none, but looks like one."""
    home = tmp_path / "jdk"
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "server" / "libjvm.so").write_bytes(b"17")
    (home / "release").write_text('JAVA_VERSION="17.0.1"')
    (tmp_path / "jars").mkdir()
    (tmp_path / "archives").mkdir()
    jar = tmp_path / "jars" / "a.jar"
    with zipfile.ZipFile(jar, "w") as file:
        file.writestr("nothing", "")
    return Ground(Java(home, 17, True), jar, tmp_path / "archives", {})


def touch(path: Path) -> None:
    """Change a file's time of change."""
    os.utime(path, ns=(1, 1))


CHANGES: dict[str, Callable[[Ground], object]] = {
    "a jar changes": lambda ground: touch(ground.jar),
    "a jar comes": lambda ground: (ground.jar.parent / "b.jar").touch(),
    "a jar goes": lambda ground: ground.jar.unlink(),
    "Java is updated": lambda ground: (ground.java.home / "release").write_text("17.0.2"),
    "the JVM changes": lambda ground: touch(ground.java.home / "lib/server/libjvm.so"),
    "Spark changes": lambda ground: None,
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_archive_is_built_when_anything_changes(
    ground: Ground, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ground.archive()
    CHANGES[change](ground)
    if change == "Spark changes":
        monkeypatch.setattr(class_data, "pyspark_version", lambda: "9.9.9")

    assert before
    assert ground.archive() not in {"", before}


@pytest.mark.parametrize(
    ("option", "same"),
    [
        ("-Dpassword=x", True),
        ("-Xmx31g", True),
        ("-Xmx32g", False),
        ("-XX:+UseSerialGC", False),
        ("-XX:ObjectAlignmentInBytes=16", False),
        ("--add-modules=jdk.incubator.vector", False),
        ("-XX:OnOutOfMemoryError=kill", True),
    ],
)
def test_options_that_change_an_archive_lead_to_another_one(
    ground: Ground, option: str, *, same: bool
) -> None:
    assert same == (ground.archive() == ground.archive(option))


@pytest.mark.parametrize(
    "option",
    [
        "-Xshare:off",
        "-XX:SharedArchiveFile=/mine.jsa",
        "-XX:ArchiveClassesAtExit=/mine.jsa",
        "-XX:DumpLoadedClassList=/mine",
        "-XX:-UseSharedSpaces",
        "-XX:Flags=/mine",
        "-Xbootclasspath/a:/mine.jar",
        "--patch-module=java.base=/mine",
    ],
)
@pytest.mark.parametrize("variable", ["", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"])
def test_ours_stays_away_where_users_share_class_data_themselves(
    ground: Ground, option: str, variable: str
) -> None:
    if variable:
        ground.environment[variable] = f"-Da=b {option}"

    assert ClassDataSharing() == (ground.share() if variable else ground.share(option))


def test_a_class_path_that_no_jvm_can_archive_is_left_alone(ground: Ground) -> None:
    given = ("-cp", str(ground.java.home))  # A directory with files.

    assert ClassDataSharing() == share(ground.java, given, {}, ground.directory, ground.directory)


def test_a_build_that_failed_is_tried_again_later(ground: Ground) -> None:
    note = Path(ground.archive()).with_suffix(class_data.FAILED)
    note.touch()
    lately = ground.share()
    os.utime(note, (0, time.time() - class_data.RETRY_S - 1))

    assert ClassDataSharing() == lately
    assert ground.share().building is not None


def test_the_last_use_of_an_archive_is_known(ground: Ground) -> None:
    archive = Path(ground.archive())
    archive.touch()
    touch(archive)
    used = ground.share()

    assert used.building is None
    assert f"-XX:SharedArchiveFile={archive}" in used.options
    assert archive.stat().st_mtime > time.time() - JVM_S


def test_what_is_to_build_fits_a_command_line() -> None:
    building = Building("/java", ("-XX:+UseG1GC",), "/a:/b", "/list", "/archive")

    assert building == Building.decode(building.encode())


def run_java(*arguments: str, java: str = "") -> subprocess.CompletedProcess[str]:
    """Run a JVM to its end."""
    return subprocess.run(
        [java or find_java().program, *arguments],
        capture_output=True,
        text=True,
        timeout=JVM_S,
        check=False,
    )


@pytest.fixture
def real(built: tuple[Path, Path]) -> Iterator[tuple[Path, Path]]:
    """Return them, and undo what a test does to the jar."""
    found = built[0].stat()
    yield built
    os.utime(built[0], ns=(found.st_atime_ns, found.st_mtime_ns))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a jar, and an archive of the classes that a JVM loads with that class path."""
    place = tmp_path_factory.mktemp("real")
    jar, classes, archive = place / "a.jar", place / "classes", place / "archive.jsa"
    shutil.copy(next(Path(spark_home(), "jars").glob("slf4j-api-*.jar")), jar)
    with_path = ("-cp", str(jar), "-version")
    run_java("-Xshare:off", f"-XX:DumpLoadedClassList={classes}", *with_path)
    with classes.open("a") as file:
        file.write("org/slf4j/Logger\n")
    dump = (f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={archive}")
    built = run_java("-Xshare:dump", *dump, *with_path)
    assert archive.exists(), built.stdout
    return jar, archive


def flip(archive: Path) -> None:
    """Change one bit in the middle."""
    data = bytearray(archive.read_bytes())
    data[len(data) // 2] ^= 1
    archive.write_bytes(data)


def foreign(archive: Path) -> None:
    """Replace it by one of another JVM."""
    found = (
        java.home / "lib/server/classes.jsa"
        for java in javas()
        if java.version != find_java().version
    )
    other = next((one for one in found if one.exists()), None)
    if other is None:
        pytest.skip("there is one Java only")
    archive.write_bytes(other.read_bytes())


def directory(archive: Path) -> None:
    """Put a directory in its place."""
    archive.unlink()
    archive.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a flipped bit": flip,
    "another JVM's": foreign,
    "cut": lambda archive: os.truncate(archive, archive.stat().st_size // 2),
    "a page missing": lambda archive: os.truncate(archive, archive.stat().st_size - 4096),
    "empty": lambda archive: archive.write_bytes(b""),
    "no archive": lambda archive: archive.write_bytes(b"x" * 1_000_000),
    "gone": lambda archive: archive.unlink(),
    "a directory": directory,
    "of another class path": lambda archive: None,
    "of a jar that has changed": lambda archive: None,
    "with another heap": lambda archive: None,
}


def started(archive: Path, jar: Path, log: Path, *options: str) -> tuple[str, bool]:
    """Return what a JVM prints, and whether the archive was used."""
    sharing = (*class_data.QUIET, "-XX:+VerifySharedSpaces", f"-XX:SharedArchiveFile={archive}")
    done = run_java(*sharing, *options, f"-Xlog:class+load:file={log}", "-cp", str(jar), "-version")
    assert done.returncode == 0, done
    return done.stdout + done.stderr, FROM_ARCHIVE in log.read_text()


def test_a_jvm_starts_from_a_good_archive(real: tuple[Path, Path], tmp_path: Path) -> None:
    jar, archive = real
    _, used = started(archive, jar, tmp_path / "log")

    assert used


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_jvm_starts_without_an_archive_that_is_no_good_and_says_nothing(
    real: tuple[Path, Path], damage: str, tmp_path: Path
) -> None:
    jar, good = real
    archive = tmp_path / "archive.jsa"
    archive.write_bytes(good.read_bytes())
    DAMAGES[damage](archive)
    options = ("-XX:-UseCompressedOops",) if damage == "with another heap" else ()
    if damage == "of another class path":
        jar = Path(shutil.copy(jar, tmp_path / "other.jar"))
    if damage == "of a jar that has changed":
        touch(jar)
    plain = run_java(*options, "-Xshare:off", "-version")
    printed, used = started(archive, jar, tmp_path / "log", *options)

    assert (plain.stderr.replace("sharing", ""), False) == (printed.replace("sharing", ""), used)
