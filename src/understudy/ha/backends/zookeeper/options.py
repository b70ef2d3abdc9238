"""Options of ``high-availability.type: zookeeper``: the ensemble's address and its connections."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from understudy.config import options
from understudy.config.option import (
    BOOLEAN,
    COUNT,
    PAIRS,
    PERIOD,
    SAME,
    TEXT,
    Kind,
    Option,
    choice,
    words,
)
from understudy.errors import ConfigurationError

if TYPE_CHECKING:
    from understudy.config import Configuration

PORT = 2181
"""The default port of a server."""

_SERVER = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\])(?::([0-9]{1,5}))?")
_ZNODE_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}")


def _quorum(text: str) -> tuple[tuple[str, int], ...]:
    servers = []
    if "/" in text:
        raise ValueError("servers only: a path goes into high-availability.zookeeper.path.root")
    for word in words(text):
        match = _SERVER.fullmatch(word)
        port = int(match[2] or PORT) if match else 0
        if not match or not 0 < port < 65536:
            raise ValueError("servers such as 'zk1:2181,zk2:2181,zk3:2181'")
        servers.append((match[1].strip("[]"), port))
    if not servers:
        raise ValueError("at least one server, such as 'zk1:2181'")
    return tuple(servers)


def _znode(text: str) -> str:
    names = text.strip("/").split("/")
    if not text.startswith("/") or not all(_ZNODE_NAME.fullmatch(name) for name in names):
        raise ValueError("a path such as '/understudy', of letters, digits, '_', '-' and '.'")
    return "/" + "/".join(names)


QUORUM = Kind("List of host:port", _quorum, takes_lists=True)
ZNODE = Kind("Path of a znode", _znode)

ZK_QUORUM = Option(
    "high-availability.zookeeper.quorum",
    QUORUM,
    None,
    "The servers of the ensemble: comma-separated host:port. A changed list needs a restart of "
    "each process, standbys first.",
    SAME,
)
ZK_ROOT = Option(
    "high-availability.zookeeper.path.root",
    ZNODE,
    "/understudy",
    "The znode that contains all clusters, each as <root>/<cluster-id>.",
    "default /flink there",
)
ZK_SESSION_TIMEOUT = Option(
    "high-availability.zookeeper.client.session-timeout",
    PERIOD,
    "20 s",
    "How long a process may be silent before the ensemble ends its session. The servers limit the "
    "value (2 to 20 × their tickTime: 4 s to 40 s by default), and the granted value applies. A "
    "leader stops before its session can end; lease-duration, renew-deadline and retry-period do "
    "nothing here.",
    "1 min there; here a standby takes over from a lost host before taskmanager.orphan-timeout "
    "ends the drivers of the other hosts",
)
ZK_CONNECTION_TIMEOUT = Option(
    "high-availability.zookeeper.client.connection-timeout",
    PERIOD,
    "15 s",
    "How long a command, or a starting process, tries to reach any server before it gives up, "
    "also if the connection breaks during the start.",
    SAME,
)
ZK_RETRY_WAIT = Option(
    "high-availability.zookeeper.client.retry-wait",
    PERIOD,
    "5 s",
    "The longest pause before all servers are tried again, at most a twentieth of the session "
    "timeout; also the pause before a start is retried after a broken connection.",
    "the pause itself there",
)
ZK_RETRIES = Option(
    "high-availability.zookeeper.client.max-retry-attempts",
    COUNT,
    "3",
    "How often a read is repeated after its connection broke. A write is never repeated blindly, "
    "and a running process never stops trying to connect.",
    "connection retries there, after which the client gives up",
)
ZK_ACL = Option(
    "high-availability.zookeeper.client.acl",
    choice("open", "creator"),
    "open",
    "Who may read and write our znodes: everybody, or only clients that authenticate as their "
    "creator (which needs client.authorization or SASL).",
    SAME,
)
ZK_AUTHORIZATION = Option(
    "high-availability.zookeeper.client.authorization",
    PAIRS,
    None,
    "The credentials of a connection: comma-separated scheme:credential, for example "
    "digest:user:password, or a mapping in the file. Never shown.",
    SAME,
)
ZK_TOLERATE_SUSPENDED = Option(
    "high-availability.zookeeper.client.tolerate-suspended-connections",
    BOOLEAN,
    "true",
    "true: a leader whose connection broke continues while its session certainly exists, by its "
    "own clock, counted from the sending of its last acknowledged write. false: the leader stops "
    "leading at once.",
    "default false there; true trusts the client library to notice the end of the session",
)
ZK_ENSEMBLE_TRACKER = Option(
    "high-availability.zookeeper.client.ensemble-tracker",
    BOOLEAN,
    "false",
    "true only warns: the client does not follow changes of the ensemble.",
    "default true there",
)
ZK_SSL = Option(
    "high-availability.zookeeper.client.ssl.enabled",
    BOOLEAN,
    "false",
    "Use TLS for connections to the servers.",
)
ZK_SSL_CA = Option(
    "high-availability.zookeeper.client.ssl.ca",
    TEXT,
    None,
    "PEM file of the certificate authorities that are trusted to sign servers' certificates. "
    "Unset: those of the system.",
)
ZK_SSL_CERTIFICATE = Option(
    "high-availability.zookeeper.client.ssl.certificate",
    TEXT,
    None,
    "PEM file of the certificate that this process presents.",
)
ZK_SSL_KEY = Option(
    "high-availability.zookeeper.client.ssl.key",
    TEXT,
    None,
    "PEM file of that certificate's key.",
)
ZK_SSL_KEY_PASSWORD = Option(
    "high-availability.zookeeper.client.ssl.key-password",
    TEXT,
    None,
    "The password of the key, if it is encrypted. Never shown.",
)
ZK_SSL_CHECK_HOSTNAME = Option(
    "high-availability.zookeeper.client.ssl.check-hostname",
    BOOLEAN,
    "true",
    "Require that a server's certificate names the host that the client connects to.",
)
ZK_SASL_MECHANISM = Option(
    "high-availability.zookeeper.client.sasl.mechanism",
    choice(
        "none", "DIGEST-MD5", "GSSAPI", aliases={"digest-md5": "DIGEST-MD5", "gssapi": "GSSAPI"}
    ),
    "none",
    "How to authenticate by SASL: DIGEST-MD5 with user name and password, GSSAPI with the ticket "
    "cache of Kerberos. Needs `pip install pure-sasl`.",
)
ZK_SASL_USERNAME = Option(
    "high-availability.zookeeper.client.sasl.username",
    TEXT,
    None,
    "The user name for DIGEST-MD5; the principal for GSSAPI, if it is not that of the ticket "
    "cache.",
)
ZK_SASL_PASSWORD = Option(
    "high-availability.zookeeper.client.sasl.password",
    TEXT,
    None,
    "The password for DIGEST-MD5. Never shown.",
)
ZK_SASL_SERVICE = Option(
    "zookeeper.sasl.service-name",
    TEXT,
    "zookeeper",
    "The service name of the servers' Kerberos principal.",
    SAME,
)

# --- checks ---------------------------------------------------------------------------------------


TYPE = "zookeeper"


def check(configuration: Configuration) -> None:
    """Raise `ConfigurationError` if the quorum is missing or unused, or options contradict."""
    quorum = configuration.settings.get(ZK_QUORUM.key)
    if quorum and options.HA_TYPE.key not in configuration.settings:
        # Never run without the high availability that the user expects.
        raise ConfigurationError(
            f"{ZK_QUORUM.key} is set, but {options.HA_TYPE.key} is not: set it to {TYPE}"
        )
    if configuration.get(options.HA_TYPE).lower() != TYPE:
        return
    if not quorum:
        raise ConfigurationError(
            f"{options.HA_TYPE.key} is {TYPE}, but {ZK_QUORUM.key} is not set: name the "
            "servers, such as zk1:2181,zk2:2181,zk3:2181"
        )
    if configuration.get(ZK_ENSEMBLE_TRACKER):
        configuration.warnings.append(
            f"{ZK_ENSEMBLE_TRACKER.key} does nothing here: a changed quorum needs a "
            "restart of each process, standbys first"
        )
    configuration.warn_of_orphans(ZK_SESSION_TIMEOUT, configuration.get(ZK_SESSION_TIMEOUT))
    _check_identity(configuration)
    _check_tls(configuration)


def _check_identity(configuration: Configuration) -> None:
    mechanism = configuration.get(ZK_SASL_MECHANISM)
    words = configuration.find(ZK_AUTHORIZATION) or ()
    shown = configuration.find(ZK_SSL_CERTIFICATE)
    known = mechanism != "none" or words or shown
    if configuration.get(ZK_ACL) == "creator" and not known:
        raise ConfigurationError(
            f"{ZK_ACL.key} is creator, but nothing says who the creator is: set "
            f"{ZK_AUTHORIZATION.key}, {ZK_SASL_MECHANISM.key} or "
            f"{ZK_SSL_CERTIFICATE.key}, or leave it open"
        )
    for option in (ZK_SASL_USERNAME, ZK_SASL_PASSWORD):
        if mechanism == "DIGEST-MD5" and not configuration.find(option):
            raise ConfigurationError(
                f"{ZK_SASL_MECHANISM.key} is {mechanism}, but {option.key} is not set"
            )
    for word in words:
        scheme, _, credential = word.partition(":")
        if not scheme or not credential:
            raise ConfigurationError(
                f"{ZK_AUTHORIZATION.key} holds an entry that is not scheme:credential, "
                "such as digest:user:password"
            )


def _check_tls(configuration: Configuration) -> None:
    if configuration.find(ZK_SSL_KEY) and not configuration.find(ZK_SSL_CERTIFICATE):
        raise ConfigurationError(
            f"{ZK_SSL_KEY.key} is set, but {ZK_SSL_CERTIFICATE.key} is not: a key "
            "is shown with its certificate"
        )
    for option in (
        ZK_SSL_CA,
        ZK_SSL_CERTIFICATE,
        ZK_SSL_KEY,
        ZK_SSL_KEY_PASSWORD,
    ):
        if configuration.find(option) and not configuration.get(ZK_SSL):
            raise ConfigurationError(
                f"{option.key} is set, but {ZK_SSL.key} is not true: nothing would be encrypted"
            )
