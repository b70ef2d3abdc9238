"""High availability for PySpark pipelines: the public API.

``env = understudy.get_environment()``, then ``env.execute(function, …, name="…")``; see README.md.
"""

from understudy.application.environment import (
    Environment,
    JobClient,
    JobExecutionResult,
    get_environment,
)
from understudy.driver.context import FencingToken, JobContext, fenced_batch
from understudy.errors import (
    CheckpointError,
    InvalidValueError,
    JobCanceled,
    JobFailed,
    JobNameError,
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
    "PlanError",
    "ResultUnavailable",
    "StartTimeSettingError",
    "SubmissionError",
    "UnderstudyError",
    "__version__",
    "fenced_batch",
    "get_environment",
]
