"""S3 beyond the contract of every storage, and its differences from a directory."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable

import fsspec
import pytest

from tests.support.s3 import BUCKET, Moto
from understudy.errors import ConfigurationError, NotFoundError, StorageError
from understudy.ha import remote_files
from understudy.ha.storage import BlockingStorage, FsspecStorage, prove

LARGE = os.urandom(1 << 20) * 11
PART_BYTES = 5 << 20
"""The smallest part that S3 accepts, so that the file is sent in three parts."""


@pytest.fixture
def url(moto: Moto) -> str:
    """Return a new URL for one test."""
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def storage(url: str) -> FsspecStorage:
    """Return a new storage for one test."""
    return FsspecStorage(url)


@pytest.fixture
def raw(moto: Moto) -> fsspec.AbstractFileSystem:
    """Return the store as seen by other programs."""
    return fsspec.filesystem("s3", use_listings_cache=False)


def test_a_large_file_is_published_in_parts_and_read_whole(
    storage: FsspecStorage, raw: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_files, "S3_PART_BYTES", PART_BYTES)
    storage.publish("large", LARGE)

    assert LARGE == storage.read("large")
    assert "-3" in raw.info(f"{storage.url}/large")["ETag"], "in three parts"


def test_many_files_are_deleted_together(
    storage: FsspecStorage, raw: fsspec.AbstractFileSystem
) -> None:
    raw.pipe({f"{storage.url}/a/many/{number}": b"" for number in range(120)})
    storage.delete_tree("a/many")

    assert not storage.exists("a")


def test_marks_of_directories_are_no_files_and_go_with_them(
    storage: FsspecStorage, raw: fsspec.AbstractFileSystem
) -> None:
    for mark in ("a/", "a/b/", "a/b/c/"):  # As left by Hadoop's S3A.
        raw.call_s3("put_object", Bucket=BUCKET, Key=f"{storage.url.split('/')[-1]}/{mark}")
    storage.publish("a/b/file", b"data")

    assert ["c", "file"] == storage.names("a/b")
    assert {"file": 4} == storage.sizes("a/b")

    storage.prune("a/b/c")

    assert ["file"] == storage.names("a/b")

    storage.delete_tree("a/b")

    assert [] == storage.names("a")

    storage.prune("a")

    assert [] == raw.find(storage.url)


def test_a_listing_shows_what_another_process_has_published(url: str) -> None:
    ours, theirs = FsspecStorage(url), fsspec.filesystem("s3", skip_instance_cache=True)
    ours.publish("a/first", b"")

    assert ["first"] == ours.names("a")

    theirs.pipe_file(f"{url}/a/second", b"")

    assert ["first", "second"] == ours.names("a")
    assert ours.exists("a/second")

    theirs.rm_file(f"{url}/a/first")

    assert ["second"] == ours.names("a")
    assert not ours.exists("a/first")


def test_a_whole_bucket_is_a_storage_too(moto: Moto, raw: fsspec.AbstractFileSystem) -> None:
    bucket = f"b-{uuid.uuid4().hex}"
    raw.mkdir(bucket)
    storage = FsspecStorage(f"s3://{bucket}/")
    prove(storage, "flights/locks")
    storage.publish("a/file", b"data")

    assert ["a"] == storage.names("")
    assert storage.exists("")

    storage.delete_tree("a")

    assert [] == storage.names("")
    assert storage.exists(""), "the bucket stays"


@pytest.mark.parametrize(
    "act",
    [
        lambda storage: storage.read("a/file"),
        lambda storage: storage.publish("a/file", b"data"),
        lambda storage: storage.names("a"),
        lambda storage: storage.exists("a"),
        lambda storage: storage.delete("a/file"),
        lambda storage: storage.delete_tree("a"),
        lambda storage: storage.prune("a"),
        lambda storage: storage.sizes("a"),
    ],
    ids=["read", "publish", "names", "exists", "delete", "delete_tree", "prune", "sizes"],
)
def test_a_bucket_that_is_not_there_is_no_empty_one_and_is_not_made(
    moto: Moto,
    raw: fsspec.AbstractFileSystem,
    act: Callable[[BlockingStorage], object],
) -> None:
    bucket = f"misspelt-{uuid.uuid4().hex}"
    storage = FsspecStorage(f"s3://{bucket}/ha")

    with pytest.raises(OSError, match=f"there is no bucket '{bucket}' at {moto.endpoint}") as told:
        act(storage)
    assert not isinstance(told.value, FileNotFoundError)
    assert not raw.exists(bucket)


def test_the_start_says_in_one_sentence_that_there_is_no_bucket(moto: Moto) -> None:
    storage = FsspecStorage("s3://no-such-bucket-here/ha")

    with pytest.raises(StorageError) as told:
        prove(storage, "flights/locks")
    assert (
        "s3://no-such-bucket-here/ha: cannot be written to: there is no bucket "
        f"'no-such-bucket-here' at {moto.endpoint}: create it, or name another"
    ) == str(told.value)


def test_the_start_says_that_credentials_are_missing(
    moto: Moto, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/none")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/none")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    with pytest.raises(StorageError, match="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        prove(FsspecStorage(url), "flights/locks")
    fsspec.get_filesystem_class("s3").clear_instance_cache()


def test_a_fork_has_a_connection_of_its_own(storage: FsspecStorage) -> None:
    storage.publish("a/file", b"data")
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if storage.read("a/file") == b"data" else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)

    assert 0 == os.waitstatus_to_exitcode(status)


def test_a_store_that_hides_others_writes_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="before '::' would show what was there"):
        FsspecStorage("simplecache::s3://bucket/ha")


def test_a_store_without_rename_and_whole_objects_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="half a file would be seen"):
        FsspecStorage("http://127.0.0.1/ha")


def test_without_the_extra_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)

    with pytest.raises(ConfigurationError, match=r"pip install s3fs"):
        FsspecStorage("s3://bucket/ha")


def test_what_was_never_there_is_not_found(storage: FsspecStorage) -> None:
    with pytest.raises(NotFoundError):
        storage.read("none")
