"""Directories of ours in a place where others may write: made for us alone, or refused by name."""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from understudy.cli.launch.compose import locks_directories, make_locks_directory, scratch_base
from understudy.cli.launch.spec import lock_of
from understudy.config import Configuration
from understudy.errors import ConfigurationError
from understudy.ha import own_directory
from understudy.ha.storage import LocalStorage
from understudy.process import code
from understudy.process.guardian import take_lock
from understudy.process.liveness_lock import LivenessLocks

ZOOKEEPER = {
    "high-availability.type": "zookeeper",
    "high-availability.zookeeper.quorum": "localhost:2181",
}
OTHER = 65_533
"""A user whom nobody is."""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a temporary directory in which everybody may write."""
    directory = tmp_path / "tmp"
    directory.mkdir()
    directory.chmod(0o1777)
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return directory


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """Return what ``$XDG_RUNTIME_DIR`` names after a login."""
    directory = tmp_path / "run"
    directory.mkdir(mode=0o700)
    return directory


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    """Return that of a cluster whose locks do not lie in storage."""
    return Configuration({**ZOOKEEPER, "high-availability.storageDir": str(tmp_path / "ha")})


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def name() -> str:
    return f"understudy-{os.getuid()}"


def of_another(path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can make what belongs to another user")
    path.mkdir(mode=0o700)
    os.chown(path, OTHER, OTHER)


def open_to_all(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def open_to_a_group(path: Path) -> None:
    path.mkdir()
    path.chmod(0o770)


def link(path: Path) -> None:
    (path.parent.parent / "theirs").mkdir(mode=0o700)
    path.symlink_to(path.parent.parent / "theirs")


def plain_file(path: Path) -> None:
    path.touch(0o600)


SQUATTED = (of_another, open_to_all, open_to_a_group, link, plain_file)


@pytest.mark.parametrize("squat", SQUATTED)
def test_a_directory_of_our_name_that_another_user_may_have_made_is_refused_by_name(
    temporary: Path, configuration: Configuration, squat: Callable[[Path], None]
) -> None:
    squat(temporary / name())
    before = sorted(temporary.rglob("*"))
    said = r"understudy-\d+ .*io\.tmp\.dirs"
    with pytest.raises(ConfigurationError, match=said):
        scratch_base(configuration)
    with pytest.raises(ConfigurationError, match=said):
        lock_of(configuration, "c", "ab" * 16)
    with pytest.raises(ConfigurationError, match=said):
        locks_directories(configuration, "c")

    assert before == sorted(temporary.rglob("*"))


@pytest.mark.parametrize("squat", SQUATTED)
@pytest.mark.parametrize("level", [1, 2])
def test_no_level_below_it_is_another_users(
    temporary: Path, configuration: Configuration, squat: Callable[[Path], None], level: int
) -> None:
    locks = Path(lock_of(configuration, "c", "ab" * 16)).parent
    for path in (locks, locks.parent):
        path.rmdir()
    squatted = (locks, locks.parent)[level - 1]
    squatted.parent.mkdir(exist_ok=True, mode=0o700)
    squat(squatted)
    with pytest.raises(ConfigurationError, match="remove it"):
        lock_of(configuration, "c", "ab" * 16)


@pytest.mark.parametrize("squat", SQUATTED)
def test_a_guardian_takes_no_lock_in_a_directory_of_others(
    temporary: Path, squat: Callable[[Path], None]
) -> None:
    squat(temporary / "locks")
    with pytest.raises(OSError, match=r"locks|ours"):
        take_lock(str(temporary / "locks/ab"))

    assert [] == list(temporary.rglob("ab"))


@pytest.mark.parametrize("squat", SQUATTED)
def test_no_code_is_laid_out_where_others_may_have_been(
    temporary: Path, squat: Callable[[Path], None]
) -> None:
    storage = LocalStorage(temporary)
    base = code.layout_base(storage, "c")
    base.parent.mkdir(mode=0o700)
    squat(base)
    with pytest.raises(ConfigurationError, match="remove it"):
        code.lay_out(storage, "c", "d", ())


def test_what_is_made_is_ours_alone_at_each_level(
    temporary: Path, configuration: Configuration
) -> None:
    before = os.umask(0)
    try:
        directory = make_locks_directory(configuration, "c")
    finally:
        os.umask(before)

    assert directory is not None
    while directory != temporary:
        assert 0o700 == mode_of(directory)
        directory = directory.parent


def test_a_directory_that_others_could_only_read_is_closed(
    temporary: Path, configuration: Configuration
) -> None:
    (temporary / name()).mkdir(mode=0o755)
    base = scratch_base(configuration)

    assert 0o700 == mode_of(Path(base))


# --- $XDG_RUNTIME_DIR -----------------------------------------------------------------------------


def test_locks_lie_in_the_runtime_directory_where_there_is_one(
    temporary: Path, runtime: Path, configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    lock = Path(lock_of(configuration, "c", "ab" * 16))

    assert lock.is_relative_to(runtime / "understudy")
    assert Path(scratch_base(configuration)) == temporary / name()


@pytest.mark.parametrize("text", ["", "run", "/nowhere/at/all", "open", "file"])
def test_a_runtime_directory_that_is_none_is_passed_over(
    temporary: Path,
    runtime: Path,
    configuration: Configuration,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
) -> None:
    if text == "open":
        runtime.chmod(0o755)
        text = str(runtime)
    if text == "file":
        text = str(runtime / "file")
        Path(text).touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", text)
    lock = Path(lock_of(configuration, "c", "ab" * 16))

    assert lock.is_relative_to(temporary)


@pytest.mark.parametrize("first_has_it", [True, False])
def test_processes_started_with_and_without_it_find_each_others_locks(
    temporary: Path,
    runtime: Path,
    configuration: Configuration,
    monkeypatch: pytest.MonkeyPatch,
    first_has_it: bool,
) -> None:
    """Else there would be no proof of a death, and `destroy` would not see who lives."""
    here, there = "ab" * 16, "cd" * 16
    held: dict[str, int] = {}
    for incarnation, has_it in ((here, first_has_it), (there, not first_has_it)):
        if has_it:
            monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
        else:
            monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        held[incarnation] = take_lock(lock_of(configuration, "c", incarnation))
    seen = []
    for value in (str(runtime), None, "/nowhere"):
        if value:
            monkeypatch.setenv("XDG_RUNTIME_DIR", value)
        else:
            monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        locks = LivenessLocks(*locks_directories(configuration, "c"))
        seen.append(sorted(asyncio.run(locks.living())))
    fcntl.flock(held[here], fcntl.LOCK_UN)
    proof = asyncio.run(asyncio.wait_for(locks.dead(here), 60))  # type: ignore[arg-type]

    assert [[here, there]] * 3 == seen
    assert proof.at is None
    for descriptor in held.values():
        os.close(descriptor)


def test_a_note_of_another_home_that_is_not_usable_is_passed_over(
    temporary: Path, runtime: Path, configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a logout, which removes it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    lock_of(configuration, "c", "ab" * 16)
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    runtime.chmod(0o777)

    assert [temporary / name()] == own_directory.known_homes(temporary / name())


def test_a_directory_that_a_person_names_is_the_same_for_each_process(
    tmp_path: Path, temporary: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    named = Configuration({**ZOOKEEPER, "io.tmp.dirs": str(tmp_path / "named")})
    lock = Path(lock_of(named, "c", "ab" * 16))

    assert lock.is_relative_to(tmp_path / "named" / name())
