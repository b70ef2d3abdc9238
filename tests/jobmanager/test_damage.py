"""Every file that a cluster keeps, damaged in every way: named, left in place, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.ha import ground
from tests.support.sampling import quickly
from understudy.errors import (
    DataError,
    ForeignDataError,
    LostDataError,
    NewerFormatError,
    NotFoundError,
    UnreadableDataError,
)
from understudy.ha import layout
from understudy.ha.application_store import StoredApplication
from understudy.ha.backends.filesystem import FilesystemRegister
from understudy.ha.blobs import BlobStore
from understudy.ha.format import digest
from understudy.ha.registry import application_document, segment_document
from understudy.ha.result_store import read_outcome
from understudy.ha.services import HighAvailabilityServices
from understudy.ha.storage import LocalStorage, Storage
from understudy.jobmanager import attention
from understudy.jobmanager.retention import read_tombstone, tombstones
from understudy.model import (
    ApplicationId,
    ApplicationResult,
    ApplicationStatus,
    Artifact,
    JobEntry,
    Pointer,
    RunId,
    Tombstone,
    TombstoneFile,
)

DONE, OTHER_DONE = ground.job(1), ground.job(2)
STORES = ["registry", "application", "jobs", "record", "blob", "result", "tombstone"]


@dataclass
class Kept:
    """A cluster on disk: which file holds what, and how each is read."""

    root: Path
    stored: StoredApplication
    tombstone: Tombstone
    artifact: Artifact
    entries: list[JobEntry]

    def services(self) -> HighAvailabilityServices:
        """Open the stores as one more process does."""
        return open_services(self.root)

    def path(self, store: str, number: int = 0) -> Path:
        """Return the file of a store; some have two of a kind."""
        patterns = {
            "registry": "register/registry/val.*",
            "application": "register/application-*/val.*",
            "jobs": "register/jobs-*/val.*",
            "record": "applications/*/application.json",
            "blob": "applications/*/blobs/*",
            "result": "applications/*/staged/*.json",
            "tombstone": "tombstones/*.json",
        }
        return sorted((self.root / ground.CLUSTER).glob(patterns[store]))[number]

    async def read(self, store: str) -> object:
        """Read what a store holds, as a leader does."""
        services = self.services()
        body = self.stored.body
        blobs = BlobStore(services.storage.blocking, ground.CLUSTER, body.directory)
        result = self.entries[0].result
        assert result is not None
        readers: dict[str, Callable[[], Awaitable[object]]] = {
            "registry": services.registry.read,
            "application": application_document(
                services.register, self.stored.key, body.application_id
            ).read,
            "jobs": segment_document(services.register, body.segments[0], body.application_id).read,
            "record": lambda: services.applications.record(body),
            "blob": lambda: asyncio.to_thread(blobs.get, self.artifact),
            "result": lambda: read_outcome(services.job_results, DONE.job_id, result),
            "tombstone": lambda: read_tombstone(services, self.tombstone),
        }
        return await readers[store]()


def open_services(root: Path) -> HighAvailabilityServices:
    return HighAvailabilityServices(
        FilesystemRegister(root / ground.CLUSTER / "register"),
        Storage(LocalStorage(root)),
        ground.CLUSTER,
        ground.LOCATIONS,
    )


async def keep(root: Path) -> Kept:
    """Write everything that a cluster with an unfinished and an ended run keeps."""
    services = open_services(root)
    await services.registry.claim(1, ephemeral=False)
    directory = "directory"
    blobs = BlobStore(services.storage.blocking, ground.CLUSTER, directory)
    artifact = Artifact(name="app/app.py", digest=blobs.put(b"print(1)"), size=8)
    record = replace(ground.record(), artifacts=(artifact,))
    stored = await services.applications.put(1, record, directory)
    plans = services.plans(stored)
    await plans.claim(1)
    entries = []
    for entry in (DONE, OTHER_DONE):
        path, data = ground.staged(directory, entry), ground.outcome(entry)
        await services.storage.publish(path, data)
        entries.append(ground.with_result(entry, path, data))
        await plans.add(1, entries[-1])
    found = []
    for run in ("sunday", "saturday"):
        result = ApplicationResult(
            application_id=ApplicationId("e" * 32),
            application_name="flights",
            run_id=RunId(run),
            status=ApplicationStatus.FINISHED,
            start_time=1.0,
            end_time=2.0,
        )
        data = tombstones.dump(TombstoneFile(result=result, jobs=()), pretty=True)
        path = layout.tombstone_path(ground.CLUSTER, run, 1)
        await services.storage.publish(path, data)
        stone = Tombstone(
            application_id=result.application_id,
            run_id=result.run_id,
            name="flights",
            status=result.status,
            started_at=1.0,
            ended_at=2.0,
            file=Pointer(path=path, digest=digest(data), size=len(data)),
        )
        await services.registry.bury(1, result.application_id, stone)
        found.append(stone)
    found.sort(key=lambda stone: stone.file.path)
    return Kept(root, stored, found[0], artifact, entries)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return asyncio.run(keep(tmp_path))


@contextlib.contextmanager
def damaged(path: Path, data: bytes) -> Iterator[None]:
    """Let a file hold something else; it must hold that at the end, too."""
    sound = path.read_bytes()
    path.write_bytes(data)
    yield

    assert data == path.read_bytes()

    path.write_bytes(sound)


def test_an_undamaged_cluster_needs_nobody(kept: Kept) -> None:
    assert {} == asyncio.run(attention.inspect(kept.services()))


@pytest.mark.parametrize("step", quickly([7, 1], [7]))
@pytest.mark.parametrize("store", STORES)
def test_a_file_truncated_anywhere_is_named(kept: Kept, store: str, step: int) -> None:
    async def main() -> None:
        path = kept.path(store)
        sound = path.read_bytes()
        for length in range(0, len(sound.rstrip()), step):
            with damaged(path, sound[:length]):
                with pytest.raises((DataError, NotFoundError)) as caught:
                    await kept.read(store)
                assert store == "result" or path.name in str(caught.value)

    asyncio.run(main())


@pytest.mark.parametrize("store", STORES)
def test_no_flipped_bit_changes_what_is_read(kept: Kept, store: str) -> None:
    async def main() -> None:
        path, chance = kept.path(store), random.Random(store)
        sound, meant = path.read_bytes(), await kept.read(store)
        for position in range(0, len(sound), 2):
            flipped = bytearray(sound)
            flipped[position] ^= 1 << chance.randrange(8)
            with damaged(path, bytes(flipped)), contextlib.suppress(DataError, NotFoundError):
                assert meant == await kept.read(store), position

    asyncio.run(main())


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def a_link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to("nothing")


def gone(path: Path) -> None:
    path.unlink()


def its_directory_is_a_file(path: Path) -> None:
    path.rename(path.parent.parent / "aside")
    for other in path.parent.iterdir():
        other.unlink()
    path.parent.rmdir()
    path.parent.write_bytes(b"foreign")


INSTEAD = [a_directory, a_fifo, a_link_to_itself, a_link_to_nothing, gone]


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("damage", INSTEAD)
def test_what_is_no_file_any_more_is_named_at_once(
    kept: Kept, store: str, damage: Callable[[Path], None]
) -> None:
    path = kept.path(store)
    damage(path)

    async def main() -> None:
        with pytest.raises((DataError, NotFoundError)) as caught:
            async with asyncio.timeout(10):
                await kept.read(store)
        assert store == "result" or path.name in str(caught.value)

        problems = await attention.inspect(kept.services())

        assert any(path.name in why for why in problems.values())

    asyncio.run(main())


@pytest.mark.parametrize("store", ["registry", "application", "jobs"])
def test_a_file_in_place_of_an_entrys_directory_is_named(kept: Kept, store: str) -> None:
    path = kept.path(store)
    its_directory_is_a_file(path)

    with pytest.raises(UnreadableDataError, match=path.parent.name):
        asyncio.run(kept.read(store))
    assert b"foreign" == path.parent.read_bytes()


@pytest.mark.parametrize("store", [store for store in STORES if store != "blob"])
def test_a_later_version_is_named_and_left_in_place(kept: Kept, store: str) -> None:
    path = kept.path(store)
    newer = path.read_bytes().replace(b'"version": 1', b'"version": 9')
    newer = newer.replace(b'"version":1', b'"version":9')
    with damaged(path, newer):
        expected = NotFoundError if store == "result" else NewerFormatError
        with pytest.raises(expected):
            asyncio.run(kept.read(store))


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("of", [*STORES, "nothing", "noise", "JSON"])
def test_what_belongs_elsewhere_is_named(kept: Kept, store: str, of: str) -> None:
    others = {"nothing": b"", "noise": random.Random(0).randbytes(300), "JSON": b'{"a":1}\n'}
    data = others[of] if of in others else kept.path(of, -1).read_bytes()
    path = kept.path(store)
    if data == path.read_bytes():
        return
    with damaged(path, data), pytest.raises((DataError, NotFoundError)):
        asyncio.run(kept.read(store))


@pytest.mark.parametrize("store", ["application", "jobs"])
def test_the_document_of_another_application_is_foreign_and_keeps_its_term(
    kept: Kept, store: str
) -> None:
    async def main() -> None:
        services = kept.services()
        other = ground.record(RunId("run-2"), ApplicationId("b" * 32))
        second = await services.applications.put(1, other, "second")
        plans = services.plans(second)
        await plans.claim(1)
        await plans.add(1, ground.job(7))
        keys = {"application": second.key, "jobs": second.body.segments[0]}
        mine = {"application": kept.stored.key, "jobs": kept.stored.body.segments[0]}
        register = kept.root / ground.CLUSTER / "register"
        (source,) = (register / keys[store]).glob("val.*")
        (target,) = (register / mine[store]).glob("val.*")
        with damaged(target, source.read_bytes()):
            services = kept.services()
            registry = await services.registry.claim(2, ephemeral=False, anew=True)
            recovered = await services.applications.recover(2, registry)
            with contextlib.suppress(ForeignDataError):
                for one in recovered.sound:
                    await services.plans(one).claim(2)

            problems = await attention.inspect(services)

            assert ground.APPLICATION in problems
            assert other.application_id not in problems
            assert second.key in [one.key for one in recovered.sound]

    asyncio.run(main())


def test_everything_else_is_recovered_beside_damage(kept: Kept) -> None:
    async def main() -> None:
        services = kept.services()
        other = ground.record(RunId("run-2"), ApplicationId("b" * 32))
        sound = await services.applications.put(1, other, "second")
        (path,) = (kept.root / ground.CLUSTER / "register" / kept.stored.key).glob("val.*")
        a_fifo(path)
        services = kept.services()
        registry = await services.registry.claim(2, ephemeral=False, anew=True)
        recovered = await services.applications.recover(2, registry)
        await services.registry.sweep(2)

        assert [sound.key] == [one.key for one in recovered.sound]
        assert path.name in recovered.damaged[ground.APPLICATION]
        assert path.exists()

    asyncio.run(main())


# --- what was there ------------------------------------------------------------------------------


def test_a_registry_that_lost_its_value_or_its_token_is_never_made_anew(kept: Kept) -> None:
    async def main() -> None:
        for pattern in ("val.*", "cur.*"):
            (path,) = (kept.root / ground.CLUSTER / "register/registry").glob(pattern)
            data = path.read_bytes()
            path.unlink()
            services = kept.services()
            with pytest.raises((DataError, LostDataError)):
                await attention.refuse_lost_registry(services, None)
            path.write_bytes(data)

    asyncio.run(main())


def test_a_process_that_has_seen_the_registry_takes_no_older_copy_for_it(kept: Kept) -> None:
    async def main() -> None:
        directory = kept.root / ground.CLUSTER / "register/registry"
        before = {path.name: path.read_bytes() for path in directory.iterdir()}
        services = kept.services()
        await services.registry.claim(5, ephemeral=False, anew=True)
        for path in directory.iterdir():
            path.unlink()
        for name, data in before.items():
            (directory / name).write_bytes(data)
        with pytest.raises(LostDataError, match=r"of term 1, .*, though it was of term 5"):
            await services.registry.claim(6, ephemeral=False, anew=True)

        assert {path.name for path in directory.iterdir()} == set(before)

    asyncio.run(main())


def test_a_register_or_storage_that_vanished_is_neither_empty_nor_made_anew(kept: Kept) -> None:
    async def main() -> None:
        services = kept.services()
        await services.registry.read()
        away = kept.root.with_name("away")
        kept.root.rename(away)
        for work in (
            services.registry.read(),
            services.register.keys(""),
            services.register.swap("leader", b"me", None),
            services.storage.publish("flights/file", b"data"),
            services.storage.read(kept.stored.body.record.path),
            services.storage.names("flights"),
            services.storage.exists("flights"),
        ):
            with pytest.raises(FileNotFoundError, match="gone"):
                await work

        assert not kept.root.exists()

        away.rename(kept.root)

        assert await services.registry.read() is not None

    asyncio.run(main())


def test_two_clusters_in_one_directory_do_not_see_each_other(tmp_path: Path) -> None:
    async def main() -> None:
        found: list[HighAvailabilityServices] = []
        for name in ("flights", "flights2", "flight"):
            register = FilesystemRegister(tmp_path / name / "register")
            services = HighAvailabilityServices(
                register, Storage(LocalStorage(tmp_path)), name, ground.LOCATIONS
            )
            await services.registry.claim(len(found) + 1, ephemeral=False, anew=True)
            found.append(services)

        assert [1, 2, 3] == [await one.registry.highest_term() for one in found]

    asyncio.run(main())


def test_files_of_others_below_an_entry_are_left_alone(kept: Kept) -> None:
    async def main() -> None:
        register = kept.root / ground.CLUSTER / "register"
        foreign = [
            register / kept.stored.key / "cur.restored",
            register / "application-foreign" / "notes.txt",
            register / "README",
        ]
        for path in foreign:
            path.parent.mkdir(exist_ok=True)
            path.write_text("mine")
        services = kept.services()
        registry = await services.registry.claim(2, ephemeral=False, anew=True)
        recovered = await services.applications.recover(2, registry)
        await services.registry.sweep(2)

        assert {} == recovered.damaged
        assert all("mine" == path.read_text() for path in foreign)

    asyncio.run(main())
