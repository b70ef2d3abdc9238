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
from benchmarks.figures import Chapter, Effort, Series, duration, table_of
from benchmarks.writes import COUNTED, counting


def run(effort: Effort) -> Chapter:
    """Run a query in turn with and without recording, in one driver."""
    batches, runs = effort.of(30, 4), effort.of(6, 1)
    with counting(), cluster("streams.py", batches, runs, options=COUNTED, spark=True) as one:
        assert one.finish(clusters.PATIENCE_S * 3) == 0, one.story()
        noted = clusters.noted(one, "runs.jsonl")
        last = one.of("checkpoint-completed")[-1]["number"]
        swaps = _swaps(Path(os.environ[SWAPS]))
    kinds = {
        "recorded": [note for note in noted if note["recorded"]],
        "not recorded": [note for note in noted if not note["recorded"]],
    }
    lasted = [  # The first of a run plans the query.
        Series(f"{kind}: a batch lasts", tuple(s for note in notes for s in note["batches"][1:]))
        for kind, notes in kinds.items()
    ]
    worked = [
        Series(f"{kind}: its processor time", tuple(note["processor"] / batches for note in notes))
        for kind, notes in kinds.items()
    ]
    more_s = statistics.median(
        one - other for one, other in zip(worked[0].samples, worked[1].samples, strict=True)
    )
    cores = len(os.sched_getaffinity(0))
    writes = swaps["checkpoints"] / last
    return Chapter(
        "Recording a streaming query's batches",
        f"The same query, files to Parquet, one batch a second, {batches} batches {runs} times "
        f"recorded as checkpoints and {runs} times not, in turn, in one driver: how long a batch "
        "lasts as Spark reports it, and the processor time that it takes of all processes of the "
        "cluster but waiting drivers. Recording is not on the query's way, so all that it can "
        "take from the throughput is the processor time of a query that needs every core. The "
        "writes are those of the whole run into the document of the job's checkpoints.",
        (table_of(*lasted, *worked),),
        f"To record a batch takes {duration(more_s)} of processor time (the median of {runs} "
        f"pairs): {more_s / cores:.2%} of what {cores} cores have for one batch a second; a "
        f"checkpoint costs {writes:.2f} register writes.",
    )


def _swaps(notes: Path) -> Counter[str]:
    lines = map(json.loads, notes.read_text().splitlines())
    return Counter(line["key"].split("-")[0] for line in lines)
