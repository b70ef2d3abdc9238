"""What a TaskManager tells a scraper, and its server, which is never in its way."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import re
import socket
import time
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from tests.api.test_metrics import driver, leading, manager, only, read, scrape
from tests.api.test_metrics_checkpoints import linked, recorded
from tests.house.repository import ROOT
from tests.support.virtual_time import run_virtual
from tests.taskmanager.test_task_manager import HEARTBEAT_S, Scene
from understudy.api import metrics_taskmanager
from understudy.api.endpoint import bind_metrics
from understudy.api.metrics import ProcessMetrics
from understudy.api.metrics_jobmanager import JobManagerMetrics
from understudy.api.metrics_taskmanager import TaskManagerMetrics, serving
from understudy.config import Configuration
from understudy.errors import ConfigurationError
from understudy.rpc import messages
from understudy.taskmanager.driver import DriverCounts, DriverEnd
from understudy.taskmanager.task_manager import TaskManager, TaskManagerFacts

OWN = "understudy_taskmanager_"
DOCUMENT = ROOT / "docs" / "metrics.md"
URL = "http://127.0.0.1:9249/metrics"


class Told:
    """A TaskManager that says what a test has put into its mouth."""

    def __init__(self, facts: TaskManagerFacts) -> None:
        self.facts = facts


def of(manager: object) -> dict[str, float]:
    """Scrape a TaskManager."""
    registry = CollectorRegistry()
    registry.register(TaskManagerMetrics(cast("TaskManager", manager)))
    return scrape(registry)


def test_slots_drivers_and_attempts_are_told_by_state() -> None:
    counts = DriverCounts(starts=5, start_failures=2, attempts=9)
    counts.ends.update([DriverEnd.DIED, DriverEnd.RETIRED, DriverEnd.DIED])
    counts.attempt_ends.update(["finished", "lost", "finished", "failed"])
    drivers = (driver("a", "busy", 1, "job"), driver("b", "starting", 2), driver("c", "warm", None))
    facts = TaskManagerFacts(None, 4, False, 7.5, 3, drivers, 2, counts)

    actual = of(Told(facts))

    assert {"{state=busy}": 1, "{state=starting}": 1, "{state=empty}": 1} == only(
        actual, f"{OWN}slots"
    )
    assert {
        "{seat=slot,state=busy}": 1,
        "{seat=slot,state=starting}": 1,
        "{seat=spare,state=warm}": 1,
    } == only(actual, f"{OWN}drivers")
    assert (1, 2, 5, 2, 9) == tuple(
        actual[f"{OWN}{name}{{}}"]
        for name in (
            "attempts_running",
            "attempts_unrecorded",
            "driver_starts_total",
            "driver_start_failures_total",
            "attempts_total",
        )
    )
    assert {"{reason=died}": 2, "{reason=retired}": 1} == only(actual, f"{OWN}driver_ends_total")
    assert {"{status=finished}": 2, "{status=failed}": 1, "{status=lost}": 1} == only(
        actual, f"{OWN}attempt_ends_total"
    )
    assert 0 == actual[f"{OWN}attempt_ends_total{{status=canceled}}"]
    assert 7.5 == actual[f"{OWN}heartbeat_age_seconds{{}}"]


def test_what_is_known_of_the_leader_follows_the_story() -> None:
    async def story() -> list[tuple[float | None, ...]]:
        told: list[tuple[float | None, ...]] = []
        scene = Scene()

        def look() -> None:
            samples = of(scene.manager)
            told.append(
                tuple(
                    samples.get(f"understudy_{name}{{}}")
                    for name in (
                        "taskmanager_leader_known",
                        "taskmanager_registered",
                        "term",
                        "taskmanager_heartbeat_age_seconds",
                    )
                )
            )

        await asyncio.sleep(0)
        look()
        await scene.leader(3)
        look()
        await scene.welcome(3)
        await asyncio.sleep(1.0)
        look()
        await scene.leader(0)
        await asyncio.sleep(8.0)
        look()
        scene.task.cancel()
        return told

    told = run_virtual(story())
    ages = [age for *_, age in told if age is not None]

    assert [(0, 0, 0), (1, 0, 0), (1, 1, 3), (0, 1, 3)] == [one[:3] for one in told]
    assert 2 == len(ages)
    assert 0 < ages[0] < HEARTBEAT_S
    assert 10.0 == pytest.approx(ages[1] - ages[0])


# --- the server -----------------------------------------------------------------------------------


ANY_PORT = Configuration({"metrics.reporter.prom.port": "0"})


def test_a_scrape_over_http_is_answered_and_nothing_else_is() -> None:
    async def story() -> tuple[httpx.Response, httpx.Response, httpx.Response, bool]:
        endpoint = bind_metrics(ANY_PORT, "here")
        assert endpoint is not None
        registry = CollectorRegistry()
        facts = TaskManagerFacts(None, 4, False, None, 1, (), 0, DriverCounts())
        registry.register(TaskManagerMetrics(cast("TaskManager", Told(facts))))
        url = endpoint.url
        async with httpx.AsyncClient(trust_env=False) as client:
            async with serving(registry, endpoint):
                answers = [
                    await client.get(url),
                    await client.get(url.replace("metrics", "jobs")),
                    await client.post(url),
                ]
            try:
                await client.get(url)
            except httpx.HTTPError:
                gone = True
            else:
                gone = False
        return *cast("tuple[Any, Any, Any]", tuple(answers)), gone

    found, other, posted, gone = asyncio.run(story())

    assert (200, 404, 405) == (found.status_code, other.status_code, posted.status_code)
    assert found.headers["content-type"].startswith("text/plain; version=")
    assert 4 == read(found.text)["understudy_term{}"]
    assert gone


def test_a_port_that_is_taken_is_passed_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with socket.create_server(("127.0.0.1", 0)) as free:
            first, second = taken.getsockname()[1], free.getsockname()[1]
        endpoint = bind_metrics(
            Configuration({"metrics.reporter.prom.port": f"{first},{second}"}), "here"
        )

    assert endpoint is not None
    with endpoint.listening:
        assert f"http://127.0.0.1:{second}/metrics" == endpoint.url


def test_where_no_port_is_free_that_is_said_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, caplog.at_level(logging.WARNING):
        port = taken.getsockname()[1]
        endpoint = bind_metrics(Configuration({"metrics.reporter.prom.port": str(port)}), "here")

    assert endpoint is None
    assert [
        f"no metrics are served: metrics.reporter.prom.port: none of {port}-{port} on 127.0.0.1 is "
        "free: give others"
    ] == caplog.messages


def test_where_nobody_is_to_be_given_metrics_no_port_is_opened() -> None:
    assert bind_metrics(Configuration({"metrics.reporters": ""}), "here") is None


def test_an_address_that_others_could_reach_is_refused_without_a_secret() -> None:
    with pytest.raises(ConfigurationError) as caught:
        bind_metrics(Configuration({"taskmanager.bind-host": "0.0.0.0"}), "here")

    assert (
        "taskmanager.bind-host is '0.0.0.0', where others could read the metrics of TaskManagers: "
        "set security.secret-file, or leave it at 127.0.0.1"
    ) == str(caught.value)


def test_where_there_is_a_secret_only_those_who_show_the_token_are_answered(
    tmp_path: Path,
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret of the cluster\n")
    secret.chmod(0o600)
    options = {
        "taskmanager.bind-host": "0.0.0.0",
        "metrics.reporter.prom.port": "0",
        "security.secret-file": str(secret),
    }

    async def story() -> tuple[list[int], str]:
        endpoint = bind_metrics(Configuration(options), "localhost")
        assert endpoint is not None
        headers: list[dict[str, str]] = [
            {}, {"authorization": "Bearer 0"}, endpoint.security.headers(),
        ]  # fmt: skip
        async with (
            httpx.AsyncClient(trust_env=False) as client,
            serving(CollectorRegistry(), endpoint),
        ):
            answers = [await client.get(endpoint.url, headers=one) for one in headers]
        return [one.status_code for one in answers], endpoint.url

    statuses, url = asyncio.run(story())

    assert [401, 401, 200] == statuses
    assert url.startswith("http://localhost:")


def test_without_a_socket_the_block_just_runs() -> None:
    async def story() -> str:
        async with serving(CollectorRegistry(), None):
            return "ran"

    assert "ran" == asyncio.run(story())


def test_whoever_stays_connected_does_not_hold_up_the_end() -> None:
    async def story() -> float:
        endpoint = bind_metrics(ANY_PORT, "here")
        assert endpoint is not None
        async with serving(CollectorRegistry(), endpoint):
            host, port = endpoint.listening.getsockname()
            _, silent = await asyncio.open_connection(host, port)
            _, half = await asyncio.open_connection(host, port)
            half.write(b"GET /metrics HTTP/1.1\r\n")
            await half.drain()
            await asyncio.sleep(0.2)
            began = time.monotonic()
        took = time.monotonic() - began
        silent.close()
        half.close()
        return took

    # A busy machine adds to some; uvicorn's own look at what is connected would add to each.
    assert min(asyncio.run(story()) for _ in range(5)) < 0.09


def test_more_connections_than_there_are_scrapers_keep_no_scraper_out() -> None:
    """Who has said nothing for longest gives way."""

    async def story() -> int:
        endpoint = bind_metrics(ANY_PORT, "here")
        assert endpoint is not None
        async with serving(CollectorRegistry(), endpoint), httpx.AsyncClient() as client:
            host, port = endpoint.listening.getsockname()
            held = [
                await asyncio.open_connection(host, port)
                for _ in range(metrics_taskmanager.CONNECTIONS_MAX * 3)
            ]
            status = (await client.get(endpoint.url)).status_code
            with contextlib.suppress(ConnectionError):
                assert b"" == await held[0][0].read()
            for _, writer in held:
                writer.close()
        return status

    assert 200 == asyncio.run(story())


def test_a_registration_carries_where_the_metrics_are() -> None:
    async def story() -> str:
        scene = Scene()
        scene.manager._me = dataclasses.replace(scene.manager._me, metrics=URL)
        await scene.leader(1)
        envelope = await scene.network.links[-1][1].receive()
        scene.task.cancel()
        assert envelope is not None
        assert isinstance(envelope.message, messages.RegisterTaskManager)
        return envelope.message.metrics

    told = run_virtual(story())

    assert URL == told


def test_each_metric_stands_in_the_document_with_its_type_and_labels() -> None:
    async def story() -> list[Metric]:
        one = manager()
        one.lead(1)
        await one.around.services.register.load("k")
        assert one.term is not None
        one.term.dispatcher.applications = linked((recorded(1, (1.0, 1.0, 10)), False))
        facts = TaskManagerFacts(None, 4, False, 1.0, 1, (), 0, DriverCounts())
        taskmanager = TaskManagerMetrics(cast("TaskManager", Told(facts)))
        process = ProcessMetrics("jobmanager", "jm-1", one.around.services)
        return [
            family
            for collector in (JobManagerMetrics(leading(one)), taskmanager, process)
            for family in collector.collect()
        ]

    documented = {
        name: (kind, set(re.findall("`([a-z]+)`", labels)))
        for name, kind, labels in re.findall(
            r"^\| `(understudy_[a-z_]+)` \| (\w+) \|([^|]*)\|", DOCUMENT.read_text(), re.MULTILINE
        )
    }
    suffixes, kinds = {"counter": "_total", "info": "_info"}, {"info": "gauge"}
    served = {
        family.name + suffixes.get(family.type, ""): (
            kinds.get(family.type, family.type),
            {label for sample in family.samples for label in sample.labels} - {"le"},
        )
        for family in run_virtual(story())
    }

    assert documented == served
