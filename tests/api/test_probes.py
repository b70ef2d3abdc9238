"""The probes of a kubelet: leaders, standbys and TaskManagers answer everyone from memory."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from tests.api import serving
from tests.api.test_metrics import Manager, manager
from understudy.api.authentication import RestSecurity
from understudy.api.endpoint import MetricsEndpoint, bind_metrics
from understudy.api.metrics_taskmanager import serving as serving_metrics
from understudy.clock import SystemClock
from understudy.config import Configuration

SECURED = RestSecurity("0" * 64)


class Mains:
    """The warm process of main, as a test wants it."""

    def __init__(self, *, ready: bool) -> None:
        self.ready = ready


def jobmanager(*, ready: bool) -> Manager:
    found = manager(None, serving.services(), SystemClock())
    object.__setattr__(found.around, "mains", Mains(ready=ready))
    return found


def probed(one: Manager, *paths: str, method: str = "GET") -> list[tuple[int, str]]:
    """Ask without a token, in a cluster with a secret."""

    async def story() -> list[tuple[int, str]]:
        async with (
            serving.endpoint(one=one, security=SECURED) as port,
            httpx.AsyncClient(trust_env=False) as client,
        ):
            url = f"http://127.0.0.1:{port}"
            said = [await client.request(method, f"{url}{path}") for path in paths]
        return [(each.status_code, each.text) for each in said]

    return asyncio.run(story())


def test_a_standby_is_ready_once_it_could_lead() -> None:
    expected = [(200, "ok\n"), (503, "the process of main is not started yet\n")]

    assert expected == probed(jobmanager(ready=False), "/healthz", "/readyz")
    assert [(200, "ok\n")] == probed(jobmanager(ready=True), "/readyz")


def test_a_leader_is_ready_once_it_serves() -> None:
    one = jobmanager(ready=False)
    one.lead(3)
    before = probed(one, "/readyz")
    leadership: Any = one.term.leadership if one.term else None
    leadership.addresses = ("http://here", "here")

    assert [503, 200] == [before[0][0], probed(one, "/readyz")[0][0]]


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_all_else_needs_the_token(method: str) -> None:
    one = jobmanager(ready=True)

    assert [401, 401] == [status for status, _ in probed(one, "/healthz", "/readyz", method=method)]
    assert [401, 401] == [status for status, _ in probed(one, "/healthz/", "/v1/readyz")]


@pytest.mark.parametrize(("why", "expected"), [("", 200), ("no leader", 503)])
def test_a_taskmanager_answers_them_where_it_serves_metrics(why: str, expected: int) -> None:
    async def story() -> list[int]:
        bound = bind_metrics(Configuration({"metrics.reporter.prom.port": "0"}), "here")
        assert bound is not None
        endpoint = MetricsEndpoint(bound.listening, bound.url, SECURED, bound.hosts)
        async with (
            serving_metrics(CollectorRegistry(), endpoint, lambda: why),
            httpx.AsyncClient(trust_env=False) as client,
        ):
            url = endpoint.url.removesuffix("/metrics")
            paths = ("/healthz", "/readyz", "/metrics")
            return [(await client.get(f"{url}{path}")).status_code for path in paths]

    assert [200, expected, 401] == asyncio.run(story())
