"""What workers and commands open alike: the stores of a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from pathlib import Path

from understudy.cli.launch.securing import check_secured, standalone_rpc
from understudy.config import Configuration, options, zookeeper
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
from understudy.ha.services import REGISTER_DEADLINE_S, HighAvailabilityServices, Locations
from understudy.ha.standalone import ConfiguredLeader
from understudy.ha.storage import LocalStorage, Storage, is_elsewhere, open_storage, prove
from understudy.model import ApplicationStatus
from understudy.process.liveness_lock import LivenessLocks
from understudy.rpc.addresses import bracketed

FILESYSTEM = "filesystem"

_PROOF = ".understudy"
"""Below it, for a moment, lies what is tried out in a directory of a person's."""

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
    """Return where clients reach the one JobManager."""
    scheme = "https" if configuration.get(options.REST_SSL) else "http"
    host = bracketed(configuration.get(options.REST_ADDRESS))
    return f"{scheme}://{host}:{configuration.get(options.REST_PORT)}"


def check_startable(
    configuration: Configuration, cluster_id: str, *, serves_rest: bool = True
) -> None:
    """Raise `UsageError` for what would make each process of the cluster fail at its start."""
    check_secured(configuration, cluster_id, serves_rest=serves_rest)
    check_checkpoints_dir(configuration)
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
    prove_places(configuration)


async def _check_coordination(services: HighAvailabilityServices) -> None:
    """Raise `UsageError` where storage says that the cluster's data is another register's."""
    cluster = services.locations.cluster
    try:
        await refuse_others(services.storage, cluster, services.coordination)
    except ForeignDataError as error:
        with contextlib.suppress(DataError):
            if await services.registry.read() is None:  # Else it is this one's all the same.
                raise UsageError(str(error)) from error
    except (OSError, TimeoutError):
        return  # What proves the storage says so.


def prove_places(configuration: Configuration) -> None:
    """Raise `UsageError` for a URL besides the storage's that cannot be written to."""
    for option in (options.JOB_RESULT_PATH, options.APPLICATION_RESULT_PATH):
        url: str | None = configuration.find(option)
        if url is None or "://" not in url:
            continue
        _prove_place(option.key, url)


def check_checkpoints_dir(configuration: Configuration) -> None:
    """Raise `UsageError` for a directory of checkpoints that cannot be used, or that is missing."""
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
    """Raise `StorageError` unless liveness locks hold where those of this host's processes lie."""
    directory = locks_directory(configuration, cluster_id)
    if directory is None:
        return
    try:
        LivenessLocks(directory).prove()
    except OSError as error:
        raise StorageError(f"{directory}: no lock can be made there: {error}") from error


def prove_storage(configuration: Configuration, services: HighAvailabilityServices) -> None:
    """Raise `StorageError` unless the storage keeps what the stores rely on; leave nothing there.

    Where the locks are in storage it is tried among them: their directory goes with the last one.
    """
    storage, cluster = services.storage.blocking, services.locations.cluster
    prove(storage, f"{cluster}/{layout.LOCKS}")
    if not locks_in_storage(configuration):
        storage.prune(f"{cluster}/{layout.LOCKS}")


def locks_in_storage(configuration: Configuration) -> bool:
    """Say whether the liveness locks lie in storage: where it is one host's own, by the backend."""
    return configuration.is_standalone or register_in_storage(configuration)


def register_in_storage(configuration: Configuration) -> bool:
    """Say whether the register lies in storage: who has the one has the other."""
    return configuration.get(options.HA_TYPE).lower() == FILESYSTEM


def open_services(
    configuration: Configuration, cluster_id: str, *, as_jobmanager: bool = False
) -> HighAvailabilityServices:
    """Open the stores of a cluster; without high availability only its JobManager has them."""
    cluster = directory_of(configuration, cluster_id)
    settings = {**configuration.settings, options.STORAGE_DIR.key: configuration.storage_dir}
    register: Register
    if not configuration.is_standalone:
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
    if zookeeper.is_chosen(configuration):
        # A request that finds no connection waits for one, and tells more than a timeout does.
        deadline_s += configuration.get(options.ZK_CONNECTION_TIMEOUT)
    coordination = coordination_of(configuration, cluster)
    return HighAvailabilityServices(
        register, storage, cluster_id, locations, deadline_s, coordination
    )


def coordination_of(configuration: Configuration, cluster: str) -> Coordination | None:
    """Return what the register is called in storage: no secrets are part of it."""
    if configuration.is_standalone:
        return None
    kind = configuration.get(options.HA_TYPE)
    kind = kind if ":" in kind else kind.lower()
    if not zookeeper.is_chosen(configuration):
        return Coordination(kind, cluster)
    servers = (f"{bracketed(host)}:{port}" for host, port in configuration.get(options.ZK_QUORUM))
    return Coordination(kind, cluster, tuple(sorted(servers)), configuration.get(options.ZK_ROOT))


_registers: dict[tuple[str, frozenset[tuple[str, str]]], Register] = {}
"""Those that hold a session: a command that asks several times has one."""


def _opened(kind: str, cluster: str, settings: dict[str, str]) -> Register:
    which = (cluster, frozenset(settings.items()))
    if which not in _registers:
        register = open_register(kind, cluster, settings)
        if not isinstance(register, Releasable):
            return register
        _registers[which] = register
    return _registers[which]


def release_registers() -> None:
    """Give up what this process holds in a backend: it is about to become another program."""
    for register in _registers.values():
        if isinstance(register, Releasable):
            register.release()
    _registers.clear()


def scratch_base(configuration: Configuration) -> str:
    """Return below which directory of this host drivers keep scratch data, and make it.

    Raises `ConfigurationError` where somebody else has made it.
    """
    return str(own_directory.make(_scratch_base(configuration)))


def _scratch_base(configuration: Configuration) -> Path:
    base: str | None = configuration.find(options.TMP_DIRS)
    return Path(base or tempfile.gettempdir()) / f"understudy-{os.getuid()}"


def locks_directory(configuration: Configuration, cluster_id: str) -> Path | None:
    """Return where this process makes liveness locks; None where there are none."""
    found = locks_directories(configuration, cluster_id)
    return found[0] if found else None


def locks_directories(configuration: Configuration, cluster_id: str) -> list[Path]:
    """Return where the liveness locks of this host's processes lie, none where they have none.

    A lock means something among the processes of one host only. With a backend for several hosts
    storage may be a file system that they share, and that grants the same lock to each of them.
    There the clusters of one host are told apart by their storage as well: ids may come again.

    The first is where this process makes its own; the others are where processes have theirs that
    were started with another environment. Scratch data never goes into ``$XDG_RUNTIME_DIR``, which
    is a small file system in memory.
    """
    cluster = directory_of(configuration, cluster_id)
    storage = open_storage(configuration.storage_dir)
    if locks_in_storage(configuration):
        if isinstance(storage, LocalStorage):
            return [Path(storage.root.absolute() / layout.lock_path(cluster, ""))]
        return []
    base, marked = _scratch_base(configuration), layout.marked(cluster, storage.url)
    chosen = configuration.find(options.TMP_DIRS)  # By a person, and the same for each process.
    homes = [base] if chosen else own_directory.known_homes(base)
    return [home / layout.lock_path(marked, "") for home in homes]


def every_locks_directory(configuration: Configuration, cluster_id: str) -> list[Path]:
    """Return where processes of a cluster may have locks, whatever type they were started with."""
    cluster = directory_of(configuration, cluster_id)
    storage, base = open_storage(configuration.storage_dir), _scratch_base(configuration)
    found = locks_directories(configuration, cluster_id)
    if isinstance(storage, LocalStorage):
        found.append(Path(storage.root.absolute() / layout.lock_path(cluster, "")))
    marked = layout.marked(cluster, storage.url)
    found += [home / layout.lock_path(marked, "") for home in own_directory.known_homes(base)]
    return [*dict.fromkeys(found)]


def make_locks_directory(configuration: Configuration, cluster_id: str) -> Path | None:
    """Return where this process makes its lock, in a directory that is ours alone.

    Raises `ConfigurationError` where somebody else has made it.
    """
    directory = locks_directory(configuration, cluster_id)
    if directory is None or locks_in_storage(configuration):
        return directory
    home = directory.parent.parent
    if not configuration.find(options.TMP_DIRS):
        own_directory.note_home(_scratch_base(configuration), home)
    return own_directory.make(directory, levels=3)
