"""Objects of other programs and clusters in the place of ours: named, and left alone."""

from __future__ import annotations

import pytest

from tests.kubernetes.fake import FakeApi
from tests.support.kubernetes import CLUSTER, access_to, register_on, run
from understudy.errors import ForeignDataError
from understudy.ha.backends.kubernetes import options as k8s
from understudy.ha.backends.kubernetes.register import KubernetesRegister
from understudy.kubernetes.client import ApiRequest, RequestLimits
from understudy.kubernetes.kinds import CONFIG_MAP, LEASE

FOREIGN = {"app": "flights", "type": "flink-native-kubernetes"}


@pytest.mark.parametrize(
    ("plural", "name", "key"),
    [("configmaps", CLUSTER, "registry"), ("leases", "flights-leader", "leader")],
)
def test_an_object_of_another_program_is_named_and_left(
    fake_api: FakeApi, plural: str, name: str, key: str
) -> None:
    async def main() -> None:
        register = register_on(fake_api)
        client = register._here_now().client
        kind = CONFIG_MAP if plural == "configmaps" else LEASE
        foreign = {"metadata": {"name": name, "labels": FOREIGN}}
        await client.send(ApiRequest("create", kind, body=foreign))
        left = fake_api.object(plural, name)

        for work in (register.load(key), register.swap(key, b"x", None)):
            with pytest.raises(ForeignDataError, match=rf"{name} .*kubernetes\.cluster-id"):
                await work

        assert left == fake_api.object(plural, name)

    run(main())


def test_two_clusters_do_not_share_one_name(fake_api: FakeApi) -> None:
    async def main() -> None:
        other = KubernetesRegister(
            "orders",
            access_to(fake_api),
            name="flights",
            lock=k8s.LEASE,
            limits=RequestLimits(),
        )
        await register_on(fake_api).swap("registry", b"ours", None)
        left = fake_api.object("configmaps", CLUSTER)

        for work in (other.load("registry"), other.swap("registry", b"x", None), other.keys("")):
            with pytest.raises(ForeignDataError, match="cluster 'flights', not to 'orders'"):
                await work

        assert left == fake_api.object("configmaps", CLUSTER)

    run(main())


def test_a_map_whose_labels_a_person_removed_is_named(fake_api: FakeApi) -> None:
    async def main() -> None:
        register = register_on(fake_api)
        await register.swap("registry", b"ours", None)
        fake_api.change("configmaps", CLUSTER, lambda one: one["metadata"].pop("labels"))

        with pytest.raises(ForeignDataError, match=f"{CLUSTER}.*app=flights.*type=understudy"):
            await register.load("registry")

    run(main())
