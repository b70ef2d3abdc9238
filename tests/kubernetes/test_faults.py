"""The proxy with faults: each is what it is called, and the API server hears what it shall."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.kubernetes.api import COORDINATION, Api, RefusedError, await_that, path
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.faults import (
    CloseEarly,
    Delay,
    FaultyApi,
    LoseReply,
    Silence,
    Stall,
    html,
    refused,
)
from tests.kubernetes.rights import Rights, Rule

pytestmark = pytest.mark.kubernetes

SHORT_S = 0.5


class Ground:
    """A client whose requests go through the proxy, in a namespace of its own."""

    def __init__(self, plane: ControlPlane, namespace: str, faulty: FaultyApi, api: Api) -> None:
        self.plane = plane
        self.faulty = faulty
        self.api = api
        self.place = path(COORDINATION, "leases", namespace=namespace)

    def create(self, name: str) -> None:
        """Create a Lease through the proxy."""
        self.api.create(self.place, {"metadata": {"name": name}})

    def exists(self, name: str) -> bool:
        """Return whether the API server has a Lease."""
        return self.plane.admin.find(f"{self.place}/{name}") is not None

    def asked(self) -> int:
        """Return how many requests of the client have reached the API server."""
        return len(self.plane.audit.requests(self.user))

    user = ""


@pytest.fixture
def ground(kubernetes: ControlPlane) -> Iterator[Ground]:
    with kubernetes.namespace() as namespace, FaultyApi(kubernetes) as faulty:
        user = kubernetes.service_account("client", namespace)
        everything = Rule("leases", ("get", "list", "watch", "create"), "coordination.k8s.io")
        Rights(kubernetes, namespace, user).grant([everything])
        token = kubernetes.token("client", namespace)
        api = Api(faulty.url, kubernetes.keys.client_context(), token)
        kubernetes.audit.begin()
        ground = Ground(kubernetes, namespace, faulty, api)
        ground.user = user
        yield ground
        api.close()


def test_without_a_fault_requests_and_watches_pass(ground: Ground) -> None:
    ground.create("one")
    event = next(ground.api.watch(ground.place))

    assert ("ADDED", "one") == (event["type"], event["object"]["metadata"]["name"])
    assert 2 == ground.asked()


@pytest.mark.parametrize("status", [410, 429, 500, 503])
def test_an_answer_is_given_as_often_as_it_shall_and_the_api_server_not_asked(
    ground: Ground, status: int
) -> None:
    with ground.faulty.fault(refused(status, "Any"), "POST", times=1) as fault:
        with pytest.raises(RefusedError) as failed:
            ground.create("one")
        assert status == failed.value.code
        assert 0 == ground.asked()
        ground.create("one")

    assert 1 == fault.met
    assert ground.exists("one")


def test_a_header_says_when_to_try_again(ground: Ground) -> None:
    with ground.faulty.fault(refused(429, "TooManyRequests", Retry_After="7")):
        answer = ground.api.http.get(ground.place)

    assert "7" == answer.headers["Retry-After"]


def test_html_is_what_a_load_balancer_says(ground: Ground) -> None:
    with ground.faulty.fault(html()):
        answer = ground.api.http.get(ground.place)

    assert (502, "text/html") == (answer.status_code, answer.headers["Content-Type"])
    assert answer.text.startswith("<html>")


def test_a_lost_reply_is_of_a_write_that_was_done(ground: Ground) -> None:
    with (
        ground.faulty.fault(LoseReply(), "POST"),
        pytest.raises(httpx.RemoteProtocolError),
    ):
        ground.create("one")

    assert ground.exists("one")


def test_a_stalled_request_reaches_nobody(ground: Ground) -> None:
    with ground.faulty.fault(Stall()), pytest.raises(httpx.ReadTimeout):
        ground.api.http.post(ground.place, json={"metadata": {"name": "one"}}, timeout=SHORT_S)

    assert not ground.exists("one")


def test_a_delayed_request_arrives_late(ground: Ground) -> None:
    with ground.faulty.fault(Delay(SHORT_S), "POST"), pytest.raises(httpx.ReadTimeout):
        ground.api.http.post(ground.place, json={"metadata": {"name": "one"}}, timeout=SHORT_S / 2)
    with ground.faulty.fault(Delay(SHORT_S), "POST"):
        ground.create("two")

    assert not ground.exists("one")
    assert ground.exists("two")


def test_a_watch_that_is_silenced_tells_nothing_until_it_may(ground: Ground) -> None:
    names = (event["object"]["metadata"]["name"] for event in ground.api.watch(ground.place))
    ground.create("before")
    assert "before" == next(names)

    with ground.faulty.fault(Silence(), "GET", "watch=true"):
        ground.create("during")
        short = httpx.Timeout(10.0, read=SHORT_S)
        parameters = {"watch": "true"}
        with (
            pytest.raises(httpx.ReadTimeout),
            ground.api.http.stream("GET", ground.place, params=parameters, timeout=short),
        ):
            pass

    assert "during" == next(names)


def test_a_watch_that_is_closed_early_ends(ground: Ground) -> None:
    ground.create("one")
    with (
        ground.faulty.fault(CloseEarly(), pattern="watch=true") as fault,
        pytest.raises(httpx.RemoteProtocolError),
    ):
        next(ground.api.watch(ground.place))

    assert 1 == fault.met


def test_who_is_cut_off_hears_nothing_and_goes_on_afterwards(ground: Ground) -> None:
    with ground.faulty.cut_off(), pytest.raises(httpx.ReadTimeout):
        ground.api.http.get(ground.place, timeout=SHORT_S)

    assert [] == ground.api.get(ground.place)["items"]


def test_when_all_connections_are_dropped_a_watch_ends_at_once(ground: Ground) -> None:
    ground.create("one")
    events = ground.api.watch(ground.place)
    assert next(events)
    ground.faulty.drop_connections()

    with pytest.raises(httpx.HTTPError):
        next(events)
    ground.create("two")
    await_that("it is there", lambda: ground.exists("two"))
