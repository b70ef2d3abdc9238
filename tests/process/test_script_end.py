"""The end of a script that runs as a job: its threads, its pools and its ``atexit`` handlers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

AS_JOB = """
import atexit, sys
from understudy.process import entry_point
atexit.register(print, "of the process")
try:
    with open(sys.argv[1], "rb") as file:
        entry_point.script_job(None, file.read(), sys.argv[1], ())
finally:
    print("returned", flush=True)
"""
"""Runs a script as a job, in a process that has a handler of its own."""

HANDLERS = """
import atexit, threading, time
def fail():
    raise ValueError("in a handler")
atexit.register(print, "first")
atexit.register(fail)
atexit.register(print, "last")
threading.Thread(target=lambda: print("thread")).start()
"""

POOLS = """
import asyncio
from concurrent.futures import ThreadPoolExecutor
pool, loop = ThreadPoolExecutor(2), asyncio.new_event_loop()
print(pool.submit(len, "abc").result())
pool.submit(lambda: print("in a pool\\n", end="", flush=True))
print(f'{loop.run_until_complete(loop.run_in_executor(None, len, "of a loop"))}\\n', end="")
"""


def ran(tmp_path: Path, script: str) -> tuple[int, list[str], str]:
    """Run a script as a job; return the exit code, the printed lines and the errors."""
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "-c", AS_JOB, str(tmp_path / "script.py")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize(
    ("end", "code"), [("", 0), ("import sys; sys.exit(3)", 3), ("raise KeyError(1)", 1)]
)
def test_the_handlers_of_a_script_run_within_its_job_and_those_of_the_process_do_not(
    tmp_path: Path, end: str, code: int
) -> None:
    actual, printed, errors = ran(tmp_path, HANDLERS + end)

    assert (code, ["thread", "last", "first", "returned"]) == (actual, printed)
    assert "ValueError: in a handler" in errors


def test_a_script_ends_once_the_work_of_its_pools_is_done(tmp_path: Path) -> None:
    code, printed, errors = ran(tmp_path, POOLS)

    assert (0, "") == (code, errors)
    assert ["3", "9", "in a pool", "returned"] == sorted(printed)


def test_a_script_is_compiled_without_the_futures_of_this_package(tmp_path: Path) -> None:
    script = "def f(x: int): ...\nprint(f.__annotations__['x'] is int)"

    assert "True" in ran(tmp_path, script)[1]
