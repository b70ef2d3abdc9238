"""One pod of a node, from its binding to the removal of its object."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kubernetes.kubelet.container import Container, Place
from tests.kubernetes.kubelet.images import Image
from tests.kubernetes.kubelet.recipe import (
    ConfigurationError,
    Object,
    Recipe,
    Surroundings,
    recipe,
)
from tests.kubernetes.kubelet.server import CORE, Server, Unreachable
from tests.kubernetes.kubelet.status import Facts, is_ready, now, pod_status
from tests.kubernetes.kubelet.volumes import TOKEN_S, Volumes

RETRY_S = 0.3
"""Before what the API server did not take is sent again."""

REFRESH_S = 60.0
"""After so long, mounted ConfigMaps and Secrets have what was written to them, as elsewhere."""

TOKEN_RENEWED = 0.8
"""Part of its lifetime after which a token is replaced."""

DEFAULT_GRACE_S = 30


@dataclass(frozen=True)
class Host:
    """What a pod needs of its node."""

    server: Server
    address: str
    directory: Path
    images: Mapping[str, Image]
    variables: Mapping[str, str]
    """Where the pods are told that the API server is."""


class Pod:
    """A pod, whose containers run while `run` does."""

    def __init__(self, pod: Object, host: Host, address: str) -> None:
        metadata, spec = pod["metadata"], pod["spec"]
        self.uid = str(metadata["uid"])
        self.name, self.namespace = str(metadata["name"]), str(metadata["namespace"])
        self.address = address
        self.over = pod["status"].get("phase") in {"Succeeded", "Failed"}
        self._pod = pod
        self._host = host
        self._path = f"{CORE}/namespaces/{self.namespace}/pods/{self.name}"
        self._since = now()
        self._changed = asyncio.Event()
        self._stop: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._stop_until = 0.0
        self._tokens: dict[str, tuple[str, float]] = {}
        self.directory = host.directory / f"{self.namespace}_{self.name}_{self.uid}"
        self._volumes = Volumes(pod, self.directory)
        policy = spec["restartPolicy"]
        grace_s = spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_S)
        place = Place(address, policy, grace_s, self.directory)
        once = Place(
            address, "Never" if policy == "Never" else "OnFailure", grace_s, self.directory
        )
        self._inits = [
            Container(one, once, self._prepare, self._changed.set)
            for one in spec.get("initContainers", [])
        ]
        self._containers = [
            Container(one, place, self._prepare, self._changed.set) for one in spec["containers"]
        ]
        self._all = [*self._inits, *self._containers]
        self._ready = False
        self._ready_since = self._since

    def find(self, container: str) -> Container | None:
        """Return a container, or an init container, by name."""
        return next((one for one in self._all if one.spec["name"] == container), None)

    def delete(self, grace_s: float) -> None:
        """Have it end within the grace; a second call may only shorten it."""
        until = time.monotonic() + grace_s
        if not self._stop.done():
            self._stop.set_result(grace_s)
            self._stop_until = until
        elif until < self._stop_until:
            self._stop_until = until
            for container in self._all:
                task = asyncio.create_task(container.kill())
                task.add_done_callback(lambda _: self._changed.set())

    async def run(self) -> None:
        """Run it until its containers have ended, and its object is removed if it shall be."""
        reporting = asyncio.create_task(self._report())
        refreshing = asyncio.create_task(self._refresh())
        running = asyncio.create_task(self._run_containers())
        try:
            either: set[asyncio.Future[Any]] = {running, self._stop}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not self._stop.done():
                self.over = True
                self._changed.set()
            grace_s = await self._stop
            async with asyncio.TaskGroup() as group:
                for container in self._all:
                    group.create_task(container.stop(grace_s))
            await running
            self.over = True
            reporting.cancel()
            await self._remove()
        finally:
            for task in (reporting, refreshing, running):
                task.cancel()
            for container in self._all:
                await container.kill()

    async def _run_containers(self) -> None:
        if self.over:  # before this kubelet began
            return
        for init in self._inits:
            await init.run()
            if init.state.exit_code != 0:
                return
        async with asyncio.TaskGroup() as group:
            for container in self._containers:
                group.create_task(container.run())

    async def _prepare(self, container: Object) -> Recipe:
        if "restartPolicy" in container:
            raise ConfigurationError("this kubelet has no restart policy of a single container")
        data, around = await self._write(container)
        image = self._host.images.get(container.get("image", ""), Image())
        return recipe(container, image, around, lambda kind, name: data.get((kind, name)))

    async def _write(self, container: Object) -> tuple[Data, Surroundings]:
        """Ask for all that the pod refers to, and write the files of its volumes."""
        data: Data = {}
        for kind, name in references(self._pod):
            found = await self._host.server.data(kind, name, self.namespace)
            if found is not None:
                data[kind, name] = found
        for wanted in self._volumes.tokens():
            await self._renew(wanted)
        for claim in self._volumes.claims():
            self._volumes.bound[claim] = await self._bound(claim)
        around = self._surroundings(container)
        tokens = {path: token for path, (token, _) in self._tokens.items()}
        self._volumes.write(around, lambda kind, name: data.get((kind, name)), tokens)
        return data, around

    async def _renew(self, wanted: Object) -> None:
        """Have a token of the pod's service account that lives long enough."""
        _, until = self._tokens.get(wanted["path"], ("", 0.0))
        if time.monotonic() < until:
            return
        lifetime_s = wanted.get("expirationSeconds", TOKEN_S)
        account = self._pod["spec"].get("serviceAccountName", "default")
        reference = {"apiVersion": "v1", "kind": "Pod", "name": self.name, "uid": self.uid}
        spec: Object = {"expirationSeconds": lifetime_s, "boundObjectRef": reference}
        if audience := wanted.get("audience"):
            spec["audiences"] = [audience]
        path = f"{CORE}/namespaces/{self.namespace}/serviceaccounts/{account}/token"
        asked = time.monotonic()
        given = await self._host.server.create(path, {"spec": spec})
        renewed = asked + TOKEN_RENEWED * lifetime_s
        self._tokens[wanted["path"]] = (given["status"]["token"], renewed)

    async def _bound(self, claim: str) -> Path:
        """Return the directory of a claim's volume: one of this machine."""
        place = f"{CORE}/namespaces/{self.namespace}/persistentvolumeclaims/{claim}"
        name = (await self._host.server.get(place))["spec"].get("volumeName")
        if not name:
            raise ConfigurationError(f"persistentvolumeclaims/{claim} is not bound")
        spec = (await self._host.server.get(f"{CORE}/persistentvolumes/{name}"))["spec"]
        source = spec.get("hostPath") or spec.get("local")
        if source is None:
            raise ConfigurationError(f"persistentvolumes/{name} is no directory of this machine")
        return Path(source["path"])

    def _surroundings(self, container: Object) -> Surroundings:
        """Link each mount path of a container below a root of its own to where its files are."""
        mounts = self._volumes.mounts(container)
        root = self.directory / container["name"] / "root"
        root.mkdir(parents=True, exist_ok=True)
        for path, place in sorted(mounts.items()):
            link = root / path.lstrip("/")
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(place)
        below = {path: str(root / path.lstrip("/")) for path in mounts}
        return Surroundings(
            self._pod, self.address, self._host.address, str(root), below, self._host.variables
        )

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            for container in self._containers:
                # What is gone or cannot be had stays as it was.
                with contextlib.suppress(Unreachable, ConfigurationError):
                    await self._write(container.spec)

    async def _report(self) -> None:
        """Send each change of the status; of several, the last."""
        sent: dict[str, Any] | None = None
        while True:
            self._changed.clear()
            if (status := self._status()) != sent and self._is_told(status):
                try:
                    await self._send(status)
                except Unreachable:
                    await asyncio.sleep(RETRY_S)
                    continue
                sent = status
            await self._changed.wait()

    def _is_told(self, status: Object) -> bool:
        """Say whether there is news: of a pod that was over before, there is none."""
        return bool(status["containerStatuses"]) and not (
            self.over and self._pod["status"].get("phase") in {"Succeeded", "Failed"}
        )

    async def _send(self, status: Object) -> None:
        body = {"metadata": {"uid": self.uid}, "status": status}
        await self._host.server.patch(f"{self._path}/status", body)

    def _status(self) -> Object:
        inits = [one.state for one in self._inits]
        containers = [one.state for one in self._containers]
        if is_ready(containers, self.over) != self._ready:
            self._ready, self._ready_since = not self._ready, now()
        facts = Facts(self.address, self._host.address, self._since, self._ready_since, self.over)
        return pod_status(inits, containers, facts)

    async def _remove(self) -> None:
        """Send how it ended, and remove the object; while the API server is away, try again."""
        while True:
            with contextlib.suppress(Unreachable):
                with contextlib.suppress(Unreachable):  # the object may be gone already
                    await self._send(self._status())
                await self._host.server.remove(self._path, self.uid)
                return
            await asyncio.sleep(RETRY_S)


Data = dict[tuple[str, str], dict[str, bytes]]
"""ConfigMaps and Secrets by kind and name."""


def references(pod: Object) -> set[tuple[str, str]]:
    """Return the ConfigMaps and Secrets that a pod refers to, by kind and name."""
    found = set()
    words = {
        "configMap": ("configmaps", "name"),
        "configMapRef": ("configmaps", "name"),
        "configMapKeyRef": ("configmaps", "name"),
        "secretRef": ("secrets", "name"),
        "secretKeyRef": ("secrets", "name"),
    }

    def look(value: Any) -> None:
        if isinstance(value, list):
            for one in value:
                look(one)
        elif isinstance(value, dict):
            for key, one in value.items():
                if key in words and isinstance(one, dict):
                    found.add((words[key][0], one[words[key][1]]))
                elif key == "secret" and isinstance(one, dict):
                    found.add(("secrets", one.get("secretName") or one["name"]))
                look(one)

    look(pod["spec"])
    return found
