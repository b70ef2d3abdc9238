"""The message for a job that cannot be pickled names the variable, its type and the way out."""

from __future__ import annotations

import functools
import sqlite3
import sys
import threading
import types
from collections.abc import Callable
from typing import Any, NoReturn

import cloudpickle
import pytest

from tests.application.test_environment import Accepting
from understudy.application.environment import Environment
from understudy.core.matching import Assignment
from understudy.errors import PlanError
from understudy.process import plans


class _Refusing:
    """An object that is not pickled, as those of PySpark."""

    def __reduce__(self) -> NoReturn:
        raise RuntimeError("it belongs to the driver")


def of_pyspark(name: str, module: str) -> Any:
    return type(name, (_Refusing,), {"__module__": module})()


spark = of_pyspark("SparkSession", "pyspark.sql.session")
sc = of_pyspark("SparkContext", "pyspark.core.context")
flights = of_pyspark("DataFrame", "pyspark.sql.classic.dataframe")
lock = threading.Lock()
settings = {"retries": 3, "connections": [None, sqlite3.connect(":memory:")]}


@pytest.fixture(autouse=True)
def _by_value() -> Any:
    """Pickle this module as `__main__` is."""
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


class Loader:
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def load(self, ctx: Any) -> None:
        with self.lock:
            pass


def load(ctx: Any) -> object:
    return [spark.read for _ in range(2)]


def both(ctx: Any) -> object:
    return spark, sc


def helper(path: str) -> object:
    return spark.read.csv(path)


def by_helper(ctx: Any) -> object:
    return helper("a")


def guarded(ctx: Any) -> None:
    with lock:
        pass


def configured(ctx: Any) -> object:
    return settings["connections"]


def by_default(ctx: Any, session: Any = spark) -> object:
    return session


def plain(ctx: Any, path: Any, mode: Any = None) -> None: ...


def attribute(ctx: Any) -> object:
    return types.SimpleNamespace(spark=1).spark, lock


def capturing() -> Callable[..., object]:
    frame = flights

    def job(ctx: Any) -> object:
        return frame.count()

    return job


SAID = [
    (load, (), "`load` uses the global `spark`, a SparkSession: use `ctx.spark`"),
    (
        both,
        (),
        "`both` uses the global `sc`, a SparkContext: use `ctx.spark.sparkContext`; "
        "`both` uses the global `spark`, a SparkSession: use `ctx.spark`",
    ),
    (
        by_helper,
        (),
        "`helper` uses the global `spark`, a SparkSession: pass `ctx.spark` to `helper`",
    ),
    (
        capturing(),
        (),
        "`job` captures the variable `frame`, a DataFrame: pass its path and read it in the job, "
        "or return ctx.table(df) from an earlier job and pass the handle",
    ),
    (
        guarded,
        (),
        "`guarded` uses the global `lock`, a _thread.lock: create it inside `guarded`",
    ),
    (
        attribute,
        (),
        "`attribute` uses the global `lock`, a _thread.lock: create it inside `attribute`",
    ),
    (
        configured,
        (),
        "`configured` uses the global `settings['connections'][1]`, a sqlite3.Connection: "
        "create it inside `configured`",
    ),
    (
        by_default,
        (),
        "`by_default` has the default `session`, a SparkSession: use `ctx.spark`",
    ),
    (
        plain,
        ("a", lock),
        "it has the argument `mode`, a _thread.lock: create it inside `plain`",
    ),
    (
        functools.partial(plain, path=lock),
        (),
        "its partial holds `path`, a _thread.lock: create it inside `plain`",
    ),
    (
        Loader().load,
        (),
        "it holds `self.lock`, a _thread.lock: create it inside `load`",
    ),
]


@pytest.mark.parametrize(("function", "args", "said"), SAID)
def test_the_message_names_the_culprit(
    function: Callable[..., object], args: tuple[object, ...], said: str
) -> None:
    with pytest.raises(PlanError) as caught:
        plans.encode_plan("load flights", function, args, {})

    assert f"job 'load flights' cannot be pickled: {said}" == str(caught.value)


def test_an_argument_by_keyword_is_named_too() -> None:
    with pytest.raises(PlanError, match=r"it has the argument `path`, a _thread\.lock"):
        plans.encode_plan("load", plain, (), {"path": lock})


def test_what_holds_itself_is_blamed_all_the_same() -> None:
    endless: list[Any] = [lock]
    endless.append(endless)

    with pytest.raises(PlanError, match=r"it has the argument `path\[0\]`, a _thread.lock"):
        plans.encode_plan("load", plain, (endless,), {})


def test_what_submits_jobs_stays_in_main() -> None:
    options = Environment(Accepting(), Assignment("a" * 32)).options(name="x")

    with pytest.raises(PlanError, match=r"`path`, a JobOptions: only main submits jobs"):
        plans.encode_plan("load", plain, (options,), {})
