"""JobManagers, TaskManagers and drivers on their host."""

from __future__ import annotations

from understudy.config.option import (
    DURATION,
    LONG_PERIOD,
    PERIOD,
    POSITIVE,
    SAME,
    TEXT,
    Option,
    bounded,
    choice,
)

DRIVERS_MAX = 1_000
"""More processes than one machine has a use for; a number that was mistyped must not start them."""

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
DRIVER_REUSE = Option(
    "taskmanager.driver.reuse",
    choice("always", "application", "never"),
    "application",
    "Whether a driver serves more than one job. Each job runs in a Python process of its own; what "
    "jobs share is the driver's JVM. application: the jobs of one application share it, as long as "
    "none leaves anything in it (docs/drivers.md says what is looked for). always: what is left in "
    "the JVM is logged, and the next job of the application meets it. never: a driver for each "
    "job.",
)
EXECUTORS_KEEP_IDLE = Option(
    "taskmanager.executors.keep-idle",
    DURATION,
    "0 s",
    "How long the executors of a Spark cluster stay with a driver after its job, for the next job "
    "of that driver. 0: they go with the job, and each attempt is a Spark application of its own, "
    "named after it. Longer: the next job starts without waiting for executors, and runs in the "
    "Spark application, under the name, of the job before it.",
)
EXECUTORS_WAIT = Option(
    "taskmanager.executors.wait-timeout",
    PERIOD,
    None,
    "How long a job may be without executors of the Spark cluster before it fails. Unset: it waits "
    "as long as the cluster is full, and says so.",
    "compare slot.request.timeout there",
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
    "Unset: the system's temporary directory; liveness locks that do not lie in storage go below "
    "$XDG_RUNTIME_DIR first, where that is the user's alone. Each directory made there is closed "
    "to other users; one that another user may have made is refused.",
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
