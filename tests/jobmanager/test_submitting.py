"""What a leader does with submissions beside each other, and with one too many."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.ha import ground
from tests.jobmanager.test_dispatcher import Grant
from tests.jobmanager.test_many_applications import FLIGHTS, executed, led, of, submitted
from tests.support.faulty_register import Durable
from tests.support.virtual_time import run_virtual
from understudy.errors import LeadershipLost, SubmissionError, TooLargeError
from understudy.ha.application_store import StoredApplication
from understudy.jobmanager import dispatcher
from understudy.jobmanager.dispatcher import Binding
from understudy.jobmanager.surroundings import RunEnd
from understudy.model import ApplicationRecord, RunId


def test_a_first_job_s_id_is_one_application_s_before_that_has_the_job_too() -> None:
    async def main() -> None:
        durable = Durable()
        await submitted(durable, "one")
        grant = Grant(durable, 2, Binding(None, False, None, session=True))
        leading = await led(grant)
        first = replace(FLIGHTS, first_job_id=f"{7:032x}")
        at_once = await asyncio.gather(
            *(grant.dispatcher.submit(first, RunId(run)) for run in ("two", "three")),
            return_exceptions=True,
        )
        await asyncio.sleep(1)
        with pytest.raises(SubmissionError, match="used by another application"):
            await grant.dispatcher.submit(first, RunId("four"))
        two = grant.dispatcher.application(of("two"))
        assert two is not None
        await two.cancel()
        await asyncio.sleep(1)
        again = await grant.dispatcher.submit(first, RunId("five"))

        assert of("two") == at_once[0]
        assert isinstance(at_once[1], SubmissionError)
        assert of("five") == again, "an application without that job has ended"
        leading.cancel()

    run_virtual(main())


def test_the_next_leader_knows_the_first_job_s_id_of_an_application_without_a_job() -> None:
    async def main() -> None:
        durable = Durable()
        first = replace(FLIGHTS, first_job_id=f"{7:032x}")
        for term in (2, 3):
            grant = Grant(durable, term, Binding(None, False, None, session=True))
            leading = await led(grant)
            if term == 2:
                await grant.dispatcher.submit(first, RunId("one"))
            else:
                with pytest.raises(SubmissionError, match="used by another application"):
                    await grant.dispatcher.submit(first, RunId("two"))
            leading.cancel()
            await asyncio.gather(leading, return_exceptions=True)

    run_virtual(main())


def test_a_leader_that_stays_takes_applications_though_something_cannot_be_removed() -> None:
    async def main() -> None:
        durable = Durable()
        await submitted(durable, "one", cancelled=True)
        grant = Grant(durable, 2, Binding(None, False, None, session=True))
        base = f"{ground.CLUSTER}/applications"
        delete_tree, ended = grant.stores.storage.delete_tree, []

        async def delete(path: str) -> None:
            if path == f"{base}/foreign":
                raise PermissionError(path)
            await delete_tree(path)

        async def report_end(end: RunEnd) -> None:
            ended.append(end.run_id)

        grant.stores.storage.delete_tree = delete  # type: ignore[method-assign]
        grant.dispatcher._around = replace(grant.dispatcher._around, report_end=report_end)
        await grant.stores.storage.publish(f"{base}/foreign/blobs/b", b"of another user")
        leading = await led(grant)
        async with asyncio.timeout(30):
            await grant.dispatcher.submit(FLIGHTS, RunId("two"))
        await asyncio.sleep(1)

        assert (["one"], ["two"]) == (ended, executed(grant))
        leading.cancel()

    run_virtual(main())


def test_of_too_many_unfinished_applications_the_next_is_refused_and_nothing_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        durable = Durable()
        await submitted(durable, "one")
        monkeypatch.setattr(dispatcher, "APPLICATIONS_MAX", 2)
        grant = Grant(durable, 2, Binding(None, False, None, session=True))
        leading = await led(grant)
        outcomes = await asyncio.gather(
            *(grant.dispatcher.submit(FLIGHTS, RunId(run)) for run in ("two", "three")),
            return_exceptions=True,
        )
        await asyncio.sleep(1)
        again = await grant.dispatcher.submit(FLIGHTS, RunId("two"))
        directories = {
            path.split("/")[2] for path in durable.storage.files if "/applications/" in path
        }

        assert [of("two"), of("two")] == [outcomes[0], again]
        assert isinstance(outcomes[1], TooLargeError)
        assert "2 unfinished applications" in str(outcomes[1])
        assert 2 == len(directories)
        leading.cancel()

    run_virtual(main())


def test_whose_application_is_being_stored_as_the_term_ends_learns_that_it_has_ended() -> None:
    async def main() -> None:
        durable = Durable()
        grant = Grant(durable, 2, Binding(None, False, None, session=True))
        leading = await led(grant)

        async def never(term: int, record: ApplicationRecord, directory: str) -> StoredApplication:
            return await asyncio.Future()

        grant.stores.applications.put = never  # type: ignore[method-assign]
        submitting = [
            asyncio.create_task(grant.dispatcher.submit(FLIGHTS, RunId("one"))) for _ in range(2)
        ]
        await asyncio.sleep(1)
        submitting[0].cancel()  # Who does not wait any more is not told anything.
        await asyncio.sleep(1)
        leading.cancel()
        left, waits = await asyncio.gather(*submitting, return_exceptions=True)

        assert isinstance(left, asyncio.CancelledError)
        assert isinstance(waits, LeadershipLost)

    run_virtual(main())
