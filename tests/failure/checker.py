"""What must hold in a history, whatever has gone wrong in it; pure functions of its events.

Each returns sentences about what must not have happened. A write is known by its beginning and its
end: one that has no end, or an unknown outcome, may or may not have been done.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.failure.history import Event

FOREVER = float("inf")
COUNTS = ("count", "late")


@dataclass(frozen=True)
class Write:
    """One write of the workload."""

    who: str
    term: int
    key: str
    verb: str
    about: str
    n: int
    began: float
    ended: float
    outcome: str


@dataclass(frozen=True)
class Final:
    """What lies in the register when all has ended, read by somebody who does not lead."""

    linked: frozenset[str]
    documents: frozenset[str]
    tallies: dict[str, dict[str, int]]
    term: int


@dataclass(frozen=True)
class Reign:
    """From when to when one process acted under a term."""

    who: str
    term: int
    began: float
    ended: float


def violations(events: list[Event], final: Final | None) -> list[str]:
    """Return every sentence about something that must not have happened."""
    done = writes(events)
    found = [
        *stale_writes(done),
        *lost_counts(events, done, final),
        *lost_documents(events, done, final),
        *terms(events),
        *overlaps(events),
        *retrievals(events, final),
        *ended_by_little(events),
        *liveness(events),
    ]
    return found + [event["sentence"] for event in events if event.what == "odd"]


def writes(events: Iterable[Event]) -> list[Write]:
    """Return all writes, in the order of their beginnings."""
    ends = {event["id"]: event for event in events if event.what == "end"}
    found = []
    for event in events:
        if event.what != "begin":
            continue
        end = ends.get(event["id"])
        said = event.more
        found.append(
            Write(
                event.who,
                *(said["term"], said["key"], said["verb"], said["about"], said["n"]),
                event.at,
                end.at if end else FOREVER,
                end["outcome"] if end else "unknown",
            )
        )
    return found


def stale_writes(done: list[Write]) -> list[str]:
    """No write is acknowledged from a term below the highest that touched the document before."""
    found = []
    by: dict[str, list[Write]] = defaultdict(list)
    for write in done:
        if write.outcome == "done" and write.verb != "sweep":
            by[write.key].append(write)
    for key, its in by.items():
        ends = iter(sorted(its, key=lambda write: write.ended))
        highest, ended = 0, next(ends)
        for write in sorted(its, key=lambda write: write.began):
            while ended.ended < write.began:
                highest = max(highest, ended.term)
                ended = next(ends)
            if write.term < highest:
                found.append(
                    f"{key}: {write.verb} of term {write.term} by {write.who} was acknowledged "
                    f"though term {highest} had touched it before"
                )
    return found


def lost_counts(events: list[Event], done: list[Write], final: Final | None) -> list[str]:
    """Each acknowledged count is in what is read later, by a claim or at the end."""
    counts = [write for write in done if write.verb in COUNTS and write.outcome == "done"]
    claims = {
        (write.who, write.term, write.key): write.began
        for write in done
        if write.verb == "claim" and write.outcome == "done"
    }
    looks: list[tuple[str, str, float, dict[str, int]]] = []
    for event in events:
        if event.what == "found":
            began = claims.get((event.who, event["term"], event["key"]), event.at)
            looks.append((f"term {event['term']}", event["key"], began, event["counts"]))
    if final:
        looks += [("the end", key, FOREVER, seen) for key, seen in final.tallies.items()]
        missing = {write.key for write in counts} - set(final.tallies)
        looks += [("the end", key, FOREVER, {}) for key in missing]
    found = []
    best: dict[tuple[str, int], int] = {}
    order = iter(sorted(counts, key=lambda write: write.ended))
    following = next(order, None)
    for who, key, at, seen in sorted(looks, key=lambda look: look[2]):
        while following and following.ended < at:
            place = (following.key, following.term)
            best[place] = max(best.get(place, 0), following.n)
            following = next(order, None)
        for (its, term), number in best.items():
            if its == key and seen.get(str(term), 0) < number:
                found.append(
                    f"{key}: write {number} of term {term} was acknowledged, and {who} finds "
                    f"{seen.get(str(term), 0)}"
                )
    return found


def lost_documents(events: list[Event], done: list[Write], final: Final | None) -> list[str]:
    """What is linked stays until it is unlinked; what is unlinked stays away; no link dangles."""
    found = [
        f"{event['key']} is linked and gone, finds term {event['term']}: {event['why']}"
        for event in events
        if event.what == "missing"
    ]
    linked = {w.about: w.ended for w in done if w.verb == "link" and w.outcome == "done"}
    unlinks = [write for write in done if write.verb == "unlink"]
    begun = {write.about: write.began for write in reversed(unlinks)}
    gone = {write.about: write.ended for write in unlinks if write.outcome == "done"}
    claims = {(w.who, w.term): w.began for w in done if (w.key, w.verb) == ("registry", "claim")}
    looks = [
        (f"term {event['term']}", claims[event.who, event["term"]], event.at, {*event["keys"]})
        for event in events
        if event.what == "linked"
    ]
    if final:
        looks.append(("the end", FOREVER, FOREVER, set(final.linked)))
        found += [f"{key} is linked and gone, at the end" for key in final.linked - final.documents]
    for who, began, ended, keys in looks:
        found += [
            f"{key}: its link was acknowledged, and {who} does not find it"
            for key, at in linked.items()
            if at < began and key not in keys and (key not in begun or begun[key] > ended)
        ]
        found += [
            f"{key}: it was unlinked, and {who} finds it linked"
            for key, at in gone.items()
            if at < began and key in keys
        ]
    return found


def terms(events: list[Event]) -> list[str]:
    """Terms grow with each grant, and a term has one holder."""
    grants = [event for event in events if event.what == "grant"]
    return [
        f"term {after['term']} was granted to {after.who} after term {before['term']} to "
        f"{before.who}"
        for before, after in itertools.pairwise(grants)
        if after["term"] <= before["term"]
    ]


def reigns(events: list[Event]) -> list[Reign]:
    """Return who acted when: from the grant until it stopped, had to be killed, or was dead."""
    holds: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        if event.what == "hold":
            holds[event.who].append((event.at, event["until"]))
    revoked = {(e.who, e["term"]): e.at for e in events if e.what == "revoked"}
    dead = {event["of"]: event["by"] for event in events if event.what == "dead"}
    found = []
    for event in events:
        if event.what != "grant":
            continue
        stopped = revoked.get((event.who, event["term"]), FOREVER)
        its = [until for at, until in holds[event.who] if at <= stopped]
        ended = min(stopped, max(its, default=FOREVER), dead.get(event.who, FOREVER))
        found.append(Reign(event.who, event["term"], event.at, max(ended, event.at)))
    return found


def overlaps(events: list[Event]) -> list[str]:
    """An old leader has stopped before the next one starts.

    Unless its place in line was taken away by hand: it cannot know before it is told.
    """
    robbed = {event["term"] for event in events if event.what == "robbed"}
    return [
        f"term {before.term} ({before.who}) acted for {before.ended - after.began:.3f} s after "
        f"term {after.term} ({after.who}) was granted"
        for before, after in itertools.combinations(reigns(events), 2)
        if before.ended > after.began and before.term not in robbed
    ]


def retrievals(events: list[Event], final: Final | None) -> list[str]:
    """Nobody sees terms fall, and all end at the last leader."""
    found = []
    by: dict[tuple[str, int], list[Event]] = defaultdict(list)
    for event in events:
        if event.what == "seen":
            by[event.who, event["n"]].append(event)
    for (who, _), its in by.items():
        seen = [event["term"] for event in its if event["term"]]
        if seen != sorted(seen):
            found.append(f"{who} has seen terms fall: {seen}")
        if final and its[-1]["term"] != final.term:
            found.append(f"{who} ends at term {its[-1]['term']}, not at {final.term}")
    return found


def ended_by_little(events: list[Event]) -> list[str]:
    """A minority that is lost ends no leadership, nor a quorum that is lost for a short time."""
    found = []
    for event in events:
        if event.what != "round" or event["before"] == event["after"]:
            continue
        if not _is_judged(event, events):
            continue
        found.append(
            f"{event['story']}: term {event['before']} ended, though this is to be borne "
            f"(then: {event['after']})"
        )
    return found


def _is_judged(event: Event, events: list[Event]) -> bool:
    """Say whether a round can tell of time: not if the machine was held up itself."""
    lags = [e for e in events if e.what == "lag" and event["began"] <= e.at <= event.at]
    held_up = event["busy"] or any(lag.who != event["paused"] for lag in lags)
    return event["harmless"] and not held_up


def liveness(events: list[Event]) -> list[str]:
    """After each fault has ended, somebody leads in time."""
    return [
        f"{event['story']}: nobody led within {event['limit_s']:g} s after it was over"
        for event in events
        if event.what == "round" and event["recovered_s"] is None
    ]


def summary(events: list[Event]) -> dict[str, Any]:
    """Return how much has happened."""
    done = writes(events)
    rounds = [event for event in events if event.what == "round"]
    recovered = sorted(e["recovered_s"] for e in rounds if e["recovered_s"] is not None)
    outcomes: dict[str, int] = defaultdict(int)
    for write in done:
        outcomes[write.outcome] += 1
    kinds: dict[str, int] = defaultdict(int)
    for event in events:
        if event.what in {"fault", "not begun"}:
            kinds[event["kind"]] += 1 if event.what == "fault" else -1
    harmless = [event for event in rounds if event["harmless"]]
    ends = [event for event in harmless if event["before"] != event["after"]]
    return {
        "to_be_borne": {
            "rounds": len(harmless),
            "judged": sum(_is_judged(event, events) for event in harmless),
            "ended_a_leadership": len(ends),
        },
        "faults": sum(kinds.values()),
        "kinds": dict(sorted(kinds.items())),
        "writes": dict(outcomes),
        "terms": len([event for event in events if event.what == "grant"]),
        "recovered_s": {
            "median": recovered[len(recovered) // 2] if recovered else None,
            "max": recovered[-1] if recovered else None,
        },
    }
