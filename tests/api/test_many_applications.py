"""REST of a cluster that executes several applications: each request acts on the one it names."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from tests.api.test_metrics import Manager, manager
from tests.ha import ground
from tests.jobmanager.test_cleanup import NoLocks
from tests.jobmanager.test_dispatcher import DAMAGED
from tests.jobmanager.test_many_applications import FLIGHTS, damage, of, submitted
from tests.support.faulty_register import Durable
from tests.support.virtual_time import run_virtual
from understudy.api.rest import Rest
from understudy.ha.election import Leadership
from understudy.jobmanager.dispatcher import Binding, Dispatcher
from understudy.jobmanager.job_manager import JobManager, LeadingTerm
from understudy.jobmanager.resource_manager import ResourceManager
from understudy.model import Incarnation, LeaderRecord, RunId
from understudy.process.reporter import log_name

Json = dict[str, Any]


class Mains:
    """Where nobody gets a process; see `MainProcesses`."""

    ready = True

    async def take(self, python: str) -> None:
        """See `MainProcesses.take`."""
        await asyncio.Future()


@dataclass
class Led:
    """A leader, and who asks it."""

    manager: Manager
    dispatcher: Dispatcher
    client: httpx.AsyncClient

    async def get(self, path: str) -> Json:
        """Ask; the answer must be 200."""
        answer = await self.client.get(path)
        assert 200 == answer.status_code, answer.text
        found: Json = answer.json()
        return found

    async def post(self, path: str) -> int:
        """Ask for something; return the code."""
        return (await self.client.post(path)).status_code


@contextlib.asynccontextmanager
async def led(
    durable: Durable, settings: Mapping[str, str] | None = None, term: int = 2
) -> AsyncIterator[Led]:
    """Let a leader of a cluster that stays execute what there is."""
    one = manager(settings, ground.services(durable))
    one.around = replace(
        one.around,
        mains=cast("Any", Mains()),
        locks=cast("Any", NoLocks()),
        chance=random.Random(0),
    )
    leadership = Leadership(
        term, "s", LeaderRecord(holder=Incarnation(""), term=1, session=""), None, "it died"
    )
    resources = ResourceManager(term, 40.0, one.around.locks, one.around.clock, lambda: None)
    binding = Binding(None, False, None, session=True)
    dispatcher = Dispatcher(one.around, binding, leadership, resources)
    one.term = LeadingTerm(leadership, resources, dispatcher)
    leadership.addresses = ("http://here", "here")

    async def publish() -> None:
        """Everybody knows the address."""

    leading = asyncio.create_task(dispatcher.run(publish))
    await asyncio.sleep(3)
    transport = httpx.ASGITransport(app=Rest(cast("JobManager", one)).application())
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield Led(one, dispatcher, client)
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)


def states(overview: Json) -> dict[str, str]:
    """Return the state of each run."""
    return {one["run-id"]: one["status"] for one in overview["applications"]}


def test_each_application_is_listed_and_cancelled_by_its_own_id() -> None:
    async def main() -> None:
        durable = Durable()
        await submitted(durable, "one", "two")
        async with led(durable) as leader:
            await leader.dispatcher.submit(FLIGHTS, RunId("three"))
            await asyncio.sleep(1)
            before = states(await leader.get("/applications/overview"))
            code = await leader.post(f"/applications/{of('two')}/cancel")
            await asyncio.sleep(1)
            after = states(await leader.get("/applications/overview"))
            again = await leader.post(f"/applications/{of('two')}/cancel")
            unknown = await leader.post(f"/applications/{of('nobody')}/cancel")

        assert {"one": "RUNNING", "two": "RUNNING", "three": "CREATED"} == before
        assert {"one": "RUNNING", "two": "CANCELED", "three": "RUNNING"} == after
        assert (202, 202, 404) == (code, again, unknown)

    run_virtual(main())


def test_a_job_is_found_in_its_own_application() -> None:
    async def main() -> None:
        durable = Durable()
        stored = await submitted(durable, "one", "two")
        for number, run in enumerate(("one", "two"), start=1):
            plans = ground.services(durable).plans(stored[run])
            await plans.claim(1)
            await plans.add(1, ground.job(number, attempt=0))
        async with led(durable) as leader:
            listed = await leader.get("/jobs/overview")
            code = (await leader.client.patch(f"/jobs/{ground.job(2).job_id}")).status_code
            await asyncio.sleep(1)
            entries = [
                linked.application.jobs.entries
                for linked in leader.dispatcher.applications.values()
                if linked.application
            ]
            asked = {
                job_id: entry.cancel_requested for jobs in entries for job_id, entry in jobs.items()
            }

        assert {ground.job(1).job_id, ground.job(2).job_id} == {
            one["jid"] for one in listed["jobs"]
        }
        assert 202 == code
        assert {ground.job(1).job_id: False, ground.job(2).job_id: True} == asked

    run_virtual(main())


def test_a_job_tells_when_it_entered_each_state_whoever_leads() -> None:
    async def main() -> None:
        durable = Durable()
        stored = await submitted(durable, "one")
        plans = ground.services(durable).plans(stored["one"])
        await plans.claim(1)
        await plans.add(1, ground.job(1, attempt=1))
        path = f"/jobs/{ground.job(1).job_id}"
        async with led(durable, term=2) as leader:
            before = (await leader.get(path))["timestamps"]
            await leader.client.patch(path)
            await asyncio.sleep(1)
            cancelled = await leader.get(path)
        times = cancelled["timestamps"]
        async with led(durable, term=3) as leader:
            after = (await leader.get(path))["timestamps"]

        assert 0 == before["CANCELING"] < before["RESTARTING"]
        assert "CANCELED" == cancelled["state"]
        assert before["RESTARTING"] == times["RESTARTING"]
        assert times["RESTARTING"] < times["CANCELING"] <= times["CANCELED"]
        assert times == after, "the times are durable"

    run_virtual(main())


def test_one_that_cannot_be_read_is_listed_with_the_reason_beside_the_others() -> None:
    async def main() -> None:
        durable = Durable()
        stored = await submitted(durable, "one", "two")
        await damage(durable, stored["two"].key)
        async with led(durable) as leader:
            listed = states(await leader.get("/applications/overview"))
            status = await leader.get("/ha/status")
            details = await leader.get(f"/applications/{of('two')}")
            path = f"/applications/{of('two')}"
            refused = await leader.client.post(f"{path}/cancel")
            others = [
                (await leader.client.get(f"{path}/{what}")).status_code
                for what in ("exceptions", "jobmanager/config", "logs")
            ]

        assert {"one", "two"} == set(listed)
        assert "RUNNING" == listed["one"]
        assert [of("two")] == [one["id"] for one in status["attention"]]
        assert ("UNREADABLE", [409] * 3) == (details["status"], others)
        assert (409, "unreadable-application") == (refused.status_code, refused.json()["code"])
        assert details["problem"] in refused.json()["errors"][0]
        assert DAMAGED == durable.register._entries[stored["two"].key].value

    run_virtual(main())


def test_flinks_pages_find_what_they_ask_for_first() -> None:
    async def main() -> None:
        async with led(Durable(), {"execution.shutdown-on-application-finish": "false"}) as leader:
            settings = await leader.get("/config")
            overview = await leader.get("/overview")

        assert {
            "web-submit": True,
            "web-cancel": True,
            "web-rescale": False,
            "web-history": False,
        } == settings["features"]
        assert settings["flink-version"] == overview["flink-version"]

    run_virtual(main())


def test_log_files_are_listed_of_an_application_and_of_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def in_place(function: Any, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    monkeypatch.setattr("asyncio.to_thread", in_place)  # Virtual time knows no threads.

    async def main() -> None:
        durable = Durable()
        await submitted(durable, "one", "two")
        async with led(durable, {"env.log.dir": str(tmp_path)}) as leader:
            none = await leader.get("/jobmanager/logs")
            for run, full in (("one", True), ("two", False)):
                name = log_name(run, of(run))
                (tmp_path / f"{name}.log").write_text("a line\n")
                if full:
                    (tmp_path / f"{name}.log.1").write_text("an older line\n")
            own = (await leader.get(f"/applications/{of('one')}/logs"))["logs"]
            every = (await leader.get("/jobmanager/logs"))["logs"]
            answers = [
                await leader.client.get(f"/applications/{of('one')}/logs/{name}")
                for name in (own[0]["name"], own[1]["name"], "other.log")
            ]
            pieces = [
                await leader.client.get(f"/jobmanager/logs/{name}{offset}")
                for name in (own[0]["name"], own[1]["name"])
                for offset in ("", "?offset=2")
            ]
            (tmp_path / "other.log").write_text("of nobody here\n")
            refused = [
                await leader.client.get(path)
                for path in (
                    "/taskmanagers/nobody/logs",
                    f"/taskmanagers/nobody/logs/{own[0]['name']}",
                    "/jobmanager/logs/other.log",
                    "/jobmanager/logs/..%2F..%2Fetc%2Fpasswd",
                )
            ]

        assert {"logs": []} == none
        assert [7, 14] == [one["size"] for one in own]
        assert 3 == len(every)
        assert ["a line\n", "an older line\n"] == [one.text for one in answers[:2]]
        assert ["a line\n", "line\n", "an older line\n", " older line\n"] == [
            one.text for one in pieces
        ]
        assert [404] * 5 == [one.status_code for one in (answers[2], *refused)]

    run_virtual(main())


def test_an_application_has_its_own_settings_above_those_of_the_cluster() -> None:
    async def main() -> None:
        settings = {
            "execution.shutdown-on-application-finish": "false",
            "restart-strategy.type": "none",
        }
        async with led(Durable(), settings) as leader:
            mine = replace(FLIGHTS, configuration={"restart-strategy.type": "fixed-delay"})
            await leader.dispatcher.submit(mine, RunId("one"))
            found = await leader.client.get(f"/applications/{of('one')}/jobmanager/config")

        shown = {one["key"]: one["value"] for one in found.json()}
        assert {**settings, "restart-strategy.type": "fixed-delay"} == shown

    run_virtual(main())


def test_the_cluster_is_shut_down_once_the_answer_is_out_and_keeps_its_data(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "understudy.audit")

    async def main() -> None:
        durable = Durable()
        await submitted(durable, "one")
        async with led(durable) as leader:
            first = await leader.client.delete("/cluster")
            again = await leader.client.delete("/v1/cluster")
            asked = leader.manager.shutdown.asked.is_set()
        stored = await ground.services(durable).registry.read()

        assert [(202, {}), (202, {})] == [(one.status_code, one.json()) for one in (first, again)]
        assert asked
        assert stored is not None
        assert stored.shutdown
        assert ["one"] == [link.run_id for link in stored.applications.values()]

    run_virtual(main())
    assert 'do="DELETE /cluster" status=202' in caplog.text


def test_a_leader_of_the_past_shuts_nothing_down() -> None:
    async def main() -> None:
        durable = Durable()
        await submitted(durable, "one")
        async with led(durable) as leader:
            await ground.services(durable).registry.claim(3, ephemeral=False)
            refused = await leader.client.delete("/cluster")
            asked = leader.manager.shutdown.asked.is_set()
        stored = await ground.services(durable).registry.read()

        assert 503 == refused.status_code
        assert not asked
        assert stored is not None
        assert not stored.shutdown

    run_virtual(main())


def test_a_cluster_without_a_register_refuses_what_its_taskmanagers_cannot_learn() -> None:
    async def main() -> None:
        async with led(Durable(), {"high-availability.type": "NONE"}) as leader:
            refused = await leader.client.delete("/cluster")

        assert 409 == refused.status_code
        assert "understudy cluster stop" in refused.json()["errors"][0]

    run_virtual(main())
