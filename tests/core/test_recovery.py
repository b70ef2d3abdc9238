from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.ha import ground
from understudy.core.recovery import (
    ENDED_LATELY_MAX,
    AnswerRun,
    Bootstrap,
    Bygone,
    Continue,
    Inventory,
    SubmitRun,
    Verdict,
    bootstrap,
    bound,
    differences,
    ended_lately,
    is_outdated,
    judge,
    needs_plan,
    rank,
)
from understudy.model import (
    ApplicationId,
    ApplicationRecord,
    ApplicationStatus,
    Incarnation,
    Intent,
    JobEntry,
    JobId,
    JobResultEntry,
    JobStatus,
    Pointer,
    RegistryBody,
    RegistryLink,
    RunId,
    Tombstone,
)

EXPLORE = settings(max_examples=150, deadline=None, derandomize=True)

POINTER = Pointer(path="p", digest="sha256:0", size=1)
MINTED = RunId("minted")


def stone(run: str, ended_at: float = 0.0) -> Tombstone:
    return Tombstone(
        application_id=ApplicationId(f"app-{run}"),
        run_id=RunId(run),
        name=run,
        status=ApplicationStatus.FINISHED,
        started_at=0.0,
        ended_at=ended_at,
        file=POINTER,
    )


def registry(*unfinished: str, ended: tuple[str, ...] = ()) -> RegistryBody:
    """Return a registry in which the runs that ended did so in the order in which they are told."""
    return RegistryBody(
        cluster_id="c",
        incarnation="i",
        applications={
            ApplicationId(f"app-{run}"): RegistryLink(document=f"doc-{run}", run_id=RunId(run))
            for run in unfinished
        },
        tombstones={RunId(run): stone(run, at) for at, run in enumerate(ended)},
    )


def forgotten(*runs: str, unfinished: tuple[str, ...] = ()) -> RegistryBody:
    """Return a registry that knows of runs only that they ended."""
    ended = dict.fromkeys((RunId(run) for run in runs), ApplicationStatus.FAILED)
    return replace(registry(*unfinished), ended=ended)


def bygone(run: str) -> Bygone:
    return Bygone(RunId(run), ApplicationStatus.FAILED)


def go_on(run: str) -> Continue:
    return Continue(ApplicationId(f"app-{run}"), RunId(run))


ENDED_TWO = registry(ended=("old", "new"))


@pytest.mark.parametrize(
    ("body", "wanted", "bound", "known", "expected"),
    [
        (registry(), None, None, (), SubmitRun(MINTED)),
        (registry(), "mine", None, (), SubmitRun(RunId("mine"))),
        (registry("mine"), "mine", None, (), go_on("mine")),
        (registry("other"), "mine", None, (), go_on("other")),
        (registry("other"), None, None, (), go_on("other")),
        (registry("other", "mine"), "mine", None, (), go_on("mine")),
        (registry("other", "mine"), None, "mine", (), go_on("mine")),
        (registry("other", "mine"), "mine", "other", (), go_on("mine")),
        (registry(ended=("mine",)), "mine", None, ("mine",), AnswerRun(stone("mine"))),
        (registry("other", ended=("mine",)), "mine", None, (), AnswerRun(stone("mine"))),
        (registry(ended=("mine",)), None, "mine", ("mine",), AnswerRun(stone("mine"))),
        (registry("other", ended=("mine",)), None, "mine", (), AnswerRun(stone("mine"))),
        (registry(ended=("old",)), None, None, ("old",), SubmitRun(MINTED)),
        (registry(ended=("old",)), "mine", None, ("old",), SubmitRun(RunId("mine"))),
        (registry(ended=("old",)), "mine", None, (), SubmitRun(RunId("mine"))),
        (ENDED_TWO, None, None, ("old",), AnswerRun(stone("new", 1))),
        (ENDED_TWO, None, None, (), AnswerRun(stone("new", 1))),
        (ENDED_TWO, None, None, ("new",), AnswerRun(stone("old", 0))),
        (ENDED_TWO, None, None, ("old", "new"), SubmitRun(MINTED)),
        (ENDED_TWO, None, "old", ("old",), AnswerRun(stone("old", 0))),
        (ENDED_TWO, "mine", "old", (), AnswerRun(stone("old", 0))),
        (forgotten("mine"), "mine", None, ("mine",), bygone("mine")),
        (forgotten("mine"), None, "mine", ("mine",), bygone("mine")),
        (forgotten("mine", unfinished=("other",)), "mine", None, (), bygone("mine")),
        (forgotten("old"), "mine", None, (), SubmitRun(RunId("mine"))),
        (forgotten("old"), None, None, ("old",), SubmitRun(MINTED)),
        (forgotten("old", "new"), None, None, ("old",), bygone("new")),
        (forgotten("old", unfinished=("other",)), None, None, (), go_on("other")),
        (registry("new", ended=("old",)), None, None, (), go_on("new")),
        (registry("new", ended=("old",)), None, "gone", (), go_on("new")),
    ],
)
def test_a_leader_continues_answers_or_begins_a_run(
    body: RegistryBody,
    wanted: str | None,
    bound: str | None,
    known: tuple[str, ...],
    expected: Bootstrap,
) -> None:
    actual = bootstrap(
        body,
        RunId(wanted) if wanted else None,
        RunId(bound) if bound else None,
        frozenset(RunId(run) for run in known),
        MINTED,
    )

    assert expected == actual


RUNS = st.sampled_from(["a", "b", "c"])


@EXPLORE
@given(
    st.sets(RUNS), st.sets(RUNS), st.sets(RUNS), st.none() | RUNS, st.none() | RUNS, st.sets(RUNS)
)
def test_nothing_begins_beside_an_unfinished_run_and_no_ended_run_begins_again(
    unfinished: set[str],
    ended: set[str],
    expired: set[str],
    wanted: str | None,
    bound: str | None,
    known: set[str],
) -> None:
    body = replace(
        registry(*sorted(unfinished), ended=tuple(sorted(ended - unfinished - expired))),
        ended=forgotten(*sorted(expired - unfinished)).ended,
    )

    actual = bootstrap(
        body,
        RunId(wanted) if wanted else None,
        RunId(bound) if bound else None,
        frozenset(RunId(run) for run in known),
        MINTED,
    )

    if isinstance(actual, SubmitRun):
        assert not unfinished
        assert actual.run_id not in {*body.tombstones, *body.ended}
    elif isinstance(actual, Continue):
        assert actual.run_id in unfinished


# --- which attempts -------------------------------------------------------------------------------

A, B, C = (JobId(name) for name in "ABC")
HERE, THERE = Incarnation("here"), Incarnation("there")


def entry(
    job_id: JobId, attempt: int, where: Incarnation | None = HERE, *, ended: bool = False
) -> JobEntry:
    intent = None
    if where:
        intent = Intent(
            attempt=attempt,
            taskmanager=where,
            driver=Incarnation("driver"),
            term=1,
            staged=f"{job_id}-{attempt}",
        )
    result = JobResultEntry(status=JobStatus.FINISHED, attempt=attempt, source=POINTER)
    return JobEntry(
        job_id=job_id,
        name=job_id,
        occurrence=0,
        plan=POINTER,
        submitted_at=0.0,
        attempt=attempt,
        intent=intent,
        result=result if ended else None,
    )


def running(job_id: JobId, attempt: int = 1) -> Inventory:
    return Inventory(job_id, attempt, running=True)


def over(job_id: JobId, attempt: int = 1) -> Inventory:
    return Inventory(job_id, attempt, running=False)


@pytest.mark.parametrize(
    ("reported", "entries", "expected"),
    [
        ([], [], Verdict((), (), (), ())),
        ([running(A)], [entry(A, 1)], Verdict((A,), (), (), ())),
        ([over(A)], [entry(A, 1)], Verdict((), (A,), (), ())),
        ([], [entry(A, 1)], Verdict((), (), (A,), ())),
        ([], [entry(A, 1, THERE)], Verdict((), (), (), ())),
        ([], [entry(A, 0, None)], Verdict((), (), (), ())),
        ([], [entry(A, 1, ended=True)], Verdict((), (), (), ())),
        ([running(A)], [], Verdict((), (), (), (running(A),))),
        ([over(A)], [], Verdict((), (), (), ())),
        ([running(A)], [entry(A, 1, ended=True)], Verdict((), (), (), (running(A),))),
        ([running(A)], [entry(A, 1, THERE)], Verdict((), (), (), (running(A),))),
        ([running(A)], [entry(A, 2)], Verdict((), (), (A,), (running(A),))),
        ([over(A)], [entry(A, 2)], Verdict((), (), (A,), ())),
        ([over(A), running(A, 2)], [entry(A, 2)], Verdict((A,), (), (), ())),
        (
            [running(A), over(B)],
            [entry(A, 1), entry(B, 1), entry(C, 1)],
            Verdict((A,), (B,), (C,), ()),
        ),
    ],
)
def test_a_registration_is_judged_by_the_intents(
    reported: list[Inventory], entries: list[JobEntry], expected: Verdict
) -> None:
    actual = judge(HERE, reported, {each.job_id: each for each in entries})

    assert expected == actual


ENTRIES = st.builds(
    entry,
    st.sampled_from([A, B, C]),
    st.integers(1, 3),
    st.sampled_from([HERE, THERE, None]),
    ended=st.booleans(),
)
REPORTS = st.dictionaries(
    st.tuples(st.sampled_from([A, B, C]), st.integers(1, 3)), st.booleans(), max_size=6
)


@EXPLORE
@given(st.lists(ENTRIES), REPORTS)
def test_each_intent_here_has_one_verdict_and_what_runs_without_one_is_stopped(
    entries: list[JobEntry], reports: dict[tuple[JobId, int], bool]
) -> None:
    known = {each.job_id: each for each in entries}
    inventory = [Inventory(job, attempt, running) for (job, attempt), running in reports.items()]
    expected = sorted(
        job
        for job, each in known.items()
        if each.intent and each.intent.taskmanager == HERE and not each.result
    )

    verdict = judge(HERE, inventory, known)
    actual = sorted([*verdict.running, *verdict.ended, *verdict.lost])
    left = [
        item
        for item in inventory
        if item.running
        and item not in verdict.foreign
        and not (item.job_id in verdict.running and known[item.job_id].attempt == item.attempt)
    ]

    assert expected == actual
    assert not left, "something runs that nobody answers for"


INTENT = Intent(
    attempt=1, taskmanager=Incarnation("tm"), driver=Incarnation("d"), term=1, staged="s"
)
RESULT = JobResultEntry(status=JobStatus.FINISHED, attempt=1, source=POINTER)
ENTRY = JobEntry(job_id=JobId("J"), name="j", occurrence=0, plan=POINTER, submitted_at=0.0)


@pytest.mark.parametrize(
    ("entry", "deployment", "expected"),
    [
        (ENTRY, 1, (False, False)),
        (ENTRY, 2, (True, False)),
        (replace(ENTRY, intent=INTENT), 1, (False, False)),
        (replace(ENTRY, intent=INTENT), 2, (True, True)),
        (replace(ENTRY, intent=INTENT, deployment=2), 2, (False, True)),
        (replace(ENTRY, intent=replace(INTENT, deployment=2), deployment=2), 2, (False, False)),
        (replace(ENTRY, intent=INTENT, displaced=True), 2, (True, False)),
        (replace(ENTRY, intent=INTENT, result=RESULT), 2, (False, False)),
        (replace(ENTRY, deployment=0), 1, (True, False)),
    ],
)
def test_code_of_an_earlier_deployment_is_told_in_plans_and_in_attempts(
    entry: JobEntry, deployment: int, expected: tuple[bool, bool]
) -> None:
    actual = needs_plan(entry, deployment), is_outdated(entry, deployment)

    assert expected == actual


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ((None, "load.py", ("a",)), []),
        (("monday", "load.py", ("a",)), []),
        (("tuesday", "load.py", ("a",)), ["the run id is tuesday, not monday"]),
        ((None, "other.py", ("a",)), ["it executes other.py, not load.py"]),
        ((None, "load.py", ()), ["its arguments are none, not a"]),
        ((None, "load.py", ("a", "b c")), ["its arguments are a 'b c', not a"]),
        (("tuesday", "other.py", ("b",)), ["the run id", "it executes", "its arguments"]),
    ],
)
def test_a_start_is_of_the_unfinished_run_or_it_is_said_how_it_differs(
    asked: tuple[str | None, str, tuple[str, ...]], expected: list[str]
) -> None:
    record = ApplicationRecord(
        application_id=ApplicationId("a"),
        run_id=RunId("monday"),
        name="load",
        target="load.py",
        script="load.py",
        args=("a",),
    )

    found = differences(record, *asked)

    assert len(expected) == len(found)
    assert all(said.startswith(start) for said, start in zip(found, expected, strict=True))


def registry_of(*runs: str) -> RegistryBody:
    """Return a registry that links these runs, in the order of their submission."""
    links = {
        ApplicationId(f"of {run}"): RegistryLink(document=f"application-{run}", run_id=RunId(run))
        for run in runs
    }
    return RegistryBody(cluster_id="c", incarnation="i", applications=links)


@pytest.mark.parametrize(
    ("linked", "before", "expected"),
    [
        ([], None, None),
        ([], "monday", "monday"),
        (["monday"], None, "monday"),
        (["monday", "tuesday"], None, "monday"),
        (["monday", "tuesday"], "tuesday", "tuesday"),
        (["tuesday"], "monday", "tuesday"),
    ],
)
def test_a_standby_follows_one_run_until_it_has_ended(
    linked: list[str], before: str | None, expected: str | None
) -> None:
    assert expected == bound(registry_of(*linked), RunId(before) if before else None)


def test_main_is_executed_by_priority_then_where_an_attempt_may_run_then_in_order() -> None:
    idle = ground.job(1)
    runs = replace(idle, intent=ground.intent())
    ranks = {
        "urgent": rank(1, 9.0, [idle]),
        "adopting": rank(0, 3.0, [idle, runs]),
        "first": rank(0, 1.0, [idle]),
        "second": rank(0, 2.0, []),
    }

    assert ["urgent", "adopting", "first", "second"] == sorted(ranks, key=ranks.__getitem__)


def test_of_the_runs_that_have_ended_the_last_ones_are_told() -> None:
    stones = {RunId(run): stone(run, ended_at) for run, ended_at in (("c", 3.0), ("b", 2.0))}
    ended = {RunId(f"old-{number}"): ApplicationStatus.FINISHED for number in range(200)}
    registry = RegistryBody(cluster_id="c", incarnation="i", tombstones=stones, ended=ended)
    told = ended_lately(registry)

    assert ("old-199", "b", "c") == told[-3:]
    assert ENDED_LATELY_MAX == len(told)
