"""Apply each mutant to a copy of the source, and show that a test fails: ``make mutants [ONLY=…]``.

A mutant that no test notices is printed, and makes the exit code 1. What other tests than those of
the catalogue notice is asked for with ``--with``, for example what simulated worlds find alone:
``python -m tests.mutants.run core --with tests/sim/test_worlds.py --worlds 500 --shrink 0``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.mutants.catalogue import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]

DEADLINE_S = 180.0
"""A mutant that hangs its tests has been noticed, too."""

WITH = "--with"

NOTICED, NO_TESTS = 1, 5
"""Exit codes of pytest: some tests failed; none was found."""


@contextmanager
def planted(mutant: Mutant | None) -> Iterator[Path]:
    """Yield a copy of the repository's code with the mutant in it."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        copy = Path(name)
        for part in ("src", "tests"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        for file in ("pyproject.toml", "Makefile"):
            shutil.copy(ROOT / file, copy / file)
        if mutant:
            path = copy / "src" / "understudy" / mutant.path
            text = path.read_text()
            assert text.count(mutant.before) == 1, f"{mutant.name}: not found once in {path.name}"
            path.write_text(text.replace(mutant.before, mutant.after))
        yield copy


def outcome(mutant: Mutant | None, tests: tuple[str, ...]) -> str:
    """Return "noticed", "survived", or what else went wrong."""
    with planted(mutant) as copy:
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
                cwd=copy,
                env={**os.environ, "PYTHONPATH": str(copy / "src")},
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "noticed"
    if done.returncode == 0:
        return "survived"
    if done.returncode == NOTICED:
        return "noticed"
    return f"pytest ended with {done.returncode}: {(done.stdout + done.stderr)[-400:]}"


def main(words: list[str]) -> int:
    """Try the mutants whose name contains one of the words (all without words)."""
    words, others = _split(words)
    chosen = [
        mutant
        for mutant in MUTANTS
        if not words or any(word in f"{mutant.name} {mutant.path}" for word in words)
    ]
    every = others or tuple(sorted({test for mutant in chosen for test in mutant.tests}))
    if (healthy := outcome(None, every)) != "survived":
        print(f"the tests fail without any mutant: {healthy}")
        return 2
    began = time.monotonic()
    failures = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutant, told in zip(
            chosen, pool.map(lambda one: outcome(one, others or one.tests), chosen), strict=True
        ):
            failures += told != "noticed"
            print(f"{told:>9}  §{mutant.invariant:<2} {mutant.path}: {mutant.name}", flush=True)
    print(
        f"{len(chosen) - failures} of {len(chosen)} mutants were noticed, "
        f"in {time.monotonic() - began:.0f} s"
    )
    return 1 if failures else 0


def _split(words: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """Return which mutants to try, and what to run instead of the tests of the catalogue."""
    if WITH not in words:
        return words, ()
    at = words.index(WITH)
    return words[:at], tuple(words[at + 1 :])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
