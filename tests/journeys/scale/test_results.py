"""A cluster that remembers a thousand ended runs is taken over, and asked, as quickly as ever."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.journeys import harness
from tests.journeys.conftest import Start
from tests.journeys.harness import BY_PROOF_S, command
from understudy.cli.launch.compose import open_services
from understudy.ha import layout
from understudy.ha.documents import Document
from understudy.ha.format import digest
from understudy.ha.register import Releasable
from understudy.ha.registry import REGISTRY_KEY
from understudy.jobmanager.retention import tombstones
from understudy.model import (
    ApplicationId,
    ApplicationResult,
    ApplicationStatus,
    JobId,
    JobRecord,
    JobStatus,
    Pointer,
    RegistryBody,
    RunId,
    Tombstone,
    TombstoneFile,
)

RUNS = 1_000
CLUSTER = "kept"
NAMED = ("-D", f"high-availability.cluster-id={CLUSTER}")
KEPT = ("-D", "application-result-store.delete-on-commit=false")
QUICK_S = BY_PROOF_S
"""A takeover takes a tenth of a second, and a question less."""
COMMAND_S = 30.0
"""A command starts a Python first."""
NOW = time.time()


def remembered(number: int, storage: Path) -> Tombstone:
    """Leave what remains of an ended run: its tombstone's file, and two result files."""
    run, application = RunId(f"run-{number:04}"), ApplicationId(f"{number:032x}")
    result = ApplicationResult(
        application_id=application,
        application_name="flights",
        run_id=run,
        status=ApplicationStatus.FINISHED,
        start_time=NOW - 10,
        end_time=NOW,
    )
    job = JobRecord(JobId(f"{number:032x}"), "load", JobStatus.FINISHED, 1, NOW - 10, NOW)
    data = tombstones.dump(TombstoneFile(result=result, jobs=(job,)))
    path = layout.tombstone_path(CLUSTER, run, 1)
    for name in (
        path,
        *(f"{one}/{number:032x}.json" for one in layout.result_directories(CLUSTER)),
    ):
        (storage / name).parent.mkdir(parents=True, exist_ok=True)
        (storage / name).write_bytes(data)
    return Tombstone(
        application_id=application,
        run_id=run,
        name="flights",
        status=ApplicationStatus.FINISHED,
        started_at=NOW - 10,
        ended_at=NOW,
        file=Pointer(path=path, digest=digest(data), size=len(data)),
    )


@pytest.fixture
def storage(place: Path) -> Path:
    """Return the storage of a cluster that has executed a thousand applications."""
    storage = place / "state" / "understudy" / "ha"
    stones = {stone.run_id: stone for stone in (remembered(n, storage) for n in range(RUNS))}
    lies_at = {"high-availability.storageDir": str(storage)}
    configuration = harness.configuration(place, lies_at)
    services = open_services(configuration, CLUSTER, as_jobmanager=True)

    async def fill() -> None:
        await services.registry.claim(1, ephemeral=False)
        document = Document(services.register, REGISTRY_KEY, "registry", RegistryBody)
        await document.update(1, lambda body: replace(body, tombstones=stones))

    asyncio.run(fill())
    if isinstance(services.backend, Releasable):
        services.backend.release()
    return storage


@pytest.mark.local_storage  # What is remembered is written there.
def test_it_is_taken_over_and_asked_quickly_and_forgets_nothing(
    start: Start,
    place: Path,
    storage: Path,
) -> None:
    run = start("three.py", options=(*NAMED, *KEPT), standbys=1)
    run.grown("jobs.txt", 2)
    os.kill(run.standby_is_ready()["leader"]["pid"], signal.SIGKILL)
    takeover = run.wait("takeover")
    asked = {}
    for path in ("/applications/overview", "/ha/status", "/overview"):
        began = time.monotonic()
        run.get(path)
        asked[path] = time.monotonic() - began
    began = time.monotonic()
    listed = json.loads(command(place, "list", *NAMED, "--json").stdout)["applications"]
    list_s = time.monotonic() - began
    run.release()
    code = run.finish()
    told = json.loads(command(place, "result", "run-0500", *NAMED, "--json").stdout)
    files = [len(list((storage / one).iterdir())) for one in layout.result_directories(CLUSTER)]

    assert 0 == code, run.story()
    assert takeover["seconds"] < QUICK_S
    assert {} == {path: seconds for path, seconds in asked.items() if seconds > QUICK_S}
    assert list_s < COMMAND_S
    assert RUNS + 1 == len(listed)
    assert "FINISHED" == told["status"]
    assert [RUNS + 3, RUNS + 1] == files
    assert RUNS + 1 == len(list((storage / CLUSTER / "tombstones").iterdir()))
