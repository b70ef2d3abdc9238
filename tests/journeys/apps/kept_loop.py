"""A loop of steps that saves where it is; the first argument says how it goes."""

import os
import sys
import time
from pathlib import Path

import understudy
from understudy import CheckpointError, JobCanceled, JobContext, JobFailed

STEPS = 100
PACE_S = 0.02
"""How long a step takes: long enough for others to be killed in the middle of it."""


def note(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(text + "\n")


def loop(ctx: JobContext, steps: int, hold: int, end: str = "") -> dict[str, int]:
    """Add up the numbers of the steps; wait for a sign at ``hold``; 0: at each 20th."""
    state = ctx.restored() or {"step": 0, "sum": 0}
    note("pids.txt", str(os.getpid()))
    note("begun.txt", f"{ctx.attempt} {state['step']}")
    for step in range(state["step"], steps):
        note("steps.txt", f"{step} {ctx.attempt}")
        time.sleep(PACE_S)
        while 0 < hold == step and not Path("go").exists():
            time.sleep(0.01)
        while hold == 0 and step % 20 == 19 and not Path(f"go-{step}").exists():
            time.sleep(0.01)
        state = {"step": step + 1, "sum": state["sum"] + step}
        number = ctx.save(state)
        note("saved.txt", f"{step} {number}")
        assert ctx.restored() == state
    if end == "fail":
        raise ValueError("no luck today")
    while end == "wait":
        time.sleep(0.01)
    return state


def refused(ctx: JobContext) -> list[str]:
    """Save what cannot be saved; what was saved before stays."""
    ctx.save({"kept": True})
    errors = []
    for bad in ({1: 2}, float("nan"), "x" * 300_000, object()):
        try:
            ctx.save(bad)
        except understudy.UnderstudyError as error:
            errors.append(f"{type(error).__name__}: {error}")
    assert ctx.restored() == {"kept": True}
    return errors


def neighbour(ctx: JobContext) -> int:
    """Wait for a sign of its own."""
    note("jobs.txt", f"neighbour {ctx.attempt}")
    while not Path("go-neighbour").exists():
        time.sleep(0.01)
    return ctx.attempt


def without_session(ctx: JobContext) -> str:
    """Ask a driver without Spark for a table."""
    try:
        ctx.table(None)  # type: ignore[arg-type]
    except CheckpointError:
        raise
    except understudy.UnderstudyError as error:
        return str(error)
    return ""


note("main.txt", str(os.getpid()))
env = understudy.get_environment()
how = sys.argv[1]

if how == "loop":
    result = env.execute(loop, STEPS, int(sys.argv[2]), name="loop")
    note("result.txt", f"{result.value['sum']} {result.attempt} {result.checkpoint}")
elif how == "refused":
    for error in env.execute(refused).value:
        note("errors.txt", error)
    note("errors.txt", env.execute(without_session).value)
elif how == "caught":
    try:
        env.execute(loop, STEPS, int(sys.argv[2]), name="loop")
    except JobFailed as error:
        note("caught.txt", f"{error.error_type}: {error.args[0]}")
elif how == "beside":
    jobs = [env.execute_async(neighbour), env.execute_async(loop, STEPS, 5, name="loop")]
    note("caught.txt", str(jobs[0].result().value))
    try:
        note("caught.txt", str(jobs[1].result().value))
    except JobCanceled as error:
        note("caught.txt", f"cancelled {error.checkpoint}")
elif how == "ends":
    env.execute(loop, 3, -1, name="finishes")
    try:
        env.execute(loop, 3, -1, "fail", name="fails")
    except JobFailed as error:
        note("caught.txt", f"fails {error.checkpoint}")
    client = env.execute_async(loop, 3, -1, "wait", name="cancelled")
    while len(Path("saved.txt").read_text().splitlines()) < 9:
        time.sleep(0.01)
    client.cancel()
    try:
        client.result()
    except JobCanceled as error:
        note("caught.txt", f"cancelled {error.checkpoint}")
else:
    raise SystemExit(f"unknown: {how}")
