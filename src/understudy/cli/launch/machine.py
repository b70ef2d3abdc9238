"""The processes of clusters on this machine, as their guardians tell.

A guardian is started with a description of its worker, and holds the worker's liveness lock; the
process that it guards is its child. So each process is known by its guardian, never by how its own
command line looks. Other users' processes are seen by root only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from understudy.cli.launch.spec import WORKER, WorkerSpec
from understudy.config import options
from understudy.config.configuration import state_home
from understudy.errors import ConfigurationError
from understudy.process import guardian
from understudy.process.channels import INCARNATION

_PROGRAM = "understudy/process/guardian.py"

LAUNCHER = "run-application"
"""The kind of a command that starts the processes of one run, watches and replaces them."""


@dataclass(frozen=True)
class LocalProcess:
    """A process of a cluster on this machine."""

    kind: str
    """``jobmanager``, ``taskmanager``, ``driver``, ``main``, or `LAUNCHER`."""
    name: str
    incarnation: str
    pid: int
    guardian_pid: int
    """0 for the launcher, which has no guardian."""
    started_at: float
    """Seconds since the epoch."""
    worker: WorkerSpec | None
    """The specification of the JobManager or TaskManager that it is, or belongs to."""


class _Described(msgspec.Struct):
    """What a guardian is told of its worker: the part that counts here."""

    name: str


def guarded() -> list[LocalProcess]:
    """Return all living processes of clusters, each JobManager and TaskManager before its own."""
    parents = {pid: parent for pid in _pids() if (parent := guardian.parent_of(pid))}
    found = {one.guardian_pid: one for pid in parents if (one := _guarded_by(pid, parents))}
    heads = [one for one in found.values() if one.worker]
    launchers = {
        parents[one.guardian_pid]: one.worker
        for one in heads
        if one.worker and one.worker.events is not None and one.guardian_pid in parents
    }
    told = [
        LocalProcess(LAUNCHER, LAUNCHER, "", pid, 0, _started_at(pid), worker)
        for pid, worker in launchers.items()
        if pid > 1
    ]
    for head in heads:
        told.append(head)
        told += [
            replace(one, worker=head.worker)
            for one in found.values()
            if not one.worker and _descends(one.guardian_pid, head.pid, parents)
        ]
    return told


def _guarded_by(pid: int, parents: dict[int, int]) -> LocalProcess | None:
    """Return what a guardian guards; None if this process is no guardian, or guards no more."""
    words = _words(pid, "cmdline")
    if len(words) < 2 or not words[-2].endswith(_PROGRAM):
        return None
    try:
        described = msgspec.json.decode(words[-1], type=_Described)
    except msgspec.DecodeError:
        return None
    worker = next((one for one, parent in parents.items() if parent == pid), 0)
    if not worker or not guardian.start_ticks(worker):
        return None
    variables = dict(word.split("=", 1) for word in _words(pid, "environ") if "=" in word)
    kind = described.name.rpartition("-")[0]
    spec = _spec(variables) if kind in {"jobmanager", "taskmanager"} else None
    incarnation = spec.incarnation if spec else variables.get(INCARNATION, "")
    return LocalProcess(kind, described.name, incarnation, worker, pid, _started_at(worker), spec)


def _spec(variables: Mapping[str, str]) -> WorkerSpec | None:
    """Return a worker's specification, with its storage; None if another version has written it."""
    try:
        spec = msgspec.json.decode(variables.get(WORKER, ""), type=WorkerSpec)
    except msgspec.DecodeError:
        return None
    try:
        usual = {options.STORAGE_DIR.key: str(state_home(variables) / "ha")}
    except ConfigurationError:  # Its own settings name its storage, or it could not have started.
        usual = {}
    return msgspec.structs.replace(spec, settings={**usual, **spec.settings})


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid not in {0, 1, ancestor}:
        pid = parents.get(pid, 0)
    return pid == ancestor


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _words(pid: int, file: str) -> list[str]:
    """Return what the kernel keeps of a start; empty if it is gone, or another user's."""
    try:
        found = Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return []
    return found.decode(errors="replace").removesuffix("\0").split("\0")


def _started_at(pid: int) -> float:
    """Return when a process started, in seconds since the epoch."""
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - guardian.start_ticks(pid) / _TICKS
    return time.time() - age_s


_TICKS = os.sysconf("SC_CLK_TCK")
