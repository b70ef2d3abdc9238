"""The options, each declared once. Where Flink has the key, it has Flink's meaning.

A default that differs from Flink's says why.
"""

from __future__ import annotations

from understudy.config.option import (
    BOOLEAN,
    COUNT,
    DURATION,
    FACTOR,
    HEX_ID,
    HTTP_URL,
    LONG_PERIOD,
    PERIOD,
    PORTS,
    POSITIVE,
    SIZE,
    TEXT,
    WORDS,
    Option,
    bounded,
    choice,
)

SAME = "same"

DRIVERS_MAX = 1_000
"""More processes than one machine has a use for; a number that was mistyped must not start them."""

PORT = bounded(1, 65535)

# --- high availability -------------------------------------------------------------------------

HA_TYPE = Option(
    "high-availability.type",
    TEXT,
    "filesystem",
    "The coordination backend: the name of a built-in one or of an entry point in "
    "'understudy.backends', or module:factory. NONE: one JobManager, whose stores are in its "
    "memory; its loss is the loss of its application.",
    "default NONE there: a cluster without high availability is what this exists to end",
)
CLUSTER_ID = Option(
    "high-availability.cluster-id",
    TEXT,
    None,
    "What names the cluster. Processes that share it (and the backend) form one cluster. Unset, "
    "run-application mints one for the run and leaves nothing behind; the single processes use "
    "'default'.",
    "default /default there",
)
STORAGE_DIR = Option(
    "high-availability.storageDir",
    TEXT,
    None,
    "Where the cluster keeps what must survive its processes: a local path, or any fsspec URL "
    "where the backend is not 'filesystem'. Unset: $XDG_STATE_HOME/understudy/ha, where "
    "$XDG_STATE_HOME defaults to ~/.local/state.",
    "no default there",
)
LEASE_DURATION = Option(
    "high-availability.leader-election.lease-duration",
    DURATION,
    "15 s",
    "How long a standby that sees no renewal waits before it takes over without proof of death.",
)
RENEW_DEADLINE = Option(
    "high-availability.leader-election.renew-deadline",
    DURATION,
    "10 s",
    "How long after its last acknowledged renewal was sent a leader may act. Must be shorter than "
    "the lease: Flink's Kubernetes defaults make them equal, which lets two leaders overlap.",
)
RETRY_PERIOD = Option(
    "high-availability.leader-election.retry-period",
    DURATION,
    "2 s",
    "How often a leader renews, and a standby looks when nothing wakes it.",
)
JOB_RESULT_PATH = Option(
    "job-result-store.storage-path",
    TEXT,
    None,
    "Directory of the job result files, below or beside the storage directory. Unset: "
    "<storageDir>/job-result-store/<cluster-id>.",
    SAME,
)
APPLICATION_RESULT_PATH = Option(
    "application-result-store.storage-path",
    TEXT,
    None,
    "Directory of the application result files. Unset: "
    "<storageDir>/application-result-store/<cluster-id>.",
    SAME,
)
DELETE_ON_COMMIT = Option(
    "application-result-store.delete-on-commit",
    BOOLEAN,
    "true",
    "Remove the result files of an application and its jobs once everything is cleaned up; false "
    "keeps them as <id>.json, and their removal is yours. In either case a tombstone remains for "
    "its time, so that an ended run is never executed again.",
    "there, true also forgets that the application ran",
)
TOMBSTONE_TTL = Option(
    "application-result-store.tombstone-ttl",
    DURATION,
    "7 d",
    "How long a tombstone (run id, status, and a file with each job's result) remains in a "
    "cluster whose id was configured. Beyond 700 kB of them, some 2,000, the oldest go earlier.",
)

# --- jobs and applications ----------------------------------------------------------------------

TERMINATE_ON_JOB_FAILURE = Option(
    "execution.terminate-application-on-any-job-terminated-exceptionally",
    BOOLEAN,
    None,
    "Unset: a failed job fails the application unless main catches its JobFailed. true: any "
    "failed or cancelled job fails or cancels the application at once. false: the application is "
    "FINISHED once main has returned, whatever its jobs did, and jobs still running are cancelled.",
    "default true there",
)
UNREACHED_GRACE = Option(
    "execution.recovery.unreached-grace",
    DURATION,
    "5 s",
    "After a failover: how long a job that has no slot, or that the last execution of main had "
    "not submitted, waits for main to reach the attempts that still run; then they give way.",
)
FIRST_JOB_ID = Option(
    "$internal.pipeline.job-id",
    HEX_ID,
    None,
    "The id of the first job, 32 hexadecimal digits. Refused if another run of the cluster has "
    "used it.",
    SAME,
)
RESULT_MAX_SIZE = Option(
    "job.result.max-size",
    SIZE,
    "256 kb",
    "The largest value that a job may return, as JSON. Larger data belongs in files or tables.",
)
RESTART_TYPE = Option(
    "restart-strategy.type",
    choice(
        "none",
        "fixed-delay",
        "failure-rate",
        "exponential-delay",
        aliases={
            "off": "none",
            "disable": "none",
            "fixeddelay": "fixed-delay",
            "failurerate": "failure-rate",
            "exponentialdelay": "exponential-delay",
        },
    ),
    "exponential-delay",
    "What happens when an attempt of a job, or of main, fails or is lost. The first restart after "
    "a loss (of a driver, a TaskManager, an application process) is immediate and counts; an "
    "exception of the function waits.",
    "unset there",
)
FIXED_ATTEMPTS = Option(
    "restart-strategy.fixed-delay.attempts",
    COUNT,
    "1",
    "How often a job is restarted before it is declared failed.",
    SAME,
)
FIXED_DELAY = Option(
    "restart-strategy.fixed-delay.delay",
    DURATION,
    "1 s",
    "The pause before a restart.",
    SAME,
)
RATE_FAILURES = Option(
    "restart-strategy.failure-rate.max-failures-per-interval",
    POSITIVE,
    "1",
    "How often a job is restarted within the interval before it is declared failed; at most 100.",
    "without a limit there",
)
RATE_INTERVAL = Option(
    "restart-strategy.failure-rate.failure-rate-interval",
    PERIOD,
    "1 min",
    "The interval in which failures are counted: time in which the job ran or waited for its "
    "delay, so a failover neither forgets a failure nor lets one grow old.",
    SAME,
)
RATE_DELAY = Option(
    "restart-strategy.failure-rate.delay",
    DURATION,
    "1 s",
    "The pause before a restart. The interval must be longer than the pauses of all restarts that "
    "it allows.",
    SAME,
)
EXPONENTIAL_ATTEMPTS = Option(
    "restart-strategy.exponential-delay.attempts-before-reset-backoff",
    COUNT,
    "3",
    "How often a job is restarted after exceptions of its function before it is declared failed. "
    "Ten losses of its process weigh as much as one exception.",
    "infinite there: a batch function that always raises would never fail",
)
EXPONENTIAL_INITIAL = Option(
    "restart-strategy.exponential-delay.initial-backoff",
    DURATION,
    "1 s",
    "The first pause before a restart.",
    SAME,
)
EXPONENTIAL_MAX = Option(
    "restart-strategy.exponential-delay.max-backoff",
    DURATION,
    "1 min",
    "The longest pause before a restart.",
    SAME,
)
EXPONENTIAL_MULTIPLIER = Option(
    "restart-strategy.exponential-delay.backoff-multiplier",
    FACTOR,
    "1.5",
    "What each pause is multiplied by to give the next.",
    SAME,
)
EXPONENTIAL_JITTER = Option(
    "restart-strategy.exponential-delay.jitter-factor",
    FACTOR,
    "0.1",
    "The share of a pause by which it is made longer or shorter at random.",
    SAME,
)
EXPONENTIAL_RESET = Option(
    "restart-strategy.exponential-delay.reset-backoff-threshold",
    DURATION,
    "1 h",
    "How long an attempt must have run for its failure to count as the first one again.",
    SAME,
)

# --- cleanup ------------------------------------------------------------------------------------

CLEANUP_TYPE = Option(
    "cleanup-strategy.type",
    choice(
        "none",
        "fixed-delay",
        "exponential-delay",
        aliases={
            "off": "none",
            "disable": "none",
            "fixeddelay": "fixed-delay",
            "exponentialdelay": "exponential-delay",
        },
    ),
    "exponential-delay",
    "How a step of the cleanup that failed is tried again.",
    SAME,
)
CLEANUP_ATTEMPTS = Option(
    "cleanup-strategy.exponential-delay.attempts",
    COUNT,
    "infinite",
    "How often a failed step is tried again; then it is left to `understudy cleanup`.",
    SAME,
)
CLEANUP_INITIAL = Option(
    "cleanup-strategy.exponential-delay.initial-backoff",
    DURATION,
    "1 s",
    "The first pause before a step is tried again; doubled each time.",
    SAME,
)
CLEANUP_MAX = Option(
    "cleanup-strategy.exponential-delay.max-backoff",
    DURATION,
    "1 h",
    "The longest pause before a step is tried again.",
    SAME,
)
CLEANUP_FIXED_ATTEMPTS = Option(
    "cleanup-strategy.fixed-delay.attempts",
    COUNT,
    "infinite",
    "How often a failed step is tried again with cleanup-strategy.type fixed-delay.",
    SAME,
)
CLEANUP_FIXED_DELAY = Option(
    "cleanup-strategy.fixed-delay.delay",
    DURATION,
    "1 min",
    "The pause before a step is tried again with cleanup-strategy.type fixed-delay.",
    SAME,
)

# --- processes ----------------------------------------------------------------------------------

ADOPTION_GRACE = Option(
    "jobmanager.adoption-grace",
    DURATION,
    "40 s",
    "How long a leader waits for a silent TaskManager before its attempts count as dead without "
    "proof. Must be longer than taskmanager.orphan-timeout × 1.05 and the time a kill takes.",
)
MAIN_HEARTBEAT = Option(
    "jobmanager.application-process.heartbeat-timeout",
    LONG_PERIOD,
    "30 s",
    "How long the process that runs main may be silent before its guardian kills it.",
)
ORPHAN_TIMEOUT = Option(
    "taskmanager.orphan-timeout",
    PERIOD,
    "30 s",
    "How long a TaskManager that hears no leader lets its drivers run on.",
)
SLOTS = Option(
    "taskmanager.numberOfTaskSlots",
    bounded(1, DRIVERS_MAX),
    "2",
    "How many jobs a TaskManager runs at once, each in a driver of its own.",
    "default 1 there",
)
SPARES = Option(
    "taskmanager.spare-drivers",
    bounded(0, DRIVERS_MAX),
    "1",
    "Warm drivers beyond the slots, so that a restart need not wait for Spark to start.",
)
DRIVER_HEARTBEAT = Option(
    "taskmanager.driver.heartbeat-timeout",
    LONG_PERIOD,
    "30 s",
    "How long a driver's Python, or its JVM, may be silent before its guardian kills the driver.",
)
DRIVER_START = Option(
    "taskmanager.driver.start-timeout",
    LONG_PERIOD,
    "3 min",
    "How long a driver may take until its SparkSession is warm.",
)
CANCEL_GRACE = Option(
    "taskmanager.driver.cancel-grace",
    DURATION,
    "5 s",
    "How long a cancelled job has, after its Spark jobs were interrupted, before its driver is "
    "killed.",
)
DRIVER_KIND = Option(
    "taskmanager.driver.type",
    choice("spark", "session-less"),
    "spark",
    "What a slot runs jobs in: a driver with a SparkSession, or (for testing pipelines' control "
    "flow under failure) the same process without Spark.",
)
HEARTBEAT_INTERVAL = Option(
    "heartbeat.interval",
    PERIOD,
    "5 s",
    "How often TaskManager and leader say that they are there.",
    "10 s there: a TaskManager should hear several within taskmanager.orphan-timeout",
)
TMP_DIRS = Option(
    "io.tmp.dirs",
    TEXT,
    None,
    "Where drivers keep scratch data (shuffle files) unless spark.local.dir says otherwise. "
    "Unset: the system's temporary directory.",
    SAME,
)
LOG_DIR = Option(
    "env.log.dir",
    TEXT,
    None,
    "Where the logs of applications go. Unset: $XDG_STATE_HOME/understudy/logs.",
    SAME,
)
LOG_MAX = Option(
    "env.log.max",
    POSITIVE,
    "10",
    "Of how many applications the logs are kept; the oldest are removed.",
    "old log files of a process there",
)
LOG_LEVEL = Option(
    "env.log.level",
    choice("debug", "info", "warn", "error"),
    "info",
    "How much the processes of the cluster log.",
    SAME,
)

# --- addresses and clients ----------------------------------------------------------------------

RPC_ADDRESS = Option(
    "jobmanager.rpc.address",
    TEXT,
    "localhost",
    "With high-availability.type NONE only: where TaskManagers find the JobManager. Only this "
    "host, as the processes of a cluster are linked by Unix sockets.",
    "no default there",
)
RPC_PORT = Option(
    "jobmanager.rpc.port",
    PORT,
    "6123",
    "With high-availability.type NONE only: tells clusters of one host apart; it names a Unix "
    "socket, no port is opened.",
    SAME,
)
REST_ADDRESS = Option(
    "rest.address",
    TEXT,
    "localhost",
    "With high-availability.type NONE only: where clients find the JobManager.",
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
    "The address that the REST endpoint listens on. Only loopback, as there is no authentication.",
    SAME,
)
REST_BIND_PORT = Option(
    "rest.bind-port",
    PORTS,
    "8081-8180",
    "The ports that the REST endpoint tries, in order; 0 is any free one.",
    "8081 there: several JobManagers of one host need several",
)
SHUTDOWN_ON_FINISH = Option(
    "execution.shutdown-on-application-finish",
    BOOLEAN,
    "true",
    "Application mode: the JobManagers end when the application has ended and is cleaned up.",
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
    "How long a client waits for somebody to lead.",
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
REDACTED_KEYS = Option(
    "security.redaction.additional-keys",
    WORDS,
    "",
    "Further parts of keys whose values are never shown, beside the built-in ones.",
    SAME,
)

OPTIONS: tuple[Option[object], ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Option)
)
"""All of them, in the order of declaration."""

PASSED_ON = ("spark.",)
"""Prefixes of keys that are not ours to read: they go to Spark as they are."""
