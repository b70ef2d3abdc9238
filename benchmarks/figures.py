"""The nouns of a report: how much to measure, samples, tables, chapters."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Effort:
    """How much is measured, and where charts are put."""

    quick: bool
    images: Path

    def of(self, full: int, quick: int) -> int:
        """Return how many samples to take."""
        return quick if self.quick else full


@dataclass(frozen=True)
class Series:
    """Samples of one thing, in seconds."""

    name: str
    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """Return the median."""
        return statistics.median(self.samples)

    def quantile(self, share: float) -> float:
        """Return the sample that this share of all does not exceed."""
        return sorted(self.samples)[round(share * (len(self.samples) - 1))]

    def row(self) -> tuple[str, ...]:
        """Return the series as a row of a table; see `HEADER`."""
        told = (min(self.samples), self.median, self.quantile(0.9), max(self.samples))
        return (self.name, str(len(self.samples)), *(duration(each) for each in told))


HEADER = ("", "n", "min", "median", "p90", "max")


@dataclass(frozen=True)
class Table:
    """A table of a chapter; the first column is text, the others are numbers."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Chapter:
    """What one benchmark has found."""

    title: str
    told: str
    """What was measured, and how."""
    tables: tuple[Table, ...]
    found: str
    """The ratio that matters, in a sentence."""
    chart: str = ""
    """The name of the image; none if empty."""


def table_of(*series: Series) -> Table:
    """Return the distributions of several series."""
    return Table(HEADER, tuple(each.row() for each in series))


def duration(seconds: float) -> str:
    """Return seconds as people read them: three digits, and a unit that fits."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.3g} µs"
    if seconds < 1.0:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.2f} s"


def size(count: float) -> str:
    """Return bytes as people read them."""
    return f"{count / 1000:.1f} kB" if count >= 1000 else f"{count:.0f} B"


def ratio(one: float, other: float) -> str:
    """Return how many times the other one is."""
    return f"{one / other:.2f} ×"
