"""A quorum that is lost for most of a session: nobody stops leading.

``python -m tests.failure.quorum`` measures for how long: two of three servers are lost at a random
moment, frozen or killed, longer and longer.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.failure.checker import violations
from tests.failure.cluster import APART, PATIENCE_S, Stage, open_stage, until
from tests.failure.history import events, now
from tests.support.zookeeper import Server

SESSION_S = 20.0
SHARE = 0.5
"""What is left of 0.7, for the servers to agree on a leader of their own again."""

WAYS: dict[str, tuple[Callable[[Server], object], Callable[[Server], object]]] = {
    "frozen": (Server.freeze, Server.thaw),
    "killed": (Server.kill, Server.launch),
}


@dataclass(frozen=True)
class Loss:
    """What a loss of the quorum has come to."""

    how: str
    lasted_s: float
    before: int
    after: int
    """The terms."""
    outage_s: float
    """What the leader sees: from the loss to the first acknowledged write."""

    @property
    def borne(self) -> bool:
        """Say whether the leadership went on."""
        return self.before == self.after


def lose(stage: Stage, how: str, lasts_s: float) -> Loss:
    """Lose two of three servers; return once somebody has written again."""
    player, before = until(stage.leader, "nobody leads")
    assert stage.await_write(now(), PATIENCE_S), "it does not write"
    time.sleep(stage.session_s * random.uniform(0.2, 0.4))  # It renews at its leisure again.
    # The one that stays is the leader's own as often as another.
    lost = random.sample(stage.ensemble.servers, 2)
    begin, end = WAYS[how]
    began = now()
    for server in lost:
        begin(server)
    time.sleep(max(0.0, began + lasts_s - now()))
    over = now()
    for server in lost:
        end(server)
    write = stage.await_write(over, PATIENCE_S)
    assert write, f"{player.host} does not write again"
    stage.ensemble.await_serving(PATIENCE_S)
    _, after = until(stage.leader, "nobody leads")
    return Loss(how, over - began, before["term"], after["term"], write.at - began)


def lost_for_most_of_a_session(directory: Path, session_s: float) -> tuple[Loss, list[str]]:
    """Freeze two of three servers for half of a session; return what it came to, and violations."""
    with open_stage(directory, session_s) as stage:
        stage.ensemble.start()
        stage.contend(APART, guarded=())
        loss = lose(stage, "frozen", SHARE * session_s)
    return loss, violations(events(directory / "history.jsonl"), None)


def main() -> int:
    """Measure; the exit code tells whether anything was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.failure.quorum", description=__doc__)
    parser.add_argument("--session", type=float, default=SESSION_S)
    parser.add_argument("--tick", type=int, default=2000, help="the servers' tickTime, ms")
    parser.add_argument("--sync", type=int, default=5, help="their syncLimit, ticks")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.4, 0.5, 0.6, 0.65, 0.7])
    parser.add_argument("--times", type=int, default=3, help="of each")
    arguments = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="understudy-quorum-"))
    with open_stage(
        place, arguments.session, tick_ms=arguments.tick, sync_ticks=arguments.sync
    ) as stage:
        stage.ensemble.start()
        stage.contend(APART, guarded=())
        for share in arguments.shares:
            for how in WAYS:
                for _ in range(arguments.times):
                    loss = lose(stage, how, share * arguments.session)
                    print(
                        f"session {arguments.session:g} s, {how} for {loss.lasted_s:.2f} s: "
                        f"{'borne' if loss.borne else 'leadership ended'}, written again "
                        f"{loss.outage_s - loss.lasted_s:.2f} s after",
                        flush=True,
                    )
    broken = violations(events(place / "history.jsonl"), None)
    print("\n".join(broken) or "nothing violated")
    shutil.rmtree(place)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
