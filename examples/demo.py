"""Kill the leading JobManager in the middle of a run, and watch the run continue.

    make demo

Runs ``flights.py`` on a cluster of this machine (two JobManagers, one TaskManager) and kills the
leader with SIGKILL while the longest job runs. At the end prints who led when, what the new leader
adopted, and what was not run again. Exits with the application's exit code.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import deque
from pathlib import Path
from typing import Any

COMMAND = [
    *(sys.executable, "-m", "understudy", "run-application", "--json"),
    *("--jobmanagers", "2", "--taskmanagers", "1", "--slots", "2", "--master", "local[2]"),
    *("--conf", "spark.sql.shuffle.partitions=4"),  # 200 are too many for a year of flights.
    str(Path(__file__).with_name("flights.py")),
]
LONGEST_JOB = "planes and airports"
KILL_AFTER_S = 6.0
"""How long the longest job runs before the kill: a few of its months are done by then."""

DEADLINE_S = 600.0
CLOSE_S = 30.0
"""How long the cluster may take to shut down."""

TAIL_LINES = 30
LINE_BYTES_MAX = 16 << 20
"""Limit of one event line; the longest, a takeover, names every job that was not run again."""

INTERRUPTED = 128 + signal.SIGINT
OVER = {"FINISHED", "FAILED", "CANCELED"}
BOLD, DIM, RED, GREEN = "1", "2", "1;37;41", "1;32"
COLOURED = sys.stdout.isatty() and "NO_COLOR" not in os.environ


class Demo:
    """Runs the application, kills the leader, and prints what happens."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._pids: dict[str, int] = {}
        self._ready: set[str] = set()
        self._leader = ""
        self._running: dict[str, float] = {}
        self._longest_runs = asyncio.Event()
        self._killed_at: float | None = None
        self._over = False
        self._timeline: list[str] = []
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)

    async def run(self) -> int:
        """Run the application to its end and return its exit code."""
        self._tell("two JobManagers and a TaskManager start on this machine", BOLD)
        # In its own process group, so that Ctrl-C reaches the cluster only once: from us.
        process = await asyncio.create_subprocess_exec(
            *COMMAND, stdout=PIPE, stderr=PIPE, limit=LINE_BYTES_MAX, process_group=0
        )
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, process.send_signal, number)
        killing = asyncio.create_task(self._kill_leader())
        try:
            async with asyncio.timeout(DEADLINE_S):
                await self._follow(process)
        except TimeoutError:
            self._tell(f"no end after {DEADLINE_S:.0f} s: the cluster is closed", RED)
        finally:
            killing.cancel()
            if process.returncode is None:
                await self._close(process)
        assert process.returncode is not None
        self._conclude(process.returncode)
        return process.returncode

    async def _follow(self, process: Process) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._hear_events(process))
            group.create_task(self._pass_output(process))
        await process.wait()

    async def _close(self, process: Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
            try:
                async with asyncio.timeout(CLOSE_S):
                    await process.communicate()
            except TimeoutError:
                process.kill()  # The guardians then end the cluster.
                await process.wait()

    async def _kill_leader(self) -> None:
        """Kill the leader during the longest job; if that was too quick, during a later job."""
        await self._longest_runs.wait()
        await asyncio.sleep(KILL_AFTER_S)
        while not (self._running and self._ready - {self._leader}):
            await asyncio.sleep(0.05)
        pid, job = self._pids[self._leader], next(iter(self._running))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self._killed_at = time.monotonic()
        what = f"kill -9 {pid}: {self._leader}, the leader, is dead, in the middle of {job!r}"
        self._note(f">>> {what} <<<", RED)
        self._ready.discard(self._leader)

    async def _hear_events(self, process: Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            self._hear(json.loads(line))

    def _hear(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "jobmanager-started":
                self._pids[event["id"]] = event["pid"]
            case "jobmanager-ready":
                self._ready.add(event["id"])
                if event["id"] != self._leader:
                    self._tell(f"{event['id']} stands by")
            case "leader" if not self._over:  # The shutdown has a leader too, which is no news.
                self._leader = event["id"]
                self._note(f"{event['id']} leads, term {event['term']}{self._since_kill()}", BOLD)
            case "job-status":
                self._hear_job(event)
            case "takeover":
                self._hear_takeover(event)
            case "application-status":
                self._over = event["status"] in OVER
            case "application-finished":
                attempts = [job["attempt"] for job in event["jobs"]]
                ran = f"{len(attempts)} jobs, {sum(attempts)} attempts"
                self._note(f"{event['status']}: {ran}", GREEN)

    def _hear_job(self, event: dict[str, Any]) -> None:
        name, status = event["name"], event["status"]
        if status == "RUNNING" and event["adopted"]:
            self._tell(f"job {name!r} runs on: the new leader has adopted it")
        elif status == "RUNNING" and name not in self._running:
            self._running[name] = time.monotonic()
            self._tell(f"job {name!r} runs")
            if name == LONGEST_JOB:
                self._longest_runs.set()
        elif status in OVER:
            ran_s = time.monotonic() - self._running.pop(name, time.monotonic())
            self._tell(f"job {name!r} is {status} after {ran_s:.1f} s")

    def _hear_takeover(self, event: dict[str, Any]) -> None:
        lines = [f"the takeover took {event['seconds']:.2f} s"]
        for key, what in (
            ("adopted", "adopted, without an interruption"),
            ("skipped", "not run again"),
            ("restarted", "restarted"),
            ("displaced", "gave way"),
        ):
            if event.get(key):
                lines.append(f"{what}: {', '.join(event[key])}")
        self._note("\n          ".join(lines), GREEN)

    def _since_kill(self) -> str:
        if self._killed_at is None:
            return ""
        return f", {time.monotonic() - self._killed_at:.2f} s after the kill"

    async def _pass_output(self, process: Process) -> None:
        """Print the output of main and the jobs, and the warnings of the cluster's own log."""
        assert process.stderr is not None
        while line := await process.stderr.readline():
            text = line.decode(errors="replace").rstrip()
            self._tail.append(text)
            printed = re.match(r"\[([^]]+)\] (?:understudy\.job\.[^:]+: )?(.*)", text)
            if printed and printed[1] == "main":
                print(paint(f"│ {printed[2]}", DIM), flush=True)
            elif printed:
                self._tell(f"│ {printed[1]}: {printed[2]}", DIM)
            elif re.search(r" (WARNING|ERROR) ", text):
                self._tell(f"│ {text}", DIM)

    def _conclude(self, code: int) -> None:
        if code not in {0, INTERRUPTED}:
            print(
                f"\nThe last lines of the run, which exited with {code}:", *self._tail, sep="\n  "
            )
        print(paint("\nWhat happened", BOLD), *self._timeline, sep="\n")
        if self._killed_at is None:
            print("The run ended before its leader could be killed.")
        print(f"exit code {code}")

    def _note(self, text: str, style: str = "") -> None:
        """Print a line now, and again in the timeline at the end."""
        self._timeline.append(self._tell(text, style))

    def _tell(self, text: str, style: str = "") -> str:
        line = f"{time.monotonic() - self._start:6.1f} s  {paint(text, style)}"
        print(line, flush=True)
        return line


def paint(text: str, style: str) -> str:
    """Colour a text if the output is a terminal."""
    return f"\033[{style}m{text}\033[0m" if COLOURED and style else text


if __name__ == "__main__":
    sys.exit(asyncio.run(Demo().run()))
