"""``python -m tests.chaos.streaming --kills 100``: files to Parquet while random processes die.

Drivers (Python or JVM), TaskManagers and JobManagers are killed at random moments: half of them
whenever it falls, in the middle of a start as a rule, half of them in one of the next batches. Then
each input row must be in the output exactly once, each batch must have one checkpoint, and what
only JobManagers died under must not have begun a new attempt.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.chaos.run import END_S, ON_SPARK
from tests.chaos.signals import kind_of
from tests.journeys import harness
from tests.journeys.harness import COMMAND, GoneError, Run
from tests.support.feed import Feed

APP = Path(__file__).parents[1] / "journeys" / "spark" / "apps" / "live.py"
VICTIMS = ("driver", "jvm", "taskmanager", "jobmanager", "jobmanager")
PAUSES_S = (0.2, 6.0)
"""Between two kills that fall where they may, most of them into the start of a driver."""

BATCH_S = 0.5
"""About how long a batch takes: within it falls a kill that waits for a batch first."""


def await_moment(run: Run, chance: random.Random) -> None:
    """Pause before the next kill: any time, or until a query is at work again and a bit longer."""
    if chance.random() < 0.5:
        time.sleep(chance.uniform(*PAUSES_S))
        return
    seen = len(run.of("checkpoint-completed"))
    deadline = time.monotonic() + END_S
    while len(run.of("checkpoint-completed")) == seen:
        if run.process.poll() is not None or time.monotonic() > deadline:
            raise GoneError(f"no batch within {END_S:g} s of a kill\n{run.story()}")
        time.sleep(0.02)
    time.sleep(chance.uniform(0, BATCH_S))


def strike(run: Run, chance: random.Random, began: float) -> str:
    """Kill one process; return as what it was known, empty if none of its kind was there."""
    kind = chance.choice(VICTIMS)
    lines = harness.processes_of(run.place)
    pids = sorted(pid for pid in lines if kind_of(pid, lines) == kind)
    if not pids:
        return ""
    pid = chance.choice(pids)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        print(f"{time.monotonic() - began:7.1f} s  killed {kind} {pid}", flush=True)
        return kind
    return ""


def judge(run: Run, code: int, rows: int, kills: Counter[str]) -> list[str]:
    """Return what should not be."""
    faults = [] if code == 0 else [f"exit code {code}"]
    expected = f"rows {rows}, distinct {rows}"
    if expected not in run.log.read_text(errors="replace"):
        told = [line for line in run.log.read_text().splitlines() if "distinct" in line]
        faults.append(f"{expected} was expected, not {told}")
    batches = run.of("checkpoint-completed")
    if wrong := [one for one in batches if one["number"] - 1 != one["batch_id"]]:
        faults.append(f"batches were left out of the record, or are in it twice: {wrong[:3]}")
    attempts = len(run.lines("runs.txt"))
    if attempts > 1 + kills.total() - kills["jobmanager"]:
        faults.append(f"the query was started {attempts} times")
    return faults


def main() -> int:
    """Run it; the exit code tells whether anything was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.streaming", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    place = Path(tempfile.mkdtemp(prefix="understudy-streaming-"))
    print(f"seed {arguments.seed}, in {place}", flush=True)
    shutil.copy(APP, place)
    scratch = ("-D", f"io.tmp.dirs={place / 'tmp'}")
    line = [*COMMAND, "run-application", "--json", *ON_SPARK, *scratch]
    line += [*harness.impatient(), "--slots", "1", str(place / APP.name)]
    feed = Feed(place)
    run = Run(line, place, place / "stderr.log")
    kills: Counter[str] = Counter()
    began = time.monotonic()
    try:
        run.grown("runs.txt", 1)
        while kills.total() < arguments.kills:
            await_moment(run, chance)
            kills.update(filter(None, [strike(run, chance, began)]))
        feed.end()
        run.release()
        code = run.finish(END_S)
        faults = judge(run, code, feed.rows, kills)
    except GoneError as error:
        faults = [str(error)]
    finally:
        feed.end()
        harness.end(run)
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(kills.items()))
    last = run.of("checkpoint-completed")[-1:]
    print(
        f"seed {arguments.seed}: {kills.total()} kills ({told}), {feed.rows} rows, "
        f"{len(run.lines('runs.txt'))} attempts, "
        f"{last[0]['number'] if last else 0} checkpoints: "
        + ("; ".join(faults) if faults else "each row once, nothing violated")
    )
    if not faults:
        shutil.rmtree(place, ignore_errors=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
