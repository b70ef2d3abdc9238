"""The state of a job: one file at a time, and never another's."""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.memory_storage import MemoryStorage
from tests.support.orders import deploy as order_of
from understudy.clock import SystemClock
from understudy.driver.kept_state import StateKeeper
from understudy.errors import CheckpointError, InvalidValueError
from understudy.model import (
    Checkpoint,
    CheckpointKind,
    JobId,
)


class Register:
    """Records what it hears, until it does not any more."""

    def __init__(self) -> None:
        self.latest: tuple[Checkpoint, ...] = ()
        self.failures: list[Checkpoint] = []
        self.heard = 1
        """The attempt whose checkpoints are recorded."""
        self._numbers = itertools.count(1)

    def record(self, *taken: Checkpoint) -> tuple[int, ...]:
        if taken[0].attempt != self.heard:
            raise CheckpointError("the checkpoint was not recorded: another attempt is under way")
        self.latest = tuple(replace(one, number=next(self._numbers)) for one in taken)
        return tuple(one.number for one in self.latest)

    def report(self, *taken: Checkpoint) -> None:
        raise NotImplementedError

    def failed(self, one: Checkpoint) -> None:
        """See `Recorder.failed`."""
        self.failures.append(one)

    def finish(self) -> None:
        """See `Recorder.finish`."""

    def settle(self, timeout_s: float) -> bool:
        raise NotImplementedError


class Job:
    """What outlives the attempts of one job."""

    def __init__(self) -> None:
        self.storage = MemoryStorage()
        self.register = Register()

    def attempt(self, number: int) -> StateKeeper:
        """Begin an attempt, and hear only that from now on."""
        self.register.heard = number
        deploy = order_of(
            job_id=JobId("j"),
            attempt=number,
            writer="w",
            result_size_max=100,
            checkpoints="points",
            restored=self.register.latest,
        )
        return StateKeeper(deploy, self.register, self.storage, SystemClock())


def test_a_state_replaces_the_one_before_and_is_given_to_the_next_attempt() -> None:
    job = Job()
    first = job.attempt(1)
    numbers = [first.save({"step": step}) for step in range(3)]
    second = job.attempt(2)

    assert [1, 2, 3] == numbers
    assert {"step": 2} == first.restored() == second.restored()
    assert ["points/state/1-3.json"] == list(job.storage.files)
    assert 4 == second.save([1.5, None, ("x",), {Decimal(1)}])
    assert [1.5, None, ("x",), {Decimal(1)}] == job.attempt(3).restored()
    assert ["points/state/2-1.json"] == list(job.storage.files)


def test_a_state_that_cannot_be_written_is_a_checkpoint_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def publish(path: str, data: bytes) -> None:
        raise OSError(f"no room for {path}")

    job = Job()
    keeper = job.attempt(1)
    monkeypatch.setattr("understudy.process.persist.PATIENCE_S", 0.0)
    monkeypatch.setattr(job.storage, "publish", publish)
    with pytest.raises(OSError, match="no room"):
        keeper.save(1)
    (failed,) = job.register.failures
    assert failed.failure is not None

    assert (CheckpointKind.STATE, "no room for points/state/1-1.json") == (
        failed.kind,
        failed.failure.message,
    )


def test_a_state_that_nobody_needs_and_that_cannot_be_removed_holds_nothing_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(f"not allowed: {path}")

    job = Job()
    first = job.attempt(1)
    with monkeypatch.context() as context:
        context.setattr(job.storage, "delete", refuse)
        saved = [first.save(step) for step in range(3)]
        second = job.attempt(2)
        saved.append(second.save(3))
        left = list(job.storage.files)
    saved.append(second.save(4))

    assert [1, 2, 3, 4, 5] == saved
    assert 4 == len(left)
    assert 4 == job.attempt(3).restored()
    assert ["points/state/2-2.json"] == list(job.storage.files)


def test_nothing_was_saved_at_first() -> None:
    assert Job().attempt(1).restored() is None


def test_what_an_attempt_saves_that_is_held_for_dead_is_refused_and_then_removed() -> None:
    job = Job()
    zombie = job.attempt(1)
    zombie.save("sound")
    living = job.attempt(2)

    with pytest.raises(CheckpointError, match="another attempt is under way"):
        zombie.save("of a zombie")
    assert "sound" == zombie.restored() == living.restored()
    assert ["1-1.json", "1-2.json"] == job.storage.names("points/state")

    living.save("newer")

    assert "newer" == job.attempt(3).restored()
    assert ["2-1.json"] == job.storage.names("points/state")


@pytest.mark.parametrize("bad", [{1: 2}, float("inf"), object(), "x" * 101, ["y" * 99]])
def test_what_cannot_be_saved_changes_nothing(bad: Any) -> None:
    job = Job()
    keeper = job.attempt(1)
    keeper.save("kept")

    with pytest.raises(InvalidValueError):
        keeper.save(bad)
    assert "kept" == keeper.restored()
    assert ["points/state/1-1.json"] == list(job.storage.files)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (None, "1-1.json: no such file; the job does not begin from scratch by itself"),
        (b"", "was altered since it was saved"),
        (b'{"format":"job-state"}', "was altered since it was saved"),
    ],
)
def test_what_was_recorded_but_is_damaged_is_named(data: bytes | None, why: str) -> None:
    job = Job()
    job.attempt(1).save("kept")
    if data is None:
        del job.storage.files["points/state/1-1.json"]
    else:
        job.storage.files["points/state/1-1.json"] = data

    with pytest.raises(CheckpointError, match=why) as told:
        job.attempt(2).restored()
    assert "checkpoint 1" in str(told.value)
