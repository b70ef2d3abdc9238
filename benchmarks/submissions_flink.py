"""The same submissions to a Flink session cluster: ``POST /jars/:id/run``, highly available."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from benchmarks.submitting import CLIENTS, ENDED, Found
from benchmarks.zookeeper import flink, processes
from benchmarks.zookeeper.flink import Flink
from tests.support.zookeeper import Server
from understudy.errors import ConfigurationError

ANSWER_S = 600.0
"""Longest time for one answer: a loaded JobManager answers all of them, late."""

SETTINGS = {
    "taskmanager.numberOfTaskSlots": "4",
    "jobmanager.memory.heap.size": "1024m",
    "high-availability.zookeeper.client.session-timeout": "10 s",
    "slot.request.timeout": "1 h",
    "web.refresh-interval": "100 ms",
}
"""The heap is what Flink's scripts compute by default. Jobs wait as long as there is no
TaskManager; answers that a JobManager keeps are not older than a tenth of a second."""


def run(count: int) -> Found | str:
    """Measure Flink; or say in a sentence why it cannot be had here, or has not come to an end."""
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as name:
        place = Path(name)
        try:
            source = flink.JAVA / "OneJob.java"
            jar = processes.compiled(source, [flink.jars() / "*"], place)
        except subprocess.CalledProcessError:
            return "Flink is not measured: its jars cannot be fetched here, or not be used."
        except ConfigurationError as error:
            return f"Flink is not measured: {error}."
        with (
            Server(place / "zookeeper", fsync=True) as server,
            flink.cluster(place / "flink", server.connect_string, **SETTINGS) as cluster,
        ):
            cluster.start_manager(0)
            cluster.start_manager(1)
            try:
                return asyncio.run(_measure(cluster, jar.stem, jar.read_bytes(), count))
            except (AssertionError, httpx.HTTPError) as error:
                print(error)
                lines = str(error).splitlines() or [type(error).__name__]
                return f"Flink has not come to an end: {lines[0]}."


async def _measure(cluster: Flink, name: str, jar: bytes, count: int) -> Found:
    """Without a TaskManager all jobs wait; it is started once another JobManager has taken over."""
    found = Found(f"Flink {flink.version()}")
    limits = httpx.Limits(max_connections=CLIENTS, max_keepalive_connections=CLIENTS)
    async with httpx.AsyncClient(timeout=ANSWER_S, limits=limits) as client:
        content = {"jarfile": (f"{name}.jar", jar, "application/x-java-archive")}
        answer = await client.post(cluster.url(0, "/jars/upload"), files=content)
        jar_id = answer.raise_for_status().json()["filename"].rpartition("/")[2]

        async def submit(number: int) -> None:
            body = {"entryClass": name, "programArgsList": [f"job {number}"]}
            answer = await client.post(cluster.url(0, f"/jars/{jar_id}/run"), json=body)
            answer.raise_for_status()

        await found.submit_all(count, submit)
    found.waiting = sum(one["state"] not in ENDED for one in _jobs(cluster, 0))
    began = time.monotonic()
    cluster.managers[0].kill()
    processes.until(
        "all jobs at the next leader",
        lambda: len(_jobs(cluster, 1)) >= count,
        [*cluster.managers.values()],
    )
    found.served_s = time.monotonic() - began
    cluster.start_manager(0)
    cluster.start_taskmanager()

    async def look() -> tuple[int, int]:
        ended = sum(one["state"] in ENDED for one in _jobs(cluster, 1))
        return ended, cluster.managers[1].popen.pid

    await found.note_costs(count, look)
    return found


def _jobs(cluster: Flink, slot: int) -> list[dict[str, Any]]:
    answer = cluster.ask(slot, "/jobs/overview", processes.END_S) or {}
    return list(answer.get("jobs", ()))
