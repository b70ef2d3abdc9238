"""The API server of Kubernetes is away, in every way: nobody leads too long, and no job notices."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pytest

from tests.journeys.conftest import Start
from tests.journeys.harness import PATIENCE_S, Run, impatient
from tests.journeys.test_links import given
from tests.kubernetes.component import Component
from tests.kubernetes.control_plane import ControlPlane, need
from tests.kubernetes.faults import FaultyApi, Silence, refused
from tests.kubernetes.rights import Rights, Rule
from tests.support.sampling import quickly

pytestmark = [pytest.mark.filesystem, pytest.mark.kubernetes]  # With servers of their own.

RENEW_DEADLINE_S = 6.0
AWAY_S = RENEW_DEADLINE_S + 3.0
"""Longer than a leader may act without an answer."""

VERBS = ("get", "list", "watch", "create", "patch", "delete")
RULES = (
    Rule("configmaps", VERBS),
    Rule("leases", VERBS, "coordination.k8s.io"),
    Rule("events", ("create", "patch")),
)
PATIENT = ("taskmanager.orphan-timeout=100s", "jobmanager.adoption-grace=120s")
"""A server that is started again on a busy machine is back before that."""


@dataclass
class Place:
    """A namespace of a control plane, its rights, and how processes get there."""

    plane: ControlPlane
    namespace: str
    rights: Rights
    proxy: FaultyApi
    token: str

    def options(self, url: str | None = None) -> list[str]:
        """Return the options of a cluster there; ``url``: through something else."""
        return [
            *impatient(),
            *given(
                "high-availability.type=kubernetes",
                "high-availability.cluster-id=flights",
                f"kubernetes.config.file={self.plane.kubeconfig(self.token, url)}",
                f"kubernetes.namespace={self.namespace}",
                *PATIENT,
            ),
        ]

    def told(self, words: set[str]) -> str:
        """Wait until people are told these words of the leader; return all that they are told."""
        deadline = time.monotonic() + PATIENCE_S
        line = ("describe", "lease", "flights-leader", "-n", self.namespace)
        while not all(word in (told := self.plane.kubectl(*line)) for word in words):
            assert time.monotonic() < deadline, told
            time.sleep(0.5)
        return told


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    need()
    with ControlPlane(tmp_path_factory.mktemp("plane"), controllers=False) as plane:
        yield plane


@pytest.fixture
def there(control_plane: ControlPlane) -> Iterator[Place]:
    plane = control_plane
    with plane.namespace() as namespace, FaultyApi(plane) as proxy:
        user = plane.service_account("flights", namespace)
        rights = Rights(plane, namespace, user)
        rights.grant(RULES)
        yield Place(plane, namespace, rights, proxy, plane.token("flights", namespace))


@contextlib.contextmanager
def frozen(component: Component) -> Iterator[None]:
    component.freeze()
    try:
        yield
    finally:
        component.thaw()


@contextlib.contextmanager
def killed(component: Component) -> Iterator[None]:
    component.kill()
    try:
        yield
    finally:
        component.start()


@contextlib.contextmanager
def revoked(there: Place) -> Iterator[None]:
    there.rights.revoke()
    try:
        yield
    finally:
        there.rights.grant(RULES)


AWAY: dict[str, Callable[[Place], AbstractContextManager[object]]] = {
    "the API server is frozen": lambda there: frozen(there.plane.api_server),
    "the API server is killed": lambda there: killed(there.plane.api_server),
    "etcd is killed": lambda there: killed(there.plane.etcd),
    "rights are revoked": revoked,
    "the network is cut": lambda there: there.proxy.cut_off(),
    "each answer is an error": lambda there: there.proxy.fault(refused(500, "InternalError")),
}


def last_led(run: Run, url: str) -> float:
    """Wait until a leader leads no longer; return when it was asked last while it led."""
    led = asked = time.monotonic()
    while True:
        try:
            with urllib.request.urlopen(f"{url}/ha/status", timeout=5.0):
                led = asked
        except OSError:
            return led
        time.sleep(0.05)
        asked = time.monotonic()
        assert run.process.poll() is None


@pytest.mark.parametrize("how", quickly(list(AWAY), ["the API server is frozen"]))
def test_nobody_leads_too_long_and_no_job_starts_again(
    start: Start, there: Place, nothing_left: Callable[[], None], how: str
) -> None:
    through = there.proxy.url if how in {"the network is cut", "each answer is an error"} else None
    run = start("three.py", options=there.options(through), standbys=1)
    run.at_work()
    run.standby_is_ready()
    driver, url = run.busy()[1]["driver_pid"], run.rest
    with AWAY[how](there):
        began = time.monotonic()
        led_s = last_led(run, url) - began
        time.sleep(max(0.0, began + AWAY_S - time.monotonic()))
    takeover = run.wait("takeover")
    same_driver = run.busy()[1]["driver_pid"] == driver
    # Without the right to post an Event, the loss itself is in the log only.
    lost = set() if how == "rights are revoked" else {"LeadershipLost"}
    story = there.told({"TakenOver", *lost})
    run.release()

    assert run.finish() == 0
    assert led_s <= RENEW_DEADLINE_S
    assert takeover["adopted"] == ["second job"]
    assert same_driver
    assert run.lines("jobs.txt") == ["first 1", "long 1", "third 1"]
    assert "jobs: 1 adopted" in story
    nothing_left()


@pytest.mark.long
@pytest.mark.parametrize("what", ["silent watches", "outdated watches"])
def test_a_leader_is_replaced_though_nobody_hears_of_it(
    start: Start, there: Place, what: str
) -> None:
    happening = Silence() if what == "silent watches" else refused(410, "Expired")
    run = start("three.py", options=there.options(there.proxy.url), standbys=1)
    run.at_work()
    leader = run.standby_is_ready()["leader"]
    with there.proxy.fault(happening, pattern="watch=true"):
        os.kill(leader["pid"], signal.SIGKILL)
        takeover = run.wait("takeover")
        run.release()

        assert run.finish() == 0
    assert takeover["adopted"] == ["second job"]
    assert run.lines("jobs.txt") == ["first 1", "long 1", "third 1"]


@pytest.mark.long
def test_a_server_that_is_back_in_time_costs_no_leadership(start: Start, there: Place) -> None:
    run = start("three.py", options=there.options(), standbys=1)
    run.at_work()
    before = run.leader()
    with frozen(there.plane.api_server):
        time.sleep(RENEW_DEADLINE_S / 3)
    after = run.until("/ha/status", lambda answer: answer["age_seconds"] == 0)["leader"]
    run.release()

    assert run.finish() == 0
    assert (before["id"], before["term"]) == (after["id"], after["term"])
    assert len(run.lines("main.txt")) == 1
