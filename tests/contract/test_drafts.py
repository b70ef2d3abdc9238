"""Drafts of the filesystem register: removal and publication race."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import Any

import pytest

from tests.contract.conftest import PATIENCE_S
from understudy.ha import drafts
from understudy.ha.backends.filesystem import FilesystemRegister

OLD = b"old" * 1000


def files(directory: Path) -> list[str]:
    return [path.name for path in directory.rglob("*")]


@pytest.mark.parametrize("reached", ["hold", "rename"])
def test_a_draft_that_is_removed_while_its_writer_goes_on_harms_no_key(
    reached: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that finds the draft before it is held takes its writer for dead, and is slow."""
    begun, go_on, written = Event(), Event(), Event()
    hold, rename, remove_tree = drafts.hold, Path.rename, shutil.rmtree

    def pause() -> None:
        if current_thread() is writer and not begun.is_set():
            begun.set()
            assert go_on.wait(PATIENCE_S)

    def remove_slowly(path: Path, **how: Any) -> None:
        if written.is_set() or current_thread() is writer:
            remove_tree(path, **how)
            return
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)  # As rmtree: by a descriptor.
        go_on.set()
        assert written.wait(PATIENCE_S)
        for name in os.listdir(directory):
            os.unlink(name, dir_fd=directory)
        os.close(directory)
        with contextlib.suppress(FileNotFoundError):
            path.rmdir()

    def hold_late(descriptor: int) -> None:
        pause()
        hold(descriptor)

    def rename_late(path: Path, target: Path) -> Path:
        pause()
        return rename(path, target)

    def write() -> None:
        FilesystemRegister(tmp_path)._swap("leader", OLD, None)
        written.set()

    if reached == "hold":
        monkeypatch.setattr(drafts, "hold", hold_late)
    else:  # The lock could not be taken, as another process looked at the draft then.
        monkeypatch.setattr(drafts, "hold", lambda _: None)
        monkeypatch.setattr(Path, "rename", rename_late)
    monkeypatch.setattr(shutil, "rmtree", remove_slowly)
    writer = Thread(target=write)
    writer.start()
    assert begun.wait(PATIENCE_S)
    drafts.remove_abandoned(tmp_path.glob(".draft.*"))
    writer.join()

    entry = FilesystemRegister(tmp_path)._load("leader")

    assert entry is not None
    assert OLD == entry.value
    assert 3 == len(files(tmp_path)), "the key's directory, its token, its value"


def test_who_removes_a_draft_and_is_killed_leaves_it_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = tmp_path / ".draft.000000000001.0123456789ab"
    draft.mkdir(parents=True)
    (draft / "val.000000000001.0123456789ab").write_bytes(OLD)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        assert [] == asyncio.run(FilesystemRegister(tmp_path).keys(""))
        left = files(tmp_path)

    assert 2 == len(left)
    assert [] == asyncio.run(FilesystemRegister(tmp_path).keys(""))
    assert [] == files(tmp_path)
