"""Checks before a process joins a cluster: its data's owner, and settings that all must share.

Processes with the same cluster id form one cluster: later ones are standbys. A process whose
settings contradict the running ones is refused before it starts.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from understudy.cli.launch.compose import (
    check_startable,
    check_storage_dir,
    open_services,
    remove_unused_place,
)
from understudy.cli.launch.shared_storage import check_storage, lives
from understudy.cli.launch.standalone import check_places
from understudy.config import Configuration, options
from understudy.config.option import Option
from understudy.core.backoff import Backoff
from understudy.errors import (
    Conflict,
    DataError,
    ForeignDataError,
    LostDataError,
    StorageError,
    SubmissionError,
    UnderstudyError,
    UsageError,
)
from understudy.ha.register import Register, SelfProving
from understudy.ha.registry import nonce
from understudy.ha.retrieval import RETRY_BACKOFF, serving_leader
from understudy.ha.services import HighAvailabilityServices
from understudy.jobmanager.attention import refuse_lost_registry
from understudy.jobmanager.retention import refuse_used_job_id
from understudy.model import LeaderRecord

T = TypeVar("T")

START_WAY_OUT = (
    "nothing was started; put the latest copy back and start again, or remove all that is left of "
    "the cluster with `understudy destroy`"
)

SILENT_S = 1.0
"""How long a start waits for the register before it logs the wait."""

SHARED: tuple[Option[Any], ...] = (
    options.LEASE_DURATION,
    options.RENEW_DEADLINE,
    options.RETRY_PERIOD,
    options.ORPHAN_TIMEOUT,
    options.ADOPTION_GRACE,
    options.JOB_RESULT_PATH,
    options.APPLICATION_RESULT_PATH,
    options.DELETE_ON_COMMIT,
)
"""Options that must be equal: one member relies on another member's behaviour."""

_log = logging.getLogger(__name__)


def shared_settings(configuration: Configuration) -> dict[str, str]:
    """Return the settings that a leader publishes and joining processes compare."""
    shared = (*_shared(configuration), options.SESSION)
    return {option.key: _said(configuration, option) for option in shared}


def refuse_session(configuration: Configuration) -> None:
    """Raise `UsageError` where a cluster for one application is configured as a session."""
    if configuration.get(options.SESSION):
        raise UsageError(
            f"{options.SESSION.key} is true: a session has no application of its own; start it "
            "with `understudy session start`, and submit with `understudy run`"
        )


def check_startable_here(
    configuration: Configuration, cluster_id: str, *, jobmanagers: int = 1
) -> None:
    """Raise `UsageError` for settings with which a process would fail at its start here.

    ``jobmanagers``: number of JobManagers started with this configuration. A refusal leaves
    nothing in storage: the id of a generated cluster is never used again.
    """
    check_places([configuration] * jobmanagers)
    check_storage_dir(configuration)
    try:
        check_startable(configuration, cluster_id, serves_rest=jobmanagers > 0)
        if not configuration.is_standalone:
            services = open_services(configuration, cluster_id)
            asyncio.run(check_joinable(configuration, services, jobmanager=jobmanagers > 0))
    except BaseException:
        remove_unused_place(configuration, cluster_id)
        raise


def check_first_job_id(configuration: Configuration, cluster_id: str, run_id: str | None) -> None:
    """Raise `UsageError` if the configured id of a new run's first job is taken."""
    job_id = configuration.find(options.FIRST_JOB_ID)
    if job_id is None or configuration.is_standalone:
        return
    services = open_services(configuration, cluster_id)
    try:
        registry = asyncio.run(patiently(configuration, services.registry.read))
        if registry and not registry.applications and run_id not in registry.tombstones:
            asyncio.run(refuse_used_job_id(services, registry, job_id))
    except SubmissionError as error:
        raise UsageError(str(error)) from error
    except DataError:
        return  # The leader reports it and waits for a person.


async def check_joinable(
    configuration: Configuration, services: HighAvailabilityServices, *, jobmanager: bool = True
) -> None:
    """Raise `UsageError` if a process with this configuration cannot join the cluster.

    ``jobmanager``: it is a JobManager, which all are for a session or all for one application.
    """
    try:
        leader = await patiently(configuration, lambda: _prove(services))
    except ForeignDataError as error:
        raise UsageError(str(error)) from error
    except LostDataError as error:
        raise UnderstudyError(f"{error}: {START_WAY_OUT}") from error
    except DataError:
        return  # The leader reports it and waits for a person.
    except (OSError, TimeoutError, StorageError) as error:
        raise UsageError(
            f"the register cannot be used: {str(error) or 'it does not answer'}"
        ) from error
    if leader and await lives(configuration, services, leader):
        _compare(configuration, services.cluster_id, leader)
        if jobmanager:
            _refuse_other_kind(configuration, services.cluster_id, leader)
        await check_storage(configuration, services, leader)


async def _prove(services: HighAvailabilityServices) -> LeaderRecord | None:
    """Raise the register's problem, if any; return the leader."""
    if isinstance(services.backend, SelfProving):
        await services.backend.prove()
    else:
        await prove_register(services.register)
    await refuse_lost_registry(services, None)
    return await serving_leader(services.register)


async def patiently(configuration: Configuration, ask: Callable[[], Awaitable[T]]) -> T:
    """Query a register; retry with backoff as long as its backend says.

    The backend's patience counts from the first failure; then ``TimeoutError`` names the last
    problem. Permission errors are not retried.
    """
    if not (patience_of := configuration.backend.patience):
        return await ask()
    patience, loop = patience_of(configuration), asyncio.get_running_loop()
    backoff, failures = Backoff(RETRY_BACKOFF.first_s, patience.pause_max_s), 0
    bound = f"{patience.bound_s:g} s ({patience.key})"
    problem = "the register does not answer"
    telling = loop.call_later(SILENT_S, _log.warning, "%s: waiting for up to %s", problem, bound)
    give_up_at: float | None = None
    try:
        while True:
            began = loop.time()
            try:
                async with asyncio.timeout_at(give_up_at):
                    return await ask()
            except PermissionError:
                raise
            except OSError as error:
                problem = str(error) or problem
                if give_up_at is None:
                    # A timeout has used its time already; a broken connection has not.
                    since = began if isinstance(error, TimeoutError) else loop.time()
                    give_up_at = since + patience.bound_s
                failures += 1
                spread = random.uniform(0.5, 1)  # noqa: S311 -- jitter, not secrets
                rest_s = backoff.pause_s(failures) * spread
                if loop.time() + rest_s >= give_up_at:
                    raise TimeoutError(f"{problem}; tried for {bound}") from error
                if telling.when() > loop.time() and not telling.cancelled():
                    telling.cancel()
                    _log.warning("%s: trying again for up to %s", problem, bound)
            await asyncio.sleep(rest_s)
    finally:
        telling.cancel()


def _compare(configuration: Configuration, cluster_id: str, leader: LeaderRecord) -> None:
    for option in _shared(configuration):
        theirs = leader.settings.get(option.key)
        if theirs is None:
            continue
        mine = _said(configuration, option)
        if mine != theirs and (
            not mine or not theirs or option.parse(mine) != option.parse(theirs)
        ):
            raise UsageError(
                f"{option.key} is {mine or 'not set'} here, but {theirs or 'not set'} in the "
                f"cluster {cluster_id!r}, which {leader.name} leads (process {leader.pid} on "
                f"{leader.host}): give it that value, or choose another "
                f"{options.CLUSTER_ID.key}"
            )


def _shared(configuration: Configuration) -> tuple[Option[Any], ...]:
    return (*SHARED, *(configuration.backend.lease or ()))


def _refuse_other_kind(configuration: Configuration, cluster_id: str, leader: LeaderRecord) -> None:
    theirs = leader.settings.get(options.SESSION.key)
    if theirs is None or options.SESSION.parse(theirs) == configuration.get(options.SESSION):
        return
    if options.SESSION.parse(theirs):
        raise UsageError(
            f"the cluster {cluster_id!r} is a session, which {leader.name} leads: submit to it "
            f"with `understudy run`, or choose another {options.CLUSTER_ID.key}"
        )
    raise UsageError(
        f"the cluster {cluster_id!r} is there for one application, and {leader.name} leads it: "
        f"choose another {options.CLUSTER_ID.key} for a session"
    )


def _said(configuration: Configuration, option: Option[Any]) -> str:
    return configuration.settings.get(option.key, option.default or "")


async def prove_register(register: Register) -> None:
    """Raise `StorageError` unless a register's compare-and-swap works."""
    key = f"proof-{nonce()}"
    try:
        version = await register.swap(key, b"first", None)
        if not await _refuses(register, key, None):
            raise StorageError("a register entry that exists can be created once more")
        later = await register.swap(key, b"second", version)
        if not await _refuses(register, key, version):
            raise StorageError("a register entry can be replaced over a version that is outdated")
        entry = await register.load(key)
        if entry is None or (entry.value, entry.version) != (b"second", later):
            raise StorageError("a register entry does not hold what was just written")
        if key not in await register.keys("proof-"):
            raise StorageError("a register does not list what was just written")
    except Conflict as error:
        raise StorageError(f"the register refuses what nobody else has written: {error}") from error
    finally:
        await _remove(register, key)
    if await register.load(key) is not None:
        raise StorageError("a register entry is still there after it was deleted")


async def _refuses(register: Register, key: str, expected: str | None) -> bool:
    try:
        await register.swap(key, b"of another", expected)
    except Conflict:
        return True
    return False


async def _remove(register: Register, key: str) -> None:
    try:
        if entry := await register.load(key):
            await register.swap(key, None, entry.version)
    except (Conflict, DataError, OSError, TimeoutError):
        return
