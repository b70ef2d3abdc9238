"""Two jobs at once that wait for a file ``NAME.go``, and note each attempt that begins."""

import sys
import time
from pathlib import Path

import understudy
from understudy import JobContext

PLACE = Path(sys.argv[1])
FAILS = "fails" in sys.argv


def note(name: str, text: str) -> None:
    with (PLACE / name).open("a") as file:
        file.write(f"{text}\n")


def works(ctx: JobContext, name: str) -> str:
    note(name, str(ctx.attempt))
    while not (PLACE / f"{name}.go").exists():
        time.sleep(0.01)
    if FAILS:
        raise ValueError("these flights never took off")
    return f"{name} in attempt {ctx.attempt}"


note("main", "begun")
env = understudy.get_environment()
clients = [env.execute_async(works, name, name=name) for name in ("one", "two")]
note("result", "; ".join(client.result().value for client in clients))
