"""A loop that keeps its state, as people and programs see it, while driver and leader are lost.

Of each step a restarted attempt must know that it was done: `ctx.save` was acknowledged.
"""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.journeys import harness
from tests.journeys.conftest import Start
from tests.journeys.harness import command

NAMED = ("-D", "high-availability.cluster-id=steps")


@pytest.mark.long  # Units: tests/api/test_checkpoints.py.
def test_a_loop_goes_on_where_it_was_and_everybody_is_told(start: Start) -> None:
    run = start("dying_loop.py", options=(*NAMED, *harness.impatient()), standbys=1)
    first = run.wait("checkpoint-completed")
    restored = run.wait("checkpoint-restored")
    run.grown("steps.txt", 8)
    run.wait("checkpoint-completed", number=8)  # What a lost leader has held back is not told.
    job = first["job_id"]

    counts = {"restored": 1, "total": 8, "in_progress": 0, "completed": 8, "failed": 0}
    told = run.until(f"/jobs/{job}/checkpoints", lambda answer: answer["counts"] == counts)
    shown = command(run.place, "checkpoints", *NAMED, "steps").stdout
    run.standby_is_ready()
    os.kill(run.leader()["pid"], signal.SIGKILL)
    run.wait("takeover", adopted=["steps"])
    after = run.get(f"/jobs/{job}/checkpoints")
    as_json = json.loads(command(run.place, "checkpoints", *NAMED, job[:8], "--json").stdout)
    detail = run.get(f"/jobs/{job}")["checkpoint"]
    run.release()
    code = run.finish()
    numbers = [event["number"] for event in run.of("checkpoint-completed")]
    ended = [command(run.place, "checkpoints", *NAMED, one).stdout for one in (job, "steps")]
    unknown = command(run.place, "checkpoints", *NAMED, "a / b", code=1).stderr

    assert (1, "state", 1) == (first["number"], first["kind"], first["attempt"])
    assert (2, 5) == (restored["attempt"], restored["number"])
    assert 8 == told["latest"]["completed"]["id"]
    assert (5, False) == (
        told["latest"]["restored"]["id"],
        told["latest"]["restored"]["is_savepoint"],
    )
    assert "8 completed, 0 failed, gone on from 1 times" in shown
    assert (counts, 8) == (after["counts"], after["latest"]["completed"]["id"])
    assert counts == as_json["counts"]
    assert (8, "state") == (detail["id"], detail["kind"])
    assert 0 == code, run.story()
    assert [str(number) for number in range(1, 13)] == run.lines("steps.txt")
    assert numbers == sorted(set(numbers))
    assert 12 == sum(event["count"] for event in run.of("checkpoint-completed"))
    assert all("12 completed, 0 failed, gone on from 1 times" in one for one in ended)
    assert "there is no 'a / b'" in unknown
    left = [path for path in harness.stored(run.place) if "checkpoints" in path]
    assert [] == left
