"""How long commands and processes of ours take to start, beside Python itself."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import charts
from benchmarks.clusters import PATIENCE_S
from benchmarks.figures import Chapter, Effort, Series, duration, table_of

IMAGE = "starts.png"

PROCESSES = {
    "imports of a JobManager": "understudy.cli.launch.jobmanager_process",
    "imports of a TaskManager": "understudy.cli.launch.taskmanager_process",
    "imports of a driver": "understudy.driver.driver",
    "imports of a process for main": "understudy.application.application_process",
}
"""Each kind of process, with the module that it runs."""


def run(effort: Effort) -> Chapter:
    """Start each of them, in turns, so that other work on the machine meets them alike."""
    with tempfile.TemporaryDirectory() as empty:
        storage = f"high-availability.storageDir={Path(empty) / 'ha'}"
        commands = {
            "python -c pass": ("-c", "pass"),
            "understudy --version": ("-m", "understudy", "--version"),
            "understudy list, no cluster": ("-m", "understudy", "list", "-D", storage),
            **{name: ("-c", f"import {module}") for name, module in PROCESSES.items()},
        }
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(effort.of(30, 2)):
            for name, arguments in commands.items():
                taken[name].append(_start(arguments))
    series = [Series(name, tuple(samples)) for name, samples in taken.items()]
    plain, version, listed, manager, *_ = series
    chart = charts.distributions(effort.images / IMAGE, "From the start to the exit", series)
    return Chapter(
        "Start of commands and processes",
        "From the start of a Python process to its exit: commands, and the imports with which each "
        "kind of process begins. All run in turns, beside a Python that does nothing.",
        (table_of(*series),),
        f"`understudy --version` takes {duration(version.median)}, `understudy list` "
        f"{duration(listed.median)}, the imports of a JobManager {duration(manager.median)}; "
        f"`python -c pass` takes {duration(plain.median)}.",
        chart,
    )


def _start(arguments: tuple[str, ...]) -> float:
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments], capture_output=True, check=True, timeout=PATIENCE_S
    )
    return time.perf_counter() - began
