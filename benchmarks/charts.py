"""The two kinds of charts: distributions of takeovers, and curves over a number of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.figures import Series

DPI = 80
INCHES = 8
BLUE, GREY = "#2f6f9f", "#9a9a9a"


plt.switch_backend("Agg")  # No display, wherever it runs.


def distributions(path: Path, title: str, groups: Sequence[Series], unit: str = "seconds") -> str:
    """Draw each sample as a dot and each median as a bar; return the image's name."""
    figure, axes = plt.subplots(figsize=(INCHES, 0.6 + 0.45 * len(groups)), layout="constrained")
    for row, series in enumerate(reversed(groups)):
        shift = [row + 0.22 * ((index * 7 % 11) / 5 - 1) for index in range(len(series.samples))]
        axes.scatter(series.samples, shift, s=9, alpha=0.55, color=BLUE, linewidths=0)
        axes.plot([series.median] * 2, [row - 0.35, row + 0.35], color="black", linewidth=1.5)
    axes.set_yticks(range(len(groups)), [series.name for series in reversed(groups)])
    axes.set_xlim(left=0)
    axes.set_xlabel(unit)
    return _save(figure, axes, path, title)


def curve(
    path: Path,
    title: str,
    labels: tuple[str, str],
    x: Sequence[float],
    lines: dict[str, Sequence[float]],
) -> str:
    """Draw lines over a number; return the image's name."""
    figure, axes = plt.subplots(figsize=(INCHES, 3), layout="constrained")
    for (name, values), colour in zip(lines.items(), (BLUE, GREY, "black"), strict=False):
        axes.plot(x, values, marker="o", markersize=4, color=colour, label=name)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.set_ylim(0, max(map(max, lines.values())) * 1.15)
    if len(lines) > 1:
        axes.legend(frameon=False)
    return _save(figure, axes, path, title)


def _save(figure: Figure, axes: Axes, path: Path, title: str) -> str:
    axes.set_title(title, loc="left", fontsize=10)
    axes.grid(axis="both", alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI, metadata={"Software": ""})
    plt.close(figure)
    return path.name
