"""Files of a store that fsspec reaches: what a failure of the store is told as."""

from __future__ import annotations

import uuid

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from understudy.ha.remote_files import RemoteFiles


def test_a_store_that_fails_is_not_asked_in_vain_whether_a_file_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """fsspec's own `exists` takes any failure for absence, where a store does not bring its own."""
    files = RemoteFiles(f"memory://{uuid.uuid4().hex}")
    files.publish("a/file", b"data")
    before = files.exists("a/file"), files.exists("a/other")

    def fail(*_: object, **__: object) -> None:
        raise OSError("out of order")

    monkeypatch.setattr(MemoryFileSystem, "info", fail)

    assert (True, False) == before
    with pytest.raises(OSError, match="out of order") as told:
        files.exists("a/file")
    assert not isinstance(told.value, FileNotFoundError)
