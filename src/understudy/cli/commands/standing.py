"""Clusters that stand on their own, on one host or many: what their commands share.

conf/masters and conf/workers list the hosts. Each process runs in the background on its host, and
nothing here watches it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from msgspec.structs import asdict
from rich.table import Column, Table

from understudy.api.client import ClusterClient
from understudy.api.views import Json as JsonObject
from understudy.cli.commands.ask import console, with_client
from understudy.cli.commands.common import DEFAULT_CLUSTER_ID, cluster_id_of, configured
from understudy.cli.launch.compose import open_services
from understudy.cli.launch.hosts import (
    MASTERS,
    WORKERS,
    Member,
    is_this_host,
    reachable_as,
    read_masters,
    read_workers,
    shown_as,
)
from understudy.cli.launch.members import Account, Order, Wanted, name, unasked, wanted_of
from understudy.cli.launch.reaching import give
from understudy.cli.launch.spec import ApplicationSpec
from understudy.clock import SystemClock
from understudy.config import Configuration, backends, options
from understudy.config.backends import Serves
from understudy.config.security import is_loopback
from understudy.core.lease import Timing
from understudy.errors import DataError, NoLeaderError, UnderstudyError, UsageError
from understudy.ha import layout
from understudy.ha.retrieval import retrieve, serving_leader
from understudy.ha.storage import LocalStorage, open_storage
from understudy.jobmanager.redeployment import NO_CHANGES, Changes
from understudy.model import LeaderRecord
from understudy.process.reporter import printable_lines

LEADS_S = 30.0
"""How long the start waits for the first JobManager to lead before it starts the others."""

FAILED = ("failed", "unreachable")

BESIDE = Path("conf")
"""Usual directory of the files, read only if ``--config-dir`` names it."""


@dataclass(frozen=True)
class StandingCluster:
    """A standing cluster as its configuration and files describe it."""

    configuration: Configuration
    cluster_id: str
    overrides: tuple[str, ...]
    masters: list[Member]
    workers: list[Member]

    @property
    def others(self) -> list[str]:
        """Return the cluster's hosts other than this one."""
        hosts = dict.fromkeys(one.host for one in (*self.masters, *self.workers))
        return [host for host in hosts if not is_this_host(host)]

    @property
    def asked(self) -> tuple[str, ...]:
        """Return the processes in the files, by the names of their records."""
        members = (*self.masters, *self.workers)
        return tuple(name(one.host, one.role, one.number) for one in members)


def described(
    config_dir: Path | None, overrides: list[str] | None, unnamed: str = DEFAULT_CLUSTER_ID
) -> StandingCluster:
    """Return a cluster as its configuration and files describe it; ``unnamed``: its default id."""
    configuration = configured(config_dir, overrides)
    cluster_id = cluster_id_of(configuration) or unnamed
    layout.cluster_directory(cluster_id)
    beside = [one for one in (BESIDE / MASTERS, BESIDE / WORKERS) if one.is_file()]
    if config_dir is None and beside:
        typer.echo(
            f"understudy: {beside[0]} is not read without `--config-dir {BESIDE}` (or "
            f"UNDERSTUDY_CONF_DIR={BESIDE})",
            err=True,
        )
    masters, workers = read_masters(config_dir), read_workers(config_dir)
    return StandingCluster(configuration, cluster_id, tuple(overrides or ()), masters, workers)


def check_hosts(standing: StandingCluster) -> None:
    """Refuse hosts that cannot form one cluster; warn if their storage must be shared."""
    configuration, masters = standing.configuration, standing.masters
    if configuration.is_standalone and len(masters) > 1:
        raise UsageError(
            f"the masters file asks for {len(masters)} JobManagers: with {options.HA_TYPE.key} "
            "NONE there is one; choose another type for standbys"
        )
    others = standing.others
    if not others:
        return
    kind = configuration.get(options.HA_TYPE)
    if configuration.backend.serves is not Serves.HOSTS:
        raise UsageError(
            f"masters and workers name another host, {others[0]}, and {options.HA_TYPE.key} is "
            f"{kind}, which serves {configuration.backend.serves.value}: use {_ways_out()}"
        )
    local = [one.host for one in masters if is_loopback(one.host)]
    if local:
        raise UsageError(
            f"the masters file names {local[0]} together with other hosts ({others[0]}), which "
            "could not reach it by that name: write what this host is called by others"
        )
    if isinstance(open_storage(configuration.storage_dir), LocalStorage):
        typer.echo(
            f"understudy: {options.STORAGE_DIR.key} is {configuration.storage_dir}: this must be "
            "one shared directory, mounted on each host",
            err=True,
        )


def _ways_out() -> str:
    """Return the types that serve several hosts, as options."""
    return ", or ".join(
        " ".join(f"-D {key}={text}" for key, text in {options.HA_TYPE.key: name, **needed}.items())
        for name, needed in backends.examples()
    )


@dataclass(frozen=True)
class StartOrder:
    """What all JobManagers of a cluster start for: a run, or in a session nothing yet."""

    standing: StandingCluster
    run_id: str | None = None
    spec: ApplicationSpec | None = None
    changes: Changes = NO_CHANGES

    def start(self, members: list[Member]) -> list[Account]:
        """Start processes on all hosts at once."""
        orders = [
            Order(
                "start",
                host,
                self.standing.cluster_id,
                _handed_over(self.standing),
                wanted_of(theirs, {one: self._settings(one) for one in theirs}),
                self.run_id,
                self.spec if is_this_host(host) else None,
                self.changes,
                self.standing.asked,
            )
            for host, theirs in _by_host(members).items()
        ]
        return give(self.standing.configuration, orders)

    def _settings(self, member: Member) -> dict[str, str]:
        host = None if is_loopback(member.host) else member.host
        overrides = self.standing.overrides
        if member.role == "jobmanager":
            return reachable_as(host, member.port, [*overrides, *self._bound()])
        return shown_as(host, self.standing.configuration, overrides)

    def _bound(self) -> list[str]:
        """Return the keys of configured bind addresses, except loopback addresses.

        Loopback cannot serve other hosts, but Flink's default config.yaml sets it.
        """
        settings = self.standing.configuration.settings
        keys = (options.BIND_HOST.key, options.REST_BIND_ADDRESS.key)
        return [key for key in keys if key in settings and not is_loopback(settings[key])]


def _handed_over(standing: StandingCluster) -> dict[str, str]:
    """Return the settings for all processes on all hosts.

    Defaults that depend on the host or user are pinned to their values here.
    """
    return {
        **standing.configuration.settings,
        options.CLUSTER_ID.key: standing.cluster_id,
        options.STORAGE_DIR.key: standing.configuration.storage_dir,
    }


def bring_up(start: StartOrder, first: Member, command: str) -> list[Account]:
    """Start the missing processes, one JobManager before all others, and print each.

    The others then find the leader's storage, and the application that it brings. ``command``: what
    ends them all. Raises `UnderstudyError` if some do not run.
    """
    standing = start.standing
    accounts = start.start([first])
    told = tell(asked(accounts))
    if told[0].state in FAILED:
        raise UnderstudyError("the first JobManager does not run, so no other process was started")
    if not asyncio.run(_somebody_leads(standing)):
        typer.echo(f"understudy: nobody leads yet, after {LEADS_S:g} s; see its log", err=True)
    accounts += start.start([one for one in standing.masters if one != first] + standing.workers)
    told += tell(asked(accounts)[len(told) :])
    tell(unasked(accounts))
    failed = [one for one in told if one.state in FAILED]
    if failed:
        raise UnderstudyError(
            f"{len(failed)} of {len(told)} processes do not run; the others do. The same command "
            f"starts what is missing; `{command}`, with the same options, ends all"
        )
    return told


async def _somebody_leads(standing: StandingCluster) -> bool:
    """Wait up to ``LEADS_S`` for a serving leader; return whether there is one."""
    services = open_services(standing.configuration, standing.cluster_id)
    lease_s = Timing.of(standing.configuration).lease_s
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LEADS_S):
            async for leader in retrieve(services.register, SystemClock(), lease_s):
                if leader:
                    return True
    return False


def tell(accounts: list[Account]) -> list[Account]:
    """Print the outcome for each process, failures on stderr; return the accounts."""
    words = {
        "started": "is started",
        "runs": "runs already",
        "stopped": "is stopped",
        "gone": "did not run any more",
        "missing": "was not started",
    }
    for one in accounts:
        where = f" (process {one.pid})" if one.pid else ""
        what = words.get(one.state) or f"{one.state}: {one.why}"
        rest = f", {one.rest}" if one.rest else ""
        why = f"; {one.why}" if one.why and one.state in words else ""
        line = printable_lines(f"{one.host}: {one.role} {one.number}{where} {what}{rest}{why}")
        typer.echo(line, err=one.state in FAILED or (bool(why) and one.state == "runs"))
    return accounts


def status_of(standing: StandingCluster) -> list[Account]:
    """Return the processes in the files, then other live processes of the cluster there."""
    found = ask_hosts(standing, "status", [*standing.masters, *standing.workers])
    return asked(found) + unasked(found)


async def leader_of(standing: StandingCluster) -> LeaderRecord | None:
    """Return the leader; None if there is none or the register does not answer."""
    if standing.configuration.is_standalone:
        return None
    try:
        services = open_services(standing.configuration, standing.cluster_id)
        return await serving_leader(services.register)
    except (OSError, TimeoutError, DataError):
        return None


def end_all(standing: StandingCluster) -> None:
    """Stop all processes on all hosts, and print each. Raises `UnderstudyError` if some may run.

    Standbys first, so that none takes over. TaskManagers last: without a leader, the end of their
    drivers does not count as a job failure.
    """
    found = status_of(standing)
    leader = asyncio.run(leader_of(standing))
    jobmanagers = [one for one in found if one.role == "jobmanager"]
    last = [one for one in jobmanagers if leader and one.incarnation == leader.holder]
    standbys = [one for one in jobmanagers if one not in last]
    told: list[Account] = []
    for some in (standbys, last, [one for one in found if one not in jobmanagers]):
        told += tell(ask_hosts(standing, "stop", some))
    failed = [one for one in told if one.state in FAILED]
    if failed:
        hosts = ", ".join(dict.fromkeys(one.host for one in failed))
        raise UnderstudyError(
            f"{len(failed)} of {len(told)} processes may still run, on {hosts}; the data is kept"
        )


def rows_of(
    standing: StandingCluster, found: list[Account], leader: LeaderRecord | None
) -> list[JsonObject]:
    """Return the processes as the status shows them."""
    slots = _slots(standing) if leader else {}
    return [_row(one, leader, slots) for one in found]


def _row(account: Account, leader: LeaderRecord | None, slots: dict[str, str]) -> JsonObject:
    is_jobmanager = account.role == "jobmanager"
    leads = bool(leader and account.incarnation == leader.holder and account.state == "runs")
    return {
        **asdict(account),
        "leads": leads if is_jobmanager else None,
        "slots": None if is_jobmanager else slots.get(account.incarnation),
    }


async def last_run(standing: StandingCluster) -> str:
    """Return how the last run ended; empty if a run is unfinished, or nothing is known."""
    if standing.configuration.is_standalone:
        return ""
    try:
        services = open_services(standing.configuration, standing.cluster_id)
        registry = await services.registry.read()
    except (OSError, TimeoutError, DataError):
        return ""
    if registry is None or registry.applications:
        return ""
    stones = sorted(registry.tombstones.values(), key=lambda stone: stone.ended_at)
    return f"run {stones[-1].run_id} has ended, {stones[-1].status.value}" if stones else ""


def leader_json(leader: LeaderRecord | None) -> JsonObject | None:
    """Return a leader for ``--json``."""
    return {"id": leader.name, "term": leader.term, "rest": leader.rest} if leader else None


def print_rows(rows: list[JsonObject], leader: LeaderRecord | None, over: str) -> None:
    """Print a table of processes, and who leads; ``over``: how the last run ended, if it did."""
    names = ("host", "process", "pid", "state", "REST", "busy slots")
    table = Table(*(Column(name, overflow="fold") for name in names), box=None)
    for one in rows:
        table.add_row(
            one["host"],
            f"{one['role']} {one['number']}",
            str(one["pid"] or ""),
            _state(one, over),
            one["rest"],
            one["slots"] or "",
        )
    console().print(table)
    for one in rows:
        if one["why"]:
            typer.echo(printable_lines(f"{one['host']}: {one['why']}"))
    if leader:
        typer.echo(f"{leader.name} leads, term {leader.term}: {leader.rest}")
    elif over:
        typer.echo(f"nobody leads: {over}, and its JobManagers have ended with it")
    else:
        typer.echo("nobody leads")


def _state(row: JsonObject, over: str) -> str:
    if row["leads"]:
        return "leads"
    if over and row["state"] == "missing":
        return "has ended"
    return str(row["state"])


def _slots(standing: StandingCluster) -> dict[str, str]:
    """Return the busy slots of each TaskManager by incarnation, as the leader reports them."""

    async def ask(client: ClusterClient) -> JsonObject:
        return await client.get("/taskmanagers")

    try:
        answer: Any = asyncio.run(with_client(standing.configuration, standing.cluster_id, ask))
    except (NoLeaderError, UnderstudyError, OSError, TimeoutError):
        return {}
    return {
        one["incarnation"]: f"{one['slotsNumber'] - one['freeSlots']} of {one['slotsNumber']}"
        for one in answer["taskmanagers"]
    }


def asked(accounts: list[Account]) -> list[Account]:
    """Return the accounts of processes in the files."""
    return [one for one in accounts if not one.under]


def ask_hosts(
    standing: StandingCluster, verb: str, members: Sequence[Member | Account]
) -> list[Account]:
    """Give one order about these processes to all their hosts; return the accounts."""
    hosts: dict[str, list[Wanted]] = {}
    for one in members:
        under = one.under if isinstance(one, Account) else ""
        hosts.setdefault(one.host, []).append(Wanted(one.role, one.number, under=under))
    handed, asked = _handed_over(standing), standing.asked
    orders = [
        Order(verb, host, standing.cluster_id, handed, tuple(theirs), asked=asked)
        for host, theirs in hosts.items()
    ]
    return give(standing.configuration, orders)


def _by_host(members: Iterable[Member]) -> dict[str, list[Member]]:
    found: dict[str, list[Member]] = {}
    for one in members:
        found.setdefault(one.host, []).append(one)
    return found
