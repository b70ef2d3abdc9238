"""``ctx.save`` and ``ctx.restored``: a small value from which a restarted job continues."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
from msgspec.structs import replace

from understudy.clock import Clock
from understudy.core.values import decode_value, encode_value
from understudy.driver.checkpointing import Recorder, counted
from understudy.errors import CheckpointError, DataError, NotFoundError
from understudy.ha.format import Format, digest
from understudy.ha.storage import BlockingStorage, storage_of
from understudy.model import Checkpoint, CheckpointKind, Record
from understudy.process.persist import once_blocking, persist_blocking
from understudy.rpc.messages import Deploy


class KeptState(Record, frozen=True):
    """The content of a state file: the value passed to ``ctx.save``."""

    value: msgspec.Raw


WAY_OUT = "the job does not begin from scratch by itself: start a new run for that"

states: Format[KeptState] = Format("job-state", KeptState)


class StateKeeper:
    """The states that one attempt saves, and the one that it restores."""

    def __init__(
        self, deploy: Deploy, recorder: Recorder, storage: BlockingStorage, clock: Clock
    ) -> None:
        self._deploy = deploy
        self._recorder = recorder
        self._storage = storage
        self._clock = clock
        self._numbers = itertools.count(1)
        self._last = next(
            (one for one in deploy.restored if one.kind is CheckpointKind.STATE), None
        )
        self._first = self._last
        self.step = 0
        """Number of states saved: the function's position, the same in every attempt. States of
        earlier attempts count once the function has called ``ctx.restored``."""
        self._tidied = deploy.attempt == 1

    def save(self, state: Any) -> int:
        """Save a value; return the checkpoint's number once the checkpoint is durable."""
        began = self._clock.now()
        value = encode_value(state, self._deploy.result_size_max)
        data = states.dump(KeptState(value=value), pretty=True)
        name = f"{self._deploy.attempt}-{next(self._numbers)}.json"
        path = f"{self._deploy.checkpoints}/state/{name}"
        storage, file = storage_of(self._storage, path)
        taken = Checkpoint(
            kind=CheckpointKind.STATE, name="", attempt=self._deploy.attempt, location=path
        )
        with counted(self._recorder, self._clock, taken):
            persist_blocking("save a state", lambda: storage.publish(file, data))
        taken = replace(
            taken,
            digest=digest(data),
            size=len(data),
            duration_s=self._clock.now() - began,
            completed_at=self._clock.wall(),
            note=msgspec.Raw(str(self.step + 1).encode()),
        )
        (number,) = self._recorder.record(taken)
        self.step += 1
        before, self._last = self._last, replace(taken, number=number)
        if before:
            self._remove(before.location)
        self._tidy()
        return number

    def restored(self) -> Any:
        """Return the value saved last, by this or an earlier attempt; None if nothing was saved.

        Raises `CheckpointError` if the recorded state is missing or damaged.
        """
        last = self._last
        if last is None:
            return None
        if last is self._first:
            self.step = int(msgspec.json.decode(last.note) or 0)
        try:
            storage, file = storage_of(self._storage, last.location)
            data = persist_blocking("read a state", lambda: storage.read(file))
            if digest(data) != last.digest:
                raise CheckpointError(
                    f"{last.location}: the state of checkpoint {last.number} was altered since "
                    f"it was saved; {WAY_OUT}"
                )
            return decode_value(states.load(data, last.location).value)
        except (NotFoundError, DataError) as error:
            raise CheckpointError(
                f"the state of checkpoint {last.number} cannot be read: {error}; {WAY_OUT}"
            ) from error

    def _tidy(self) -> None:
        """Remove states left by dead attempts, once a checkpoint is recorded."""
        if self._tidied or self._last is None:
            return
        directory, _, needed = self._last.location.rpartition("/")
        storage, below = storage_of(self._storage, directory)

        def remove() -> None:
            for name in storage.names(below):
                if name != needed:
                    storage.delete(f"{below}/{name}")

        self._tidied = once_blocking("remove the states of earlier attempts", remove)

    def _remove(self, location: str) -> None:
        storage, file = storage_of(self._storage, location)
        once_blocking("remove a state", lambda: storage.delete(file))
