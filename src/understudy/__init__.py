"""High availability for PySpark pipelines: the public API.

``env = understudy.get_environment()``, then ``env.execute(function, …, name="…")``; see README.md.

A name is imported at its first use: each process of a cluster passes here, and few need the API.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from understudy.application.environment import (
        Environment,
        JobClient,
        JobExecutionResult,
        JobOptions,
        get_environment,
    )
    from understudy.application.whole import run
    from understudy.driver.context import FencingToken, JobContext, fenced_batch
    from understudy.errors import (
        CheckpointError,
        InvalidValueError,
        JobCanceled,
        JobFailed,
        JobNameError,
        JobStopped,
        PlanError,
        ResultUnavailable,
        StartTimeSettingError,
        SubmissionError,
        UnderstudyError,
    )
    from understudy.version import VERSION as __version__

__all__ = [
    "CheckpointError",
    "Environment",
    "FencingToken",
    "InvalidValueError",
    "JobCanceled",
    "JobClient",
    "JobContext",
    "JobExecutionResult",
    "JobFailed",
    "JobNameError",
    "JobOptions",
    "JobStopped",
    "PlanError",
    "ResultUnavailable",
    "StartTimeSettingError",
    "SubmissionError",
    "UnderstudyError",
    "__version__",
    "fenced_batch",
    "get_environment",
    "run",
]

_ELSEWHERE = {
    "Environment": "understudy.application.environment",
    "FencingToken": "understudy.driver.context",
    "JobClient": "understudy.application.environment",
    "JobContext": "understudy.driver.context",
    "JobExecutionResult": "understudy.application.environment",
    "JobOptions": "understudy.application.environment",
    "fenced_batch": "understudy.driver.context",
    "get_environment": "understudy.application.environment",
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
