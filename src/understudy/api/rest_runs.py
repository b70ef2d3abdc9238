"""Routes that submit applications, and the same under Flink's names, ``/jars``.

An answer says that the application is durable. A client that chooses the id may repeat a request
whose answer was lost: it is one application.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from http import HTTPStatus

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from understudy.api import answers, audit, bodies_submitting, own_headers, submissions
from understudy.api.answers import Operation, Query, Routes
from understudy.api.bodies_submitting import PlanRequest, RunRequest
from understudy.api.leading import Leading
from understudy.config import options
from understudy.core.ids import application_id, is_hex32
from understudy.errors import AlreadyEndedError, LeadershipLost, SubmissionError, UsageError
from understudy.ha.storage import LARGE_S
from understudy.jobmanager.linked_application import LinkedApplication
from understudy.jobmanager.submission import Submission
from understudy.model import ApplicationId, JobId, RunId, UploadedArtifact

IDEMPOTENCY_KEY = "idempotency-key"
"""Header of a request that submits: its repetition, with the same key, is the same application."""

ARTIFACTS_MAX = 100
"""Most artifacts that a request may name."""

JOB_S = 8.0
"""How long `/run` waits for the job: a standby waits for 10 s for the leader's answer."""

CANCELLED_S = 1.0
"""How long the answer waits until an application is cancelled and cleaned up."""

IN_QUERY = {
    "entry-class": "entryClass",
    "program-args": "programArgs",
    "parallelism": "parallelism",
    "savepointPath": "savepointPath",
    "allowNonRestoredState": "allowNonRestoredState",
}
"""What Flink's clients may also say in the query, with its key in the body, which wins."""


class RunRoutes:
    """``/artifacts/:id/run-application`` and ``/artifacts/:id/run``."""

    def __init__(self, leading: Leading) -> None:
        self._leading = leading

    def routes(self) -> Routes:
        """Return method, path and handler of each."""
        query = tuple(Query(key, f"As {name} in the body.") for key, name in IN_QUERY.items())
        return [
            Operation(
                *("POST", "/jobs", self._run_plan),
                "Run a job without main; with the same jobId again, it is the same one.",
                bodies_submitting.PlanSubmitted,
                202,
                PlanRequest,
            )
        ] + [
            operation
            for base in ("/artifacts", "/jars")
            for operation in (
                Operation(
                    *("POST", f"{base}/{{artifact_id}}/run-application", self._run_application),
                    "Run an application; with the same applicationId again, it is the same one.",
                    bodies_submitting.ApplicationSubmitted,
                    202,
                    RunRequest,
                    query,
                ),
                Operation(
                    *("POST", f"{base}/{{artifact_id}}/run", self._run),
                    "Run an application of exactly one job; the answer comes once it has that job.",
                    bodies_submitting.JobSubmitted,
                    body=RunRequest,
                    query=query,
                ),
            )
        ]

    async def _run_application(self, request: Request) -> Response:
        application, refusal = await self._taken(request, single_job=False)
        return refusal or self._leading.json({"applicationid": application}, 202)

    async def _run(self, request: Request) -> Response:
        application, refusal = await self._taken(request, single_job=True)
        if refusal:
            return refusal
        linked = self._leading.term.dispatcher.applications.get(application)
        if linked is None:
            raise LeadershipLost("the application has ended already: what it is now is known")
        try:
            async with asyncio.timeout(JOB_S):
                job = await job_of(linked)
        except TimeoutError:
            return await self._no_job_yet(request, linked)
        if job is None:
            return answers.error(
                400,
                f"Application {application} has not had exactly one job: "
                f"{linked.failure.message if linked.failure else 'it was cancelled'} "
                f"(/applications/{application}/exceptions)",
                SubmissionError.code,
            )
        return self._leading.json({"jobid": job, "applicationId": application})

    async def _run_plan(self, request: Request) -> Response:
        if refusal := self._refusal():
            return refusal
        try:
            body = msgspec.json.decode(await request.body(), type=PlanRequest)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UsageError(f"the request is not understood: {error}") from None
        job = body.jobId or minted(request)
        audit.about(request, job)
        term, digest = self._leading.term, submissions.digest_of("", body)
        try:
            if not term.dispatcher.is_submitted(RunId(job), digest):
                named = RunRequest(pyFiles=body.pyFiles)
                async with self._held(submissions.named_by(named)) as found:
                    uploads = submissions.uploads_of(None, named, found)
                    brought = self._leading.settings.brought
                    submission = submissions.plan_submission(brought, uploads, body, job, digest)
                    await term.dispatcher.submit(submission, RunId(job))
        except SubmissionError as error:
            return _refused(error)
        # Whoever asks for the job next finds it; with slow storage, a little later.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(JOB_S):
                if linked := term.dispatcher.applications.get(ApplicationId(job)):
                    await job_of(linked)
        return self._leading.json({"jobUrl": f"/jobs/{job}"}, 202)

    async def _no_job_yet(self, request: Request, linked: LinkedApplication) -> Response:
        """Answer without a job; an application that cannot be asked for again is cancelled."""
        why = f"Application {linked.application_id} has no job after {JOB_S:g} s"
        body = await _body(request)
        if body.applicationId or body.runId or request.headers.get(IDEMPOTENCY_KEY):
            return answers.unavailable(f"{why}. Please ask again, with the same id.")
        cancelled = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CANCELLED_S):
                await linked.executed.wait()
                if linked.application:
                    cancelled = await linked.application.cancel()
                    await linked.over.wait()
        way_out = "choose its applicationId, and ask again until it has"
        if cancelled:
            return answers.error(408, f"{why} and was cancelled: {way_out}")
        return answers.error(
            408,
            f"{why}, and could not be cancelled just now: POST "
            f"/applications/{linked.application_id}/cancel; next time, {way_out}",
        )

    async def _taken(
        self, request: Request, *, single_job: bool
    ) -> tuple[ApplicationId, Response | None]:
        """Submit what a request asks for, once; return its id, and why it is refused."""
        artifact, body = str(request.path_params["artifact_id"]), await _body(request)
        run_id = RunId(submissions.run_id_of(body, minted(request)))
        services = self._leading.manager.around.services
        application = application_id(services.cluster_id, run_id)
        audit.about(request, application)
        refusal = self._refusal()
        if refusal is None:
            try:
                await self._submit(run_id, artifact, body, single_job=single_job)
            except SubmissionError as error:
                refusal = _refused(error)
        return application, refusal

    def _refusal(self) -> Response | None:
        if self._leading.settings.artifacts.are_taken:
            return None
        return answers.error(
            403,
            "This cluster takes no applications: it ends with its own "
            f"({options.SHUTDOWN_ON_FINISH.key}), or {options.UPLOADS.key} is false",
        )

    async def _submit(
        self, run_id: RunId, artifact: str, body: RunRequest, *, single_job: bool
    ) -> None:
        """Submit once; raises as `Dispatcher.submit` does, and `NotFoundError`."""
        dispatcher = self._leading.term.dispatcher
        request = submissions.digest_of(artifact, body, single_job=single_job)
        if dispatcher.is_submitted(run_id, request):
            return
        async with self._held((artifact, *submissions.named_by(body))) as found:
            submission = await self._submission(artifact, body, found, request)
            submission = replace(submission, single_job=single_job)
            await dispatcher.submit(submission, run_id)

    @contextlib.asynccontextmanager
    async def _held(self, named: Iterable[str]) -> AsyncIterator[Mapping[str, UploadedArtifact]]:
        """Keep all artifacts that a request names, until the application needs them itself."""
        names = dict.fromkeys(named)
        if len(names) > ARTIFACTS_MAX:
            raise UsageError(f"more than {ARTIFACTS_MAX} artifacts are named: pack some of them")
        around, term = self._leading.manager.around, self._leading.term.number
        async with contextlib.AsyncExitStack() as stack:
            found = {}
            for name in names:
                holding = around.services.artifacts.held(term, name, around.clock.wall())
                found[name] = await stack.enter_async_context(holding)
            yield found

    async def _submission(
        self, artifact: str, body: RunRequest, found: Mapping[str, UploadedArtifact], request: str
    ) -> Submission:
        uploads = submissions.uploads_of(found[artifact], body, found)
        around = self._leading.manager.around
        storage = around.services.storage
        return await storage.within(
            LARGE_S,
            submissions.submission_of,
            storage.blocking,
            self._leading.settings.brought,
            uploads,
            body,
            request,
        )


def _refused(error: SubmissionError) -> Response:
    """Return the refusal of a submission; of one under a used id, with what has ended."""
    if not isinstance(error, AlreadyEndedError):
        return answers.refused(HTTPStatus.CONFLICT, error)
    more = {"applicationid": error.application_id, "status": error.status}
    return answers.error(HTTPStatus.CONFLICT, str(error), error.code, more)


def minted(request: Request) -> str:
    """Return the id of what a request submits, where the client chooses none.

    A JobManager that passes the request on sends the id with it (`own_headers.ID`): the next one
    may find that the first has stored the application. Equal idempotency keys give equal ids.
    """
    known = request.headers.get(own_headers.ID, "")
    if not is_hex32(known) and (key := request.headers.get(IDEMPOTENCY_KEY)):
        known = hashlib.sha256(f"{IDEMPOTENCY_KEY}: {key}".encode()).hexdigest()[:32]
    if not is_hex32(known):
        known = getattr(request.state, "minted", "") or uuid.uuid4().hex
    request.state.minted = known
    return str(known)


async def _body(request: Request) -> RunRequest:
    """Return what is asked for, in the body or in the query. Raises `UsageError`."""
    data = await request.body()
    said = {name: request.query_params.get(key) for key, name in IN_QUERY.items()}
    try:
        body = msgspec.json.decode(data, type=RunRequest) if data.strip() else RunRequest()
        in_query = msgspec.convert(
            {name: text for name, text in said.items() if text}, RunRequest, strict=False
        )
        further = {
            name: getattr(in_query, name) for name in said if getattr(body, name) in {None, ""}
        }
        return msgspec.structs.replace(body, **further)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"the request is not understood: {error}") from None


# --- the job of an application that has exactly one -----------------------------------------------
#
# Nobody knows before `main` ends whether it will submit a second job, which ends the application
# whenever it comes (`job_requests`). A client that waits here learns it if it comes soon.


SOON_S = 2.0
"""How long it is watched whether ``main`` submits a second job, once ``main`` waits for the first.
"""


async def job_of(linked: LinkedApplication) -> JobId | None:
    """Return the one job once it is there; None once the application is over that had no such job.

    Raises `LeadershipLost` where this term ends before that.
    """
    over = asyncio.ensure_future(linked.over.wait())
    settled = asyncio.ensure_future(_settled(linked))
    try:
        await asyncio.wait({over, settled}, return_when=asyncio.FIRST_COMPLETED)
        if not over.done() and not settled.result():
            await asyncio.wait({over}, timeout=SOON_S)
    finally:
        over.cancel()
        settled.cancel()
    first = next(iter(linked.jobs), None)
    if first and not _has_second(linked):
        return first
    await linked.over.wait()
    if linked.tombstone is None:
        raise LeadershipLost("this term ended before the application had its job")
    return None


async def _settled(linked: LinkedApplication) -> bool:
    """Wait until ``main`` waits for its job, or has ended; return whether no other can follow."""
    await linked.executed.wait()
    application = linked.application
    assert application is not None
    await application.requests.settled.wait()
    return application.record.as_job


def _has_second(linked: LinkedApplication) -> bool:
    return bool(linked.application and linked.application.requests.has_refused)
