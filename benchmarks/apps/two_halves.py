"""Empty jobs that nobody counts, then, once the file ``go`` is there, some that are counted."""

import sys
import time
from pathlib import Path

import understudy
from understudy import JobContext


def empty(ctx: JobContext, number: int) -> int:
    return number


env = understudy.get_environment()
uncounted, counted = int(sys.argv[1]), int(sys.argv[2])
for number in range(uncounted + counted):
    if number == uncounted:
        Path("half.txt").write_text("half\n")
        while not Path("go").exists():
            time.sleep(0.02)
    env.execute(empty, number, name=f"job {number}")
Path("whole.txt").write_text("whole\n")
while not Path("end").exists():
    time.sleep(0.02)
