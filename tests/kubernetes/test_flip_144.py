"""FLIP-144's test plan on a real API server, as far as `test_deploying` does not have it.

An application that is canceled or fails leaves nothing to recover; what is told of it silences no
later run. A pod that has to go, or is given up while it still runs, costs no job and no row.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.api import COORDINATION, CORE, await_that
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.kubelet.container import marked
from tests.kubernetes.nodes import Node, understudy_image
from tests.kubernetes.rights import Rights
from tests.kubernetes.test_deploying import (
    CLUSTER,
    RULES,
    SOON_DEAD,
    Terminal,
    leader,
    leads_after,
    left,
    listing,
    pod_of,
)
from tests.support.sampling import quickly
from understudy.kubernetes.templates import MAIN_CONTAINER

pytestmark = pytest.mark.kubernetes

APPS = Path(__file__).parent / "apps"
TARGET = ("-t", "kubernetes-application")
SLOW_S = 300.0
"""A JVM starts in ten seconds of processor time, on a busy machine."""


class Run:
    """An application in pods of one namespace, and what its jobs have noted."""

    def __init__(
        self,
        kubernetes: ControlPlane,
        place: Path,
        namespace: str,
        further: Mapping[str, str] | None = None,
    ) -> None:
        self.plane = kubernetes
        self.place = place
        self.namespace = namespace
        self.terminal = Terminal(kubernetes, namespace, place, further)

    def start(self, app: str, *arguments: str) -> dict[str, Any]:
        """Type the command that starts it; return what that tells."""
        words = ("run-application", *TARGET, *self.terminal.settings, "--json")
        line = (f"local://{APPS / app}", str(self.place), *arguments)
        told: dict[str, Any] = json.loads(self.terminal.type(*words, *line))
        return told

    def noted(self, name: str) -> list[str]:
        """Return the lines of a file."""
        file = self.place / name
        return file.read_text().splitlines() if file.exists() else []

    def let(self, *names: str) -> None:
        """Let jobs go on."""
        for name in names:
            (self.place / name).touch()

    def await_gone(self) -> None:
        """Wait until nothing is left of the Deployment."""
        await_that("everything has gone", lambda: not left(self.plane, self.namespace))

    def stored(self) -> set[str]:
        """Return the ConfigMaps and Leases of high availability."""
        found = listing(self.plane, CORE, "configmaps", self.namespace)
        found += listing(self.plane, COORDINATION, "leases", self.namespace)
        names = {one["metadata"]["name"] for one in found}
        return names - {"kube-root-ca.crt", "flights-config"}

    def taskmanagers(self) -> list[str]:
        """Return the names of the TaskManagers' pods that run."""
        return [
            one["metadata"]["name"]
            for one in listing(self.plane, CORE, "pods", self.namespace)
            if "-taskmanager-" in one["metadata"]["name"]
            and one["status"].get("phase") == "Running"
            and "deletionTimestamp" not in one["metadata"]
        ]


@pytest.fixture(scope="module")
def node(kubernetes: ControlPlane) -> Iterator[Node]:
    with Node(kubernetes, "flip-1", {"understudy": understudy_image()}) as one:
        yield one


@pytest.fixture
def namespace(kubernetes: ControlPlane) -> Iterator[str]:
    with kubernetes.namespace() as name:
        Rights(kubernetes, name, f"system:serviceaccount:{name}:default").grant(RULES)
        yield name


TOLD = {CLUSTER, "flights-leader"}
"""What tells of an ended run for a time: it has nothing that a later run would recover."""


@pytest.mark.parametrize("how", quickly(["canceled", "failed"], ["canceled"]))
def test_nothing_to_recover_is_left_of_a_run_that_ended_and_a_later_run_is_a_new_one(
    kubernetes: ControlPlane, node: Node, namespace: str, tmp_path: Path, how: str
) -> None:
    run = Run(kubernetes, tmp_path, namespace)
    first = run.start("kept.py", *(["fails"] if how == "failed" else []))
    await_that("both jobs run", lambda: run.noted("one") and run.noted("two"))
    assert run.stored() > TOLD, "the application has a ConfigMap of its own"

    if how == "canceled":
        run.terminal.type("cancel", *TARGET, *run.terminal.settings, first["run-id"])
    run.let("one.go", "two.go")
    run.await_gone()
    assert TOLD == run.stored()
    assert [] == run.noted("result")

    second = run.start("kept.py")
    await_that("the second run has a result", lambda: run.noted("result"))
    run.await_gone()
    assert (True, True) == (second["new"], first["run-id"] != second["run-id"])
    # A job that fails has further attempts in its run.
    assert 2 == run.noted("one").count("1"), "each run has executed its jobs"
    assert ["one in attempt 1; two in attempt 1"] == run.noted("result")

    register = {
        "high-availability.type": "kubernetes",
        "high-availability.cluster-id": "flights",
        "kubernetes.namespace": namespace,
        "high-availability.storageDir": str(tmp_path / "storage"),
    }
    words = [word for key, text in register.items() for word in ("-D", f"{key}={text}")]
    run.terminal.type("destroy", "--yes", *words)
    assert set() == run.stored()


@pytest.mark.long
def test_pods_that_have_to_go_cost_no_job(
    kubernetes: ControlPlane, node: Node, namespace: str, tmp_path: Path
) -> None:
    run = Run(kubernetes, tmp_path, namespace, {"kubernetes.jobmanager.replicas": "3"})
    run.start("kept.py")
    await_that("both jobs run", lambda: run.noted("one") and run.noted("two"))

    def leading() -> str:
        return pod_of(kubernetes, namespace, leader(kubernetes, namespace)["rest"])

    term = leader(kubernetes, namespace)["term"]
    node.signal(
        signal.SIGTERM, namespace, leading(), MAIN_CONTAINER
    )  # As `kill 1` does in the container.
    await_that("another one leads", lambda: leads_after(kubernetes, namespace, term))
    term = leader(kubernetes, namespace)["term"]
    kubernetes.kubectl("-n", namespace, "delete", "pod", leading(), "--wait=false")
    await_that("the next one leads", lambda: leads_after(kubernetes, namespace, term))
    assert (["1"], ["1"]) == (run.noted("one"), run.noted("two")), "both were adopted"

    def attempts() -> int:
        return len(run.noted("one")) + len(run.noted("two"))

    one, other = run.taskmanagers()
    node.signal(signal.SIGTERM, namespace, one, MAIN_CONTAINER)
    await_that("its job runs again", lambda: 3 == attempts())
    kubernetes.kubectl("-n", namespace, "delete", "pod", other, "--wait=false")
    await_that("the other one, too", lambda: 4 == attempts())

    run.let("one.go", "two.go")
    await_that("the result is there", lambda: run.noted("result"))
    run.await_gone()
    assert ["one in attempt 2; two in attempt 2"] == run.noted("result")
    assert TOLD == run.stored()


@contextlib.contextmanager
def _closed(node: Node) -> Iterator[None]:
    """Have no pod come to a node."""
    place = f"{CORE}/nodes/{node.name}"
    node.plane.admin.patch(place, {"spec": {"unschedulable": True}})
    try:
        yield
    finally:
        node.plane.admin.patch(place, {"spec": {"unschedulable": None}})


@contextlib.contextmanager
def _cut_off(node: Node) -> Iterator[None]:
    """Have a node hear nothing."""
    node.cut_off()
    try:
        yield
    finally:
        node.rejoin()


@pytest.mark.long
@pytest.mark.parametrize("driver", ["session-less", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_pod_that_is_given_up_while_it_runs_writes_nothing_after_the_next_attempt(
    kubernetes: ControlPlane, node: Node, namespace: str, tmp_path: Path, driver: str
) -> None:
    run = Run(kubernetes, tmp_path, namespace, {**SOON_DEAD, "taskmanager.driver.type": driver})
    with Node(kubernetes, "cut-1", {"understudy": understudy_image()}) as first:
        with _closed(node):
            run.start("cut_off.py", driver)
            await_that("the job runs", lambda: run.noted("begun"), SLOW_S)
        ((_, pid),) = map(str.split, run.noted("begun"))
        (pod,) = run.taskmanagers()
        with _closed(first), _cut_off(first):
            (place,) = (first.directory / "pods").glob(f"{namespace}_{pod}_*")
            cut = [*marked(str(place))]
            for one in cut:
                os.kill(one, signal.SIGSTOP)
            kubernetes.kubectl("-n", namespace, "delete", "pod", pod, "--force", "--grace-period=0")
            await_that("the next attempt runs", lambda: 2 == len(run.noted("begun")), SLOW_S)
            run.let("write-1", "write-2")
            await_that("it has written", lambda: run.noted("written"), SLOW_S)

            for one in (int(pid), *cut):  # The old driver first: nobody can stop it then.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGCONT)
            await_that("the old driver is dead", lambda: not _lives(int(pid)), SLOW_S)
            run.let("end")
            await_that("the result is there", lambda: run.noted("result"), SLOW_S)

    assert ["2"] == run.noted("written")
    assert (["100"] if driver == "spark" else ["2"]) == run.noted("result")


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
