"""The same history, on a real API server of Kubernetes, and everything that may befall that.

``python -m tests.failure.kubernetes --faults 300`` is the long form. Each contender has a proxy of
its own on its way to the API server: what befalls one of them is not what befalls all.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from tests.failure import faults
from tests.failure.cluster import Stage
from tests.failure.contender import CLUSTER
from tests.failure.faults import LONG, SHORT, Draw, Fault, Kind
from tests.failure.run import Plan, Verdict, play, told
from tests.kubernetes import build
from tests.kubernetes.api import RefusedError
from tests.kubernetes.component import Component
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.faults import (
    CloseEarly,
    Delay,
    FaultyApi,
    Happening,
    LoseReply,
    Silence,
    html,
    refused,
)
from tests.kubernetes.rights import Rights, Rule

LEASE_S, RENEW_DEADLINE_S, RETRY_S = 6.0, 4.5, 0.5

CONTENDERS = ("k1", "k2", "k3")
WATCHERS = ("w1", "w2")
GUARDED = ("k1", "k2")

VERBS = ("get", "list", "watch", "create", "patch", "delete")
RULES = (Rule("configmaps", VERBS), Rule("leases", VERBS, "coordination.k8s.io"))
WATCH = "watch=true"
REQUESTS = r"^(?!.*watch=true)"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/" + f"{CLUSTER}-leader"


class KubernetesStage(Stage):
    """All that runs in one namespace of a control plane of its own."""

    def __init__(self, directory: Path, plane: ControlPlane, namespace: str) -> None:
        """Use `open_stage`."""
        super().__init__(directory, LEASE_S, None)
        self.plane = plane
        self.namespace = namespace
        self.rights = Rights(plane, namespace, plane.service_account("contenders", namespace))
        self.rights.grant(RULES)
        self.token = plane.token("contenders", namespace)
        self.proxies: dict[str, FaultyApi] = {}

    def settings(self, host: str = "") -> dict[str, str]:
        """See `Stage.settings`."""
        url = self.proxies[host].url if host in self.proxies else None
        periods = {
            "lease-duration": LEASE_S,
            "renew-deadline": RENEW_DEADLINE_S,
            "retry-period": RETRY_S,
        }
        return {
            "high-availability.type": "kubernetes",
            "kubernetes.config.file": str(self.plane.kubeconfig(self.token, url)),
            "kubernetes.namespace": self.namespace,
            **{
                f"high-availability.leader-election.{name}": f"{seconds} s"
                for name, seconds in periods.items()
            },
        }

    def await_serving(self) -> None:
        """See `Stage.await_serving`."""
        for component in self.plane.components:
            if not component.runs:  # An API server ends without its etcd.
                component.start(wait=False)
            component.await_serving()


@contextlib.contextmanager
def open_stage(directory: Path) -> Iterator[KubernetesStage]:
    """Start the control plane and all that contends and watches there."""
    directory.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(ControlPlane(directory, controllers=False))
        stage = KubernetesStage(directory, plane, stack.enter_context(plane.namespace()))
        for host in (*CONTENDERS, *WATCHERS):
            stage.proxies[host] = stack.enter_context(FaultyApi(plane))
        stack.callback(stage.close)
        stage.contend(CONTENDERS, GUARDED)
        stage.watch(WATCHERS)
        yield stage


def run(plan: Plan, directory: Path) -> Verdict:
    """Play it, and judge; the history stays in the directory."""
    with open_stage(directory) as stage:
        return play(plan, stage, plan.kinds or KINDS)


# --- what may happen -----------------------------------------------------------------------------


def _stage(draw: Draw) -> KubernetesStage:
    assert isinstance(draw.stage, KubernetesStage)
    return draw.stage


def _frozen(name: str, lowest: float, highest: float) -> Kind:
    """Freeze a component; so short a time that a leader bears it, or so long that none does."""

    def make(draw: Draw) -> Fault:
        component = _component(draw, name)

        def thaw() -> None:
            if component.runs:
                component.thaw()

        return Fault(
            f"{name}-frozen",
            f"{name} is frozen",
            draw.lasts(lowest, highest),
            lambda: component.freeze() if component.runs else None,
            thaw,
            borne=highest <= SHORT,
        )

    return make


def _killed(name: str) -> Kind:
    def make(draw: Draw) -> Fault:
        component = _component(draw, name)

        def start() -> None:
            if not component.runs:
                component.start(wait=False)

        lasts_s = draw.lasts(SHORT, LONG)
        return Fault(f"{name}-killed", f"{name} is killed", lasts_s, component.kill, start)

    return make


def _component(draw: Draw, name: str) -> Component:
    plane = _stage(draw).plane
    return plane.etcd if name == "etcd" else plane.api_server


def _answered(
    kind: str, happening: Happening, pattern: str = REQUESTS, method: str = "", times: int = 6
) -> Kind:
    """Have something happen to some requests of the leader, or of somebody else."""

    def make(draw: Draw) -> Fault:
        host = draw.leader.host if draw.chance.random() < 0.7 else draw.chance.choice(CONTENDERS)
        proxy, count = _stage(draw).proxies[host], draw.chance.randint(1, times)
        words = f"{count} times to {host}"
        return _while(
            kind, words, draw.lasts(SHORT, 0.5), proxy.fault(happening, method, pattern, count)
        )

    return make


def _watches(kind: str, happening: Happening) -> Kind:
    """Have something happen to all watches of somebody, for as long as a lease and more."""

    def make(draw: Draw) -> Fault:
        host = draw.chance.choice((*CONTENDERS, *WATCHERS))
        proxy = _stage(draw).proxies[host]
        lasts_s = draw.lasts(SHORT, LONG)
        return _while(kind, f"to {host}", lasts_s, proxy.fault(happening, "", WATCH))

    return make


def _while(kind: str, words: str, lasts_s: float, block: AbstractContextManager[object]) -> Fault:
    stack = contextlib.ExitStack()
    return Fault(kind, f"{kind} {words}", lasts_s, lambda: stack.enter_context(block), stack.close)


def leader_cut_off(draw: Draw) -> Fault:
    """Lose everything between the leader and the API server."""
    proxy = _stage(draw).proxies[draw.leader.host]
    return _while("cut-off", f"of {draw.leader.host}", draw.lasts(SHORT, LONG), proxy.cut_off())


def connections_dropped(draw: Draw) -> Fault:
    """Close all connections of everybody, once."""
    stage = _stage(draw)

    def begin() -> None:
        for proxy in stage.proxies.values():
            proxy.drop_connections()

    return Fault("connections-dropped", "all connections are closed", 0.1, begin, borne=True)


def rights_revoked(draw: Draw) -> Fault:
    """Take the Role away, for a moment or for longer than a lease."""
    stage = _stage(draw)

    def end() -> None:
        stage.await_serving()
        stage.rights.grant(RULES)

    return Fault(
        "rights-revoked",
        "the Role is gone",
        draw.lasts(SHORT, LONG),
        stage.rights.revoke,
        end,
        needs_quorum=True,
    )


def lease_deleted(draw: Draw) -> Fault:
    """Delete the Lease: two may believe to lead until the next renewal, and the term tells.

    It lasts until the old leader must have seen that, or its end would be the next fault's.
    """
    stage = _stage(draw)

    def begin() -> None:
        with contextlib.suppress(RefusedError):  # Nobody has made it again yet.
            stage.plane.admin.delete(LEASES.format(stage.namespace))

    return Fault(
        "lease-deleted",
        "somebody deletes the Lease",
        LEASE_S / 2,
        begin,
        robs=True,
        needs_quorum=True,
    )


def leader_closes(draw: Draw) -> Fault:
    """Have the leader step down, as a pod that is deleted."""
    stage, player = draw.stage, draw.leader
    return Fault(
        "leader-closes",
        f"the leader at {player.host} gets SIGTERM",
        0.1,
        lambda: faults.tell(stage, player, signal.SIGTERM),
    )


KINDS: tuple[Kind, ...] = (
    _frozen("kube-apiserver", SHORT / 2, SHORT),
    _frozen("kube-apiserver", 0.9, LONG),
    _killed("kube-apiserver"),
    _frozen("etcd", 0.3, LONG),
    _killed("etcd"),
    _answered("500", refused(500, "InternalError")),
    _answered("503", refused(503, "ServiceUnavailable")),
    _answered("429", refused(429, "TooManyRequests", Retry_After="1")),
    _answered("409", refused(409, "Conflict"), method="PATCH"),
    _answered("html", html()),
    _answered("slow", Delay(0.7)),
    _answered("lost-answers", LoseReply()),
    _watches("410", refused(410, "Expired")),
    _watches("silent-watches", Silence()),
    _watches("watches-close-early", CloseEarly()),
    leader_cut_off,
    connections_dropped,
    rights_revoked,
    lease_deleted,
    leader_closes,
    faults.contender_killed,
    faults.contender_frozen,
    faults.session_expired,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the exit code tells whether anything was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.failure.kubernetes", description=__doc__)
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds")
    parser.add_argument("--one", action="store_true", help="never two at a time")
    found = parser.parse_args(arguments)
    if why := build.why_not():
        sys.exit(why)
    build.build()
    place = Path(tempfile.mkdtemp(prefix="understudy-failure-"))
    print(f"seed {found.seed}, in {place}", flush=True)
    plan = Plan(found.seed, found.faults, not found.one, found.limit, session_s=LEASE_S)
    verdict = run(plan, place)
    print(told(verdict))
    if not verdict.violations:
        shutil.rmtree(place)
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
