"""`understudy.job`: options that travel with a function, which stays the function that it was."""

from __future__ import annotations

import functools
import inspect
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import cloudpickle
import pytest

import understudy
from tests.application.test_environment import Accepting
from understudy.application.environment import Environment, current
from understudy.core.matching import Assignment
from understudy.errors import JobNameError, PlanError, SubmissionError
from understudy.model import Limits


@understudy.job(name="load days", retries=2, no_retry=(KeyError,), timeout="2 h")
def load(ctx: Any, path: str, depth: int = 1) -> dict[str, int]:
    """Load the days of a path."""
    return {path: depth}


@understudy.job
def plain(ctx: Any) -> int:
    return 1


@pytest.fixture
def link() -> Iterator[Accepting]:
    """The link of this process's environment."""
    made = Accepting()
    current.set(Environment(made, Assignment("a" * 32)))
    yield made
    current.set(None)


LIMITS = Limits(retries=2, timeout_s=7200.0)


@pytest.mark.parametrize("how", ["run", "submit", "execute", "options", "parallel", "partial"])
def test_a_decorated_function_is_submitted_with_its_options(link: Accepting, how: str) -> None:
    env = understudy.get_environment()
    if how == "parallel":
        with env.parallel() as jobs:
            jobs.submit(load, "days", depth=3)
    elif how == "partial":
        env.execute(functools.partial(load, path="days", depth=3))
    else:
        calls: dict[str, Any] = {
            "run": load.run,
            "submit": load.submit,
            "execute": functools.partial(env.execute, load),
            "options": lambda *args, **kwargs: env.options().execute_async(load, *args, **kwargs),
        }
        calls[how]("days", depth=3)
    plan = link.plan()

    assert ("load days", LIMITS) == (link.submitted.name, link.submitted.limits)
    assert ("builtins.KeyError",) == plan.no_retry
    assert {"days": 3} == plan.function(None, *plan.args, **plan.kwargs)


def test_options_of_a_call_replace_those_of_the_decorator(link: Accepting) -> None:
    env = understudy.get_environment()
    env.options(name="other", retries=0, no_retry=()).execute(load, "days")

    assert ("other", Limits(retries=0, timeout_s=7200.0)) == (
        link.submitted.name,
        link.submitted.limits,
    )
    assert () == link.plan().no_retry


def test_without_options_the_job_has_the_name_of_the_function(link: Accepting) -> None:
    assert 1 == plain.run().value
    assert ("plain", Limits()) == (link.submitted.name, link.submitted.limits)
    assert link.plan().no_retry is None


def test_a_decorated_function_stays_a_plain_function() -> None:
    copy = pickle.loads(pickle.dumps(load))

    assert {"x": 2} == load(None, "x", 2)  # type: ignore[arg-type]
    assert inspect.isfunction(cast("object", load))
    assert "Load the days of a path." == load.__doc__
    assert ["ctx", "path", "depth"] == list(inspect.signature(load).parameters)
    assert copy is load


def test_a_decorated_function_that_calls_itself_is_pickled_by_value() -> None:
    """As a function of a script is, whose module no driver can import."""
    script = """
        import cloudpickle, sys, understudy
        BASE = 1
        @understudy.job(retries=1)
        def fact(ctx, n):
            return BASE if n < 2 else n * fact(ctx, n - 1)
        sys.stdout.buffer.write(cloudpickle.dumps(fact))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, check=True, timeout=60
    )
    fact = cloudpickle.loads(done.stdout)

    assert 24 == fact(None, 4)
    assert callable(fact.run)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"retries": -1}, "retries=-1: give a whole number that is not negative, as retries=2"),
        ({"retries": True}, "retries=True: give a whole number"),
        ({"retries": "2"}, "retries='2': give a whole number"),
        ({"timeout": "soon"}, "timeout='soon': give a duration such as '20 s', '1 min' or"),
        ({"timeout": "0 s"}, "timeout='0 s': give a duration of more than nothing"),
        ({"timeout": 90}, "timeout=90: give a text with a duration, such as '2 h' or '90 s'"),
        ({"no_retry": KeyError}, "give a tuple of classes or names"),
        ({"no_retry": (1,)}, "no_retry holds 1: give classes of exceptions, or their names"),
    ],
)
def test_wrong_options_are_refused_where_they_are_written(
    options: dict[str, Any], said: str
) -> None:
    env = Environment(Accepting(), Assignment("a" * 32))
    for decorated in (understudy.job, env.options, env.parallel().options):
        with pytest.raises(SubmissionError) as caught:
            decorated(**options)

        assert said in str(caught.value)


def test_a_wrong_name_is_refused_where_it_is_written() -> None:
    with pytest.raises(JobNameError, match="must not be empty"):
        understudy.job(name=" ")


@pytest.mark.parametrize("value", ["load", 7, functools.partial(print), staticmethod(print)])
def test_what_is_no_function_is_not_decorated(value: Any) -> None:
    decorate: Any = understudy.job

    with pytest.raises(SubmissionError, match=r"decorates a function.*@understudy.job\(name=…\)"):
        decorate(value)


@pytest.mark.parametrize("method", ["run", "submit"])
def test_a_method_of_a_decorated_function_is_not_taken_for_a_job(
    link: Accepting, method: str
) -> None:
    with pytest.raises(PlanError) as caught:
        understudy.get_environment().execute(getattr(load, method), "days")

    assert (
        f"`load.{method}` submits a job by itself: call load.{method}(…), or give `load` to execute"
        == str(caught.value)
    )


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((), {}, "`load` cannot be called with these arguments: missing a required argument"),
        (("x", 1, 2), {}, "too many positional arguments"),
        (("x",), {"deep": 1}, "got an unexpected keyword argument 'deep'. A job is called as"),
        (
            ("x",),
            {"timeout": "1 s"},
            "keyword argument 'timeout'; give the job its timeout by env.options(timeout=…)",
        ),
    ],
)
def test_arguments_that_a_function_does_not_take_are_refused_before_anything_runs(
    link: Accepting, args: tuple[Any, ...], kwargs: dict[str, Any], said: str
) -> None:
    with pytest.raises(SubmissionError) as caught:
        load.submit(*args, **kwargs)

    assert said in str(caught.value)
    assert not hasattr(link, "submitted")


def test_a_decorator_may_add_arguments_to_those_of_its_function(link: Accepting) -> None:
    def connected(function: Any) -> Any:
        @functools.wraps(function)
        def with_connection(ctx: Any, *args: Any) -> Any:
            return function(ctx, "connection", *args)

        return with_connection

    @connected
    def report(ctx: Any, connection: str, day: str) -> None: ...

    understudy.get_environment().execute(report, "monday")

    assert ("monday",) == link.plan().args


def test_a_script_runs_a_decorated_job_without_a_cluster(tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    script.write_text(
        textwrap.dedent(
            """
            import time, understudy
            tries = []

            @understudy.job(retries=1)
            def flaky(ctx, path):
                if ctx.attempt == 1:
                    raise ValueError("no luck")
                return {path: ctx.attempt}

            @understudy.job(timeout="50 ms")
            def slow(ctx):
                while True:
                    time.sleep(0.001)

            later = flaky.submit("x.csv")
            print(later.result().value)
            try:
                slow.run()
            except understudy.JobFailed as error:
                print(error.error_type, error.args[0])
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=tmp_path,
    )
    lines = done.stdout.splitlines()

    assert "{'x.csv': 2}" == lines[0]
    assert lines[1].startswith("understudy.errors.JobTimedOut job 'slow' failed in attempt 1")
    assert "job 'flaky', attempt 1, failed: ValueError: no luck; retry 1 of 1" in done.stderr
