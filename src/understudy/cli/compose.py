"""What workers and commands open alike: the stores of a cluster."""

from __future__ import annotations

import os

from understudy.api import rest
from understudy.config import Configuration, options
from understudy.errors import StorageError, UsageError
from understudy.ha import layout
from understudy.ha.backends import open_register
from understudy.ha.backends.embedded import EmbeddedRegister
from understudy.ha.register import Register
from understudy.ha.services import HighAvailabilityServices, Locations
from understudy.ha.standalone import ConfiguredLeader
from understudy.ha.storage import Storage, open_storage, prove
from understudy.model import ApplicationStatus

EXIT_CODES = {
    ApplicationStatus.FINISHED: 0,
    ApplicationStatus.FAILED: 1,
    ApplicationStatus.CANCELED: 3,
}


def directory_of(configuration: Configuration, cluster_id: str) -> str:
    """Return the cluster's directory in storage; raises `ConfigurationError` for a bad id."""
    cluster = layout.cluster_directory(cluster_id)
    return layout.standalone_directory(cluster) if configuration.is_standalone else cluster


def standalone_rpc(configuration: Configuration) -> str:
    """Return where TaskManagers reach the one JobManager of this user and port."""
    return f"unix:@understudy-{os.getuid()}-{configuration.get(options.RPC_PORT)}"


def standalone_rest(configuration: Configuration) -> str:
    """Return where clients reach the one JobManager."""
    address = configuration.get(options.REST_ADDRESS)
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{configuration.get(options.REST_PORT)}"


def check_startable(configuration: Configuration, cluster_id: str) -> None:
    """Raise `UsageError` for what would make each process of the cluster fail at its start."""
    rest.check_bind_address(configuration.get(options.REST_BIND_ADDRESS))
    services = open_services(configuration, cluster_id, as_jobmanager=True)
    try:
        prove(services.storage.blocking, f"{services.locations.cluster}/{layout.LOCKS}")
    except (OSError, StorageError) as error:
        raise UsageError(f"{options.STORAGE_DIR.key} cannot be used: {error}") from error


def open_services(
    configuration: Configuration, cluster_id: str, *, as_jobmanager: bool = False
) -> HighAvailabilityServices:
    """Open the stores of a cluster; without high availability only its JobManager has them."""
    cluster = directory_of(configuration, cluster_id)
    settings = {**configuration.settings, options.STORAGE_DIR.key: configuration.storage_dir}
    register: Register
    if not configuration.is_standalone:
        register = open_register(configuration.get(options.HA_TYPE), cluster, settings)
    elif as_jobmanager:
        register = EmbeddedRegister()
    else:
        register = ConfiguredLeader(standalone_rpc(configuration), standalone_rest(configuration))
    jobs = configuration.find(options.JOB_RESULT_PATH)
    applications = configuration.find(options.APPLICATION_RESULT_PATH)
    usual_jobs, usual_applications = layout.result_directories(cluster)
    locations = Locations(cluster, jobs or usual_jobs, applications or usual_applications)
    storage = Storage(open_storage(configuration.storage_dir))
    return HighAvailabilityServices(register, storage, cluster_id, locations)
