"""A cluster whose leader asks for TaskManagers: from no pod to a job, and back; a pod that dies."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.api import APPS, CORE, await_that, path
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.kubelet.images import Image
from tests.kubernetes.nodes import Node, understudy_image
from tests.kubernetes.rights import Rights, Rule
from understudy.cli.launch.kubernetes_deploying import client_of, deploy
from understudy.cli.launch.kubernetes_plan import blueprint, completed
from understudy.config import Configuration, options
from understudy.kubernetes.access import find_access
from understudy.kubernetes.templates import MAIN_CONTAINER

pytestmark = pytest.mark.kubernetes

APP = Path(__file__).parent / "apps" / "native.py"
IMAGE = "example/flights:1"
GRACE_S = 40.0
"""``jobmanager.adoption-grace``: without a proof of death, no attempt begins sooner."""

RIGHTS = [
    Rule("configmaps", ("get", "list", "watch", "create", "patch", "delete")),
    Rule("leases", ("get", "list", "watch", "create", "patch", "delete"), "coordination.k8s.io"),
    Rule("pods", ("get", "list", "watch", "create", "delete")),
    Rule("events", ("create", "patch")),
    Rule("deployments", ("get", "delete"), "apps"),
]


def image(directory: Path) -> Image:
    """Return an image with the command ``understudy``, and the application."""
    whole = understudy_image()
    program = directory / "bin" / "understudy"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {" ".join(whole.entrypoint)} "$@"\n')
    program.chmod(0o755)
    environment = {
        **whole.environment,
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "FLIGHTS": str(directory),
    }
    return Image(whole.entrypoint, (), environment)


def start(kubernetes: ControlPlane, namespace: str, directory: Path) -> None:
    """Deploy the application, as the command does."""
    template = directory / "pod.yaml"
    template.write_text("kind: Pod\nspec: {terminationGracePeriodSeconds: 10}\n")
    settings = {
        "kubernetes.pod-template-file.default": str(template),
        "kubernetes.cluster-id": "flights",
        "kubernetes.container.image.ref": IMAGE,
        "kubernetes.jobmanager.cpu.amount": "0.1",
        "kubernetes.taskmanager.cpu.amount": "0.1",
        "jobmanager.memory.process.size": "64 mb",
        "taskmanager.memory.process.size": "64 mb",
        "high-availability.storageDir": f"{directory}/storage",
        "taskmanager.driver.type": "session-less",
        "taskmanager.numberOfTaskSlots": "1",
        "taskmanager.spare-drivers": "0",
        "resourcemanager.provider": "kubernetes",
        "resourcemanager.taskmanager-timeout": "1 s",
    }
    found = completed(Configuration(settings), options.KUBERNETES_APPLICATION)
    asked = blueprint(found, namespace, (f"local://{APP}",))

    async def done() -> None:
        access = find_access(str(kubernetes.kubeconfig()), None, namespace)
        await deploy(client_of(access), asked)

    asyncio.run(done())


def test_taskmanagers_come_as_jobs_need_them_are_replaced_at_once_and_go_when_idle(
    kubernetes: ControlPlane, tmp_path: Path
) -> None:
    with (
        kubernetes.namespace() as namespace,
        Node(kubernetes, "native-1", {IMAGE: image(tmp_path)}) as node,
    ):
        user = f"system:serviceaccount:{namespace}:default"
        Rights(kubernetes, namespace, user).grant(RIGHTS)
        start(kubernetes, namespace, tmp_path)

        def pods() -> list[dict[str, Any]]:
            place = path(CORE, "pods", namespace=namespace)
            labels = "app=flights,component=taskmanager"
            found: list[dict[str, Any]] = kubernetes.admin.get(place, labelSelector=labels)["items"]
            return found

        def attempts() -> list[list[str]]:
            file = tmp_path / "attempts"
            return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

        await_that("the job runs", attempts, 120)
        ((_, first),) = attempts()
        (pod,) = pods()
        assert first == pod["metadata"]["name"]
        deployment = kubernetes.admin.get(path(APPS, "deployments", "flights", namespace))
        (owner,) = pod["metadata"]["ownerReferences"]
        assert deployment["metadata"]["uid"] == owner["uid"]

        killed_at = time.monotonic()
        os.kill(node.pid(namespace, first, MAIN_CONTAINER), signal.SIGKILL)
        await_that("the next attempt runs", lambda: len(attempts()) == 2, 120)
        took_s = time.monotonic() - killed_at
        number, second = attempts()[1]
        assert "2" == number
        assert first != second
        assert took_s < GRACE_S, "its kubelet has proved the death"

        (tmp_path / "job").touch()
        await_that("the job has ended", (tmp_path / "loaded").exists)
        await_that("nobody needs a TaskManager", lambda: not pods())

        (tmp_path / "main").touch()
        gone = path(APPS, "deployments", "flights", namespace)
        await_that("the cluster ends", lambda: kubernetes.admin.find(gone) is None)
