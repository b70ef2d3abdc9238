"""Spark's executors on Kubernetes: they belong to their driver's pod, and go with its attempt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.api import CORE, await_that, path
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.nodes import Node, await_phase, understudy_image
from tests.kubernetes.rights import Rights, Rule

pytestmark = [pytest.mark.kubernetes, pytest.mark.spark, pytest.mark.long]

SPARK_S = 300.0
"""A JVM, its client and an executor start in ten seconds of processor time, on a busy machine."""

APP = Path(__file__).parent / "apps" / "executors.py"
ALL = ("get", "list", "watch", "create", "patch", "delete", "deletecollection")
FIELDS = {
    "POD_NAME": "metadata.name",
    "POD_NAMESPACE": "metadata.namespace",
    "POD_IP": "status.podIP",
}


def pod() -> dict[str, Any]:
    fields = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}
        for name, field in FIELDS.items()
    ]
    image = {"name": "UNDERSTUDY_IMAGE", "value": "understudy"}
    python = [*understudy_image().entrypoint[:1], str(APP)]
    container = {
        "name": "main",
        "image": "understudy",
        "command": python,
        "env": [*fields, image],
    }
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"metadata": {"name": "taskmanager"}, "spec": spec}


def test_executors_belong_to_the_pod_of_their_driver_and_go_with_a_dead_attempt(
    kubernetes: ControlPlane,
) -> None:
    images = {"understudy": understudy_image()}
    with kubernetes.namespace() as namespace, Node(kubernetes, "spark-1", images) as node:
        user = f"system:serviceaccount:{namespace}:default"
        kinds = ("pods", "configmaps", "services", "persistentvolumeclaims")
        Rights(kubernetes, namespace, user).grant([Rule(kind, ALL) for kind in kinds])
        pods = path(CORE, "pods", namespace=namespace)
        owner = kubernetes.admin.create(pods, pod())["metadata"]
        await_phase(kubernetes, namespace, "taskmanager")

        def executors(attempt: int) -> list[dict[str, Any]]:
            labels = f"spark-role=executor,understudy/job=job,understudy/attempt={attempt}"
            found: list[dict[str, Any]] = kubernetes.admin.get(pods, labelSelector=labels)["items"]
            return found

        def said(line: str) -> bool:
            output = node.output(namespace, "taskmanager")
            assert "Traceback" not in output, output
            return line in output

        await_that("the first attempt has its sum", lambda: said("attempt 1: 90"), SPARK_S)
        (reference,) = executors(1)[0]["metadata"]["ownerReferences"]
        assert ("Pod", owner["uid"]) == (reference["kind"], reference["uid"])

        await_that("the second attempt has its sum", lambda: said("attempt 2: 90"), SPARK_S)
        assert [] == executors(1)
        maps = kubernetes.admin.get(
            path(CORE, "configmaps", namespace=namespace), labelSelector="spark-role=executor"
        )
        assert 1 == len(maps["items"]), "those of the first are gone, too"

        kubernetes.admin.delete(f"{pods}/taskmanager")
        await_that("its executors are gone with the pod", lambda: not executors(2))
