"""High availability for PySpark pipelines: the public API.

A job is a function, and ``main`` runs it: decorated with `job`, as ``load.run("x.csv")``, or by
``get_environment().execute(load, "x.csv", name="load")``; see README.md and docs/jobs.md.

A name is imported at its first use: each process of a cluster passes here, and few need the API.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from understudy.application.calls import JobOptions
    from understudy.application.decorating import Job, job
    from understudy.application.environment import Environment, get_environment
    from understudy.application.job_client import JobClient, JobExecutionResult
    from understudy.application.parallel import ParallelJobs
    from understudy.application.whole import run
    from understudy.driver.context import FencingToken, JobContext, fenced_batch
    from understudy.errors import (
        CheckpointError,
        ConfigurationError,
        ExecutorsUnavailable,
        InvalidValueError,
        JobCanceled,
        JobFailed,
        JobNameError,
        JobStopped,
        JobTimedOut,
        NotFoundError,
        PlanError,
        PlanVersionError,
        ResultUnavailable,
        StartTimeSettingError,
        StorageError,
        SubmissionError,
        UnderstudyError,
        UnreachableError,
        UsageError,
    )
    from understudy.version import VERSION as __version__

__all__ = [
    "CheckpointError",
    "ConfigurationError",
    "Environment",
    "ExecutorsUnavailable",
    "FencingToken",
    "InvalidValueError",
    "Job",
    "JobCanceled",
    "JobClient",
    "JobContext",
    "JobExecutionResult",
    "JobFailed",
    "JobNameError",
    "JobOptions",
    "JobStopped",
    "JobTimedOut",
    "NotFoundError",
    "ParallelJobs",
    "PlanError",
    "PlanVersionError",
    "ResultUnavailable",
    "StartTimeSettingError",
    "StorageError",
    "SubmissionError",
    "UnderstudyError",
    "UnreachableError",
    "UsageError",
    "__version__",
    "fenced_batch",
    "get_environment",
    "job",
    "run",
]

_ELSEWHERE = {
    "Environment": "understudy.application.environment",
    "FencingToken": "understudy.driver.context",
    "Job": "understudy.application.decorating",
    "JobClient": "understudy.application.job_client",
    "JobContext": "understudy.driver.context",
    "JobExecutionResult": "understudy.application.job_client",
    "JobOptions": "understudy.application.calls",
    "ParallelJobs": "understudy.application.parallel",
    "fenced_batch": "understudy.driver.context",
    "get_environment": "understudy.application.environment",
    "job": "understudy.application.decorating",
    "run": "understudy.application.whole",
}
"""The module of each public name that is not an error."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "__version__":
        module, attribute = "understudy.version", "VERSION"
    else:
        module, attribute = _ELSEWHERE.get(name, "understudy.errors"), name
    found: object = getattr(importlib.import_module(module), attribute)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
