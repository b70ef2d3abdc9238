"""One run of ``waves.py`` under signals, and its verdict."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.invariants import violations
from tests.chaos.signals import Signals
from tests.journeys import harness
from tests.journeys.harness import COMMAND, SESSION_LESS, GoneError, Run

STEADFAST = (
    *("-D", "restart-strategy.type=fixed-delay"),
    *("-D", "restart-strategy.fixed-delay.attempts=1000000"),
    *("-D", "restart-strategy.fixed-delay.delay=10ms"),
)
"""However often something is killed, it is started again at once."""

ON_SPARK = ("--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=2")
END_S = 300.0
"""Once nothing strikes any more the run must end within this: it takes seconds, or an adoption
grace and a few backoffs."""


@dataclass(frozen=True)
class Plan:
    """What is done to the run."""

    seed: int
    signals: int
    mean_pause_s: float = 1.5
    spark: bool = False
    taskmanagers: int = 2
    job_s: float = 2.0
    defaults: bool = False
    """Whether to leave timeouts and restart strategy as a user finds them."""


@dataclass
class Verdict:
    """What was seen."""

    plan: Plan
    violations: list[str] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    waves: int = 0
    takeovers: int = 0
    attempts: int = 0

    def summary(self) -> str:
        """Return it in one paragraph."""
        told = (
            f"seed {self.plan.seed}: {self.plan.signals} signals, {self.takeovers} takeovers, "
            f"{self.attempts} executions: "
        )
        return told + ("; ".join(self.violations) if self.violations else "nothing violated")


def run(plan: Plan, place: Path) -> Verdict:
    """Start the application, strike it, let it end, and judge."""
    script = harness.put_app(place, "waves.py")
    kind = ON_SPARK if plan.spark else SESSION_LESS
    scratch = ("-D", f"io.tmp.dirs={place / 'tmp'}")
    line = [*COMMAND, "run-application", "--json", *kind, *scratch]
    line += [] if plan.defaults else [*STEADFAST, *harness.impatient()]
    line += ["--taskmanagers", str(plan.taskmanagers), str(script)]
    line += [str(plan.job_s), *(["spark"] if plan.spark else [])]
    one = Run(line, place, place / "stderr.log")
    verdict = Verdict(plan)
    signals = Signals(one, plan.seed)
    try:
        one.grown("marks.jsonl", 5)
        _strike(one, signals, plan)
        one.release()
        code = one.finish(END_S)
        if code != 0:
            verdict.violations.append(f"exit code {code}")
    except GoneError as error:
        verdict.violations.append(str(error))
    finally:
        verdict.story = signals.told
        _judge(verdict, one)
        harness.end(one)
    return verdict


def _strike(one: Run, signals: Signals, plan: Plan) -> None:
    chance = random.Random(f"pauses {plan.seed}")
    for _ in range(plan.signals):
        until = time.monotonic() + chance.expovariate(1 / plan.mean_pause_s)
        while time.monotonic() < until:
            signals.go_on()
            time.sleep(0.02)
        if one.process.poll() is not None:
            raise GoneError(f"the run ended under way\n{one.story()}")
        signals.strike()
    signals.go_on(everything=True)


def _judge(verdict: Verdict, one: Run) -> None:
    marks = one.lines("marks.jsonl")
    verdict.violations += violations(marks, one.events)
    verdict.takeovers = len(one.of("takeover"))
    verdict.attempts = sum('"begins"' in mark for mark in marks)
    deadline = time.monotonic() + 10
    while (left := harness.processes_of(one.place)) and time.monotonic() < deadline:
        time.sleep(0.1)
    if left:
        verdict.violations.append(f"left running: {left}")
    if one.process.poll() == 0 and (stored := harness.stored(one.place)):
        verdict.violations.append(f"left in storage: {stored}")
