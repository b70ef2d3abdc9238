"""What the backend relies on, asked of a real API server and of the fake: both say the same."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes import fake_api, kubeconfig_for, run
from understudy.kubernetes import client as clients
from understudy.kubernetes.access import find_access
from understudy.kubernetes.client import ApiRequest, Client, RequestLimits, Traffic
from understudy.kubernetes.kinds import (
    ACCESS_REVIEW,
    CONFIG_MAP,
    EVENT,
    LEASE,
    Resource,
)
from understudy.kubernetes.refusals import (
    ApiRefusal,
    Contested,
    Forbidden,
    Invalid,
    NotThere,
)

__all__ = ["fake_api"]

Json = dict[str, Any]
LIMITS = RequestLimits(common_s=20.0, renewal_s=20.0)


@dataclass
class Server:
    """A server, and what one test may call its objects."""

    open: Callable[[], Client]
    name: str

    @property
    def selector(self) -> dict[str, str]:
        return {"labelSelector": f"test={self.name}"}

    def manifest(self, kind: Resource, suffix: str = "", **fields: Any) -> Json:
        metadata = {"name": f"{self.name}{suffix}", "labels": {"test": self.name}}
        return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **fields}

    def map(self, suffix: str = "", **data: str) -> Json:
        return self.manifest(CONFIG_MAP, suffix, data=data)


@pytest.fixture(params=["fake-kubernetes", "kubernetes"])
def server(request: pytest.FixtureRequest) -> Server:
    """Each server in turn."""
    access = find_access(str(kubeconfig_for(request, request.param)), None, "default")
    return Server(lambda: Client(access, LIMITS, Traffic()), f"test-{uuid.uuid4().hex[:12]}")


async def refused(work: Awaitable[object]) -> ApiRefusal:
    """Return how the server refuses a request."""
    with pytest.raises(ApiRefusal) as caught:
        await work
    return caught.value


def creating(body: Json, kind: Resource = CONFIG_MAP, **query: str) -> ApiRequest:
    return ApiRequest("create", kind, query=query, body=body)


async def created(client: Client, body: Json, kind: Resource = CONFIG_MAP) -> Json:
    answer = await client.send(creating(body, kind))
    assert answer is not None
    return answer


def patch(found: Json, kind: Resource = CONFIG_MAP, **change: Any) -> ApiRequest:
    """Return a merge patch over the version that was found."""
    metadata = found["metadata"]
    fence = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    fence |= change.pop("metadata", {})
    return ApiRequest("patch", kind, metadata["name"], body={"metadata": fence, **change})


def test_a_patch_over_the_version_that_is_there_is_done_and_over_another_is_not(
    server: Server,
) -> None:
    async def main() -> None:
        client = server.open()
        first = await created(client, server.map(a="1", b="1"))
        second = await client.send(patch(first, data={"a": "2", "b": None}))
        assert second is not None

        said = await refused(client.send(patch(first, data={"a": "3"})))

        assert (Contested, "Conflict") == (type(said), said.reason)
        found = await client.get(CONFIG_MAP, server.name)
        assert found is not None
        assert {"a": "2"} == found["data"]
        assert (
            first["metadata"]["resourceVersion"]
            != second["metadata"]["resourceVersion"]
            == found["metadata"]["resourceVersion"]
        )

    run(main())


def test_a_patch_over_an_object_of_an_earlier_life_is_refused(server: Server) -> None:
    async def main() -> None:
        client = server.open()
        first = await created(client, server.map())
        await client.send(ApiRequest("delete", CONFIG_MAP, server.name))
        await created(client, server.map())

        assert isinstance(await refused(client.send(patch(first, data={"a": "1"}))), Contested)

    run(main())


def test_an_object_is_created_once(server: Server) -> None:
    async def main() -> None:
        client = server.open()
        await created(client, server.map())

        said = await refused(client.send(creating(server.map())))

        assert (Contested, "AlreadyExists") == (type(said), said.reason)

    run(main())


def test_an_absent_object_is_neither_patched_nor_deleted(server: Server) -> None:
    async def main() -> None:
        client = server.open()
        nothing = {"metadata": {"name": server.name, "uid": "x", "resourceVersion": "1"}}

        absent = await refused(client.send(ApiRequest("delete", CONFIG_MAP, server.name)))
        patched = await refused(client.send(patch(nothing, data={})))

        assert [NotThere, NotThere] == [type(absent), type(patched)]
        assert await client.get(CONFIG_MAP, server.name) is None

    run(main())


def test_a_deletion_compares_too(server: Server) -> None:
    async def main() -> None:
        client = server.open()
        first = await created(client, server.map())
        await client.send(patch(first, data={"a": "1"}))
        fence = {key: first["metadata"][key] for key in ("uid", "resourceVersion")}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": fence}

        said = await refused(client.send(ApiRequest("delete", CONFIG_MAP, server.name, body=body)))

        assert isinstance(said, Contested)
        assert await client.get(CONFIG_MAP, server.name) is not None

    run(main())


def test_metadata_alone_is_answered_where_that_is_enough(server: Server) -> None:
    async def main() -> None:
        client = server.open()
        body = server.map(a="1")

        answer = await client.send(ApiRequest("create", CONFIG_MAP, body=body, metadata_only=True))
        found = await client.send(ApiRequest("get", CONFIG_MAP, server.name, metadata_only=True))
        listed, _ = await client.list(CONFIG_MAP, server.selector, metadata_only=True)

        assert answer is not None
        assert found is not None
        assert "PartialObjectMetadata" == found["kind"]
        for one in (answer, found, *listed):
            assert "data" not in one
            assert server.name == one["metadata"]["name"]
            assert one["metadata"]["resourceVersion"]

    run(main())


def test_a_dry_run_leaves_nothing(server: Server) -> None:
    async def main() -> None:
        client = server.open()

        await client.send(creating(server.map(), dryRun="All"))

        assert await client.get(CONFIG_MAP, server.name) is None

    run(main())


@pytest.mark.parametrize(
    "fields",
    [
        {"data": {"a": "x" * (1 << 20), "b": "x"}},
        {"data": {"with space": ""}},
        {"data": {"..": ""}},
        {"data": {"k" * 254: ""}},
        {"metadata": {"name": "Upper"}},
        {"metadata": {"name": "ok", "labels": {"a": "x" * 64}}},
        {"metadata": {"name": "ok", "labels": {"a": "-x"}}},
        {"metadata": {"name": "ok", "annotations": {"a": "x" * (1 << 18)}}},
    ],
    ids=["size", "key", "dots", "long key", "name", "long label", "label", "annotations"],
)
def test_what_is_not_legal_is_invalid(server: Server, fields: Json) -> None:
    async def main() -> None:
        body = {**server.map(), **fields}

        assert isinstance(await refused(server.open().send(creating(body))), Invalid)

    run(main())


def test_values_fill_a_map_to_a_mebibyte(server: Server) -> None:
    async def main() -> None:
        await created(server.open(), server.map(a="x" * ((1 << 20) - 1), b="x"))

    run(main())


def test_a_lease_has_a_positive_duration_and_may_have_no_holder(server: Server) -> None:
    async def main() -> None:
        client = server.open()
        spec = {"holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 0}
        lease = await created(client, server.manifest(LEASE, spec=spec), LEASE)
        vacant = {"holderIdentity": "", "leaseDurationSeconds": 1}
        answer = await client.send(patch(lease, LEASE, spec=vacant))
        assert answer is not None

        said = await refused(client.send(patch(answer, LEASE, spec={"leaseDurationSeconds": 0})))

        assert isinstance(said, Invalid)
        assert "" == answer["spec"].get("holderIdentity", "")

    run(main())


def test_an_immutable_map_stays(server: Server) -> None:
    async def main() -> None:
        client = server.open()
        found = await created(client, {**server.map(a="1"), "immutable": True})

        assert isinstance(await refused(client.send(patch(found, data={"a": "2"}))), Invalid)

    run(main())


def test_a_patch_that_changes_nothing_makes_no_version(server: Server) -> None:
    async def main() -> None:
        client = server.open()
        found = await created(client, server.map(a="1"))

        answer = await client.send(patch(found, data={"a": "1"}))

        assert answer is not None
        assert found["metadata"]["resourceVersion"] == answer["metadata"]["resourceVersion"]

    run(main())


def test_a_list_is_read_in_pages(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        client = server.open()
        monkeypatch.setattr(clients, "PAGE_OBJECTS", 2)
        for number in range(5):
            await created(client, server.map(f"-{number}", n=str(number)))
        before = client.counts.requests

        found, version = await client.list(CONFIG_MAP, server.selector)

        assert list("01234") == [one["data"]["n"] for one in found]
        assert version
        assert 3 == client.counts.requests - before

    run(main())


def test_a_watch_tells_what_comes_after_the_list(server: Server) -> None:
    async def main() -> None:
        client = server.open()
        first = await created(client, server.map(a="1"))
        _, version = await client.list(CONFIG_MAP, server.selector)
        await client.send(patch(first, data={"a": "2"}))
        await client.send(ApiRequest("delete", CONFIG_MAP, server.name))
        await created(client, server.map(a="3"))
        seen = []
        async for kind, found in client.watch(CONFIG_MAP, server.selector, version):
            if kind != "BOOKMARK":
                seen.append((kind, found["metadata"]["name"], "data" in found))
            if len(seen) == 3:
                break

        assert [(kind, server.name, False) for kind in ("MODIFIED", "DELETED", "ADDED")] == seen

    run(main())


def test_a_watch_by_name_tells_of_no_other_object(server: Server) -> None:
    async def main() -> None:
        client = server.open()
        query = {"fieldSelector": f"metadata.name={server.name}-2"}
        _, version = await client.list(CONFIG_MAP, query)
        for suffix in ("-1", "-2"):
            await created(client, server.map(suffix))

        async for kind, found in client.watch(CONFIG_MAP, query, version):
            if kind != "BOOKMARK":
                assert f"{server.name}-2" == found["metadata"]["name"]
                break

    run(main())


def test_a_review_says_what_we_may(server: Server) -> None:
    async def main() -> None:
        asked = {"namespace": "default", "verb": "patch", "group": "", "resource": "configmaps"}
        body = {
            "apiVersion": ACCESS_REVIEW.api_version,
            "kind": ACCESS_REVIEW.name,
            "spec": {"resourceAttributes": asked},
        }

        answer = await server.open().send(creating(body, ACCESS_REVIEW))

        assert answer is not None
        assert answer["status"]["allowed"] is True

    run(main())


def test_events_are_created(server: Server) -> None:
    async def main() -> None:
        client = server.open()
        involved = {"kind": "ConfigMap", "name": server.name, "namespace": "default"}
        body = server.manifest(
            EVENT, involvedObject=involved, reason="Led", message="m", type="Normal"
        )

        await created(client, body, EVENT)

        assert await client.get(EVENT, server.name) is not None

    run(main())


def test_who_may_not_is_forbidden_and_named(kubernetes: ControlPlane) -> None:
    async def main() -> None:
        with kubernetes.namespace() as namespace:
            kubernetes.service_account("poor", namespace)
            path = kubernetes.kubeconfig(kubernetes.token("poor", namespace))
            client = Client(find_access(str(path), None, namespace), LIMITS, Traffic())

            said = await refused(client.get(CONFIG_MAP, "x"))

        assert isinstance(said, Forbidden)
        assert 'resources: ["configmaps"], verbs: ["get"]' in str(said)

    run(main())
