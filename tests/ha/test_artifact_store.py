"""ArtifactStore: what was uploaded is durable, shared by content, and stays while it is needed."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from msgspec.structs import replace

from tests.ha import ground
from tests.support.faulty_register import Call, Died, Durable, Fault, Faults
from tests.support.virtual_time import run_virtual
from understudy.errors import (
    ArtifactInUse,
    CorruptDataError,
    DataError,
    LeadershipLost,
    NotFoundError,
    TooLargeError,
)
from understudy.ha import artifact_store
from understudy.ha.artifact_store import ARTIFACTS_KEY, USED_S, ReceivedFile
from understudy.ha.format import digest
from understudy.ha.services import HighAvailabilityServices
from understudy.model import (
    ApplicationResultEntry,
    ApplicationStatus,
    Pointer,
    UploadedArtifact,
)

TOTAL = 1 << 20
SCRIPT = b"print('hello')\n"
DAY_S = 86_400.0
DIRECTORY = f"{ground.CLUSTER}/artifacts"


def received(body: bytes = SCRIPT, name: str = "etl.py") -> ReceivedFile:
    return ReceivedFile(name, digest(body), len(body), io.BytesIO(body))


async def begun(
    durable: Durable, term: int = 1, faults: Faults | None = None
) -> HighAvailabilityServices:
    """Lead in this term."""
    await ground.services(durable).registry.claim(term, ephemeral=False)
    return ground.services(durable, faults)


async def uploaded(
    services: HighAvailabilityServices, body: bytes = SCRIPT, name: str = "etl.py", **more: Any
) -> UploadedArtifact:
    return await services.artifacts.add(
        more.get("term", 1), received(body, name), more.get("total", TOTAL), more.get("now", 0.0)
    )


def stored(durable: Durable) -> list[bytes]:
    return [data for path, data in durable.storage.files.items() if path.startswith(DIRECTORY)]


def story(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(main())


def test_an_upload_is_listed_read_and_survives_a_failover() -> None:
    async def main() -> None:
        durable = Durable()
        artifact = await uploaded(await begun(durable))
        later = await begun(durable, 2)

        assert [artifact] == await later.artifacts.listed(2)
        assert SCRIPT == await later.artifacts.read(artifact)
        assert artifact.artifact_id == f"{digest(SCRIPT).removeprefix('sha256:')[:32]}_etl.py"

    story(main)


def test_equal_content_is_stored_once_and_the_same_upload_again_is_the_same_artifact() -> None:
    async def main() -> None:
        durable = Durable()
        services = await begun(durable)
        first = await uploaded(services)
        again = await uploaded(services, now=5.0)
        other = await uploaded(services, name="other.py")

        assert replace(first, used_at=5.0) == again
        assert (first.path, first.digest) == (other.path, other.digest)
        assert [SCRIPT] == stored(durable)
        assert {first.artifact_id, other.artifact_id} == {
            one.artifact_id for one in await services.artifacts.listed(1)
        }

    story(main)


def test_equal_uploads_at_once_are_one_artifact() -> None:
    async def main() -> None:
        durable = Durable()
        services = await begun(durable)
        found = await asyncio.gather(*(uploaded(services) for _ in range(5)))

        assert 1 == len({one.path for one in found})
        assert [SCRIPT] == stored(durable)

    story(main)


def test_bytes_that_somebody_has_removed_come_back_with_the_next_upload() -> None:
    async def main() -> None:
        durable = Durable()
        services = await begun(durable)
        first, other = await uploaded(services), await uploaded(services, name="other.py")
        durable.storage.files.pop(first.path)
        with pytest.raises(NotFoundError):
            await services.artifacts.read(other)
        await uploaded(services)

        for one in await services.artifacts.listed(1):
            assert SCRIPT == await services.artifacts.read(one)

    story(main)


def test_altered_bytes_are_noticed() -> None:
    async def main() -> None:
        durable = Durable()
        services = await begun(durable)
        artifact = await uploaded(services)
        durable.storage.files[artifact.path] = b"x" * artifact.size
        with pytest.raises(CorruptDataError, match=r"etl\.py was altered"):
            await services.artifacts.read(artifact)

    story(main)


def test_where_nothing_was_uploaded_nothing_is_written() -> None:
    async def main() -> None:
        durable = Durable()
        services = await begun(durable)
        before = len(durable.history)

        assert [] == await services.artifacts.listed(1)
        assert [] == await services.artifacts.sweep(1, DAY_S, 0.0)
        with pytest.raises(NotFoundError):
            await services.artifacts.remove(1, "none")
        with pytest.raises(NotFoundError):
            async with services.artifacts.held(1, "none", 0.0):
                pass
        assert before == len(durable.history)

    story(main)


# --- limits ---------------------------------------------------------------------------------------


def test_artifacts_have_a_limit_together_and_content_counts_once() -> None:
    async def main() -> None:
        durable = Durable()
        services = await begun(durable)
        await uploaded(services, total=20)
        await uploaded(services, name="same.py", total=20)
        with pytest.raises(TooLargeError, match=r"would have 25 bytes, and 20 are the limit"):
            await uploaded(services, b"0123456789", "more.py", total=20)

        assert [SCRIPT] == stored(durable)

    story(main)


def test_uploads_at_once_do_not_exceed_the_limit_together() -> None:
    async def main() -> None:
        durable = Durable()
        services = await begun(durable)
        uploads = (uploaded(services, b"%d" % number * 8, total=20) for number in range(5))
        found = await asyncio.gather(*uploads, return_exceptions=True)

        assert [False, False, True, True, True] == sorted(
            isinstance(one, TooLargeError) for one in found
        )
        assert 2 == len(stored(durable))

    story(main)


def test_artifacts_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifact_store, "ARTIFACTS_MAX", 2)

    async def main() -> None:
        services = await begun(Durable())
        await uploaded(services, name="a.py")
        await uploaded(services, name="b.py")
        await uploaded(services, name="b.py")
        with pytest.raises(TooLargeError, match="has 2 artifacts, and takes no more"):
            await uploaded(services, name="c.py")

    story(main)


def test_a_catalog_of_all_artifacts_that_are_allowed_fits_the_register() -> None:
    async def main() -> None:
        durable = Durable()
        services = await begun(durable)
        name = f"{'n' * 97}.py"
        document = await services.artifacts._created(1)
        one = await uploaded(services, name=name)
        many = {f"{number:032x}_{name}": one for number in range(artifact_store.ARTIFACTS_MAX)}
        await document.update(1, lambda body: replace(body, artifacts=many))

    story(main)


# --- removal --------------------------------------------------------------------------------------


def test_bytes_go_with_the_last_artifact_that_shares_them() -> None:
    async def main() -> None:
        durable = Durable()
        services = await begun(durable)
        first, other = await uploaded(services), await uploaded(services, name="other.py")
        await services.artifacts.remove(1, first.artifact_id)

        assert [SCRIPT] == stored(durable)
        assert [other] == await services.artifacts.listed(1)

        await services.artifacts.remove(1, other.artifact_id)

        assert [] == stored(durable)
        assert f"{DIRECTORY}/" not in durable.storage.everything()
        with pytest.raises(NotFoundError):
            await services.artifacts.remove(1, other.artifact_id)

    story(main)


async def submitted(services: HighAvailabilityServices, *ids: str) -> Any:
    """Link an application that was submitted with these artifacts."""
    record = replace(ground.record(), uploads=ids)
    return await services.applications.put(1, record, "app-1")


def test_what_an_unfinished_application_needs_is_not_removed() -> None:
    async def main() -> None:
        durable = Durable()
        services = await begun(durable)
        artifact = await uploaded(services)
        application = await submitted(services, artifact.artifact_id)
        with pytest.raises(ArtifactInUse, match=ground.APPLICATION):
            await services.artifacts.remove(1, artifact.artifact_id)

        assert [] == await services.artifacts.sweep(1, DAY_S, 9 * DAY_S)
        assert [SCRIPT] == stored(durable)

        gone = Pointer(path="gone", digest="sha256:0", size=0)
        ended = ApplicationResultEntry(status=ApplicationStatus.FINISHED, source=gone, end_time=1)
        await application.update(1, lambda body: replace(body, result=ended))
        await services.artifacts.remove(1, artifact.artifact_id)

        assert [] == stored(durable)

    story(main)


def test_other_code_for_an_unfinished_application_needs_other_artifacts() -> None:
    async def main() -> None:
        services = await begun(Durable())
        old, new = await uploaded(services), await uploaded(services, b"other", "other.py")
        application = await submitted(services, old.artifact_id)
        record = replace(ground.record(), uploads=(new.artifact_id,))
        await services.applications.redeploy(application, 1, record)
        await services.artifacts.remove(1, old.artifact_id)
        with pytest.raises(ArtifactInUse):
            await services.artifacts.remove(1, new.artifact_id)

    story(main)


def test_what_a_submission_needs_is_not_removed() -> None:
    async def main() -> None:
        services = await begun(Durable())
        artifact = await uploaded(services)
        async with services.artifacts.held(1, artifact.artifact_id, 0.0) as held:
            assert artifact == held
            with pytest.raises(ArtifactInUse, match="a submission just now"):
                await services.artifacts.remove(1, artifact.artifact_id)
            assert [] == await services.artifacts.sweep(1, DAY_S, 9 * DAY_S)
        await services.artifacts.remove(1, artifact.artifact_id)

        assert [] == await services.artifacts.listed(1)

    story(main)


def test_a_submission_that_begins_during_a_removal_gets_all_or_nothing() -> None:
    async def main() -> None:
        services = await begun(Durable())
        artifact = await uploaded(services)

        async def submission() -> str:
            async with services.artifacts.held(1, artifact.artifact_id, 0.0) as held:
                return (await services.artifacts.read(held)).decode()

        removed, found = await asyncio.gather(
            services.artifacts.remove(1, artifact.artifact_id),
            submission(),
            return_exceptions=True,
        )

        assert (removed is None) == isinstance(found, NotFoundError)

    story(main)


def test_while_an_application_cannot_be_read_every_artifact_stays() -> None:
    async def main() -> None:
        durable = Durable()
        services = await begun(durable)
        artifact = await uploaded(services)
        application = await submitted(services)
        entry = await durable.register.load(application.key)
        assert entry is not None
        await durable.register.swap(application.key, b"damaged", entry.version)
        with pytest.raises(ArtifactInUse, match=r"may be needed.* cannot be read"):
            await services.artifacts.remove(1, artifact.artifact_id)
        with pytest.raises(DataError):
            await services.artifacts.sweep(1, DAY_S, 9 * DAY_S)

        assert [SCRIPT] == stored(durable)

    story(main)


def test_what_nobody_has_used_for_long_is_swept_and_what_was_used_is_not() -> None:
    async def main() -> None:
        durable = Durable()
        services = await begun(durable)
        old, used = await uploaded(services), await uploaded(services, b"used", "used.py")
        async with services.artifacts.held(1, used.artifact_id, 2 * DAY_S):
            pass
        swept = await services.artifacts.sweep(1, DAY_S, 2 * DAY_S)

        assert [old.artifact_id] == swept
        assert [b"used"] == stored(durable)
        assert [] == await services.artifacts.sweep(1, DAY_S, 3 * DAY_S + USED_S)

    story(main)


# --- leaders --------------------------------------------------------------------------------------


def test_a_deposed_leader_neither_adds_nor_removes() -> None:
    async def main() -> None:
        durable = Durable()
        old = await begun(durable)
        artifact = await uploaded(old)
        new = await begun(durable, 2)
        assert [artifact] == await new.artifacts.listed(2)
        late: list[Callable[[], Awaitable[Any]]] = [
            lambda: uploaded(old, b"late", "late.py"),
            lambda: old.artifacts.remove(1, artifact.artifact_id),
            lambda: old.artifacts.sweep(1, DAY_S, 9 * DAY_S),
        ]
        for write in late:
            with pytest.raises(LeadershipLost):
                await write()

        assert [artifact] == await new.artifacts.listed(2)
        assert SCRIPT == await new.artifacts.read(artifact)

    story(main)


def test_a_leader_that_leads_again_knows_what_others_have_changed_meanwhile() -> None:
    async def main() -> None:
        durable = Durable()
        first = await begun(durable)
        old = await uploaded(first)
        second = await begun(durable, 2)
        await second.artifacts.remove(2, old.artifact_id)
        new = await uploaded(second, b"another", "another.py", term=2)
        await first.registry.claim(3, ephemeral=False)

        assert [new] == await first.artifacts.listed(3)
        with pytest.raises(NotFoundError):
            async with first.artifacts.held(3, old.artifact_id, 0.0):
                pass

    story(main)


def test_a_removal_that_a_deposed_leader_began_spares_a_later_upload() -> None:
    async def main() -> None:
        durable = Durable()
        lost = Faults()
        old = await begun(durable, faults=lost)
        first = await uploaded(old)
        lost.lasting = lambda call: call.verb == "delete"
        await old.artifacts.remove(1, first.artifact_id)
        new = await begun(durable, 2)
        second = await uploaded(new, term=2)
        lost.lasting = lambda _: False
        await old.artifacts._discard(first.path)

        assert first.path != second.path
        assert SCRIPT == await new.artifacts.read(second)

    story(main)


def test_bytes_of_an_upload_that_was_not_acknowledged_go_with_the_next_leader() -> None:
    async def main() -> None:
        durable = Durable()
        old = await begun(durable, faults=Faults(lasting=_catalog_writes))
        with pytest.raises(TimeoutError):
            await uploaded(old)
        assert [SCRIPT] == stored(durable)
        new = await begun(durable, 2)

        assert [] == await new.artifacts.listed(2)
        assert [] == stored(durable)

    story(main)


def _catalog_writes(call: Call) -> bool:
    return call.subject == ARTIFACTS_KEY and call.verb == "swap"


def test_what_is_arriving_is_not_swept() -> None:
    async def main() -> None:
        durable = Durable()
        services = await begun(durable)
        await uploaded(services)
        path = f"{DIRECTORY}/arriving"
        services.artifacts._arriving.add(path)
        durable.storage.publish(path, b"half")
        await services.registry.claim(2, ephemeral=False)
        await services.artifacts.listed(2)

        assert {SCRIPT, b"half"} == set(stored(durable))

    story(main)


@pytest.mark.parametrize("fault", list(Fault))
def test_an_acknowledged_upload_is_there_whatever_call_fails(fault: Fault) -> None:
    async def main() -> None:
        counted = Faults()
        await twice(await begun(Durable(), faults=counted))
        for number in range(len(counted.calls)):
            durable = Durable()
            acknowledged = False
            try:
                await twice(await begun(durable, faults=Faults({number: fault})))
                acknowledged = True
            except (Died, OSError, TimeoutError):
                pass
            new = await begun(durable, 2)
            listed = await new.artifacts.listed(2)
            for one in listed:
                assert len(await new.artifacts.read(one)) == one.size
            assert len({one.path for one in listed}) == len(stored(durable)), "nothing is left"
            assert listed or not acknowledged
            await twice(new, 2)

            assert 2 == len(await new.artifacts.listed(2))

    async def twice(services: HighAvailabilityServices, term: int = 1) -> None:
        await uploaded(services, term=term)
        await uploaded(services, b"another", "another.py", term=term)

    story(main)


def test_a_catalog_that_is_damaged_is_named_and_left_in_place() -> None:
    async def main() -> None:
        durable = Durable()
        await uploaded(await begun(durable))
        entry = await durable.register.load(ARTIFACTS_KEY)
        assert entry is not None
        await durable.register.swap(ARTIFACTS_KEY, b"damaged", entry.version)
        services = await begun(durable, 2)
        for use in (services.artifacts.listed(2), uploaded(services, term=2)):
            with pytest.raises(DataError, match=ARTIFACTS_KEY):
                await use

        assert [SCRIPT] == stored(durable)

    story(main)
