"""Five jobs, two of them at once; each notes its name and attempt in the given directory."""

import os
import sys
from pathlib import Path

import understudy
from understudy import JobContext

PLACE, NUMBER = Path(sys.argv[1]), int(sys.argv[2])


def work(ctx: JobContext, name: str) -> str:
    notes = os.open(PLACE / "jobs.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(notes, f"{name} {ctx.attempt}\n".encode())  # Whole, whoever else writes.
    os.close(notes)
    return name


env = understudy.get_environment()
names = [f"{NUMBER}.{job}" for job in range(5)]
first = [env.execute_async(work, name, name=name) for name in names[:2]]
assert names[:2] == [one.result().value for one in first]
for name in names[2:]:
    assert name == env.execute(work, name, name=name).value
