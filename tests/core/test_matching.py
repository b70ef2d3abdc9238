from __future__ import annotations

import functools
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.core.ids import job_id
from understudy.core.matching import (
    NAME_BYTES_MAX,
    Assigned,
    Assignment,
    admitted,
    assign,
    check_name,
    name_of,
    resumed,
)
from understudy.errors import JobNameError
from understudy.model import JobEntry, JobId, Pointer

EXPLORE = settings(max_examples=150, deadline=None, derandomize=True)

APPLICATION = "a" * 32
FIRST = "f" * 32
POINTER = Pointer(path="p", digest="sha256:0", size=1)


def submitted(names: list[str], first_job_id: str = "") -> list[Assigned]:
    return executed(Assignment(APPLICATION, first_job_id), names)


def executed(state: Assignment, names: list[str]) -> list[Assigned]:
    assigned = []
    for name in names:
        state, one = assign(state, name)
        assigned.append(one)
    return assigned


def by_place(assigned: list[Assigned]) -> dict[tuple[str, int], JobId]:
    return {(one.name, one.occurrence): one.job_id for one in assigned}


def load_flights() -> None: ...


def test_a_job_is_known_by_its_name_and_among_equal_names_by_its_order() -> None:
    expected = [
        Assigned(job_id(APPLICATION, "load", 0), "load", 0, repeated=False),
        Assigned(job_id(APPLICATION, "count", 0), "count", 0, repeated=False),
        Assigned(job_id(APPLICATION, "load", 1), "load", 1, repeated=True),
        Assigned(job_id(APPLICATION, "load", 2), "load", 2, repeated=False),
        Assigned(job_id(APPLICATION, "count", 1), "count", 1, repeated=True),
    ]

    actual = submitted(["load", "count", "load", "load", "count"])

    assert expected == actual


def test_the_first_job_takes_the_configured_id_and_no_other_does() -> None:
    expected = [
        Assigned(JobId(FIRST), "load", 0, repeated=False),
        Assigned(job_id(APPLICATION, "load", 1), "load", 1, repeated=True),
        Assigned(job_id(APPLICATION, "count", 0), "count", 0, repeated=False),
    ]

    actual = submitted(["load", "load", "count"], FIRST)

    assert expected == actual


def test_an_assignment_is_not_changed_by_the_next_submission() -> None:
    expected = Assignment(APPLICATION)

    actual = Assignment(APPLICATION)
    assign(actual, "load")

    assert expected == actual


def test_another_application_gives_another_id() -> None:
    _, one = assign(Assignment("a" * 32), "load")
    _, other = assign(Assignment("b" * 32), "load")

    assert one.job_id != other.job_id


NAMES = st.lists(st.sampled_from(["load", "count", "load#1", "0", "1"]), max_size=12)


@EXPLORE
@given(NAMES, st.randoms(use_true_random=False))
def test_another_order_of_different_names_changes_no_id(names: list[str], random: Random) -> None:
    shuffled = list(names)
    random.shuffle(shuffled)
    expected = by_place(submitted(names))

    actual = by_place(submitted(shuffled))

    assert expected == actual


@EXPLORE
@given(NAMES, st.sampled_from(["", FIRST]))
def test_no_two_submissions_of_one_execution_have_the_same_id(
    names: list[str], first_job_id: str
) -> None:
    expected = len(names)

    actual = len({one.job_id for one in submitted(names, first_job_id)})

    assert expected == actual


@EXPLORE
@given(NAMES, st.integers(0, 12))
def test_a_shorter_execution_gives_the_same_ids_as_far_as_it_comes(
    names: list[str], length: int
) -> None:
    expected = submitted(names, FIRST)[:length]

    actual = submitted(names[:length], FIRST)

    assert expected == actual


@EXPLORE
@given(NAMES)
def test_each_name_is_warned_of_once(names: list[str]) -> None:
    expected = sorted(name for name in set(names) if names.count(name) > 1)

    actual = sorted(one.name for one in submitted(names) if one.repeated)

    assert expected == actual


def stored(assigned: list[Assigned]) -> list[JobEntry]:
    return [
        JobEntry(
            job_id=one.job_id,
            name=one.name,
            occurrence=one.occurrence,
            plan=POINTER,
            submitted_at=0.0,
        )
        for one in assigned
    ]


@EXPLORE
@given(NAMES, st.randoms(use_true_random=False), st.sampled_from(["", FIRST]), st.integers(1, 12))
def test_what_was_stored_keeps_its_id_whatever_the_next_execution_submits_first(
    names: list[str], random: Random, first_job_id: str, length: int
) -> None:
    before = submitted(names, first_job_id)[:length]
    shuffled = list(names)
    random.shuffle(shuffled)
    expected = by_place(before)

    state = resumed(APPLICATION, first_job_id, iter(stored(before)))
    actual = by_place(executed(state, shuffled))

    assert expected == {place: actual[place] for place in expected}
    assert len(shuffled) == len(set(actual.values()))


def test_the_configured_id_is_for_nobody_else_once_it_was_given() -> None:
    expected = [job_id(APPLICATION, "count", 0), job_id(APPLICATION, "count", 1), JobId(FIRST)]

    state = resumed(APPLICATION, FIRST, stored(submitted(["load"], FIRST)))
    actual = [one.job_id for one in executed(state, ["count", "count", "load"])]

    assert expected == actual


def test_before_anything_is_stored_the_configured_id_is_free() -> None:
    expected = Assignment(APPLICATION, FIRST)

    actual = resumed(APPLICATION, FIRST, [])

    assert expected == actual


def test_where_the_first_job_was_refused_nobody_has_the_configured_id() -> None:
    expected = by_place(submitted(["count", "load"]))

    state = resumed(APPLICATION, FIRST, stored(submitted(["refused", "count"], FIRST)[1:]))
    actual = by_place(executed(state, ["count", "load"]))

    assert expected == actual


# --- what is admitted -----------------------------------------------------------------------------

COUNT, LOAD = job_id(APPLICATION, "count", 0), job_id(APPLICATION, "load", 0)
FREE, TAKEN = Assignment(APPLICATION, FIRST), Assignment(APPLICATION, FIRST, "load")


@pytest.mark.parametrize(
    ("state", "claimed", "name", "occurrence", "expected"),
    [
        (Assignment(APPLICATION), LOAD, "load", 0, Assignment(APPLICATION, "", "load")),
        (FREE, JobId(FIRST), "load", 0, TAKEN),
        (FREE, COUNT, "count", 0, Assignment(APPLICATION, "", "count")),
        (TAKEN, JobId(FIRST), "load", 0, TAKEN),
        (TAKEN, COUNT, "count", 0, TAKEN),
        (TAKEN, job_id(APPLICATION, "load", 1), "load", 1, TAKEN),
    ],
)
def test_a_submission_is_admitted_with_the_id_that_is_its_own(
    state: Assignment, claimed: JobId, name: str, occurrence: int, expected: Assignment
) -> None:
    actual = admitted(state, claimed, name, occurrence)

    assert expected == actual


@pytest.mark.parametrize(
    ("state", "claimed", "name", "occurrence", "wanted"),
    [
        (Assignment(APPLICATION), COUNT, "load", 0, LOAD),
        (Assignment(APPLICATION), JobId(FIRST), "load", 0, LOAD),
        (FREE, COUNT, "load", 0, LOAD),
        (FREE, JobId(FIRST), "load", 1, job_id(APPLICATION, "load", 1)),
        (TAKEN, LOAD, "load", 0, FIRST),
        (TAKEN, JobId(FIRST), "count", 0, COUNT),
    ],
)
def test_a_submission_with_the_id_of_another_is_refused(
    state: Assignment, claimed: JobId, name: str, occurrence: int, wanted: str
) -> None:
    expected = f"job {name!r} came with id {claimed}, expected {wanted}"

    with pytest.raises(JobNameError) as caught:
        admitted(state, claimed, name, occurrence)

    assert expected == str(caught.value)


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["load", " load ", "größer als", "a/b\n<script>", "x" * NAME_BYTES_MAX, "é" * 500]
)
def test_a_name_is_taken_as_it_is(name: str) -> None:
    expected = name

    actual = check_name(name)

    assert expected == actual


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (None, "a job's name must be a string, not NoneType"),
        (7, "a job's name must be a string, not int"),
        (b"load", "a job's name must be a string, not bytes"),
        ("", "a job's name must not be empty"),
        (" \t\n", "a job's name must not be empty"),
        (
            "x" * 1001,
            f"the job name {'x' * 40!r}… has 1001 characters: at most 1000 bytes, shorten it",
        ),
        (
            "é" * 501,
            f"the job name {'é' * 40!r}… has 501 characters: at most 1000 bytes, shorten it",
        ),
        ("a\ud800", r"the job name 'a\ud800' holds a lone surrogate"),
        ("\udfffb", r"the job name '\udfffb' holds a lone surrogate"),
    ],
)
def test_a_name_that_could_not_be_found_again_is_refused(name: object, expected: str) -> None:
    with pytest.raises(JobNameError) as caught:
        check_name(name)

    assert expected == str(caught.value)


@pytest.mark.parametrize(
    ("name", "expected"), [(None, "load_flights"), ("load", "load"), ("<lambda>", "<lambda>")]
)
def test_a_job_has_the_given_name_or_that_of_its_function(name: str | None, expected: str) -> None:
    actual = name_of(load_flights, name)

    assert expected == actual


@pytest.mark.parametrize("function", [lambda: None, functools.partial(load_flights), object()])
def test_a_function_without_a_name_must_be_named(function: object) -> None:
    expected = " has no name by which its job could be found again: pass name='…'"

    with pytest.raises(JobNameError) as caught:
        name_of(function, None)

    assert str(caught.value).endswith(expected)


def test_a_lambda_may_be_named() -> None:
    expected = "load"

    actual = name_of(lambda: None, "load")

    assert expected == actual


def test_an_empty_given_name_does_not_fall_back_to_that_of_the_function() -> None:
    with pytest.raises(JobNameError, match="must not be empty"):
        name_of(load_flights, "")
