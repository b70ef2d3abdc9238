"""How long it takes until the next leader has the job, beside the lease that others wait for."""

from __future__ import annotations

import signal
from pathlib import Path

from benchmarks import charts
from benchmarks.figures import Chapter, Effort, Table, duration, ratio, table_of
from benchmarks.zookeeper import moments, ours
from tests.kubernetes.control_plane import ControlPlane
from understudy.config import Configuration, options

IMAGE = "failover.png"
KILL = signal.SIGKILL

NAMES = {
    KILL: "SIGKILL of the leading worker",
    ours.POD: "SIGTERM to its guardian, as of a pod that is deleted with grace",
    ours.HOST: "loss of the node",
}


def on_kubernetes(plane: ControlPlane, namespace: str) -> dict[str, str]:
    """Return the options of a cluster there."""
    return {
        "high-availability.type": "kubernetes",
        "kubernetes.config.file": str(plane.kubeconfig()),
        "kubernetes.namespace": namespace,
    }


def run(effort: Effort, plane: ControlPlane, place: Path) -> Chapter:
    """Measure each kind of death with defaults."""
    often = effort.of(20, 2)
    with plane.namespace() as namespace:
        there = {**on_kubernetes(plane, namespace), **ours.SESSION_LESS}
        kinds: dict[signal.Signals | str, int] = {
            KILL: often,
            ours.POD: often,
            ours.HOST: effort.of(5, 1),
        }
        found = ours.failovers(place / "ours", kinds, there)
    runs = [moments.series(NAMES[kind], each, "runs") for kind, each in found.items()]
    answers = [moments.series(NAMES[kind], each, "answers") for kind, each in found.items()]
    lease_s = Configuration({}).get(options.LEASE_DURATION)
    chart = charts.distributions(
        effort.images / IMAGE, "From the signal until the job is adopted", runs, logarithmic=True
    )
    killed, closed, lost = (each.median for each in runs)
    anew = sum(one.anew for each in found.values() for one in each)
    return Chapter(
        "Failover",
        "Two JobManagers and one TaskManager, each with scratch of its own, as on three nodes: "
        "what tells the standby of a death is the API server alone. A job notes a step each 20 ms. "
        "The leader is ended as soon as a standby is ready; the standby is asked over REST every "
        "10 ms until it says that the job runs, adopted. All options have their defaults: a lease "
        f"of {lease_s:g} s. After SIGKILL of the worker its guardian, process 1 of a pod, empties "
        "the Lease; it gets SIGTERM where a pod is deleted; with a node, it is lost, too.",
        (
            Table(("the job is adopted", *table_of().header[1:]), table_of(*runs).rows),
            Table(("the new leader answers", *table_of().header[1:]), table_of(*answers).rows),
        ),
        f"After SIGKILL of the leading worker the job is adopted within {duration(killed)} "
        f"(median), and that of a deleted pod within {duration(closed)}: the lease, which Flink "
        f"waits for, is {ratio(lease_s, killed)} the first. The loss of a node costs "
        f"{duration(lost)}. {anew or 'None'} of {sum(map(len, found.values()))} jobs was executed "
        "again.",
        chart,
    )
