"""What it costs a streaming query that each of its batches is recorded as a checkpoint."""

from __future__ import annotations

import json
import os
import statistics
from collections import Counter
from pathlib import Path

from benchmarks import clusters
from benchmarks.clusters import cluster
from benchmarks.counting import SWAPS
from benchmarks.figures import Chapter, Effort, Series, table_of
from benchmarks.writes import COUNTED, counting

WORK = 60_000_000
"""Rows that a batch computes with: about a second on two cores."""


def run(effort: Effort) -> Chapter:
    """Run a query in turn with and without recording, in one driver."""
    batches, runs = effort.of(12, 4), effort.of(6, 1)
    with counting(), cluster("streams.py", batches, runs, WORK, options=COUNTED, spark=True) as one:
        assert one.finish(clusters.PATIENCE_S * 3) == 0, one.story()
        noted = clusters.noted(one, "runs.jsonl")
        last = one.of("checkpoint-completed")[-1]["number"]
        swaps = _swaps(Path(os.environ[SWAPS]))
    series = {
        recorded: Series(
            "recorded" if recorded else "not recorded",
            tuple(
                seconds
                for note in noted
                if note["recorded"] is recorded
                # The first of a run plans the query, the last has nothing to compute.
                for seconds in note["batches"][1:batches]
            ),
        )
        for recorded in (False, True)
    }
    work = {
        recorded: Series(
            f"{series[recorded].name}: processor time",
            tuple(n["processor"] / batches for n in noted if n["recorded"] is recorded),
        )
        for recorded in (False, True)
    }
    pairs = zip(work[True].samples, work[False].samples, strict=True)
    more = statistics.median(one - other for one, other in pairs)
    cost = more / work[False].median
    writes = swaps["checkpoints"] / last
    return Chapter(
        "Recording a streaming query's batches",
        f"The same query, files to Parquet, about one batch a second, {runs} times with its "
        f"batches recorded as checkpoints and {runs} times without, in turn, in one driver; the "
        "time of each batch as Spark reports it, and the processor time that a batch takes of all "
        "processes of the cluster but waiting drivers: the query takes all there is, so what is "
        "recorded is taken from it, and a wall clock on a shared machine tells less. The writes "
        "are those of the whole run into the document of the job's checkpoints.",
        (table_of(*series.values(), *work.values()),),
        f"With recording a batch takes {cost:+.1%} of processor time (the median of {runs} pairs, "
        "each of which varies by more than that by itself where the machine is shared); a "
        f"checkpoint costs {writes:.2f} register writes.",
    )


def _swaps(notes: Path) -> Counter[str]:
    lines = map(json.loads, notes.read_text().splitlines())
    return Counter(line["key"].split("-")[0] for line in lines)
