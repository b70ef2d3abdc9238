"""A main that computes values once, and one that it does not, and a job that waits for ``go``."""

import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

import understudy

env = understudy.get_environment()


def note(name: str, text: str) -> None:
    with Path(name).open("a") as file:
        file.write(f"{text}\n")


def fresh() -> str:
    note("computed.txt", "x")
    return uuid.uuid4().hex


def job(ctx: Any, run: str, pid: int) -> str:
    while not Path("go").exists():
        time.sleep(0.02)
    return run


values = [env.once("id", fresh), env.now().isoformat()]
note("values.txt", json.dumps(values))
note("result.txt", str(env.execute(job, values[0], os.getpid()).value == values[0]))
if Path("large").exists():
    env.once("large", lambda: "x" * 60_000)
    try:
        env.once("more", lambda: "x" * 60_000)
    except understudy.InvalidValueError as error:
        note("large.txt", str(error))
