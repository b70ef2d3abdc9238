"""The bodies of requests and answers about artifacts and submissions, as in `api.bodies`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from understudy.api.bodies import Body, OwnBody

# --- artifacts ------------------------------------------------------------------------------------


class ArtifactFacts(Body, frozen=True):
    """An uploaded artifact."""

    id: str
    name: str
    size: int
    digest: str
    uploaded: int
    used: int
    """The last use; up to an hour old."""


class ArtifactUpload(ArtifactFacts, frozen=True):
    """The artifact that an upload has become; the last two keys are Flink's."""

    filename: str
    """Ends with the id, as in Flink."""
    status: Literal["success"]


class ArtifactList(Body, frozen=True):
    """All uploaded artifacts, the latest first."""

    artifacts: list[ArtifactFacts]


class JarFile(Body, frozen=True):
    """An uploaded artifact in Flink's shape."""

    id: str
    name: str
    uploaded: int
    entry: list[Any]


class JarList(Body, frozen=True):
    """All uploaded artifacts in Flink's shape."""

    address: str
    files: list[JarFile]


# --- submitting -----------------------------------------------------------------------------------

Hex32 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]


class RunRequest(OwnBody, frozen=True, forbid_unknown_fields=True):
    """What an application is to run, beside the artifact that the path names."""

    applicationId: Hex32 | None = None  # noqa: N815 -- Flink's keys
    """Id of the application, and its run id: the same request with the same id is the same
    application."""
    runId: str | None = None  # noqa: N815
    """A name for the run, from which the application's id follows, instead of an id."""
    entryClass: str | None = None  # noqa: N815
    """A script in the artifact, a module, or ``module:function``."""
    programArgs: str | None = None  # noqa: N815
    """The arguments as a shell takes them."""
    programArgsList: list[str] | None = None  # noqa: N815
    parallelism: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Taken for Flink's clients; a Spark job has none."""
    jobId: Hex32 | None = None  # noqa: N815
    """Id of the first job."""
    savepointPath: str | None = None  # noqa: N815
    allowNonRestoredState: bool | None = None  # noqa: N815
    claimMode: Literal["CLAIM", "NO_CLAIM"] | None = None  # noqa: N815
    flinkConfiguration: dict[str, str] | None = None  # noqa: N815
    """Settings of the application, and Spark's, which begin with ``spark.``."""
    pyFiles: list[str] | None = None  # noqa: N815
    """Ids of artifacts for Python's path: .py, .zip, .whl."""
    files: list[str] | None = None
    """Ids of artifacts that jobs find by their names."""
    archives: list[str] | None = None
    """Ids of artifacts that Spark unpacks, each with ``#`` and the directory's name, if wanted."""
    runsAs: Literal["main", "job"] | None = None  # noqa: N815
    """Whether the artifact's code submits jobs, or is one; without it, its sources say."""
    cwd: str | None = None
    """Directory in which it runs, on hosts where that is there."""


class ApplicationSubmitted(Body, frozen=True):
    """The application, which is durable."""

    applicationid: str


class JobSubmitted(OwnBody, frozen=True):
    """The one job of an application."""

    jobid: str
    applicationId: str  # noqa: N815


class PlanRequest(OwnBody, frozen=True, forbid_unknown_fields=True):
    """A job without ``main``."""

    plan: str
    """The job's plan in base64, as `understudy.process.plans.encode_plan` makes it."""
    jobId: Hex32 | None = None  # noqa: N815
    """Id of the job and of its application; with it, the request may be repeated."""
    flinkConfiguration: dict[str, str] | None = None  # noqa: N815
    pyFiles: list[str] | None = None  # noqa: N815


class PlanSubmitted(OwnBody, frozen=True):
    """The job, which is durable."""

    jobUrl: str  # noqa: N815
