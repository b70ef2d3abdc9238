"""Routes about jobs and their checkpoints; paths and shapes are Flink's."""

from __future__ import annotations

from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from understudy.api import answers, bodies, checkpoints, ended, views
from understudy.api.answers import DIGITS_MAX, Operation, Query, Routes
from understudy.api.checkpoints import CheckpointFacts
from understudy.api.ended import EndedJobs
from understudy.api.leading import BuriedJob, Leading
from understudy.api.rest_applications import MAX_EXCEPTIONS
from understudy.errors import UsageError
from understudy.model import JobStatus

CANCEL = "cancel"
"""The only ``mode`` in which PATCH ends a job."""


class JobRoutes:
    """Everything below ``/jobs``."""

    def __init__(self, leading: Leading) -> None:
        self._leading = leading
        self._ended = EndedJobs(leading.manager.around.services)

    def routes(self) -> Routes:
        """Return method, path and handler of each."""
        one = "/jobs/{job_id}"
        return [
            Operation("GET", "/jobs", self._list, "The ids of all jobs.", bodies.JobList),
            Operation("GET", "/jobs/overview", self._overview, "All jobs.", bodies.JobOverview),
            Operation("GET", one, self._detail, "One job.", bodies.JobDetail),
            Operation(
                *("PATCH", one, self._cancel),
                "Cancel a job.",
                status=202,
                query=(
                    Query("mode", "What is to be done; this is the default.", Literal["cancel"]),
                ),
            ),
            Operation(
                *("GET", f"{one}/exceptions", self._exceptions),
                "Why attempts of a job failed.",
                bodies.JobExceptions,
                query=(MAX_EXCEPTIONS,),
            ),
            Operation(
                *("GET", f"{one}/execution-result", self._result),
                "The result of a job.",
                bodies.ExecutionResult,
            ),
            Operation(
                *("GET", f"{one}/jobmanager/config", self._config),
                "The configuration of a job's application.",
                list[bodies.Setting],
            ),
        ]

    async def _list(self, request: Request) -> Response:
        listed = [{"id": one["jid"], "status": one["state"]} for one in await self._all()]
        return self._leading.json({"jobs": listed})

    async def _overview(self, request: Request) -> Response:
        return self._leading.json({"jobs": await self._all()})

    async def _all(self) -> list[views.Json]:
        facts, tombstones = await self._leading.facts()
        listed = [views.job_details(one, job_id) for one in facts for job_id in one.entries]
        return listed + await self._ended.listed(tombstones.values())

    async def _detail(self, request: Request) -> Response:
        found = await self._leading.job(_id(request))
        if isinstance(found, BuriedJob):
            now = self._leading.manager.around.clock.wall()
            return self._leading.json(ended.recorded_detail(found.record, found.tombstone, now))
        answer = views.job_detail(found.facts, found.job_id)
        live = found.facts.live.get(found.job_id)
        answer["checkpoint"] = checkpoints.last(live.checkpoints if live else None)
        return self._leading.json(answer)

    async def _cancel(self, request: Request) -> Response:
        mode = request.query_params.get("mode", CANCEL)
        if mode != CANCEL:
            raise UsageError(
                f"mode is {mode[:100]!r}: expected {CANCEL}; POST /jobs/:jobid/stop ends a job "
                "with a savepoint"
            )
        found = await self._leading.job(_id(request))
        if isinstance(found, BuriedJob):
            return self._cancelled_already(found.record.status)
        if (result := found.facts.entries[found.job_id].result) is not None:
            return self._cancelled_already(result.status)
        application = self._leading.term.dispatcher.application_of(found.job_id)
        if application is None:
            return answers.error(409, "The job's application is not executed just now.")
        await application.requests.cancel_job(found.job_id)
        return self._leading.json({}, 202)

    def _cancelled_already(self, status: JobStatus) -> Response:
        """Answer about a job that has ended; who lost the answer to a cancellation asks again."""
        if status is JobStatus.CANCELED:
            return self._leading.json({}, 202)
        return answers.error(409, f"The job is {status.value} already.")

    async def _exceptions(self, request: Request) -> Response:
        maximum = answers.whole_number(request, "maxExceptions", views.MAXIMUM_DEFAULT)
        found = await self._leading.job(_id(request))
        if isinstance(found, BuriedJob):
            answer = views.of_record(found.record)
        else:
            answer = await self._leading.directory.failures(found.facts, found.job_id)
        return self._leading.json(views.of_job(answer, maximum))

    async def _result(self, request: Request) -> Response:
        found = await self._leading.job(_id(request))
        if isinstance(found, BuriedJob):
            return self._leading.json(views.recorded_result(found.record))
        facts, job_id = found.facts, found.job_id
        outcome, missing = await self._leading.directory.outcome(facts, job_id)
        return self._leading.json(views.execution_result(facts, job_id, outcome, missing))

    async def _config(self, request: Request) -> Response:
        found = await self._leading.job(_id(request))
        of = found.tombstone if isinstance(found, BuriedJob) else found.facts
        settings = await self._leading.configuration(of)
        return self._leading.json(views.configuration(settings))


class CheckpointRoutes:
    """Everything below ``/jobs/:jobid/checkpoints``."""

    def __init__(self, leading: Leading) -> None:
        self._leading = leading

    def routes(self) -> Routes:
        """Return method, path and handler of each."""
        base = "/jobs/{job_id}/checkpoints"
        return [
            Operation(
                *("GET", base, self._statistics),
                "All that is known of a job's checkpoints.",
                bodies.CheckpointStatistics,
            ),
            Operation(
                *("GET", f"{base}/config", self._config),
                "The checkpoint settings of a job.",
                bodies.CheckpointConfig,
            ),
            Operation(
                *("GET", f"{base}/details/latest", self._latest),
                "The latest checkpoint of a job that was completed.",
                bodies.CheckpointDetail,
            ),
            Operation(
                *("GET", f"{base}/details/{{number}}", self._detail),
                "One checkpoint of a job.",
                bodies.CheckpointDetail,
            ),
        ]

    async def _statistics(self, request: Request) -> Response:
        return self._leading.json(checkpoints.statistics(await self._facts(request)))

    async def _latest(self, request: Request) -> Response:
        return self._leading.json(checkpoints.latest(await self._facts(request)))

    async def _detail(self, request: Request) -> Response:
        number = str(request.path_params["number"])
        if not number.isascii() or not number.isdigit() or len(number) > DIGITS_MAX:
            raise UsageError(f"{number[:100]!r} is no number of a checkpoint")
        facts = await self._facts(request)
        return self._leading.json(checkpoints.detail(facts, int(number)))

    async def _config(self, request: Request) -> Response:
        found = await self._leading.job(_id(request))
        settings = self._leading.settings.checkpoints
        directory = settings.directory
        if not isinstance(found, BuriedJob):
            directory = self._leading.directory.checkpoints_of(
                found.facts, found.job_id, settings.directory
            )
        return self._leading.json(
            checkpoints.configuration(
                settings.retention, settings.num_retained, directory, settings.accept_found
            )
        )

    async def _facts(self, request: Request) -> CheckpointFacts:
        found = await self._leading.job(_id(request))
        if isinstance(found, BuriedJob):
            return checkpoints.ended(found.record.job_id, found.record)
        return await self._leading.directory.checkpoints(found.facts, found.job_id)


def _id(request: Request) -> str:
    return str(request.path_params["job_id"])
