"""Where a TaskManager's metrics are to be scraped; without the server, which few are asked for."""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass

from understudy.api.authentication import RestSecurity
from understudy.config import Configuration, options
from understudy.config.security import Hosts, is_everywhere
from understudy.errors import ConfigurationError
from understudy.rpc import addresses

PATH = "/metrics"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Endpoint:
    """A socket that listens, where others find it, and who may ask there."""

    listening: socket.socket
    url: str
    security: RestSecurity
    hosts: Hosts


def bind(configuration: Configuration, name: str) -> Endpoint | None:
    """Return where metrics are to be served; None where nowhere, or (with a warning) no port is.

    ``name`` is how this host is called by others. Raises `ConfigurationError` for a bad secret or
    certificate.
    """
    if options.PROMETHEUS not in configuration.get(options.REPORTERS):
        return None
    security = RestSecurity.of(configuration)
    if security.files and security.files.keystore is None:
        _log.warning("no metrics are served: %s is not set", options.REST_KEYSTORE.key)
        return None
    host, ports = (
        configuration.get(options.TASKMANAGER_BIND_HOST),
        configuration.get(options.METRICS_PORT),
    )
    keys = (options.TASKMANAGER_BIND_HOST.key, options.METRICS_PORT.key)
    try:
        listening = addresses.bind(host, ports, keys)
    except ConfigurationError as error:
        _log.warning("no metrics are served: %s", error)
        return None
    called = addresses.bracketed(name if is_everywhere(host) else host)
    port = listening.getsockname()[1]
    url = f"{security.scheme}://{called}:{port}{PATH}"
    return Endpoint(listening, url, security, Hosts.of(configuration, name, host))
