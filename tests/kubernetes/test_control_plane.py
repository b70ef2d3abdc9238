"""The control plane itself: what tests of Understudy may rely on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.kubernetes.api import APPS, COORDINATION, CORE, Api, RefusedError, await_that, path
from tests.kubernetes.control_plane import ControlPlane, need
from tests.kubernetes.keys import User
from tests.kubernetes.rights import Rights, Rule

pytestmark = pytest.mark.kubernetes

LEASES = Rule("leases", ("get", "update"), "coordination.k8s.io")

DEPLOYMENT = {
    "metadata": {"name": "sleeper"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "sleeper"}},
        "template": {
            "metadata": {"labels": {"app": "sleeper"}},
            "spec": {"containers": [{"name": "main", "image": "none", "command": ["sleep", "60"]}]},
        },
    },
}


@pytest.fixture
def namespace(kubernetes: ControlPlane) -> Iterator[str]:
    with kubernetes.namespace() as name:
        yield name


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server for tests that stop it, started again before each."""
    need()
    with ControlPlane(tmp_path_factory.mktemp("own"), controllers=False) as plane:
        yield plane


@pytest.fixture
def plane(own: ControlPlane) -> ControlPlane:
    return own.start()


def write(api: Api, name: str, **data: str) -> None:
    api.create(path(CORE, "configmaps"), {"metadata": {"name": name}, "data": data})


def read(api: Api, name: str) -> dict[str, str]:
    found: dict[str, str] = api.get(path(CORE, "configmaps", name))["data"]
    return found


def test_kubectl_reads_what_was_written(kubernetes: ControlPlane, namespace: str) -> None:
    body = {"metadata": {"name": "mine"}, "data": {"key": "value"}}
    kubernetes.admin.create(path(CORE, "configmaps", namespace=namespace), body)

    shown = json.loads(kubernetes.kubectl("-n", namespace, "get", "configmap/mine", "-o", "json"))

    assert {"key": "value"} == shown["data"]


def test_controllers_make_the_pods_of_a_deployment_and_collect_them(
    kubernetes: ControlPlane, namespace: str
) -> None:
    admin = kubernetes.admin
    pods = path(CORE, "pods", namespace=namespace)
    deployments = path(APPS, "deployments", namespace=namespace)
    admin.create(deployments, DEPLOYMENT)

    def unschedulable() -> bool:
        reasons = [
            condition.get("reason")
            for pod in admin.get(pods)["items"]
            for condition in pod["status"].get("conditions", [])
        ]
        return ["Unschedulable"] * 2 == reasons

    await_that("the scheduler has found no node for both pods", unschedulable)
    admin.delete(f"{deployments}/sleeper")
    await_that("both pods are collected", lambda: not admin.get(pods)["items"])


def test_a_write_over_another_one_is_refused(kubernetes: ControlPlane, namespace: str) -> None:
    place = path(COORDINATION, "leases", namespace=namespace)
    created = kubernetes.admin.create(place, {"metadata": {"name": "leader"}})
    kubernetes.admin.replace(f"{place}/leader", {**created, "spec": {"holderIdentity": "one"}})

    with pytest.raises(RefusedError) as refused:
        kubernetes.admin.replace(f"{place}/leader", {**created, "spec": {"holderIdentity": "two"}})
    assert 409 == refused.value.code


def test_a_watch_tells_what_has_happened(kubernetes: ControlPlane, namespace: str) -> None:
    admin = kubernetes.admin
    place = path(CORE, "configmaps", namespace=namespace)
    version = admin.get(place)["metadata"]["resourceVersion"]
    admin.create(place, {"metadata": {"name": "first"}})

    event = next(admin.watch(place, resourceVersion=version))

    assert ("ADDED", "first") == (event["type"], event["object"]["metadata"]["name"])


def test_rights_come_and_go(kubernetes: ControlPlane, namespace: str) -> None:
    user = kubernetes.client(User("someone"))
    place = path(COORDINATION, "leases", "leader", namespace)
    rights = Rights(kubernetes, namespace, "someone")

    def code() -> int:
        return user.http.get(place).status_code

    codes = [code()]
    rights.grant([LEASES])
    codes.append(code())
    rights.revoke()
    codes.append(code())
    rights.grant([LEASES])
    codes.append(code())

    assert [403, 404, 403, 404] == codes


def test_a_service_account_is_known_by_its_token(kubernetes: ControlPlane, namespace: str) -> None:
    name = kubernetes.service_account("understudy", namespace)
    Rights(kubernetes, namespace, name).grant([Rule("configmaps", ("list",))])

    api = kubernetes.client_with_token(kubernetes.token("understudy", namespace))

    assert "ConfigMapList" == api.get(path(CORE, "configmaps", namespace=namespace))["kind"]
    with pytest.raises(RefusedError, match=f'"{name}" cannot list'):
        api.get(path(CORE, "secrets", namespace=namespace))


def test_restricted_pod_security_is_enforced(kubernetes: ControlPlane) -> None:
    container = {"name": "main", "image": "none"}
    pod = {"metadata": {"name": "any"}, "spec": {"containers": [container]}}
    with kubernetes.namespace({"pod-security.kubernetes.io/enforce": "restricted"}) as namespace:
        pods = path(CORE, "pods", namespace=namespace)
        with pytest.raises(RefusedError, match="violates PodSecurity"):
            kubernetes.admin.create(pods, pod)


def test_each_request_is_counted(kubernetes: ControlPlane, namespace: str) -> None:
    api = kubernetes.client(User("counted", "system:masters"))
    place = path(CORE, "configmaps", namespace=namespace)
    kubernetes.audit.begin()

    api.create(place, {"metadata": {"name": "one"}})
    for _ in range(3):
        api.patch(f"{place}/one", {"data": {"key": "value"}})
    api.find(f"{place}/none")
    next(api.watch(place))

    expected = {
        "create configmaps one": 1,
        "patch configmaps one": 3,
        "get configmaps none": 1,
        "watch configmaps": 1,
    }
    assert expected == kubernetes.audit.counted("counted", namespace)
    assert 4 == sum(one.is_write for one in kubernetes.audit.requests("counted"))


@pytest.mark.long
def test_an_api_server_that_is_killed_comes_back_with_its_data_on_its_port(
    plane: ControlPlane,
) -> None:
    write(plane.admin, "killed", key="value")
    plane.api_server.kill()
    with pytest.raises(httpx.ConnectError):
        read(plane.admin, "killed")
    plane.start()

    assert {"key": "value"} == read(plane.admin, "killed")


def test_a_restarted_api_server_refuses_to_watch_from_before(plane: ControlPlane) -> None:
    place = path(CORE, "configmaps")
    version = plane.admin.get(place)["metadata"]["resourceVersion"]
    write(plane.admin, "since", key="value")
    plane.api_server.kill()
    plane.start()

    event = next(plane.admin.watch(place, resourceVersion=version))

    assert ("ERROR", 410) == (event["type"], event["object"].get("code"))


def test_a_frozen_api_server_is_silent_until_it_is_thawed(plane: ControlPlane) -> None:
    write(plane.admin, "frozen", key="value")
    plane.api_server.freeze()
    with pytest.raises(httpx.ReadTimeout):
        plane.admin.http.get(path(CORE, "configmaps", "frozen"), timeout=0.5)
    plane.api_server.thaw()

    assert {"key": "value"} == read(plane.admin, "frozen")


@pytest.mark.long
def test_without_etcd_nothing_can_be_written_until_it_is_back(plane: ControlPlane) -> None:
    write(plane.admin, "before", key="value")
    plane.etcd.kill()

    await_that("the API server is not ready", lambda: not plane.is_ready())
    with pytest.raises(httpx.ReadTimeout):
        plane.admin.http.post(
            path(CORE, "configmaps"), json={"metadata": {"name": "during"}}, timeout=1.0
        )
    plane.start()
    await_that("the API server has etcd back", plane.is_ready)
    assert {"key": "value"} == read(plane.admin, "before")


def test_a_component_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    need()
    plane = ControlPlane(tmp_path, controllers=False, further={"etcd": ["--no-such-flag"]})

    with pytest.raises(AssertionError, match=r"etcd has ended:\n.*[Uu]sage"):
        plane.start()
    plane.kill()
