"""Whether, and when, to try again after an attempt failed or was lost.

Two things end an attempt early. An *exception* came from the function: it may come again, so the
restart waits the strategy's backoff and is counted against its attempts. A *loss* (the driver,
the TaskManager or the process of ``main`` died) says little about the function: the first restart
is immediate and counts, but ten losses weigh as much as one exception. For a function that kills
its own process looks just like a cluster that is being repaired: it may be tried more often, and
not for ever. An attempt that is lost soon after it started waits the backoff, too. One that had
completed a checkpoint has brought the job further: with it the count of losses begins anew, so that
a streaming job, which has no end, outlives any number of them.

``failure-rate`` counts both alike: so many restarts within an interval, no more. The interval is
time in which the job ran or waited for its delay, added up from durations, each measured by one
machine from beginning to end; no point in time of another machine's clock takes part. So a failover
neither forgets a failure nor ages one: the counted failures are stored with the intent, the attempt
that runs on through the failover is timed by the process that runs it, and an attempt whose end
nobody counted before the failover is counted after it, with the same duration. What the job waits
for a slot, a leader or ``main`` does not age failures either: the window can only be too long, so
a job may be given up early, never restarted for ever.
"""

from __future__ import annotations

from msgspec import Struct

from understudy.config import Configuration, options
from understudy.config.option import INFINITE
from understudy.model import Restarts

FAILURE_RATE = "failure-rate"

AGE_DIGITS = 3
"""Ages are kept to the millisecond: about 8 bytes each in the register."""

LOSSES_PER_ATTEMPT = 10
"""So many losses weigh as much as one exception: 30 in a row by default, about 25 minutes if each
comes soon after the start."""

GROWTH_MAX = 1e300
"""What stands for a growth beyond what a float can hold; every pause is bounded far below."""


class Strategy(Struct, frozen=True):
    """A restart strategy of Flink's: none, fixed-delay, failure-rate or exponential-delay."""

    kind: str = "exponential-delay"
    attempts: int = 3
    initial_s: float = 1.0
    maximum_s: float = 60.0
    multiplier: float = 1.5
    jitter: float = 0.1
    reset_s: float = 3600.0
    interval_s: float = 0.0
    """The interval in which ``failure-rate`` counts."""

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
    """Try again after ``delay_s``, with this count from then on."""

    delay_s: float
    restarts: Restarts


class GiveUp(Struct, frozen=True):
    """Do not try again; ``reason`` ends the sentence "not restarted: …"."""

    reason: str


def after_exception(
    strategy: Strategy, restarts: Restarts, ran_s: float, chance: float
) -> Again | GiveUp:
    """Decide after an exception of the function; ``chance`` in [0, 1) draws the jitter."""
    failures = 0 if ran_s >= strategy.reset_s else restarts.failures
    if strategy.kind == "none":
        return GiveUp("the restart strategy is 'none'")
    if strategy.kind == FAILURE_RATE:
        return _within_rate(strategy, restarts, ran_s, lost=False)
    used = failures + (restarts.losses if strategy.kind == "fixed-delay" else 0)
    if used >= strategy.attempts:
        return GiveUp(f"the restart strategy allows {_times(strategy.attempts)}")
    losses = 0 if ran_s >= strategy.reset_s else restarts.losses
    counted = Restarts(failures=failures + 1, losses=losses)
    return Again(_backoff(strategy, failures, chance), counted)


def after_loss(
    strategy: Strategy, restarts: Restarts, ran_s: float, chance: float, advanced: bool = False
) -> Again | GiveUp:
    """Decide after the attempt's process was lost; ``advanced`` if it had completed a checkpoint.

    Strategies whose counts a person has chosen keep to them.
    """
    if strategy.kind == "none":
        return GiveUp("the restart strategy is 'none'")
    if strategy.kind == FAILURE_RATE:
        return _within_rate(strategy, restarts, ran_s, lost=True)
    if strategy.kind == "fixed-delay":
        if restarts.failures + restarts.losses >= strategy.attempts:
            return GiveUp(f"the restart strategy allows {_times(strategy.attempts)}")
        delay_s = strategy.initial_s if restarts.losses else 0.0
        return Again(delay_s, Restarts(failures=restarts.failures, losses=restarts.losses + 1))
    losses = 0 if advanced or ran_s >= strategy.reset_s else restarts.losses
    limit = strategy.attempts * LOSSES_PER_ATTEMPT
    if strategy.attempts < INFINITE and losses >= limit:
        return GiveUp(f"its process was lost {losses + 1} times in a row")
    immediate = losses == 0 or ran_s >= strategy.initial_s
    delay_s = 0.0 if immediate else _backoff(strategy, losses - 1, chance)
    return Again(delay_s, Restarts(failures=restarts.failures, losses=losses + 1))


def _within_rate(
    strategy: Strategy, restarts: Restarts, ran_s: float, *, lost: bool
) -> Again | GiveUp:
    """Restart while the interval that ends with this failure holds few enough earlier ones.

    A failure that is just as old as the interval still counts, as in Flink.
    """
    aged = (age + max(0.0, ran_s) for age in restarts.ages)
    recent = [age for age in aged if age <= strategy.interval_s]
    if len(recent) >= strategy.attempts:
        times = _times(strategy.attempts)
        return GiveUp(f"the restart strategy allows {times} within {strategy.interval_s:g} s")
    losses = restarts.losses if recent else 0
    failures = restarts.failures if recent else 0
    delay_s = 0.0 if lost and losses == 0 else strategy.initial_s
    # As old as they will be when the next attempt begins.
    ages = tuple(round(age + delay_s, AGE_DIGITS) for age in (*recent, 0.0))
    counted = Restarts(failures=failures + (not lost), losses=losses + lost, ages=ages)
    return Again(delay_s, counted)


def _backoff(strategy: Strategy, earlier: int, chance: float) -> float:
    try:
        growth = strategy.multiplier**earlier
    except OverflowError:
        growth = GROWTH_MAX
    spread = 1 + strategy.jitter * (2 * chance - 1)
    # Bounded before the jitter, so that long pauses differ too, and after it.
    delay_s = min(strategy.initial_s * growth, strategy.maximum_s) * spread
    return max(0.0, min(delay_s, strategy.maximum_s))


def _times(attempts: int) -> str:
    if attempts >= INFINITE:
        return "restarts without limit"
    return {0: "no restart", 1: "one restart"}.get(attempts, f"{attempts} restarts")
