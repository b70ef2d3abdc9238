"""Running one attempt of a job inside a driver: load the plan, call it, stage how it ended."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from understudy.clock import Clock
from understudy.core.restart import is_listed
from understudy.core.values import encode_value
from understudy.driver.checkpointing import Recorder
from understudy.driver.context import FencingToken, JobContext
from understudy.driver.job_writes import JobWrites
from understudy.driver.kept_state import StateKeeper
from understudy.driver.kept_tables import TableKeeper
from understudy.driver.streaming import StreamKeeper
from understudy.errors import (
    CheckpointError,
    NoLeaderError,
    NotFoundError,
    StorageError,
    UnderstudyError,
    UnreachableError,
    UnreadableDataError,
)
from understudy.ha.format import digest
from understudy.ha.result_store import outcomes
from understudy.ha.storage import BlockingStorage
from understudy.model import NULL, Failure, JobStatus, Outcome, Pointer
from understudy.process.failures import failure_of, shown, storable
from understudy.process.forks import Home
from understudy.process.persist import FOR_EVER, persist_blocking
from understudy.process.plans import decode_plan
from understudy.process.user_code import inside_job
from understudy.rpc.messages import AttemptEnded, Deploy

OF_THE_STORE = (StorageError, UnreadableDataError)
"""What a store did not give today it may give tomorrow; what is gone from a checkpoint is gone."""

OF_THE_MOMENT = (*OF_THE_STORE, NotFoundError, UnreachableError, NoLeaderError)
"""The same of what a function has asked for by itself, of stores and of peers."""


@dataclass(frozen=True)
class Keeping:
    """The parts behind `JobContext`: one for each kind of checkpoint."""

    state: StateKeeper
    tables: TableKeeper
    streams: StreamKeeper
    writes: JobWrites
    home: Home = field(default_factory=Home)
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set once the TaskManager drains."""

    @classmethod
    def of(
        cls, deploy: Deploy, recorder: Recorder, storage: BlockingStorage, clock: Clock
    ) -> Keeping:
        """Create the parts for an attempt."""
        state = StateKeeper(deploy, recorder, storage, clock)
        return cls(
            state,
            TableKeeper(deploy, recorder, storage, clock),
            StreamKeeper(deploy, recorder, storage, clock),
            JobWrites.of(deploy, recorder, state, clock),
        )


class Interrupted(BaseException):
    """Raised in the job's thread when the attempt is to end. Not for user code to catch."""


def is_retryable(error: BaseException, no_retry: Iterable[str] = ()) -> bool:
    """Say whether another attempt may end otherwise.

    What Understudy itself refuses, it would refuse again; not what somebody else did not give. Of
    the other exceptions, ``no_retry`` names those that would come again.
    """
    if isinstance(error, CheckpointError) and isinstance(error.__cause__, OF_THE_STORE):
        return True
    if isinstance(error, UnderstudyError):
        return isinstance(error, OF_THE_MOMENT)
    classes = (f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__)
    return not is_listed(classes, no_retry) and not _is_of_the_call(error)


def _is_of_the_call(error: BaseException) -> bool:
    """Return whether the call itself failed, as the function does not take these arguments."""
    if not isinstance(error, TypeError) or error.__traceback__ is None:
        return False
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_code is Attempt.call.__code__


class Attempt:
    """One attempt, from its plan to its staged outcome.

    How it ended is decided once, and apart from storing it: while nobody knows whether an outcome
    is stored, there is no other one.
    """

    def __init__(self, deploy: Deploy, term: int, storage: BlockingStorage, clock: Clock) -> None:
        self._deploy = deploy
        self._term = term
        self._storage = storage
        self._clock = clock
        self._started_at = clock.wall()
        self._began = clock.now()
        self._home = Home()
        self._outcome: Outcome | None = None
        self._no_retry = deploy.no_retry
        self.streams: StreamKeeper
        """Its streaming queries, once it has a context."""
        self._recorder: Recorder

    def context(
        self,
        open_session: Callable[[], Any],
        recorder: Recorder,
        stopping: threading.Event | None = None,
    ) -> JobContext:
        """Return what the function is called with; ``stopping``: set once it is to save."""
        deploy = self._deploy
        keeping = Keeping.of(deploy, recorder, self._storage, self._clock)
        if stopping is not None:
            keeping = replace(keeping, stopping=stopping)
        self.streams = keeping.streams
        self._recorder = recorder
        return JobContext(
            deploy.job_id,
            deploy.name,
            deploy.attempt,
            FencingToken(self._term, deploy.attempt),
            logging.getLogger(f"understudy.job.{deploy.name}"),
            keeping,
            open_session,
        )

    def call(self, context: JobContext, settle: Callable[[Any], Any]) -> msgspec.Raw:
        """Call the function and return its value as JSON; raises what it raises."""
        deploy = self._deploy
        plan = persist_blocking("read a plan", lambda: self._storage.read(deploy.plan.path))
        with self._home.user_code():  # It imports the user's modules.
            function, args, kwargs, no_retry = decode_plan(plan, deploy.plan)
        if no_retry is not None:
            self._no_retry = no_retry
        self.streams.verify()
        try:
            with self._home.user_code(), inside_job(deploy.name):
                value = settle(function(context, *args, **kwargs))
        except SystemExit as end:
            if end.code is None or end.code == 0:
                value = None
            else:
                raise
        return encode_value(value, deploy.result_size_max)

    def is_staged(self) -> bool:
        """Return whether another process of this attempt has stored how the attempt ended."""
        path = self._deploy.staged
        return persist_blocking("look for an outcome", lambda: self._storage.exists(path), FOR_EVER)

    def end(self) -> None:
        """End its streaming queries; call it before an outcome is staged, whatever that is."""
        if hasattr(self, "streams"):
            self.streams.end()
            self._recorder.finish()

    def finished(self, value: msgspec.Raw) -> None:
        """Decide that the attempt returned this value."""
        self._decide(JobStatus.FINISHED, value, None, retryable=False)

    def failed(self, error: BaseException) -> None:
        """Decide that the attempt ended by an exception."""
        failure = failure_of(error)
        if isinstance(error, SystemExit):
            failure = Failure(
                type="SystemExit",
                message=storable(f"the function called sys.exit({shown(error.code)})"),
                traceback=failure.traceback,
                time=failure.time,
            )
        self._decide(JobStatus.FAILED, NULL, failure, retryable=is_retryable(error, self._no_retry))

    def exited(self, code: int) -> None:
        """Decide that the function ended its own process, as by ``os._exit``: a failure for good.

        Another attempt would repeat what this one has written. Nobody knows whether the function
        was done, so code 0 is no success.
        """
        way_out = ": end it with sys.exit" if code == 0 else ""
        failure = Failure(
            type="SystemExit",
            message=f"the script's process exited with {code} before the script's end{way_out}",
            traceback="",
            time=self._clock.wall(),
        )
        self._decide(JobStatus.FAILED, NULL, failure, retryable=False)

    def interrupted(self) -> None:
        """Decide that the attempt ended since it was told to."""
        self._decide(JobStatus.CANCELED, NULL, None, retryable=False)

    def _decide(
        self, status: JobStatus, value: msgspec.Raw, failure: Failure | None, *, retryable: bool
    ) -> None:
        if self._outcome is not None:
            return  # It may be stored: nothing that comes later changes it.
        deploy = self._deploy
        self._outcome = Outcome(
            job_id=deploy.job_id,
            job_name=deploy.name,
            application_id=deploy.application_id,
            run_id=deploy.run_id,
            status=status,
            attempt=deploy.attempt,
            start_time=self._started_at,
            end_time=self._clock.wall(),
            value=value,
            failure=failure,
            retryable=retryable,
        )

    def stage(self) -> AttemptEnded:
        """Store how the attempt ended, however long that takes; return what is to be told of it."""
        self._home.demand("the end of an attempt")
        deploy, outcome = self._deploy, self._outcome
        assert outcome is not None, "how it ended is decided first"
        data = outcomes.dump(outcome, pretty=True)
        persist_blocking(
            "stage an outcome", lambda: self._storage.publish(deploy.staged, data), FOR_EVER
        )
        return AttemptEnded(
            job_id=deploy.job_id,
            attempt=deploy.attempt,
            status=outcome.status,
            retryable=outcome.retryable,
            source=Pointer(path=deploy.staged, digest=digest(data), size=len(data)),
            ran_s=self._clock.now() - self._began,
            start_time=outcome.start_time,
            end_time=outcome.end_time,
        )
