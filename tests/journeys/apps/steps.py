"""A job that counts, keeps each number, and goes on from the last; ``go`` lets it end.

Its first argument says up to where it counts before it waits for ``go``.
"""

import sys
import time
from pathlib import Path

import understudy
from understudy import JobCanceled, JobContext

UP_TO = int(sys.argv[1])
NAME = sys.argv[2] if len(sys.argv) > 2 else "counter"


def note(text: str) -> None:
    with Path("steps.txt").open("a") as file:
        file.write(text + "\n")


def count(ctx: JobContext, up_to: int) -> int:
    kept = ctx.restored() or {"step": 0}
    note(f"from {kept['step']}")
    for step in range(kept["step"] + 1, up_to + 1):
        note(f"step {step}")
        ctx.save({"step": step})
    note("waits")
    while not Path("go").exists():
        time.sleep(0.02)
    return up_to


def other(ctx: JobContext) -> None:
    note("other")


env = understudy.get_environment()
try:
    told = env.execute(count, UP_TO, name=NAME)
except JobCanceled:
    while not Path("go").exists():  # The cluster is asked how it went.
        time.sleep(0.02)
    raise
env.execute(other, name="other")
print("value", told.value)
