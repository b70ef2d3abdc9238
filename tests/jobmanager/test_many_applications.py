"""Many applications in one term: none harms another, or the leader."""

from __future__ import annotations

import asyncio
import io
import itertools
from dataclasses import replace as replace_fields
from typing import Any

import pytest
from msgspec.structs import replace

from tests.ha import ground
from tests.jobmanager.test_dispatcher import DAMAGED, STAYS, Grant, binding
from tests.support.faulty_register import Durable
from tests.support.virtual_time import run_virtual
from understudy.core.ids import application_id
from understudy.errors import (
    ConfigurationError,
    LeadershipLost,
    SubmissionError,
    TooLargeError,
)
from understudy.ha import layout
from understudy.ha.application_store import StoredApplication
from understudy.ha.artifact_store import ReceivedFile
from understudy.ha.format import digest
from understudy.ha.registry import application_document, checkpoints_document, segment_document
from understudy.jobmanager import dispatcher
from understudy.jobmanager.dispatcher import Binding
from understudy.jobmanager.submission import Submission
from understudy.jobmanager.surroundings import RunEnd
from understudy.model import (
    ApplicationId,
    ApplicationStatus,
    Checkpoints,
    JobId,
    RunId,
    Segment,
)
from understudy.process import code

RUNS = ("one", "two", "three")
FLIGHTS = Submission("flights", "app.py", "/app.py", (), "", ())


def of(run: str) -> ApplicationId:
    """Return the id of a run's application."""
    return application_id(ground.CLUSTER, RunId(run))


async def submitted(
    durable: Durable, *runs: str, cancelled: bool = False
) -> dict[str, StoredApplication]:
    """Leave applications that an earlier leader has stored."""
    stores = ground.services(durable)
    await stores.registry.claim(1, ephemeral=False)
    found = {}
    for run in runs:
        record = ground.record(RunId(run), of(run))
        directory = stores.applications.new_directory()
        stored = await stores.applications.put(1, record, directory)
        if cancelled:
            await stored.update(1, lambda body: replace(body, cancel_requested=True))
        found[run] = stored
    return found


async def damage(durable: Durable, key: str) -> tuple[bytes, str]:
    """Alter a document; return what it was, and its version now."""
    entry = await durable.register.load(key)
    assert entry is not None
    return entry.value, await durable.register.swap(key, DAMAGED, entry.version)


def executed(grant: Grant) -> list[str]:
    """Return the runs whose ``main`` is executed."""
    return sorted(
        linked.run_id
        for linked in grant.dispatcher.applications.values()
        if linked.application and linked.application.status is ApplicationStatus.RUNNING
    )


async def led(grant: Grant) -> asyncio.Task[Any]:
    """Let it lead, until all is executed that can be."""
    leading = asyncio.create_task(grant.dispatcher.run(grant.publish))
    await asyncio.wait(
        {leading, asyncio.create_task(grant.serves.wait())}, return_when="FIRST_COMPLETED"
    )
    await asyncio.sleep(1)
    return leading


def test_a_new_leader_executes_all_and_serves_each() -> None:
    async def main() -> None:
        durable = Durable()
        await submitted(durable, *RUNS)
        grant = Grant(durable, 2, binding(), STAYS)
        leading = await led(grant)

        assert 3 == len(grant.dispatcher.applications)
        assert ["one", "two"] == executed(grant), "so many processes start at once"
        leading.cancel()

    run_virtual(main())


def test_one_that_is_damaged_is_parked_and_shown_while_the_others_run_and_then_continues() -> None:
    async def main() -> None:
        durable = Durable()
        stored = await submitted(durable, "one", "two")
        sound, version = await damage(durable, stored["one"].key)
        grant = Grant(durable, 2, binding(), STAYS)
        leading = await led(grant)
        parked = dict(grant.dispatcher.attention)
        before = executed(grant)
        await durable.register.swap(stored["one"].key, sound, version)
        await asyncio.sleep(10)

        assert [of("one")] == list(parked)
        assert stored["one"].key in parked[of("one")]
        assert (["two"], ["one", "two"]) == (before, executed(grant))
        assert {} == grant.dispatcher.attention
        assert not leading.done(), "the leader has led all the time"
        leading.cancel()

    run_virtual(main())


@pytest.mark.parametrize("error", [RuntimeError("a bug"), OSError("no space left")])
def test_one_that_fails_again_and_again_is_parked_for_longer_each_time(error: Exception) -> None:
    async def main() -> None:
        durable = Durable()
        await submitted(durable, "one", "two")
        grant = Grant(durable, 2, binding(), STAYS)
        tried: list[float] = []
        read = grant.stores.applications.record

        async def record(body: Any) -> Any:
            if body.run_id == "one":
                tried.append(asyncio.get_running_loop().time())
                if len(tried) <= 4:
                    raise error
            return await read(body)

        grant.stores.applications.record = record  # type: ignore[method-assign]
        leading = await led(grant)
        shown = grant.dispatcher.attention[of("one")]
        beside = executed(grant)
        await asyncio.sleep(60)
        pauses = [round(later - sooner) for sooner, later in itertools.pairwise(tried)]

        assert str(error) in shown
        assert ["two"] == beside
        assert [1, 2, 4, 8] == pauses
        assert ["one", "two"] == executed(grant)
        leading.cancel()

    run_virtual(main())


def test_one_that_is_alone_ends_the_term_for_an_error_without_a_reason() -> None:
    """Another process may do better; there is nobody whom that would disturb."""

    async def main() -> None:
        durable = Durable()
        await submitted(durable, "one")
        grant = Grant(durable, 2, binding())

        async def record(body: Any) -> Any:
            raise RuntimeError("a bug")

        grant.stores.applications.record = record  # type: ignore[method-assign]
        with pytest.raises(RuntimeError, match="a bug"):
            await grant.lead()

    run_virtual(main())


def test_where_the_cluster_is_for_one_run_the_leader_ends_once_all_have_ended() -> None:
    async def main() -> None:
        durable = Durable()
        await submitted(durable, "one", "two", cancelled=True)
        ended = await Grant(durable, 2, binding("two")).lead()
        registry = await ground.services(durable).registry.read()

        assert RunEnd(RunId("two"), ApplicationStatus.CANCELED) == ended
        assert registry is not None
        assert {} == registry.applications
        assert {"one", "two"} == set(registry.tombstones)

    run_virtual(main())


def test_a_leader_without_a_predecessor_ends_with_its_run() -> None:
    """There is no takeover to be reported then."""

    async def main() -> None:
        durable = Durable()
        await submitted(durable, "one")
        grant = Grant(durable, 2, binding("one"))
        leading = await led(grant)
        one = grant.dispatcher.application(of("one"))
        assert one is not None
        await one.cancel()
        ended = await asyncio.wait_for(leading, 60)

        assert RunEnd(RunId("one"), ApplicationStatus.CANCELED) == ended
        assert not one.jobs.taken_over.cancelled()

    run_virtual(main())


def test_a_lost_leadership_ends_the_term_of_all() -> None:
    async def main() -> None:
        durable = Durable()
        await submitted(durable, "one", "two")
        grant = Grant(durable, 2, binding(), STAYS)
        leading = await led(grant)
        (first, *_) = grant.dispatcher.applications.values()
        await ground.services(durable).registry.claim(3, ephemeral=False)
        for linked in ("one", "two"):
            registry = await ground.services(durable).registry.claim(3, ephemeral=False)
            link = registry.applications[of(linked)]
            await ground.services(durable).applications.claim(3, of(linked), link)
        assert first.application is not None
        with pytest.raises(LeadershipLost):
            await first.application.cancel()
        cancelled = asyncio.create_task(grant.dispatcher.submit(FLIGHTS, RunId("four")))
        with pytest.raises(LeadershipLost):
            await cancelled
        leading.cancel()

    run_virtual(main())


def test_the_leader_serves_while_the_storage_of_one_application_is_slow() -> None:
    async def main() -> None:
        durable = Durable()
        await submitted(durable, "one", "two")
        grant = Grant(durable, 2, binding(), STAYS)
        answers = asyncio.Event()
        read = grant.stores.applications.record

        async def record(body: Any) -> Any:
            if body.run_id == "one":
                await answers.wait()
            return await read(body)

        grant.stores.applications.record = record  # type: ignore[method-assign]
        began = asyncio.get_running_loop().time()
        leading = asyncio.create_task(grant.dispatcher.run(grant.publish))
        await grant.serves.wait()
        took_s = asyncio.get_running_loop().time() - began
        await asyncio.sleep(1)
        before = executed(grant)
        answers.set()
        await asyncio.sleep(1)

        assert took_s == pytest.approx(dispatcher.RECOVERY_S, abs=0.1)
        assert (["two"], ["one", "two"]) == (before, executed(grant))
        leading.cancel()

    run_virtual(main())


def test_the_end_of_one_removes_nothing_of_the_others_and_the_last_end_what_is_left() -> None:
    async def main() -> None:
        durable = Durable()
        await submitted(durable, "one", cancelled=True)
        await submitted(durable, "two")
        grant = Grant(durable, 2, Binding(None, False, None, session=True))
        leading = await led(grant)
        base = f"{ground.CLUSTER}/applications"
        await grant.stores.storage.publish(f"{base}/upload/blobs/b", b"is being stored")
        registry = await grant.stores.registry.read()
        beside = set(durable.storage.files)
        two = grant.dispatcher.application(of("two"))
        assert registry is not None
        assert two is not None
        await two.cancel()
        await asyncio.sleep(1)

        assert ["two"] == [link.run_id for link in registry.applications.values()]
        assert f"{base}/upload/blobs/b" in beside
        assert {"tombstones"} == {path.split("/")[1] for path in durable.storage.files}
        assert not leading.done(), "a session stays"
        leading.cancel()

    run_virtual(main())


def test_in_a_cluster_that_stays_old_tombstones_go_while_it_is_busy() -> None:
    async def main() -> None:
        durable = Durable()
        await submitted(durable, "stays")
        settings = {"application-result-store.tombstone-ttl": "1 min"}
        grant = Grant(durable, 2, Binding(None, False, None, session=True), settings)
        leading = await led(grant)
        for run in ("one", "two"):
            await grant.dispatcher.submit(FLIGHTS, RunId(run))
            await asyncio.sleep(1)
            application = grant.dispatcher.application(of(run))
            assert application is not None
            await application.cancel()
            await asyncio.sleep(100)
        registry = await grant.stores.registry.read()
        files = [path for path in durable.storage.files if "/tombstones/" in path]

        assert registry is not None
        assert ({"two"}, {"one"}) == (set(registry.tombstones), set(registry.ended))
        assert [registry.tombstones[RunId("two")].file.path] == files
        assert ["stays"] == executed(grant)
        leading.cancel()

    run_virtual(main())


def test_what_is_being_stored_is_not_swept_at_the_end_of_the_last_application() -> None:
    async def main() -> None:
        durable = Durable()
        await submitted(durable, "one")
        grant = Grant(durable, 2, Binding(None, False, None, session=True))
        leading = await led(grant)
        put, linked = grant.stores.applications.put, asyncio.Event()
        path = f"{ground.CLUSTER}/applications/{{}}/blobs/b"

        async def slowly(term: int, record: Any, directory: str) -> StoredApplication:
            await grant.stores.storage.publish(path.format(directory), b"is uploaded")
            await linked.wait()
            return await put(term, record, directory)

        grant.stores.applications.put = slowly  # type: ignore[method-assign]
        submitting = asyncio.create_task(grant.dispatcher.submit(FLIGHTS, RunId("two")))
        await asyncio.sleep(1)
        one = grant.dispatcher.application(of("one"))
        assert one is not None
        await one.cancel()
        await asyncio.sleep(1)
        linked.set()
        await submitting
        await asyncio.sleep(1)

        assert b"is uploaded" in durable.storage.files.values()
        assert ["two"] == executed(grant)
        leading.cancel()

    run_virtual(main())


def test_code_that_another_application_uses_stays(tmp_path: Any) -> None:
    base = tmp_path / "code"
    for name in ("mine", "shared", "before", ".draft-of-others"):
        (base / name).mkdir(parents=True)

    code.remove_layouts(base, frozenset({"shared"}))
    assert {"shared", ".draft-of-others"} == {one.name for one in base.iterdir()}

    code.remove_layouts(base)
    assert not base.exists()


def test_a_session_leads_without_an_application_and_executes_what_is_submitted_once() -> None:
    async def main() -> None:
        durable = Durable()
        grant = Grant(durable, 2, Binding(None, False, None, session=True))
        leading = await led(grant)
        ids = await asyncio.gather(
            *(grant.dispatcher.submit(FLIGHTS, RunId(run)) for run in ("one", "one", "two"))
        )
        again = await grant.dispatcher.submit(FLIGHTS, RunId("one"))
        await asyncio.sleep(1)
        registry = await grant.stores.registry.read()

        assert [of("one"), of("one"), of("two")] == ids
        assert of("one") == again
        assert registry is not None
        assert {of("one"), of("two")} == set(registry.applications)
        assert ["one", "two"] == executed(grant)
        leading.cancel()

    run_virtual(main())


def test_an_application_brings_settings_of_its_own_and_bad_ones_are_refused() -> None:
    async def main() -> None:
        durable = Durable()
        settings = {"job.result.max-size": "1 kb", "restart-strategy.type": "none"}
        grant = Grant(durable, 2, Binding(None, False, None, session=True), settings)
        leading = await led(grant)
        own = {"job.result.max-size": "2 kb", "application.priority": "7"}
        await grant.dispatcher.submit(replace_fields(FLIGHTS, configuration=own), RunId("one"))
        await grant.dispatcher.submit(FLIGHTS, RunId("two"))
        bad = replace_fields(FLIGHTS, configuration={"application.priority": "first"})
        with pytest.raises(ConfigurationError, match="priority"):
            await grant.dispatcher.submit(bad, RunId("three"))
        await asyncio.sleep(1)
        found = [grant.dispatcher.application(of(run)) for run in ("one", "two")]
        contexts = [one.context for one in found if one]

        assert [(2048, 7), (1024, 0)] == [(one.result_size_max, one.priority) for one in contexts]
        assert ["none", "none"] == [one.strategy.kind for one in contexts]
        assert None is grant.dispatcher.application(of("three"))
        leading.cancel()

    run_virtual(main())


def test_a_submission_that_fails_harms_nobody_and_is_told_to_who_asked() -> None:
    async def main() -> None:
        durable = Durable()
        await submitted(durable, "one")
        grant = Grant(durable, 2, Binding(None, False, None, session=True))
        leading = await led(grant)
        one = grant.dispatcher.application(of("one"))
        assert one is not None
        one.jobs.entries[ground.job(1).job_id] = ground.job(1)
        same = Submission("flights", "app.py", "/app.py", (), "", (), first_job_id=f"{1:032x}")
        with pytest.raises(SubmissionError, match="used by another application"):
            await grant.dispatcher.submit(same, RunId("two"))

        assert ["one"] == executed(grant)
        assert not leading.done()
        leading.cancel()

    run_virtual(main())


def test_a_first_job_s_id_is_one_application_s_before_that_has_the_job_too() -> None:
    async def main() -> None:
        durable = Durable()
        await submitted(durable, "one")
        grant = Grant(durable, 2, Binding(None, False, None, session=True))
        leading = await led(grant)
        first = replace_fields(FLIGHTS, first_job_id=f"{7:032x}")
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
        first = replace_fields(FLIGHTS, first_job_id=f"{7:032x}")
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
        grant.dispatcher._around = replace_fields(grant.dispatcher._around, report_end=report_end)
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


async def leave_unlinked(durable: Durable) -> set[str]:
    """Leave what a leader has stored that died before it linked anything; return where."""
    stores = ground.services(durable)
    documents = [
        application_document(stores.register, "application-orphan").create(
            1, replace(one.body, application_id=of("orphan"))
        )
        for one in (await submitted(durable, "one")).values()
    ]
    await asyncio.gather(*documents)
    orphan = Segment(application_id=of("orphan"))
    await segment_document(stores.register, "jobs-orphan").create(1, orphan)
    body = Checkpoints(application_id=of("orphan"), job_id=JobId("a" * 32))
    await checkpoints_document(stores.register, "checkpoints-orphan").create(1, body)
    directory = layout.application_directory(ground.CLUSTER, "orphan")
    await stores.storage.publish(f"{directory}/blobs/script", b"main()")
    return {"application-orphan", "jobs-orphan", "checkpoints-orphan"}


async def stored(durable: Durable) -> tuple[set[str], list[str]]:
    """Return the keys of all documents, and the directories of all applications."""
    base = layout.application_directory(ground.CLUSTER, "x").rpartition("/")[0]
    keys = {key for prefix in KINDS for key in await durable.register.keys(prefix)}
    return keys, await ground.services(durable).storage.names(base)


KINDS = ("application-", "jobs-", "checkpoints-")


@pytest.mark.parametrize("damaged", [False, True], ids=["", "beside a damaged one"])
def test_what_nothing_links_is_removed_after_the_leader_serves(damaged: bool) -> None:
    async def main() -> None:
        durable = Durable()
        orphans = await leave_unlinked(durable)
        two = await submitted(durable, "two")
        linked = checkpoints_document(ground.services(durable).register, "checkpoints-linked")
        await linked.create(1, Checkpoints(application_id=of("two"), job_id=ground.job(1).job_id))
        plans = ground.services(durable).plans(two["two"])
        await plans.add(1, replace(ground.job(1), checkpoints="checkpoints-linked"))
        if damaged:
            await damage(durable, two["two"].key)
        grant = Grant(durable, 2, binding(), STAYS)
        at_first: list[set[str]] = []
        publish = grant.publish

        async def published() -> None:
            at_first.append((await stored(durable))[0])
            await grant.dispatcher.submit(FLIGHTS, RunId("three"))
            await publish()

        grant.publish = published  # type: ignore[method-assign]
        leading = await led(grant)
        keys, directories = await stored(durable)

        assert orphans <= at_first[0], "first it serves"
        assert orphans & keys == ({"jobs-orphan", "checkpoints-orphan"} if damaged else set())
        assert ("orphan" in directories) is damaged
        assert len(directories) == 3 + damaged
        assert "checkpoints-linked" in keys
        assert {of("one"), of("two"), of("three")} == set(grant.dispatcher.applications)
        leading.cancel()

    run_virtual(main())


def test_uploads_that_nobody_uses_are_removed_now_and_then() -> None:
    async def main() -> None:
        durable = Durable()
        grant = Grant(durable, 2, Binding(None, ephemeral=False, submission=None, session=True))
        leading = await led(grant)
        body = b"x = 1"
        received = ReceivedFile("etl.py", digest(body), len(body), io.BytesIO(body))
        await grant.stores.artifacts.add(2, received, 1 << 20, -1e9)
        before = len(await grant.stores.artifacts.listed(2))
        await asyncio.sleep(2 * dispatcher.ARTIFACTS_SWEPT_S)
        after = len(await grant.stores.artifacts.listed(2))

        assert (1, 0) == (before, after)
        leading.cancel()

    run_virtual(main())


def test_the_start_of_an_application_is_audited(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "understudy.audit")

    async def main() -> None:
        grant = Grant(Durable(), 2, binding("one", FLIGHTS))
        leading = await led(grant)
        leading.cancel()

    run_virtual(main())
    (line,) = (one.getMessage() for one in caplog.records if one.name == "understudy.audit")

    assert f'do="run-application" about={of("one")} status=202' in line
