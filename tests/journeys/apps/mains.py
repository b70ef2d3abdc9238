"""Mains of every kind; the first argument says which."""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import understudy
from understudy import JobCanceled, JobContext, JobFailed


def note(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(text + "\n")


def say(ctx: JobContext, word: str) -> str:
    note("jobs.txt", f"{word} {ctx.attempt}")
    return word


def fail(ctx: JobContext, word: str) -> None:
    note("jobs.txt", f"{word} {ctx.attempt}")
    raise ValueError(f"no {word} today")


def leave(ctx: JobContext, code: object) -> None:
    note("jobs.txt", f"leave {ctx.attempt}")
    sys.exit(code)  # type: ignore[arg-type]


def crash_once(ctx: JobContext) -> int:
    note("jobs.txt", f"crash {ctx.attempt}")
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return ctx.attempt


def stubborn(ctx: JobContext) -> None:
    while not Path("go").exists():
        with contextlib.suppress(BaseException):
            note("stubborn.txt", str(ctx.attempt))
            time.sleep(0.05)
    raise ValueError("this is what comes of interrupting me")


def wait(ctx: JobContext, word: str) -> str:
    note("jobs.txt", f"{word} {ctx.attempt}")
    while not Path("go").exists():
        time.sleep(0.02)
    return word


how = sys.argv[1]
executions = len(Path("main.txt").read_text().split()) if Path("main.txt").exists() else 0
note("main.txt", how)
Path("main.pid").write_text(str(os.getpid()))
env = understudy.get_environment()

if how == "no-jobs":
    print("nothing to do")
elif how == "raise":
    raise RuntimeError("main gives up")
elif how == "exit-0":
    env.execute(say, "one")
    sys.exit(0)
elif how == "exit-3":
    sys.exit(3)
elif how == "die-once":
    env.execute(say, "one")
    if executions == 0:
        os.kill(os.getpid(), signal.SIGKILL)
elif how == "same-name":
    print([env.execute(say, word, name="twin").value for word in ("one", "two")])
elif how == "caught":
    try:
        env.execute(fail, "luck")
    except JobFailed as error:
        note("caught.txt", f"{error.error_type} {'no luck today' in error.remote_traceback}")
    env.execute(wait if "wait" in sys.argv else say, "after")
elif how == "uncaught":
    env.execute(fail, "luck")
elif how == "unawaited":
    env.execute_async(fail, "luck")
elif how == "job-exits":
    note("caught.txt", str(env.execute(leave, 0, name="leaves well").value))
    try:
        env.execute(leave, 3, name="leaves badly")
    except JobFailed as error:
        note("caught.txt", error.error_type)
elif how == "crash-once":
    note("caught.txt", str(env.execute(crash_once).value))
elif how == "branch":
    if executions == 0:
        env.execute(wait, "one", name="job 1")
    else:
        env.execute(say, "two", name="job 2")
elif how == "late":  # The job is reached again only after a while.
    if executions:
        time.sleep(1.0)
    env.execute(wait, "one", name="job 1")
elif how == "two-at-once":
    clients = [env.execute_async(wait, word, name=word) for word in ("left", "right")]
    print([client.result().value for client in clients])
elif how == "cancel":
    client = env.execute_async(wait, "victim")
    while client.status() != "RUNNING":
        time.sleep(0.02)
    client.cancel()
    try:
        client.result()
    except JobCanceled:
        note("caught.txt", client.status())
elif how == "cancelled":
    env.execute_async(stubborn)
    env.execute(wait, "victim", name="victim")
elif how == "bad-value":
    try:
        env.execute(lambda ctx: {"rows": [1, float("nan")]}, name="nan")
    except JobFailed as error:
        note("caught.txt", str(error.args[0]))
elif how == "slow-main":
    env.execute(say, "one")
    while not Path("go").exists():
        time.sleep(0.02)
    env.execute(say, "two")
else:
    raise SystemExit(f"unknown: {how}")
