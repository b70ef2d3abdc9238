"""``python -m tests.chaos``: one run under random signals; prints the seed, the blows, the verdict.

Any number of signals, to a run with real Spark or with the session-less driver. What is judged is
what the functions have marked in files, the events, the exit code, and what is left.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.run import Plan, run


def main() -> int:
    """Run it; the exit code tells whether anything was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--signals", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument(
        "--spark", action="store_true", help="real Spark, not the session-less driver"
    )
    parser.add_argument("--pause", type=float, default=1.5, help="mean seconds between two signals")
    parser.add_argument("--taskmanagers", type=int, default=2)
    parser.add_argument("--defaults", action="store_true", help="default timeouts and restarts")
    arguments = parser.parse_args()
    plan = Plan(
        arguments.seed,
        arguments.signals,
        arguments.pause,
        arguments.spark,
        arguments.taskmanagers,
        defaults=arguments.defaults,
    )
    place = Path(tempfile.mkdtemp(prefix="understudy-chaos-"))
    print(f"{plan}, in {place}", flush=True)
    verdict = run(plan, place)
    print("\n".join(verdict.story))
    print(verdict.summary())
    if not verdict.violations:
        shutil.rmtree(place)
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
