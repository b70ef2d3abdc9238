"""The public API explains itself: each name is exported and documented, with what is raised."""

from __future__ import annotations

import inspect
import pydoc
import re
from collections.abc import Iterator

import pytest

import understudy
from understudy.application import job_client

NAMES = sorted({*understudy.__all__} - {"__version__"})


def public(name: str) -> Iterator[tuple[str, object]]:
    """Return a public name and, of a class, its public methods and properties."""
    found = getattr(understudy, name)
    yield name, found
    for member, value in vars(found).items() if inspect.isclass(found) else ():
        called = inspect.isfunction(value) or isinstance(value, property | staticmethod)
        if called and not member.startswith("_"):
            yield f"{name}.{member}", getattr(found, member)
    if issubclass(found, understudy.Environment) if inspect.isclass(found) else False:
        for member in ("execute", "execute_async", "options"):
            yield f"{name}.{member}", getattr(found, member)


def documented() -> list[tuple[str, str]]:
    """Return each public name with its documentation."""
    return [
        (place, (value.__doc__ or "") if hasattr(value, "__doc__") else "")
        for name in NAMES
        for place, value in public(name)
    ]


@pytest.mark.parametrize(("place", "text"), documented(), ids=[one for one, _ in documented()])
def test_each_public_name_says_what_it_is(place: str, text: str) -> None:
    sentence = text.strip().split("\n\n")[0].split("\n")[0]

    assert len(sentence.split()) >= 3, f"{place}: {text!r}"
    assert sentence[0].isupper() or sentence.startswith("`")


@pytest.mark.parametrize("name", NAMES)
def test_help_shows_the_documentation(name: str) -> None:
    found = getattr(understudy, name)
    first = inspect.getdoc(found)

    assert first
    assert first.splitlines()[0] in pydoc.plain(pydoc.render_doc(found))


def test_what_is_raised_is_exported() -> None:
    """By documentation, and by the answers that `execute` and `result` turn into errors."""
    named = {
        error
        for _, text in documented()
        for sentence in re.findall(r"[Rr]aise[sd]? [^.]*", text)
        for error in re.findall(r"`([A-Z]\w+)`", sentence)
    }
    raised = {error.__name__ for error in job_client._ERRORS.values()}
    expected: set[str] = set()

    assert {"JobFailed", "SubmissionError", "UsageError", "JobStopped"} <= named
    assert expected == (named | raised) - {*understudy.__all__}


def test_each_exported_error_is_an_understudy_error() -> None:
    found = [getattr(understudy, name) for name in NAMES]
    errors = [one for one in found if inspect.isclass(one) and issubclass(one, Exception)]

    assert len(errors) > 10
    assert all(issubclass(one, understudy.UnderstudyError) for one in errors)


def test_the_names_are_those_that_the_package_lists() -> None:
    assert set(NAMES) <= set(dir(understudy))
    with pytest.raises(AttributeError, match="has no attribute 'Jobs'"):
        getattr(understudy, "Jobs")  # noqa: B009 -- a name that is not there
