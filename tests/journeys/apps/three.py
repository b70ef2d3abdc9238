"""Three jobs; the second goes on until the file ``go`` is there. Each notes that it began."""

import fcntl
import os
import sys
import time
from pathlib import Path

import understudy
from understudy import JobContext

HOW = sys.argv[1] if len(sys.argv) > 1 else ""


def note(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(text + "\n")


def quick(ctx: JobContext, name: str) -> dict[str, object]:
    note("jobs.txt", f"{name} {ctx.attempt}")
    return {"name": name, "attempt": ctx.attempt}


def long(ctx: JobContext, how: str) -> int:
    alone = os.open("alone", os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        note("jobs.txt", "TWICE AT ONCE")
        raise
    note("jobs.txt", f"long {ctx.attempt}")
    note("pids.txt", str(os.getpid()))
    if "fork" in how and os.fork() == 0:
        os.setsid()
        note("forked.txt", str(os.getpid()))
        time.sleep(1000)
        os._exit(0)
    while not Path("go").exists():
        try:
            step(ctx, how)
        except BaseException:
            if "stubborn" not in how:
                raise
    return ctx.attempt


def step(ctx: JobContext, how: str) -> None:
    if "spark" in how:
        ctx.spark.range(0, 10_000, 1, 4).count()
    else:
        time.sleep(0.02)


Path("main.pid").write_text(str(os.getpid()))
note("main.txt", str(os.getpid()))
env = understudy.get_environment()
first = env.execute(quick, "first", name="first job")
second = env.execute(long, HOW, name="second job")
third = env.execute(quick, "third", name="third job")
print("values", first.value, second.value, third.value)
