"""A thousand retrievals that watch one leader: how long until each has seen the next one."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.failure.checker import violations
from tests.failure.cluster import open_stage, until
from tests.failure.history import Event, Reader, events
from tests.failure.windows import depose

SESSION_S = 30.0
PROCESSES = 4
CHANGES = 4
PATIENCE_S = 120.0


def spread(directory: Path, retrievals: int, sessions: int) -> tuple[list[float], list[str]]:
    """Return for each change of leader how long until all have seen it, and what was violated.

    Counted from when the leader knew that its addresses are published. The retrievals are in
    `PROCESSES` processes that share so many sessions evenly.
    """
    with open_stage(directory, SESSION_S, on_hosts=False) as stage:
        stage.ensemble.start()
        stage.contend(["one", "two"], guarded=(), idle=True)
        until(stage.leader, "nobody leads", PATIENCE_S)
        a_process = sessions // PROCESSES
        stage.watch(
            [f"w{n}" for n in range(PROCESSES)],
            sessions=a_process,
            each=retrievals // PROCESSES // a_process,
        )
        found = []
        for _ in range(CHANGES + 1):
            player, reign = until(stage.leader, "nobody leads", PATIENCE_S)
            at = until(partial(_all_saw, stage.reader, reign, retrievals), "unseen", PATIENCE_S)
            found.append(max(0.0, at - reign.at))
            depose(stage, player, reign)
    return found[1:], violations(events(directory / "history.jsonl"), None)


def _all_saw(reader: Reader, reign: Event, retrievals: int) -> float | None:
    """Return when the last of them saw this leader."""
    reader.more()
    seen = {
        (event.who, event["n"]): event.at
        for event in reversed(reader.events)
        if event.what == "seen" and event["term"] == reign["term"]
    }
    return max(seen.values()) if len(seen) >= retrievals else None
