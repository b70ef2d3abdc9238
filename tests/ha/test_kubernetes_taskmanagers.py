"""Pods of TaskManagers: asked for, followed and removed, before a server with exact faults."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.kubernetes.fake import FakeApi
from tests.support.kubernetes import access_to, run, until
from understudy.config import Configuration
from understudy.core.workers import SeenWorker, WorkerId, WorkersListed, WorkerState, WorkersUnseen
from understudy.kubernetes.client import ApiRequest, Client, RequestLimits, Traffic
from understudy.kubernetes.kinds import DEPLOYMENT, POD, Resource
from understudy.kubernetes.pod_states import WORKER
from understudy.kubernetes.taskmanagers import Origin, TaskManagerPods, manifest
from understudy.kubernetes.templates import MAIN_CONTAINER

Json = dict[str, Any]
ONE, TWO = WorkerId("7-1"), WorkerId("7-2")
NAME = "flights-taskmanager-7-1"
SETTINGS = {"kubernetes.container.image.ref": "example/flights:1"}
COMING, RUNNING, ENDING, DEAD = WorkerState
ENDED = {"name": MAIN_CONTAINER, "state": {"terminated": {"exitCode": 3}}}


class Followed:
    """What a leader was told of its workers."""

    def __init__(self) -> None:
        self.told: list[WorkersListed | WorkersUnseen] = []

    @property
    def seen(self) -> dict[WorkerId, SeenWorker] | None:
        """Return the workers that there are; None while that is not known."""
        lists = [one for one in self.told if isinstance(one, WorkersListed)]
        return {one.worker: one for one in lists[-1].seen} if lists else None

    def states(self) -> dict[str, WorkerState] | None:
        return None if self.seen is None else {key: one.state for key, one in self.seen.items()}

    def problems(self) -> list[str]:
        return [one.problem for one in self.told if isinstance(one, WorkersUnseen)]


async def create(client: Client, kind: Resource, name: str, **fields: Any) -> Json:
    body = {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {"name": name, "labels": fields.pop("labels", {})},
        **fields,
    }
    return await client.send(ApiRequest("create", kind, body=body)) or {}


@contextlib.asynccontextmanager
async def leader(
    api: FakeApi, *, deployed: bool = True, settings: dict[str, str] = SETTINGS
) -> AsyncIterator[tuple[TaskManagerPods, Followed, Client]]:
    """Have the leader's pod, with its configuration, follow the pods of its TaskManagers."""
    client = Client(access_to(api), RequestLimits(), Traffic())
    volumes = [
        {"name": "config", "configMap": {"name": "flights-config"}},
        {"name": "secret", "secret": {"secretName": "flights-secret"}},
    ]
    await create(client, POD, "flights-0", spec={"volumes": volumes})
    if deployed:
        await create(client, DEPLOYMENT, "flights")
    pods = TaskManagerPods(client, Configuration(settings), "flights", "flights-0")
    followed = Followed()
    following = asyncio.ensure_future(pods.follow(followed.told.append))
    await until(lambda: followed.seen is not None)
    try:
        yield pods, followed, client
    finally:
        following.cancel()


def test_a_pod_is_made_from_the_configuration_and_belongs_to_the_deployment(
    fake_api: FakeApi,
) -> None:
    async def main() -> None:
        async with leader(fake_api) as (pods, followed, _):
            await pods.create(ONE)

            found = fake_api.object("pods", NAME)
            (owner,) = found["metadata"]["ownerReferences"]
            (container,) = found["spec"]["containers"]
            names = {one["name"]: one for one in container["env"]}
            volumes = {one["name"] for one in found["spec"]["volumes"]}
            assert ("Deployment", "flights") == (owner["kind"], owner["name"])
            assert fake_api.object("deployments", "flights")["metadata"]["uid"] == owner["uid"]
            assert "Never" == found["spec"]["restartPolicy"]
            assert "example/flights:1" == names["UNDERSTUDY_IMAGE"]["value"]
            assert "UNDERSTUDY_POD_UID" in names
            assert {"config", "secret"} <= volumes
            incarnation = found["metadata"]["uid"].replace("-", "")
            assert followed.seen == {ONE: SeenWorker(ONE, incarnation, COMING)}

    run(main())


def _going(api: FakeApi, plural: str, name: str) -> None:
    api.change(plural, name, lambda one: one["metadata"].update(deletionTimestamp="now"))


@pytest.mark.parametrize(
    ("delete", "said"),
    [
        (lambda api: _going(api, "deployments", "flights"), "Deployment flights is deleted"),
        (lambda api: api.remove("deployments", "flights"), "Deployment flights is deleted"),
        (lambda api: _going(api, "pods", "flights-0"), "pod flights-0 is deleted"),
    ],
    ids=["going", "gone", "the leader's own pod"],
)
def test_no_pod_is_asked_for_once_the_deployment_is_deleted(
    delete: Callable[[FakeApi], None], said: str, fake_api: FakeApi
) -> None:
    async def main() -> None:
        async with leader(fake_api) as (pods, _, _):
            await pods.create(ONE)
            delete(fake_api)

            with pytest.raises(OSError, match=said):
                await pods.create(TWO)

            assert ["flights-0", NAME] == fake_api.names("pods")

    run(main())


def test_a_new_leader_asks_for_no_pod_if_the_deployment_of_a_target_in_pods_has_gone(
    fake_api: FakeApi,
) -> None:
    settings = {**SETTINGS, "execution.target": "kubernetes-session"}

    async def main() -> None:
        async with leader(fake_api, deployed=False, settings=settings) as (pods, _, _):
            with pytest.raises(OSError, match="Deployment flights is deleted"):
                await pods.create(ONE)

    run(main())


@pytest.mark.parametrize("secret", [True, False])
def test_a_pod_whose_metrics_are_scraped_serves_them_at_its_address_and_says_when_it_is_ready(
    *, secret: bool
) -> None:
    settings = {**SETTINGS, "metrics.reporters": "prom"}
    if secret:
        settings["security.secret-file"] = "/opt/understudy/secret/secret"
    origin = Origin(None, "flights-config", "flights-secret")
    (container,) = manifest(Configuration(settings), "flights", ONE, origin)["spec"]["containers"]

    bound = "taskmanager.bind-host=$(POD_IP)" in container["args"]
    assert (secret, secret) == (bound, "readinessProbe" in container)
    if secret:
        assert [{"name": "metrics", "containerPort": 9249}] == container["ports"]
        asked = {"path": "/readyz", "port": "metrics", "scheme": "HTTP"}
        assert asked == container["readinessProbe"]["httpGet"]
    assert "livenessProbe" not in container


def test_without_a_deployment_a_pod_belongs_to_what_the_leaders_belongs_to(
    fake_api: FakeApi,
) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "flights", "uid": "1"}

    async def main() -> None:
        async with leader(fake_api, deployed=False) as (pods, _, _):
            fake_api.change(
                "pods", "flights-0", lambda one: one["metadata"].update(ownerReferences=[owner])
            )
            await pods.create(ONE)

            assert [owner] == fake_api.object("pods", NAME)["metadata"]["ownerReferences"]

    run(main())


@pytest.mark.parametrize("fault", [{"lose_answer": True}, {}], ids=["lost answer", "asked twice"])
def test_a_pod_that_is_there_already_is_taken(fake_api: FakeApi, fault: dict[str, Any]) -> None:
    async def main() -> None:
        async with leader(fake_api) as (pods, followed, _):
            if fault:
                fake_api.fail(method="POST", path="pods", **fault)
            else:
                await pods.create(ONE)
            await pods.create(ONE)

            assert {ONE: COMING} == followed.states()
            assert sorted([NAME, "flights-0"]) == sorted(fake_api.names("pods"))

    run(main())


def test_a_pod_of_another_program_is_named_and_left(fake_api: FakeApi) -> None:
    async def main() -> None:
        async with leader(fake_api) as (pods, followed, client):
            await create(client, POD, NAME)
            with pytest.raises(OSError, match=f"pod {NAME} is of another program: remove it"):
                await pods.create(ONE)

            assert {} == followed.states()

    run(main())


def test_a_refusal_is_told_with_the_servers_words(fake_api: FakeApi) -> None:
    async def main() -> None:
        async with leader(fake_api) as (pods, followed, _):
            fake_api.fail(method="POST", path="pods", status=403, reason="Forbidden")
            with pytest.raises(PermissionError, match="403 to create pods"):
                await pods.create(ONE)

            assert {} == followed.states()

    run(main())


def test_each_change_is_told_of_and_an_end_before_its_object_is_gone(fake_api: FakeApi) -> None:
    async def main() -> None:
        async with leader(fake_api) as (pods, followed, client):
            await pods.create(ONE)
            running = {"name": MAIN_CONTAINER, "state": {"running": {}}}
            fake_api.change("pods", NAME, lambda one: one.update(_status(running)))
            await until(lambda: followed.states() == {ONE: RUNNING})
            fake_api.change("pods", NAME, lambda one: one.update(_status(ENDED)))
            await until(lambda: followed.states() == {ONE: DEAD})
            await pods.remove(ONE)
            await until(lambda: followed.states() == {})
            await pods.remove(ONE)  # Nothing is left to be removed.

            await create(client, POD, "other", labels={"app": "flights"})
            await pods.create(TWO)
            fake_api.remove("pods", "flights-taskmanager-7-2")
            await until(lambda: followed.states() == {})
            lists = [one.seen for one in followed.told if isinstance(one, WorkersListed)]
            assert DEAD == lists[-2][0].state, "never bound to a node"

    run(main())


def test_a_leader_finds_the_pods_of_earlier_ones_and_what_a_watch_has_missed(
    fake_api: FakeApi,
) -> None:
    async def main() -> None:
        async with leader(fake_api) as (pods, followed, client):
            labels = {"app": "flights", "type": "understudy", "component": "taskmanager"}
            old = "flights-taskmanager-3-1"
            await create(client, POD, old, labels={**labels, WORKER: "3-1"})
            await until(lambda: followed.states() == {"3-1": COMING})

            fake_api.end_watches()
            fake_api.compact()
            fake_api.change("pods", old, lambda one: one.update(_status(ENDED)))
            await until(lambda: followed.states() == {"3-1": DEAD})
            fake_api.end_watches()
            await pods.create(ONE)
            await until(lambda: followed.states() == {"3-1": DEAD, ONE: COMING})

    run(main())


def test_a_pod_that_goes_while_no_server_is_seen_is_no_longer_told(fake_api: FakeApi) -> None:
    async def main() -> None:
        async with leader(fake_api) as (pods, followed, _):
            await pods.create(ONE)
            # As if the answer had come before the watch's event, which chance decides.
            pods._created[NAME] = asyncio.get_running_loop().time()
            fake_api.stop()
            await until(lambda: bool(followed.problems()))
            fake_api.remove("pods", NAME)
            fake_api.compact()  # No watch can tell of the removal: only a list can.
            fake_api.start()

            await until(lambda: followed.states() == {})

    run(main())


def test_pods_are_listed_again_where_the_last_version_is_too_old(fake_api: FakeApi) -> None:
    async def main() -> None:
        fake_api.watches_end_after = 1
        async with leader(fake_api) as (pods, followed, _):
            await pods.create(ONE)  # The answer is known, the watch ends with its event.
            fake_api.remove("pods", NAME)
            await pods.create(TWO)
            fake_api.compact()
            fake_api.watches_end_after = None

            await until(lambda: followed.states() == {TWO: COMING})
            fake_api.change(
                "pods", "flights-taskmanager-7-2", lambda one: one.update(_status(ENDED))
            )
            await until(lambda: followed.states() == {TWO: DEAD})
            assert [] == followed.problems(), "a version that is too old is no failure"

    run(main())


def test_that_pods_may_not_be_seen_is_told(fake_api: FakeApi) -> None:
    async def main() -> None:
        async with leader(fake_api) as (_, followed, _):
            fake_api.fail(method="GET", path="pods", status=403, reason="Forbidden", times=3)
            fake_api.end_watches()
            said = "the pods of TaskManagers are not seen: the API server answers 403"
            await until(lambda: any(said in one for one in followed.problems()))
            await until(lambda: isinstance(followed.told[-1], WorkersListed))

    run(main())


def _status(container: Json) -> Json:
    return {"status": {"phase": "Running", "containerStatuses": [container]}}
