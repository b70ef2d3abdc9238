"""A job whose first attempt leaves a writer behind, and a guardian that stands still, and fails."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import understudy
from understudy import JobContext


def note(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(text + "\n")


def parent(pid: int) -> int:
    """Return the parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def leaving(ctx: JobContext, how: str) -> int:
    note("written.txt", f"{ctx.attempt} begins")
    if ctx.attempt > 1:
        time.sleep(1.0)
        return ctx.attempt
    if how == "with a program":
        loop = "while :; do echo '1 writes' >> written.txt; sleep 0.01; done"
        with subprocess.Popen(["sh", "-c", loop], start_new_session=True) as program:
            note("failing.txt", str(program.pid))
    if os.fork() == 0:
        os.setsid()
        while True:
            note("written.txt", "1 writes")
            time.sleep(0.001)
    while "1 writes" not in Path("written.txt").read_text():
        time.sleep(0.001)
    server = os.getppid()
    guardian = parent(parent(server))
    if how != "at once":
        os.kill({"fork server stopped": server, "guardian stopped": guardian}[how], signal.SIGSTOP)
    note("failing.txt", str(guardian))
    raise ValueError("as it should")


env = understudy.get_environment()
print("value", env.execute(leaving, sys.argv[1], name="leaving").value)
