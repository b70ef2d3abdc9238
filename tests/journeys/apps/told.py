"""Fails in every way that is to be told, prints, and waits until the file ``go`` is there."""

import os
import signal
import time
from pathlib import Path

import understudy
from understudy import JobContext, JobFailed


def unlucky(ctx: JobContext) -> None:
    raise ValueError(f"no luck in attempt {ctx.attempt}")


def crash_once(ctx: JobContext) -> int:
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return ctx.attempt


def wait(ctx: JobContext) -> str:
    while not Path("go").exists():
        time.sleep(0.02)
    return "gone"


first = not Path("main.txt").exists()
with Path("main.txt").open("a") as file:
    file.write("x\n")
env = understudy.get_environment()
print("main speaks: café [red]")
if first:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    env.execute(unlucky)
except JobFailed:
    print("caught")
env.execute(crash_once)
env.execute(wait)
