"""Two-leader windows: a leader's host is cut off together with the server that it speaks with.

That server answers pings for as long as its ``syncLimit``, so a client that believes in them leads
on while the others have expired its session: 4.5 s were measured of a naive one. What is told here
is how long before the next grant the old leader had stopped, and that it wrote nothing meanwhile.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from tests.failure.checker import reigns, violations, writes
from tests.failure.cluster import Player, Stage, open_stage, until
from tests.failure.history import Event, events, now
from tests.support.zookeeper import MEMBERS

SESSION_S, TICK_MS, SYNC_TICKS = 4.0, 2000, 5
"""As measured: with these the server that is cut off goes on for 10 s, its client's session 4 s."""

PATIENCE_S = 60.0
FOLLOWER, LEADER = "follower", "leader"


@dataclass(frozen=True)
class Window:
    """One cut: how long after it the old leader stopped and the next was granted."""

    role: str
    """What the server was that was cut off."""
    stopped_s: float
    granted_s: float
    accepted: int
    """Writes of the old leader that were begun after the cut, and acknowledged."""
    refused: int

    @property
    def gap_s(self) -> float:
        """Return for how long nobody acted; below 0, two did."""
        return self.granted_s - self.stopped_s

    def __str__(self) -> str:
        """Tell it in one line."""
        return (
            f"{self.role} cut off with its client: stopped after {self.stopped_s:.2f} s, the next "
            f"granted after {self.granted_s:.2f} s, {self.gap_s:.2f} s between; {self.accepted} "
            f"writes accepted, {self.refused} not"
        )


def windows(directory: Path, followers: int, leaders: int) -> tuple[list[Window], list[str]]:
    """Cut so many off; return what was measured, and what was violated."""
    cuts: list[tuple[str, Event, float]] = []
    with open_stage(
        directory, SESSION_S, tick_ms=TICK_MS, sync_ticks=SYNC_TICKS, on_hosts=True
    ) as stage:
        stage.alone = True
        stage.ensemble.start()
        stage.contend(MEMBERS, guarded=())
        wanted = [FOLLOWER] * followers + [LEADER] * leaders
        for role in wanted:
            _, reign, cut_at = _cut(stage, role)
            cuts.append((role, reign, cut_at))
            print(window(events(stage.history), *cuts[-1]), flush=True)
        stage.reader.more()
    found = events(directory / "history.jsonl")
    return [window(found, *cut) for cut in cuts], violations(found, None)


def window(found: list[Event], role: str, reign: Event, cut_at: float) -> Window:
    """Return what came of a cut."""
    its = reigns(found)
    old = next(one for one in its if one.term == reign["term"])
    new = next(one for one in its if one.term > reign["term"])
    after = [write for write in writes(found) if write.who == old.who and write.began > cut_at]
    after = [write for write in after if write.term == old.term]
    accepted = [write for write in after if write.outcome == "done"]
    return Window(
        role,
        old.ended - cut_at,
        new.began - cut_at,
        len(accepted),
        len(after) - len(accepted),
    )


def _cut(stage: Stage, role: str) -> tuple[Player, Event, float]:
    """Cut the leader off with its server; return when the next one was there and all is healed."""
    assert stage.network is not None
    player, reign = _led_beside(stage, role)
    stage.network.isolate(player.host)
    cut_at = now()
    until(lambda: _granted_after(stage, reign["term"]), "nobody took over", PATIENCE_S)
    until(lambda: _granted_after(stage, reign["term"], "serves"), "nobody serves", PATIENCE_S)
    until(lambda: _stopped(stage, reign), "the old one acts for ever", PATIENCE_S)
    stage.network.heal()
    stage.ensemble.await_serving(PATIENCE_S)
    until(lambda: stage.server_of(player), "the old one does not come back", PATIENCE_S)
    return player, reign, cut_at


def _led_beside(stage: Stage, role: str) -> tuple[Player, Event]:
    """Have somebody lead whose server has this role."""
    while True:
        player, reign = until(stage.leader, "nobody leads", PATIENCE_S)
        server = stage.ensemble.servers[MEMBERS.index(player.host)]
        serving = server.serving()
        if serving is not None and serving.mode == role:
            assert stage.await_write(now(), PATIENCE_S), "it does not write"
            return player, reign
        depose(stage, player, reign)


def depose(stage: Stage, player: Player, reign: Event) -> None:
    """Have a leader step down, and somebody else lead."""
    os.kill(stage.pid(player), signal.SIGTERM)
    until(lambda: _granted_after(stage, reign["term"]), "nobody took over", PATIENCE_S)
    until(player.ended, "it does not end", PATIENCE_S)
    player.start()


def _granted_after(stage: Stage, term: int, what: str = "grant") -> Event | None:
    found = stage.last(what)
    return found if found and found["term"] > term else None


def _stopped(stage: Stage, reign: Event) -> Event | None:
    found = stage.last("revoked", reign.who)
    return found if found and found["term"] == reign["term"] else None
