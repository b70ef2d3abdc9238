"""The process that runs ``main``: started ahead of time, used for one execution.

Run as ``python -m understudy.application.application_process`` under a guardian. The process does
its slow imports, sends ``Ready`` and waits until a leader sends the application to execute. A
standby keeps one such process waiting for a takeover.

``main`` runs in ``__main__``, from the stored copy of the script and the modules beside it;
``__file__`` is the path of the submitted script.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import itertools
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn

from understudy.application import whole
from understudy.application.environment import Environment, current
from understudy.clock import SystemClock
from understudy.config.configuration import learn_secrets
from understudy.config.secrets import WithoutSecrets
from understudy.core.matching import Assignment
from understudy.errors import JobStopped, UnreachableError
from understudy.ha.format import digest
from understudy.ha.storage import BlockingStorage, open_storage
from understudy.model import MODULE, Failure, JobId, Pointer
from understudy.process import channels, entry_point
from understudy.process.channels import HEARTBEAT_S, SCRATCH
from understudy.process.failures import failure_of, shown, storable, uncaught_job
from understudy.process.forks import Home
from understudy.process.persist import FOR_EVER, persist_blocking
from understudy.process.printed import flush_output
from understudy.process.worker import GuardianLink, start_pulse
from understudy.rpc import messages
from understudy.rpc.messages import MainMessage, RunMain
from understudy.rpc.wire import BlockingLink


class ClusterLink:
    """``main``'s requests over the channel; a separate thread receives the answers."""

    def __init__(self, link: BlockingLink[MainMessage], run: RunMain) -> None:
        self.execution = run.execution
        self._home = Home()
        self._link = link
        self._storage: BlockingStorage = open_storage(run.storage)
        self._plans = run.plans
        self._numbers = itertools.count(1)
        self._waiting: dict[int, _Answer] = {}
        self._turn = threading.Lock()
        threading.Thread(target=self._receive, name="understudy-main", daemon=True).start()

    def request(self, message: Callable[[int], MainMessage]) -> MainMessage:
        """Send a numbered request to the JobManager, and wait for the answer."""
        self._home.demand("what only main may ask for")
        answer = _Answer()
        with self._turn:
            number = next(self._numbers)
            self._waiting[number] = answer
        self._link.send(message(number))
        return answer.wait()

    def send(self, message: MainMessage) -> None:
        """Send a message to the JobManager."""
        self._home.demand("what only main may tell")
        self._link.send(message)

    def put_plan(self, job_id: JobId, plan: bytes) -> Pointer:
        """Store a plan under its digest; retry for ever while the storage fails."""
        name = digest(plan)
        path = f"{self._plans}/{job_id}-{name[-16:]}"
        persist_blocking("store a plan", lambda: self._storage.publish(path, plan), FOR_EVER)
        return Pointer(path=path, digest=name, size=len(plan))

    def _receive(self) -> None:
        while (envelope := self._link.receive()) is not None:
            answer = self._waiting.pop(getattr(envelope.message, "request", 0), None)
            if answer:
                answer.set(envelope.message)
        # The JobManager is gone, and so is this execution; the guardian is about to kill us.
        for answer in list(self._waiting.values()):
            answer.set(None)


class _Answer:
    """The answer that a thread waits for."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._message: MainMessage | None = None

    def set(self, message: MainMessage | None) -> None:
        self._message = message
        self._event.set()

    def wait(self) -> MainMessage:
        self._event.wait()
        if self._message is None:
            raise UnreachableError("the JobManager that executed this main is gone")
        return self._message


class Terminated(SystemExit):
    """A signal ends this process: a loss, not a failure of ``main``."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number


def _terminate(number: int, _: object) -> NoReturn:
    raise Terminated(number)


def _end_as_usual() -> None:
    """Restore the usual signal handlers in a forked child: ours are for ``main`` only."""
    for number, usual in _USUAL.items():
        if signal.getsignal(number) is _terminate:
            signal.signal(number, usual)


_USUAL: dict[signal.Signals, Any] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}


def execute(run: RunMain, environment: Environment) -> messages.MainEnded:
    """Execute ``main`` and wait for its threads; return its outcome."""
    try:
        if run.as_job:
            whole.run_application(environment, run)
            return messages.MainEnded()
        with Home().user_code():
            if run.script:
                stored = Path(run.code) / "app" / run.target
                entry_point.run_script(stored.read_bytes(), run.script, run.args)
            elif run.target.startswith(MODULE):
                entry_point.run_module(run.target.removeprefix(MODULE), run.args)
            else:
                entry_point.run_function(run.target, run.args)
    except Terminated:
        raise
    except SystemExit as end:
        return messages.MainEnded(failure=_exit_failure(end.code))
    except JobStopped as stopped:  # As the person wanted who stopped the job: no failure.
        _say(f"main ends here: {stopped}\n")
    except BaseException as error:
        return messages.MainEnded(failure=failure_of(error), job_id=uncaught_job(error))
    entry_point.join_threads()
    return messages.MainEnded()


def _say(text: str) -> None:
    with contextlib.suppress(Exception):  # ``main`` may have closed or replaced stderr.
        sys.stderr.write(text)


def _exit_failure(code: object) -> Failure | None:
    if code is None or code == 0:
        return None
    message = code if isinstance(code, str) else f"main exited with code {shown(code)}"
    return Failure(type="SystemExit", message=storable(message), time=SystemClock().wall())


def _defaults() -> ModuleType:
    """Return the module that imports PySpark, once the guardian has heard of this process."""
    return importlib.import_module("understudy.spark.defaults")


def _prepare(run: RunMain) -> None:
    if run.cwd and Path(run.cwd).is_dir():
        os.chdir(run.cwd)
    sys.path[:0] = [path for path in run.python_path if path not in sys.path]
    previous = os.environ.get("PYTHONPATH")
    entries = [*run.python_path, *([previous] if previous else [])]
    os.environ["PYTHONPATH"] = os.pathsep.join(entries)
    opened = functools.partial(_warn_of_spark, run) if run.execution == 1 else None
    _defaults().set_submit_arguments(run.conf, os.environ.pop(SCRATCH, ""), opened)


def _warn_of_spark(run: RunMain) -> None:
    """Tell the person that ``main`` opens Spark itself, and at which line of the script."""
    frame: FrameType | None = sys._getframe()
    while frame and frame.f_code.co_filename != run.script:
        frame = frame.f_back
    where = f", line {frame.f_lineno}" if frame else ""
    _say(
        f"understudy: main opens Spark itself ({run.target}{where}): after the loss of a "
        "JobManager main is executed again, and repeats what it did with this session. Move that "
        "into a job, which has ctx.spark, or run it by understudy.run(function)\n"
    )


def _log_without_secrets() -> None:
    """Hide secrets in log lines as long as ``main`` has not configured logging as it wants it."""
    if logging.lastResort:
        logging.lastResort.setFormatter(WithoutSecrets())


def main() -> NoReturn:
    """Wait for an application, execute it, and report its outcome.

    A signal ends the process by that signal at any moment, even before the execution: an exit code
    would be taken for ``main``'s.
    """
    try:
        for number in _USUAL:
            signal.signal(number, _terminate)
        os.register_at_fork(after_in_child=_end_as_usual)
        _serve()
    except Terminated as end:  # ``main`` has done its own cleanup.
        signal.signal(end.number, signal.SIG_DFL)
        os.kill(os.getpid(), end.number)
        raise


def _serve() -> NoReturn:
    link: BlockingLink[MainMessage] = channels.inherited(channels.main_codec)
    start_pulse(
        GuardianLink.from_environment(), SystemClock(), float(os.environ.pop(HEARTBEAT_S, "30"))
    )
    _defaults().preload()
    link.send(messages.Ready())
    envelope = link.receive()
    if envelope is None or not isinstance(envelope.message, RunMain):
        sys.exit(0)
    run = envelope.message
    learn_secrets(run.conf, run.redacted_keys)
    _log_without_secrets()
    _prepare(run)
    assignment = Assignment(run.application_id, run.first_job_id, run.first_job_name)
    environment = Environment(ClusterLink(link, run), assignment)
    current.set(environment)
    ended = execute(run, environment)
    failure = ended.failure
    if failure and not run.as_job:  # The failure of a job is told as it happens.
        _say(failure.traceback or f"{failure.message}\n")
    flush_output()
    link.send(ended)
    sys.exit(1 if failure else 0)


if __name__ == "__main__":
    main()
