"""``ctx.save`` and ``ctx.restored``: a small JSON value that a restarted job goes on from."""

from __future__ import annotations

import itertools
import json
from typing import Any

import msgspec

from understudy.clock import Clock
from understudy.core.values import encode_value
from understudy.errors import CheckpointError, DataError, NotFoundError
from understudy.ha.format import Format, digest
from understudy.ha.storage import BlockingStorage
from understudy.model import Checkpoint, CheckpointKind, Record
from understudy.rpc.messages import Deploy
from understudy.runtime.checkpointing import Recorder
from understudy.runtime.persist import persist_blocking


class KeptState(Record, frozen=True):
    """What ``ctx.save`` was given, as its file holds it."""

    value: msgspec.Raw


states: Format[KeptState] = Format("job-state", KeptState)


class StateKeeper:
    """The states that one attempt saves, and the one that it goes on from."""

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

    def save(self, state: Any) -> int:
        """Keep a value; return the number of the checkpoint once it is durable."""
        began = self._clock.now()
        value = encode_value(state, self._deploy.result_size_max)
        data = states.dump(KeptState(value=value), pretty=True)
        name = f"{self._deploy.attempt}-{next(self._numbers)}.json"
        path = f"{self._deploy.checkpoints}/state/{name}"
        persist_blocking("save a state", lambda: self._storage.publish(path, data))
        taken = Checkpoint(
            kind=CheckpointKind.STATE,
            name="",
            attempt=self._deploy.attempt,
            location=path,
            digest=digest(data),
            size=len(data),
            duration_s=self._clock.now() - began,
            completed_at=self._clock.wall(),
        )
        (number,) = self._recorder.record(taken)
        before, self._last = self._last, taken
        if before:
            persist_blocking("remove a state", lambda: self._storage.delete(before.location))
        return number

    def restored(self) -> Any:
        """Return what was saved last, in this attempt or one before it; None where nothing was.

        Raises `CheckpointError` where what is recorded is gone or damaged.
        """
        last = self._last
        if last is None:
            return None
        try:
            data = persist_blocking("read a state", lambda: self._storage.read(last.location))
            if digest(data) != last.digest:
                raise CheckpointError(
                    f"{last.location}: the state of checkpoint {last.number} was altered since"
                )
            return json.loads(bytes(states.load(data, last.location).value))
        except (NotFoundError, DataError) as error:
            raise CheckpointError(
                f"the state of checkpoint {last.number} cannot be read: {error}; put a sound copy "
                "in its place, or cancel the job and run it anew"
            ) from error
