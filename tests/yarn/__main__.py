"""``python -m tests.yarn [--keep] [NAME …]``: jobs in client mode on a real YARN.

The daemons (90 MB) are fetched by Maven, for the Hadoop that PySpark has, and stay in ``out`` with
``--keep``. Prints ``8 passed, 0 failed``, or what went wrong.
"""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.yarn.cluster import Yarn, remove_jars
from tests.yarn.journeys import JOURNEYS


def main(arguments: list[str]) -> int:
    """Travel; return 1 if anything is not as it should be."""
    words = [one for one in arguments if one != "--keep"]
    chosen = [one for one in JOURNEYS if not words or one.__name__ in words]
    failed = 0
    try:
        with (
            tempfile.TemporaryDirectory(prefix="understudy-yarn-") as place,
            Yarn(Path(place)) as yarn,
        ):
            for journey in chosen:
                began = time.monotonic()
                try:
                    journey(yarn)
                except Exception:
                    failed += 1
                    traceback.print_exc()
                    print(yarn.story(), file=sys.stderr)
                print(f"{journey.__name__}: {time.monotonic() - began:.0f} s", flush=True)
    finally:
        if "--keep" not in arguments:
            remove_jars()
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
