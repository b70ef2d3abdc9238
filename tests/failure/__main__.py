"""``python -m tests.failure``: the long form; prints the seed, each fault, figures and the verdict.

``--faults N``, ``--windows N`` and ``--retrievals N`` say how many of each; 0 leaves it out.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.failure import faults
from tests.failure import run as failures
from tests.failure.many import spread
from tests.failure.run import Plan
from tests.failure.windows import windows
from tests.support import namespaces


def main() -> int:
    """Run it; the exit code tells whether anything was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.failure", description=__doc__)
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--windows", type=int, default=50)
    parser.add_argument("--retrievals", type=int, default=1000)
    parser.add_argument("--sessions", type=int, default=100, help="which the retrievals share")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds")
    parser.add_argument("--one", action="store_true", help="never two at a time")
    arguments = parser.parse_args()
    for sentence in faults.left_out():
        print(sentence)
    place = Path(tempfile.mkdtemp(prefix="understudy-failure-"))
    print(f"seed {arguments.seed}, in {place}", flush=True)
    wrong = False
    if arguments.faults:
        plan = Plan(arguments.seed, arguments.faults, not arguments.one, arguments.limit)
        verdict = failures.run(plan, place / "faults")
        print(failures.told(verdict))
        wrong |= bool(verdict.violations)
    if arguments.windows and namespaces.available():
        cuts, broken = windows(place / "windows", arguments.windows, -(-arguments.windows // 5))
        gaps = sorted(cut.gap_s for cut in cuts)
        accepted = sum(cut.accepted for cut in cuts)
        print(
            f"{len(cuts)} windows: {accepted} writes accepted after the cut, between two leaders "
            f"{gaps[0]:.2f} s at least, {gaps[len(gaps) // 2]:.2f} s in the median"
        )
        print("\n".join(broken))
        wrong |= bool(broken) or accepted > 0 or gaps[0] < 0
    if arguments.retrievals:
        took, broken = spread(place / "many", arguments.retrievals, arguments.sessions)
        print(
            f"{arguments.retrievals} retrievals on {arguments.sessions} sessions: all have seen a "
            f"change within {', '.join(f'{seconds:.3f}' for seconds in took)} s"
        )
        print("\n".join(broken))
        wrong |= bool(broken)
    if not wrong:
        shutil.rmtree(place)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
