"""Opening and checking a cluster's stores, for workers and commands alike."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from pathlib import Path

from understudy.cli.launch.securing import check_secured, standalone_rpc
from understudy.config import Configuration, options
from understudy.core.checkpoints import Retention
from understudy.errors import (
    ConfigurationError,
    DataError,
    ForeignDataError,
    StorageError,
    UsageError,
)
from understudy.ha import layout, own_directory
from understudy.ha.backends import open_register
from understudy.ha.backends.embedded import EmbeddedRegister
from understudy.ha.coordination import Coordination, refuse_others
from understudy.ha.register import Register, Releasable
from understudy.ha.retrieval import ConfiguredLeader
from understudy.ha.services import REGISTER_DEADLINE_S, HighAvailabilityServices, Locations
from understudy.ha.storage import LocalStorage, Storage, is_elsewhere, open_storage, prove
from understudy.model import ApplicationStatus
from understudy.process.liveness_lock import LivenessLocks
from understudy.rpc.addresses import bracketed

_PROOF = ".understudy"
"""Subdirectory for the short write test in a user's directory."""

EXIT_CODES = {
    ApplicationStatus.FINISHED: 0,
    ApplicationStatus.FAILED: 1,
    ApplicationStatus.CANCELED: 3,
}


def directory_of(configuration: Configuration, cluster_id: str) -> str:
    """Return the cluster's directory in storage; raises `ConfigurationError` for a bad id."""
    cluster = layout.cluster_directory(cluster_id)
    return layout.standalone_directory(cluster) if configuration.is_standalone else cluster


def standalone_rest(configuration: Configuration) -> str:
    """Return the REST URL of the only JobManager."""
    scheme = "https" if configuration.get(options.REST_SSL) else "http"
    host = bracketed(configuration.get(options.REST_ADDRESS))
    return f"{scheme}://{host}:{configuration.get(options.REST_PORT)}"


def check_startable(
    configuration: Configuration, cluster_id: str, *, serves_rest: bool = True
) -> None:
    """Raise `UsageError` for settings with which every process would fail at its start."""
    check_secured(configuration, cluster_id, serves_rest=serves_rest)
    check_checkpoints_dir(configuration)
    prove_places(configuration)
    try:
        scratch_base(configuration)
    except OSError as error:
        raise UsageError(f"{options.TMP_DIRS.key} cannot be used: {error}") from error
    services = open_services(configuration, cluster_id, as_jobmanager=True)
    asyncio.run(_check_coordination(services))
    try:
        prove_storage(configuration, services)
    except (OSError, StorageError) as error:
        raise UsageError(f"{options.STORAGE_DIR.key} cannot be used: {error}") from error
    try:
        prove_locks(configuration, cluster_id)
    except StorageError as error:
        option = options.STORAGE_DIR if locks_in_storage(configuration) else options.TMP_DIRS
        raise UsageError(f"{option.key} cannot be used: {error}") from error


def check_storage_dir(configuration: Configuration) -> None:
    """Raise `UsageError` for a local storage directory that is no directory."""
    storage = open_storage(configuration.storage_dir)
    if isinstance(storage, LocalStorage) and storage.root.exists() and not storage.root.is_dir():
        raise UsageError(
            f"{options.STORAGE_DIR.key} cannot be used: {storage.root}: is no directory"
        )


async def _check_coordination(services: HighAvailabilityServices) -> None:
    """Raise `UsageError` if the cluster's data in storage belongs to another register."""
    cluster = services.locations.cluster
    try:
        await refuse_others(services.storage, cluster, services.coordination)
    except ForeignDataError as error:
        with contextlib.suppress(DataError):
            if await services.registry.read() is None:  # Otherwise it is ours after all.
                raise UsageError(str(error)) from error
    except (OSError, TimeoutError):
        return  # The storage check reports it.


def prove_places(configuration: Configuration) -> None:
    """Raise `UsageError` for a result URL that cannot be written."""
    for option in (options.JOB_RESULT_PATH, options.APPLICATION_RESULT_PATH):
        url: str | None = configuration.find(option)
        if url is None or "://" not in url:
            continue
        _prove_place(option.key, url)


def check_checkpoints_dir(configuration: Configuration) -> None:
    """Raise `UsageError` for a checkpoint directory that is unusable, or needed and not set."""
    key, retention = options.CHECKPOINTS_DIR.key, configuration.get(options.EXTERNALIZED)
    directory = configuration.find(options.CHECKPOINTS_DIR)
    if not directory:
        if retention != Retention.NO_EXTERNALIZED_CHECKPOINTS.value:
            raise UsageError(
                f"{options.EXTERNALIZED.key} is {retention}, but what lies in the storage goes "
                f"with the application: say in {key} where checkpoints are to stay"
            )
        return
    if not is_elsewhere(directory):
        raise UsageError(
            f"{key} is {directory!r}: give an absolute path or a URL, which means the same to "
            "every process"
        )
    _prove_place(key, directory)


def _prove_place(key: str, place: str) -> None:
    try:
        storage = open_storage(place)
        prove(storage, _PROOF)
        storage.prune(_PROOF)
    except (OSError, StorageError, ConfigurationError) as error:
        raise UsageError(f"{key} cannot be used: {error}") from error


def prove_locks(configuration: Configuration, cluster_id: str) -> None:
    """Raise `StorageError` unless locks work in the directory of the liveness locks."""
    directory = locks_directory(configuration, cluster_id)
    if directory is None:
        return
    try:
        LivenessLocks(directory).prove()
    except OSError as error:
        raise StorageError(f"{directory}: no lock can be made there: {error}") from error


def prove_storage(configuration: Configuration, services: HighAvailabilityServices) -> None:
    """Raise `StorageError` unless the storage keeps its promises; leave nothing behind.

    The check writes to the locks' directory; with locks in storage, the last lock removes it.
    """
    storage, cluster = services.storage.blocking, services.locations.cluster
    prove(storage, f"{cluster}/{layout.LOCKS}")
    if not locks_in_storage(configuration):
        storage.prune(f"{cluster}/{layout.LOCKS}")


def remove_unused_place(configuration: Configuration, cluster_id: str) -> None:
    """Remove the directories that the checks of a start have made, as far as they are empty."""
    cluster = directory_of(configuration, cluster_id)
    with contextlib.suppress(OSError, StorageError, ConfigurationError):
        storage = open_storage(configuration.storage_dir)
        for directory in (layout.LOCKS, layout.REGISTER):
            storage.prune(f"{cluster}/{directory}")


def locks_in_storage(configuration: Configuration) -> bool:
    """Return whether the liveness locks lie in storage: with a backend for a single host."""
    return configuration.is_standalone or register_in_storage(configuration)


def register_in_storage(configuration: Configuration) -> bool:
    """Return whether the register lies in storage."""
    return configuration.backend.in_storage


def open_services(
    configuration: Configuration, cluster_id: str, *, as_jobmanager: bool = False
) -> HighAvailabilityServices:
    """Open the stores of a cluster; without high availability, only its JobManager has them."""
    cluster = directory_of(configuration, cluster_id)
    settings = {**configuration.settings, options.STORAGE_DIR.key: configuration.storage_dir}
    register: Register
    target = None if as_jobmanager else configuration.find(options.TARGET)
    if target:
        register = ConfiguredLeader("", target[0])
    elif not configuration.is_standalone:
        register = _opened(configuration.get(options.HA_TYPE), cluster, settings)
    elif as_jobmanager:
        register = EmbeddedRegister()
    else:
        register = ConfiguredLeader(standalone_rpc(configuration), standalone_rest(configuration))
    jobs = configuration.find(options.JOB_RESULT_PATH)
    applications = configuration.find(options.APPLICATION_RESULT_PATH)
    usual_jobs, usual_applications = layout.result_directories(cluster)
    locations = Locations(cluster, jobs or usual_jobs, applications or usual_applications)
    storage = Storage(open_storage(configuration.storage_dir))
    deadline_s = REGISTER_DEADLINE_S
    if patience := configuration.backend.patience:
        # A request without a connection waits for one, and its error says more than a timeout.
        deadline_s += patience(configuration).bound_s
    coordination = coordination_of(configuration, cluster)
    return HighAvailabilityServices(
        register, storage, cluster_id, locations, deadline_s, coordination
    )


def coordination_of(configuration: Configuration, cluster: str) -> Coordination | None:
    """Return the register's identity for storage, without secrets."""
    if configuration.is_standalone:
        return None
    kind = configuration.get(options.HA_TYPE)
    kind = kind if ":" in kind else kind.lower()
    if not (place_of := configuration.backend.place):
        return Coordination(kind, cluster)
    place = place_of(configuration)
    return Coordination(kind, cluster, place.servers, place.path)


_registers: dict[tuple[str, frozenset[tuple[str, str]]], Register] = {}
"""Registers that hold a session: a command's queries share one."""


def _opened(kind: str, cluster: str, settings: dict[str, str]) -> Register:
    which = (cluster, frozenset(settings.items()))
    if which not in _registers:
        register = open_register(kind, cluster, settings)
        if not isinstance(register, Releasable):
            return register
        _registers[which] = register
    return _registers[which]


def release_registers() -> None:
    """Release all registers: this process is about to exec another program."""
    for register in _registers.values():
        if isinstance(register, Releasable):
            register.release()
    _registers.clear()


def scratch_base(configuration: Configuration) -> str:
    """Create and return this host's base directory for drivers' scratch data.

    Raises `ConfigurationError` if the directory belongs to another user.
    """
    return str(own_directory.make(_scratch_base(configuration)))


def _scratch_base(configuration: Configuration) -> Path:
    base: str | None = configuration.find(options.TMP_DIRS)
    return Path(base or tempfile.gettempdir()) / f"understudy-{os.getuid()}"


def locks_directory(configuration: Configuration, cluster_id: str) -> Path | None:
    """Return the directory of this process's liveness lock; None without locks."""
    found = locks_directories(configuration, cluster_id)
    return found[0] if found else None


def locks_directories(configuration: Configuration, cluster_id: str) -> list[Path]:
    """Return the directories of this host's liveness locks; empty without locks.

    A lock is valid only among the processes of one host. With a backend for several hosts, storage
    may be a shared file system that grants the same lock to each host, so the locks lie on the
    host, in a directory named after cluster and storage: cluster ids may repeat.

    This process uses the first directory; the others belong to processes started with another
    environment. Scratch data never goes into ``$XDG_RUNTIME_DIR``, a small file system in memory.
    """
    cluster = directory_of(configuration, cluster_id)
    storage = open_storage(configuration.storage_dir)
    if locks_in_storage(configuration):
        if isinstance(storage, LocalStorage):
            return [Path(storage.root.absolute() / layout.lock_path(cluster, ""))]
        return []
    base, marked = _scratch_base(configuration), layout.marked(cluster, storage.url)
    chosen = configuration.find(options.TMP_DIRS)  # The same for each process.
    homes = [base] if chosen else own_directory.known_homes(base)
    return [home / layout.lock_path(marked, "") for home in homes]


def every_locks_directory(configuration: Configuration, cluster_id: str) -> list[Path]:
    """Return all directories that may hold locks of a cluster, for every HA type."""
    cluster = directory_of(configuration, cluster_id)
    storage, base = open_storage(configuration.storage_dir), _scratch_base(configuration)
    found = locks_directories(configuration, cluster_id)
    if isinstance(storage, LocalStorage):
        found.append(Path(storage.root.absolute() / layout.lock_path(cluster, "")))
    marked = layout.marked(cluster, storage.url)
    found += [home / layout.lock_path(marked, "") for home in own_directory.known_homes(base)]
    return [*dict.fromkeys(found)]


def make_locks_directory(configuration: Configuration, cluster_id: str) -> Path | None:
    """Create and return the directory of this process's lock, accessible to our user only.

    Raises `ConfigurationError` if the directory belongs to another user.
    """
    directory = locks_directory(configuration, cluster_id)
    if directory is None or locks_in_storage(configuration):
        return directory
    home = directory.parent.parent
    if not configuration.find(options.TMP_DIRS):
        own_directory.note_home(_scratch_base(configuration), home)
    return own_directory.make(directory, levels=3)
