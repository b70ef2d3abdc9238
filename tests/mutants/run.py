"""Apply each mutant to a copy of the source, and show that a test fails: ``make mutants [ONLY=…]``.

A mutant that no test notices is printed, and makes the exit code 1. Before that, the tests of all
mutants that are tried must pass on a copy without any. Each mutant is tried with the tests that it
names, ``--workers`` of them at once (as many as there are processors). What other tests than
those of the catalogue notice is asked for with ``--with``, for example what simulated worlds find
alone: ``python -m tests.mutants.run core --with tests/sim/test_worlds.py --worlds 500 --shrink 0``.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.catalogue import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]

DEADLINE_S = 180.0
"""A mutant that hangs its tests has been noticed, too."""

HEALTHY_S = 1800.0
"""All tests of all mutants, once, without any mutant: on a machine that does something else, too.
This deadline decides nothing; it only ends what hangs."""

WITH = "--with"
WORKERS = "--workers"

NOTICED, NO_TESTS = 1, 5
"""Exit codes of pytest: some tests failed; none was found."""


@contextmanager
def planted(mutant: Mutant | None) -> Iterator[Path]:
    """Yield a copy of the repository's code with the mutant in it."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        copy = Path(name)
        for part in ("src", "tests"):  # With what Python has compiled: that takes longest.
            shutil.copytree(ROOT / part, copy / part)
        for file in ("pyproject.toml", "Makefile"):
            shutil.copy(ROOT / file, copy / file)
        if mutant:
            path = copy / "src" / "understudy" / mutant.path
            text = path.read_text()
            assert text.count(mutant.before) == 1, f"{mutant.name}: not found once in {path.name}"
            path.write_text(text.replace(mutant.before, mutant.after))
        yield copy


@dataclass(frozen=True)
class Outcome:
    """What became of tests."""

    told: str
    """"noticed", "survived", or what else went wrong."""
    by: str = ""
    """The test that has noticed."""
    seconds: float = 0.0


def outcome(
    mutant: Mutant | None,
    tests: tuple[str, ...],
    deadline_s: float = DEADLINE_S,
    options: tuple[str, ...] = (),
) -> Outcome:
    """Run tests on a copy with a mutant in it, up to the first that fails."""
    began = time.monotonic()

    def so(told: str, by: str = "") -> Outcome:
        return Outcome(told, by, time.monotonic() - began)

    with planted(mutant) as copy:
        command = (sys.executable, "-m", "pytest", "-q", "-x", "-rf", "-p", "no:cacheprovider")
        # In a session of its own: what the tests have started ends with them.
        process = subprocess.Popen(
            [*command, *options, *tests],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy / "src")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return so("noticed", f"no end within {deadline_s:g} s")
    if process.returncode == 0:
        return so("survived")
    if process.returncode == NOTICED:
        failed = [line for line in said.splitlines() if line.startswith("FAILED ")]
        return so("noticed", failed[0][7:].partition(" - ")[0] if failed else "an error")
    return so(f"pytest ended with {process.returncode}: {said[-400:]}")


def main(words: list[str]) -> int:
    """Try the mutants whose name contains one of the words (all without words)."""
    words, others = _split(words)
    words, workers = _workers(words)
    chosen = [
        mutant
        for mutant in MUTANTS
        if not words or any(word in f"{mutant.name} {mutant.path}" for word in words)
    ]
    every = others or _together({test for mutant in chosen for test in mutant.tests})
    began = time.monotonic()
    at_once = ("-n", str(workers), "--dist", "loadfile") if workers > 1 else ("-n", "0")
    healthy = outcome(None, every, HEALTHY_S, at_once)
    if healthy.told != "survived":
        print(f"the tests fail without any mutant: {healthy.told} {healthy.by}")
        return 2
    print(f"the tests pass without any mutant, in {healthy.seconds:.0f} s", flush=True)
    failures = 0
    with ThreadPoolExecutor(workers) as pool:
        tried = pool.map(lambda one: outcome(one, others or one.tests, options=("-n", "0")), chosen)
        for mutant, found in zip(chosen, tried, strict=True):
            failures += found.told != "noticed"
            where = f"§{mutant.invariant:<2} {mutant.path}: {mutant.name}"
            print(f"{found.told:>9} {found.seconds:5.1f} s  {where}  {found.by}", flush=True)
    print(
        f"{len(chosen) - failures} of {len(chosen)} mutants were noticed, "
        f"in {time.monotonic() - began:.0f} s"
    )
    return 1 if failures else 0


def _together(tests: set[str]) -> tuple[str, ...]:
    """Return the tests without those that another one of them holds."""
    return tuple(sorted(test for test in tests if test.partition("::")[0] not in tests - {test}))


def _workers(words: list[str]) -> tuple[list[str], int]:
    """Return the words without how many processes are to work at once, and how many."""
    if WORKERS not in words:
        return words, os.cpu_count() or 1
    at = words.index(WORKERS)
    return [*words[:at], *words[at + 2 :]], int(words[at + 1])


def _split(words: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """Return which mutants to try, and what to run instead of the tests of the catalogue."""
    if WITH not in words:
        return words, ()
    at = words.index(WITH)
    return words[:at], tuple(words[at + 1 :])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
