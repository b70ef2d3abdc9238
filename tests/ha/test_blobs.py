"""BlobStore: files named by their content, and checked when they are read."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.support.faulty_register import Accepted, Faults, FaultyStorage
from tests.support.memory_storage import MemoryStorage
from understudy.errors import CorruptDataError, NotFoundError
from understudy.ha.blobs import BlobStore
from understudy.ha.format import digest
from understudy.model import Artifact

SCRIPT = b"print('hello')"


def artifact(body: bytes = SCRIPT) -> Artifact:
    return Artifact(name="app/app.py", digest=digest(body), size=len(body))


def test_what_was_put_is_got_by_its_digest() -> None:
    storage = MemoryStorage()
    name = BlobStore(storage, "flights", "app-1").put(SCRIPT)

    assert artifact().digest == name
    assert SCRIPT == BlobStore(storage, "flights", "app-1").get(artifact())


def test_a_blob_is_durable_when_its_name_is_known_and_written_once() -> None:
    history: list[Accepted] = []
    blobs = BlobStore(FaultyStorage(MemoryStorage(), Faults(), history), "flights", "app-1")
    names = [blobs.put(SCRIPT) for _ in range(3)]

    assert [artifact().digest] * 3 == names
    assert [SCRIPT] == [accepted.value for accepted in history]


def test_an_upload_is_read_where_it_was_stored() -> None:
    storage = MemoryStorage()
    storage.publish("flights/artifacts/1", SCRIPT)
    shared = replace(artifact(), path="flights/artifacts/1")

    assert SCRIPT == BlobStore(storage, "flights", "app-1").get(shared)

    storage.publish("flights/artifacts/1", b"altered")
    with pytest.raises(CorruptDataError, match=r"flights/artifacts/1: app/app\.py was altered"):
        BlobStore(storage, "flights", "app-1").get(shared)


def test_the_blobs_of_an_application_lie_below_its_directory() -> None:
    storage = MemoryStorage()
    BlobStore(storage, "flights", "app-1").put(SCRIPT)
    storage.delete_tree("flights/applications/app-1")

    assert {} == storage.files


def test_applications_do_not_share_blobs_since_cleanup_removes_them() -> None:
    storage = MemoryStorage()
    BlobStore(storage, "flights", "app-1").put(SCRIPT)
    with pytest.raises(NotFoundError):
        BlobStore(storage, "flights", "app-2").get(artifact())


@pytest.mark.parametrize("body", [b"", SCRIPT[:-1], SCRIPT + b"\n", b"import os"])
def test_an_altered_blob_is_named_and_not_executed(body: bytes) -> None:
    storage = MemoryStorage()
    blobs = BlobStore(storage, "flights", "app-1")
    blobs.put(SCRIPT)
    (path,) = storage.files
    storage.publish(path, body)
    with pytest.raises(CorruptDataError, match=r"app/app\.py was altered"):
        blobs.get(artifact())
