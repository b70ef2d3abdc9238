"""The pods of TaskManagers that a leader asks for: who provides workers to its ResourceManager.

Names are made from the cluster and the worker, so that a repeated request finds its pod. One watch
tells of all; nothing is polled. Each pod belongs to the cluster's Deployment, if there is one, and
goes with it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from understudy.core.backoff import Backoff
from understudy.core.workers import Listed, Seen, Unseen, WorkerId
from understudy.kubernetes.client import ApiRequest, Client, Json
from understudy.kubernetes.kinds import DEPLOYMENT, POD
from understudy.kubernetes.pod_states import WORKER, seen_of
from understudy.kubernetes.pods import TASKMANAGER, selector
from understudy.kubernetes.refusals import Contested, Forbidden, NotThere, Outdated

WATCH = Backoff(0.1, 5.0)
"""Pauses before pods are listed again."""

EARLY_S = 5.0
"""A watch that ends sooner without an event is not trusted: the pods are listed again."""

Tell = Callable[[Listed | Unseen], None]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PodRequest:
    """What a pod's manifest is made from, beside the cluster's own configuration."""

    name: str
    labels: Mapping[str, str]
    owner: Json | None
    """The reference to the cluster's Deployment."""


class TaskManagerPods:
    """The pods that leaders of one cluster have asked for; see `jobmanager.workers`."""

    def __init__(self, client: Client, cluster: str, build: Callable[[PodRequest], Json]) -> None:
        """``cluster`` begins the names of its objects; ``build`` returns a pod's manifest."""
        self._client = client
        self._cluster = cluster
        self._build = build
        labels = ",".join(f"{key}={value}" for key, value in selector(cluster, TASKMANAGER).items())
        self._query = {"labelSelector": f"{labels},{WORKER}"}
        self._owner: Json | None = None
        self._pods: dict[str, Json] = {}
        self._created: set[str] = set()
        """Names of pods that were created since the last list was asked for."""
        self._tell: Tell = lambda _: None

    async def follow(self, tell: Tell) -> None:
        """See `WorkerProvider.follow`."""
        self._tell = tell
        loop = asyncio.get_running_loop()
        version, failures = "", 0
        while True:
            began, told = loop.time(), 0
            try:
                if not version:
                    version = await self._list()
                async for version in self._changes(version):
                    told += 1
                # Servers that close early, instead of saying that a version is too old.
                if not told and loop.time() - began < EARLY_S:
                    version, failures = "", failures + 1
            except Outdated:
                version, failures = "", failures + 1
            except OSError as error:
                version, failures = "", failures + 1
                _log.warning("pods are not watched: %s", error)
                tell(Unseen(f"the pods of TaskManagers are not seen: {error}"))
            if told:
                failures = min(failures, 1)
            await asyncio.sleep(WATCH.pause_s(failures))

    async def create(self, worker: WorkerId) -> None:
        """See `WorkerProvider.create`."""
        name = self._name(worker)
        owner = await self._owned_by()
        body = self._build(PodRequest(name, {WORKER: worker}, owner))
        try:
            pod = await self._client.send(ApiRequest("create", POD, body=body))
        except Forbidden:
            raise
        except OSError as error:
            # It exists already, or nobody knows: the answer may be lost.
            pod = await self._client.get(POD, name)
            if pod is None:
                raise
            if pod["metadata"].get("labels", {}).get(WORKER) != worker:
                message = f"pod {name} is of another program: remove it, or choose another "
                raise OSError(errno.EEXIST, f"{message}kubernetes.cluster-id") from error
        if pod is not None and name not in self._pods:
            self._pods[name] = pod
            self._created.add(name)
            self._tell_all()

    async def remove(self, worker: WorkerId) -> None:
        """See `WorkerProvider.remove`."""
        name = self._name(worker)
        try:
            await self._client.send(ApiRequest("delete", POD, name))
        except NotThere:
            if self._pods.pop(name, None):
                self._tell_all()

    def _name(self, worker: WorkerId) -> str:
        return f"{self._cluster}-taskmanager-{worker}"

    async def _owned_by(self) -> Json | None:
        """Return the reference to the cluster's Deployment; None where there is none to be seen."""
        if self._owner is None:
            try:
                found = await self._client.get(DEPLOYMENT, self._cluster)
            except Forbidden as error:
                _log.warning("pods of TaskManagers do not go with the Deployment: %s", error)
                return None
            if found:
                self._owner = {
                    "apiVersion": DEPLOYMENT.api_version,
                    "kind": DEPLOYMENT.name,
                    "name": self._cluster,
                    "uid": found["metadata"]["uid"],
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
        return self._owner

    async def _list(self) -> str:
        self._created.clear()
        found, version = await self._client.list(POD, self._query)
        listed = {pod["metadata"]["name"]: pod for pod in found}
        # A list may be older than an answer that came while it was read.
        kept = {name: pod for name, pod in self._pods.items() if name in self._created}
        self._pods = {**kept, **listed}
        self._tell_all()
        return version

    async def _changes(self, version: str):  # type: ignore[no-untyped-def]
        watched = self._client.watch(POD, self._query, version, metadata_only=False)
        async for kind, pod in watched:
            if kind != "BOOKMARK":
                self._note(pod, is_deleted=kind == "DELETED")
            yield str(pod["metadata"].get("resourceVersion") or version)

    def _note(self, pod: Json, *, is_deleted: bool) -> None:
        name = pod["metadata"]["name"]
        if not is_deleted:
            self._pods[name] = pod
            self._tell_all()
            return
        self._pods.pop(name, None)
        # Its last state may prove the death of its processes.
        self._tell_all(seen_of(pod, is_deleted=True))
        self._tell_all()

    def _tell_all(self, *more: Seen) -> None:
        self._tell(Listed((*map(seen_of, self._pods.values()), *more)))
