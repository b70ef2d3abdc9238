"""Routes about savepoints; paths and shapes are Flink's.

A request is answered at once with an id, which has a status. The same id again (``triggerId``)
returns the same savepoint, so that a request may be repeated.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from understudy.api import answers, audit, bodies, views
from understudy.api.answers import Operation, Routes
from understudy.api.leading import BuriedJob, Leading
from understudy.api.views import Json
from understudy.config import options
from understudy.errors import CheckpointError, NotFoundError, TooLargeError, UsageError
from understudy.ha import permits, savepoints
from understudy.jobmanager.savepoint_coordinator import name_of
from understudy.model import Failure, JobStatus, Savepoint

DISPOSALS_MAX = 100
"""Most disposals whose status is kept; the oldest are forgotten."""

_TRIGGER = re.compile(r"[0-9a-f]{32}")


class SavepointRoutes:
    """``/jobs/:id/savepoints``, ``/jobs/:id/stop`` and ``/savepoint-disposal``."""

    def __init__(self, leading: Leading) -> None:
        self._leading = leading
        self._disposals: dict[str, asyncio.Task[None]] = {}

    def routes(self) -> Routes:
        """Return method, path and handler of each."""
        one = "/jobs/{job_id}"
        return [
            Operation(
                *("POST", f"{one}/savepoints", self._trigger),
                "Make a savepoint of a job.",
                bodies.Triggered,
                202,
                bodies.SavepointTrigger,
            ),
            Operation(
                *("GET", f"{one}/savepoints/{{trigger}}", self._status),
                "Whether a savepoint is made.",
                bodies.OperationStatus,
            ),
            Operation(
                *("POST", f"{one}/stop", self._stop),
                "End a job with a savepoint.",
                bodies.Triggered,
                202,
                bodies.StopWithSavepoint,
            ),
            Operation(
                *("POST", "/savepoint-disposal", self._dispose),
                "Remove a savepoint.",
                bodies.Triggered,
                202,
                bodies.SavepointDisposal,
            ),
            Operation(
                *("GET", "/savepoint-disposal/{trigger}", self._disposal),
                "Whether a savepoint is removed.",
                bodies.OperationStatus,
            ),
        ]

    async def _trigger(self, request: Request) -> Response:
        body = await _body(request)
        then = JobStatus.CANCELED if _flag(body, "cancel-job") else None
        return await self._take(request, body, _text(body, "target-directory"), then)

    async def _stop(self, request: Request) -> Response:
        body = await _body(request)
        if _flag(body, "drain"):
            raise UsageError(
                "drain: true is not supported: Spark has no final watermark to let through; leave "
                "it out"
            )
        return await self._take(request, body, _text(body, "targetDirectory"), JobStatus.FINISHED)

    async def _take(
        self, request: Request, body: Json, directory: str, then: JobStatus | None
    ) -> Response:
        trigger = _trigger_of(body)
        found = await self._leading.job(str(request.path_params["job_id"]))
        settings = self._leading.settings
        target = directory or settings.savepoint_directory
        if not target:
            raise UsageError(
                "there is no directory for the savepoint: give one, or set "
                f"{options.SAVEPOINT_DIR.key}"
            )
        if not target.startswith("/") and "://" not in target:
            raise UsageError(f"{target}: give an absolute path or a URL for the savepoint")
        if directory and not await self._is_permitted(trigger, directory):
            settings.savepoint_places.refuse_target(directory)
        if isinstance(found, BuriedJob) or found.facts.entries[found.job_id].result:
            if await self._find(request, trigger):
                return self._leading.json({"request-id": trigger}, 202)
            return answers.error(409, "The job has ended already.")
        application = self._leading.term.dispatcher.application_of(found.job_id)
        if application is None:
            return answers.error(409, "The job's application is not executed just now.")
        master = application.jobs.masters[found.job_id]
        try:
            wanted = await master.savepoints.trigger(trigger, target, then)
        except (CheckpointError, TooLargeError) as error:
            return answers.error(409, str(error))
        return self._leading.json({"request-id": wanted.trigger, "location": wanted.location}, 202)

    async def _is_permitted(self, trigger: str, directory: str) -> bool:
        """Say whether a command of the user who runs the cluster has named the directory."""
        services = self._leading.manager.around.services
        cluster = services.locations.cluster
        return await permits.is_granted(services.storage, cluster, trigger, directory)

    async def _status(self, request: Request) -> Response:
        trigger = str(request.path_params["trigger"])
        found = await self._find(request, trigger)
        if found is None:
            raise NotFoundError(f"no savepoint {trigger} was asked for of this job")
        if found.is_pending:
            return self._leading.json({"status": {"id": "IN_PROGRESS"}})
        return self._leading.json(_completed(_operation(found)))

    async def _find(self, request: Request, trigger: str) -> Savepoint | None:
        """Return the savepoint of a trigger id; for an ended job, its last savepoint."""
        found = await self._leading.job(str(request.path_params["job_id"]))
        if isinstance(found, BuriedJob):
            job_id, location = found.record.job_id, found.record.savepoint
        else:
            job_id = found.job_id
            application = self._leading.term.dispatcher.application_of(found.job_id)
            master = application.jobs.masters.get(job_id) if application else None
            if master and (taken := master.savepoints.find(trigger)):
                return taken
            result = found.facts.entries[job_id].result
            location = result.savepoint if result else ""
        if location.rpartition("/")[2].startswith(name_of(job_id, trigger)):
            return Savepoint(trigger=trigger, location=location, completed_at=1.0)
        return None

    # --- disposal ---------------------------------------------------------------------------------

    async def _dispose(self, request: Request) -> Response:
        body = await _body(request)
        path, trigger = _text(body, "savepoint-path"), _trigger_of(body)
        if not path:
            raise UsageError("savepoint-path is missing: which savepoint is to be removed?")
        audit.about(request, path)
        self._leading.settings.savepoint_places.refuse_disposal(path)
        if trigger not in self._disposals:
            while len(self._disposals) >= DISPOSALS_MAX:
                self._disposals.pop(next(iter(self._disposals)))
            work = asyncio.to_thread(lambda: savepoints.remove(savepoints.read(path)))
            self._disposals[trigger] = asyncio.create_task(work)
        return self._leading.json({"request-id": trigger}, 202)

    async def _disposal(self, request: Request) -> Response:
        trigger = str(request.path_params["trigger"])
        task = self._disposals.get(trigger)
        if task is None:
            raise NotFoundError(f"no disposal {trigger} was asked for here")
        if not task.done():
            return self._leading.json({"status": {"id": "IN_PROGRESS"}})
        error = task.exception()
        if error is None:
            return self._leading.json(_completed({}))
        failure = Failure(type=type(error).__name__, message=str(error))
        return self._leading.json(_completed({"failure-cause": views.cause(failure)}))


def _completed(operation: Json) -> Json:
    return {"status": {"id": "COMPLETED"}, "operation": operation}


def _operation(found: Savepoint) -> Json:
    if found.failure:
        return {"failure-cause": views.cause(found.failure)}
    return {"location": found.location}


async def _body(request: Request) -> dict[str, Any]:
    """Return the request's JSON object, empty for an empty body. Raises `UsageError`."""
    data = await request.body()
    try:
        return msgspec.json.decode(data, type=dict[str, Any]) if data.strip() else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"the request is no JSON object: {error}") from None


def _text(body: Json, key: str) -> str:
    value = body.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or "\0" in value:
        raise UsageError(f"{key} must be text")
    return value


def _flag(body: Json, key: str) -> bool:
    value = body.get(key, False)
    if not isinstance(value, bool):
        raise UsageError(f"{key} must be true or false")
    return value


def _trigger_of(body: Json) -> str:
    """Return the id that the client has chosen, else a new one."""
    given = _text(body, "triggerId") or _text(body, "trigger-id")
    if given and not _TRIGGER.fullmatch(given):
        raise UsageError(f"triggerId {given[:100]!r}: use 32 hexadecimal digits, or leave it out")
    return given or uuid.uuid4().hex
