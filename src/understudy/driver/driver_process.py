"""A driver: the process that holds a SparkSession, and serves one job at a time.

Run as ``python -m understudy.driver.driver_process`` under a guardian. Each job runs in a process
of its own (`driver`), forked from a clean one before it is needed (`fork_server`);
the driver keeps the JVM, speaks with the TaskManager, and looks after both. However the process of
a job is lost, the driver ends in the same way: then its guardian has the proof. A driver serves
again once the process of the last job is reaped, and nothing of the job is found.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from understudy.clock import SystemClock
from understudy.config.configuration import learn_secrets
from understudy.config.secrets import log_without_secrets, masked
from understudy.core.executors import AssignedAttempt, Launch, Tag
from understudy.core.handover import Handover
from understudy.driver import class_data_building, fork_server
from understudy.driver.attempt import Attempt
from understudy.driver.driver import JobProcess
from understudy.driver.driver_session import DriverSession, open_session
from understudy.driver.executor_watch import ExecutorWatch
from understudy.driver.fork_server import Child, ForkServer
from understudy.driver.interrupts import Interrupts
from understudy.driver.job_line import Attach, Beat, Decided, GetReady, GiveUp, Line, line_over
from understudy.driver.job_session import job_session
from understudy.driver.rehearsal import Rehearsal
from understudy.driver.surroundings import left_behind
from understudy.driver.time_limit import TimeLimit
from understudy.errors import (
    ExecutorsUnavailable,
    JobTimedOut,
    SessionLost,
    UnderstudyError,
    UnreachableError,
)
from understudy.ha import own_directory
from understudy.ha.storage import load_client, open_storage
from understudy.model import JobId, JobStatus
from understudy.process import channels, plans
from understudy.process.channels import APPLICATION_LOST, HEARTBEAT_S, JVM_LOST, SERVES_ONE
from understudy.process.printed import flush_output
from understudy.process.user_code import IN_DRIVER
from understudy.process.worker import BEATS, GuardianLink, Pulse, lock_descriptors
from understudy.rpc import messages
from understudy.rpc.messages import Deploy, DriverMessage, Interrupt, RunAttempt, StartSession
from understudy.rpc.wire import BlockingLink

PROGRESS_S = 1.0
"""How often progress is told; it costs a few calls to the JVM."""

_SERVER, _JOB = "fork server", "job"
"""Who is held to be heard of, beside the driver itself."""

ALWAYS, NEVER = "always", "never"
"""When a driver serves another job, whatever one has left in the JVM: ``taskmanager.driver.reuse``.
Else, if nothing is left."""

_log = logging.getLogger(__name__)


class DriverProcess:
    """One driver process."""

    def __init__(
        self,
        link: BlockingLink[DriverMessage],
        session: DriverSession,
        server: ForkServer,
        pulse: Pulse,
        start: StartSession,
    ) -> None:
        self._link = link
        self._session = session
        self._server = server
        self._pulse = pulse
        self._storage = start.storage
        self._reuse = start.reuse
        self._clock = SystemClock()
        self._inbox: queue.SimpleQueue[RunAttempt | None] = queue.SimpleQueue()
        self._turn = threading.Lock()
        self._line: Line | None = None
        """To the process in which an attempt runs."""
        self._next: Child | None = None
        """The process of a job to come."""
        self._interrupts = Interrupts()
        self._stops = False
        """The TaskManager drains."""
        self._running = ""
        """The job that has this driver."""
        self._attempt = 0
        self._executors = ExecutorWatch(session, link.send, self._clock, start.wait_s)
        self._cancel_grace_s = start.cancel_grace_s
        self._given_up: ExecutorsUnavailable | JobTimedOut | None = None
        """Why the attempt is interrupted, if nobody has asked for it."""
        self._builder: subprocess.Popen[bytes] | None = None
        """Of the archive from which later drivers start."""

    def serve(self) -> None:
        """Run attempts until the driver must be retired, or its TaskManager is gone."""
        self._builder = class_data_building.start(self._session.to_build())
        self._interrupts.listen()
        # PySpark takes it with its first context.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        self._pulse.expect(_SERVER)
        self._server.watch(lambda: self._pulse.expect(_SERVER), self._server.end_like_it)
        for work, name in (
            (self._receive, "understudy-inbox"),
            (self._watch_jvm, "understudy-jvm"),
            (self._report_progress, "understudy-progress"),
        ):
            threading.Thread(target=work, name=name, daemon=True).start()
        self._next = self._fork()
        while True:
            self._link.send(
                messages.Warm(jvm_pid=self._session.jvm_pid, spark=self._session.facts())
            )
            order = self._inbox.get()
            if order is None:
                return
            child, self._next = self._next, None
            if child is None or child.ended.is_set():  # Somebody has killed it as it waited.
                child = self._fork()
            reasons = self._run(order, child)
            reasons = reasons or self._why_not_again()
            if reasons:
                self._link.send(messages.Retiring(reason="; ".join(reasons)))
                return

    def _fork(self) -> Child:
        """Fork the process of a job to come, and have it get ready."""
        child = self._server.fork()
        if handover := self._session.standing():
            with contextlib.suppress(UnreachableError):
                line_over(child.line, "driver").send(GetReady(handover=handover))
        return child

    def _run(self, order: RunAttempt, child: Child) -> list[str]:
        """Have one attempt run to its end; return why the driver cannot go on, if so."""
        deploy = order.deploy
        self._running, self._attempt, self._given_up = deploy.job_id, deploy.attempt, None
        try:
            handover = self._open(order)
            if isinstance(handover, messages.AttemptEnded):
                self._report(handover)
                return self._why_retired(handover)
            ended = self._follow(order, handover, child)
        finally:
            self._running = ""
        return self._why_retired(ended)

    def _open(self, order: RunAttempt) -> Handover | messages.AttemptEnded | None:
        """Open a session for an attempt; on a cluster that takes long, or fails: its end then."""
        deploy = order.deploy
        attempt = Attempt(deploy, order.term, open_storage(self._storage), self._clock)
        try:
            with self._interrupts.working_for(deploy):
                return self._session.open(_assignment(deploy))
        except SessionLost as error:
            self._lose_application(str(error))
        except BaseException as error:  # Whatever a cluster, or its settings, may do.
            if self._session.is_lost(error):
                os._exit(JVM_LOST)
            if lost := self._session.lost_application(error):
                self._lose_application(lost)
            if self._given_up:
                attempt.failed(self._given_up)
            elif self._interrupts.has(deploy):
                attempt.interrupted()
            else:
                attempt.failed(error)
        return attempt.stage()

    def _follow(
        self, order: RunAttempt, handover: Handover | None, child: Child
    ) -> messages.AttemptEnded:
        """Hand an attempt to its process, and hand on what that says, until it is reaped."""
        deploy = order.deploy
        attempt = Attempt(deploy, order.term, open_storage(self._storage), self._clock)
        limit = TimeLimit(deploy, self._cancel_grace_s, self._time_out(deploy), child.kill)
        line = line_over(child.line, "driver")
        self._pulse.expect(_JOB)
        with contextlib.suppress(UnreachableError), self._turn:
            self._line = line
            if self._interrupts.has(deploy):
                line.send(self._wish(deploy.job_id))
            if self._stops:
                line.send(messages.Stopping())
            if handover:
                line.send(Attach(handover=handover))
            line.send(order)
        self._next = self._fork()  # It gets ready while this job runs.
        ended: messages.AttemptEnded | None = None
        in_function = False
        while (envelope := line.receive()) is not None:
            match envelope.message:
                case Beat() as beat:
                    self._pulse.expect(_JOB, beat.until)
                case messages.Entered() as entered:
                    limit.begin()
                    in_function = True
                    facts = self._session.facts()
                    self._report(
                        messages.Entered(
                            job_id=entered.job_id, attempt=entered.attempt, spark=facts
                        )
                    )
                case Decided():
                    limit.end()
                    in_function = False
                case messages.AttemptEnded() as reported:
                    ended = reported
                    self._report(reported)
                case messages.CheckpointsTaken() as taken:
                    self._report(taken)
        with self._turn:
            self._line = None
        child.ended.wait()  # As long as it is heard of.
        self._pulse.forget(_JOB)  # Before what may wait for storage: the dead are not heard of.
        limit.end()
        child.line.close()
        own_exit = ended is None and in_function and self._has_exited(deploy, child.status)
        if ended is None and (limit.exceeded or own_exit) and not attempt.is_staged():
            if limit.exceeded:
                attempt.failed(limit.exceeded)
            else:
                attempt.exited(os.WEXITSTATUS(child.status))
            ended = attempt.stage()
            self._report(ended)
        if ended is None:
            fork_server.end_like(child.status)
        return ended

    def _has_exited(self, deploy: Deploy, status: int) -> bool:
        """Return whether a script has ended its own process: that is no loss of its driver.

        A script may exit since it has lost its JVM, whose end is then about to be noticed.
        """
        if not deploy.whole or not os.WIFEXITED(status) or self._interrupts.has(deploy):
            return False
        if os.WEXITSTATUS(status) in {JVM_LOST, APPLICATION_LOST}:
            return False
        return not self._session.is_lost(EOFError("the process of the job has exited"))

    def _why_retired(self, ended: messages.AttemptEnded) -> list[str]:
        if isinstance(self._given_up, ExecutorsUnavailable):
            return ["its job got no executors"]
        if self._given_up:
            return ["its job exceeded its timeout"]
        if ended.status is not JobStatus.FINISHED:
            failed = ended.status is JobStatus.FAILED
            return ["its job failed" if failed else "its job was cancelled"]
        return []

    def _why_not_again(self) -> list[str]:
        """Look for what a job has left; return why no other one may come, if so."""
        if self._reuse == NEVER:
            return [SERVES_ONE]
        for descriptor in (1, 2):  # All processes of a driver share what these are.
            with contextlib.suppress(OSError):
                os.set_blocking(descriptor, True)
        apart = {self._session.jvm_pid, self._server.pid}
        if self._builder and self._builder.poll() is None:
            apart.add(self._builder.pid)
        left = left_behind(apart)
        try:
            in_session = self._session.close()
            continues = bool(in_session) and self._reuse == ALWAYS and not self._session.is_over()
        except Exception as error:
            return [*left, f"the session could not be cleaned: {error}"]
        if continues:
            _log.warning("a job has left this in the driver, which continues: %s", in_session)
            return left
        return left + in_session

    def _lose_application(self, reason: str) -> NoReturn:
        """End this process: what the cluster has taken away is a loss, no exception of the job."""
        _log.error("%s", reason)
        flush_output()
        os._exit(APPLICATION_LOST)

    def _report(self, message: DriverMessage) -> None:
        """Tell the TaskManager; where that is gone, this process ends as `_receive` ends it."""
        try:
            self._link.send(message)
        except UnreachableError:
            os._exit(0)

    def _receive(self) -> None:
        while (envelope := self._link.receive()) is not None:
            match envelope.message:
                case RunAttempt() as order:
                    self._inbox.put(order)
                case Interrupt() as wish:
                    self._interrupt(wish)
                case messages.Stopping() as wish:
                    self._stops = True
                    self._notify(wish)
                case messages.CheckpointsRecorded() | messages.CheckpointsRefused() as answer:
                    self._notify(answer)
        os._exit(0)  # The TaskManager is gone; our guardian is about to end us anyway.

    def _interrupt(self, wish: Interrupt | GiveUp) -> None:
        with self._turn:
            self._interrupts.add(wish.job_id, wish.attempt)
        self._notify(wish)
        if self._interrupts.reaches(wish.job_id):
            self._interrupts.strike()

    def _notify(
        self,
        message: Interrupt
        | GiveUp
        | messages.Stopping
        | messages.CheckpointsRecorded
        | messages.CheckpointsRefused,
    ) -> None:
        """Tell the process in which an attempt runs, if one does."""
        with contextlib.suppress(UnreachableError), self._turn:
            if self._line:
                self._line.send(message)

    def _watch_jvm(self) -> None:
        self._session.await_jvm_end()
        os._exit(JVM_LOST)

    def _time_out(self, deploy: Deploy) -> Callable[[JobTimedOut], None]:
        def give_up(error: JobTimedOut) -> None:
            if deploy.attempt == self._attempt:
                self._give_up(deploy.job_id, error)

        return give_up

    def _give_up(self, job_id: str, error: ExecutorsUnavailable | JobTimedOut) -> None:
        if job_id != self._running:
            return  # It has ended meanwhile.
        self._given_up = error
        self._interrupt(self._wish(job_id))

    def _wish(self, job_id: str) -> Interrupt | GiveUp:
        """Return what ends the attempt, and says why: given up by us, or interrupted."""
        job, attempt = JobId(job_id), self._attempt
        if self._given_up:
            timed_out = isinstance(self._given_up, JobTimedOut)
            return GiveUp(
                job_id=job, attempt=attempt, reason=str(self._given_up), timed_out=timed_out
            )
        return Interrupt(job_id=job, attempt=attempt)

    def _report_progress(self) -> None:
        reported: tuple[str, int, int] | None = None
        while True:
            time.sleep(PROGRESS_S)
            job_id = self._running
            try:
                if unavailable := self._executors.look(job_id):
                    self._give_up(job_id, unavailable)
                if not job_id:
                    continue
                done, total, stage = self._session.progress()
                if total and reported != (job_id, done, total):
                    reported = (job_id, done, total)
                    self._link.send(
                        messages.Progress(
                            job_id=JobId(job_id),
                            attempt=0,
                            tasks_done=done,
                            tasks_total=total,
                            stage=stage,
                        )
                    )
            except UnreachableError:
                return
            except Exception:
                _log.debug("no progress", exc_info=True)


def _assignment(deploy: Deploy) -> AssignedAttempt:
    tag = Tag(deploy.cluster, deploy.run_id, deploy.job_id, deploy.attempt, deploy.driver)
    return AssignedAttempt(
        tag,
        deploy.name,
        deploy.application_name,
        deploy.slots,
        deploy.lost_driver,
        deploy.ended_runs,
    )


def _start(message: StartSession, session: DriverSession) -> None:
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
            message.class_data,
            message.ended_runs,
        )
    )


def _run_job(
    end: socket.socket, start: StartSession, timeout_s: float, rehearsal: Rehearsal
) -> None:
    """Be the process of a job: get ready, wait for the job, run it."""
    rehearsal.run()
    session, storage = job_session(start.kind), open_storage(start.storage)
    JobProcess(line_over(end, "job"), session, storage, SystemClock()).serve(timeout_s)


def main() -> NoReturn:
    """Start the session that the TaskManager asks for, and serve it."""
    link: BlockingLink[DriverMessage] = channels.inherited(channels.driver_codec)
    guardian = GuardianLink.from_environment()
    timeout_s = float(os.environ.pop(HEARTBEAT_S, "30"))
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    log_without_secrets("%(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    envelope = link.receive()
    if envelope is None or not isinstance(envelope.message, StartSession):
        sys.exit(0)
    message = envelope.message
    # Before the fork server is forked: the processes of jobs hide what this one does.
    learn_secrets(message.conf, message.redacted_keys)
    own_directory.make(Path(message.scratch), levels=2)
    os.environ[IN_DRIVER] = "1"
    sys.path[:0] = [path for path in message.python_path if path not in sys.path]
    session = open_session(message.kind)
    # What these import, the processes of jobs share.
    job_session(message.kind)
    load_client(message.storage)
    plans.current_versions()
    rehearsal = Rehearsal()
    server = ForkServer.start(
        lambda end: _run_job(end, message, timeout_s, rehearsal), timeout_s / BEATS
    )
    try:
        _start(message, session)
    except SessionLost as error:
        _log.warning("%s", error)
        os._exit(JVM_LOST)
    except UnderstudyError as error:
        sys.exit(masked(str(error)))  # A sentence says more than where it was raised.
    pulse = Pulse(guardian, SystemClock(), timeout_s)
    pulse.start(session.pulse)
    DriverProcess(link, session, server, pulse, message).serve()
    flush_output()
    os._exit(0)


if __name__ == "__main__":
    main()
