"""A node: its registration, its heartbeats, and the pods that are bound to it."""

from __future__ import annotations

import asyncio
import datetime
import logging
from typing import Any

import httpx

from tests.kubernetes.kubelet.pod import Host, Pod
from tests.kubernetes.kubelet.server import LEASES, NODES, Unreachable
from tests.kubernetes.kubelet.status import now

Object = dict[str, Any]

HEARTBEAT_S = 2.0
"""A real kubelet renews its Lease every 10 s; here nodes are missed after 8 s (`flags`)."""

LEASE_S = 8
RETRY_S = 0.3
CAPACITY = {"cpu": "64", "memory": "256Gi", "pods": "250", "ephemeral-storage": "100Gi"}
PODS_MAX = 250

log = logging.getLogger(__name__)


class Node:
    """A node of the API server, which is there while `run` does."""

    def __init__(self, name: str, host: Host, log_port: int) -> None:
        self.name = name
        self.pods: dict[str, Pod] = {}
        self._host = host
        self._log_port = log_port
        self._tasks: dict[str, asyncio.Task[None]] = {}
        # 127.a.b.1 is the node's; its pods have 127.a.b.2 and so on.
        self._network = host.address.rpartition(".")[0]
        self._given: dict[str, int] = {}

    async def run(self) -> None:
        """Be a node until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beat())
            group.create_task(self._follow())

    def find(self, namespace: str, name: str) -> Pod | None:
        """Return a pod; of several with this name, the youngest."""
        found = [
            one for one in self.pods.values() if (one.namespace, one.name) == (namespace, name)
        ]
        return found[-1] if found else None

    async def _beat(self) -> None:
        while True:
            try:
                await self._be_ready()
                await self._renew_lease()
            except Unreachable as error:
                log.warning("no heartbeat: %s", error)
                await asyncio.sleep(RETRY_S)
            else:
                await asyncio.sleep(HEARTBEAT_S)

    async def _be_ready(self) -> None:
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {
            "capacity": CAPACITY,
            "allocatable": CAPACITY,
            "addresses": [{"type": "InternalIP", "address": self._host.address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._log_port}},
            "conditions": [{**ready, "lastHeartbeatTime": now()}],
        }
        try:
            await self._host.server.patch(f"{NODES}/{self.name}/status", {"status": status})
        except httpx.HTTPStatusError as error:
            if error.response.status_code != httpx.codes.NOT_FOUND:
                raise
            labels = {"kubernetes.io/hostname": self.name}
            metadata = {"name": self.name, "labels": labels}
            await self._host.server.create(NODES, {"metadata": metadata, "status": status})

    async def _renew_lease(self) -> None:
        renewed = datetime.datetime.now(datetime.UTC).isoformat().replace("+00:00", "Z")
        spec = {"holderIdentity": self.name, "leaseDurationSeconds": LEASE_S, "renewTime": renewed}
        try:
            await self._host.server.patch(f"{LEASES}/{self.name}", {"spec": spec})
        except httpx.HTTPStatusError as error:
            if error.response.status_code != httpx.codes.NOT_FOUND:
                raise
            await self._host.server.create(LEASES, {"metadata": {"name": self.name}, "spec": spec})

    async def _follow(self) -> None:
        """Follow the pods that are bound to this node; what the API server forgets is killed."""
        path, mine = "/api/v1/pods", {"fieldSelector": f"spec.nodeName={self.name}"}
        while True:
            try:
                listed = await self._host.server.get(path, mine)
                there = {pod["metadata"]["uid"]: pod for pod in listed["items"]}
                for pod in there.values():
                    self._see(pod)
                for uid in self.pods.keys() - there.keys():
                    self.pods[uid].delete(0.0)
                since = {"resourceVersion": listed["metadata"]["resourceVersion"]}
                async for event in self._host.server.watch(path, {**mine, **since}):
                    if event["type"] == "ERROR":
                        break
                    self._see(event["object"], gone=event["type"] == "DELETED")
            except Unreachable as error:
                log.warning("the API server is away, all pods go on: %s", error)
                await asyncio.sleep(RETRY_S)

    def _see(self, pod: Object, gone: bool = False) -> None:
        metadata = pod["metadata"]
        uid = metadata["uid"]
        if gone:
            if uid in self.pods:
                self.pods[uid].delete(0.0)
            return
        if uid not in self.pods:
            self.pods[uid] = Pod(pod, self._host, self._address(uid))
            self._tasks[uid] = asyncio.create_task(self.pods[uid].run(), name=metadata["name"])
            self._tasks[uid].add_done_callback(lambda task: self._forget(uid, task))
        if "deletionTimestamp" in metadata:
            self.pods[uid].delete(float(metadata.get("deletionGracePeriodSeconds", 0)))

    def _forget(self, uid: str, task: asyncio.Task[None]) -> None:
        del self.pods[uid], self._tasks[uid]
        self._given.pop(uid)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a pod of this node has failed", exc_info=error)

    def _address(self, uid: str) -> str:
        number = next(n for n in range(2, PODS_MAX + 3) if n not in self._given.values())
        self._given[uid] = number
        return f"{self._network}.{number}"
