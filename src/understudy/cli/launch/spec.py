"""The specification of a worker process, passed in its environment."""

from __future__ import annotations

import contextlib
import enum
import os
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from understudy.cli.launch.compose import make_locks_directory
from understudy.config import Configuration, options
from understudy.config.configuration import quoted
from understudy.core.ids import POD_UID_VARIABLE, incarnation_of_pod, process_name
from understudy.errors import UsageError
from understudy.jobmanager.redeployment import NO_CHANGES, Changes
from understudy.model import Incarnation, StartFrom
from understudy.process.processes import Spec

WORKER = "UNDERSTUDY_WORKER"

HANDED_ON_BYTES_MAX = 100_000
"""Limit for a worker's specification in one environment variable: Linux allows 128 KiB, and the
names of jobs to run again come on top."""


class RunsAs(enum.Enum):
    """How an application runs."""

    MAIN = "main"
    """Its script or function submits jobs."""
    JOB = "job"
    """It was not converted: its script or function runs whole as one job."""


class ApplicationSpec(msgspec.Struct, frozen=True):
    """The application that a JobManager brings."""

    app: str
    """The script's absolute path or URL, ``module:function``, or a module's name."""
    args: tuple[str, ...]
    cwd: str
    name: str
    py_files: tuple[str, ...]
    conf: dict[str, str]
    savepoints: tuple[StartFrom, ...] = ()
    is_module: bool = False
    """Whether ``app`` runs as ``python -m`` does."""
    python: str = ""
    """The interpreter that was named for it; empty for that of the command."""
    runs_as: RunsAs = RunsAs.MAIN
    overruled: bool = False
    """A person said how it runs."""
    adopted: tuple[str, ...] = ()
    """Keys of ``conf`` whose values the script itself writes down."""
    requirements: str = ""
    """The absolute path of its requirements file."""
    requirements_text: str = ""
    """Its requirements, where they were given as text."""


def check_handed_on(
    configuration: Configuration, application: ApplicationSpec | None = None
) -> None:
    """Raise `UsageError` for values that cannot be passed to a worker."""
    for what, text in _pieces(application) if application else ():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"{what} is {quoted(text)}, which is no UTF-8: rename it, or pass it in a file"
            ) from None
    size = len(msgspec.json.encode((configuration.settings, application)))
    if size > HANDED_ON_BYTES_MAX:
        raise UsageError(
            f"the arguments and settings take {size:,} bytes, and {HANDED_ON_BYTES_MAX:,} can be "
            "handed to a process: put what is long into a file"
        )


def _pieces(application: ApplicationSpec) -> Iterator[tuple[str, str]]:
    yield "the application", application.app
    yield "the current directory", application.cwd
    yield from ((f"argument {n}", text) for n, text in enumerate(application.args, start=1))
    yield from (("--py-files", text) for text in application.py_files)
    yield "--requirements", application.requirements
    yield from (("a key of --conf", key) for key in application.conf)
    yield from application.conf.items()


class WorkerSpec(msgspec.Struct, frozen=True):
    """The specification of a JobManager or TaskManager process."""

    role: str
    name: str
    incarnation: Incarnation
    settings: dict[str, str]
    cluster_id: str
    lock: str
    run_id: str | None = None
    ephemeral: bool = False
    application: ApplicationSpec | None = None
    changes: Changes = NO_CHANGES
    events: int | None = None
    """Descriptor of the pipe to the launcher; None in the foreground."""
    scratch: str = ""
    ready: int | None = None
    """Descriptor of the pipe for a background worker's single ready line."""


def new_worker(
    role: str,
    configuration: Configuration,
    cluster_id: str,
    scratch: str,
    incarnation: Incarnation | None = None,
) -> WorkerSpec:
    """Return the specification of a worker without a run; its incarnation is new if not given."""
    incarnation = incarnation or Incarnation(uuid.uuid4().hex)
    return WorkerSpec(
        role=role,
        name=process_name(role, incarnation),
        incarnation=incarnation,
        settings=dict(configuration.settings),
        cluster_id=cluster_id,
        lock=lock_of(configuration, cluster_id, incarnation),
        scratch=str(Path(scratch) / incarnation) if scratch else "",
    )


def own_incarnation() -> Incarnation | None:
    """Return the incarnation of this pod's one process; None where this is no such pod.

    Its children must not take it for theirs.
    """
    uid = os.environ.pop(POD_UID_VARIABLE, "")
    return incarnation_of_pod(uid) if uid else None


def lock_of(configuration: Configuration, cluster_id: str, incarnation: str) -> str:
    """Return the path of a liveness lock; empty without locks."""
    directory = make_locks_directory(configuration, cluster_id)
    return str(directory / incarnation) if directory else ""


def guarded(worker: WorkerSpec, *, orphan_grace_s: float) -> Spec:
    """Return how the guardian starts and watches the worker."""
    return Spec(
        name=worker.name,
        incarnation=worker.incarnation,
        argv=(sys.executable, "-P", "-m", f"understudy.cli.launch.{worker.role}_process"),
        env={WORKER: msgspec.json.encode(worker).decode()},
        fds=tuple(one for one in (worker.events, worker.ready) if one is not None),
        lock=worker.lock or None,
        start_s=START_S,
        stop_grace_s=stop_grace_s(worker.role, worker.settings),
        orphan_grace_s=orphan_grace_s,
        scratch=(worker.scratch,) if worker.scratch else (),
    )


def stop_grace_s(role: str, settings: Mapping[str, str]) -> float:
    """Return how long a worker may take to close."""
    drains = role == "taskmanager"
    return STOP_GRACE_S + (Configuration(settings).get(options.DRAIN_TIMEOUT) if drains else 0.0)


def received(environment: Mapping[str, str] | None = None) -> WorkerSpec:
    """Return this process's specification and remove it from the environment of children."""
    text = (environment or os.environ).get(WORKER, "")
    os.environ.pop(WORKER, None)
    return msgspec.json.decode(text, type=WorkerSpec)


def telling_ready(
    descriptor: int, tell: Callable[[dict[str, Any]], None]
) -> Callable[[dict[str, Any]], None]:
    """Return an event sink that also writes one ready line to a pipe when the worker is up."""
    pipe: list[int] = [descriptor]

    def told(event: dict[str, Any]) -> None:
        if pipe and event["event"] in UP:
            with contextlib.suppress(OSError):  # The starting command has ended.
                os.write(pipe[0], msgspec.json.encode({"rest": event.get("rest") or ""}) + b"\n")
            os.close(pipe.pop())
        tell(event)

    return told


UP = ("jobmanager-started", "taskmanager-started")
"""Events that a worker sends when it serves."""

START_S = 120.0
"""How long a worker may take to report; imports take about 1 s on an idle machine."""

STOP_GRACE_S = 15.0
"""How long a worker may take to close: to end its drivers and release its lease."""
