"""Three jobs; the second is one long Spark job, whose tasks tick until the file ``go`` is there.

Every line is written whole, in the order in which it happened, by whichever process it was:
``begin`` and ``end`` by the function, ``tick`` by the tasks, each with the attempt.
"""

import os
import sys
import time
from pathlib import Path

import understudy
from understudy import JobContext

HOW = sys.argv[1] if len(sys.argv) > 1 else ""
TASKS = 2


def note(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, text.encode() + b"\n")
    os.close(file)


def driver() -> int:
    """Return the pid of the driver: the parent of what has forked this process."""
    stat = Path(f"/proc/{os.getppid()}/stat").read_bytes()
    return int(stat.rpartition(b")")[2].split()[1])


def quick(ctx: JobContext, name: str) -> dict[str, int]:
    note("jobs.txt", f"{name} {ctx.attempt}")
    return {"rows": ctx.spark.range(10).count()}


def tick(attempt: int, number: int) -> int:
    """Be a task: tick for as long as nobody says that it may end."""
    while not Path("go").exists():
        note("marks.txt", f"tick {attempt}")
        time.sleep(0.02)
    return number


def long(ctx: JobContext, how: str) -> dict[str, int]:
    attempt = ctx.attempt
    note("jobs.txt", f"long {attempt}")
    note("marks.txt", f"begin {attempt} {driver()}")
    if how == "fork" and os.fork() == 0:
        os.setsid()
        while True:
            note("marks.txt", f"tick {attempt}")
            time.sleep(0.02)
    tasks = ctx.spark.sparkContext.range(0, TASKS, numSlices=TASKS)
    total = tasks.map(lambda number: tick(attempt, number)).sum()
    note("marks.txt", f"end {attempt} {os.getpid()}")
    return {"attempt": attempt, "total": total}


note("main.txt", str(os.getpid()))
env = understudy.get_environment()
first = env.execute(quick, "first", name="first job")
second = env.execute(long, HOW, name="second job")
third = env.execute(quick, "third", name="third job")
print("values", first.value, second.value, third.value)
