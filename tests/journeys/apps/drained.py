"""A job without end, which saves once it is asked to; continued, it returns what it has saved."""

import time
from pathlib import Path

import understudy
from understudy import JobContext


def note(text: str) -> None:
    with Path("begun.txt").open("a") as file:
        file.write(text + "\n")


def endless(ctx: JobContext) -> int:
    """Work until somebody wants this host."""
    saved: int | None = ctx.restored()
    note(f"{ctx.attempt} {saved}")
    if saved is not None:
        return saved
    while not ctx.stopping:
        time.sleep(0.01)
    ctx.save(7)
    note("returned from its last save")
    return 0


print("result:", understudy.get_environment().execute(endless).value)
