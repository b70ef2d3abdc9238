"""Options of JobManagers, TaskManagers and drivers, their Python, and their hosts."""

from __future__ import annotations

from understudy.config.option import (
    BOOLEAN,
    DURATION,
    LONG_PERIOD,
    PERIOD,
    POSITIVE,
    REQUIREMENTS,
    SAME,
    SHARED_PLACES,
    SIZE,
    TEXT,
    Option,
    bounded,
    choice,
)

DRIVERS_MAX = 1_000
"""Most drivers of a TaskManager, more than any host can use: a limit against mistyped numbers."""

PROCESSES_MAX = 4_000_000
"""Most processes that Linux can have."""

MAINS_LIMIT = 10_000
"""Most processes of main, more than any host can use: a limit against mistyped numbers."""

ADOPTION_GRACE = Option(
    "jobmanager.adoption-grace",
    DURATION,
    "40 s",
    "How long a leader waits for a silent TaskManager before its attempts count as dead without "
    "proof. Must be longer than taskmanager.orphan-timeout × 1.05 plus the time of a kill.",
)
SESSION = Option(
    "jobmanager.session",
    BOOLEAN,
    "false",
    "The JobManager leads without an application of its own, and takes applications over REST "
    "until somebody stops it: `understudy session start` sets this. All JobManagers of a cluster "
    "must have the same value. It needs high availability.",
    "not there: the entry point of the cluster decides",
)
MAIN_HEARTBEAT = Option(
    "jobmanager.application-process.heartbeat-timeout",
    LONG_PERIOD,
    "30 s",
    "How long the process that runs main may be silent before its guardian kills it.",
)
MAINS_MAX = Option(
    "jobmanager.application-process.max",
    bounded(1, MAINS_LIMIT),
    "50",
    "How many applications execute main at once, each in a process of its own; others wait.",
)
MAIN_MEMORY = Option(
    "jobmanager.application-process.max-memory",
    SIZE,
    "4 gb",
    "How much memory the process that runs main may use, with all processes that it starts. One "
    "that uses more is killed, and its application fails: large data belong in jobs.",
)
MAIN_PROCESSES = Option(
    "jobmanager.application-process.max-processes",
    bounded(1, PROCESSES_MAX),
    "1000",
    "How many processes the process that runs main may have started at once; with more, all are "
    "killed, and the application fails.",
)
ORPHAN_TIMEOUT = Option(
    "taskmanager.orphan-timeout",
    PERIOD,
    "30 s",
    "How long the drivers of a TaskManager that finds no leader may continue to run.",
)
DRAIN_TIMEOUT = Option(
    "taskmanager.drain-timeout",
    DURATION,
    "0 s",
    "How long the jobs of a TaskManager that is asked to end (SIGTERM) may continue: each is "
    "handed over once it has completed a checkpoint, and at the end of this time in any case. 0: "
    "at once. On Kubernetes, at least 25 s less than the pod's terminationGracePeriodSeconds.",
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
    "Warm drivers in addition to the slots, so that a restart need not wait for Spark to start.",
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
DRIVER_MEMORY = Option(
    "taskmanager.driver.max-memory",
    SIZE,
    None,
    "How much memory a driver may use: its Python, its JVM, and all processes that they start. One "
    "that uses more is killed, and its job is restarted as after any loss of a driver. Unset: nine "
    "tenths of the machine's memory.",
    "taskmanager.memory.process.size there, divided among the slots",
)
DRIVER_PROCESSES = Option(
    "taskmanager.driver.max-processes",
    bounded(1, PROCESSES_MAX),
    "1000",
    "How many processes a driver may have started at once; with more, all are killed.",
)
CANCEL_GRACE = Option(
    "taskmanager.driver.cancel-grace",
    DURATION,
    "5 s",
    "How long a cancelled job may still run after its Spark jobs were interrupted, before its "
    "driver is killed.",
)
DRIVER_KIND = Option(
    "taskmanager.driver.type",
    choice("spark", "session-less"),
    "spark",
    "What runs jobs in a slot: a driver with a SparkSession, or (to test the control flow of "
    "pipelines under failure) the same process without Spark.",
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
DRIVER_CLASS_DATA_SHARING = Option(
    "taskmanager.driver.class-data-sharing",
    BOOLEAN,
    "true",
    "Whether the JVMs of drivers start from an archive of Spark's classes, with half the CPU time. "
    "The first driver has it built in the background, once for each Java, Spark and class path, "
    "below $XDG_CACHE_HOME/understudy, where $XDG_CACHE_HOME is ~/.cache unless set "
    "(docs/drivers.md).",
)
EXECUTORS_KEEP_IDLE = Option(
    "taskmanager.executors.keep-idle",
    DURATION,
    "0 s",
    "How long the executors of a Spark cluster stay with a driver after its job, for the driver's "
    "next job. 0: they end with the job, and each attempt is a Spark application of its own, "
    "named after the attempt. Longer: the next job starts without waiting for executors, and runs "
    "in the previous job's Spark application, under that name.",
)
MASTER_TIMEOUT = Option(
    "taskmanager.executors.master-timeout",
    DURATION,
    "5 s",
    "How long `understudy run-application` tries to reach the master of spark://host:port before "
    "it refuses to start. Longer: the start waits for a Master that is still starting. 0: the "
    "start does not check, and each driver tries.",
)
EXECUTORS_WAIT = Option(
    "taskmanager.executors.wait-timeout",
    PERIOD,
    None,
    "How long a job may be without executors of the Spark cluster before it fails. Unset: the job "
    "waits as long as the cluster is full, and reports that it waits.",
    "compare slot.request.timeout there",
)
HEARTBEAT_INTERVAL = Option(
    "heartbeat.interval",
    PERIOD,
    "5 s",
    "How often TaskManagers and the leader exchange heartbeats.",
    "10 s there; several must fit into taskmanager.orphan-timeout",
)
TMP_DIRS = Option(
    "io.tmp.dirs",
    TEXT,
    None,
    "Where drivers keep scratch data (shuffle files) unless spark.local.dir says otherwise. "
    "Unset: the system's temporary directory; liveness locks that are not in storage go below "
    "$XDG_RUNTIME_DIR first, if only the user can access that. Each directory created there is "
    "closed to other users; one that another user may have created is refused.",
    SAME,
)
LOG_DIR = Option(
    "env.log.dir",
    TEXT,
    None,
    "The directory of the logs of applications. Unset: $XDG_STATE_HOME/understudy/logs.",
    SAME,
)
LOG_MAX = Option(
    "env.log.max",
    POSITIVE,
    "100",
    "The number of applications whose logs are kept; the oldest are removed. More than execute at "
    "once, or a log is removed while its application prints.",
    "old log files of a process there",
)
LOG_MAX_SIZE = Option(
    "env.log.max-size",
    SIZE,
    "64 mb",
    "How large the log of an application may become; then it begins again, and the full one is "
    "kept beside it until the next is full.",
    "size of a log file in log4j's configuration there",
)
LOG_LEVEL = Option(
    "env.log.level",
    choice("debug", "info", "warn", "error"),
    "info",
    "How much the processes of the cluster log.",
    SAME,
)

# --- the Python environments of applications ------------------------------------------------------

PYTHON_REQUIREMENTS = Option(
    "python.requirements",
    REQUIREMENTS,
    None,
    "The text of a requirements file, one requirement a line: the application's processes run in "
    "an environment that has them. --requirements FILE gives the same as a file.",
    "the path of a file there",
)
FIND_LINKS = Option(
    "python.find-links",
    SHARED_PLACES,
    None,
    "Directories of wheels, on each host, and URLs of pages with links to them, in which an "
    "environment's requirements are looked for besides the package index.",
)
NO_INDEX = Option(
    "python.no-index",
    BOOLEAN,
    "false",
    "Whether an environment's requirements are looked for in python.find-links only.",
)
ENVIRONMENT_TIMEOUT = Option(
    "python.environment-timeout",
    LONG_PERIOD,
    "15 min",
    "How long the build of an environment may take. The application fails where it takes longer.",
)

# --- clusters of several hosts: SSH, and where started processes are recorded ---------------------

TASKMANAGER_HOST = Option(
    "taskmanager.host",
    TEXT,
    None,
    "The name of a TaskManager's host wherever TaskManagers are shown. Unset: the host's own name.",
    "others connect to this name there; here the TaskManager connects to others",
)
SSH_COMMAND = Option(
    "env.ssh.command",
    TEXT,
    "ssh",
    "The command with which `understudy cluster` reaches the hosts in conf/masters and "
    "conf/workers; it gets options, the host and a command, as ssh does.",
)
SSH_OPTIONS = Option(
    "env.ssh.opts",
    TEXT,
    "",
    "Further options of ssh, in shell syntax: '-i key -p 2222'. ssh never prompts (BatchMode), so "
    "keys must be in place.",
    SAME,
)
SSH_PYTHON = Option(
    "env.ssh.python",
    TEXT,
    None,
    "The Python on the other hosts in which Understudy is installed. Unset: the path of the "
    "Python that runs `understudy cluster`.",
)
PID_DIR = Option(
    "env.pid.dir",
    TEXT,
    None,
    "Where `understudy cluster` records the processes that it has started on a host. Unset: "
    "$XDG_STATE_HOME/understudy/pids.",
    "a directory that others can write to there",
)
