"""What a person changes about an unfinished run: once, by whoever leads first, at every crash."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.ha import ground
from tests.support.faulty_register import Died, Durable, Fault, Faults
from tests.support.virtual_time import run_virtual
from understudy.core.ids import application_id
from understudy.core.recovery import chosen_directory, lineage
from understudy.ha.application_store import StoredApplication
from understudy.ha.execution_plan_store import ExecutionPlanStore
from understudy.jobmanager import redeployment
from understudy.jobmanager.redeployment import Changes
from understudy.jobmanager.submission import Submission
from understudy.model import JobEntry, JobId, JobStatus, Pointer, Restarts
from understudy.process.code import SourceFile
from understudy.process.reporter import Silent

DONE, OPEN = ground.job(1), ground.job(2, attempt=2)
NOW = 500.0


@pytest.fixture
def code(tmp_path: Path) -> Submission:
    return submission(tmp_path, "new")


def submission(place: Path, text: str) -> Submission:
    script = place / f"{text}.py"
    script.write_text(text)
    files = (SourceFile(script, "app/app.py"),)
    return Submission("flights", "app.py", str(script), (text,), str(place), files)


async def begin(durable: Durable) -> Changes:
    """Leave an unfinished run with a result; return what a start over it would change."""
    stores = ground.services(durable)
    await stores.registry.claim(1, ephemeral=False)
    record = ground.record(application=application_id(ground.CLUSTER, ground.RUN))
    stored = await stores.applications.put(1, replace(record, first_job_id="f" * 32), "d")
    plans = stores.plans(stored)
    await plans.claim(1)
    staged = ground.staged("d", DONE)
    await stores.storage.publish(staged, ground.outcome(DONE))
    ended = ground.with_result(DONE, staged, ground.outcome(DONE))
    assert ended.result is not None
    intent = ground.intent(staged=staged)
    counted = replace(
        ended,
        cancel_requested=True,
        stop_requested=JobStatus.FINISHED,
        restarts=Restarts(failures=2),
    )
    await plans.add(1, replace(counted, intent=intent))
    await plans.add(1, OPEN)
    await stored.update(1, lambda body: replace(body, restarts=Restarts(losses=2)))
    await stores.job_results.publish_dirty(DONE.job_id, ended.result.source)
    return Changes(
        stored.body.record.digest, ("app.py",), {DONE.job_id: ended.result.source.digest}
    )


async def lead(
    durable: Durable, term: int, changes: Changes, code: Submission, faults: Faults | None = None
) -> tuple[StoredApplication, ExecutionPlanStore, bool]:
    """Do what a leader does with the changes that it was started with."""
    stores = ground.services(durable, faults)
    registry = await stores.registry.claim(term, ephemeral=False)
    (stored,) = (await stores.applications.recover(term, registry)).sound
    deployed = await redeployment.deploy(stores, stored, code, changes, term, NOW)
    plans = stores.plans(stored)
    await plans.claim(term)
    await redeployment.discard(stores, plans, changes, term, Silent())
    return stored, plans, deployed


def test_other_code_becomes_the_record_and_the_ids_of_jobs_stay(code: Submission) -> None:
    async def main() -> None:
        durable = Durable()
        changes = await begin(durable)
        stored, _, deployed = await lead(durable, 2, changes, code)
        record = await ground.services(durable).applications.record(stored.body)

        assert deployed
        assert (2, Restarts()) == (stored.body.deployment, stored.body.restarts)
        assert (("new",), "f" * 32, NOW) == (record.args, record.first_job_id, record.submitted_at)

    run_virtual(main())


def test_it_is_deployed_once_however_often_the_leader_changes(code: Submission) -> None:
    async def main() -> None:
        durable = Durable()
        changes = await begin(durable)
        first, *_ = await lead(durable, 2, changes, code)
        second, _, deployed = await lead(durable, 3, changes, code)

        assert (first.body, False) == (second.body, deployed)

    run_virtual(main())


def test_a_standby_that_was_started_with_older_code_does_not_flip_it_back(
    code: Submission, tmp_path: Path
) -> None:
    """Both were started over the first record; the other one led first."""

    async def main() -> None:
        durable = Durable()
        changes = await begin(durable)
        newest, *_ = await lead(durable, 2, changes, code)
        for older in (changes, redeployment.NO_CHANGES):
            stored, _, deployed = await lead(durable, 3, older, submission(tmp_path, "older"))

            assert (newest.body, False) == (stored.body, deployed)

    run_virtual(main())


def test_code_that_is_gone_by_the_time_its_jobmanager_leads_is_not_deployed(
    code: Submission,
) -> None:
    async def main() -> None:
        durable = Durable()
        changes = await begin(durable)
        Path(code.script).unlink()
        stored, _, deployed = await lead(durable, 2, changes, code)

        assert (1, False) == (stored.body.deployment, deployed)

    run_virtual(main())


def test_a_discarded_result_leaves_a_job_that_needs_its_plan_and_goes_on_counting(
    code: Submission,
) -> None:
    expected = replace(DONE, deployment=0, begun_after=DONE.attempt)

    async def main() -> list[JobEntry]:
        durable = Durable()
        changes = replace(await begin(durable), over="")
        _, plans, _ = await lead(durable, 2, changes, code)
        path = ground.services(durable).job_results.dirty_path(DONE.job_id)

        assert not await ground.services(durable).storage.exists(path)
        return list(plans.entries.values())

    assert [expected, OPEN] == run_virtual(main())


@pytest.mark.parametrize("retained", [False, True])
def test_what_a_discarded_result_has_left_goes_unless_it_is_retained(
    code: Submission, tmp_path: Path, retained: bool
) -> None:
    directory = tmp_path / DONE.job_id
    (directory / "streaming").mkdir(parents=True)

    async def main() -> None:
        durable = Durable()
        changes = await begin(durable)

        def ended(entry: JobEntry) -> JobEntry:
            assert entry.intent
            assert entry.result
            intent = replace(entry.intent, checkpoints=str(directory))
            kept = f"{directory}/checkpoint-1.json" if retained else ""
            return replace(entry, intent=intent, result=replace(entry.result, checkpoint=kept))

        _, plans, _ = await lead(durable, 2, redeployment.NO_CHANGES, code)
        await plans.update(2, DONE.job_id, ended)
        _, plans, _ = await lead(durable, 3, changes, code)
        entry = plans.entries[DONE.job_id]

        assert f"{tmp_path}/{DONE.job_id}-1" == chosen_directory(str(tmp_path), entry)

    run_virtual(main())

    assert retained == directory.exists()


def test_each_time_that_a_job_is_run_anew_it_leaves_its_traces_under_another_name() -> None:
    entry = JobEntry(
        job_id=JobId("a" * 32),
        name="load",
        occurrence=0,
        plan=Pointer(path="", digest="", size=0),
        submitted_at=0,
    )
    names = [lineage(replace(entry, begun_after=number)) for number in (0, 1, 3)]

    assert ["a" * 32, f"{'a' * 32}-1", f"{'a' * 32}-3"] == names


def test_the_result_of_the_next_attempt_is_not_discarded(code: Submission) -> None:
    async def main() -> None:
        durable = Durable()
        changes = await begin(durable)
        _, plans, _ = await lead(durable, 2, changes, code)
        again = replace(DONE, attempt=2)
        ended = ground.with_result(again, ground.staged("d", again), ground.outcome(again))
        await plans.update(2, DONE.job_id, lambda _: ended)
        _, plans, _ = await lead(durable, 3, changes, code)

        assert ended == plans.entries[DONE.job_id]

    run_virtual(main())


@pytest.mark.parametrize("fault", [Fault.DIES_BEFORE, Fault.DIES_AFTER, Fault.ANSWER_LOST])
def test_stopped_at_every_call_the_next_leader_reaches_the_same(
    code: Submission, fault: Fault
) -> None:
    async def calls() -> int:
        durable, faults = Durable(), Faults()
        await lead(durable, 2, await begin(durable), code, faults)
        return len(faults.calls)

    async def main(number: int) -> tuple[object, ...]:
        durable = Durable()
        changes = await begin(durable)
        with contextlib.suppress(Died, OSError):
            await lead(durable, 2, changes, code, Faults({number: fault}))
        stored, plans, _ = await lead(durable, 3, changes, code)
        record = await ground.services(durable).applications.record(stored.body)
        return stored.body.deployment, record.args, list(plans.entries.values())

    anew = replace(DONE, deployment=0, begun_after=DONE.attempt)
    expected = (2, ("new",), [anew, OPEN])

    for number in range(run_virtual(calls())):
        assert expected == run_virtual(main(number)), number
