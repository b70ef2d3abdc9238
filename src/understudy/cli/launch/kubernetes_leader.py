"""What a JobManager asks of an API server: TaskManagers as jobs need them, and the end of its pods.

Without the option ``resourcemanager.provider``, people start TaskManagers. A cluster in pods that
has ended, with its application or by a request, removes its Deployment; otherwise Kubernetes would
start each process again that has ended. Only the Deployment of this run goes, with all it owns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from understudy.config import Configuration, options
from understudy.core.backoff import Backoff
from understudy.errors import ConfigurationError, UsageError
from understudy.jobmanager.workers import WorkerProvider

TRIES_MAX = 5
"""Afterwards this process ends; Kubernetes starts it again, and it tries once more."""

AGAIN = Backoff(0.5, 5.0)

_log = logging.getLogger(__name__)


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


async def remove_deployment(configuration: Configuration, run_id: str | None) -> None:
    """Remove the Deployment that this process belongs to, if it does; a failure is only logged.

    ``run_id``: only if the Deployment is there for this run; None in a session.
    """
    target = configuration.find(options.EXECUTION_TARGET)
    if target not in options.ON_KUBERNETES_TARGETS:
        return
    # The client of Kubernetes is imported only where it is used.
    from understudy.cli.launch.kubernetes_deploying import client_of, remove
    from understudy.kubernetes.access import access_of

    cluster = configuration.get(options.K8S_CLUSTER_ID)
    client = client_of(access_of(configuration))
    for tries in range(1, TRIES_MAX + 1):
        try:
            if await remove(client, cluster, run_id):
                _log.info("the cluster has ended: Deployment %s is removed", cluster)
            return
        except (UsageError, PermissionError) as error:
            _log.error("Deployment %s stays although the cluster has ended: %s", cluster, error)
            return
        except OSError as error:
            _log.warning("Deployment %s is not removed yet: %s", cluster, error)
        await asyncio.sleep(AGAIN.pause_s(tries))
