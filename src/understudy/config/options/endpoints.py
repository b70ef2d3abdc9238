"""Options of addresses, clients, uploads, metrics and notifications."""

from __future__ import annotations

from understudy.config.option import (
    BOOLEAN,
    DURATION,
    HTTP_URL,
    PERIOD,
    PORTS,
    POSITIVE,
    SAME,
    SIZE,
    TEXT,
    URLS,
    WORDS,
    Kind,
    Option,
    bounded,
)

PORT = bounded(1, 65535)

RPC_ADDRESS = Option(
    "jobmanager.rpc.address",
    TEXT,
    "localhost",
    "The name or address under which others reach the JobManager if jobmanager.bind-host is set; "
    "the leader publishes it. With high-availability.type NONE: where TaskManagers find the "
    "JobManager; an address that is not loopback means links over TCP.",
    "no default there; unset, the JobManager publishes jobmanager.bind-host",
)
RPC_PORT = Option(
    "jobmanager.rpc.port",
    PORT,
    "6123",
    "With high-availability.type NONE only: where TaskManagers find the JobManager. Unless "
    "jobmanager.bind-host is set, links are Unix sockets: no port is opened, and this number only "
    "distinguishes the clusters of one host.",
    SAME,
)
BIND_HOST = Option(
    "jobmanager.bind-host",
    TEXT,
    None,
    "Unset, or loopback without a secret: TaskManagers and standbys of the same host and user "
    "reach the JobManager over Unix sockets, others do not. Otherwise the JobManager listens at "
    "this address on TCP, and security.secret-file is needed. 0.0.0.0 and :: are all addresses of "
    "the host, and need jobmanager.rpc.address.",
    "default 0.0.0.0 there, open to everybody",
)
JOBMANAGER_PORT = Option(
    "high-availability.jobmanager.port",
    PORTS,
    "0",
    "The ports that a JobManager tries for links over TCP, in order; 0 is any free one. With "
    "high-availability.type NONE jobmanager.rpc.port applies instead.",
    SAME,
)
REST_ADDRESS = Option(
    "rest.address",
    TEXT,
    "localhost",
    "The name or address under which clients and standbys reach the REST endpoint. Unset: "
    "rest.bind-address. With high-availability.type NONE: where clients find the JobManager.",
    "no default there",
)
REST_PORT = Option(
    "rest.port",
    PORT,
    "8081",
    "With high-availability.type NONE only: where clients find the JobManager, and the port that "
    "it binds unless rest.bind-port is set.",
    SAME,
)
REST_BIND_ADDRESS = Option(
    "rest.bind-address",
    TEXT,
    "127.0.0.1",
    "The address that the REST endpoint listens on. An address beyond loopback needs "
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
    "Further names, each with or without a port, that the Host header of a request to REST or "
    "metrics may contain, as behind a proxy or another DNS name. Always allowed are loopback, the "
    "address that a request has reached, rest.address, rest.bind-address, taskmanager.host and "
    "taskmanager.bind-host. All other requests are refused, as a web page in a browser may have "
    "sent them under a name of its own (DNS rebinding).",
    "not there: Flink serves any name",
)
SHUTDOWN_ON_FINISH = Option(
    "execution.shutdown-on-application-finish",
    BOOLEAN,
    "true",
    "The cluster ends when the application has ended and is cleaned up. false: all its processes "
    "keep running, and the leader still reports the result over REST, until somebody stops them; "
    "run-application then exits with the application's exit code.",
    SAME,
)
CLIENT_TIMEOUT = Option(
    "client.timeout",
    PERIOD,
    "1 min",
    "How long a command waits for an answer of the cluster.",
    SAME,
)
TARGET = Option(
    "client.target",
    URLS,
    None,
    "The URLs of JobManagers of a cluster, with commas between: commands ask there instead of "
    "finding the leader by the configuration, and read no storage; `--target URL` sets this. Any "
    "JobManager answers. Further JobManagers are learned from the cluster, so that a command "
    "survives the loss of the one that was named.",
    "there, rest.address and rest.port",
)
AWAIT_LEADER = Option(
    "rest.await-leader-timeout",
    DURATION,
    "30 s",
    "How long a command that only a leader can execute waits for a leader, while a run of the "
    "cluster is unfinished. Whatever storage can answer, too, is read from storage.",
    SAME,
)
NOTIFY_URL = Option(
    "notify.url",
    HTTP_URL,
    None,
    "The URL to which run-application posts, as JSON, each event that --json prints; single "
    "JobManagers and TaskManagers post their own events. An event that cannot be delivered is "
    "retried a few times and then dropped; the run continues. Wherever the configuration is "
    "shown, only the URL's host is visible, as the rest often is a secret.",
)
NOTIFY_TIMEOUT = Option(
    "notify.timeout",
    PERIOD,
    "5 s",
    "How long notify.url may take to answer; also, up to 5 s, how long the end of a run waits for "
    "events that are still to be posted.",
)
EXCEPTION_HISTORY = Option(
    "web.exception-history-size",
    POSITIVE,
    "16",
    "How many failures of each job /jobs/:jobid/exceptions shows, also after failovers and, while "
    "the tombstone lives, after the cleanup.",
    SAME,
)
REDACTED_KEYS = Option(
    "security.redaction.additional-keys",
    WORDS,
    "",
    "Further parts of keys whose values are never shown, in addition to the built-in ones.",
    SAME,
)

# --- uploaded artifacts ---------------------------------------------------------------------------

UPLOADS = Option(
    "web.submit.enable",
    BOOLEAN,
    "true",
    "Whether artifacts may be uploaded over REST. A cluster that ends with its application "
    "(execution.shutdown-on-application-finish) takes none in any case.",
    SAME,
)
ARTIFACT_MAX = Option(
    "artifacts.max-size",
    SIZE,
    "1 gb",
    "The largest file that may be uploaded. A JobManager receives it into io.tmp.dirs.",
)
ARTIFACTS_TOTAL_MAX = Option(
    "artifacts.max-total-size",
    SIZE,
    "16 gb",
    "The limit of all uploaded artifacts of a cluster together; equal content counts once. At most "
    "1,000 artifacts are kept.",
)
ARTIFACT_TTL = Option(
    "artifacts.unused-ttl",
    DURATION,
    "7 d",
    "How long an uploaded artifact stays after its last use. What an unfinished application was "
    "submitted with stays in any case.",
    "until the JobManager ends there",
)

# --- metrics --------------------------------------------------------------------------------------

PROMETHEUS = "prom"


def _reporters(text: str) -> tuple[str, ...]:
    names = tuple(name.lower() for name in WORDS.parse(text))
    if any(name != PROMETHEUS for name in names):
        raise ValueError(f"{PROMETHEUS} (the only reporter there is), or nothing, for none")
    return names


REPORTERS = Option(
    "metrics.reporters",
    Kind(f"List of: {PROMETHEUS}", _reporters, takes_lists=True),
    PROMETHEUS,
    "The reporters of metrics. prom: Prometheus scrapes /metrics of each JobManager, at its REST "
    "port, and of each TaskManager, at metrics.reporter.prom.port. Empty: none, and TaskManagers "
    "open no port.",
    "unset there, which means all that are configured",
)
METRICS_PORT = Option(
    "metrics.reporter.prom.port",
    PORTS,
    "9249-9348",
    "The ports that a TaskManager tries for its metrics, in order; 0 is any free one. If none is "
    "free, the TaskManager warns and continues without. /taskmanagers shows the port in use. "
    "JobManagers answer at their REST port.",
    "9249 there, of JobManagers too: several TaskManagers of one host need several",
)
TASKMANAGER_BIND_HOST = Option(
    "taskmanager.bind-host",
    TEXT,
    "127.0.0.1",
    "The address at which a TaskManager serves its metrics; it opens no other port. An address "
    "beyond loopback needs security.secret-file; scrapers then send the token, as for REST.",
    "0.0.0.0 there, for all ports of a TaskManager",
)
