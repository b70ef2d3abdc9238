"""Addresses, clients, and what is told to others."""

from __future__ import annotations

from understudy.config.option import (
    BOOLEAN,
    DURATION,
    HTTP_URL,
    PERIOD,
    PORTS,
    POSITIVE,
    SAME,
    TEXT,
    WORDS,
    Option,
    bounded,
)

PORT = bounded(1, 65535)

RPC_ADDRESS = Option(
    "jobmanager.rpc.address",
    TEXT,
    "localhost",
    "Under which name or address others reach the JobManager, where jobmanager.bind-host is set: "
    "what it publishes when it leads. With high-availability.type NONE: where TaskManagers find "
    "it; one that is not this host means links over TCP.",
    "no default there; unset, the JobManager publishes jobmanager.bind-host",
)
RPC_PORT = Option(
    "jobmanager.rpc.port",
    PORT,
    "6123",
    "With high-availability.type NONE only: where TaskManagers find the JobManager. Links are Unix "
    "sockets unless jobmanager.bind-host is set: then no port is opened, and this only tells the "
    "clusters of one host apart.",
    SAME,
)
BIND_HOST = Option(
    "jobmanager.bind-host",
    TEXT,
    None,
    "Unset, or loopback without a secret: TaskManagers and standbys of the same host and user "
    "reach the JobManager over Unix sockets, others do not. Else it listens there on TCP, and "
    "security.secret-file is needed. "
    "0.0.0.0 and :: are all addresses of the host, and need jobmanager.rpc.address.",
    "default 0.0.0.0 there, open to everybody",
)
JOBMANAGER_PORT = Option(
    "high-availability.jobmanager.port",
    PORTS,
    "0",
    "The ports that a JobManager tries for links over TCP, in order; 0 is any free one. With "
    "high-availability.type NONE it is jobmanager.rpc.port.",
    SAME,
)
REST_ADDRESS = Option(
    "rest.address",
    TEXT,
    "localhost",
    "Under which name or address clients and standbys reach the REST endpoint. Unset: "
    "rest.bind-address. With high-availability.type NONE: where clients find the JobManager.",
    "no default there",
)
REST_PORT = Option(
    "rest.port",
    PORT,
    "8081",
    "With high-availability.type NONE only: where clients find the JobManager, and what it binds "
    "to unless rest.bind-port is set.",
    SAME,
)
REST_BIND_ADDRESS = Option(
    "rest.bind-address",
    TEXT,
    "127.0.0.1",
    "The address that the REST endpoint listens on. One that is not on loopback needs "
    "security.secret-file; 0.0.0.0 and :: are all addresses of the host, and need rest.address.",
    SAME,
)
REST_BIND_PORT = Option(
    "rest.bind-port",
    PORTS,
    "8081-8180",
    "The ports that the REST endpoint tries, in order; 0 is any free one.",
    "8081 there: several JobManagers of one host need several",
)
ALLOWED_HOSTS = Option(
    "rest.allowed-hosts",
    WORDS,
    "",
    "Further names, each with a port or without, under which REST and metrics may be asked: what "
    "the Host header of a request says, as behind a proxy or another DNS name. Known are "
    "loopback, the address that a request has reached, rest.address, rest.bind-address, "
    "taskmanager.host and taskmanager.bind-host; all other requests are refused, as a web page in "
    "somebody's browser may have sent them under a name of its own.",
    "not there: Flink serves any name",
)
SHUTDOWN_ON_FINISH = Option(
    "execution.shutdown-on-application-finish",
    BOOLEAN,
    "true",
    "The cluster ends when the application has ended and is cleaned up. false: all its processes, "
    "the leader and REST go on, and tell how it ended, until somebody closes them; run-application "
    "exits then as the application has ended.",
    SAME,
)
CLIENT_TIMEOUT = Option(
    "client.timeout",
    PERIOD,
    "1 min",
    "How long a command waits for an answer of the cluster.",
    SAME,
)
AWAIT_LEADER = Option(
    "rest.await-leader-timeout",
    DURATION,
    "30 s",
    "How long a command that only a leader can carry out waits for somebody to lead, while a run "
    "of the cluster is unfinished. What storage can tell too is read from it.",
    SAME,
)
NOTIFY_URL = Option(
    "notify.url",
    HTTP_URL,
    None,
    "Where each event that --json prints is posted to as JSON, by run-application, and by single "
    "JobManagers and TaskManagers for their own. An event that cannot be delivered is tried again "
    "a few times and then dropped: the run goes on. Only its host is shown with a configuration, "
    "as the rest often is a secret.",
)
NOTIFY_TIMEOUT = Option(
    "notify.timeout",
    PERIOD,
    "5 s",
    "How long notify.url may take to answer; and, up to 5 s, how long the end of a run waits for "
    "what is still to be posted.",
)
EXCEPTION_HISTORY = Option(
    "web.exception-history-size",
    POSITIVE,
    "16",
    "How many failures of each job /jobs/:jobid/exceptions tells, also after failovers and, while "
    "the tombstone lives, after the cleanup.",
    SAME,
)
REDACTED_KEYS = Option(
    "security.redaction.additional-keys",
    WORDS,
    "",
    "Further parts of keys whose values are never shown, beside the built-in ones.",
    SAME,
)
