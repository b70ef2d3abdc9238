"""Options of ``high-availability.type: zookeeper``: the ensemble's address and its connections."""

from __future__ import annotations

from understudy.config.option import (
    BOOLEAN,
    COUNT,
    PAIRS,
    PERIOD,
    QUORUM,
    SAME,
    TEXT,
    ZNODE,
    Option,
    choice,
)

ZK_QUORUM = Option(
    "high-availability.zookeeper.quorum",
    QUORUM,
    None,
    "The servers of the ensemble: host:port, with commas between. A changed list needs a restart "
    "of each process, standbys first.",
    SAME,
)
ZK_ROOT = Option(
    "high-availability.zookeeper.path.root",
    ZNODE,
    "/understudy",
    "Below which node the clusters are, each in <root>/<cluster-id>.",
    "default /flink there",
)
ZK_SESSION_TIMEOUT = Option(
    "high-availability.zookeeper.client.session-timeout",
    PERIOD,
    "20 s",
    "After how long without a word the ensemble takes a process for lost. The servers bound it "
    "(2 to 20 × their tickTime: 4 s to 40 s by default), and what they grant counts. A leader "
    "stops before it is over; lease-duration, renew-deadline and retry-period do nothing here.",
    "1 min there; here a lost host is followed before taskmanager.orphan-timeout ends the drivers "
    "of the others",
)
ZK_CONNECTION_TIMEOUT = Option(
    "high-availability.zookeeper.client.connection-timeout",
    PERIOD,
    "15 s",
    "How long a command, or a process that starts, tries to reach any server before it gives up: "
    "also where the connection breaks while it starts.",
    SAME,
)
ZK_RETRY_WAIT = Option(
    "high-availability.zookeeper.client.retry-wait",
    PERIOD,
    "5 s",
    "The longest pause before all servers are tried again, never more than a twentieth of the "
    "session timeout; and before a start tries again what broke.",
    "the pause itself there",
)
ZK_RETRIES = Option(
    "high-availability.zookeeper.client.max-retry-attempts",
    COUNT,
    "3",
    "How often a read is repeated whose connection broke. A write is never repeated blindly, and "
    "a process that runs never stops trying to connect.",
    "connection retries there, after which the client gives up",
)
ZK_ACL = Option(
    "high-availability.zookeeper.client.acl",
    choice("open", "creator"),
    "open",
    "Who may read and write our nodes: everybody, or only who authenticates as their creator "
    "(which needs client.authorization or SASL).",
    SAME,
)
ZK_AUTHORIZATION = Option(
    "high-availability.zookeeper.client.authorization",
    PAIRS,
    None,
    "What a connection authenticates with: scheme:credential, for example digest:user:password, "
    "with commas between, or a mapping in the file. Never shown.",
    SAME,
)
ZK_TOLERATE_SUSPENDED = Option(
    "high-availability.zookeeper.client.tolerate-suspended-connections",
    BOOLEAN,
    "true",
    "true: a leader whose connection broke goes on as long as its session surely lives, by its own "
    "clock and from the moment its last acknowledged write was sent. false: it stops leading at "
    "once.",
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
    "Speak TLS with the servers.",
)
ZK_SSL_CA = Option(
    "high-availability.zookeeper.client.ssl.ca",
    TEXT,
    None,
    "PEM file of the authorities whose servers are trusted. Unset: those of the system.",
)
ZK_SSL_CERTIFICATE = Option(
    "high-availability.zookeeper.client.ssl.certificate",
    TEXT,
    None,
    "PEM file of the certificate that this process shows.",
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
    "What the key is encrypted with. Never shown.",
)
ZK_SSL_CHECK_HOSTNAME = Option(
    "high-availability.zookeeper.client.ssl.check-hostname",
    BOOLEAN,
    "true",
    "Demand that a server's certificate names the host that was asked for.",
)
ZK_SASL_MECHANISM = Option(
    "high-availability.zookeeper.client.sasl.mechanism",
    choice(
        "none", "DIGEST-MD5", "GSSAPI", aliases={"digest-md5": "DIGEST-MD5", "gssapi": "GSSAPI"}
    ),
    "none",
    "How to authenticate by SASL: DIGEST-MD5 with user name and password, GSSAPI with the ticket "
    "cache of Kerberos. Needs `pip install understudy[sasl]`.",
)
ZK_SASL_USERNAME = Option(
    "high-availability.zookeeper.client.sasl.username",
    TEXT,
    None,
    "The user, for DIGEST-MD5; the principal, for GSSAPI, where it is not that of the cache.",
)
ZK_SASL_PASSWORD = Option(
    "high-availability.zookeeper.client.sasl.password",
    TEXT,
    None,
    "The password, for DIGEST-MD5. Never shown.",
)
ZK_SASL_SERVICE = Option(
    "zookeeper.sasl.service-name",
    TEXT,
    "zookeeper",
    "The service name of the servers' Kerberos principal.",
    SAME,
)
