"""What remains of ended applications, and for how long: tombstones with their files, and logs."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.ha import ground
from tests.support.faulty_register import Durable
from tests.support.virtual_time import run_virtual
from understudy.ha import layout
from understudy.ha.application_store import StoredApplication
from understudy.ha.format import digest
from understudy.ha.services import HighAvailabilityServices
from understudy.jobmanager.retention import (
    forget_expired,
    sweep_tombstones,
    tombstones,
)
from understudy.model import (
    ApplicationId,
    ApplicationResult,
    ApplicationStatus,
    Pointer,
    RunId,
    Term,
    Tombstone,
    TombstoneFile,
)
from understudy.process import reporter
from understudy.process.reporter import LogFiles

NOW = 1_000_000.0
TTL_S = 100.0


def path_of(run: str, term: Term = 1) -> str:
    return layout.tombstone_path(ground.CLUSTER, run, term)


def result_of(run: str, age_s: float = 0.0) -> ApplicationResult:
    return ApplicationResult(
        application_id=ApplicationId(f"{run:0>32}"),
        application_name="flights",
        run_id=RunId(run),
        status=ApplicationStatus.FINISHED,
        start_time=NOW - age_s - 1,
        end_time=NOW - age_s,
    )


async def bury(stores: HighAvailabilityServices, run: str, age_s: float) -> Tombstone:
    """Leave what remains of an application that ended so long ago."""
    result = result_of(run, age_s)
    data = tombstones.dump(TombstoneFile(result=result))
    await stores.storage.publish(path_of(run), data)
    stone = Tombstone(
        application_id=result.application_id,
        run_id=result.run_id,
        name="flights",
        status=result.status,
        started_at=NOW - age_s - 1,
        ended_at=NOW - age_s,
        file=Pointer(path=path_of(run), digest=digest(data), size=len(data)),
    )
    await stores.registry.bury(1, stone.application_id, stone)
    return stone


async def sweep(stores: HighAvailabilityServices, term: Term = 1) -> None:
    """Do what a leader does about the files of tombstones."""
    registry = await stores.registry.claim(term, ephemeral=False)
    recovered = await stores.applications.recover(term, registry)
    await sweep_tombstones(stores, term, registry, recovered)


def left(durable: Durable) -> list[str]:
    return sorted(path.rpartition("/")[2] for path in durable.storage.files)


async def buried(durable: Durable) -> tuple[HighAvailabilityServices, list[Tombstone]]:
    stores = ground.services(durable)
    await stores.registry.claim(1, ephemeral=False)
    ages = {"old": TTL_S + 1, "older": TTL_S * 5, "young": TTL_S - 1}
    return stores, [await bury(stores, run, age_s) for run, age_s in ages.items()]


async def runs(stores: HighAvailabilityServices) -> list[str]:
    registry = await stores.registry.read()
    assert registry is not None
    return sorted(registry.tombstones)


def test_expired_tombstones_go_with_their_files_at_the_next_grant() -> None:
    durable = Durable()

    async def main() -> list[str]:
        stores, _ = await buried(durable)
        registry = await stores.registry.claim(2, ephemeral=False)
        await forget_expired(stores, 2, registry, TTL_S, NOW)
        return await runs(stores)

    assert ["young"] == run_virtual(main())
    assert ["young~1.json"] == left(durable)


def test_the_tombstone_that_is_about_to_be_told_is_kept() -> None:
    durable = Durable()

    async def main() -> list[str]:
        stores, stones = await buried(durable)
        registry = await stores.registry.claim(2, ephemeral=False)
        await forget_expired(stores, 2, registry, TTL_S, NOW, kept=stones[0])
        return await runs(stores)

    assert ["old", "young"] == run_virtual(main())
    assert ["old~1.json", "young~1.json"] == left(durable)


def test_a_file_that_outlived_its_tombstone_goes_with_the_sweep() -> None:
    durable = Durable()

    async def main() -> None:
        stores, _ = await buried(durable)
        await stores.registry.forget(1, [RunId("old")])
        await sweep(stores)

    run_virtual(main())

    assert ["older~1.json", "young~1.json"] == left(durable)


async def being_buried(stores: HighAvailabilityServices) -> StoredApplication:
    """Leave an application that points to the file of its tombstone, and one of a late leader."""
    stored = await ground.submitted(stores)
    data = tombstones.dump(TombstoneFile(result=result_of(ground.RUN)))
    for term in (2, 3):
        await stores.storage.publish(path_of(ground.RUN, term), data)
    pointer = Pointer(path=path_of(ground.RUN, 2), digest=digest(data), size=len(data))
    await stored.update(3, lambda body: replace(body, tombstone=pointer))
    return stored


def test_the_file_that_an_application_points_to_stays_and_the_one_of_a_late_leader_goes() -> None:
    durable = Durable()

    async def main() -> None:
        stores = ground.services(durable)
        await being_buried(stores)
        await sweep(stores, 4)

    run_virtual(main())

    assert ["application.json", f"{ground.RUN}~2.json"] == left(durable)


def test_what_a_later_leader_writes_is_not_swept_by_an_earlier_one() -> None:
    durable = Durable()

    async def main() -> None:
        stores, stones = await buried(durable)
        registry = await stores.registry.claim(2, ephemeral=False)
        recovered = await stores.applications.recover(2, registry)
        sound = await stores.storage.read(stones[0].file.path)
        for term in (2, 3):
            await stores.storage.publish(path_of("old", term), sound)
        await sweep_tombstones(stores, 2, registry, recovered)

    run_virtual(main())

    assert ["older~1.json", "old~1.json", "old~3.json", "young~1.json"] == left(durable)


def test_while_an_application_cannot_be_read_the_files_of_its_run_stay() -> None:
    durable = Durable()

    async def main() -> None:
        stores = ground.services(durable)
        stored = await being_buried(stores)
        entry = await stores.register.load(stored.key)
        assert entry is not None
        await stores.register.swap(stored.key, b"damaged", entry.version)
        await sweep(ground.services(durable), 4)

    run_virtual(main())

    assert ["application.json", f"{ground.RUN}~2.json", f"{ground.RUN}~3.json"] == left(durable)


@pytest.mark.parametrize("name", ["notes~1.json", "older-copy~1.json", "older.json", "readme.txt"])
def test_what_is_no_tombstones_file_is_left_in_place(name: str) -> None:
    durable = Durable()

    async def main() -> None:
        stores, stones = await buried(durable)
        copied = await stores.storage.read(stones[1].file.path)
        data = copied if "older" in name else b"{}"
        await stores.storage.publish(f"{ground.CLUSTER}/tombstones/{name}", data)
        await sweep(stores)

    run_virtual(main())

    assert name in left(durable)


# --- logs -----------------------------------------------------------------------------------------


def log_of(files: LogFiles, application: str, at: int) -> Path:
    files.append(application, "main", "a line")
    path = files.path(application)
    os.utime(path, (at, at))
    return path


def test_of_so_many_applications_the_logs_are_kept_the_oldest_go(tmp_path: Path) -> None:
    files = LogFiles(tmp_path, keep=3)
    for number in range(6):
        log_of(files, f"run-{number}", at=number)

    assert [f"run-{number}.log" for number in (3, 4, 5)] == sorted(os.listdir(tmp_path))


def test_the_earlier_part_of_a_log_goes_with_it(tmp_path: Path) -> None:
    files = LogFiles(tmp_path, keep=1)
    log_of(files, "run-0", at=0).with_suffix(".log.1").write_text("earlier")
    log_of(files, "run-1", at=1)

    assert ["run-1.log"] == os.listdir(tmp_path)


def test_a_log_that_is_full_begins_anew_and_its_last_part_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter, "LOG_BYTES_MAX", 200)
    files = LogFiles(tmp_path, keep=3)
    for number in range(10):
        files.append("run", "main", f"line {number}")

    assert ["run.log", "run.log.1"] == sorted(os.listdir(tmp_path))
    assert "line 9" in files.path("run").read_text()
    assert files.path("run").stat().st_size < 300


def test_processes_that_find_a_log_full_at_once_keep_all_that_was_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter, "LOG_BYTES_MAX", 100)
    several = [LogFiles(tmp_path, keep=3) for _ in range(3)]
    for number, files in enumerate(several):
        files.append("run", "main", f"{number} {'x' * 40}")
    for number, files in enumerate(several):
        files.append("run", "main", f"later {number}")

    assert 3 == several[0].path("run").read_text().count("later")
    assert 3 == (tmp_path / "run.log.1").read_text().count("x" * 40)


def test_while_another_process_sets_a_full_log_aside_a_line_goes_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter, "LOG_BYTES_MAX", 10)
    files = LogFiles(tmp_path, keep=3)
    files.append("run", "main", "first")
    with files.path("run").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        files.append("run", "main", "second")
        aside = (tmp_path / "run.log.1").exists()
    files.append("run", "main", "third")

    assert not aside
    assert "second" in (tmp_path / "run.log.1").read_text()
    assert "third" in files.path("run").read_text()


def test_a_log_that_cannot_be_opened_again_is_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of its descriptor belongs to whatever is opened next."""

    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(reporter, "LOG_BYTES_MAX", 10)
    files = LogFiles(tmp_path, keep=3)
    files.append("run", "main", "first")
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(OSError, match="too many"):
            files.append("run", "main", "second")
    with (tmp_path / "value").open("wb") as other:
        files.append("run", "main", "third")
        other.write(b"VALUE")

    assert b"VALUE" == (tmp_path / "value").read_bytes()
    assert "third" in files.path("run").read_text()


def test_a_log_that_somebody_removed_is_begun_again(tmp_path: Path) -> None:
    files = LogFiles(tmp_path, keep=3)
    log_of(files, "run", at=1).unlink()
    files.append("run", "main", "another line")

    assert "another line" in files.path("run").read_text()
