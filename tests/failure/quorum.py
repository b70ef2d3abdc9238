"""A quorum that is lost for most of a session, at the default timeout: nobody stops leading."""

from __future__ import annotations

import time
from pathlib import Path

from tests.failure.checker import violations
from tests.failure.cluster import APART, PATIENCE_S, open_stage, until
from tests.failure.history import events, now

SESSION_S = 20.0
SHARE = 0.5
"""What is left of 0.7, for the servers to agree on a leader of their own again."""


def lost_for_most_of_a_session(directory: Path) -> tuple[int, int, float, list[str]]:
    """Freeze two of three servers; return the terms before and after, the outage, and violations.

    The outage is what the leader sees: from the last write before to the first one after.
    """
    with open_stage(directory, SESSION_S) as stage:
        stage.ensemble.start()
        stage.contend(APART, guarded=())
        player, before = until(stage.leader, "nobody leads")
        assert stage.await_write(now(), PATIENCE_S), "it does not write"
        lost = [server for n, server in enumerate(stage.ensemble.servers) if n != 0]
        began = now()
        for server in lost:
            server.freeze()
        time.sleep(SHARE * SESSION_S)
        for server in lost:
            server.thaw()
        write = stage.await_write(now(), PATIENCE_S)
        assert write, f"{player.host} does not write again"
        _, after = until(stage.leader, "nobody leads")
    found = events(directory / "history.jsonl")
    return before["term"], after["term"], write.at - began, violations(found, None)
