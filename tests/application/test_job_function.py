"""A mistake that can be seen before a job runs is told then, with its way out."""

from __future__ import annotations

import asyncio
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

from tests.application.test_environment import Accepting
from understudy.application.environment import Environment
from understudy.core.matching import Assignment
from understudy.errors import PlanError, SubmissionError

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped,unused-ignore]
    from pyspark.sql import DataFrame

ArrayAlias = np.ndarray


class Pair(NamedTuple):
    a: int


def as_text(ctx: Any) -> DataFrame: ...  # type: ignore[empty-body]
def as_alias(ctx: Any) -> pd.DataFrame: ...
def as_class(ctx: Any) -> ArrayAlias: ...  # type: ignore[empty-body]
def as_bytes(ctx: Any) -> bytes | None: ...
def as_items(ctx: Any) -> dict[str, list[Pair]]: ...  # type: ignore[empty-body]
def as_keys(ctx: Any) -> dict[int, int]: ...  # type: ignore[empty-body]
async def as_coroutine(ctx: Any) -> int:
    await asyncio.sleep(0)
    return 1


def as_generator(ctx: Any) -> Iterator[int]:
    yield 1


def environment() -> Environment:
    return Environment(Accepting(), Assignment("a" * 32))


TABLE = "return ctx.table(df): a later job gets the DataFrame by ctx.read(handle)"
ANNOTATED = [
    (as_text, "DataFrame", TABLE),
    (
        as_alias,
        "pd.DataFrame",
        "return df.to_dict('records'), or write df to a file and return its path",
    ),
    (as_class, "ndarray", "return array.tolist()"),
    (as_bytes, "bytes", "return value.hex(), or write the bytes to a file and return its path"),
    (as_items, "Pair", "return value._asdict()"),
    (as_keys, "a dict with keys of int", "keys are strings, so use str(key)"),
]


@pytest.mark.parametrize(("function", "kind", "way"), ANNOTATED)
def test_a_value_that_cannot_be_kept_is_refused_before_the_work(
    function: Callable[..., object], kind: str, way: str
) -> None:
    with pytest.raises(PlanError) as caught:
        environment().execute(functools.partial(function), name="load")

    assert (
        f"`{function.__name__}` is annotated to return {kind}, which cannot be kept as a value: "
        f"{way}"
    ) == str(caught.value)


def either(ctx: Any) -> bytes | str: ...  # type: ignore[empty-body]
def something(ctx: Any) -> list[Any]: ...  # type: ignore[empty-body]
def unknown(ctx: Any) -> nowhere.Thing: ...  # type: ignore[name-defined]  # noqa: F821
def bare(ctx):  # type: ignore[no-untyped-def]
    ...


@functools.wraps(as_text)
def decorated(ctx: Any) -> dict[str, str]: ...  # type: ignore[empty-body]


@pytest.mark.parametrize("function", [either, something, unknown, bare, decorated, max])
def test_an_annotation_that_is_not_certain_refuses_nothing(function: Callable[..., object]) -> None:
    assert 1 == environment().execute(function).value


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (as_coroutine, "calls asyncio.run(as_coroutine(…))"),
        (as_generator, "a call returns a generator: return a list"),
    ],
)
def test_a_function_that_only_begins_its_work_is_refused(
    function: Callable[..., object], said: str
) -> None:
    with pytest.raises(PlanError) as caught:
        environment().execute(function)

    assert str(caught.value).endswith(said)


@pytest.mark.parametrize("name", [None, "load"])
def test_what_a_function_returned_is_not_taken_for_a_function(name: str | None) -> None:
    expected = (
        "execute takes a function, but got {'rows': 3} (dict): write execute(f, …), not "
        "execute(f(…))"
    )
    with pytest.raises(PlanError) as caught:
        environment().execute({"rows": 3}, name=name)  # type: ignore[call-overload]

    assert expected == str(caught.value)


# --- a name of its own ----------------------------------------------------------------------------


def train(ctx: Any, data: str, name: str) -> None: ...
def tune(ctx: Any, data: str, name: str = "lr") -> None: ...
def anything(ctx: Any, **kwargs: object) -> None: ...


SAID = (
    "execute(…, name='x') names the job, and `{0}` does not get it as its own parameter `name`: "
    "write env.options(name='the job').execute({0}, …, name='x')"
)


def test_a_name_that_the_function_needs_itself_is_refused() -> None:
    with pytest.raises(SubmissionError) as caught:
        environment().execute(train, "data", name="x")

    assert SAID.format("train") == str(caught.value)


def test_a_name_that_the_function_may_need_is_warned_of_at_the_line_of_main() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        environment().execute_async(tune, "data", name="x")

    assert [(__file__, SAID.format("tune"))] == [(one.filename, str(one.message)) for one in told]


@pytest.mark.parametrize(("function", "args"), [(train, ("data", "lr")), (anything, ()), (max, ())])
def test_a_name_that_can_only_be_that_of_the_job_is_taken(
    function: Callable[..., object], args: tuple[str, ...]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        client = environment().execute_async(function, *args, name="x")

    assert "x" == client.name


def test_options_name_the_job_and_leave_the_function_its_own_name() -> None:
    link = Accepting()
    env = Environment(link, Assignment("a" * 32))
    client = env.options(name="train lr").execute_async(train, "data", name="lr")
    function, args, kwargs, _ = link.plan()

    assert "train lr" == client.name
    assert ("train", ("data",), {"name": "lr"}) == (function.__name__, args, kwargs)
    assert 1 == env.options(name="again").execute(train, "data", name="lr").value
