"""What workers and commands open alike: the stores of a cluster."""

from __future__ import annotations

from understudy.config import Configuration, options
from understudy.ha import layout
from understudy.ha.backends import open_register
from understudy.ha.services import HighAvailabilityServices, Locations
from understudy.ha.storage import Storage, open_storage
from understudy.model import ApplicationStatus

EXIT_CODES = {
    ApplicationStatus.FINISHED: 0,
    ApplicationStatus.FAILED: 1,
    ApplicationStatus.CANCELED: 3,
}


def open_services(configuration: Configuration, cluster_id: str) -> HighAvailabilityServices:
    """Open the stores of a cluster."""
    cluster = layout.cluster_directory(cluster_id)
    settings = {**configuration.settings, options.STORAGE_DIR.key: configuration.storage_dir}
    register = open_register(configuration.get(options.HA_TYPE), cluster, settings)
    jobs = configuration.find(options.JOB_RESULT_PATH)
    applications = configuration.find(options.APPLICATION_RESULT_PATH)
    locations = Locations(
        cluster,
        jobs or f"job-result-store/{cluster}",
        applications or f"application-result-store/{cluster}",
    )
    storage = Storage(open_storage(configuration.storage_dir))
    return HighAvailabilityServices(register, storage, cluster_id, locations)
