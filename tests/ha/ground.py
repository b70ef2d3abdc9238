"""A small cluster's stores over what outlives every process, and an application to put there."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tests.support.faulty_register import Durable, Faults
from understudy.ha import layout
from understudy.ha.application_store import StoredApplication
from understudy.ha.documents import Stamped
from understudy.ha.execution_plan_store import ExecutionPlanStore
from understudy.ha.format import Format, digest
from understudy.ha.result_store import outcomes
from understudy.ha.services import HighAvailabilityServices, Locations
from understudy.model import (
    ApplicationDocument,
    ApplicationId,
    ApplicationRecord,
    Checkpoints,
    Incarnation,
    Intent,
    JobEntry,
    JobId,
    JobResultEntry,
    JobStatus,
    Outcome,
    Pointer,
    RegistryBody,
    RunId,
    Segment,
)

CLUSTER = "flights"
RUN = RunId("run-1")
APPLICATION = ApplicationId("a" * 32)
LOCATIONS = Locations(CLUSTER, f"job-result-store/{CLUSTER}", f"application-result-store/{CLUSTER}")
Body = RegistryBody | ApplicationDocument | Segment | Checkpoints
BODIES: dict[str, type[Body]] = {
    "registry": RegistryBody,
    "application": ApplicationDocument,
    "jobs": Segment,
    "checkpoints": Checkpoints,
}


def services(durable: Durable, faults: Faults | None = None) -> HighAvailabilityServices:
    """Open the stores as one more process does."""
    register, storage = durable.process(faults)
    return HighAvailabilityServices(register, storage, CLUSTER, LOCATIONS)


def record(run: RunId = RUN, application: ApplicationId = APPLICATION) -> ApplicationRecord:
    """Return how to execute an application."""
    return ApplicationRecord(
        application_id=application,
        run_id=run,
        name="flights",
        target="app.py",
        script="app.py",
        args=("--year", "2013"),
        submitted_at=100.0,
    )


def job(number: int, attempt: int = 1) -> JobEntry:
    """Return a job that has been submitted."""
    return JobEntry(
        job_id=JobId(f"{number:032x}"),
        name=f"job {number}",
        occurrence=0,
        plan=Pointer(path=f"plans/{number}", digest="sha256:0", size=1),
        submitted_at=100.0 + number,
        attempt=attempt,
    )


def intent(checkpoints: str = "", staged: str = "") -> Intent:
    """Return what a first attempt was about to do; ``checkpoints`` is what a person has chosen."""
    return Intent(
        attempt=1,
        taskmanager=Incarnation("tm"),
        driver=Incarnation("d"),
        term=1,
        staged=staged,
        checkpoints=checkpoints,
    )


async def submitted(stores: HighAvailabilityServices, term: int = 1) -> StoredApplication:
    """Claim the registry, and put the application."""
    await stores.registry.claim(term, ephemeral=False)
    return await stores.applications.put(term, record(), stores.applications.new_directory())


async def opened(stores: HighAvailabilityServices, term: int = 1) -> ExecutionPlanStore:
    """Put the application, and open its jobs."""
    plans = stores.plans(await submitted(stores, term))
    await plans.claim(term)
    return plans


async def taken_over(
    stores: HighAvailabilityServices, term: int
) -> tuple[StoredApplication, ExecutionPlanStore]:
    """Do what a new leader does first, where one application is linked."""
    registry = await stores.registry.claim(term, ephemeral=False)
    (stored,) = (await stores.applications.recover(term, registry)).sound
    plans = stores.plans(stored)
    await plans.claim(term)
    return stored, plans


def outcome(entry: JobEntry, value: bytes = b'{"rows":336776}') -> bytes:
    """Return what the job's attempt stages."""
    return outcomes.dump(
        Outcome(
            job_id=entry.job_id,
            job_name=entry.name,
            application_id=APPLICATION,
            run_id=RUN,
            status=JobStatus.FINISHED,
            attempt=entry.attempt,
            start_time=200.0,
            end_time=300.0,
            value=msgspec.Raw(value),
        ),
        pretty=True,
    )


def staged(directory: str, entry: JobEntry) -> str:
    """Return where the job's attempt stages its outcome."""
    return layout.staged_path(CLUSTER, directory, entry.job_id, entry.attempt)


def with_result(entry: JobEntry, path: str, data: bytes) -> JobEntry:
    """Return the job with its result committed."""
    source = Pointer(path=path, digest=digest(data), size=len(data))
    result = JobResultEntry(
        status=JobStatus.FINISHED,
        attempt=entry.attempt,
        source=source,
        start_time=200.0,
        end_time=300.0,
    )
    return replace(entry, result=result)


def decoded(key: str, value: bytes) -> tuple[int, Body]:
    """Return the term and the body that a document's bytes hold."""
    kind = key.partition("-")[0]
    stamped: Stamped = Format(kind, Stamped).load(value, key)
    return stamped.term, msgspec.json.decode(stamped.body, type=BODIES[kind])
