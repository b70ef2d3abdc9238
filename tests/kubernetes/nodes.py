"""Nodes of a control plane of tests: each a kubelet without containers, in a process of its own."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.house.repository import ROOT
from tests.kubernetes.api import CORE, Object, await_that, path
from tests.kubernetes.component import Component
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.keys import node_user
from tests.kubernetes.kubelet import images
from tests.kubernetes.kubelet.container import kill_marked
from tests.kubernetes.kubelet.images import Image

KILL_S = 20.0
POLL_S = 0.02

_KEPT = ("HOME", "JAVA_HOME", "XDG_CACHE_HOME")
"""Where Java and the archive of Spark's classes are."""

_numbers = itertools.count(1)


class Node:
    """A node, there from `start` to `lose`; a block has one that is ready.

    ``api`` is the URL at which the pods find the API server, where it is not its own: that of a
    proxy with faults.
    """

    def __init__(
        self,
        plane: ControlPlane,
        name: str,
        images_by_name: Mapping[str, Image] | None = None,
        api: str | None = None,
    ) -> None:
        self.plane = plane
        self.name = name
        self.directory = plane.directory / f"node-{name}-{next(_numbers)}"
        self.directory.mkdir()
        images.write(self.directory / "images.json", images_by_name or {})
        # Two pytest processes beside each other must not have the same addresses.
        address = f"127.{1 + os.getpid() % 250}.{next(_numbers) % 250}.1"
        kubeconfig = plane.keys.write_kubeconfig(
            self.directory / "kubeconfig", plane.url, node_user(name)
        )
        certificate, _ = plane.keys.serving(f"kubelet-{name}", address)
        line = [
            *(sys.executable, "-m", "tests.kubernetes.kubelet", name),
            f"--kubeconfig={kubeconfig}",
            f"--certificate={certificate}",
            f"--directory={self.directory}",
            f"--address={address}",
            *([f"--api={api}"] if api else []),
        ]
        paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        self.kubelet = Component(
            f"kubelet of {name}", self.directory / "log", line, self.is_ready, environment
        )

    def __enter__(self) -> Node:
        self.kubelet.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.lose()
        if self.plane.admin.find(f"{CORE}/nodes/{self.name}") is not None:
            self.plane.admin.delete(f"{CORE}/nodes/{self.name}")

    def is_ready(self) -> bool:
        """Return whether the API server takes the node for ready, and pods may be bound to it."""
        node = self.plane.admin.find(f"{CORE}/nodes/{self.name}")
        conditions = node["status"].get("conditions", []) if node else []
        taints = node["spec"].get("taints", []) if node else []
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
        # A node is born with a taint, which a controller removes.
        return ready and not (taints and self.plane.controllers in self.plane.components)

    def cut_off(self) -> None:
        """Have the kubelet neither hear nor say anything; its pods go on, until `rejoin`."""
        self.kubelet.freeze()

    def rejoin(self) -> None:
        """End `cut_off`: the kubelet does what it has missed."""
        self.kubelet.thaw()

    def lose(self) -> None:
        """Take the node's power: kubelet and all processes of its pods die at once. Idempotent."""
        self.kubelet.kill()
        until = time.monotonic() + KILL_S
        while kill_marked(str(self.directory / "pods")):
            assert time.monotonic() < until, f"processes of {self.name} cannot be killed"
            time.sleep(POLL_S)

    def pid(self, namespace: str, pod: str, container: str = "main") -> int:
        """Return the process id of what a container runs now."""
        return int((self._place(namespace, pod, container) / "pid").read_text())

    def signal(
        self, number: signal.Signals, namespace: str, pod: str, container: str = "main"
    ) -> None:
        """Send a signal to a container's first process, as ``kill`` in the container does."""
        os.kill(self.pid(namespace, pod, container), number)

    def output(self, namespace: str, pod: str, container: str = "main") -> str:
        """Return what all runs of a container have printed, also when the API server is away."""
        if not self._places(namespace, pod, container):
            return ""
        logs = self._place(namespace, pod, container).glob("*.log")
        ordered = sorted(logs, key=lambda log: int(log.stem))
        return "".join(log.read_text(errors="replace") for log in ordered)

    def _place(self, namespace: str, pod: str, container: str) -> Path:
        """Return the directory of a container; of pods with the same name, that of the last."""
        found = self._places(namespace, pod, container)
        return max(found, key=lambda place: place.stat().st_mtime_ns)

    def _places(self, namespace: str, pod: str, container: str) -> list[Path]:
        return [*(self.directory / "pods").glob(f"{namespace}_{pod}_*/{container}")]


def understudy_image() -> Image:
    """Return an image that has this checkout and this Python; its entry point is ``understudy``."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment = {**kept, "PYTHONPATH": str(ROOT / "src")}
    return Image((sys.executable, "-m", "understudy"), (), environment)


def await_phase(plane: ControlPlane, namespace: str, pod: str, phase: str = "Running") -> Object:
    """Wait until a pod is in a phase; return it."""
    place = path(CORE, "pods", pod, namespace)

    def found() -> Object | None:
        one = plane.admin.find(place)
        return one if one is not None and one["status"].get("phase") == phase else None

    result: Object = await_that(f"{pod} is {phase}", found)
    return result


def await_ready(plane: ControlPlane, namespace: str, pod: str, ready: bool = True) -> Object:
    """Wait until a pod is ready, or until it is not; return it."""
    place = path(CORE, "pods", pod, namespace)

    def found() -> Object | None:
        one = plane.admin.find(place)
        conditions = one["status"].get("conditions", []) if one else []
        states = [each["status"] for each in conditions if each["type"] == "Ready"]
        return one if states == [str(ready)] else None

    result: Object = await_that(f"{pod} is {'' if ready else 'not '}ready", found)
    return result
