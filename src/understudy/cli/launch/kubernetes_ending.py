"""A cluster in pods that was deployed for one application ends with it: its Deployment goes.

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


def belongs_to_one_run(configuration: Configuration) -> bool:
    """Return whether this process belongs to a Deployment that ends with its run."""
    target = configuration.find(options.EXECUTION_TARGET)
    return target == options.KUBERNETES_APPLICATION


async def remove_deployment(configuration: Configuration, run_id: str) -> None:
    """Remove the Deployment of a run that has ended; a failure is only logged."""
    # The client of Kubernetes is imported only where it is used.
    from understudy.cli.launch.kubernetes_deploying import client_of, remove
    from understudy.kubernetes.access import access_of

    cluster = configuration.get(options.K8S_CLUSTER_ID)
    client = client_of(access_of(configuration))
    for tries in range(1, TRIES_MAX + 1):
        try:
            if await remove(client, cluster, run_id):
                _log.info("run %s has ended: Deployment %s is removed", run_id, cluster)
            return
        except (UsageError, PermissionError) as error:
            _log.error("the Deployment stays although run %s has ended: %s", run_id, error)
            return
        except OSError as error:
            _log.warning("the Deployment is not removed yet: %s", error)
        await asyncio.sleep(AGAIN.pause_s(tries))
