"""What runs whole as one job: a script that was not converted, or a function without a context.

The loss of a JobManager does not touch such a job. After the loss of its driver it starts again
from the top, as the restart strategy allows. An exception ends it: another attempt would repeat
what the first one has written.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, ParamSpec, TypeVar, cast

from understudy.application.environment import Environment, get_environment
from understudy.application.job_function import check_function
from understudy.core.matching import name_of
from understudy.model import MODULE
from understudy.process import entry_point
from understudy.rpc.messages import RunMain

P = ParamSpec("P")
T = TypeVar("T")


def run(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function as one job, and return its value.

    For code that opens Spark itself: the function is called as ``function(*args, **kwargs)``,
    without a `JobContext`, in a driver, where ``SparkSession.builder.getOrCreate()`` returns the
    driver's session. The job is named after the function. Function, arguments and value have the
    same limits as with `Environment.execute`.

    The loss of a JobManager does not touch the job. After the loss of its driver the function is
    called again from the top, as the restart strategy allows: what it appended before stands twice.
    An exception of the function is not retried.

    Raises `JobFailed` or `JobCanceled`, and `SubmissionError` before anything has run.
    """
    check_function(function)
    environment = get_environment()
    job = environment.begin_whole(
        entry_point.call_job, (function, *args), kwargs, name=name_of(function, None)
    )
    return cast("T", job.result().value)


def run_application(environment: Environment, run: RunMain) -> None:
    """Run an application that was not converted as one job, named after its script or function."""
    function, target, name = _as_job(run)
    environment.begin_whole(function, (*target, run.args), {}, name=name).result()


def _as_job(run: RunMain) -> tuple[Callable[..., None], tuple[Any, ...], str]:
    """Return what executes the entry point in a job, what that takes, and the job's name."""
    if run.script:
        source = (Path(run.code) / "app" / run.target).read_bytes()
        return entry_point.script_job, (source, run.script), PurePosixPath(run.script).stem
    if run.target.startswith(MODULE):
        module = run.target.removeprefix(MODULE)
        return entry_point.module_job, (module,), module
    return entry_point.function_job, (run.target,), run.target.rpartition(":")[2]
