"""How many worlds, and which: ``pytest tests/sim --worlds 20000``, ``… --seed 17``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

WORLDS = 2_000
BATCH = 50
"""Worlds in one test: so many that a batch is worth a test, so few that workers share them."""

KEPT = Path(__file__).with_name("seeds.txt")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the simulation."""
    group = parser.getgroup("sim", "simulated worlds")
    group.addoption("--seed", type=int, default=None, help="run this one world, and tell its story")
    group.addoption("--worlds", type=int, default=WORLDS, help=f"how many worlds ({WORLDS})")


def kept_seeds() -> list[int]:
    """Return the seeds of worlds that have failed once."""
    lines = KEPT.read_text().splitlines()
    return [int(line.partition("#")[0]) for line in lines if line.partition("#")[0].strip()]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Spread the worlds over batches."""
    seed = metafunc.config.getoption("--seed", None)
    worlds = metafunc.config.getoption("--worlds", WORLDS)
    if "batch" in metafunc.fixturenames:
        batches = [range(first, min(first + BATCH, worlds)) for first in range(0, worlds, BATCH)]
        if seed is not None:
            batches = [range(seed, seed + 1)]
        ids = [f"{one[0]}-{one[-1]}" for one in batches]
        metafunc.parametrize("batch", batches, ids=ids)
    if "kept_seed" in metafunc.fixturenames:
        metafunc.parametrize("kept_seed", kept_seeds() if seed is None else [])


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how much was simulated, by all workers together."""
    totals: dict[str, float] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") != "call":
                continue
            for name, value in report.user_properties:
                if name in {"worlds", "virtual_s", "processor_s"}:
                    totals[name] = totals.get(name, 0.0) + value
    if totals.get("worlds") and totals.get("processor_s"):
        worlds, seconds = totals["worlds"], totals["processor_s"]
        hours = totals["virtual_s"] / 3600
        terminalreporter.write_line(
            f"{worlds:.0f} worlds, {hours:.1f} virtual hours: {worlds / seconds:.0f} worlds and "
            f"{hours / seconds:.2f} virtual hours per second of one core"
        )
