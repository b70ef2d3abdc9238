"""Security of links between processes, as configured: secret, TLS, addresses."""

from __future__ import annotations

import logging
import os
import socket
from typing import TypeVar

from understudy.api.authentication import RestSecurity
from understudy.config import Configuration, options
from understudy.config.security import is_loopback, links_over_tcp
from understudy.errors import ConfigurationError
from understudy.rpc.addresses import address_at, bind
from understudy.rpc.certificates import PemFiles, is_pinned
from understudy.rpc.secret import read_secret
from understudy.rpc.tcp import LinkSecurity, MixedNetwork, TcpNetwork
from understudy.rpc.wire import Codec, UnixNetwork

M = TypeVar("M")

_log = logging.getLogger(__name__)


def link_security(configuration: Configuration, cluster_id: str) -> LinkSecurity | None:
    """Return the security of TCP links; None without a secret. Raises `ConfigurationError`."""
    path = configuration.find(options.SECRET_FILE)
    if not path:
        return None
    secret = read_secret(path)
    if not configuration.get(options.INTERNAL_SSL):
        return LinkSecurity(secret, cluster_id)
    files = PemFiles(
        "security.ssl.internal",
        configuration.find(options.INTERNAL_TRUSTSTORE) or "",
        configuration.find(options.INTERNAL_KEYSTORE),
        configuration.find(options.INTERNAL_KEY_PASSWORD),
    )
    fingerprint = configuration.find(options.INTERNAL_FINGERPRINT)
    if not is_pinned(files.prove(), fingerprint):
        raise ConfigurationError(
            f"{options.INTERNAL_FINGERPRINT.key} is not the fingerprint of our own certificate "
            f"({options.INTERNAL_KEYSTORE.key}: {files.keystore}), so our peers would refuse us"
        )
    return LinkSecurity(
        secret,
        cluster_id,
        files.server(clients_need_certificates=True),
        files.client(verify_hostname=False, with_certificate=True),
        fingerprint,
    )


def check_secured(configuration: Configuration, cluster_id: str, *, serves_rest: bool) -> None:
    """Raise `ConfigurationError` for an unusable secret or certificate."""
    link_security(configuration, cluster_id)
    RestSecurity.of(configuration).check(serves=serves_rest)


def network_of(
    configuration: Configuration, cluster_id: str, codec: Codec[M], *, is_jobmanager: bool
) -> MixedNetwork[M]:
    """Return the network on which a process connects and, as a JobManager, listens.

    Raises `ConfigurationError` if the address is not available.
    """
    security = link_security(configuration, cluster_id)
    own = standalone_rpc(configuration) if configuration.is_standalone else None
    unix: UnixNetwork[M] = UnixNetwork(codec, own)
    if security is None:
        return MixedNetwork(unix, None)
    if not (is_jobmanager and links_over_tcp(configuration)):
        return MixedNetwork(unix, TcpNetwork(codec, security))
    listening = bind_links(configuration)
    published = address_at(rpc_host(configuration), port_of(listening))
    tcp = TcpNetwork(codec, security, listening, published)
    return MixedNetwork(unix, tcp, listens_on_tcp=True)


def bind_links(configuration: Configuration) -> socket.socket:
    """Return a JobManager's listening socket for TCP links. Raises `ConfigurationError`."""
    standalone = configuration.is_standalone
    option = options.RPC_PORT if standalone else options.JOBMANAGER_PORT
    ports = (
        (configuration.get(options.RPC_PORT),)
        if standalone
        else configuration.get(options.JOBMANAGER_PORT)
    )
    host = configuration.find(options.BIND_HOST)
    from_key = options.BIND_HOST.key if host else options.RPC_ADDRESS.key
    return bind(host or rpc_host(configuration), ports, (from_key, option.key))


def listens_on_tcp(configuration: Configuration) -> bool:
    """Return whether a JobManager listens for links over TCP."""
    secret: str | None = configuration.find(options.SECRET_FILE)
    return bool(secret) and links_over_tcp(configuration)


def rpc_host(configuration: Configuration) -> str:
    """Return the host under which others reach a JobManager that listens on TCP."""
    said = options.RPC_ADDRESS.key in configuration.settings
    address = configuration.get(options.RPC_ADDRESS)
    return address if said else configuration.find(options.BIND_HOST) or address


def rest_host(configuration: Configuration) -> str:
    """Return the host under which others reach the REST endpoint."""
    said = options.REST_ADDRESS.key in configuration.settings
    return configuration.get(options.REST_ADDRESS if said else options.REST_BIND_ADDRESS)


def port_of(listening: socket.socket) -> int:
    """Return the port of a socket."""
    return int(listening.getsockname()[1])


def standalone_rpc(configuration: Configuration) -> str:
    """Return the address of the only JobManager: TCP, or a socket named by user and port."""
    port = configuration.get(options.RPC_PORT)
    if links_over_tcp(configuration):
        return address_at(rpc_host(configuration), port)
    return f"unix:@understudy-{os.getuid()}-{port}"


def warn_of_open_token(configuration: Configuration, security: RestSecurity) -> None:
    """Log a warning if the REST token travels unencrypted to other hosts."""
    address = configuration.get(options.REST_BIND_ADDRESS)
    if security.files is None and not is_loopback(address):
        _log.warning(
            "REST is served at %s without TLS: who can listen on the network can read the token "
            "of each request, and use it; set %s to true",
            address,
            options.REST_SSL.key,
        )
