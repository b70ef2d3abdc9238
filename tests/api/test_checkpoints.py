"""What REST says of a job's checkpoints: Flink's shape, from a leader, from storage, at the end."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from tests.ha import ground
from tests.ha.test_checkpoint_store import begun, record, taken
from tests.support.faulty_register import Durable
from tests.support.virtual_time import run_virtual, virtual_clock
from understudy.api import answers, checkpoints
from understudy.api.checkpoints import CheckpointFacts
from understudy.api.directory import Directory
from understudy.api.leading import BuriedJob, Leading, LinkedJob, RestSettings
from understudy.api.rest_jobs import CheckpointRoutes
from understudy.api.views import ApplicationFacts, JobLive
from understudy.clock import SystemClock
from understudy.config import Configuration
from understudy.core.checkpoints import WriteNote, WriteState, counts, encoded, failed, restored
from understudy.errors import CorruptDataError, NotFoundError, UsageError
from understudy.ha.registry import CHECKPOINTS_PREFIX
from understudy.model import (
    ApplicationDocument,
    ApplicationStatus,
    Checkpoint,
    CheckpointKind,
    Checkpoints,
    Failure,
    JobRecord,
    JobStatus,
    Pointer,
    Savepoint,
)

JOB = ground.job(1)
COUNTS = {"restored", "total", "in_progress", "completed", "failed"}


def batch(number: int, **fields: Any) -> Checkpoint:
    told: dict[str, Any] = {
        "kind": CheckpointKind.BATCH,
        "name": "live",
        "attempt": 1,
        "number": number,
        "batch_id": number - 1,
        "location": "/store/live",
        "rows": 100 * number,
        "size": 10 * number,
        "duration_s": 0.25,
        "completed_at": 1000.0 + number,
        "offsets": msgspec.Raw(b'{"0":[7]}'),
    }
    return Checkpoint(**{**told, **fields})


def body(*completed: Checkpoint, **fields: Any) -> Checkpoints:
    counter = max((one.number for one in completed), default=0)
    told: dict[str, Any] = {"counter": counter, "completed_total": counter, **fields}
    return Checkpoints(
        application_id=ground.APPLICATION, job_id=JOB.job_id, completed=completed, **told
    )


def facts(known: Checkpoints | None, *recent: Checkpoint) -> CheckpointFacts:
    return CheckpointFacts(JOB.job_id, known, recent)


def test_counts_latest_and_history_have_flinks_keys_and_the_newest_is_first() -> None:
    known = restored(body(batch(3), batch(4), failed_total=2), 2000.0)

    told = checkpoints.statistics(facts(known))

    assert dict(zip(sorted(COUNTS), (4, 2, 0, 1, 6), strict=True)) == told["counts"]
    assert [4, 3] == [one["id"] for one in told["history"]]
    assert told["history"][0] == told["latest"]["completed"]
    assert (4, 2_000_000) == (
        told["latest"]["restored"]["id"],
        told["latest"]["restored"]["restore_timestamp"],
    )
    assert told["latest"]["failed"] is told["latest"]["savepoint"] is None


def test_the_latest_is_the_completed_one_with_the_highest_number() -> None:
    known = failed(body(batch(3), batch(4)), 1, batch(5))
    told = checkpoints.latest(facts(known, batch(2)))

    assert (4, {}) == (told["id"], told["tasks"])
    with pytest.raises(NotFoundError, match="has no completed checkpoint"):
        checkpoints.latest(facts(None))


def test_a_write_that_is_not_published_yet_is_in_progress() -> None:
    note = encoded(WriteNote(state=WriteState.PREPARED, target="/out"))
    earlier, now = (
        batch(number, kind=CheckpointKind.WRITE, name="out", note=note) for number in (4, 5)
    )

    told = checkpoints.statistics(facts(body(batch(3), now, completed_total=3), earlier))

    assert [(5, "IN_PROGRESS"), (3, "COMPLETED")] == [
        (one["id"], one["status"]) for one in told["history"]
    ]
    assert (3, 1) == (told["counts"]["completed"], told["counts"]["in_progress"])
    assert 3 == told["latest"]["completed"]["id"]
    newest = checkpoints.last(body(batch(3), now))
    assert newest is not None
    assert 3 == newest["id"]


def test_one_checkpoint_says_when_how_long_how_large_and_what_of() -> None:
    (told,) = checkpoints.statistics(facts(body(batch(4))))["history"]
    expected = {
        "id": 4,
        "status": "COMPLETED",
        "is_savepoint": False,
        "checkpoint_type": "CHECKPOINT",
        "trigger_timestamp": 1_003_750,
        "latest_ack_timestamp": 1_004_000,
        "end_to_end_duration": 250,
        "state_size": 40,
        "external_path": "/store/live",
        "discarded": False,
        "kind": "batch",
        "name": "live",
        "batch_id": 3,
        "rows": 400,
        "attempt": 1,
        "offsets": {"0": [7]},
    }

    assert expected == {key: told[key] for key in expected}


def test_what_is_not_retained_is_shown_as_discarded_while_the_leader_remembers_it() -> None:
    told = checkpoints.statistics(facts(body(batch(4)), batch(3), batch(4)))["history"]

    assert [(4, False), (3, True)] == [(one["id"], one["discarded"]) for one in told]


def test_the_summary_is_of_what_is_known() -> None:
    known = facts(body(batch(4)), batch(1), batch(2), batch(3))

    size = checkpoints.statistics(known)["summary"]["state_size"]
    nothing = checkpoints.statistics(facts(body()))["summary"]["end_to_end_duration"]

    assert (10, 40, 25, 30) == (size["min"], size["max"], size["avg"], size["p50"])
    assert {0} == set(nothing.values())


def test_savepoints_are_checkpoints_too_as_in_flink() -> None:
    done = Savepoint(trigger="a", location="/out", number=5, completed_at=1005.0)
    why = Failure(type="CheckpointError", message="no room", time=1006.0)
    failed = Savepoint(trigger="b", location="", failure=why)
    under_way = Savepoint(trigger="c", location="")

    told = checkpoints.statistics(facts(body(batch(4), savepoints=(done, failed, under_way))))

    assert (5, 1, 1, 7) == tuple(
        told["counts"][key] for key in ("completed", "failed", "in_progress", "total")
    )
    assert "/out" == told["latest"]["savepoint"]["external_path"]
    assert "no room" == told["latest"]["failed"]["failure_message"]
    assert 4 == told["latest"]["completed"]["id"]


@pytest.mark.parametrize(
    ("number", "reason"),
    [(2, "not retained any more"), (9, "has no checkpoint 9: its last is 4"), (0, "no checkpoint")],
)
def test_what_is_not_there_is_not_found_and_why_is_said(number: int, reason: str) -> None:
    known = facts(body(batch(4)), batch(3))

    assert 3 == checkpoints.detail(known, 3)["id"]
    with pytest.raises(NotFoundError, match=reason):
        checkpoints.detail(known, number)


# --- where it comes from --------------------------------------------------------------------------


def application(live: Checkpoints | None = None, **entry: Any) -> ApplicationFacts:
    document = ApplicationDocument(
        application_id=ground.APPLICATION,
        run_id=ground.RUN,
        name="flights",
        directory="d",
        record=Pointer(path="record", digest="", size=0),
        status=ApplicationStatus.RUNNING,
        created_at=0.0,
    )
    lives = {JOB.job_id: JobLive(JobStatus.RUNNING, checkpoints=live)} if live else {}
    return ApplicationFacts(
        document,
        {JOB.job_id: replace(JOB, **entry)},
        ApplicationStatus.RUNNING,
        0.0,
        lives,
    )


class Led:
    """A leader that knows one job; see `Leading`."""

    def __init__(self, found: LinkedJob | BuriedJob, durable: Durable | None = None) -> None:
        self._found = found
        self.directory = Directory(ground.services(durable or Durable()), SystemClock())
        settings = {
            "execution.checkpointing.num-retained": "3",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "execution.checkpointing.dir": "s3://bucket/points",
        }
        self.settings = RestSettings.of(Configuration(settings))

    async def job(self, wanted: str) -> LinkedJob | BuriedJob:
        """See `Leading.job`."""
        assert wanted == JOB.job_id
        return self._found

    def json(self, body: object, status: int = 200) -> Response:
        """See `Leading.json`."""
        return answers.as_json(body, 1, status)

    def ask(self, path: str, **parts: str) -> Any:
        """Return what a route answers."""
        routes = {one.path: one.handler for one in CheckpointRoutes(self._leading).routes()}
        request = Request({"type": "http", "path_params": {"job_id": JOB.job_id, **parts}})
        answer: Response = asyncio.run(cast("Any", routes[f"/jobs/{{job_id}}{path}"](request)))
        return msgspec.json.decode(bytes(answer.body))

    @property
    def _leading(self) -> Leading:
        return cast("Leading", self)


def test_the_leader_answers_from_what_it_has_recorded() -> None:
    led = Led(LinkedJob(application(body(batch(4))), JOB.job_id))

    assert 4 == led.ask("/checkpoints")["latest"]["completed"]["id"]
    assert {} == led.ask("/checkpoints/details/{number}", number="4")["tasks"]


@pytest.mark.parametrize("number", ["latest", "-1", "٣", "1" * 400, ""])
def test_what_is_no_number_is_refused(number: str) -> None:
    led = Led(LinkedJob(application(body(batch(4))), JOB.job_id))

    with pytest.raises(UsageError, match="is no number of a checkpoint"):
        led.ask("/checkpoints/details/{number}", number=number)


def test_how_checkpoints_are_taken_is_told_in_flinks_words() -> None:
    told = Led(LinkedJob(application(), JOB.job_id)).ask("/checkpoints/config")

    assert "exactly_once" == told["mode"]
    assert {"enabled": True, "delete_on_cancellation": False} == told["externalization"]
    assert (3, f"s3://bucket/points/{JOB.job_id}") == (told["num_retained"], told["dir"])


def test_a_job_that_has_none_yet_says_so() -> None:
    told = Led(LinkedJob(application(), JOB.job_id)).ask("/checkpoints")

    assert {0} == set(told["counts"].values())
    assert [] == told["history"]


def test_where_nobody_leads_the_registers_document_answers() -> None:
    async def main() -> CheckpointFacts:
        durable = Durable()
        store = await begun(durable)
        await record(store, 1, taken(0), taken(1))
        stores = ground.services(durable)
        registry = await stores.registry.read()
        assert registry is not None
        directory = Directory(stores, virtual_clock())
        (found,) = await directory.stored(registry)
        return await directory.checkpoints(found, JOB.job_id)

    told = checkpoints.statistics(run_virtual(main()))

    assert (2, 1) == (told["counts"]["completed"], told["latest"]["completed"]["batch_id"])


def test_a_document_that_cannot_be_read_is_no_answer() -> None:
    async def main() -> None:
        durable = Durable()
        await record(await begun(durable), 1, taken(0))
        (key,) = await durable.register.keys(CHECKPOINTS_PREFIX)
        entry = await durable.register.load(key)
        assert entry is not None
        await durable.register.swap(key, b"not yours", entry.version)
        directory = Directory(ground.services(durable), virtual_clock())
        with pytest.raises(CorruptDataError, match=key):
            await directory.checkpoints(application(checkpoints=key), JOB.job_id)

    run_virtual(main())


BURIED = JobRecord(
    job_id=JOB.job_id,
    name="live",
    status=JobStatus.CANCELED,
    attempt=1,
    start_time=0.0,
    end_time=0.0,
)


def of_ended(**fields: Any) -> Any:
    """Return what is told of a job of which only the tombstone's file remains."""
    record = replace(BURIED, **fields)
    return Led(BuriedJob(cast("Any", None), cast("Any", None), record)).ask("/checkpoints")


def test_a_job_that_has_ended_tells_how_many_there_were_and_where_the_last_lies() -> None:
    known = restored(body(batch(7), failed_total=2), 2000.0)
    told = of_ended(checkpoint="s3://bucket/points/live", counts=tuple(counts(known)))
    latest = told["latest"]["completed"]

    assert dict(zip(sorted(COUNTS), (7, 2, 0, 1, 9), strict=True)) == told["counts"]
    assert (7, "s3://bucket/points/live", False) == (
        latest["id"],
        latest["external_path"],
        latest["discarded"],
    )
    assert told["latest"]["savepoint"] is None


def test_where_nothing_was_retained_the_last_is_discarded_and_counted_all_the_same() -> None:
    told = of_ended(savepoint="/out", counts=(4, 0, 0, 3))
    latest = told["latest"]

    assert 4 == told["counts"]["completed"]
    assert (3, None, True) == tuple(
        latest["completed"][key] for key in ("id", "external_path", "discarded")
    )
    assert ("/out", True) == (
        latest["savepoint"]["external_path"],
        latest["savepoint"]["is_savepoint"],
    )


def test_a_job_that_ended_without_any_answers_as_one_that_runs() -> None:
    led = Led(LinkedJob(application(), JOB.job_id))

    assert led.ask("/checkpoints") == of_ended()


def test_what_an_earlier_version_wrote_of_a_job_has_no_counts_and_is_read() -> None:
    written = msgspec.json.encode(replace(BURIED, checkpoint="/points"))

    assert b"counts" not in written
    assert () == msgspec.json.decode(written, type=JobRecord).counts


def test_the_last_that_failed_is_told_as_flink_tells_it() -> None:
    why = Failure(type="OSError", message="no room", time=1007.0)
    known = failed(body(batch(4)), 3, batch(0, kind=CheckpointKind.TABLE, failure=why))

    told = checkpoints.statistics(facts(known))
    latest = told["latest"]["failed"]

    assert ("failed", "FAILED", 7, 1_007_000, "OSError: no room", 250) == tuple(
        latest[key]
        for key in (
            "className",
            "status",
            "id",
            "failure_timestamp",
            "failure_message",
            "end_to_end_duration",
        )
    )
    assert (3, 4) == (told["counts"]["failed"], told["latest"]["completed"]["id"])
    assert [7, 4] == [one["id"] for one in told["history"]]
    assert latest == {
        key: one for key, one in checkpoints.detail(facts(known), 7).items() if key in latest
    }


def test_a_job_that_began_with_a_savepoint_was_restored_from_that() -> None:
    laid_out = body(batch(4), completed_total=0, started_from="/saved/savepoint-1")
    first = restored(laid_out, 2000.0)
    later = restored(replace(first, completed=(batch(5),), completed_total=1), 3000.0)

    told = [checkpoints.statistics(facts(known))["latest"]["restored"] for known in (first, later)]

    assert [(True, "/saved/savepoint-1"), (False, "/store/live")] == [
        (one["is_savepoint"], one["external_path"]) for one in told
    ]
