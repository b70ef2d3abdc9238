"""ApplicationStore: an acknowledged application is real, whatever happened on the way."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.ha import ground
from tests.support.faulty_register import Died, Durable, Fault, Faults
from tests.support.virtual_time import run_virtual
from understudy.errors import CorruptDataError, DataError, ForeignDataError, NotFoundError
from understudy.ha.format import digest
from understudy.model import ApplicationId, ApplicationStatus, RunId


def test_an_application_that_was_put_is_recovered_with_its_record() -> None:
    async def main() -> None:
        durable = Durable()
        stored = await ground.submitted(ground.services(durable))
        stores = ground.services(durable)
        registry = await stores.registry.claim(2, ephemeral=False)
        recovered = await stores.applications.recover(2, registry)
        (found,) = recovered.sound

        assert {} == recovered.damaged
        assert (stored.key, stored.body) == (found.key, found.body)
        assert ground.record() == await stores.applications.record(found.body)
        assert ApplicationStatus.CREATED is found.body.status

    run_virtual(main())


def test_the_record_lies_in_storage_before_the_register_points_to_it() -> None:
    async def main() -> None:
        durable = Durable()
        stored = await ground.submitted(ground.services(durable))
        subjects = [accepted.subject for accepted in durable.history]

        assert ["registry", stored.body.record.path, stored.key, "registry"] == subjects
        assert stored.body.record.digest == digest(durable.storage.read(stored.body.record.path))

    run_virtual(main())


@pytest.mark.parametrize("fault", [Fault.DIES_BEFORE, Fault.DIES_AFTER])
def test_a_submission_cut_short_anywhere_is_whole_or_swept(fault: Fault) -> None:
    async def main(number: int) -> bool:
        durable = Durable()
        acknowledged = True
        try:
            await ground.submitted(ground.services(durable, Faults({number: fault})))
        except Died:
            acknowledged = False
        stores = ground.services(durable)
        registry = await stores.registry.claim(2, ephemeral=False)
        found = (await stores.applications.recover(2, registry)).sound
        await stores.registry.sweep(2)
        keys = await stores.register.keys("")

        assert len(found) or not acknowledged
        assert ["registry", *(stored.key for stored in found)] == sorted(
            keys, key=lambda key: key != "registry"
        )
        for stored in found:
            assert ground.record() == await stores.applications.record(stored.body)
        return bool(found)

    assert {False, True} == {run_virtual(main(number)) for number in range(9)}


def test_a_change_is_durable_and_kept_by_the_application() -> None:
    async def main() -> None:
        durable = Durable()
        stored = await ground.submitted(ground.services(durable))
        await stored.update(1, lambda body: replace(body, status=ApplicationStatus.RUNNING))
        await stored.update(1, lambda body: replace(body, executions=body.executions + 1))
        found, _ = await ground.taken_over(ground.services(durable), 2)

        assert (ApplicationStatus.RUNNING, 1) == (stored.body.status, stored.body.executions)
        assert stored.body == found.body

    run_virtual(main())


@pytest.mark.parametrize("damage", ["altered", "deleted"])
def test_one_damaged_application_is_named_and_the_others_are_recovered(damage: str) -> None:
    async def main() -> None:
        durable = Durable()
        stores = ground.services(durable)
        broken = await ground.submitted(stores)
        other = ground.record(RunId("run-2"), ApplicationId("b" * 32))
        sound = await stores.applications.put(1, other, stores.applications.new_directory())
        entry = await durable.register.load(broken.key)
        assert entry is not None
        value = b"garbage" if damage == "altered" else None
        await durable.register.swap(broken.key, value, entry.version)
        stores = ground.services(durable)
        registry = await stores.registry.claim(2, ephemeral=False)
        recovered = await stores.applications.recover(2, registry)

        assert [sound.key] == [stored.key for stored in recovered.sound]
        assert [ground.APPLICATION] == list(recovered.damaged)
        assert broken.key in recovered.damaged[ground.APPLICATION]

    run_virtual(main())


@pytest.mark.parametrize(
    ("data", "error"),
    [(None, NotFoundError), (b"", CorruptDataError), (b"garbage", CorruptDataError)],
)
def test_a_record_that_is_gone_or_damaged_is_named(
    data: bytes | None, error: type[DataError]
) -> None:
    async def main() -> None:
        durable = Durable()
        stores = ground.services(durable)
        stored = await ground.submitted(stores)
        path = stored.body.record.path
        durable.storage.delete(path)
        if data is not None:
            durable.storage.publish(path, data)
        with pytest.raises(error, match=r"application\.json"):
            await stores.applications.record(stored.body)

    run_virtual(main())


def test_the_record_of_another_application_is_foreign() -> None:
    async def main() -> None:
        stores = ground.services(Durable())
        stored = await ground.submitted(stores)
        body = replace(stored.body, application_id=ApplicationId("b" * 32))
        with pytest.raises(ForeignDataError, match="belongs to application a"):
            await stores.applications.record(body)

    run_virtual(main())


def test_removing_the_directory_takes_all_and_leaves_other_applications() -> None:
    async def main() -> None:
        durable = Durable()
        stores = ground.services(durable)
        one = await ground.submitted(stores)
        other = ground.record(RunId("run-2"), ApplicationId("b" * 32))
        two = await stores.applications.put(1, other, stores.applications.new_directory())
        await stores.applications.remove_directory(one.body)

        assert [two.body.record.path] == list(durable.storage.files)

        for _ in range(2):
            await stores.applications.remove_directory(two.body)

        assert [] == durable.storage.everything()

    run_virtual(main())
