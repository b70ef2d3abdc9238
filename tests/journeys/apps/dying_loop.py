"""A loop that keeps how far it is: dies once in the middle, and waits for the file ``go``."""

import os
import signal
import time
from pathlib import Path

import understudy
from understudy import JobContext


def steps(ctx: JobContext, limit: int) -> int:
    done: int = (ctx.restored() or {"step": 0})["step"]
    while done < limit:
        if done == 5 and ctx.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        while done == 8 and not Path("go").exists():
            time.sleep(0.02)
        done += 1
        with Path("steps.txt").open("a") as file:
            file.write(f"{done}\n")
        ctx.save({"step": done})
    return done


print(understudy.get_environment().execute(steps, 12).value)
