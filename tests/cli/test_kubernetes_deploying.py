"""Deploying on a fake API server: repeated, interrupted, over what others have made."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.kubernetes.fake import NAMESPACE, FakeApi, kubeconfig
from tests.support.kubernetes import client_on, fake_api
from understudy.cli.launch import kubernetes_deploying
from understudy.cli.launch.kubernetes_deploying import Deployed, deploy, remove, run_to_continue
from understudy.cli.launch.kubernetes_leader import remove_deployment
from understudy.cli.launch.kubernetes_plan import blueprint, completed
from understudy.cli.launch.kubernetes_pods import accounts, settings_to_destroy
from understudy.config import Configuration, options
from understudy.config.option import Option
from understudy.errors import UnderstudyError, UsageError
from understudy.kubernetes.client import ApiRequest, Client
from understudy.kubernetes.kinds import CONFIG_MAP, DEPLOYMENT, POD
from understudy.kubernetes.manifests import Blueprint
from understudy.kubernetes.templates import MAIN_CONTAINER
from understudy.model import (
    ApplicationId,
    Incarnation,
    LeaderRecord,
    RegistryBody,
    RegistryLink,
    RunId,
)

__all__ = ["fake_api"]

T = TypeVar("T")


def planned(run_id: str | None = None, *args: str) -> Blueprint:
    settings = {
        "kubernetes.cluster-id": "flights",
        "kubernetes.container.image.ref": "example/flights:1",
        "high-availability.storageDir": "s3://bucket/understudy",
    }
    found = completed(Configuration(settings), options.KUBERNETES_APPLICATION)
    return replace(blueprint(found, NAMESPACE, ("local:///a.py", *args)), run_id=run_id)


def on(api: FakeApi, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    """Do something with a client of the fake."""

    async def done() -> T:
        async with asyncio.timeout(30):
            return await work(client_on(api))

    return asyncio.run(done())


def test_everything_belongs_to_the_deployment(fake_api: FakeApi) -> None:
    found = on(fake_api, lambda client: deploy(client, planned("monday")))

    assert Deployed("monday", is_new=True) == found
    uid = fake_api.object("deployments", "flights")["metadata"]["uid"]
    for plural, name in (
        ("configmaps", "flights-config"),
        ("secrets", "flights-secret"),
        ("services", "flights-rest"),
        ("services", "flights"),
    ):
        (owner,) = fake_api.object(plural, name)["metadata"]["ownerReferences"]
        assert uid == owner["uid"]


def test_the_same_command_finds_what_is_there_and_makes_what_is_missing(fake_api: FakeApi) -> None:
    first = on(fake_api, lambda client: deploy(client, planned()))
    secret = fake_api.object("secrets", "flights-secret")
    fake_api.remove("services", "flights-rest")

    again = on(fake_api, lambda client: deploy(client, planned()))

    assert first.run_id
    assert Deployed(first.run_id, is_new=False) == again
    assert secret == fake_api.object("secrets", "flights-secret")
    assert "flights-rest" in fake_api.names("services")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (planned("tuesday"), "is there for run monday, not for tuesday"),
        (planned("monday", "other"), "runs something else than this command says"),
    ],
)
def test_another_run_or_application_is_refused(
    asked: Blueprint, said: str, fake_api: FakeApi
) -> None:
    on(fake_api, lambda client: deploy(client, planned("monday")))

    with pytest.raises(UsageError, match=said):
        on(fake_api, lambda client: deploy(client, asked))


@pytest.mark.parametrize("plural", ["deployments", "configmaps"])
def test_what_another_program_has_made_is_named_and_left(plural: str, fake_api: FakeApi) -> None:
    name = {"deployments": "flights", "configmaps": "flights-config"}[plural]
    kind = {"deployments": DEPLOYMENT, "configmaps": CONFIG_MAP}[plural]
    theirs = ApiRequest("create", kind, body={"metadata": {"name": name}})
    on(fake_api, lambda client: client.send(theirs))

    with pytest.raises(UsageError, match=f"'{name}' in namespace .* is another program's"):
        on(fake_api, lambda client: deploy(client, planned()))

    assert not fake_api.object(plural, name)["metadata"].get("labels")


def settings_in(directory: Path, api: FakeApi, target: str) -> Configuration:
    """Return the configuration of a process in a pod, with a way to the fake."""
    path = directory / "kubeconfig"
    path.write_text(json.dumps(kubeconfig(api.url)))
    return Configuration(
        {
            options.EXECUTION_TARGET.key: target,
            options.K8S_CLUSTER_ID.key: "flights",
            options.K8S_CONFIG_FILE.key: str(path),
        }
    )


@pytest.mark.parametrize(
    ("target", "run_id", "expected"),
    [
        (options.KUBERNETES_APPLICATION, "monday", []),
        (options.KUBERNETES_APPLICATION, "sunday", ["flights"]),
        (options.KUBERNETES_SESSION, None, []),
        ("local", "monday", ["flights"]),
    ],
)
def test_a_cluster_that_has_ended_takes_its_deployment_with_it(
    target: str, run_id: str | None, expected: list[str], fake_api: FakeApi, tmp_path: Path
) -> None:
    on(fake_api, lambda client: deploy(client, planned("monday")))

    asyncio.run(remove_deployment(settings_in(tmp_path, fake_api, target), run_id))

    assert expected == fake_api.names("deployments")


def test_without_the_right_the_deployment_stays_and_the_log_says_so(
    fake_api: FakeApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    on(fake_api, lambda client: deploy(client, planned("monday")))
    fake_api.denied.add(("delete", "deployments"))
    configuration = settings_in(tmp_path, fake_api, options.KUBERNETES_APPLICATION)

    asyncio.run(remove_deployment(configuration, "monday"))

    assert ["flights"] == fake_api.names("deployments")
    assert "Deployment flights stays although the cluster has ended" in caplog.text
    assert 'resources: ["deployments"], verbs: ["delete"]' in caplog.text


@pytest.mark.parametrize(
    ("phase", "node", "expected"),
    [
        ("Running", "node-1", "is in use: 1 of its pods are there \\(flights-1\\)"),
        ("Pending", "", "is in use"),
        ("Failed", "node-1", ""),
    ],
)
def test_the_data_of_a_cluster_is_destroyed_only_without_its_pods(
    phase: str, node: str, expected: str, fake_api: FakeApi, tmp_path: Path
) -> None:
    body = {
        "metadata": {
            "name": "flights-1",
            "labels": {"app": "flights", "type": "understudy", "component": "jobmanager"},
        },
        "spec": {"nodeName": node},
        "status": {"phase": phase},
    }
    on(fake_api, lambda client: client.send(ApiRequest("create", POD, body=body)))
    found = settings_in(tmp_path, fake_api, options.KUBERNETES_SESSION)
    found = found.with_settings({options.STORAGE_DIR.key: "s3://bucket/understudy"})

    if expected:
        with pytest.raises(UnderstudyError, match=expected):
            settings_to_destroy(found)
        return
    settings = settings_to_destroy(found)
    assert ("kubernetes", "flights") == (
        settings["high-availability.type"],
        settings["high-availability.cluster-id"],
    )


@pytest.mark.parametrize(
    ("missing", "said"),
    [(options.K8S_CLUSTER_ID, "name the cluster"), (options.STORAGE_DIR, "is not set: name where")],
)
def test_the_cluster_and_its_storage_must_be_named_to_destroy_it(
    missing: Option[str], said: str, fake_api: FakeApi, tmp_path: Path
) -> None:
    found = settings_in(tmp_path, fake_api, options.KUBERNETES_SESSION)
    settings = {**found.settings, options.STORAGE_DIR.key: "s3://bucket/understudy"}
    del settings[missing.key]

    with pytest.raises(UsageError, match=said):
        settings_to_destroy(Configuration(settings))


def test_a_session_in_pods_is_shown_with_what_is_missing(fake_api: FakeApi, tmp_path: Path) -> None:
    on(fake_api, lambda client: deploy(client, planned()))
    fake_api.change("deployments", "flights", lambda one: one["spec"].update(replicas=2))
    main = {"name": MAIN_CONTAINER, "state": {"running": {}}}
    body = {
        "metadata": {
            "name": "flights-1",
            "labels": {"app": "flights", "type": "understudy", "component": "jobmanager"},
        },
        "status": {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [main]},
    }
    on(fake_api, lambda client: client.send(ApiRequest("create", POD, body=body)))
    record = LeaderRecord(
        holder=Incarnation("a" * 32), term=1, session="", rest="http://10.0.0.1:8081"
    )

    found = accounts(settings_in(tmp_path, fake_api, options.KUBERNETES_SESSION), record)

    assert [("flights-1", "runs", "a" * 32), ("", "missing", "")] == [
        (one.host, one.state, one.incarnation) for one in found
    ]


def test_only_the_deployment_of_this_run_is_removed(fake_api: FakeApi) -> None:
    on(fake_api, lambda client: deploy(client, planned("monday")))

    assert not on(fake_api, lambda client: remove(client, "flights", "sunday"))
    assert ["flights"] == fake_api.names("deployments")
    assert on(fake_api, lambda client: remove(client, "flights", "monday"))
    assert not fake_api.names("deployments")
    assert not on(fake_api, lambda client: remove(client, "flights", "monday"))


def test_another_programs_deployment_is_not_removed(fake_api: FakeApi) -> None:
    theirs = ApiRequest("create", DEPLOYMENT, body={"metadata": {"name": "flights"}})
    on(fake_api, lambda client: client.send(theirs))

    with pytest.raises(UsageError, match="is another program's, and is left alone"):
        on(fake_api, lambda client: remove(client, "flights"))

    assert ["flights"] == fake_api.names("deployments")


def test_the_next_deployment_of_that_name_is_not_removed(
    fake_api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(fake_api, lambda client: deploy(client, planned("monday")))
    get = Client.get

    async def replaced_after(client: Client, *args: Any, **more: Any) -> Any:
        found = await get(client, *args, **more)
        fake_api.remove("deployments", "flights")
        body = planned("tuesday").objects()[0][1]
        await client.send(ApiRequest("create", DEPLOYMENT, body=body))
        return found

    monkeypatch.setattr(Client, "get", replaced_after)

    assert not on(fake_api, lambda client: remove(client, "flights", "monday"))
    found = fake_api.object("deployments", "flights")
    assert "tuesday" == found["metadata"]["labels"]["understudy/run-id"]


class Collecting:
    """In each pause, the oldest object of an earlier Deployment goes, as Kubernetes does it."""

    def __init__(self, api: FakeApi) -> None:
        self._api = api
        self.left = ["deployments", "configmaps", "secrets", "services"]

    def pause_s(self, _: int) -> float:
        plural = self.left.pop(0)
        for name in self._api.names(plural):
            self._api.remove(plural, name)
        return 0.0


def test_what_goes_with_an_earlier_deployment_is_awaited_and_made_again(
    fake_api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(fake_api, lambda client: deploy(client, planned("monday")))
    goes = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    fake_api.change("deployments", "flights", lambda found: found["metadata"].update(goes))
    collecting = Collecting(fake_api)
    monkeypatch.setattr(kubernetes_deploying, "AGAIN", collecting)

    found = on(fake_api, lambda client: deploy(client, planned("tuesday")))

    assert (Deployed("tuesday", is_new=True), []) == (found, collecting.left)
    uid = fake_api.object("deployments", "flights")["metadata"]["uid"]
    (owner,) = fake_api.object("configmaps", "flights-config")["metadata"]["ownerReferences"]
    assert uid == owner["uid"]


def test_an_unfinished_run_comes_before_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    link = RegistryLink("document", RunId("monday"))
    registry = RegistryBody("flights", "1", applications={ApplicationId("a"): link})

    async def read(*_: Any) -> RegistryBody:
        return registry

    monkeypatch.setattr(kubernetes_deploying, "registry_of", read)

    assert "monday" == asyncio.run(run_to_continue(Configuration({}), "flights"))
