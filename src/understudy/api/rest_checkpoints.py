"""Routes about the checkpoints of a job; paths and shapes are Flink's."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from understudy.api import checkpoints
from understudy.api.answers import DIGITS_MAX
from understudy.api.checkpoints import CheckpointFacts
from understudy.api.leading import BuriedJob, Leading
from understudy.api.routes import Routes
from understudy.errors import UsageError


class CheckpointRoutes:
    """Everything below ``/jobs/:jobid/checkpoints``."""

    def __init__(self, leading: Leading) -> None:
        self._leading = leading

    def routes(self) -> Routes:
        """Return method, path and handler of each."""
        base = "/jobs/{job_id}/checkpoints"
        return [
            ("GET", base, self._statistics),
            ("GET", f"{base}/config", self._config),
            ("GET", f"{base}/details/{{number}}", self._detail),
        ]

    async def _statistics(self, request: Request) -> Response:
        return self._leading.json(checkpoints.statistics(await self._facts(request)))

    async def _detail(self, request: Request) -> Response:
        number = str(request.path_params["number"])
        if not number.isascii() or not number.isdigit() or len(number) > DIGITS_MAX:
            raise UsageError(f"{number[:100]!r} is no number of a checkpoint")
        facts = await self._facts(request)
        return self._leading.json(checkpoints.detail(facts, int(number)))

    async def _config(self, request: Request) -> Response:
        found = await self._leading.job(str(request.path_params["job_id"]))
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
        found = await self._leading.job(str(request.path_params["job_id"]))
        if isinstance(found, BuriedJob):
            return checkpoints.ended(found.record.job_id, found.record)
        return await self._leading.directory.checkpoints(found.facts, found.job_id)
