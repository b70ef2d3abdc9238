"""Large values, large plans, and many jobs of one name; argv[1] says which."""

import hashlib
import os
import sys
import time
from pathlib import Path

import understudy
from understudy import JobContext, JobFailed

LIMIT = 256 << 10
PLAN_BYTES = 50 << 20


def text(ctx: JobContext, size: int) -> str:
    return "x" * size


def numbers(ctx: JobContext, count: int) -> list[int]:
    return list(range(count))


def note(line: str) -> None:
    with Path("jobs.txt").open("a") as file:
        file.write(f"{line}\n")


def hold() -> None:
    while not Path("go").exists():
        time.sleep(0.02)


def step(ctx: JobContext, number: int) -> int:
    note(f"{number} {ctx.attempt}")
    if number >= 10:
        hold()
    return number


env = understudy.get_environment()
what = sys.argv[1]
if what == "values":
    wanted = {
        "just fits": (text, LIMIT - 2),
        "just too large": (text, LIMIT - 1),
        "100 MB of text": (text, 100_000_000),
        "100 MB of numbers": (numbers, 12_000_000),
    }
    for name, (job, size) in wanted.items():
        try:
            print("returned", name, len(env.execute(job, size, name=name).value))
        except JobFailed as error:
            print("failed", name, str(error).splitlines()[0])
elif what == "raised":
    print("returned", len(env.execute(text, 30_000_000).value))
elif what == "plan":
    data = os.urandom(PLAN_BYTES) if not Path("data").exists() else Path("data").read_bytes()
    Path("data").write_bytes(data)

    def digest(ctx: JobContext) -> str:
        note(f"digest {ctx.attempt}")
        hold()
        return hashlib.sha256(data).hexdigest()

    print("same", env.execute(digest).value == hashlib.sha256(data).hexdigest())
elif what == "sequence":
    print("values", [env.execute(step, n, name="same").value for n in range(20)])
elif what == "at-once":
    jobs = [env.execute_async(step, n, name="same") for n in range(20)]
    print("values", [job.result().value for job in jobs])
