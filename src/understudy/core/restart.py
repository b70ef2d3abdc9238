"""Restart strategies: whether, and when, to retry after an attempt failed or was lost.

Two things end an attempt early. An *exception* comes from the function and may recur, so the
restart waits for the strategy's backoff and counts against its attempts. A *loss* (the driver, the
TaskManager or the process of ``main`` died) says little about the function: the first restart is
immediate and counts, but ten losses weigh as much as one exception. A function that kills its own
process looks just like a cluster under repair; so losses are retried more often, but not forever.
An attempt that is lost soon after its start waits for the backoff, too. An attempt that completed
a checkpoint has made progress: it resets the count of losses, so that a streaming job, which never
ends, survives any number of them.

``failure-rate`` counts both alike and limits the restarts within an interval. The interval is time
in which the job ran or waited for its delay: a sum of durations, each measured by one machine from
beginning to end, without timestamps of other machines. So a failover neither forgets a failure nor
ages one: the counted failures are stored with the intent, the process that runs an attempt times it
through the failover, and an attempt whose end nobody counted before the failover is counted after
it, with the same duration. Waiting for a slot, a leader or ``main`` does not age failures either:
the window can only be too long, so a job may be given up early but is never restarted forever.

A job may have a limit of its own (``retries``) on the retries of exceptions. The limit replaces the
strategy's, also that of ``none``; the strategy's pauses stay, and so does its rule for losses. The
limit holds for the whole job: no long attempt resets the count.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from understudy.config import Configuration, options
from understudy.config.option import INFINITE
from understudy.model import Restarts

FAILURE_RATE = "failure-rate"

AGE_DIGITS = 3
"""Ages are rounded to milliseconds: about 8 bytes each in the register."""

LOSSES_PER_ATTEMPT = 10
"""Losses that weigh as much as one exception. By default 30 in a row are allowed, about 25 minutes
if each comes soon after the start."""

GROWTH_MAX = 1e300
"""Replaces a growth that overflows a float; every pause is bounded far below."""


class Strategy(Struct, frozen=True):
    """One of Flink's restart strategies: none, fixed-delay, failure-rate or exponential-delay."""

    kind: str = "exponential-delay"
    attempts: int = 3
    initial_s: float = 1.0
    maximum_s: float = 60.0
    multiplier: float = 1.5
    jitter: float = 0.1
    reset_s: float = 3600.0
    interval_s: float = 0.0
    """The interval in which ``failure-rate`` counts."""
    retries: int | None = None
    """The job's own limit on retries of exceptions; None: the strategy's ``attempts``."""

    @staticmethod
    def of(configuration: Configuration) -> Strategy:
        """Return the configured strategy."""
        kind = configuration.get(options.RESTART_TYPE)
        if kind == "fixed-delay":
            delay = configuration.get(options.FIXED_DELAY)
            attempts = configuration.get(options.FIXED_ATTEMPTS)
            return Strategy(kind, attempts, delay, delay, 1.0, 0.0, float("inf"))
        if kind == FAILURE_RATE:
            delay = configuration.get(options.RATE_DELAY)
            failures = configuration.get(options.RATE_FAILURES)
            interval = configuration.get(options.RATE_INTERVAL)
            return Strategy(kind, failures, delay, delay, 1.0, 0.0, float("inf"), interval)
        if kind == "none":
            return Strategy(kind, 0)
        return Strategy(
            kind,
            configuration.get(options.EXPONENTIAL_ATTEMPTS),
            configuration.get(options.EXPONENTIAL_INITIAL),
            configuration.get(options.EXPONENTIAL_MAX),
            configuration.get(options.EXPONENTIAL_MULTIPLIER),
            configuration.get(options.EXPONENTIAL_JITTER),
            configuration.get(options.EXPONENTIAL_RESET),
        )


class Again(Struct, frozen=True):
    """Retry after ``delay_s``, with these new counters."""

    delay_s: float
    restarts: Restarts


class NoRestart(Struct, frozen=True):
    """Do not retry; ``reason`` ends the sentence "not restarted: …"."""

    reason: str


def after_exception(
    strategy: Strategy, restarts: Restarts, ran_s: float, chance: float
) -> Again | NoRestart:
    """Decide after an exception of the function; ``chance`` in [0, 1) determines the jitter."""
    if strategy.retries is not None:
        return _within_retries(strategy, strategy.retries, restarts, ran_s, chance)
    failures = 0 if ran_s >= strategy.reset_s else restarts.failures
    if strategy.kind == "none":
        return NoRestart("the restart strategy is 'none'")
    if strategy.kind == FAILURE_RATE:
        return _within_rate(strategy, restarts, ran_s, lost=False)
    used = failures + (restarts.losses if strategy.kind == "fixed-delay" else 0)
    if used >= strategy.attempts:
        return NoRestart(f"the restart strategy allows {_times(strategy.attempts)}")
    losses = 0 if ran_s >= strategy.reset_s else restarts.losses
    counted = Restarts(failures=failures + 1, losses=losses)
    return Again(_backoff(strategy, failures, chance), counted)


def after_loss(
    strategy: Strategy, restarts: Restarts, ran_s: float, chance: float, advanced: bool = False
) -> Again | NoRestart:
    """Decide after the loss of the attempt's process; ``advanced`` if it completed a checkpoint.

    ``fixed-delay`` and ``failure-rate`` keep to their configured counts and ignore ``advanced``.
    """
    if strategy.kind == "none":
        return NoRestart("the restart strategy is 'none'")
    if strategy.kind == FAILURE_RATE:
        return _within_rate(strategy, restarts, ran_s, lost=True)
    if strategy.kind == "fixed-delay":
        if _exceptions(strategy, restarts) + restarts.losses >= strategy.attempts:
            return NoRestart(f"the restart strategy allows {_times(strategy.attempts)}")
        delay_s = strategy.initial_s if restarts.losses else 0.0
        return Again(delay_s, Restarts(failures=restarts.failures, losses=restarts.losses + 1))
    losses = 0 if advanced or ran_s >= strategy.reset_s else restarts.losses
    limit = strategy.attempts * LOSSES_PER_ATTEMPT
    if strategy.attempts < INFINITE and losses >= limit:
        return NoRestart(f"its process was lost {losses + 1} times in a row")
    immediate = losses == 0 or ran_s >= strategy.initial_s
    delay_s = 0.0 if immediate else _backoff(strategy, losses - 1, chance)
    return Again(delay_s, Restarts(failures=restarts.failures, losses=losses + 1))


def is_listed(classes: Iterable[str], listed: Iterable[str]) -> bool:
    """Return whether a list names one of these classes (``module.Class``).

    A listed name is bare (``AnalysisException``), or begins with the class's module or a package
    around it: people know ``pyspark.errors.AnalysisException``, not the module in which PySpark
    defines the class.
    """
    names = [name.split(".") for name in listed]
    return any(_is_named(one.split("."), name) for one in classes for name in names)


def _is_named(parts: list[str], name: list[str]) -> bool:
    *around, last = name
    return parts[-1] == last and parts[: len(around)] == around


def _within_retries(
    strategy: Strategy, retries: int, restarts: Restarts, ran_s: float, chance: float
) -> Again | NoRestart:
    """Restart if the job's own limit allows one more retry of an exception."""
    if restarts.failures >= retries:
        return NoRestart(f"the job allows {_times(retries)} (retries={retries})")
    delay_s = _backoff(strategy, restarts.failures, chance)
    losses = 0 if ran_s >= strategy.reset_s else restarts.losses
    recent = _recent(strategy, restarts, ran_s)
    ages = tuple(round(age + delay_s, AGE_DIGITS) for age in recent)
    return Again(delay_s, Restarts(failures=restarts.failures + 1, losses=losses, ages=ages))


def _exceptions(strategy: Strategy, restarts: Restarts) -> int:
    """Return how many exceptions count against the strategy's limit."""
    return restarts.failures if strategy.retries is None else 0


def _recent(strategy: Strategy, restarts: Restarts, ran_s: float) -> list[float]:
    """Return the ages of the failures that are still within the interval of ``failure-rate``."""
    aged = (age + max(0.0, ran_s) for age in restarts.ages)
    return [age for age in aged if age <= strategy.interval_s]


def _within_rate(
    strategy: Strategy, restarts: Restarts, ran_s: float, *, lost: bool
) -> Again | NoRestart:
    """Restart if the interval that ends with this failure holds fewer earlier ones than allowed.

    A failure exactly as old as the interval still counts, as in Flink.
    """
    recent = _recent(strategy, restarts, ran_s)
    if len(recent) >= strategy.attempts:
        times = _times(strategy.attempts)
        return NoRestart(f"the restart strategy allows {times} within {strategy.interval_s:g} s")
    losses = restarts.losses if recent else 0
    failures = restarts.failures if recent or strategy.retries is not None else 0
    delay_s = 0.0 if lost and losses == 0 else strategy.initial_s
    # The ages at the start of the next attempt.
    ages = tuple(round(age + delay_s, AGE_DIGITS) for age in (*recent, 0.0))
    counted = Restarts(failures=failures + (not lost), losses=losses + lost, ages=ages)
    return Again(delay_s, counted)


def _backoff(strategy: Strategy, earlier: int, chance: float) -> float:
    try:
        growth = strategy.multiplier**earlier
    except OverflowError:
        growth = GROWTH_MAX
    spread = 1 + strategy.jitter * (2 * chance - 1)
    # Bounded before the jitter, so that long pauses vary, too, and once more after the jitter.
    delay_s = min(strategy.initial_s * growth, strategy.maximum_s) * spread
    return max(0.0, min(delay_s, strategy.maximum_s))


def _times(attempts: int) -> str:
    if attempts >= INFINITE:
        return "restarts without limit"
    return {0: "no restart", 1: "one restart"}.get(attempts, f"{attempts} restarts")
