"""Options of the retries of the cleanup."""

from __future__ import annotations

from understudy.config.option import COUNT, DURATION, SAME, Option, choice

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
    "How a failed step of the cleanup is retried.",
    SAME,
)
CLEANUP_ATTEMPTS = Option(
    "cleanup-strategy.exponential-delay.attempts",
    COUNT,
    "infinite",
    "How often a failed step is retried; after that it is left to `understudy cleanup`.",
    SAME,
)
CLEANUP_INITIAL = Option(
    "cleanup-strategy.exponential-delay.initial-backoff",
    DURATION,
    "1 s",
    "The first pause before a retry; each further pause is twice as long.",
    SAME,
)
CLEANUP_MAX = Option(
    "cleanup-strategy.exponential-delay.max-backoff",
    DURATION,
    "1 h",
    "The longest pause before a retry.",
    SAME,
)
CLEANUP_FIXED_ATTEMPTS = Option(
    "cleanup-strategy.fixed-delay.attempts",
    COUNT,
    "infinite",
    "How often a failed step is retried with cleanup-strategy.type fixed-delay.",
    SAME,
)
CLEANUP_FIXED_DELAY = Option(
    "cleanup-strategy.fixed-delay.delay",
    DURATION,
    "1 min",
    "The pause before a retry with cleanup-strategy.type fixed-delay.",
    SAME,
)
