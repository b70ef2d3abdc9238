"""The register in Kubernetes: what its objects are, and what becomes of them in others' hands."""

from __future__ import annotations

import asyncio
import contextlib
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.kubernetes.fake import FakeApi
from tests.support.kubernetes import APPLICATION, CLUSTER, NONCE, register_on, run
from understudy.config import options
from understudy.errors import Conflict, CorruptDataError
from understudy.ha.backends.kubernetes import objects
from understudy.ha.backends.kubernetes.names import data_key, object_name, register_key
from understudy.ha.backends.kubernetes.objects import ENTRIES, SeenObjects, Slot, Stored


def annotated(found: dict[str, Any]) -> dict[str, Any]:
    """Return the annotations of an object, to be changed."""
    annotations: dict[str, Any] = found["metadata"]["annotations"]
    return annotations


def test_a_value_is_text_that_people_read_beside_a_version(fake_api: FakeApi) -> None:
    async def main() -> None:
        await register_on(fake_api).swap("registry", b'{"format": "registry"}', None)

        found = fake_api.object("configmaps", CLUSTER)

        assert {"registry": '{"format": "registry"}'} == found["data"]
        assert ["registry"] == list(json.loads(found["metadata"]["annotations"][ENTRIES]))

    run(main())


def test_objects_have_flinks_labels_and_no_owner(fake_api: FakeApi) -> None:
    async def main() -> None:
        await register_on(fake_api).swap("registry", b"{}", None)

        metadata = fake_api.object("configmaps", CLUSTER)["metadata"]

        assert {
            "app": "flights",
            "type": "understudy",
            "configmap-type": "high-availability",
        } == metadata["labels"]
        assert "flights" == metadata["annotations"]["understudy/cluster-id"]
        assert "ownerReferences" not in metadata

    run(main())


@pytest.mark.parametrize(
    ("run_id", "where"), [("nightly-2026", "labels"), ("-not.a.label-", "annotations")]
)
def test_an_applications_map_names_its_run(fake_api: FakeApi, run_id: str, where: str) -> None:
    async def main() -> None:
        document = {"format": "application", "body": {"term": 1, "body": {"run_id": run_id}}}
        value = json.dumps(document).encode()
        await register_on(fake_api).swap(f"application-{NONCE}", value, None)

        metadata = fake_api.object("configmaps", APPLICATION)["metadata"]

        assert run_id == metadata[where]["understudy/run-id"]

    run(main())


def test_an_application_has_one_map_with_all_its_jobs(fake_api: FakeApi) -> None:
    async def main() -> None:
        register = register_on(fake_api)
        keys = [
            f"application-{NONCE}",
            f"jobs-{NONCE}-1",
            f"jobs-{NONCE}-2",
            f"checkpoints-{NONCE}-1",
        ]
        versions = {key: await register.swap(key, b"{}", None) for key in ["registry", *keys]}

        assert [APPLICATION, CLUSTER] == fake_api.names("configmaps")

        for key in keys:
            await register.swap(key, None, versions[key])

        assert [CLUSTER] == fake_api.names("configmaps")

        await register.swap("registry", None, versions["registry"])

        assert [] == fake_api.names("configmaps")

    run(main())


def test_a_write_of_another_entry_of_the_map_does_no_harm(fake_api: FakeApi) -> None:
    async def main() -> None:
        register, other = register_on(fake_api), register_on(fake_api)
        first = await register.swap("registry", b"1", None)
        await other.swap("artifacts", b"1", None)

        second = await register.swap("registry", b"2", first)
        await register.swap("registry", b"3", second)

        assert [b"3", b"1"] == [
            entry.value for key in ("registry", "artifacts") if (entry := await other.load(key))
        ]

    run(main())


def test_writers_of_one_process_do_not_disturb_each_other(fake_api: FakeApi) -> None:
    async def main() -> None:
        register = register_on(fake_api)
        await register.swap("registry", b"", None)
        before = fake_api.count("GET")

        await asyncio.gather(*(register.swap(f"key-{n}", b"{}", None) for n in range(20)))

        assert 21 == len(await register.keys(""))
        assert fake_api.count("GET") - before < 25

    run(main())


def test_a_leaders_write_takes_one_request(fake_api: FakeApi) -> None:
    async def main() -> None:
        register = register_on(fake_api)
        version = await register.swap("registry", b"0", None)
        before = len(fake_api.asked)

        for number in range(5):
            version = await register.swap("registry", b"%d" % number, version)

        assert ["PATCH"] * 5 == [one.method for one in fake_api.asked[before:]]

    run(main())


def test_a_person_who_edits_a_value_is_noticed_and_not_overwritten(fake_api: FakeApi) -> None:
    async def main() -> None:
        register = register_on(fake_api)
        version = await register.swap("registry", b"ours", None)
        fake_api.change("configmaps", CLUSTER, lambda one: one["data"].update(registry="theirs"))

        with pytest.raises(Conflict):
            await register.swap("registry", b"ours again", version)

        entry = await register.load("registry")
        assert entry is not None
        assert b"theirs" == entry.value
        assert f"ConfigMap {register.status()['namespace']}/{CLUSTER}" == entry.place

    run(main())


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda one: one["data"].pop("registry"), "value of registry is gone"),
        (lambda one: annotated(one).update({ENTRIES: "{"}), "understudy/entries is damaged"),
        (lambda one: annotated(one).update({ENTRIES: "[1]"}), "understudy/entries is damaged"),
        (lambda one: annotated(one).pop(ENTRIES), "understudy/entries is gone"),
    ],
)
def test_what_a_person_damaged_is_named_and_left(fake_api: FakeApi, damage: Any, said: str) -> None:
    async def main() -> None:
        register = register_on(fake_api)
        version = await register.swap("registry", b"ours", None)
        fake_api.change("configmaps", CLUSTER, damage)
        left = fake_api.object("configmaps", CLUSTER)

        for work in (register.load("registry"), register.swap("registry", b"x", version)):
            with pytest.raises(CorruptDataError, match=f"ConfigMap .*{CLUSTER}.*{said}"):
                await work

        assert left == fake_api.object("configmaps", CLUSTER)

    run(main())


def test_a_damaged_map_hides_no_key_of_another_and_keeps_its_parts(
    fake_api: FakeApi, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        register = register_on(fake_api)
        await register.swap("registry", b"x" * 600_000, None)
        await register.swap("artifacts", b"x" * 600_000, None)
        await register.swap(f"application-{NONCE}", b"{}", None)
        fake_api.change("configmaps", CLUSTER, lambda one: annotated(one).update({ENTRIES: "{"}))

        assert [f"application-{NONCE}"] == await register.keys("")
        assert f"ConfigMap flights/{CLUSTER}" in caplog.text
        assert 3 == len(fake_api.names("configmaps"))

    run(main())


def test_a_map_is_not_deleted_with_an_entry_that_somebody_has_just_made(fake_api: FakeApi) -> None:
    async def main() -> None:
        register = register_on(fake_api)
        version = await register.swap("registry", b"1", None)

        def write(api: FakeApi) -> None:
            def add(found: dict[str, Any]) -> None:
                found["data"]["artifacts"] = "2"
                entries = json.loads(annotated(found)[ENTRIES]) | {"artifacts": "v.1ad5be0d"}
                annotated(found)[ENTRIES] = json.dumps(entries)

            api.change("configmaps", CLUSTER, add)

        fake_api.fail(method="DELETE", before=write)
        await register.swap("registry", None, version)

        assert ["artifacts"] == await register.keys("")
        entry = await register.load("artifacts")
        assert entry is not None
        assert b"2" == entry.value

    run(main())


def test_a_map_that_a_person_deleted_is_absent(fake_api: FakeApi) -> None:
    async def main() -> None:
        register = register_on(fake_api)
        version = await register.swap("registry", b"ours", None)
        fake_api.remove("configmaps", CLUSTER)

        with pytest.raises(Conflict):
            await register.swap("registry", b"x", version)

        assert await register.load("registry") is None

    run(main())


def test_an_entry_that_a_person_added_is_no_key(fake_api: FakeApi) -> None:
    async def main() -> None:
        register = register_on(fake_api)
        await register.swap("registry", b"", None)
        fake_api.change(
            "configmaps", CLUSTER, lambda one: one["data"].update({"my_FFnotes": "mine"})
        )

        assert ["registry"] == await register.keys("")

    run(main())


def test_values_are_split_before_the_map_is_too_large(fake_api: FakeApi) -> None:
    async def main() -> None:
        register, other = register_on(fake_api), register_on(fake_api)
        large = b"x" * 600_000
        first = await register.swap("registry", large, None)
        version = await register.swap("artifacts", large, None)

        assert 2 == len(fake_api.names("configmaps"))
        assert large == getattr(await other.load("artifacts"), "value", None)
        assert ["artifacts", "registry"] == await other.keys("")

        version = await register.swap("artifacts", large + b"2", version)

        assert 2 == len(fake_api.names("configmaps"))
        assert large + b"2" == getattr(await other.load("artifacts"), "value", None)

        await register.swap("artifacts", b"small", version)

        assert [CLUSTER] == fake_api.names("configmaps")

        await register.swap("registry", None, first)
        assert ["artifacts"] == await other.keys("")

    run(main())


def test_a_part_whose_write_was_lost_is_removed_and_one_under_way_is_not(
    fake_api: FakeApi,
) -> None:
    async def main() -> None:
        register = register_on(fake_api)
        await register.swap("registry", b"x" * 600_000, None)
        fake_api.fail(method="PATCH", lose_request=True)
        with pytest.raises(OSError, match="cannot be asked"):
            await register.swap("artifacts", b"x" * 600_000, None)

        await register.keys("")
        assert 2 == len(fake_api.names("configmaps"))  # The write may still arrive.

        await register.swap("small", b"", None)
        await register.keys("")

        assert [CLUSTER] == fake_api.names("configmaps")

    run(main())


def test_a_part_that_a_person_deleted_is_named(fake_api: FakeApi) -> None:
    async def main() -> None:
        register = register_on(fake_api)
        await register.swap("registry", b"x" * 600_000, None)
        await register.swap("artifacts", b"x" * 600_000, None)
        (part,) = set(fake_api.names("configmaps")) - {CLUSTER}
        fake_api.remove("configmaps", part)

        with pytest.raises(CorruptDataError, match=f"artifacts: ConfigMap {part}, its value"):
            await register.load("artifacts")

    run(main())


def test_entries_of_a_large_map_are_claimed_without_reading_it_again(fake_api: FakeApi) -> None:
    async def main() -> None:
        leader, other = register_on(fake_api), register_on(fake_api)
        keys = [f"jobs-{NONCE}-{number}" for number in range(10)]
        for key in keys:
            await other.swap(key, b"x" * 10_000, None)
        before = len(fake_api.asked)
        for key in keys:
            entry = await leader.load(key)
            assert entry is not None
            await leader.swap(key, entry.value + b"!", entry.version)

        whole = [
            one
            for one in fake_api.asked[before:]
            if one.method == "GET" and "PartialObjectMetadata" not in one.headers["accept"]
        ]
        assert 1 == len(whole)

        entry = await other.load(keys[0])
        assert entry is not None
        assert b"x" * 10_000 + b"!" == entry.value

    run(main())


def test_keys_are_listed_without_values(fake_api: FakeApi) -> None:
    async def main() -> None:
        await register_on(fake_api).swap("registry", b"x" * 100_000, None)
        before = len(fake_api.asked)

        assert ["registry"] == await register_on(fake_api).keys("")

        lists = [one for one in fake_api.asked[before:] if one.path.endswith("configmaps")]
        assert all("PartialObjectMetadata" in one.headers["accept"] for one in lists)

    run(main())


def test_values_that_are_kept_are_bounded() -> None:
    seen = SeenObjects(100)
    for name in "abc":
        seen.put(Stored(name, "uid", "1", {"key": Slot("v", 40, b"x" * 40)}))

    kept = [stored.held for name in "abc" if (stored := seen.get(name))]

    assert [0, 40, 40] == kept


def test_a_lost_answer_is_unknown_and_settled_by_reading(fake_api: FakeApi) -> None:
    async def main() -> None:
        register = register_on(fake_api)
        version = await register.swap("registry", b"1", None)
        fake_api.fail(method="PATCH", lose_answer=True)
        with pytest.raises(OSError, match="cannot be asked"):
            await register.swap("registry", b"2", version)

        with pytest.raises(Conflict):
            await register.swap("registry", b"2", version)

        entry = await register.load("registry")
        assert entry is not None
        assert b"2" == entry.value

    run(main())


def test_the_clusters_of_a_namespace_are_listed(fake_api: FakeApi) -> None:
    async def main() -> None:
        for name in ("flights", "orders"):
            register = register_on(fake_api, name)
            await register.swap("registry", b"", None)
            await register.swap(f"application-{NONCE}", b"", None)

        assert ["flights", "orders"] == await register_on(fake_api, "default").clusters()

    run(main())


def test_two_clusters_of_a_namespace_do_not_see_each_other(fake_api: FakeApi) -> None:
    async def main() -> None:
        one, other = register_on(fake_api, "one"), register_on(fake_api, "other")
        await one.swap("registry", b"1", None)

        assert await other.load("registry") is None
        assert [] == await other.keys("")

    run(main())


def test_one_register_serves_several_event_loops_at_once(fake_api: FakeApi) -> None:
    register = register_on(fake_api)

    async def append(mine: str) -> None:
        for number in range(5):
            done = False
            while not done:
                entry = await register.load("registry")
                text = entry.value if entry else b""
                with contextlib.suppress(Conflict):
                    await register.swap(
                        "registry",
                        text + f"{mine}{number} ".encode(),
                        entry.version if entry else None,
                    )
                    done = True

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(run, append(mine)) for mine in "abc"]:
            done.result()

    async def check() -> None:
        entry = await register.load("registry")
        assert entry is not None
        assert sorted(entry.value.decode().split()) == [f"{m}{n}" for m in "abc" for n in range(5)]

    run(check())


def test_a_missing_namespace_is_said_at_once(fake_api: FakeApi) -> None:
    async def main() -> None:
        fake_api.fail(method="POST", status=404, reason="NotFound", times=2)

        with pytest.raises(OSError, match="404 to create configmaps in namespace flights"):
            await register_on(fake_api).swap("registry", b"", None)

        assert 1 == fake_api.count("POST")

    run(main())


@pytest.mark.parametrize(
    "key", ["registry", "a.b", "..", "with space", "a_b", "_5F", "Größe", "%2E"]
)
def test_keys_are_legal_and_reversible(key: str) -> None:
    assert key == register_key(data_key(key))
    assert set(data_key(key)) <= set("-_") | set(map(chr, range(48, 58))) | {
        *map(chr, range(65, 91)),
        *map(chr, range(97, 123)),
    }


@pytest.mark.parametrize(
    ("cluster", "name"),
    [
        ("flights", "flights"),
        ("run-1", "run-1"),
        ("Flights_2.0", "flights-2-0-ba46b9df"),
        ("x" * 46, f"{'x' * 32}-1e18a76d"),
    ],
)
def test_a_cluster_id_becomes_a_legal_name(cluster: str, name: str) -> None:
    made = object_name(cluster)

    assert options.is_legal(made)
    assert name.rpartition("-")[0] == made.rpartition("-")[0] if name != cluster else name == made


def test_a_merge_patch_of_nothing_is_the_object() -> None:
    assert {"data": {"a": "1"}} == objects.without_nulls(
        {"data": {"a": "1", "b": None}, "binaryData": {"b": None}}
    )
