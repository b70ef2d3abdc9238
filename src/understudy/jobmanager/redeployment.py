"""Changes that a person makes by restarting an unfinished run: new code, discarded results.

The command line computes `Changes` once, from the register's content at that moment, and passes
them to every JobManager of that start, later replacements included. Each part names the digest of
the record or result that it replaces. So the first of these JobManagers to lead applies each
change once: a standby that was started with older code finds another record than the one that its
`Changes` name, and changes nothing (docs/decisions/012-other-code-over-an-unfinished-run.md).
"""

from __future__ import annotations

import functools
import logging

import msgspec
from msgspec.structs import replace

from understudy.core import recovery
from understudy.ha.application_store import StoredApplication
from understudy.ha.execution_plan_store import ExecutionPlanStore
from understudy.ha.services import HighAvailabilityServices
from understudy.jobmanager.checkpoint_cleanup import remove_checkpoints
from understudy.jobmanager.submission import Submission
from understudy.model import JobEntry, JobId, Restarts, Term
from understudy.process.persist import once, persist
from understudy.process.reporter import Reporter

_log = logging.getLogger(__name__)


class Changes(msgspec.Struct, frozen=True):
    """Changes to the run that was unfinished when a person restarted it."""

    over: str = ""
    """Digest of the record whose code is replaced; empty where the code is the same."""
    files: tuple[str, ...] = ()
    """Parts of the code that differ, for people."""
    rerun: dict[JobId, str] = {}
    """Jobs whose result is discarded, each with the digest of that result."""
    cancel: str = ""
    """The run that is cancelled instead of executed."""


NO_CHANGES = Changes()


async def deploy(
    services: HighAvailabilityServices,
    stored: StoredApplication,
    submission: Submission | None,
    changes: Changes,
    term: Term,
    now: float,
) -> bool:
    """Deploy the submission's code if the run still has the expected record; return whether.

    Raises `DataError` or `NotFoundError` where the record cannot be read.
    """
    body = stored.body
    if submission is None or not changes.over or body.result is not None:
        return False
    if body.record.digest != changes.over:
        _log.info("run %s has been deployed again since this process was started", body.run_id)
        return False
    gone = [str(file.path) for file in submission.files if not file.is_there()]
    if gone:  # The stored code still works: failing here would fail every leader.
        _log.error("other code cannot be deployed, %s is gone: the run's is used", ", ".join(gone))
        return False
    old = await services.applications.record(body)
    record = await services.storage.run(
        submission.store, services, body.run_id, body.directory, now
    )
    # The ids of the existing jobs are derived from the first job's id.
    record = replace(record, first_job_id=old.first_job_id)
    record = replace(record, savepoints=old.savepoints)  # A run starts from them only once.
    await persist("deploy other code", lambda: services.applications.redeploy(stored, term, record))
    return True


def report_deployment(
    stored: StoredApplication, plans: ExecutionPlanStore, changes: Changes, reporter: Reporter
) -> None:
    """Report the deployment, and the jobs whose attempts are stopped for it."""
    body = stored.body
    stopped = [
        entry.name
        for entry in plans.entries.values()
        if recovery.is_outdated(entry, body.deployment)
    ]
    _log.info("run %s: other code is deployed: %s", body.run_id, ", ".join(changes.files))
    reporter.event(
        "application-redeployed",
        application_id=body.application_id,
        run_id=body.run_id,
        deployment=body.deployment,
        changed=list(changes.files),
        stopped=stopped,
    )


async def discard(
    services: HighAvailabilityServices,
    plans: ExecutionPlanStore,
    changes: Changes,
    term: Term,
    reporter: Reporter,
) -> None:
    """Discard the results that a person named, unless they were replaced since.

    Such a job begins without checkpoints: it owns none of its earlier attempts' files. Attempt
    numbers continue, so that no file of an earlier attempt is taken for a new one's.
    """
    for job_id, source in changes.rerun.items():
        entry = plans.entries.get(job_id)
        if entry is None or entry.result is None or entry.result.source.digest != source:
            continue
        # Before the discard: it clears the checkpoints' address. Retained checkpoints stay.
        await once(
            "remove what a discarded result has left",
            functools.partial(remove_checkpoints, services.storage, entry),
        )
        await _discard(plans, job_id, source, term)
        remove = functools.partial(services.storage.delete, services.job_results.dirty_path(job_id))
        await once("remove a discarded result", remove)
        _log.info("job %r: its result is discarded, it runs again", entry.name)
        reporter.event(
            "result-discarded",
            job_id=job_id,
            name=entry.name,
            status=entry.result.status.value,
            attempt=entry.result.attempt,
        )


async def _discard(plans: ExecutionPlanStore, job_id: JobId, source: str, term: Term) -> None:
    def change(entry: JobEntry) -> JobEntry:
        if entry.result is None or entry.result.source.digest != source:
            return entry
        return replace(
            entry,
            result=None,
            intent=None,
            deployment=0,
            restarts=Restarts(),
            displaced=False,
            cancel_requested=False,
            stop_requested=None,
            checkpoints="",  # The sweep removes the unlinked document.
            begun_after=entry.attempt,
            timestamps={},
        )

    await persist("discard a result", lambda: plans.update(term, job_id, change))
