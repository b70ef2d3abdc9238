"""Whether, and when, to try again after an attempt failed or was lost.

Two things end an attempt early. An *exception* came from the function: it may come again, so the
restart waits the strategy's backoff and is counted against its attempts. A *loss* (the driver,
the TaskManager or the process of ``main`` died) says little about the function: the first restart
is immediate and counts. An attempt that was lost soon after it started is treated with growing
suspicion, for a function that kills its own process looks just like that; one that had run for a
while is not.
"""

from __future__ import annotations

from dataclasses import dataclass

from understudy.config import Configuration, options
from understudy.config.option import INFINITE
from understudy.model import Restarts

STABLE_S = 5.0
"""An attempt that ran this long before it was lost does not look like one that kills itself."""

EARLY_LOSSES_MAX = 30
"""So many losses in a row, each soon after the start, are the job's own doing: about 25 minutes
with the default backoff."""

GROWTH_MAX = 1e300
"""What stands for a growth beyond what a float can hold; every pause is bounded far below."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """A restart strategy: Flink's ``none``, ``fixed-delay`` and ``exponential-delay``."""

    kind: str = "exponential-delay"
    attempts: int = 3
    initial_s: float = 1.0
    maximum_s: float = 60.0
    multiplier: float = 1.5
    jitter: float = 0.1
    reset_s: float = 3600.0

    @staticmethod
    def of(configuration: Configuration) -> Strategy:
        """Return the configured strategy."""
        kind = configuration.get(options.RESTART_TYPE)
        if kind == "fixed-delay":
            delay = configuration.get(options.FIXED_DELAY)
            attempts = configuration.get(options.FIXED_ATTEMPTS)
            return Strategy(kind, attempts, delay, delay, 1.0, 0.0, float("inf"))
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


@dataclass(frozen=True, slots=True)
class Again:
    """Try again after ``delay_s``, with this count from then on."""

    delay_s: float
    restarts: Restarts


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Do not try again; ``reason`` ends the sentence "not restarted: …"."""

    reason: str


def after_exception(
    strategy: Strategy, restarts: Restarts, ran_s: float, chance: float
) -> Again | GiveUp:
    """Decide after an exception of the function; ``chance`` in [0, 1) draws the jitter."""
    failures = 0 if ran_s >= strategy.reset_s else restarts.failures
    if strategy.kind == "none":
        return GiveUp("the restart strategy is 'none'")
    used = failures + (restarts.losses if strategy.kind == "fixed-delay" else 0)
    if used >= strategy.attempts:
        return GiveUp(f"the restart strategy allows {_times(strategy.attempts)}")
    # An attempt that ran for a while breaks a row of early losses, however it ends.
    unbroken = strategy.kind == "fixed-delay" or ran_s < STABLE_S
    losses = restarts.losses if unbroken else 0
    counted = Restarts(failures=failures + 1, losses=losses)
    return Again(_backoff(strategy, failures, chance), counted)


def after_loss(
    strategy: Strategy, restarts: Restarts, ran_s: float, chance: float
) -> Again | GiveUp:
    """Decide after the attempt's process was lost."""
    if strategy.kind == "none":
        return GiveUp("the restart strategy is 'none'")
    if strategy.kind == "fixed-delay":
        if restarts.failures + restarts.losses >= strategy.attempts:
            return GiveUp(f"the restart strategy allows {_times(strategy.attempts)}")
        delay_s = strategy.initial_s if restarts.losses else 0.0
        return Again(delay_s, Restarts(failures=restarts.failures, losses=restarts.losses + 1))
    losses = 0 if ran_s >= STABLE_S else restarts.losses
    limit = min(EARLY_LOSSES_MAX, strategy.attempts * 10)
    if losses >= limit:
        return GiveUp(f"its process was lost {losses + 1} times in a row soon after it started")
    immediate = losses == 0 or ran_s >= strategy.initial_s
    delay_s = 0.0 if immediate else _backoff(strategy, losses - 1, chance)
    return Again(delay_s, Restarts(failures=restarts.failures, losses=losses + 1))


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
