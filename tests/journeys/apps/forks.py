"""Jobs and a main that fork: what a child does is its own affair, whatever that is."""

import functools
import multiprocessing
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import understudy
from understudy import JobContext


class Leave(Exception):  # noqa: N818
    """Takes a child out of the function, past all that the function does."""


def note(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(text + "\n")


def raising() -> None:
    raise Leave("of a child")


def told(*calls: Callable[[], object]) -> str:
    """Return what a child is told of each call."""
    said = []
    for call in calls:
        try:
            said.append(f"did: {call()}")
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
    return "\n".join(said)


def twice(number: int) -> int:
    return 2 * number


def doubled(ctx: JobContext, number: int) -> int:
    return twice(number)


def forking(ctx: JobContext, how: str) -> dict[str, object]:
    note("attempts.txt", f"{how} {ctx.attempt}")
    child = pty.fork()[0] if how == "pty" else os.fork()
    if child == 0:
        if how == "exit":
            sys.exit(3)
        if how == "text":
            sys.exit("a child says why")
        if how == "_exit":
            os._exit(4)
        if how in {"raise", "pty"}:
            raising()
        if how == "killed":
            os.kill(os.getpid(), signal.SIGTERM)
        if how == "asks":
            env = understudy.get_environment()
            note(
                "told.txt",
                told(
                    lambda: ctx.save({"of": "a child"}),
                    ctx.restored,
                    lambda: ctx.spark,
                    lambda: ctx.checkpoint_location,
                    lambda: env.execute(doubled, 1, name="of a child"),
                ),
            )
        print("printed by a child", flush=False)
        return {"value of": "a child"}
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    number = ctx.save({"of": "the job"})
    time.sleep(0.3)  # The end of a child would have ended this one.
    return {"code": code, "saved": number}


def with_libraries(ctx: JobContext) -> list[object]:
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(2, mp_context=fork) as pool:
        found = list(pool.map(abs, (0, -2, 4)))
    process = fork.Process(target=raising)
    process.start()
    process.join()
    called = subprocess.run(["sh", "-c", "exit 5"], preexec_fn=os.getpid, check=False)
    codes: list[int] = []

    def fork_here() -> None:
        child = os.fork()
        if child == 0:
            sys.exit(6)  # Ends the only thread of the child.
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    thread = threading.Thread(target=fork_here)
    thread.start()
    thread.join()
    return [found, process.exitcode, called.returncode, codes]


def main_forks(leave: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        leave()
        raise Leave
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def asks(env: understudy.Environment, client: understudy.JobClient[object]) -> None:
    note("told by main.txt", told(client.result, client.status, lambda: env.execute(doubled, 1)))
    sys.exit(0)


WAYS = ("return", "exit", "text", "_exit", "raise", "pty", "killed", "asks")

env = understudy.get_environment()
note("executions.txt", str(os.getpid()))
for way in WAYS:
    value = env.execute(forking, way, name=f"job {way}").value
    note("values.txt", f"{way} {value['code']} {value['saved']}")
note("values.txt", str(env.execute(with_libraries, name="libraries").value))
finished = env.execute_async(forking, "return", name="awaited")
leaving: list[Callable[[], object]] = [
    lambda: None,
    lambda: sys.exit(7),
    lambda: os.kill(os.getpid(), signal.SIGTERM),
    functools.partial(asks, env, finished),
]
note("values.txt", str([main_forks(one) for one in leaving]))
note("values.txt", f"awaited {finished.result().value['code']}")
