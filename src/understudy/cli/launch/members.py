"""The processes of a standing cluster on one host: start, stop and status.

A request is an order and the answer an account of each process, both JSON: so this host and, over
ssh, another host work alike, and the other host needs no file of this one.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from understudy.cli.launch import background
from understudy.cli.launch.background import Background
from understudy.cli.launch.compose import scratch_base
from understudy.cli.launch.hosts import Member
from understudy.cli.launch.joining import check_startable_here
from understudy.cli.launch.preflight import check_drivers_fit
from understudy.cli.launch.spec import (
    ApplicationSpec,
    check_handed_on,
    guarded,
    new_worker,
    stop_grace_s,
)
from understudy.cli.launch.standalone import check_places
from understudy.config import Configuration, options
from understudy.config.configuration import state_home
from understudy.errors import UnderstudyError, UsageError
from understudy.ha import layout
from understudy.jobmanager.redeployment import NO_CHANGES, Changes
from understudy.process import processes

UP_S = 90.0
"""How long a process may take until it serves; imports take about 1 s on an idle machine."""

KILL_S = 10.0
"""How long a process may take to end after its grace period: its guardian kills it then."""

ROLES = ("jobmanager", "taskmanager")

LOG_LINES = 5
"""Last log lines reported for a process that did not come up."""

TOLD_BYTES_MAX = 4096


class Wanted(msgspec.Struct, frozen=True):
    """A process that an order is about, with its own settings."""

    role: str
    number: int
    settings: tuple[tuple[str, str], ...] = ()
    under: str = ""
    """The host name used at its start, if different from the order's."""


class Order(msgspec.Struct, frozen=True):
    """A request to one host."""

    verb: str
    """``start``, ``stop`` or ``status``."""
    host: str
    """The host's name in conf/masters and conf/workers."""
    cluster_id: str
    settings: dict[str, str]
    members: tuple[Wanted, ...]
    run_id: str | None = None
    application: ApplicationSpec | None = None
    """Only on the host of the command: elsewhere the stores have the application."""
    changes: Changes = NO_CHANGES
    asked: tuple[str, ...] = ()
    """Names (see `name`) of all processes in the files, on any host."""


class Account(msgspec.Struct, frozen=True):
    """The report on one process."""

    host: str
    role: str
    number: int
    state: str
    """``started``, ``runs``, ``stopped``, ``gone`` (has ended), ``missing`` (was never started
    here), ``failed`` or ``unreachable``."""
    pid: int = 0
    incarnation: str = ""
    rest: str = ""
    why: str = ""
    under: str = ""
    """The host name used at its start, if the process is not in the files."""

    def __str__(self) -> str:
        """Return role, number and host."""
        return f"{self.role} {self.number} on {self.host}"


def carry_out(order: Order) -> list[Account]:
    """Carry out an order on this host. Blocks until done, for at most about ``UP_S``."""
    place = _directory(order)
    if order.verb == "status":
        return [_seen(order, one) for one in order.members] + _others(order)
    with background.alone(place):
        if order.verb == "stop":
            with ThreadPoolExecutor(max(1, len(order.members))) as pool:
                return [*pool.map(lambda one: _ended(order, one), order.members)]
        return _start(order)


# --- starting -------------------------------------------------------------------------------------


def _start(order: Order) -> list[Account]:
    """Start the processes that do not run, then wait until they serve."""
    others = _others(order)
    found = {one: _seen(order, one) for one in order.members}
    missing = [one for one, account in found.items() if account.state != "runs"]
    try:
        _check_names(order, missing, others)
        configurations = {one: _checked(order, one) for one in missing}
        taskmanagers = [one for one in order.members if one.role == "taskmanager"]
        for one in taskmanagers[:1]:
            if one in configurations:
                check_drivers_fit(configurations[one], len(taskmanagers))
        jobmanagers = [one for one in missing if one.role == "jobmanager"]
        check_places([configurations[one] for one in jobmanagers])
        for one in missing[:1]:
            check_startable_here(
                configurations[one], order.cluster_id, jobmanagers=int(one.role == "jobmanager")
            )
    except UnderstudyError as error:
        return [
            _account(order, one, "failed", why=str(error)) if one in missing else account
            for one, account in found.items()
        ] + others
    listening = {one: _launch(order, one, configurations[one]) for one in missing}
    with ThreadPoolExecutor(max(1, len(missing))) as pool:
        came = pool.map(lambda one: _up(order, one, *listening[one]), missing)
        told = dict(zip(missing, came, strict=True))
    return [told.get(one, account) for one, account in found.items()] + others


def _check_names(order: Order, missing: list[Wanted], others: list[Account]) -> None:
    """Refuse to start a role that runs already under another name of this host."""
    roles = {one.role for one in missing}
    for one in others:
        if one.role in roles and one.under != order.host:
            raise UsageError(
                f"process {one.pid} is {one.role} {one.number} of this host by another name, "
                f"{one.under}: write that name, or end all with `understudy cluster stop`, with "
                "the same options"
            )


def _checked(order: Order, wanted: Wanted) -> Configuration:
    configuration = Configuration({**order.settings, **dict(wanted.settings)})
    check_handed_on(configuration, order.application)
    return configuration


def _launch(order: Order, wanted: Wanted, configuration: Configuration) -> tuple[int, str]:
    """Start a process; return the pipe for its ready line, and why it was not started."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    is_jobmanager = wanted.role == "jobmanager"
    worker = msgspec.structs.replace(
        new_worker(wanted.role, configuration, order.cluster_id, scratch_base(configuration)),
        run_id=order.run_id,
        application=order.application if is_jobmanager else None,
        changes=order.changes if is_jobmanager else NO_CHANGES,
        ready=writer,
    )
    program, environment = processes.command_of(guarded(worker, orphan_grace_s=0.0))
    about = {"incarnation": worker.incarnation, "name": worker.name}
    record = _record(order, wanted)
    try:
        background.start(
            program,
            record,
            _log(order, wanted),
            environment=environment,
            fds=(writer,),
            about=about,
        )
    except OSError as error:
        return reader, f"it cannot be started: {error}"
    finally:
        os.close(writer)
    return reader, ""


def _up(order: Order, wanted: Wanted, reader: int, why: str) -> Account:
    """Wait until a process serves or has ended; return its account."""
    try:
        told = b"" if why else _read_line(reader)
    finally:
        os.close(reader)
    started = background.recorded(_record(order, wanted))
    if told and started:
        rest = str(msgspec.json.decode(told)["rest"])
        about = {**started.about, "rest": rest}
        with contextlib.suppress(OSError):  # Only for display.
            background.write(_record(order, wanted), msgspec.structs.replace(started, about=about))
        return _account(order, wanted, "started", started, rest=rest)
    if told is None and started:
        return _account(order, wanted, "failed", started, why=f"it did not serve within {UP_S:g} s")
    lines = background.last_lines(_log(order, wanted), LOG_LINES)
    said = why or "it ended at once"
    return _account(order, wanted, "failed", why="\n  ".join([said, *lines]))


def _read_line(reader: int) -> bytes | None:
    """Return the ready line of a process; empty if the process ends first, None on timeout."""
    watch = select.poll()
    watch.register(reader, select.POLLIN)
    return os.read(reader, TOLD_BYTES_MAX) if watch.poll(UP_S * 1000) else None


# --- looking, ending ------------------------------------------------------------------------------


def _seen(order: Order, wanted: Wanted) -> Account:
    found = background.recorded(_record(order, wanted))
    if found is None:
        return _account(order, wanted, "missing")
    return _account(
        order, wanted, "runs" if found.lives else "gone", found, rest=found.about.get("rest", "")
    )


def _others(order: Order) -> list[Account]:
    """Return live processes of the cluster on this host that are not in the files (any more)."""
    found: list[Account] = []
    for record in sorted(_directory(order).glob("*.json")):
        role, _, rest = record.stem.partition("-")
        host, _, number = rest.rpartition("-")
        if record.stem in order.asked or role not in ROLES or not (host and number.isdecimal()):
            continue
        account = _seen(order, Wanted(role, int(number), under=host))
        if account.state == "runs":
            found.append(account)
    return found


def recorded_here(settings: Mapping[str, str], cluster_id: str, host: str) -> Counter[str]:
    """Return the number of processes of each role that were started on this host, by that name."""
    found: Counter[str] = Counter()
    for record in _place(settings, cluster_id).glob("*.json"):
        for role in ROLES:
            number = record.stem.removeprefix(f"{role}-{host}-")
            if number != record.stem and number.isdecimal():
                found[role] = max(found[role], int(number))
    return found


def unasked(accounts: Iterable[Account]) -> list[Account]:
    """Return processes not in the files, once each: a host may answer under two names."""
    found = {one.incarnation or str(one): one for one in reversed([*accounts]) if one.under}
    return [*reversed(found.values())]


def _ended(order: Order, wanted: Wanted) -> Account:
    record = _record(order, wanted)
    found = background.recorded(record)
    if found is None:
        return _account(order, wanted, "missing")
    lived = found.lives
    end_s = stop_grace_s(wanted.role, order.settings) + KILL_S
    if not background.end(found, end_s):
        return _account(order, wanted, "failed", found, why=f"it did not end within {end_s:g} s")
    record.unlink(missing_ok=True)
    return _account(order, wanted, "stopped" if lived else "gone", found)


def _account(
    order: Order,
    wanted: Wanted,
    state: str,
    found: Background | None = None,
    *,
    rest: str = "",
    why: str = "",
) -> Account:
    pid = found.pid if found else 0
    incarnation = found.about.get("incarnation", "") if found else ""
    role, number, under = wanted.role, wanted.number, wanted.under
    if under and not why:
        why = f"masters and workers do not ask for {role} {number} on {under}"
    return Account(order.host, role, number, state, pid, incarnation, rest, why, under)


def _directory(order: Order) -> Path:
    return _place(order.settings, order.cluster_id)


def _place(settings: Mapping[str, str], cluster_id: str) -> Path:
    """Return the directory of a cluster's records."""
    configured = Configuration(dict(settings)).find(options.PID_DIR)
    base = Path(configured) if configured else state_home() / "pids"
    return base / layout.cluster_directory(cluster_id)


def name(host: str, role: str, number: int) -> str:
    """Return the base name of a process's files, unique as hosts may share a directory."""
    return f"{role}-{host}-{number}"


def _name(order: Order, wanted: Wanted) -> str:
    return name(wanted.under or order.host, wanted.role, wanted.number)


def _record(order: Order, wanted: Wanted) -> Path:
    return _directory(order) / f"{_name(order, wanted)}.json"


def _log(order: Order, wanted: Wanted) -> Path:
    """Return the path of a process's log, apart from applications' logs, which are pruned."""
    cluster = layout.cluster_directory(order.cluster_id)
    base = Configuration(order.settings).log_dir / "processes"
    return base / f"{cluster}-{_name(order, wanted)}.log"


def wanted_of(
    members: Sequence[Member], settings: Mapping[Member, Mapping[str, str]]
) -> tuple[Wanted, ...]:
    """Return members in an order's form, each with its own settings."""
    return tuple(
        Wanted(one.role, one.number, tuple(settings.get(one, {}).items())) for one in members
    )
