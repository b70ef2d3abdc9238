"""A driver's job: the process that runs one attempt.

It is forked from a clean process that the driver keeps (`fork_server`), attaches to the
driver's session, and ends with the attempt: what the function does to its process, no other job can
feel. The function runs in the main thread, as in any script; threads of our own receive messages
and beat. The outcome of an attempt is staged in storage before it is reported. When the JVM dies,
the process ends at once without staging anything: that is a loss, not an exception.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from typing import NoReturn

from understudy.clock import Clock
from understudy.core.handover import Handover
from understudy.driver.attempt import Attempt, Interrupted
from understudy.driver.checkpointing import LinkRecorder
from understudy.driver.interrupts import Interrupts
from understudy.driver.job_line import Attach, Beat, Decided, GetReady, GiveUp, Line, LineMessage
from understudy.driver.job_session import JobSession
from understudy.errors import SessionLost, UnderstudyError, UnreachableError
from understudy.ha.storage import BlockingStorage
from understudy.process.channels import APPLICATION_LOST, JVM_LOST
from understudy.process.printed import flush_output
from understudy.process.worker import BEATS
from understudy.rpc import messages
from understudy.rpc.messages import Interrupt, RunAttempt


class JobProcess:
    """The process of one attempt."""

    def __init__(
        self, line: Line, session: JobSession, storage: BlockingStorage, clock: Clock
    ) -> None:
        self._line = line
        self._session = session
        self._storage = storage
        self._clock = clock
        self._interrupts = Interrupts()
        self._handover: Handover | None = None
        self._recorder: LinkRecorder | None = None
        self._given_up: UnderstudyError | None = None
        """Why the attempt is interrupted, if nobody has asked for it."""
        self._ordered = threading.Event()
        self._stopping = threading.Event()

    def serve(self, timeout_s: float) -> None:
        """Run one attempt; be heard of within ``timeout_s`` all the time."""
        self._interrupts.listen()
        # Whoever sends it from outside ends this process: that is no exception of a job.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        for work, name in (
            (self._receive, "understudy-inbox"),
            (lambda: self._beat(timeout_s), "understudy-pulse"),
        ):
            threading.Thread(target=work, name=name, daemon=True).start()
        order = self.await_order()
        self._ordered.set()
        self.run(order)

    def run(self, order: RunAttempt) -> None:
        """Run an attempt, and report it."""
        deploy = order.deploy
        attempt = Attempt(deploy, order.term, self._storage, self._clock)
        try:
            with self._interrupts.working_for(deploy):
                session = self._session.open(self._handover)
                recorder = LinkRecorder(
                    self._report, deploy.job_id, deploy.attempt, self._clock, self._stopping
                )
                self._recorder = recorder
                context = attempt.context(lambda: session, recorder, self._stopping)
                if queries := self._session.queries():
                    attempt.streams.watch(queries)
                self._report(messages.Entered(job_id=deploy.job_id, attempt=deploy.attempt))
                value = attempt.call(context, self._session.settle)
            self._end_queries(attempt)
            if attempt.streams.was_stopped:
                raise Interrupted
            attempt.finished(value)
        except SessionLost as error:
            self._lose_application(str(error))
        except BaseException as error:  # Whatever user code may raise.
            if self._session.is_lost(error):
                os._exit(JVM_LOST)
            if lost := self._session.lost_application(error):
                self._lose_application(lost)
            self._end_queries(attempt)
            if self._given_up:
                attempt.failed(self._given_up)
            elif self._interrupts.has(deploy):
                attempt.interrupted()
            else:
                attempt.failed(error)
        # Apart from the user's code: while it is not known whether the end is stored, it has no
        # other one.
        self._report(Decided())
        ended = attempt.stage()
        flush_output()
        self._report(ended)
        with contextlib.suppress(Exception):  # Then the JVM goes with the driver.
            self._session.close()

    def _lose_application(self, reason: str) -> NoReturn:
        """End this process: what the cluster has taken away is a loss, no exception of the job."""
        logging.getLogger(__name__).error("%s", reason)
        flush_output()
        os._exit(APPLICATION_LOST)

    def _end_queries(self, attempt: Attempt) -> None:
        """End what the attempt has started, or this process: then its guardian has the proof."""
        try:
            attempt.end()
        except Exception as error:
            if self._session.is_lost(error):
                os._exit(JVM_LOST)
            logging.getLogger(__name__).exception("streaming queries cannot be stopped")
            flush_output()
            os._exit(1)

    def _report(self, message: LineMessage) -> None:
        """Tell the driver; where that is gone, this process ends as `_receive` ends it."""
        try:
            self._line.send(message)
        except UnreachableError:
            os._exit(0)

    def await_order(self) -> RunAttempt:
        """Return what to run, and get ready while that has not come."""
        while (envelope := self._line.receive()) is not None:
            match envelope.message:
                case RunAttempt() as order:
                    return order
                case GetReady() as ready:
                    self._get_ready(ready.handover)
                case Attach() as attach:
                    self._handover = attach.handover
                case messages.Stopping():
                    self._stopping.set()
                case Interrupt() | GiveUp() as wish:
                    self._interrupt(wish)
        os._exit(0)  # No job came.

    def _get_ready(self, handover: Handover) -> None:
        """Attach ahead; where that fails, the attempt finds out what is wrong."""
        try:
            self._session.get_ready(handover)
        except Exception:
            logging.getLogger(__name__).debug("not attached ahead", exc_info=True)

    def _receive(self) -> None:
        self._ordered.wait()  # Until then the main thread reads.
        while (envelope := self._line.receive()) is not None:
            match envelope.message:
                case Interrupt() | GiveUp() as wish:
                    self._interrupt(wish)
                case messages.Stopping():
                    self._stopping.set()
                case messages.CheckpointsRecorded() | messages.CheckpointsRefused() as answer:
                    if self._recorder:
                        self._recorder.answered(answer)
        os._exit(0)  # The driver is gone; its guardian is about to end us anyway.

    def _interrupt(self, wish: Interrupt | GiveUp) -> None:
        if isinstance(wish, GiveUp):
            self._given_up = wish.error
        self._interrupts.add(wish.job_id, wish.attempt)
        if not self._interrupts.reaches(wish.job_id):
            return
        try:
            self._session.interrupt()
        except Exception:
            logging.getLogger(__name__).exception("interrupting %s", wish.job_id)
        self._interrupts.strike()

    def _beat(self, timeout_s: float) -> None:
        self._ordered.wait()
        while True:
            time.sleep(timeout_s / BEATS)
            self._report(Beat(until=self._clock.now() + timeout_s))
