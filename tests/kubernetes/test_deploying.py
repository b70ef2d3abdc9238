"""A cluster in pods, from the command line to its end, on a real API server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.house.repository import ROOT
from tests.kubernetes.api import APPS, COORDINATION, CORE, await_that, path
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.nodes import Node, understudy_image
from tests.kubernetes.rights import Rights, Rule
from understudy.kubernetes.templates import MAIN_CONTAINER

pytestmark = pytest.mark.kubernetes

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
ALL = ("get", "list", "watch", "create", "patch", "delete")
RULES = (
    Rule("configmaps", ALL),
    Rule("leases", ALL, "coordination.k8s.io"),
    Rule("events", ("create", "patch")),
    Rule("pods", ALL),
    Rule("deployments", ("get", "delete"), "apps"),
)

APP = """
import sys
import time
from pathlib import Path

import understudy
from understudy import JobContext

place = Path(sys.argv[1])


def waits(ctx: JobContext) -> int:
    with (place / "begun").open("a") as file:
        file.write(f"{ctx.attempt}\\n")
    while not (place / "go").exists():
        time.sleep(0.01)
    return 7


value = understudy.get_environment().execute(waits).value
(place / "result").write_text(str(value))
"""

QUICK = {
    "high-availability.kubernetes.leader-election.lease-duration": "4 s",
    "high-availability.kubernetes.leader-election.renew-deadline": "2500 ms",
    "high-availability.kubernetes.leader-election.retry-period": "500 ms",
    "taskmanager.driver.type": "session-less",
    "taskmanager.spare-drivers": "0",
    "taskmanager.numberOfTaskSlots": "1",
    "kubernetes.jobmanager.cpu.amount": "0.1",
    "kubernetes.taskmanager.cpu.amount": "0.1",
    "jobmanager.memory.process.size": "256 mb",
    "taskmanager.memory.process.size": "256 mb",
}


SOON_DEAD = {
    "taskmanager.orphan-timeout": "5 s",
    "jobmanager.adoption-grace": "8 s",
    "heartbeat.interval": "1 s",
}
"""Nobody proves the death of a TaskManager whose pod is gone: this is what its jobs wait for."""


class Terminal:
    """Where somebody types commands, for one cluster."""

    def __init__(
        self,
        plane: ControlPlane,
        namespace: str,
        place: Path,
        further: Mapping[str, str] | None = None,
    ) -> None:
        template = place / "pod.yaml"
        template.write_text("kind: Pod\nspec: {terminationGracePeriodSeconds: 10}\n")
        self._environment = {
            **os.environ,
            "KUBECONFIG": str(plane.kubeconfig()),
            "XDG_STATE_HOME": str(place / "state"),
            "PYTHONPATH": str(ROOT / "src"),
        }
        settings = {
            "kubernetes.cluster-id": "flights",
            "kubernetes.namespace": namespace,
            "kubernetes.container.image.ref": "understudy",
            "kubernetes.jobmanager.replicas": "2",
            "kubernetes.pod-template-file.default": str(template),
            "high-availability.storageDir": str(place / "storage"),
            **QUICK,
            **(further or {}),
        }
        self.settings = [word for key, text in settings.items() for word in ("-D", f"{key}={text}")]

    def type(self, *words: str, code: int = 0) -> str:
        """Return what a command prints, or complains of; fail unless it exits with ``code``."""
        done = subprocess.run(
            [sys.executable, "-m", "understudy", *words],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert code == done.returncode, done.stderr
        return done.stdout or done.stderr


@pytest.fixture(scope="module")
def node(kubernetes: ControlPlane) -> Iterator[Node]:
    with Node(kubernetes, "node-1", {"understudy": understudy_image()}) as one:
        yield one


@pytest.fixture
def namespace(kubernetes: ControlPlane) -> Iterator[str]:
    with kubernetes.namespace(RESTRICTED) as name:
        yield name


def test_manifests_are_what_the_api_server_takes_under_restricted_pod_security(
    kubernetes: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    terminal = Terminal(kubernetes, namespace, tmp_path)
    target = ("-t", "kubernetes-application", "--dry-run")

    printed = terminal.type("run-application", *target, *terminal.settings, "local:///opt/etl.py")

    on_server = ("-n", namespace, "apply", "--dry-run=server", "--filename=-")
    told = kubernetes.kubectl(*on_server, stdin=printed)
    assert 5 == len(told.splitlines()), told
    assert all(line.endswith("created (server dry run)") for line in told.splitlines())
    deployment = json.loads(
        kubernetes.kubectl(*on_server, "-o=json", stdin=printed.split("---\n")[1])
    )
    template = deployment["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    pod["metadata"]["name"] = "one"  # Pod Security only warns of a Deployment.
    assert "pod/one created" in kubernetes.kubectl(*on_server, stdin=json.dumps(pod))


def test_an_application_in_pods_survives_its_leader_and_leaves_nothing(
    kubernetes: ControlPlane, node: Node, namespace: str, tmp_path: Path
) -> None:
    Rights(kubernetes, namespace, f"system:serviceaccount:{namespace}:default").grant(RULES)
    terminal = Terminal(kubernetes, namespace, tmp_path)
    (tmp_path / "etl.py").write_text(APP)
    target = ("-t", "kubernetes-application")
    start = ("run-application", *target, *terminal.settings, "--json")
    app = (f"local://{tmp_path}/etl.py", str(tmp_path))
    first = json.loads(terminal.type(*start, *app))
    begun, result = tmp_path / "begun", tmp_path / "result"
    await_that("the job runs", begun.exists)

    again = json.loads(terminal.type(*start, *app))
    assert (first["run-id"], False) == (again["run-id"], again["new"])
    listed = json.loads(terminal.type("list", *target, *terminal.settings, "--json"))
    (application,) = listed["applications"]
    assert (first["run-id"], "RUNNING") == (application["run-id"], application["status"])

    was = leader(kubernetes, namespace)
    pod = pod_of(kubernetes, namespace, was["rest"])
    os.kill(node.pid(namespace, pod, MAIN_CONTAINER), signal.SIGKILL)
    await_that("another one leads", lambda: leads_after(kubernetes, namespace, was["term"]))
    (tmp_path / "go").touch()

    await_that("the result is there", result.exists)
    await_that("everything has gone", lambda: not left(kubernetes, namespace))
    assert ("1\n", "7") == (begun.read_text(), result.read_text())
    names = [one["metadata"]["name"] for one in listing(kubernetes, CORE, "configmaps", namespace)]
    assert [] == [one for one in names if one not in {"kube-root-ca.crt", CLUSTER}]


def test_a_deployment_that_is_deleted_keeps_its_data_and_the_same_command_continues(
    kubernetes: ControlPlane, node: Node, namespace: str, tmp_path: Path
) -> None:
    Rights(kubernetes, namespace, f"system:serviceaccount:{namespace}:default").grant(RULES)
    terminal = Terminal(kubernetes, namespace, tmp_path, SOON_DEAD)
    (tmp_path / "etl.py").write_text(APP)
    start = ("run-application", "-t", "kubernetes-application", *terminal.settings, "--json")
    app = (f"local://{tmp_path}/etl.py", str(tmp_path))
    first = json.loads(terminal.type(*start, *app))
    await_that("the job runs", (tmp_path / "begun").exists)

    kubernetes.kubectl("-n", namespace, "delete", "deployment", "flights")
    await_that("its objects have gone", lambda: not left(kubernetes, namespace))
    again = json.loads(terminal.type(*start, *app))
    (tmp_path / "go").touch()

    await_that("the result is there", (tmp_path / "result").exists)
    await_that("everything has gone", lambda: not left(kubernetes, namespace))
    assert (first["run-id"], True) == (again["run-id"], again["new"])
    assert ("1\n2\n", "7") == (
        (tmp_path / "begun").read_text(),
        (tmp_path / "result").read_text(),
    )


CLUSTER = "flights-cluster-config-map"
"""It keeps how the run has ended, for a time."""


def leader(plane: ControlPlane, namespace: str, cluster: str = "flights") -> dict[str, Any]:
    """Return the record of the leader."""
    lease = plane.admin.get(path(COORDINATION, "leases", f"{cluster}-leader", namespace))
    record: dict[str, Any] = json.loads(lease["metadata"]["annotations"]["understudy/value"])
    return dict(record["body"])


def leads_after(plane: ControlPlane, namespace: str, term: int) -> bool:
    """Return whether somebody leads in a later term, and serves."""
    found = leader(plane, namespace)
    return bool(found["term"] > term and found.get("rest"))


def pod_of(plane: ControlPlane, namespace: str, url: str) -> str:
    """Return the name of the pod with the address of a URL."""
    address = url.partition("://")[2].rpartition(":")[0]
    (found,) = (
        one["metadata"]["name"]
        for one in listing(plane, CORE, "pods", namespace)
        if one["status"].get("podIP") == address
    )
    return str(found)


def left(plane: ControlPlane, namespace: str) -> list[str]:
    """Return what of a deployment is there."""
    kinds = ((APPS, "deployments"), (CORE, "pods"), (CORE, "services"), (CORE, "secrets"))
    found = [one for group, kind in kinds for one in listing(plane, group, kind, namespace)]
    found += [
        one
        for one in listing(plane, CORE, "configmaps", namespace)
        if one["metadata"]["name"].endswith("-config")
    ]
    return [one["metadata"]["name"] for one in found]


def listing(plane: ControlPlane, group: str, kind: str, namespace: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = plane.admin.get(path(group, kind, namespace=namespace))["items"]
    return found
