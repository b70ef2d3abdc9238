"""The kinds of charts: distributions of takeovers, curves over a number of jobs, parts of a sum."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from benchmarks.figures import Series

DPI = 80
INCHES = 8
BLUE, GREY = "#2f6f9f", "#9a9a9a"


plt.switch_backend("Agg")  # No display, wherever it runs.


def distributions(
    path: Path,
    title: str,
    groups: Sequence[Series],
    unit: str = "seconds",
    *,
    logarithmic: bool = False,
) -> str:
    """Draw each sample as a dot and each median as a bar; return the image's name."""
    figure, axes = plt.subplots(figsize=(INCHES, 0.6 + 0.45 * len(groups)), layout="constrained")
    for row, series in enumerate(reversed(groups)):
        shift = [row + 0.22 * ((index * 7 % 11) / 5 - 1) for index in range(len(series.samples))]
        axes.scatter(series.samples, shift, s=9, alpha=0.55, color=BLUE, linewidths=0)
        axes.plot([series.median] * 2, [row - 0.35, row + 0.35], color="black", linewidth=1.5)
    axes.set_yticks(range(len(groups)), [series.name for series in reversed(groups)])
    if logarithmic:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    else:
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


def sums(path: Path, title: str, unit: str, rows: dict[str, dict[str, float]]) -> str:
    """Draw each row as a bar of its parts, with the sum at its end; return the image's name."""
    figure, axes = plt.subplots(figsize=(INCHES, 1.4 + 0.45 * len(rows)), layout="constrained")
    parts = list(dict.fromkeys(part for row in rows.values() for part in row))
    colours = plt.get_cmap("tab20").colors  # type: ignore[attr-defined]
    places = list(reversed(range(len(rows))))
    left = [0.0] * len(rows)
    for number, part in enumerate(parts):
        widths = [row.get(part, 0.0) for row in rows.values()]
        axes.barh(places, widths, left=left, height=0.6, color=colours[number % 20], label=part)
        left = [before + width for before, width in zip(left, widths, strict=True)]
    for place, total in zip(places, left, strict=True):
        axes.annotate(
            f"{total:.3g}", (total, place), (4, 0), textcoords="offset points", va="center"
        )
    axes.set_yticks(places, list(rows))
    axes.set_xlim(0, max(left) * 1.08)
    axes.set_xlabel(unit)
    figure.legend(loc="outside lower center", ncols=2, fontsize=7, frameon=False)
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
