"""One job that notes numbered steps until the file ``go`` is there; argument: ``spark``."""

import json
import sys
import time
from pathlib import Path

import understudy
from understudy import JobContext


def steps(ctx: JobContext, how: str) -> int:
    step = 0
    with Path("steps.jsonl").open("a", buffering=1) as notes:
        while not Path("go").exists():
            if how == "spark":
                ctx.spark.range(0, 1000, 1, 2).count()
            step += 1
            note = {"time": time.time(), "step": step, "attempt": ctx.attempt}
            notes.write(json.dumps(note) + "\n")
            time.sleep(0.02)
    return ctx.attempt


understudy.get_environment().execute(steps, *(sys.argv[1:] or [""]), name="steps")
