"""Streaming jobs that damage what they would go on from, and kill their own driver.

Each waits for the file ``damage-<job>``, which a test makes once it has seen what is recorded.
``begun.txt`` has a line for each call of a function.
"""

import os
import shutil
import signal
import time
from pathlib import Path

import understudy
from understudy import JobContext, JobFailed


def note(text: str) -> None:
    file = os.open("begun.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, text.encode() + b"\n")
    os.close(file)


def live(ctx: JobContext, name: str) -> None:
    note(f"{name} {ctx.attempt}")
    here = Path(name).absolute()
    (here / "in").mkdir(parents=True, exist_ok=True)
    rows = ctx.spark.readStream.schema("id long").json(str(here / "in"))
    place = ctx.checkpoint_location
    queries = [
        rows.writeStream.format("parquet")
        .option("checkpointLocation", place / query)
        .start(str(here / query))
        for query in ("orders", "other")
    ]
    for number in range(4):
        (here / f"{number}.draft").write_text(f'{{"id": {number}}}\n')
        (here / f"{number}.draft").rename(here / "in" / f"{number}.json")
        for query in queries:
            query.processAllAvailable()
        if number == 1:
            shutil.copytree(place / "orders", here / "early")
    while not Path(f"damage-{name}").exists():
        time.sleep(0.02)
    for query in queries:
        query.stop()
    damage(name, place / "orders", place / "other", here / "early")
    os.kill(os.getpid(), signal.SIGKILL)


def damage(name: str, orders: str, other: str, early: Path) -> None:
    newest = Path(orders, "sources", "0", "3")
    if name == "source cut":
        os.truncate(newest, newest.stat().st_size - 5)
        return
    if name == "source removed":
        newest.unlink()
        return
    shutil.rmtree(orders)
    if name == "rolled back":
        shutil.copytree(early, orders)
    elif name == "swapped":
        shutil.copytree(other, orders)


if __name__ == "__main__":
    env = understudy.get_environment()
    for name in ("removed", "rolled back", "swapped", "source cut", "source removed"):
        try:
            env.execute(live, name, name=name)
        except JobFailed as error:
            print(f"{name}: {error}".partition("Going on")[0].replace("\n", " "))
        else:
            print(f"{name}: not noticed")
