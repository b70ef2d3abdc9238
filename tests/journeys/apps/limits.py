"""Two parallel jobs, one of which fails for good; then one that does not end when it must."""

import time
from pathlib import Path

import understudy
from understudy import JobContext, JobFailed


def note(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(text + "\n")


@understudy.job(retries=1)
def luckless(ctx: JobContext, path: str) -> int:
    note("jobs.txt", f"luckless {ctx.attempt}")
    while ctx.attempt == 2 and not Path(path).exists():
        time.sleep(0.01)
    raise ValueError("no luck")


def endless(ctx: JobContext) -> None:
    while True:
        time.sleep(0.01)


@understudy.job(name="does not end", timeout="300 ms", retries=5)
def stubborn(ctx: JobContext) -> None:
    note("jobs.txt", f"stubborn {ctx.attempt}")
    while True:
        try:
            time.sleep(0.01)
        except BaseException:
            note("jobs.txt", "stubborn is interrupted")


env = understudy.get_environment()
try:
    with env.parallel() as jobs:
        jobs.submit(endless)
        jobs.submit(luckless, "go")
except JobFailed as error:
    note("main.txt", f"{error.job_name}: {error.error_type}")
try:
    stubborn.run()
except JobFailed as error:
    note("main.txt", f"{error.job_name}: {error.error_type}")
