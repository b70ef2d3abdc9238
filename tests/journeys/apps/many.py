"""Three jobs of a cluster of many hosts; all notes go into the directory that is given.

The second goes on until the file ``go`` is there.
"""

import sys
import time
from pathlib import Path

import understudy
from understudy import JobContext

SHARED = Path(sys.argv[1])


def note(path: str, text: str) -> None:
    with (SHARED / path).open("a") as file:
        file.write(text + "\n")


def quick(ctx: JobContext, name: str) -> str:
    note("jobs.txt", f"{name} {ctx.attempt}")
    return name


def long(ctx: JobContext) -> int:
    note("jobs.txt", f"long {ctx.attempt}")
    while not (SHARED / "go").exists():
        time.sleep(0.02)
    return ctx.attempt


note("main.txt", __file__)
env = understudy.get_environment()
env.execute(quick, "first", name="first job")
env.execute(long, name="second job")
env.execute(quick, "third", name="third job")
