"""One job, which notes that it began; it waits for a file where one is named."""

import os
import sys
import time
from pathlib import Path

import understudy
from understudy import JobContext

PLACE, NAME, AWAITED = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]


def work(ctx: JobContext) -> str:
    notes = os.open(PLACE / "jobs.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(notes, f"{NAME} {ctx.attempt}\n".encode())  # Whole, whoever else writes.
    os.close(notes)
    while AWAITED and not (PLACE / AWAITED[0]).exists():
        time.sleep(0.02)
    return NAME


understudy.get_environment().execute(work, name=NAME)
