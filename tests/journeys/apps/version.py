"""Two jobs that use the module ``recipe`` beside it; the second waits for the file ``go``."""

import fcntl
import os
import time
from pathlib import Path

import recipe  # type: ignore[import-not-found]  # Put there by the test.

import understudy
from understudy import JobContext


def note(text: str) -> None:
    with Path("jobs.txt").open("a") as file:
        file.write(text + "\n")


def quick(ctx: JobContext) -> str:
    note(f"quick {recipe.WORD} {ctx.attempt}")
    return str(recipe.WORD)


def long(ctx: JobContext) -> str:
    alone = os.open("alone", os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        note("TWICE AT ONCE")
        raise
    note(f"long {recipe.WORD} {ctx.attempt}")
    while not Path("go").exists():
        time.sleep(0.02)
    return str(recipe.WORD)


Path("main.pid").write_text(str(os.getpid()))
with Path("main.txt").open("a") as mains:
    mains.write(f"{recipe.WORD}\n")
env = understudy.get_environment()
values = env.execute(quick, name="quick").value, env.execute(long, name="long").value
print("values", *values, "in", recipe.WORD)
