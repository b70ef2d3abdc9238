"""Options of jobs and applications, and of their restarts."""

from __future__ import annotations

from understudy.config.option import (
    BOOLEAN,
    CLASS_NAMES,
    COUNT,
    DURATION,
    FACTOR,
    HEX_ID,
    PERIOD,
    POSITIVE,
    SAME,
    SIZE,
    Option,
    bounded,
    choice,
)

PRIORITY_MAX = 1_000_000
"""Largest priority: more than anybody needs."""

JOBS_LIMIT = 1_000_000
"""Most jobs of an application, more than a leader can keep: a limit against mistyped numbers."""

TERMINATE_ON_JOB_FAILURE = Option(
    "execution.terminate-application-on-any-job-terminated-exceptionally",
    BOOLEAN,
    None,
    "Unset: a failed job fails the application unless main catches its JobFailed, and "
    "a cancelled one cancels it unless main catches its JobCanceled. true: any "
    "failed or cancelled job fails or cancels the application at once. false: the application is "
    "FINISHED once main has returned, whatever its jobs did, and jobs still running are cancelled.",
    "default true there",
)
PRIORITY = Option(
    "application.priority",
    bounded(0, PRIORITY_MAX),
    "0",
    "Applications of higher priority get slots, and execute main, before others.",
)
JOBS_MAX = Option(
    "application.max-jobs",
    bounded(1, JOBS_LIMIT),
    "10000",
    "How many jobs an application may have; main gets a SubmissionError for the next one.",
)
UNREACHED_GRACE = Option(
    "execution.recovery.unreached-grace",
    DURATION,
    "5 s",
    "After a failover: how long a job that has no slot, or that the last execution of main had "
    "not submitted, waits for main to reach the attempts that still run; then these are stopped.",
)
FIRST_JOB_ID = Option(
    "$internal.pipeline.job-id",
    HEX_ID,
    None,
    "The id of the first job, 32 hexadecimal digits. Refused if another run of the cluster used "
    "it.",
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
NO_RETRY = Option(
    "restart-strategy.no-retry",
    CLASS_NAMES,
    "AnalysisException, ParseException, NameError, ImportError, SyntaxError",
    "The exceptions of a job's function that fail the job at once, whatever the strategy allows: "
    "names of classes, with or without their module; subclasses count, too. "
    "env.execute(…, no_retry=…) replaces the list for one job. Empty: the strategy decides about "
    "each of them. A function that cannot be called with its arguments, and what Understudy itself "
    "refuses, is never retried.",
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
    "delay, so a failover neither forgets a failure nor ages one.",
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
    "Ten losses of its process weigh as much as one exception; a completed checkpoint resets the "
    "count of losses.",
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
    "The factor from each pause to the next.",
    SAME,
)
EXPONENTIAL_JITTER = Option(
    "restart-strategy.exponential-delay.jitter-factor",
    FACTOR,
    "0.1",
    "The share of a pause by which it is randomly lengthened or shortened.",
    SAME,
)
EXPONENTIAL_RESET = Option(
    "restart-strategy.exponential-delay.reset-backoff-threshold",
    DURATION,
    "1 h",
    "How long an attempt must have run for its failure to count as the first one.",
    SAME,
)
