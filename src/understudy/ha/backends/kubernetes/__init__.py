"""The Kubernetes backend: a register of ConfigMaps and a Lease in one namespace.

Needs neither an operator nor a definition of its own: the API server is the coordination system.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.config.backends import Backend, Patience, Place
from understudy.config.option import Option
from understudy.config.options.kubernetes import K8S_NAMESPACE
from understudy.ha.backends.kubernetes import options

if TYPE_CHECKING:
    from understudy.config import Configuration

__all__ = ["BACKEND"]

PAUSE_MAX_S = 5.0

_OWN_RETRIES = "requests are retried until the deadline of their caller"


def _patience(configuration: Configuration) -> Patience:
    return Patience(
        bound_s=configuration.get(options.K8S_CONNECTION_TIMEOUT),
        key=options.K8S_CONNECTION_TIMEOUT.key,
        pause_max_s=PAUSE_MAX_S,
    )


def _place(configuration: Configuration) -> Place:
    """Return the address of the API server, and the namespace.

    Pods and other hosts may know one server by different addresses. That matters only where a
    register is empty and storage has data of a cluster: then the data stays.
    """
    from understudy.kubernetes.access import access_of

    access = access_of(configuration)
    return Place(servers=(access.server.partition("://")[2],), path=f"/{access.namespace}")


BACKEND = Backend(
    register="understudy.ha.backends.kubernetes.register:open_register",
    options=tuple(value for value in vars(options).values() if isinstance(value, Option)),
    without_meaning={
        "kubernetes.transactional-operation.initial-retry-delay": _OWN_RETRIES,
        "kubernetes.transactional-operation.max-retries": _OWN_RETRIES,
        "kubernetes.transactional-operation.max-retry-delay": _OWN_RETRIES,
    },
    check=options.check,
    lease=(options.K8S_LEASE_DURATION, options.K8S_RENEW_DEADLINE, options.K8S_RETRY_PERIOD),
    patience=_patience,
    place=_place,
    example={K8S_NAMESPACE.key: "NAMESPACE"},
)
