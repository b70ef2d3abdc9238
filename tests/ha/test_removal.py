"""Removing below a root: what a link on the way points to stays, whatever is asked for."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from understudy.errors import StorageError
from understudy.ha import removal
from understudy.ha.storage import LocalStorage

EVERY: dict[str, Callable[[Path, str], None]] = {
    "a file": lambda root, path: LocalStorage(root).delete(path),
    "a tree": lambda root, path: LocalStorage(root).delete_tree(path),
    "empty directories": lambda root, path: LocalStorage(root).prune(path),
}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Return a directory of somebody else's, with a file and an empty directory in it."""
    directory = tmp_path / "outside"
    (directory / "deep/empty").mkdir(parents=True)
    (directory / "deep/theirs").write_text("precious")
    return directory


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a storage."""
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def whole(outside: Path) -> bool:
    return (outside / "deep/theirs").exists() and (outside / "deep/empty").is_dir()


@pytest.mark.parametrize("what", EVERY)
@pytest.mark.parametrize("path", ["link/deep/theirs", "link/deep", "link/deep/empty"])
def test_what_lies_behind_a_linked_directory_stays(
    root: Path, outside: Path, what: str, path: str
) -> None:
    (root / "link").symlink_to(outside)
    with pytest.raises(OSError, match="symbolic link"):
        EVERY[what](root, path)

    assert whole(outside)


@pytest.mark.parametrize("path", ["../outside/deep/theirs", "a/../../outside/deep/theirs"])
def test_a_path_that_leaves_the_root_is_refused(root: Path, outside: Path, path: str) -> None:
    (root / "a").mkdir()
    for remove in EVERY.values():
        with pytest.raises(StorageError, match="does not lie below"):
            remove(root, path)

    assert whole(outside)


def test_a_link_that_is_to_be_removed_goes_and_what_it_points_to_stays(
    root: Path, outside: Path
) -> None:
    (root / "file").symlink_to(outside / "deep/theirs")
    (root / "tree").symlink_to(outside)
    (root / "within").mkdir()
    (root / "within/link").symlink_to(outside)
    LocalStorage(root).delete("file")
    LocalStorage(root).delete_tree("tree")
    LocalStorage(root).delete_tree("within")

    assert [] == list(root.iterdir())
    assert whole(outside)


def test_a_directory_exchanged_for_a_link_meanwhile_leads_nowhere(
    root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The race that a check of the path before its removal would lose."""
    (root / "top/deep").mkdir(parents=True)
    (root / "top/deep/theirs").write_text("ours")
    remove = shutil.rmtree

    def exchanged(*arguments: object, **more: object) -> None:
        (root / "top").rename(root / "moved")
        (root / "top").symlink_to(outside)
        remove(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(shutil, "rmtree", exchanged)
    removal.remove_tree(root, "top/deep")

    assert whole(outside)
    assert not (root / "moved/deep").exists()


def test_the_root_itself_may_be_a_link_of_a_persons(root: Path, tmp_path: Path) -> None:
    (tmp_path / "named").symlink_to(root)
    (root / "a/b").mkdir(parents=True)
    LocalStorage(tmp_path / "named").delete_tree("a/b")
    LocalStorage(tmp_path / "named").prune("a")

    assert [] == list(root.iterdir())
