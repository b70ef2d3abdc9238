"""A cluster in pods that has ended, with its application or by a request, has no Deployment.

Without that, Kubernetes would start each process again that has ended. Only the Deployment of this
run is removed, and everything that it owns goes with it.
"""

from __future__ import annotations

import asyncio
import logging

from understudy.config import Configuration, options
from understudy.core.backoff import Backoff
from understudy.errors import UsageError

TRIES_MAX = 5
"""Afterwards this process ends; Kubernetes starts it again, and it tries once more."""

AGAIN = Backoff(0.5, 5.0)

_log = logging.getLogger(__name__)


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
