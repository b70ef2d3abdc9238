"""The clusters and runs that are crashed: no chance in them, so that the N-th write is known.

Two JobManagers and a TaskManager; none, one or three jobs; a run that finishes, fails or is
cancelled; results that are kept or not.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from pathlib import Path

from tests.sim.program import Job, Odds, Profile, Program
from understudy.config import Configuration
from understudy.core.lease import Timing
from understudy.jobmanager.submission import Submission
from understudy.process.code import SourceFile

FILES = tuple(
    SourceFile(Path(__file__).parents[1] / name, f"app/{name.replace('/', '-')}")
    for name in ("ha/__init__.py", "sim/__init__.py")
)
"""What is stored as the application's code: any two files."""

SUBMISSION = Submission("flights", "app.py", "/app.py", (), "", FILES)

LONG_AGO_S = 10.0
"""No fault that is over already excuses anything."""

ENDS = ("finished", "failed", "cancelled")
LONG_S = 10_000.0
"""What lasts so long is cancelled."""


@dataclass(frozen=True)
class Combination:
    """One kind of run."""

    jobs: int
    end: str
    keep: bool
    """``delete-on-commit`` is false."""

    def __str__(self) -> str:
        """Say which it is, for people."""
        return f"{self.jobs}-{self.end}-{'kept' if self.keep else 'deleted'}"

    @property
    def program(self) -> Program:
        """Return what ``main`` does."""
        cancelled, failed = self.end == "cancelled", self.end == "failed"
        last_s = LONG_S if cancelled else 0.5
        raises = 99 if failed else 0
        if self.jobs == 0:
            return Program((), lasts_s=LONG_S if cancelled else 1.0, raises=failed)
        if self.jobs == 1:
            # Where it ends by itself it keeps a state on the way, and goes on from it.
            saves = not cancelled
            return Program(((Job("a", last_s, raises, steps=2 * saves, saves=saves),),))
        both = (Job("b", LONG_S if cancelled else 1.0), Job("c", last_s, raises))
        return Program(((Job("a", 0.5),), both))


COMBINATIONS = [
    Combination(jobs, end, keep)
    for jobs, end, keep in itertools.product((0, 1, 3), ENDS, (False, True))
]


@dataclass
class QuietProfile(Profile):
    """A cluster to which nothing happens but what a test does to it."""

    @property
    def configuration(self) -> Configuration:
        """See `Profile.configuration`; a job that fails is tried once more, soon."""
        return _configuration(self.keep_results)


@functools.cache
def _configuration(keep: bool) -> Configuration:
    settings = {
        "taskmanager.orphan-timeout": "30 s",
        "jobmanager.adoption-grace": "40 s",
        "application-result-store.delete-on-commit": str(not keep).lower(),
        "taskmanager.driver.type": "session-less",
        # Losses, which are what a crash brings, do not count as exceptions here.
        "restart-strategy.type": "exponential-delay",
        "restart-strategy.exponential-delay.attempts-before-reset-backoff": "1",
        "cleanup-strategy.exponential-delay.max-backoff": "1 min",
    }
    return Configuration(settings)


def profile_of(combination: Combination, *, one_host: bool) -> Profile:
    """Return the cluster for a run; on several hosts, nobody can prove another one's death."""
    return QuietProfile(
        seed=0,
        jobmanagers=2,
        taskmanagers=1,
        slots=2,
        spares=0,
        one_host=one_host,
        locks=one_host,
        drift=0.0,
        timing=Timing(15.0, 10.0, 2.0),
        keep_results=combination.keep,
        run_id_given=combination.keep,
        program=combination.program,
        register=Odds(),
        storage=Odds(),
        faults_end=-LONG_AGO_S,
    )
