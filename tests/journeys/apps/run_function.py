"""A script that gives one function to Understudy, which knows nothing of jobs."""

import sys
import time
from pathlib import Path

import understudy


def etl(target: str, *, waits: bool) -> int:
    with Path(target).open("a") as file:
        file.write("row\n")
    while waits and not Path("go").exists():
        time.sleep(0.02)
    if target == "wrong.txt":
        raise ValueError("no rows")
    return len(Path(target).read_text().splitlines())


if __name__ == "__main__":
    print("rows:", understudy.run(etl, sys.argv[1], waits="--wait" in sys.argv))
