"""A driver: the process that holds a SparkSession and runs one job at a time.

Run as ``python -m understudy.driver.driver`` under a guardian. The job's function runs in the
main thread, as in any script; threads of our own receive messages, report progress and beat. The
outcome of an attempt is staged in storage before it is reported. When the JVM dies, the process
ends at once without staging anything: that is a loss, not an exception.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from understudy.clock import SystemClock
from understudy.config.configuration import learn_secrets
from understudy.config.secrets import WithoutSecrets, masked
from understudy.core.executors import Assignment, Launch, Tag
from understudy.driver.attempt import Attempt, Interrupted
from understudy.driver.checkpointing import LinkRecorder
from understudy.driver.driver_session import Session, open_session
from understudy.driver.executor_watch import ExecutorWatch
from understudy.driver.surroundings import Surroundings
from understudy.errors import (
    ExecutorsUnavailable,
    SessionLost,
    UnderstudyError,
    UnreachableError,
)
from understudy.ha import own_directory
from understudy.ha.storage import BlockingStorage, open_storage
from understudy.model import JobId
from understudy.process import channels
from understudy.process.channels import APPLICATION_LOST, HEARTBEAT_S, JVM_LOST
from understudy.process.printed import flush_output
from understudy.process.pulse import start_pulse
from understudy.process.user_code import IN_DRIVER
from understudy.process.worker import GuardianLink, lock_descriptors
from understudy.rpc import messages
from understudy.rpc.messages import Deploy, DriverMessage, Interrupt, RunAttempt, StartSession
from understudy.rpc.wire import BlockingLink

PROGRESS_S = 1.0
"""How often progress is told; it costs a few calls to the JVM."""


class Driver:
    """One driver process."""

    def __init__(
        self,
        link: BlockingLink[DriverMessage],
        session: Session,
        storage: BlockingStorage,
        clock: SystemClock,
        wait_s: float | None,
    ) -> None:
        self._link = link
        self._session = session
        self._storage = storage
        self._clock = clock
        self._inbox: queue.SimpleQueue[RunAttempt | None] = queue.SimpleQueue()
        self._running = ""
        """The job whose function the main thread is in."""
        self._attempt = 0
        self._interrupted: set[tuple[str, int]] = set()
        """Attempts that are to end, those that have not begun here yet included."""
        self._before: Surroundings
        self._recorder: LinkRecorder | None = None
        self._executors = ExecutorWatch(session, link.send, clock, wait_s)
        self._given_up: ExecutorsUnavailable | None = None
        """Why the attempt is interrupted, if nobody has asked for it."""

    def serve(self) -> None:
        """Run attempts until the driver must be retired, or its TaskManager is gone."""
        signal.signal(signal.SIGUSR1, self._raise_in_job)
        # Whoever sends it from outside ends this process: that is no exception of a job.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        threading.Thread(target=self._receive, name="understudy-inbox", daemon=True).start()
        threading.Thread(target=self._watch_jvm, name="understudy-jvm", daemon=True).start()
        threading.Thread(
            target=self._tell_progress, name="understudy-progress", daemon=True
        ).start()
        while True:
            self._link.send(
                messages.Warm(jvm_pid=self._session.jvm_pid, spark=self._session.facts())
            )
            order = self._inbox.get()
            if order is None:
                return
            reasons = self._run(order)
            if reasons:
                self._link.send(messages.Retiring(reason="; ".join(reasons)))
                return

    def _run(self, order: RunAttempt) -> list[str]:
        """Run one attempt and report it; return why the driver cannot go on, if so."""
        deploy = order.deploy
        attempt = Attempt(deploy, order.term, self._storage, self._clock)
        try:
            with self._interruptible(deploy):
                session = self._session.open(_assignment(deploy))
                self._before = Surroundings.now(self._session.jvm_pid)
                recorder = LinkRecorder(self._tell, deploy.job_id, deploy.attempt, self._clock)
                self._recorder = recorder
                context = attempt.context(lambda: session, recorder)
                if queries := self._session.queries():
                    attempt.streams.watch(queries)
                self._tell(
                    messages.Entered(
                        job_id=deploy.job_id,
                        attempt=deploy.attempt,
                        spark=self._session.facts(),
                    )
                )
                value = attempt.call(context, self._session.settle)
            self._end_queries(attempt)
            if attempt.streams.was_stopped:
                raise Interrupted
            attempt.finished(value)
            reasons = []
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
                reasons = ["its job got no executors"]
            elif self._is_interrupted(deploy):
                attempt.interrupted()
                reasons = ["its job was cancelled"]
            else:
                attempt.failed(error)
                reasons = ["its job failed"]
        # Apart from the user's code: while it is not known whether the end is stored, it has no
        # other one.
        ended = attempt.stage()
        flush_output()
        self._tell(ended)
        try:
            # A SparkContext that goes takes threads and module paths of its own along.
            return reasons or [*self._left_behind(), *self._session.close()]
        except Exception as error:
            return [f"the session could not be cleaned: {error}"]

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

    def _tell(self, message: DriverMessage) -> None:
        """Tell the TaskManager; where that is gone, this process ends as `_receive` ends it."""
        try:
            self._link.send(message)
        except UnreachableError:
            os._exit(0)

    def _left_behind(self) -> list[str]:
        return Surroundings.now(self._session.jvm_pid).differences(self._before)

    @contextlib.contextmanager
    def _interruptible(self, deploy: Deploy) -> Iterator[None]:
        self._running, self._attempt = deploy.job_id, deploy.attempt
        try:
            if self._is_interrupted(deploy):
                raise Interrupted
            yield
        finally:
            self._running = ""

    def _is_interrupted(self, deploy: Deploy) -> bool:
        return (deploy.job_id, deploy.attempt) in self._interrupted

    def _raise_in_job(self, *_: object) -> None:
        if self._running and any(job_id == self._running for job_id, _ in self._interrupted):
            self._running = ""  # Once: what follows is our own.
            raise Interrupted

    def _receive(self) -> None:
        while (envelope := self._link.receive()) is not None:
            match envelope.message:
                case RunAttempt() as order:
                    self._inbox.put(order)
                case Interrupt() as wish:
                    self._interrupt(wish)
                case messages.CheckpointsRecorded() | messages.CheckpointsRefused() as answer:
                    if self._recorder:
                        self._recorder.answered(answer)
        os._exit(0)  # The TaskManager is gone; our guardian is about to end us anyway.

    def _interrupt(self, wish: Interrupt) -> None:
        # It may come before its attempt is begun, or after the end of it.
        self._interrupted.add((wish.job_id, wish.attempt))
        if self._running != wish.job_id:
            return
        try:
            self._session.interrupt()
        except Exception:
            logging.getLogger(__name__).exception("interrupting %s", wish.job_id)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def _watch_jvm(self) -> None:
        self._session.await_jvm_end()
        os._exit(JVM_LOST)

    def _give_up(self, job_id: str, error: ExecutorsUnavailable) -> None:
        self._given_up = error
        self._interrupt(Interrupt(job_id=JobId(job_id), attempt=self._attempt))

    def _tell_progress(self) -> None:
        told: tuple[str, int, int] | None = None
        while True:
            time.sleep(PROGRESS_S)
            job_id = self._running
            try:
                if unavailable := self._executors.look(job_id):
                    self._give_up(job_id, unavailable)
                if not job_id:
                    continue
                done, total, stage = self._session.progress()
                if total and told != (job_id, done, total):
                    told = (job_id, done, total)
                    self._link.send(
                        messages.Progress(
                            job_id=job_id,  # type: ignore[arg-type]
                            attempt=0,
                            tasks_done=done,
                            tasks_total=total,
                            stage=stage,
                        )
                    )
            except UnreachableError:
                return
            except Exception:
                logging.getLogger(__name__).debug("no progress", exc_info=True)


def _assignment(deploy: Deploy) -> Assignment:
    tag = Tag(deploy.cluster, deploy.run_id, deploy.job_id, deploy.attempt, deploy.driver)
    return Assignment(tag, deploy.name, deploy.application_name, deploy.slots, deploy.lost_driver)


def _start(message: StartSession, session: Session) -> None:
    sys.path[:0] = [path for path in message.python_path if path not in sys.path]
    conf = dict(message.conf)
    if message.kind != "session-less":
        defaults = importlib.import_module("understudy.spark.defaults")
        conf = defaults.session_conf(conf, message.scratch, message.application_id)
    session.start(
        Launch(
            conf,
            message.scratch,
            lock_descriptors(),
            message.python_path,
            message.keep_idle_s,
            Tag(message.cluster, message.run_id, "", 0),
        )
    )
    if message.kind != "session-less":
        importlib.import_module("understudy.spark.forks").keep_jvm_from_children()


def main() -> NoReturn:
    """Start the session that the TaskManager asks for, and serve it."""
    link: BlockingLink[DriverMessage] = channels.inherited(channels.driver_codec)
    guardian = GuardianLink.from_environment()
    timeout_s = float(os.environ.pop(HEARTBEAT_S, "30"))
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(WithoutSecrets("%(levelname)s %(message)s"))
    logging.getLogger("py4j").setLevel(logging.WARNING)
    envelope = link.receive()
    if envelope is None or not isinstance(envelope.message, StartSession):
        sys.exit(0)
    message = envelope.message
    learn_secrets(message.conf)
    own_directory.make(Path(message.scratch), levels=2)
    os.environ[IN_DRIVER] = "1"
    session = open_session(message.kind)
    try:
        _start(message, session)
    except SessionLost as error:
        logging.getLogger(__name__).warning("%s", error)
        os._exit(JVM_LOST)
    except UnderstudyError as error:
        sys.exit(masked(str(error)))  # A sentence says more than where it was raised.
    start_pulse(guardian, SystemClock(), timeout_s, session.pulse)
    driver = Driver(link, session, open_storage(message.storage), SystemClock(), message.wait_s)
    driver.serve()
    flush_output()
    os._exit(0)  # Left-over threads and children of jobs must not keep a retired driver.


if __name__ == "__main__":
    main()
