"""As many jobs at once as it is told; each notes that it began, and goes on until ``go``."""

import sys
import time
from pathlib import Path

import understudy
from understudy import JobContext

COUNT = int(sys.argv[1])


def wait(ctx: JobContext, number: int) -> int:
    with Path("jobs.txt").open("a") as file:
        file.write(f"{number} {ctx.attempt}\n")
    while not Path("go").exists():
        time.sleep(0.25)
    return number


with Path("mains.txt").open("a") as mains:
    mains.write("main\n")
env = understudy.get_environment()
clients = [env.execute_async(wait, number, name=f"job {number}") for number in range(COUNT)]
Path("sum.txt").write_text(str(sum(client.result().value for client in clients)))
