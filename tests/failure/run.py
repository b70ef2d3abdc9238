"""One run: faults one after the other, or two at a time, and the verdict over its history."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tests.failure import faults
from tests.failure.checker import Final, summary, violations
from tests.failure.cluster import APART, PATIENCE_S, Stage, open_stage, until
from tests.failure.contender import CLUSTER, TALLIES, Tally, open_cluster
from tests.failure.faults import Draw, Fault, Kind
from tests.failure.history import events, now
from tests.support.zookeeper import MEMBERS
from understudy.ha.documents import Document
from understudy.ha.register import Register
from understudy.ha.registry import APPLICATION_PREFIX, Registry

SESSION_S = 5.0
MARGIN_S = 25.0
"""After a fault somebody must lead within the session timeout and this: servers are started again,
elect their own leader and expire sessions by their tick, on a machine that may be busy."""

LOAD_MAX = 8
"""So many processes for each processor: with more, no server answers in time, and nobody is judged
for a leadership that ended too soon. How many rounds were judged is told."""

GUARDED = ("zk1", "zk3", "a")
"""On these hosts the contender has a guardian, which closes its session after its death."""


@dataclass(frozen=True)
class Plan:
    """What is done."""

    seed: int
    faults: int
    pairs: bool = False
    """Two at a time, as often as one."""
    limit_s: float = float("inf")
    """No further fault after so long."""
    session_s: float = SESSION_S
    kinds: tuple[Kind, ...] = ()
    """Those that are drawn from; empty for all that are possible here."""


@dataclass(frozen=True)
class Verdict:
    """What was seen."""

    plan: Plan
    story: list[str]
    violations: list[str]
    counts: dict[str, Any]


def run(plan: Plan, directory: Path) -> Verdict:
    """Play it, and judge; the history stays in the directory."""
    with open_stage(directory, plan.session_s, fsync=True) as stage:
        stage.ensemble.start()
        stage.contend([*MEMBERS, *APART], GUARDED)
        stage.watch([*MEMBERS, *APART])
        return play(plan, stage, plan.kinds or faults.kinds())


def play(plan: Plan, stage: Stage, kinds: Sequence[Kind]) -> Verdict:
    """Do what is planned to those who contend and watch there, and judge.

    What could not be played to its end, as when nobody leads, is one violation beside those of the
    history so far.
    """
    story: list[str] = []
    with _told_of(stage, "a round"):
        for sentence in _rounds(plan, stage, kinds):
            story.append(sentence)
            print(sentence, flush=True)
    final = None
    with _told_of(stage, "the end"):
        final = _rest(stage)
    found = events(stage.history)
    return Verdict(plan, story, violations(found, final), summary(found))


@contextlib.contextmanager
def _told_of(stage: Stage, what: str) -> Iterator[None]:
    """Note what has failed for the checker: it is judged with all that was written before."""
    try:
        yield
    except Exception as error:
        traceback.print_exc()
        stage.pen.note("odd", sentence=f"{what} was not played to its end: {error!r}")


def _rounds(plan: Plan, stage: Stage, kinds: Sequence[Kind]) -> Iterator[str]:
    """Play one round after the other, and tell each."""
    chance = random.Random(plan.seed)
    assert stage.await_write(0.0, PATIENCE_S), f"nobody leads, see {stage.directory}"
    began, left = time.monotonic(), plan.faults
    bag: list[Kind] = []
    for number in itertools.count(1):
        if left <= 0 or time.monotonic() - began >= plan.limit_s:
            return
        count = min(left, chance.choice([1, 2]) if plan.pairs else 1)
        left -= count
        while len(bag) < count:  # Each kind once, before any comes again.
            bag += chance.sample(kinds, len(kinds))
        drawn = [bag.pop(0) for _ in range(count)]
        yield _round(stage, chance, drawn, number)


def _round(stage: Stage, chance: random.Random, drawn: list[Kind], number: int) -> str:
    leader, serves = until(stage.leader, "nobody leads", stage.session_s + MARGIN_S)
    before, began = serves["term"], now()
    its: list[Fault] = [make(Draw(stage, leader, chance)) for make in drawn]
    for fault in sorted(its, key=lambda fault: not fault.needs_quorum):
        stage.pen.note("fault", kind=fault.kind, story=fault.story)
        if fault.robs:
            stage.pen.note("robbed", term=before)
        try:
            fault.begin()
        except OSError as error:  # There is no quorum to ask, or nothing there any more.
            stage.pen.note("not begun", kind=fault.kind, why=str(error))
    time.sleep(max(0.0, began + max(fault.lasts_s for fault in its) - now()))
    for fault in sorted(its, key=lambda fault: fault.needs_quorum):
        fault.end()
    over = now()
    write = stage.await_write(over, stage.session_s + MARGIN_S)
    recovered_s = round(write.at - over, 3) if write else None
    after = _term_of(stage, write["id"]) if write else None
    told = f"{number}: {' + '.join(fault.story for fault in its)}"
    stage.pen.note(
        "round",
        story=told,
        began=began,
        before=before,
        after=after,
        recovered_s=recovered_s,
        limit_s=stage.session_s + MARGIN_S,
        harmless=len(its) == 1 and its[0].borne,
        busy=os.getloadavg()[0] > LOAD_MAX * (os.cpu_count() or 1),
        paused=serves.who if any(fault.kind == "contender-frozen" for fault in its) else "",
    )
    stage.await_serving()
    stage.raise_the_dead_quietly()
    return f"{told}: term {before} to {after}, written again after {recovered_s} s"


def _term_of(stage: Stage, number: str) -> int:
    return next(
        int(event["term"])
        for event in reversed(stage.reader.events)
        if event.what == "begin" and event["id"] == number
    )


def _rest(stage: Stage) -> Final:
    """Let all retrievals come to the last leader, end the contenders, and read what is left."""
    _, serves = until(stage.leader, "nobody leads at the end", stage.session_s + MARGIN_S)
    names = {f"watcher-{player.host}" for player in stage.watchers}

    def all_see() -> int | None:
        nonlocal serves
        found = stage.leader()
        serves = found[1] if found else serves
        last = [stage.last("seen", name) for name in names]
        return serves["term"] if all(e and e["term"] == serves["term"] for e in last) else None

    try:
        term = until(all_see, "", PATIENCE_S)
    except AssertionError:
        term = int(serves["term"])  # The checker tells who does not see it.
    stage.pen.note("rest", term=term)
    for player in stage.watchers:
        player.kill()
    for player in stage.contenders:
        player.kill()
    final = asyncio.run(_read(open_cluster(stage.settings()), term))
    (stage.directory / "final.json").write_bytes(msgspec.json.encode(final))
    return final


async def _read(register: Register, term: int) -> Final:
    """Read what is left; a server that a failed round has left frozen answers nobody."""
    async with asyncio.timeout(PATIENCE_S):
        return await _read_all(register, term)


async def _read_all(register: Register, term: int) -> Final:
    body = await Registry(register, CLUSTER).read()
    assert body is not None, "the registry is gone"
    tallies = {}
    for number in range(TALLIES):
        document = Document(register, f"tally-{number}", "tally", Tally)
        found = await document.read()
        if found is not None:
            tallies[document.key] = found.counts
    return Final(
        frozenset(link.document for link in body.applications.values()),
        frozenset(await register.keys(APPLICATION_PREFIX)),
        tallies,
        term,
    )


def told(verdict: Verdict) -> str:
    """Return the verdict for people."""
    counts = json.dumps(verdict.counts)
    end = "\n".join(verdict.violations) if verdict.violations else "nothing violated"
    return f"seed {verdict.plan.seed}: {counts}\n{end}"
