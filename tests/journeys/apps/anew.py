"""A job that keeps something and fails, until somebody has mended it; then one that waits."""

import contextlib
import json
import time
from pathlib import Path

import understudy
from understudy import JobContext, JobFailed


def breaks(ctx: JobContext) -> None:
    place = Path(str(ctx.checkpoint_location("board")).removeprefix("file:"))
    found = [str(place), place.exists(), ctx.restored(), ctx._keeping.writes._writes._deploy.writer]
    with Path("begun.txt").open("a") as file:
        file.write(json.dumps(found) + "\n")
    place.mkdir(parents=True, exist_ok=True)
    ctx.save(ctx.attempt)
    if not Path("mended").exists():
        raise ValueError("not mended yet")


def waits(ctx: JobContext) -> None:
    Path("waiting").touch()
    while not Path("go").exists():
        time.sleep(0.02)


env = understudy.get_environment()
with contextlib.suppress(JobFailed):
    env.execute(breaks)
env.execute(waits)
