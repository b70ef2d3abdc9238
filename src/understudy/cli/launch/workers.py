"""Who provides TaskManagers to the leader as jobs need them (``resourcemanager.provider``)."""

from __future__ import annotations

from collections.abc import Mapping

from understudy.config import Configuration, options
from understudy.errors import ConfigurationError
from understudy.jobmanager.workers import WorkerProvider


def provider_of(
    configuration: Configuration, cluster_id: str, environment: Mapping[str, str]
) -> WorkerProvider | None:
    """Return who provides TaskManagers; None: people start them.

    Raises `ConfigurationError` where the provider cannot work. Call in the event loop.
    """
    if configuration.get(options.WORKER_PROVIDER) == "none":
        return None
    # The client of Kubernetes is imported only where it is used.
    from understudy.ha.backends.kubernetes.names import object_name
    from understudy.kubernetes.access import access_of
    from understudy.kubernetes.client import Client, RequestLimits, Traffic
    from understudy.kubernetes.taskmanagers import NAME_VARIABLE, TaskManagerPods

    me = environment.get(NAME_VARIABLE)
    if not me:
        raise ConfigurationError(
            f"{options.WORKER_PROVIDER.key} is kubernetes, and this process has no "
            f"${NAME_VARIABLE}: a leader in a pod asks for pods; set the variable to the pod's "
            "metadata.name, or start TaskManagers yourself"
        )
    cluster = configuration.find(options.K8S_CLUSTER_ID) or object_name(cluster_id)
    client = Client(access_of(configuration), RequestLimits(), Traffic())
    return TaskManagerPods(client, configuration, cluster, me)


async def missing_rights(configuration: Configuration) -> str:
    """Return which rights a leader lacks to ask for TaskManagers, as a sentence; "" if none.

    Raises ``OSError`` if nobody can be asked.
    """
    if configuration.get(options.WORKER_PROVIDER) == "none":
        return ""
    # The client of Kubernetes is imported only where it is used.
    from understudy.kubernetes import rights
    from understudy.kubernetes.access import access_of
    from understudy.kubernetes.client import Client, RequestLimits, Traffic

    access = access_of(configuration)
    rules = await rights.missing(Client(access, RequestLimits(), Traffic()), rights.OF_WORKERS)
    return rights.sentence(access, rules) if rules else ""
