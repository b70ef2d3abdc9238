"""A script that has never heard of Understudy; it dies the first time."""

import os
import signal
from pathlib import Path

seen = Path("seen.txt")
first = not seen.exists()
with seen.open("a") as file:
    file.write("x\n")
if first:
    os.kill(os.getpid(), signal.SIGKILL)
print("second time lucky")
