"""How many worlds, and which: ``pytest tests/sim --worlds 20000``, ``… --seed 17`` (`spec`)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.shrink import FAILED, KEPT, SHRINK_S, Patience, kept
from tests.sim.spec import Spec

WORLDS = 250
"""`make test-all` goes on where these end."""
BATCH = 50
"""Worlds in one test: so many that a batch is worth a test, so few that workers share them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the simulation."""
    group = parser.getgroup("sim", "simulated worlds")
    group.addoption("--seed", default=None, help="run this one world, and tell its story")
    group.addoption("--worlds", type=int, default=WORLDS, help=f"how many worlds ({WORLDS})")
    group.addoption(
        "--shrink", type=float, default=SHRINK_S, help=f"seconds for shrinking ({SHRINK_S:g})"
    )
    group.addoption("--first", type=int, default=0, help="the seed of the first world (0)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Spread the worlds over batches."""
    seed = metafunc.config.getoption("--seed", None)
    first = metafunc.config.getoption("--first", 0)
    end = first + metafunc.config.getoption("--worlds", WORLDS)
    if "batch" in metafunc.fixturenames:
        batches = [
            [Spec(seed) for seed in range(begin, min(begin + BATCH, end))]
            for begin in range(first, end, BATCH)
        ]
        if seed is not None:
            batches = [[one] for one in [Spec.parse(seed)] if not (one.many or one.kubernetes)]
        ids = [f"{one[0]}-{one[-1].seed}" for one in batches]
        metafunc.parametrize("batch", batches, ids=ids)
    # A world of several applications takes longer: one for ten of the others.
    for name in ("crowd", "kubernetes_batch"):
        if name not in metafunc.fixturenames:
            continue
        many, kubernetes = name == "crowd", name == "kubernetes_batch"
        batches = [
            [Spec(one, many=many, kubernetes=kubernetes) for one in range(at, at + BATCH // 10)]
            for at in range(first, end, BATCH)
        ]
        if seed is not None:
            wanted = Spec.parse(seed)
            fits = (wanted.many, wanted.kubernetes) == (many, kubernetes)
            batches = [[wanted]] if fits else []
        metafunc.parametrize(name, batches, ids=[str(one[0]) for one in batches])
    if "kept_world" in metafunc.fixturenames:
        worlds = dict.fromkeys((*kept(FAILED), *kept(KEPT))) if seed is None else {}
        metafunc.parametrize("kept_world", worlds, ids=str)


@pytest.fixture(scope="session")
def patience(pytestconfig: pytest.Config) -> Patience:
    """Return how long this process may go on shrinking worlds."""
    return Patience(pytestconfig.getoption("--shrink", SHRINK_S))


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
