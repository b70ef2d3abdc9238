from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

import pytest
from msgspec.structs import replace

from understudy.core.ending import CleanJob, EndApplication, EndingStep, Task, next_tasks
from understudy.model import (
    ApplicationDocument,
    ApplicationId,
    ApplicationResultEntry,
    ApplicationStatus,
    JobEntry,
    JobId,
    JobResultEntry,
    JobStatus,
    Pointer,
    RunId,
)

POINTER = Pointer(path="p", digest="sha256:0", size=1)
RESULT = ApplicationResultEntry(status=ApplicationStatus.FINISHED, source=POINTER, end_time=2.0)

OPEN, DIRTY, CLEANED, CLEAN = "open", "dirty", "cleaned", "clean"


def job(name: str, how: str) -> JobEntry:
    result = JobResultEntry(
        status=JobStatus.FINISHED,
        attempt=1,
        source=POINTER,
        cleaned=how in {CLEANED, CLEAN},
        clean=how == CLEAN,
    )
    return JobEntry(
        job_id=JobId(name),
        name=name,
        occurrence=0,
        plan=POINTER,
        submitted_at=1.0,
        result=None if how == OPEN else result,
    )


def jobs(*hows: str) -> list[JobEntry]:
    return [job(name, how) for name, how in zip("ABCDEF", hows, strict=False)]


def application(how: str, *, tombstone: bool = False) -> ApplicationDocument:
    return ApplicationDocument(
        application_id=ApplicationId("app"),
        run_id=RunId("run"),
        name="app",
        directory="app-1",
        record=POINTER,
        status=ApplicationStatus.RUNNING,
        created_at=1.0,
        result=None if how == OPEN else replace(RESULT, clean=how == CLEAN),
        tombstone=POINTER if tombstone else None,
    )


def end(kind: EndingStep) -> list[Task]:
    return [EndApplication(kind)]


def clean(*names: str) -> list[Task]:
    return [CleanJob(JobId(name)) for name in names]


@pytest.mark.parametrize(
    ("how", "entries", "expected"),
    [
        (OPEN, jobs(), []),
        (OPEN, jobs(OPEN), []),
        (OPEN, jobs(OPEN, DIRTY, CLEANED, DIRTY), clean("B", "D")),
        (OPEN, jobs(CLEANED), []),
        (DIRTY, jobs(DIRTY, CLEANED), clean("A")),
        (DIRTY, jobs(DIRTY, OPEN), clean("A")),
        (DIRTY, jobs(CLEANED, OPEN), []),
        (DIRTY, jobs(CLEANED, CLEANED), end(EndingStep.WRITE_TOMBSTONE)),
        (DIRTY, jobs(), end(EndingStep.WRITE_TOMBSTONE)),
    ],
)
def test_what_is_to_be_done_next_follows_from_what_is_durable(
    how: str, entries: list[JobEntry], expected: list[Task]
) -> None:
    actual = next_tasks(application(how), entries)

    assert expected == actual


@pytest.mark.parametrize(
    ("how", "entries", "done", "expected"),
    [
        (DIRTY, jobs(CLEANED), [], end(EndingStep.MARK_JOBS_CLEAN)),
        (DIRTY, jobs(CLEAN, CLEANED), [], end(EndingStep.MARK_JOBS_CLEAN)),
        (DIRTY, jobs(CLEAN), [], end(EndingStep.CLEAN_APPLICATION)),
        (
            DIRTY,
            jobs(CLEAN),
            [EndingStep.CLEAN_APPLICATION],
            end(EndingStep.MARK_APPLICATION_CLEAN),
        ),
        (DIRTY, jobs(), [], end(EndingStep.CLEAN_APPLICATION)),
        (DIRTY, jobs(), [EndingStep.CLEAN_APPLICATION], end(EndingStep.MARK_APPLICATION_CLEAN)),
        (CLEAN, jobs(CLEAN), [], end(EndingStep.BURY)),
        (CLEAN, jobs(), [], end(EndingStep.BURY)),
    ],
)
def test_nothing_but_jobs_is_cleaned_up_before_the_application_points_to_its_tombstones_file(
    how: str, entries: list[JobEntry], done: list[EndingStep], expected: list[Task]
) -> None:
    first = next_tasks(application(how), entries, frozenset(done))
    then = next_tasks(application(how, tombstone=True), entries, frozenset(done))

    assert end(EndingStep.WRITE_TOMBSTONE) == first
    assert expected == then


def test_jobs_may_come_from_any_iterable() -> None:
    expected = clean("A", "B")

    actual = next_tasks(application(DIRTY), iter(jobs(DIRTY, DIRTY)))

    assert expected == actual


def test_each_step_is_told_to_people_in_its_own_words() -> None:
    expected = len(EndingStep)

    actual = len({kind.value for kind in EndingStep})

    assert expected == actual


@dataclass
class World:
    """What is durable, and (``noted``, ``done``) what only this leader knows."""

    application: ApplicationDocument
    jobs: dict[JobId, JobEntry]
    plans: set[JobId] = field(default_factory=set)
    directory: bool = True
    documents: bool = True
    noted: set[JobId] = field(default_factory=set)
    done: frozenset[EndingStep] = frozenset()

    def seen(self) -> list[JobEntry]:
        """Return the jobs as this leader sees them: with what it will write some day."""
        return [
            replace(entry, result=replace(entry.result, cleaned=True))
            if job_id in self.noted and entry.result
            else entry
            for job_id, entry in self.jobs.items()
        ]

    def crash(self) -> None:
        self.noted, self.done = set(), frozenset()

    def ending(self) -> Iterator[str]:
        """Do all that is left, telling each write: a crash may come after any."""
        while self.documents:
            tasks = next_tasks(self.application, self.seen(), self.done)
            assert tasks, "the end has no end"
            for task in tasks:
                yield from self.do(task)

    def do(self, task: Task) -> Iterator[str]:
        match task:
            case CleanJob():
                assert self.application_is_dirty_or_open(), "cleaned up after the clean result"
                assert self.jobs[task.job_id].result, "the job has no result"
                self.plans.discard(task.job_id)
                yield f"clean {task.job_id}"
                self.noted.add(task.job_id)
            case EndApplication(EndingStep.WRITE_TOMBSTONE):
                assert self.directory, "there is nothing left to write it from"
                assert not self.plans, "a job is not cleaned up"
                self.application = replace(self.application, tombstone=POINTER)
                yield "tombstone"
            case EndApplication(EndingStep.MARK_JOBS_CLEAN):
                assert self.application.tombstone, "what the jobs returned would be lost"
                assert self.application.result, "no application result is dirty yet"
                for job_id, entry in self.jobs.items():
                    assert entry.result
                    marked = replace(entry.result, cleaned=True, clean=True)
                    self.jobs[job_id] = replace(entry, result=marked)
                    yield f"mark {job_id}"
            case EndApplication(EndingStep.CLEAN_APPLICATION):
                assert self.application.tombstone, "the result would be lost"
                assert self.all_jobs_clean()
                self.directory = False
                yield "clean application"
            case EndApplication(EndingStep.MARK_APPLICATION_CLEAN):
                assert self.all_jobs_clean()
                assert not self.directory, "its own things are not cleaned up"
                assert self.application.result
                marked_clean = replace(self.application.result, clean=True)
                self.application = replace(self.application, result=marked_clean)
                yield "mark application"
            case EndApplication(EndingStep.BURY):
                assert self.application.result
                assert self.application.result.clean
                self.documents = False
                yield "bury"
        if isinstance(task, EndApplication):
            self.done |= {task.kind}

    def application_is_dirty_or_open(self) -> bool:
        return self.application.result is None or not self.application.result.clean

    def all_jobs_clean(self) -> bool:
        return all(entry.result and entry.result.clean for entry in self.jobs.values())


def world(how: str, *hows: str) -> World:
    entries = {entry.job_id: entry for entry in jobs(*hows)}
    plans = {
        entry.job_id for entry in entries.values() if entry.result and not entry.result.cleaned
    }
    # Jobs are marked clean once the tombstone is there, and the application after its directory.
    return World(
        application(how, tombstone=how == CLEAN or CLEAN in hows),
        entries,
        plans,
        directory=how != CLEAN,
    )


BEGINNINGS = [
    *((DIRTY, *hows) for count in range(4) for hows in product([DIRTY, CLEANED], repeat=count)),
    *((DIRTY, *hows) for hows in product([CLEAN, CLEANED], repeat=3)),
    (CLEAN,),
    (CLEAN, CLEAN, CLEAN),
]


def in_the_end(done: World) -> tuple[object, ...]:
    return (
        done.application,
        done.jobs,
        done.plans,
        done.directory,
        done.documents,
    )


@pytest.mark.parametrize("beginning", BEGINNINGS, ids=" ".join)
def test_from_every_beginning_the_end_is_reached_in_order(beginning: tuple[str, ...]) -> None:
    how, *hows = beginning
    done = world(how, *hows)
    expected = in_the_end(
        World(
            application(CLEAN, tombstone=True),
            {entry.job_id: entry for entry in jobs(*[CLEAN] * len(hows))},
            directory=False,
            documents=False,
        )
    )

    writes = list(done.ending())

    assert expected == in_the_end(done)
    assert len(writes) == len(set(writes)), "without a crash nothing is done twice"


@pytest.mark.parametrize("beginning", BEGINNINGS, ids=" ".join)
def test_after_a_crash_at_any_two_points_the_end_is_the_same(beginning: tuple[str, ...]) -> None:
    how, *hows = beginning
    smooth = world(how, *hows)
    length = len(list(smooth.ending()))

    for first, second in product(range(length + 1), repeat=2):
        crashed = world(how, *hows)
        for point in (first, second):
            for _, _ in zip(range(point), crashed.ending(), strict=False):
                pass
            crashed.crash()
        for _ in crashed.ending():
            pass

        assert in_the_end(smooth) == in_the_end(crashed)


@pytest.mark.parametrize("hows", list(product([OPEN, DIRTY, CLEANED], repeat=3)), ids=" ".join)
def test_before_the_application_has_a_result_jobs_are_cleaned_up_and_nothing_else_is_done(
    hows: tuple[str, ...],
) -> None:
    expected = clean(*(name for name, how in zip("ABC", hows, strict=True) if how == DIRTY))

    actual = next_tasks(application(OPEN), jobs(*hows))

    assert expected == actual
