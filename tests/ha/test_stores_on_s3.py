"""The stores on S3 when requests are lost, repeated, refused, and come late: the same end."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import fsspec
import pytest

from tests.ha.ground import APPLICATION, RUN
from tests.support.faulty_s3 import Fault, FaultyS3, faulty_s3
from tests.support.s3 import BUCKET, Moto, moto
from tests.support.sampling import quickly
from understudy.cli.launch.compose import check_checkpoints_dir, prove_places
from understudy.clock import SystemClock
from understudy.config import Configuration, options
from understudy.core.backoff import Backoff
from understudy.driver.kept_state import StateKeeper
from understudy.errors import StorageError, UsageError
from understudy.ha import layout, remote_files
from understudy.ha.blobs import BlobStore
from understudy.ha.format import digest
from understudy.ha.result_store import ResultStore
from understudy.ha.storage import FsspecStorage, InlineStorage, prove
from understudy.model import Artifact, Checkpoint, Incarnation, JobId, Pointer
from understudy.process import persist
from understudy.process.persist import persist_blocking
from understudy.rpc.messages import Deploy

__all__ = ["moto"]

CLUSTER, DIRECTORY, JOB = "flights", "a-1", JobId("0" * 32)
HOME = layout.application_directory(CLUSTER, DIRECTORY)
SCRIPT, PLAN, OUTCOME = b"print(1)", b"the plan", b'{"value": 1}'
PLAN_PATH = layout.plan_path(CLUSTER, DIRECTORY, JOB, digest(PLAN))
STAGED = Pointer(
    path=layout.staged_path(CLUSTER, DIRECTORY, JOB, 1), digest=digest(OUTCOME), size=len(OUTCOME)
)

LARGE = os.urandom(1 << 20) * 11
PART_BYTES = 5 << 20
"""The least that S3 takes for a part."""

PARTS = ("create", "part", "part", "part", "complete")
"""The requests that write a large file."""

IN_PARTS = (Fault.LOST, Fault.ANSWER_LOST, Fault.ERROR, Fault.CUT, Fault.TWICE)


class Numbers:
    """A leader that records everything."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def record(self, *taken: Checkpoint) -> tuple[int, ...]:
        return tuple(next(self._numbers) for _ in taken)

    def report(self, *taken: Checkpoint) -> None:
        raise AssertionError("states are recorded")

    def failed(self, one: Checkpoint) -> None:
        raise AssertionError(one)

    def finish(self) -> None:
        raise NotImplementedError

    def settle(self, timeout_s: float) -> bool:
        return True


@pytest.fixture
def proxy(moto: Moto, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyS3]:
    """Stand between the stores and S3; what fails is told to us at once, not tried again."""
    monkeypatch.setattr(remote_files, "S3_ATTEMPTS", 1)
    monkeypatch.setattr(remote_files, "S3_TRIES", 1)
    monkeypatch.setattr(persist, "BACKOFF", Backoff(0.001))
    with faulty_s3(moto.endpoint) as between:
        monkeypatch.setitem(fsspec.config.conf, "s3", {"endpoint_url": between.endpoint})
        yield between


@pytest.fixture
def url(proxy: FaultyS3) -> str:
    """Return a place of one's own."""
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


def publish(storage: FsspecStorage) -> list[object]:
    """Do what an application with one job does; return what it reads back."""
    blobs = BlobStore(storage, CLUSTER, DIRECTORY)
    name = persist_blocking("put a blob", lambda: blobs.put(SCRIPT))
    script = Artifact(name="app/app.py", digest=name, size=len(SCRIPT))
    persist_blocking("store a plan", lambda: storage.publish(PLAN_PATH, PLAN))
    keeper = StateKeeper(deploy(), Numbers(), storage, SystemClock())
    numbers = [keeper.save({"step": step}) for step in range(3)]
    persist_blocking("stage an outcome", lambda: storage.publish(STAGED.path, OUTCOME))
    results = ResultStore(InlineStorage(storage), layout.result_directories(CLUSTER)[0])
    asyncio.run(persist.persist("publish a result", lambda: results.publish_dirty(JOB, STAGED)))
    return [
        persist_blocking("read a blob", lambda: blobs.get(script)),
        persist_blocking("read a plan", lambda: storage.read(PLAN_PATH)),
        numbers,
        keeper.restored(),
        asyncio.run(persist.persist("read a result", lambda: results.read(JOB, STAGED))),
        persist_blocking("list", lambda: storage.names(f"{HOME}/staged")),
    ]


def clean_up(storage: FsspecStorage) -> None:
    """Remove what a cleanup removes."""
    results = ResultStore(InlineStorage(storage), layout.result_directories(CLUSTER)[0])
    for path in (PLAN_PATH, STAGED.path):
        persist_blocking("delete", lambda path=path: storage.delete(path))  # type: ignore[misc]
    persist_blocking("delete", lambda: storage.delete_tree(HOME))
    persist_blocking("prune", lambda: storage.prune(f"{CLUSTER}/applications"))
    asyncio.run(persist.persist("mark clean", lambda: results.mark_clean(JOB, keep=True)))


def deploy() -> Deploy:
    """Return what a driver is told of the job."""
    return Deploy(
        job_id=JOB,
        name="load",
        attempt=1,
        driver=Incarnation("driver-1"),
        application_id=APPLICATION,
        run_id=RUN,
        result_size_max=1 << 18,
        plan=Pointer(path=PLAN_PATH, digest=digest(PLAN), size=len(PLAN)),
        staged=STAGED.path,
        writer="w",
        checkpoints=layout.checkpoints_path(CLUSTER, DIRECTORY, JOB),
    )


def objects(moto: Moto, url: str) -> dict[str, bytes]:
    """Return what is in the store, as somebody sees it who meets no faults."""
    fs = fsspec.filesystem("s3", endpoint_url=moto.endpoint, use_listings_cache=False)
    top = url.removeprefix("s3://")
    return {name.removeprefix(f"{top}/"): fs.cat_file(name) for name in fs.find(top)}


READ = [SCRIPT, PLAN, [1, 2, 3], {"step": 2}, OUTCOME, [f"{JOB}-1.json"]]
CLEAN = {f"job-result-store/{CLUSTER}/{JOB}.json": OUTCOME}


def kept(moto: Moto, url: str) -> set[str]:
    """Return the kinds of things that are in the store."""
    return {name.removeprefix(f"{HOME}/").partition("/")[0] for name in objects(moto, url)}


@pytest.mark.parametrize(
    "fault",
    quickly(Fault, (Fault.ANSWER_LOST,)),
    ids=[fault.name.lower() for fault in Fault],
)
def test_requests_fail_at_random_and_the_end_is_the_same(
    fault: Fault, proxy: FaultyS3, moto: Moto, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault is Fault.SILENT:
        monkeypatch.setattr(remote_files, "S3_SILENCE_S", 0.15)
    chance = random.Random(fault.name)
    proxy.plan = {number: fault for number in range(1_000) if chance.random() < 0.3}
    storage = FsspecStorage(url)

    assert READ == publish(storage)

    clean_up(storage)

    assert objects(moto, url) == CLEAN
    assert len(proxy.seen) > 30, "the faults were met"


@pytest.mark.parametrize(
    ("fault", "first"),
    quickly(
        [(Fault.LOST, 0), (Fault.ANSWER_LOST, 2), (Fault.ERROR_AFTER, 4)], [(Fault.ANSWER_LOST, 2)]
    ),
)
def test_one_request_of_all_fails_and_the_end_is_the_same(
    fault: Fault, first: int, proxy: FaultyS3, moto: Moto, url: str
) -> None:
    publish(FsspecStorage(f"{url}/sound"))
    clean_up(FsspecStorage(f"{url}/sound"))
    requests, proxy.plan = len(proxy.seen), {}

    def one(number: int) -> tuple[list[object], dict[str, bytes]]:
        storage = FsspecStorage(f"{url}/{number}")
        read = publish(storage)
        clean_up(storage)
        return read, objects(moto, storage.url)

    for number in range(first, requests, 12):
        proxy.seen.clear()
        proxy.plan = {number: fault}

        assert (READ, CLEAN) == one(number), number


def test_puts_that_are_repeated_late_change_nothing_that_is_read(
    proxy: FaultyS3, moto: Moto, url: str
) -> None:
    storage = FsspecStorage(url)
    publish(storage)
    puts = [request for request in proxy.seen if request.method == "PUT"]
    before = objects(moto, url)
    for request in reversed(puts):
        proxy.repeat(request)

    after = objects(moto, url)
    assert before.items() <= after.items(), "what is named holds the same bytes"
    assert {name.rpartition("/")[0] for name in after} == {
        name.rpartition("/")[0] for name in before
    }

    clean_up(storage)

    assert objects(moto, url) == CLEAN


def test_a_put_that_comes_after_the_cleanup_is_swept_with_what_nothing_links(
    proxy: FaultyS3, moto: Moto, url: str
) -> None:
    storage = FsspecStorage(url)
    publish(storage)
    puts = [request for request in proxy.seen if request.method == "PUT"]
    clean_up(storage)
    for request in puts:
        proxy.repeat(request)
    results = ResultStore(InlineStorage(storage), layout.result_directories(CLUSTER)[0])

    assert OUTCOME == asyncio.run(results.read(JOB, STAGED)), "the result is the same"
    assert [DIRECTORY] == storage.names(f"{CLUSTER}/applications"), "seen by the sweep"

    storage.delete_tree(HOME)  # As `Dispatcher._sweep_directories` does.
    asyncio.run(results.mark_clean(JOB, keep=True))

    assert objects(moto, url) == CLEAN


@pytest.mark.parametrize(
    ("number", "fault"),
    quickly(product(range(len(PARTS)), IN_PARTS), tuple(enumerate(IN_PARTS))),
    ids=lambda value: value.name.lower() if isinstance(value, Fault) else PARTS[value],
)
def test_a_large_file_is_whole_or_not_there_whatever_becomes_of_its_parts(
    fault: Fault,
    number: int,
    proxy: FaultyS3,
    moto: Moto,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote_files, "S3_PART_BYTES", PART_BYTES)
    storage = FsspecStorage(url)
    proxy.plan = {number: fault}
    seen = []

    def attempt() -> None:
        try:
            storage.publish("large", LARGE)
        finally:
            seen.append(objects(moto, url).get("large"))

    persist_blocking("publish", attempt)

    assert LARGE == storage.read("large")
    assert set(seen) <= {None, LARGE}


@pytest.mark.parametrize(
    "fault", quickly([Fault.SLOW_DOWN, Fault.ERROR, Fault.ANSWER_LOST], [Fault.ANSWER_LOST])
)
def test_one_fault_is_not_even_noticed(
    fault: Fault, moto: Moto, monkeypatch: pytest.MonkeyPatch
) -> None:
    with faulty_s3(moto.endpoint) as proxy:
        monkeypatch.setitem(fsspec.config.conf, "s3", {"endpoint_url": proxy.endpoint})
        storage = FsspecStorage(f"s3://{BUCKET}/{uuid.uuid4().hex}")
        proxy.plan = {0: fault, 3: fault}
        storage.publish("a/file", b"data" * 100)

        assert b"data" * 100 == storage.read("a/file")
        assert ["file"] == storage.names("a")
    assert 5 == len(proxy.seen)


@pytest.mark.parametrize(
    "act",
    [
        lambda storage: storage.read("a/file"),
        lambda storage: storage.publish("a/file", b"data"),
        lambda storage: storage.names("a"),
        lambda storage: storage.exists("a"),
        lambda storage: storage.delete_tree("a"),
    ],
    ids=["read", "publish", "names", "exists", "delete_tree"],
)
def test_a_server_that_never_answers_holds_nobody_up(
    act: Callable[[FsspecStorage], object],
    proxy: FaultyS3,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote_files, "CALL_S", 0.5)
    proxy.always = Fault.SILENT
    began = time.monotonic()

    with pytest.raises(TimeoutError, match=r"no answer within 0\.5 s"):
        act(FsspecStorage(url))
    assert time.monotonic() - began < 12.0


def test_the_start_waits_once_for_a_server_that_never_answers(
    proxy: FaultyS3, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = FsspecStorage(url)
    storage.publish("file", b"")
    monkeypatch.setattr(remote_files, "CALL_S", 0.5)
    proxy.always = Fault.SILENT

    with pytest.raises(StorageError, match=r"cannot be written to: .*no answer within 0\.5 s"):
        prove(storage, "flights/locks")
    assert len(proxy.seen) <= 2


def test_a_failing_store_is_not_taken_for_an_empty_one(proxy: FaultyS3, url: str) -> None:
    storage = FsspecStorage(url)
    storage.publish("a/file", b"data")
    proxy.always = Fault.ERROR
    for act in (storage.read, storage.names, storage.exists, storage.sizes, storage.delete_tree):
        with pytest.raises(OSError, match=r"internal error|Internal Server Error") as told:
            act("a/file")
        assert not isinstance(told.value, FileNotFoundError)


def test_many_threads_use_one_storage(proxy: FaultyS3, url: str) -> None:
    storage = FsspecStorage(url)

    def one(number: int) -> tuple[bytes, list[str]]:
        storage.publish(f"{number}/file", b"%d" % number)
        return storage.read(f"{number}/file"), storage.names(f"{number}")

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(one, range(40)))

    assert [(b"%d" % number, ["file"]) for number in range(40)] == told


USES_A_STORAGE = """
import sys, threading
from understudy.ha.storage import load_client, open_storage
load_client(sys.argv[1])
print(threading.active_count(), "s3fs" in sys.modules)
open_storage(sys.argv[1]).publish("a/file", b"data")
"""


def test_a_client_that_was_loaded_before_a_fork_has_no_threads_and_says_nothing(
    proxy: FaultyS3, url: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", USES_A_STORAGE, url],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert "1 True" == done.stdout.strip()
    assert "" == done.stderr, "and nothing is told to the person whose job it is"


@pytest.mark.parametrize(
    "key",
    [
        "execution.checkpointing.dir",
        "job-result-store.storage-path",
        "application-result-store.storage-path",
    ],
)
def test_every_place_is_proved_before_anything_starts(
    key: str, proxy: FaultyS3, moto: Moto, url: str
) -> None:
    prove = check_checkpoints_dir if key == options.CHECKPOINTS_DIR.key else prove_places
    prove(Configuration({key: url}))

    assert {} == objects(moto, url)

    with pytest.raises(UsageError, match=f"{key} cannot be used: .*there is no bucket 'no-such"):
        prove(Configuration({key: "s3://no-such-bucket/x"}))
