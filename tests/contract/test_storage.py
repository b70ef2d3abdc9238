"""The suite of ``understudy.ha.storage.BlockingStorage``: the promises of every storage."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contract.actors import DONE
from tests.support import system_calls
from tests.support.memory_storage import MemoryStorage
from tests.support.zygote import Zygote
from understudy.errors import (
    ConfigurationError,
    NotFoundError,
    StorageError,
    UnreadableDataError,
)
from understudy.ha import drafts, plain_files
from understudy.ha.storage import (
    BlockingStorage,
    FsspecStorage,
    LocalStorage,
    open_storage,
    prove,
)

PUBLISH = "tests.contract.actors:publish"

needs_strace = pytest.mark.skipif(bool(system_calls.why_not()), reason=system_calls.why_not())


@pytest.mark.parametrize(
    "data",
    [b"", b"\0", bytes(range(256)), b"\r\n", b"x" * 3_000_000],
    ids=["empty", "zero", "every byte", "newlines", "large"],
)
def test_a_published_file_is_kept_to_the_byte(storage: BlockingStorage, data: bytes) -> None:
    storage.publish("a/b/file.json", data)

    assert data == storage.read("a/b/file.json")


@pytest.mark.parametrize("data", [b"", b"x", b"y" * 9_000_000], ids=["empty", "small", "large"])
def test_a_file_that_is_published_from_an_open_one_is_kept_to_the_byte(
    storage: BlockingStorage, data: bytes
) -> None:
    """Also from one that was read before, and that has no name any more."""
    storage.publish("a/file", b"an older version")
    with tempfile.TemporaryFile() as source:
        source.write(data)
        source.flush()
        storage.publish_file("a/file", source)

    assert data == storage.read("a/file")
    assert ["file"] == storage.names("a")
    assert {"file": len(data)} == storage.sizes("a")


def test_publishing_again_replaces_the_whole_file(storage: BlockingStorage) -> None:
    storage.publish("a/file", b"a long first version")
    storage.publish("a/file", b"short")

    assert b"short" == storage.read("a/file")
    assert ["file"] == storage.names("a")


@pytest.mark.parametrize("times", [1, 3])
def test_directories_that_another_process_prunes_meanwhile_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    one, other = LocalStorage(tmp_path), LocalStorage(tmp_path)
    make = drafts.make_directories
    pruned: list[Path] = []

    def make_in_vain(path: Path, mode: int = 0o700) -> None:
        make(path, mode)
        if path == tmp_path / "a" / "b" and len(pruned) < times:
            pruned.append(path)
            other.prune("a/b")

    monkeypatch.setattr(drafts, "make_directories", make_in_vain)
    one.publish("a/b/file", b"data")

    assert times == len(pruned)
    assert b"data" == other.read("a/b/file")


def test_a_directory_that_others_make_and_prune_meanwhile_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, calls = Path.mkdir, itertools.count()

    def make_too_late(path: Path, *arguments: Any, **named: Any) -> None:
        if next(calls) == 0:
            raise FileExistsError(errno.EEXIST, "it was there, and is gone", path)
        make(path, *arguments, **named)

    monkeypatch.setattr(Path, "mkdir", make_too_late)
    storage = LocalStorage(tmp_path)
    storage.publish("a/b/file", b"data")

    assert b"data" == storage.read("a/b/file")


def test_a_directory_that_another_process_prunes_meanwhile_is_pruned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "a" / "b"
    directory.mkdir(parents=True)
    look = os.scandir
    pruned: list[Path] = []

    def look_too_late(path: Path) -> object:
        if not pruned and Path(path).samefile(directory):
            pruned.append(directory)
            directory.rmdir()
        return look(path)

    monkeypatch.setattr(os, "scandir", look_too_late)
    LocalStorage(tmp_path).prune("a/b")

    assert [directory] == pruned
    assert not directory.parent.exists()


@pytest.mark.parametrize("path", ["none", "a/none", "none/file", "a/file/below"])
def test_what_was_never_published_is_not_found(storage: BlockingStorage, path: str) -> None:
    storage.publish("a/file", b"data")

    with pytest.raises(NotFoundError, match="no such file"):
        storage.read(path)
    assert not storage.exists(path)


def test_files_and_the_directories_above_them_exist(storage: BlockingStorage) -> None:
    storage.publish("a/b/file", b"data")

    assert storage.exists("a/b/file")
    assert storage.exists("a/b")
    assert storage.exists("a")


def test_files_below_a_path_are_listed_with_their_sizes(storage: BlockingStorage) -> None:
    storage.publish("a/b/file", b"data")
    storage.publish("a/b/c/empty", b"")
    storage.publish("a/bb/beside", b"!")

    assert storage.sizes("a/b") == {"file": 4, "c/empty": 0}
    assert storage.sizes("a/none") == {}


def test_a_deleted_file_is_gone_and_deleting_it_again_is_fine(storage: BlockingStorage) -> None:
    storage.publish("a/file", b"data")
    storage.publish("a/file2", b"data")
    for _ in range(2):
        storage.delete("a/file")

    assert not storage.exists("a/file")
    assert ["file2"] == storage.names("a")


def test_deleting_below_what_never_was_is_fine(storage: BlockingStorage) -> None:
    storage.delete("none/file")
    storage.delete_tree("none/tree")
    storage.prune("none/tree")

    assert [] == storage.names("")


def test_a_listing_names_what_lies_directly_below_sorted(storage: BlockingStorage) -> None:
    for path in ("a/z", "a/b/c/deep", "a/y", "ab/file"):
        storage.publish(path, b"")

    assert ["b", "y", "z"] == storage.names("a")
    assert ["a", "ab"] == storage.names("")
    assert [] == storage.names("none")


def test_a_deleted_tree_takes_all_below_it_and_nothing_beside_it(storage: BlockingStorage) -> None:
    for path in ("a/b/c/file", "a/b/file", "a/bc/file", "a/file"):
        storage.publish(path, b"data")
    for _ in range(2):
        storage.delete_tree("a/b")

    assert ["bc", "file"] == storage.names("a")
    assert not storage.exists("a/b/c/file")


def test_pruning_removes_empty_directories_upwards_as_far_as_they_are_empty(
    storage: BlockingStorage,
) -> None:
    storage.publish("a/kept", b"data")
    storage.publish("a/b/c/file", b"data")
    storage.delete("a/b/c/file")
    storage.prune("a/b/c")

    assert ["kept"] == storage.names("a")
    assert b"data" == storage.read("a/kept")


def test_pruning_leaves_a_directory_that_holds_something(storage: BlockingStorage) -> None:
    storage.publish("a/b/file", b"data")
    storage.prune("a/b")
    storage.prune("a")

    assert b"data" == storage.read("a/b/file")


def test_pruning_what_was_removed_already_goes_on_upwards(storage: BlockingStorage) -> None:
    storage.publish("a/b/c/file", b"data")
    storage.delete_tree("a/b/c")
    storage.prune("a/b/c")

    assert [] == storage.names("")


def test_names_from_people_are_kept(storage: BlockingStorage) -> None:
    names = sorted(["with space", "Größe-日本", "100%", "a.b..c", "-rf", "plus+&=?"])
    for name in names:
        storage.publish(f"a/{name}", name.encode())

    assert names == storage.names("a")
    assert [name.encode() for name in names] == [storage.read(f"a/{name}") for name in names]


@pytest.mark.parametrize("name", ["a[b]", "*", "a?", "[!a]"])
def test_a_tree_whose_name_looks_like_a_pattern_is_deleted_and_no_other(
    storage: BlockingStorage, name: str
) -> None:
    storage.publish(f"top/{name}/file", b"data")
    storage.publish("top/ab/file", b"data")
    storage.publish(f"top/ab/{name}", b"data")
    storage.delete_tree(f"top/{name}")
    storage.delete(f"top/ab/{name}")

    assert ["ab"] == storage.names("top")
    assert ["file"] == storage.names("top/ab")


def test_a_file_has_no_names_below_it(storage: BlockingStorage) -> None:
    storage.publish("a/file", b"data")

    assert [] == storage.names("a/file")


def test_the_sizes_of_all_files_below_a_path_are_told(storage: BlockingStorage) -> None:
    for path, data in {"a/b/c/deep": b"123", "a/b/empty": b"", "a/bc/file": b"12345"}.items():
        storage.publish(path, data)

    assert {"c/deep": 3, "empty": 0} == storage.sizes("a/b")
    assert {} == storage.sizes("none")


@pytest.mark.parametrize("storage", ["local", "memory", "s3", "renaming"], indirect=True)
def test_what_lies_elsewhere_is_reached_by_its_own_path_or_url(
    storage: BlockingStorage, tmp_path: Path
) -> None:
    for other in (f"{tmp_path}/other", f"memory://{tmp_path.name}/other"):
        storage.publish(f"{other}/a/file", b"data")

        assert b"data" == storage.read(f"{other}/a/file")
        assert b"data" == open_storage(other).read("a/file")
        assert ["file"] == storage.names(f"{other}/a")
        assert {"file": 4} == storage.sizes(f"{other}/a")
        assert storage.exists(f"{other}/a")

        storage.delete_tree(f"{other}/a")
        storage.prune(other)

        assert not storage.exists(f"{other}/a")
        assert [] == storage.names(other)
    assert [] == storage.names("")


def test_a_sound_storage_is_proved_and_nothing_of_the_proof_remains(
    storage: BlockingStorage,
) -> None:
    prove(storage, "flights/locks")

    assert [] == storage.names("flights/locks")


# --- proofs that must fail ------------------------------------------------------------------------


class Stale(MemoryStorage):
    """A storage that returns the first version of a file for ever."""

    def publish(self, path: str, data: bytes) -> None:
        if path not in self.files:
            super().publish(path, data)


class Forgetful(MemoryStorage):
    """A storage with stale listings."""

    def names(self, path: str) -> list[str]:
        return []


class Undead(MemoryStorage):
    """A storage that does not delete."""

    def delete(self, path: str) -> None:
        """Do nothing."""


class ReadOnly(MemoryStorage):
    """A storage that refuses every write."""

    def publish(self, path: str, data: bytes) -> None:
        raise PermissionError(13, "read-only", path)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (Stale, "does not hold what was just published"),
        (Forgetful, "a listing does not show"),
        (Undead, "still there after it was deleted"),
        (ReadOnly, "cannot be written to"),
    ],
)
def test_a_storage_that_breaks_its_promise_is_refused(
    broken: Callable[[], MemoryStorage], said: str
) -> None:
    storage = broken()

    with pytest.raises(StorageError, match=said):
        prove(storage, "flights/locks")
    assert {} == storage.files


# --- opening --------------------------------------------------------------------------------------


def test_a_path_and_a_file_url_open_a_local_directory(tmp_path: Path) -> None:
    for url in (str(tmp_path), f"file://{tmp_path}"):
        assert str(tmp_path) == open_storage(url).url

    assert isinstance(open_storage("memory://x"), FsspecStorage)


def test_a_storage_that_nothing_here_can_open_is_named() -> None:
    with pytest.raises(ConfigurationError, match="'nonsense://bucket' cannot be opened"):
        open_storage("nonsense://bucket")


# --- the local directory --------------------------------------------------------------------------


@needs_strace
def test_a_kill_at_any_system_call_leaves_the_old_file_or_the_new(
    processes: Zygote, tmp_path: Path
) -> None:
    log, old, new = tmp_path / "log", "old" * 1000, "new" * 2000
    root = tmp_path / "0"
    child = processes.fork(PUBLISH, str(root), "a/b/file", new, gate=True)
    seen = set()
    for number, moment in enumerate(system_calls.moments(child, log), start=1):
        root = tmp_path / str(number)
        storage = LocalStorage(root)
        storage.publish("a/file", old.encode())
        child = processes.fork(PUBLISH, str(root), "a/file", new, gate=True)
        with system_calls.traced(child, log, f"{moment.name}:signal=KILL:when={moment.number}"):
            child.go()
            code = child.wait()

        assert code in {DONE, -signal.SIGKILL}, moment
        assert storage.read("a/file") in {old.encode(), new.encode()}, moment
        assert ["file"] == storage.names("a"), moment

        seen.add(storage.read("a/file"))

    assert {old.encode(), new.encode()} == seen


@needs_strace
def test_a_file_is_durable_before_it_appears_and_its_name_before_the_call_returns(
    processes: Zygote, tmp_path: Path
) -> None:
    child = processes.fork(PUBLISH, str(tmp_path / "root"), "a/file", "text", gate=True)
    names = [moment.name for moment in system_calls.moments(child, tmp_path / "log")]
    written = names[names.index("write") :]

    assert ["write", "fsync", "rename", "openat", "fsync"] == written
    assert names.count("mkdir") + 2 == names.count("fsync"), "each new directory is durable too"


@needs_strace
@pytest.mark.parametrize("name", ["openat", "write", "fsync", "rename"])
def test_a_full_disk_leaves_the_old_file_and_no_draft(
    name: str, processes: Zygote, tmp_path: Path
) -> None:
    storage = LocalStorage(tmp_path / "root")
    storage.publish("a/file", b"old")
    child = processes.fork(PUBLISH, str(storage.root), "a/file", "new", gate=True)
    with system_calls.traced(child, tmp_path / "log", f"{name}:error=ENOSPC:when=1"):
        child.go()

        assert DONE != child.wait()

    assert b"old" == storage.read("a/file")
    assert ["file"] == os.listdir(storage.root / "a")


def test_what_killed_writers_left_does_not_keep_a_directory(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.publish("a/b/file", b"data")
    storage.delete("a/b/file")
    with (tmp_path / "a/b/.draft-of-the-living").open("xb") as draft:
        drafts.hold(draft.fileno())
        storage.prune("a/b")

        assert (tmp_path / "a/b").exists(), "its writer still lives"

    storage.prune("a/b")

    assert [] == os.listdir(tmp_path)


def test_where_locks_do_not_work_a_draft_is_judged_by_its_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    storage = LocalStorage(tmp_path)
    storage.publish("a/file", b"data")
    storage.delete("a/file")
    (tmp_path / "a/.draft-of-somebody").write_bytes(b"half")
    storage.prune("a")

    assert (tmp_path / "a").exists(), "its writer may still live"

    os.utime(tmp_path / "a/.draft-of-somebody", (0, 0))
    storage.prune("a")

    assert [] == os.listdir(tmp_path)


def test_a_draft_is_no_file(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.publish("a/file", b"data")
    (tmp_path / "a/.draft-1").write_bytes(b"half")

    assert ["file"] == storage.names("a")


def test_a_file_that_is_absurdly_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_files, "FILE_BYTES_MAX", 3)
    storage = LocalStorage(tmp_path)
    storage.publish("file", b"1234")

    with pytest.raises(UnreadableDataError, match="larger than anything written here"):
        storage.read("file")


def test_a_tree_into_which_somebody_writes_is_removed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    real, late = os.rmdir, iter(range(3))

    def rmdir(path: str, **more: int) -> None:
        if next(late, None) is not None:
            (tree / "late").write_text("written meanwhile")
        real(path, **more)

    monkeypatch.setattr(os, "rmdir", rmdir)
    LocalStorage(tmp_path).delete_tree("tree")

    assert not tree.exists()
